"""cuDNN's own log: repeat a failed run with the log on, and extract the reasons that it gives.

Format, as in real logs of 8.9.7, 9.20.0 and 9.28.0: a block begins with "E! CuDNN (v92800 42)
function NAME() called:" (E error, W warning, I call; NVIDIA's own examples of 9.x omit the letter
and say "cuDNN"). Its lines begin with the small letter. "Error: STATUS; Reason: TEXT" are the
conditions in the order in which they occurred: the innermost comes FIRST, then what its callers
report ("finalize_internal()", "ptrDesc->finalize()"). Variables: cuDNN 9 has CUDNN_LOGLEVEL_DBG (2:
warnings and errors; 3: every call, too); cuDNN 8 has CUDNN_LOGERR_DBG, CUDNN_LOGWARN_DBG and
CUDNN_LOGINFO_DBG. Source: NVIDIA, cuDNN backend, "Error reporting and API logging".
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable

from ..model import first_texts
from ..probes._common import main_cudnn
from .runner import Outcome

Logged = tuple[Outcome, tuple[str, ...]]  # with the reasons of cuDNN's log, if the run failed
SHOWN = 4  # reason lines in a check's evidence
LONGEST = 300  # characters of one
SUCCESS = "CUDNN_STATUS_SUCCESS"
_BLOCK = re.compile(
    r"^\s*(?:[EWI]! |Error: |Warning: |Info: )?CuDNN \(v(\d+)[^)]*\) function (\w+)\(\) called:",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^\s*(?:[ewi]!)?\s*")
_LINE = re.compile(r"(Error|Warning): (CUDNN_\w+); Reason: (.*)")
# These patterns have no nested and no unbounded quantifiers, because a log may contain anything.
# What a caller reports about what it called: a name with brackets, or a status that it passes on.
_PASSED_ON = re.compile(r"^!?\w+(?:(?:->|::|\.)\w+)*\(\)$|^status$|^_?status(?:_\w+)?$")
# What cuDNN's loader writes to stderr, not to the log.
_LOADING = re.compile(
    r"Unable to load any of \{|Invalid handle\. Cannot load symbol|Could not (?:load|locate) |"
    r"Please make sure .{0,300}library path|sublibrary version mismatch|"
    r"lib(?:cu|nv)\S{1,200}: cannot open shared object file"
)
# The library reports the choice of its own mode as a warning with status SUCCESS. A text before it
# is the reason.
_MODE = re.compile(
    r"\s{0,9}cuDNN Library configuration is set to AUTO\. "
    r"Automatically configuring the library mode to FULL\."
)


def reasons(text: str) -> tuple[str, ...]:
    """Return the reasons in a cuDNN log (8.x or 9.x), each once.

    A reason has the form "cudnnCreate: CUDNN_STATUS_...: REASON".

    For each failed call: its innermost error, then the conditions that say more than that a callee
    failed; and the messages of cuDNN's loader among the lines. The calls keep their order.
    """
    texts: dict[str, None] = {}
    function, innermost = "", True
    for line in text.splitlines():
        block = _BLOCK.match(line)
        if block is not None:
            function, innermost = block[2], True
            continue
        condition = _LINE.search(line)
        if condition is None:
            if _LOADING.search(line):
                texts.setdefault(_PREFIX.sub("", line, count=1).strip()[:LONGEST])
            continue
        level, status, reason = condition[1], condition[2], _MODE.sub("", condition[3]).strip()
        if not reason or (status == SUCCESS and level == "Error"):
            continue
        if innermost or not _PASSED_ON.match(reason):
            shown = "warning" if status == SUCCESS else status
            texts.setdefault(f"{function}: {shown}: {reason}".removeprefix(": ")[:LONGEST])
            innermost = False
    return tuple(texts)


def calls(text: str) -> tuple[str, ...]:
    """Return the functions that a log of every call names, in order.

    After a crash the last of them are what was called before it.
    """
    blocks = map(_BLOCK.match, text.splitlines())
    return tuple(block[2] for block in blocks if block is not None)


def variables(major: int, path: str, *, verbose: bool) -> dict[str, str]:
    """Return the variables that make cuDNN of a major version write its log to `path`."""
    if major >= 9:
        level = "3" if verbose else "2"
        return {"CUDNN_LOGLEVEL_DBG": level, "CUDNN_LOGDEST_DBG": path}
    settings = {"CUDNN_LOGERR_DBG": "1", "CUDNN_LOGWARN_DBG": "1", "CUDNN_LOGDEST_DBG": path}
    if verbose:
        settings["CUDNN_LOGINFO_DBG"] = "1"
    return settings


def run_logged(
    run: Callable[..., Outcome],
    cudnn_folder: str,
    should_rerun: Callable[[Outcome], bool],
    *,
    verbose: bool,
) -> Logged:
    """Run a probe, and once more with cuDNN's log in a file if cuDNN failed.

    Return the first outcome and the reasons that the log gives. With `verbose` the last calls
    before the end follow them.

    Args:
        run: runs the probe; its argument are further environment variables.
        cudnn_folder: the folder of the libcudnn.so.N.
        should_rerun: whether the log may tell more about an outcome.
        verbose: record every call.
    """
    outcome = run()
    if not should_rerun(outcome):
        return outcome, ()
    major = int((main_cudnn(cudnn_folder) or "0").rpartition(".")[2])
    with tempfile.TemporaryDirectory(prefix="gpuenv-cudnn-") as folder:
        path = os.path.join(folder, "cudnn.log")
        second = run(variables(major, path, verbose=verbose))
        text = ""
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as stream:
                text = stream.read()
    lines = list(dict.fromkeys((*reasons("\n".join(second.noise)), *reasons(text))))
    if verbose and calls(text):
        lines.append(f"the last calls were {', '.join(calls(text)[-5:])}")
    if second.answer is not None and not should_rerun(second):
        lines.append("a second run of the same check did not fail")
    return outcome, tuple(lines)


def log_text(lines: tuple[str, ...]) -> str:
    """Return the reasons as the tail of a check's evidence; "" if there are none."""
    if not lines:
        return ""
    return f"; cuDNN's log: {first_texts(lines, ' | ', SHOWN)}"
