"""Writes docs/causes: a page for each cause that the doctor knows, and an index, from the same data as its verdicts.

    python scripts/causes_page.py [--check]

Pages of causes that are gone are removed. With --check nothing is written, and the exit status is 1 if the pages are
not what the data gives.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "scripts")]

from gpuenv.doctor.catalog import Cause, causes  # noqa: E402
from gpuenv.doctor.model import TESTS  # noqa: E402
from gpuenv.doctor.verdicts import _CUDNN_TESTS, _FOLLOWS, _REFUTED_BY_FAILURE  # noqa: E402
from registry import write  # noqa: E402

FOLDER = ROOT / "docs" / "causes"
HEAD = """# Causes

What `gpuenv doctor` can say is wrong, with a page for each: how it looks, how it is known, what rules it out, and what
to do. The names stand in `doctor --json`. What is seen on the host outranks what a log says, and a cause that is ruled
out is never a verdict. How a verdict is reached is described in [doctor.md](../doctor.md).

Written by `python scripts/causes_page.py` from `matrix_data/doctor/causes.toml`; a test keeps it fresh.
"""
HAND = """## By hand

Numbers that the pages name, with the Python of the environment:

| number | command |
| --- | --- |
| of cuInit | `python -c "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"` |
| of nvmlInit | `python -c "import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"` |
| of cudnnGetVersion | `python -c "import torch, ctypes; print(ctypes.CDLL('libcudnn.so.9').cudnnGetVersion())"` |

