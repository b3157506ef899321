"""Write docs/causes: one page for each cause that the doctor knows, and an index.

    python scripts/causes_page.py [--check]

The pages are made from the data that the verdicts use. Pages of causes that no longer exist are
removed. With --check nothing is written, and the exit status is 1 if a page is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "scripts")]

from gpuenv.doctor.catalog import Cause, causes  # noqa: E402
from gpuenv.doctor.judge import CUDNN_TESTS, REFUTED_BY_FAILURE, UNKNOWN_CAUSE  # noqa: E402
from gpuenv.doctor.model import PROBE_TESTS, TESTS  # noqa: E402
from registry import write  # noqa: E402

FOLDER = ROOT / "docs" / "causes"
HEAD = """# Causes

The causes that `gpuenv doctor` can find. Each page shows typical messages, what proves the cause,
what rules it out, and what to do. `doctor --json` uses the same names. Facts of the host outrank
the log, and a cause that is ruled out is never a verdict. [The doctor](../doctor.md) describes how
the doctor reaches a verdict.

`python scripts/causes_page.py` writes these pages from `matrix_data/doctor/causes.toml`. A test
checks that they are up to date.
"""
HAND = """## By hand

Commands for the numbers on the pages; use the Python of the environment:

| result of | command |
| --- | --- |
| cuInit | `python -c "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"` |
| nvmlInit | `python -c "import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"` |
| cudnnGetVersion | `python -c \
"import torch, ctypes; print(ctypes.CDLL('libcudnn.so.9').cudnnGetVersion())"` |

