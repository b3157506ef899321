"""Write docs/causes: one page for each cause that the doctor knows, and an index.

    python scripts/tools.py docs causes [--check]

The pages are made from the data that the verdicts use. Pages of causes that no longer exist are
removed. With --check nothing is written, and the exit status is 1 if a page is stale.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from common import ROOT
from data.registry import write
from gpuenv.doctor.catalog import Cause, causes, tests, tests_for
from gpuenv.doctor.judge import UNKNOWN_CAUSE

FOLDER = ROOT / "docs" / "causes"
HEAD = """# Error messages

Find your message, or let `gpuenv doctor LOG` do it. Each page says what to do, what proves the
cause and what rules it out. Where another environment helps, the doctor solves for it and prints
the command. `doctor --json` has the name of the page as `cause`.

`python scripts/tools.py docs causes` writes these pages from `matrix_data/doctor/causes.toml`.

"""
HAND = """
## By hand

Commands for the numbers on the pages; use the Python of the environment:

| result of | command |
| --- | --- |
| cuInit | `python -c "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"` |
| nvmlInit | `python -c "import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"` |
| cudnnGetVersion | `python -c \
"import torch, ctypes; print(ctypes.CDLL('libcudnn.so.9').cudnnGetVersion())"` |

PID is the process ID of the running program. `LD_DEBUG=libs` before its command prints the loaded
files, too.
"""
_BY_HAND = re.compile(r"cuInit|nvmlInit|cudnnGetVersion|/PID/")
WIDTH = 100
# The order of the messages.
LAYERS = (
    *("driver", "container", "wsl", "hardware", "device", "process", "package", "cudnn", "loader"),
    *("arch", "memory", "program", "host", "install"),
)


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


def page(cause: Cause, known: Mapping[str, Cause]) -> str:
    """Return the page of a cause."""
    lines = [f"# {cause.title}", "", *(f"    {look}" for look in cause.looks)]
    if cause.log:
        lines += ["", *wrapped(markdown(cause.log, known))]
    lines += ["", "## What to do", "", *wrapped(markdown(cause.fix, known))]
    if cause.root:
        lines += ["", "Root is needed."]
    if cause.id == UNKNOWN_CAUSE:
        lines += ["", *next_tests()]
    lines += section("Proved by", cause.proves, known)
    lines += section("Ruled out by", cause.refutes, known)
    footer = f"[Messages](README.md). `{cause.id}`"
    if any(map(_BY_HAND.search, lines)):
        footer = f"[Commands for the numbers](README.md#by-hand). {footer}"
    return "\n".join([*lines, "", *wrapped(footer), ""])


def section(title: str, texts: Iterable[str], known: Mapping[str, Cause]) -> list[str]:
    """Return a section with a list."""
    lines = ["", f"## {title}", ""]
    for text in texts:
        lines += wrapped(markdown(text, known), "- ")
    return lines


def next_tests() -> Iterator[str]:
    """Yield a numbered list of the tests to run for a failure of cuDNN without a cause."""
    for number, test in enumerate(tests_for("cudnn"), 1):
        yield from wrapped(f"`{test}`: {markdown(tests()[test].shows, {})}", f"{number}. ")


def index(known: Mapping[str, Cause]) -> str:
    """Return the page that lists the messages, by layer in the order of LAYERS."""
    lines = []
    for cause in sorted(known.values(), key=lambda cause: LAYERS.index(cause.layer)):
        look = f"`` {cause.looks[0]} ``" if "`" in cause.looks[0] else f"`{cause.looks[0]}`"
        lines.append(f"- [{look}]({cause.id}.md)")
    return HEAD + "\n".join([*lines, HAND])


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    known = causes()
    texts = {f"{cause.id}.md": page(cause, known) for cause in known.values()}
    return {"README.md": index(known), **texts}


def stale(texts: Mapping[str, str]) -> list[str]:
    """Return the names of the pages in FOLDER that differ, are missing, or have no cause."""
    present = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    return sorted(name for name in {*present, *texts} if present.get(name) != texts.get(name))


def main(words: list[str]) -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page is stale")
    options = parser.parse_args(words)
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