PID is the number of the running program's process. Where it ends too soon to look into /proc/PID/maps,
`LD_DEBUG=libs` before its command prints which files are loaded.
"""
_BY_HAND = re.compile(r"cuInit|nvmlInit|cudnnGetVersion|/PID/")
SOLVED = (
    "Where the environment is known to it, `gpuenv doctor` solves for its frameworks on this host, and prints the "
    "command and what it gives."
)
WIDTH = 120
SCOPES = {
    "host": "the host",
    "environment": "the environment",
    "program": "the program, or how it is started",
}
LAYERS = {
    "driver": "The driver",
    "container": "Containers",
    "wsl": "WSL",
    "hardware": "The machine",
    "device": "The GPU's use",
    "process": "Which GPUs are seen",
    "package": "Packages",
    "cudnn": "cuDNN",
    "loader": "The loader",
    "arch": "Code for the GPU",
    "memory": "Memory",
    "program": "The program",
    "host": "The system's libraries",
    "install": "Installing",
}
# What makes a test beside --probe, which makes those marked P in TESTS: gpuenv detect, a check of gpuenv verify, or the
# doctor itself.
_DETECT = "`gpuenv detect`"
_DEVICE = "the check `device` of `gpuenv verify`"
_RULES = "the check `rules` of `gpuenv verify`"
_FILES = "the checks `owners`, `files` and `closure` of `gpuenv verify`"
MADE = {
    "fresh-process": "the check `cudnn handle` of `gpuenv verify`",
    "one-folder": "the checks `cudnn origin` and `cudnn version` of `gpuenv verify`",
    "free-memory": _DETECT,
    "float32-convolution": "the check `cudnn convolution` of `gpuenv verify`",
    "nvml": _DETECT,
    "visible-devices": _DETECT,
    "device-open": "`gpuenv doctor`, in /dev",
    "health": f"{_DETECT} and {_DEVICE}",
    "libcuda": f"{_DETECT} and {_DEVICE}",
    "driver-versions": f"{_DETECT} and {_DEVICE}",
    "cuinit": _DEVICE,
    "context": _DEVICE,
    "fabric": _DEVICE,
    "driver-runtime": _RULES,
    "companions": _RULES,
    "cudnn-version": _RULES,
    "architecture": "the checks `rules` and `cudnn device version` of `gpuenv verify`",
    "cuda-build": "the check `build` of `gpuenv verify`",
    "cudnn-present": "`gpuenv doctor`, in the loader's cache, and the check `cudnn libraries` of `gpuenv verify`",
    "cudnn-complete": "the check `cudnn libraries` of `gpuenv verify`",
    "loader-path": "the check `loader variables` of `gpuenv verify`",
    "libraries-resolve": "the check `closure` of `gpuenv verify`",
    "libc": "the check `glibc` of `gpuenv verify`",
    "one-cuda-major": _FILES,
    "environment": _FILES,
}


def changes(cause: Cause) -> str:
    """What has to change, and whether that takes root."""
    return f"{SCOPES[cause.scope]}; {'root is needed' if cause.root else 'no root is needed'}"


def plain(text: str, known: Mapping[str, Cause]) -> str:
    """The text, its stars and angles no markup, and names of causes as links; what stands in code is left."""
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        bare = re.sub(r"[*<>]", r"\\\g<0>", parts[place])
        parts[place] = re.sub(r"\w+", lambda name: link(known[name[0]]) if name[0] in known else name[0], bare)
    return "`".join(parts)


def link(cause: Cause) -> str:
    """A link to its page."""
    return f"[{cause.title}]({cause.id}.md)"


def wrapped(text: str, first: str = "") -> list[str]:
    """A paragraph of lines of a readable width, `first` before it; code and links stay on one line."""
    kept = re.sub(r"`[^`]+`|\[[^\]]+\]\([^)]+\)", lambda part: part[0].replace(" ", "\0"), first + text)
    lines = textwrap.wrap(
        kept, WIDTH, subsequent_indent=" " * len(first), break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in lines]


def tests(cause: Cause) -> Iterator[str]:
    """What decides it and what makes that, a point for each test."""
    against = _REFUTED_BY_FAILURE.get(cause.id, "")
    for test in dict.fromkeys((*cause.fails, *cause.passes, against)):
        says = ["failing proves the cause"] if test in cause.fails else []
        says += ["passing rules it out"] if test in cause.passes else []
        says += ["failing rules it out"] if test == against else []
        made = makers(test) if test else ""
        if made:
            yield from wrapped(f"`{test}` ({plain(in_words(test), {})}): {', '.join(says)}. Made by {made}.", "- ")


def makers(test: str) -> str:
    """What makes a test, "" for nothing."""
    probe = "`gpuenv doctor --probe`" if TESTS[test].startswith("P: ") else ""
    return " and ".join(filter(None, (probe, MADE.get(test, ""))))


def in_words(test: str) -> str:
    """What a test that passes shows."""
    return TESTS[test].removeprefix("P: ").partition(" (")[0]


def related(cause: Cause, known: Mapping[str, Cause]) -> Iterator[str]:
    """The causes that bring it about, those that it brings about, and those that the same tests tell from it."""
    linked = {cause.id}
    before = set(_FOLLOWS.get(cause.id, ()))
    after = {other for other, first in _FOLLOWS.items() if cause.id in first}
    beside = {one.id for one in known.values() if {*one.fails, *one.passes} & {*cause.fails, *cause.passes}}
    for words, others in (
        ("May be behind it", before),
        ("May follow from it", after),
        ("Told by the same tests", beside),
    ):
        some = [link(one) for one in known.values() if one.id in others - linked]
        linked |= others
        if some:
            yield from wrapped(f"{words}: {'; '.join(some)}.", "- ")


def page(cause: Cause, known: Mapping[str, Cause]) -> str:
    """The page of one cause."""
    lines = [f"# {cause.title}", "", f"`{cause.id}` in `gpuenv doctor --json`."]
    lines += [f"What has to change: {changes(cause)}.", "", "## What it looks like", ""]
    lines += [f"    {one}" for one in cause.looks]
    lines += ["", *wrapped(plain(cause.log, known))] if cause.log else []
    for title, some in (("How it is known", cause.proves), ("What rules it out", cause.refutes)):
        lines += ["", f"## {title}", "", *(line for one in some for line in wrapped(plain(one, known), "- "))]
    decided = list(tests(cause))
    if decided:
        lines += ["", "## Tests that decide it", "", *decided]
    if cause.id == "cudnn_init_failed_unknown":
        lines += ["", "## Tests that would tell, in their order", ""]
        for place, one in enumerate([one for one in TESTS if one in _CUDNN_TESTS], 1):
            lines += wrapped(f"`{one}` ({plain(in_words(one), {})}). Made by {makers(one)}.", f"{place}. ")
    lines += ["", "## What to do", "", *wrapped(plain(cause.fix, known))]
    if cause.solve:
        lines += ["", *wrapped(SOLVED)]
    others = list(related(cause, known))
    lines += ["", "## See also", "", *others] if others else []
    hand = ", [numbers and names by hand](README.md#by-hand)" if any(map(_BY_HAND.search, lines)) else ""
    return "\n".join([*lines, "", f"[All causes](README.md){hand}", ""])


def index(known: Mapping[str, Cause]) -> str:
    """The page that lists them, by layer in the order of LAYERS."""
    lines = [HEAD]
    for layer, title in LAYERS.items():
        lines += [f"## {title}", "", "| name | cause | what has to change |", "| --- | --- | --- |"]
        for cause in known.values():
            if cause.layer == layer:
                lines.append(f"| [`{cause.id}`]({cause.id}.md) | {cause.title} | {changes(cause)} |")
        lines.append("")
    return "\n".join([*lines, HAND])


def pages() -> dict[str, str]:
    """All pages, by their names."""
    known = causes()
    made = {f"{cause.id}.md": page(cause, known) for cause in known.values()}
    return {"README.md": index(known), **made}


def stale(made: Mapping[str, str]) -> list[str]:
    """Names of pages in FOLDER that are not as made, are missing, or are too many."""
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    return sorted(name for name in {*there, *made} if there.get(name) != made.get(name))


def main(arguments: list[str] | None = None) -> int:
    """Writes the pages, or compares them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page is stale")
    options = parser.parse_args(arguments)
    made = pages()
    wrong = stale(made)
    if options.check:
        print(f"{FOLDER}: " + (f"stale: {', '.join(wrong)}" if wrong else "fresh"))
        return 1 if wrong else 0
    for name in wrong:
        if name in made:
            write(str(FOLDER / name), made[name])
        else:
            (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