PID is the process ID of the running program. If the program ends too soon to read /proc/PID/maps,
put `LD_DEBUG=libs` before its command to print the loaded files.
"""
_BY_HAND = re.compile(r"cuInit|nvmlInit|cudnnGetVersion|/PID/")
SOLVED = (
    "If the environment is given, `gpuenv doctor` solves for its frameworks on this host, and "
    "prints the command and its result."
)
WIDTH = 100
SCOPES = {
    "host": "the host",
    "environment": "the environment",
    "program": "the program, or the way it is started",
}
LAYERS = {
    "driver": "The driver",
    "container": "Containers",
    "wsl": "WSL",
    "hardware": "The machine",
    "device": "Use of the GPU",
    "process": "Visible GPUs",
    "package": "Packages",
    "cudnn": "cuDNN",
    "loader": "The loader",
    "arch": "Code for the GPU",
    "memory": "Memory",
    "program": "The program",
    "host": "System libraries",
    "install": "Installing",
}
# What runs a test in addition to --probe, which runs PROBE_TESTS: gpuenv detect, a check of gpuenv
# verify, or the doctor itself.
_DETECT = "`gpuenv detect`"
_DEVICE = "the check `device` of `gpuenv verify`"
_RULES = "the check `rules` of `gpuenv verify`"
_FILES = "the checks `owners`, `files` and `closure` of `gpuenv verify`"
RUN_BY = {
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
    "cudnn-present": "`gpuenv doctor`, in the loader's cache, and the check `cudnn libraries` of "
    "`gpuenv verify`",
    "cudnn-complete": "the check `cudnn libraries` of `gpuenv verify`",
    "loader-path": "the check `loader variables` of `gpuenv verify`",
    "libraries-resolve": "the check `closure` of `gpuenv verify`",
    "libc": "the check `glibc` of `gpuenv verify`",
    "one-cuda-major": _FILES,
    "environment": _FILES,
}


def changes(cause: Cause) -> str:
    """Return what has to change, and whether this needs root."""
    root = "root is needed" if cause.root else "no root is needed"
    return f"{SCOPES[cause.scope]}; {root}"


def markdown(text: str, known: Mapping[str, Cause]) -> str:
    """Return the text as Markdown: names of causes become links, and code stays as it is."""
    parts = text.split("`")
    for place in range(0, len(parts), 2):  # the text between code
        escaped = re.sub(r"[*<>]", r"\\\g<0>", parts[place])
        parts[place] = re.sub(r"\w+", lambda word: linked(word[0], known), escaped)
    return "`".join(parts)


def linked(word: str, known: Mapping[str, Cause]) -> str:
    """Return a link for the name of a cause, or the word itself."""
    return link(known[word]) if word in known else word


def link(cause: Cause) -> str:
    """Return a link to the page of a cause."""
    return f"[{cause.title}]({cause.id}.md)"


def wrapped(text: str, first: str = "") -> list[str]:
    """Return the lines of a paragraph that starts with `first`. Code and links are not broken."""
    kept = re.sub(
        r"`[^`]+`|\[[^\]]+\]\([^)]+\)", lambda part: part[0].replace(" ", "\0"), first + text
    )
    indent = " " * len(first)
    lines = textwrap.wrap(
        kept, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in lines]


def tests(cause: Cause) -> Iterator[str]:
    """Yield a list item for each test that decides the cause."""
    against = REFUTED_BY_FAILURE.get(cause.id, "")
    for test in dict.fromkeys((*cause.fails, *cause.passes, against)):
        results = []
        if test in cause.fails:
            results.append("a failure proves the cause")
        if test in cause.passes:
            results.append("a pass rules it out")
        if test == against:
            results.append("a failure rules it out")
        run_by = runners(test) if test else ""
        if run_by:
            meaning = markdown(TESTS[test], {})
            text = f"`{test}` ({meaning}): {', '.join(results)}. Run by {run_by}."
            yield from wrapped(text, "- ")


def runners(test: str) -> str:
    """Return what runs a test; "" for nothing."""
    names = []
    if test in PROBE_TESTS:
        names.append("`gpuenv doctor --probe`")
    if test in RUN_BY:
        names.append(RUN_BY[test])
    return " and ".join(names)


def related(cause: Cause, known: Mapping[str, Cause]) -> Iterator[str]:
    """Yield the causes behind this one, those that follow from it, and those with its tests."""
    before = set(cause.behind)
    after = {other.id for other in causes().values() if cause.id in other.behind}
    own_tests = {*cause.fails, *cause.passes}
    same_tests = set()
    for candidate in known.values():
        if own_tests & {*candidate.fails, *candidate.passes}:
            same_tests.add(candidate.id)
    shown = {cause.id}
    for words, group in (
        ("Possible causes behind it", before),
        ("Possible consequences", after),
        ("Decided by the same tests", same_tests),
    ):
        links = [link(candidate) for candidate in known.values() if candidate.id in group - shown]
        shown |= group
        if links:
            yield from wrapped(f"{words}: {'; '.join(links)}.", "- ")


def page(cause: Cause, known: Mapping[str, Cause]) -> str:
    """Return the page of a cause."""
    lines = [f"# {cause.title}", "", f"`{cause.id}` in `gpuenv doctor --json`."]
    lines += [f"What has to change: {changes(cause)}.", "", "## Typical messages", ""]
    lines += [f"    {look}" for look in cause.looks]
    if cause.log:
        lines += ["", *wrapped(markdown(cause.log, known))]
    lines += section("What proves it", cause.proves, known)
    lines += section("What rules it out", cause.refutes, known)
    decided = list(tests(cause))
    if decided:
        lines += ["", "## Tests that decide it", "", *decided]
    if cause.id == UNKNOWN_CAUSE:
        lines += ["", "## Tests that would settle it, in order", "", *next_tests()]
    lines += ["", "## What to do", "", *wrapped(markdown(cause.fix, known))]
    if cause.solve:
        lines += ["", *wrapped(SOLVED)]
    others = list(related(cause, known))
    if others:
        lines += ["", "## See also", "", *others]
    footer = "[All causes](README.md)"
    if any(map(_BY_HAND.search, lines)):
        footer += ", [commands for numbers and names](README.md#by-hand)"
    return "\n".join([*lines, "", footer, ""])


def section(title: str, texts: Iterable[str], known: Mapping[str, Cause]) -> list[str]:
    """Return a section with a list."""
    lines = ["", f"## {title}", ""]
    for text in texts:
        lines += wrapped(markdown(text, known), "- ")
    return lines


def next_tests() -> Iterator[str]:
    """Yield a numbered list of the tests to run for a failure of cuDNN without a cause."""
    names = [test for test in TESTS if test in CUDNN_TESTS]
    for number, test in enumerate(names, 1):
        text = f"`{test}` ({markdown(TESTS[test], {})}). Run by {runners(test)}."
        yield from wrapped(text, f"{number}. ")


def index(known: Mapping[str, Cause]) -> str:
    """Return the page that lists the causes, by layer in the order of LAYERS."""
    lines = [HEAD]
    for layer, title in LAYERS.items():
        lines += [f"## {title}", "", "| name | cause | what has to change |", "| --- | --- | --- |"]
        for cause in known.values():
            if cause.layer == layer:
                name = f"[`{cause.id}`]({cause.id}.md)"
                lines.append(f"| {name} | {cause.title} | {changes(cause)} |")
        lines.append("")
    return "\n".join([*lines, HAND])


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    known = causes()
    texts = {f"{cause.id}.md": page(cause, known) for cause in known.values()}
    return {"README.md": index(known), **texts}


def stale(texts: Mapping[str, str]) -> list[str]:
    """Return the names of the pages in FOLDER that differ, are missing, or have no cause."""
    present = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    return sorted(name for name in {*present, *texts} if present.get(name) != texts.get(name))


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page is stale")
    options = parser.parse_args(arguments)
    texts = pages()
    names = stale(texts)
    if options.check:
        result = f"stale: {', '.join(names)}" if names else "up to date"
        print(f"{FOLDER}: {result}")
        return 1 if names else 0
    for name in names:
        if name in texts:
            write(str(FOLDER / name), texts[name])
        else:
            (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
