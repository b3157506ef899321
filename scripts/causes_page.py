"""Writes docs/causes.md: a section for each cause that the doctor knows, from the same data as its verdicts.

    python scripts/causes_page.py [--check]

With --check nothing is written, and the exit status is 1 if the page is not what the data gives.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "scripts")]

from gpuenv.doctor import TESTS  # noqa: E402  - the path must be set first
from registry import write  # noqa: E402

DATA = ROOT / "matrix_data" / "doctor" / "causes.toml"
PAGE = ROOT / "docs" / "causes.md"
HEAD = """# Causes

What `gpuenv doctor` can say is wrong: how it is known, what rules it out, and what to do. Where two are as sure, the
one of the higher rank comes first. What is seen on the host outranks what a log says, and a cause that is ruled out is
never a verdict. The names stand in `doctor --json`.

Written by `python scripts/causes_page.py` from `matrix_data/doctor/causes.toml`; a test keeps it fresh.
"""
SCOPES = {
    "host": "the host",
    "environment": "the environment",
    "program": "the program, or how it is started",
}


def plain(text: str) -> str:
    """The text, its stars no emphasis."""
    return text.replace("*", "\\*")


def section(cause: Mapping[str, Any]) -> Iterator[str]:
    """The lines of one cause."""
    yield f"## {cause['title']}\n"
    yield f"`{cause['id']}`, rank {cause['rank']}. What has to change: {SCOPES[cause['scope']]}" + (
        ", by an administrator." if cause["root"] else "."
    )
    yield "\nHow it is known:\n"
    yield from (f"- {plain(one)}" for one in cause["proves"])
    yield "\nWhat rules it out:\n"
    yield from (f"- {plain(one)}" for one in cause["refutes"])
    tests = [*(("fails", one) for one in cause.get("fails", ())), *(("passes", one) for one in cause.get("passes", ()))]
    if tests:
        yield "\nTests:\n"
    for how, test in tests:
        verb = "proves it by failing" if how == "fails" else "rules it out by passing"
        words, probed = TESTS[test].removeprefix("P: ").partition(" (")[0], TESTS[test].startswith("P: ")
        yield f"- `{test}` {verb}: {words}" + (" (`--probe` makes it)" if probed else "")
    yield f"\nWhat to do: {cause['fix']}"
    if cause["solve"]:
        yield "\nThe doctor solves for the installed frameworks on this host, and prints the command and what it gives."
    yield ""


def page() -> str:
    """The whole page."""
    causes = tomllib.loads(DATA.read_text(encoding="utf-8"))["cause"]
    lines = [HEAD, *(line for cause in sorted(causes, key=lambda one: -one["rank"]) for line in section(cause))]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Writes the page, or compares it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if the page is stale")
    options = parser.parse_args(arguments)
    text = page()
    if options.check:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE} is {'fresh' if fresh else 'stale'}")
        return 0 if fresh else 1
    write(str(PAGE), text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
