"""cuDNN's own log: a failed run again with the log on, and the reasons that it gives.

Formats, both seen in real logs of 8.9.7, 9.20.0 and 9.28.0: a block begins with "E! CuDNN (v92800 42) function NAME()
called:" (E error, W warning, I call; NVIDIA's own examples of 9.x leave the letter away and say "cuDNN"), its lines
with the small letter, and "Error: STATUS; Reason: TEXT" are the conditions in the order in which they were met: the
innermost comes FIRST, and after it what the callers made of it ("finalize_internal()", "ptrDesc->finalize()").
Variables: cuDNN 9 has CUDNN_LOGLEVEL_DBG (2: warnings and errors; 3: every call, too); cuDNN 8 has CUDNN_LOGERR_DBG,
CUDNN_LOGWARN_DBG and CUDNN_LOGINFO_DBG. Source: NVIDIA, cuDNN backend, "Error reporting and API logging".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from .runner import Outcome

SHOWN = 4  # reason lines in a check's evidence
LONGEST = 300  # characters of one
_BLOCK = re.compile(
    r"^\s*(?:[EWI]! |Error: |Warning: |Info: )?CuDNN \(v(\d+)[^)]*\) function (\w+)\(\) called:", re.IGNORECASE
)
_PREFIX = re.compile(r"^\s*(?:[ewi]!)?\s*")
_LINE = re.compile(r"(Error|Warning): (CUDNN_\w+); Reason: (.*)")
# No quantifier within another, and none without an end: a log may hold anything.
# What a caller says of what it called: a name and brackets, or a status that it hands on.
_HANDED_ON = re.compile(r"^!?\w+(?:(?:->|::|\.)\w+)*\(\)$|^status$|^_?status(?:_\w+)?$")
# What cuDNN's loader says on stderr and not in the log.
_LOADING = re.compile(
    r"Unable to load any of \{|Invalid handle\. Cannot load symbol|Could not (?:load|locate) |"
    r"Please make sure .{0,300}library path|sublibrary version mismatch|"
    r"lib(?:cu|nv)\S{1,200}: cannot open shared object file"
)
# The library's choice of its own mode is told as a warning of success; with a reason before it, that is the reason.
_MODE = re.compile(
    r"\s{0,9}cuDNN Library configuration is set to AUTO\. Automatically configuring the library mode to FULL\."
)


def reasons(text: str) -> tuple[str, ...]:
    """The reason lines of a cuDNN log (8.x or 9.x), each once: "cudnnCreate: CUDNN_STATUS_...: REASON".

    Of each failed call: its innermost error first, then the other conditions that say more than that a callee failed;
    and what cuDNN's loader says among the lines. The calls keep their order. () where the text holds none.
    """
    found: dict[str, None] = {}
    function, innermost = "", True
    for raw in text.splitlines():
        block = _BLOCK.match(raw)
        if block is not None:
            function, innermost = block[2], True
            continue
        line = _LINE.search(raw)
        if line is None:
            if _LOADING.search(raw):
                found.setdefault(_PREFIX.sub("", raw, count=1).strip()[:LONGEST])
            continue
        reason = _MODE.sub("", line[3]).strip()
        if line[2] == "CUDNN_STATUS_SUCCESS" and (line[1] == "Error" or not reason):
            continue
        if reason and (innermost or not _HANDED_ON.match(reason)):
            status = "warning" if line[2] == "CUDNN_STATUS_SUCCESS" else line[2]
            found.setdefault(f"{function}: {status}: {reason}".removeprefix(": ")[:LONGEST])
            innermost = False
    return tuple(found)


def calls(text: str) -> tuple[str, ...]:
    """The functions that a log of every call names, in order: what was called last before a crash."""
    return tuple(block[2] for block in map(_BLOCK.match, text.splitlines()) if block)


def variables(major: int, path: str, *, verbose: bool) -> dict[str, str]:
    """The variables that make cuDNN of that major version write its log to `path`."""
    if major >= 9:
        return {"CUDNN_LOGLEVEL_DBG": "3" if verbose else "2", "CUDNN_LOGDEST_DBG": path}
    told = {"CUDNN_LOGERR_DBG": "1", "CUDNN_LOGWARN_DBG": "1", "CUDNN_LOGDEST_DBG": path}
    return {**told, "CUDNN_LOGINFO_DBG": "1"} if verbose else told


def again(
    probe: Callable[..., Outcome], name: str, options: Mapping[str, Any], *, major: int, verbose: bool
) -> tuple[Outcome, tuple[str, ...]]:
    """Runs a probe once more with cuDNN's log in a file: what came of it, and the reasons that it gives.

    With `verbose` the last calls before the end stand behind the reasons.
    """
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gpuenv-cudnn-") as folder:
        path = os.path.join(folder, "cudnn.log")
        outcome = probe(name, options, variables(major, path, verbose=verbose))
        text = ""
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as stream:
                text = stream.read()
    found = list(dict.fromkeys((*reasons("\n".join(outcome.noise)), *reasons(text))))
    if verbose and calls(text):
        found.append(f"the last calls were {', '.join(calls(text)[-5:])}")
    return outcome, tuple(found)


def told(lines: tuple[str, ...]) -> str:
    """The reason lines as the tail of a check's evidence; "" where there are none."""
    more = f" | and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return "; cuDNN's log: " + " | ".join(lines[:SHOWN]) + more if lines else ""


def major_of(folder: str) -> int:
    """The major version of the libcudnn.so.N in a folder; 0 where there is none."""
    found = (re.fullmatch(r"libcudnn\.so\.(\d+)", name) for name in os.listdir(folder))
    return max((int(one[1]) for one in found if one), default=0)
