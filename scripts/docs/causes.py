"""docs/causes: a page for each cause that the doctor knows, and an index.

The pages are made from the data that the verdicts use.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping

from gpuenv.doctor.catalog import Cause, causes, tests, tests_for
from gpuenv.doctor.judge import UNKNOWN_CAUSE

HEAD = """# Error messages

Find your message, or let [`gpuenv doctor LOG`](../doctor.md) do it. Each page says what the message
means, what to do, what proves the cause and what rules it out. `doctor --json` has the name of the
page as `cause`.

"""
HAND = """
## By hand

Commands for the numbers on the pages; use the Python of the environment:

| result of | command |
|---|---|
| cuInit | `python -c "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"` |
| nvmlInit | `python -c "import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"` |
| cudnnGetVersion | `python -c \
"import torch, ctypes; print(ctypes.CDLL('libcudnn.so.9').cudnnGetVersion())"` |

PID is the process ID of the running program. `LD_DEBUG=libs` before its command prints the loaded
files, too.
"""
# The order of the messages.
LAYERS = (
    *("driver", "container", "wsl", "hardware", "device", "process", "package", "cudnn", "loader"),
    *("arch", "memory", "program", "host", "install"),
)


_BY_HAND = re.compile(r"cuInit|nvmlInit|cudnnGetVersion|/PID/")
_UNBROKEN = re.compile(r"`[^`]+`|\[[^\]]+\]\([^)]+\)")  # code, links


def markdown(text: str, known: Mapping[str, Cause], first: str = "") -> Iterator[str]:
    """Yield the lines of a paragraph that starts with `first`; names of causes become links."""

    def linked(word: re.Match[str]) -> str:
        cause = known.get(word[0])
        return f"[{cause.title}]({cause.id}.md)" if cause else word[0]

    parts = text.split("`")
    for place in range(0, len(parts), 2):  # the text between code
        parts[place] = re.sub(r"\w+", linked, re.sub(r"[*<>]", r"\\\g<0>", parts[place]))
    kept = _UNBROKEN.sub(lambda part: part[0].replace(" ", "\0"), first + "`".join(parts))
    lines = textwrap.wrap(
        kept,
        width=100,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from (line.replace("\0", " ") for line in lines)


def heading(cause: Cause, known: Mapping[str, Cause]) -> str:
    """Return the message of a cause, and the cause if another one has the same message."""
    message = re.sub(r"[`*<>]", r"\\\g<0>", cause.message)
    same = [other for other in known.values() if other.message == cause.message]
    return message if same == [cause] else f"{message}: {cause.title}"


def page(cause: Cause, known: Mapping[str, Cause]) -> str:
    """Return the page of a cause."""
    lines = [f"# {heading(cause, known)}", "", f"**{cause.title}.** Messages:", ""]
    lines += [f"    {look}" for look in cause.looks]
    if cause.log:
        lines += ["", *markdown(cause.log, known)]
    lines += ["", "## What to do", "", *markdown(cause.fix, known)]
    if cause.id == UNKNOWN_CAUSE:
        lines.append("")
        for number, test in enumerate(tests_for("cudnn"), 1):
            lines += markdown(f"`{test}`: {tests()[test].shows}", {}, f"{number}. ")
    new_solve = "; `gpuenv install torch --target env` solves again" if cause.solve else ""
    does = f"[`gpuenv doctor LOG`](../doctor.md) shows the evidence{new_solve}."
    lines += ["", *markdown(does, {})]
    for title, texts in (("Proved by", cause.proves), ("Ruled out by", cause.refutes)):
        lines += ["", f"## {title}", ""]
        for text in texts:
            lines += markdown(text, known, "- ")
    footer = f"[Messages](README.md). `{cause.id}`"
    if any(map(_BY_HAND.search, lines)):
        footer = f"[By hand](README.md#by-hand). {footer}"
    return "\n".join([*lines, "", *markdown(footer, {}), ""])


def index(known: Mapping[str, Cause]) -> str:
    """Return the page that lists the messages, by layer in the order of LAYERS."""
    by_layer = sorted(known.values(), key=lambda cause: LAYERS.index(cause.layer))
    lines = [f"- [{heading(cause, known)}]({cause.id}.md)" for cause in by_layer]
    return HEAD + "\n".join([*lines, HAND])


def files() -> dict[str, str]:
    """Return all pages."""
    known = causes()
    pages = {f"docs/causes/{cause.id}.md": page(cause, known) for cause in known.values()}
    return {"docs/causes/README.md": index(known), **pages}
