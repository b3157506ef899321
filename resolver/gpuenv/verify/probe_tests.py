"""Tests that distinguish the causes of one symptom, each in a process of its own.

And what is installed.

A cuDNN status such as NOT_INITIALIZED or INTERNAL_ERROR does not name its cause. The tests examine
the possible causes in order, on every device: a fresh process, the loader's search path without
variables that lead elsewhere, the folders that the libraries came from, the free memory, the plain
convolution in float32, and another stream.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence

from ..errors import InputError
from ..loader_env import DRIVER_SONAMES, path_entries, preload_entries
from ..model import Host, Value
from ..probes.answers import ConvolutionAnswer, Fault
from ..probes.convolution import NEED
from . import loader
from .runner import Children, Outcome
from .survey import Survey, bare_survey, environment_python, is_bare, read_survey

TESTS = (
    "fresh-process",
    "clean-loader",
    "one-folder",
    "free-memory",
    "float32-convolution",
    "other-stream",
)
# Test -> the run of the probe "convolution" that it reads.
_RUNS = {
    "float32-convolution": "float32 on the default stream",
    "other-stream": "float32 on a second stream",
}


class Shown(Value, kw_only=False):
    """The result of a test on a device (the CUDA runtime's number): pass, fail or unknown."""

    test: str
    device: int
    status: str
    evidence: str


# ---- what is installed --------------------------------------------------------------------------


def survey(target: str, timeout: float = 60.0) -> Survey:
    """Return what is installed at `target`, a folder or an interpreter.

    InputError if it gives no answer.
    """
    if is_bare(target):
        return bare_survey(target)
    deadline = time.monotonic() + timeout
    with Children(environment_python(target), os.environ, deadline) as children:
        outcome = children.run("interpreter", {"imports": []})
    if outcome.answer is None:
        raise InputError(f"{target}: {outcome.failure}")
    return read_survey(outcome.answer)


def system_cudnn() -> tuple[str, ...]:
    """Return cuDNN's libraries that the loader finds outside of any environment.

    These are those of its cache and of the loader variables.
    """
    origins = loader.Origins(os.environ)
    paths = [path for path in origins.cache if os.path.basename(path).startswith("libcudnn")]
    for _, path in origins.files_in_variables():
        if os.path.basename(path).startswith("libcudnn") and ".so" in path:
            paths.append(path)
    return tuple(dict.fromkeys(paths))


def clean_path(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without LD_PRELOAD and LD_LIBRARY_PATH.

    Entries that lead only to the driver stay.
    A host may have its driver only in such an entry (/usr/local/nvidia/lib64 in a container).
    """
    clean = dict(env)
    clean.pop("LD_LIBRARY_PATH", None)
    clean.pop("LD_PRELOAD", None)
    entries = [entry for entry in path_entries(env) if _has_only_driver(entry or os.curdir)]
    if entries:
        clean["LD_LIBRARY_PATH"] = ":".join(entries)
    return clean


def _has_only_driver(folder: str) -> bool:
    """Return whether a folder has a library of the driver and none of cuDNN."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    has_cudnn = any(name.startswith("libcudnn") for name in names)
    return not has_cudnn and not DRIVER_SONAMES.isdisjoint(names)


# ---- the tests ----------------------------------------------------------------------------------


def tests(installed: Survey, host: Host, *, timeout: float = 120.0) -> tuple[Shown, ...]:
    """Return the results of the tests on every device of the host, in the order of TESTS.

    There are none without a cuDNN or without a device. One child of a device answers all tests but
    "clean-loader", which has a child of its own if loader variables are set.

    Args:
        timeout: seconds for all of them.
    """
    folder = installed.cudnn_folder
    if not folder:
        return ()
    variables = dict(os.environ)
    settings = [variables]
    if path_entries(variables) or preload_entries(variables):
        settings.append(clean_path(variables))
    origins = loader.Origins(variables)
    shown: list[Shown] = []
    deadline = time.monotonic() + timeout
    python = installed.interpreter["executable"]
    for ordinal in range(len(host.gpus)):
        options = {"folder": folder, "device": {"ordinal": ordinal}}
        outcomes = []
        for setting in settings:
            with Children(python, setting, deadline) as children:
                outcomes.append(children.run("convolution", options))
        shown += _results(ordinal, outcomes, folder, origins)
    return tuple(sorted(shown, key=lambda result: TESTS.index(result.test)))


def _results(
    ordinal: int, outcomes: Sequence[Outcome], folder: str, origins: loader.Origins
) -> Iterator[Shown]:
    """Return the results of one device. The second outcome is that of the clean search path."""
    for test, outcome in zip(TESTS, outcomes, strict=False):  # "fresh-process", "clean-loader"
        yield Shown(test, ordinal, *_child_result(outcome))
    if outcomes[0].answer is None:
        return
    answer: ConvolutionAnswer = outcomes[0].answer
    mapped = [path for path in answer["mapped"] if "libcudnn" in path]
    if mapped:
        status, evidence = "pass", f"{len(mapped)} libraries of cuDNN, all from {folder}"
        foreign = loader.foreign_cudnn(mapped, folder, origins)
        if foreign:
            status, evidence = "fail", "; ".join(str(file) for file in foreign)
        yield Shown("one-folder", ordinal, status, evidence)
    device = answer.get("device", {})
    free, total = answer.get("free", device.get("free")), device.get("total")
    if free is not None:
        evidence = f"{free >> 20} MiB free" + (f" of {total >> 20} MiB" if total else "")
        status = "unknown"
        if free < NEED:
            status = "fail"
        elif total and free > total // 4:  # a quarter of the device is plenty
            status = "pass"
        yield Shown("free-memory", ordinal, status, evidence)
    runs = {run["what"]: run for run in answer.get("runs", ())}
    fault = answer["fault"]
    for test, name in _RUNS.items():
        if name in runs:
            run = runs[name]
            status, evidence = "pass", f"{name}: all values are right"
            if run["wrong"]:
                status = "fail"
                evidence = f"{name}: {run['wrong']} of {run['values']} values are wrong"
            yield Shown(test, ordinal, status, evidence)
        elif fault is not None and fault.get("said", "").endswith(name):
            yield Shown(test, ordinal, "fail", f"{name}: {_fault_text(fault)}")


def _child_result(outcome: Outcome) -> tuple[str, str]:
    """Return status and evidence of a whole child: its handles and its convolutions."""
    if outcome.answer is None:
        return "unknown" if outcome.ended in ("late", "failed") else "fail", outcome.failure
    answer: ConvolutionAnswer = outcome.answer
    if answer["fault"] is not None:
        return "fail", _fault_text(answer["fault"])
    wrong = [run["what"] for run in answer["runs"] if run["wrong"]]
    if wrong:
        return "fail", f"wrong values: {', '.join(wrong)}"
    return "pass", f"{answer['handles']} handles made, {len(answer['runs'])} convolutions right"


def _fault_text(fault: Fault) -> str:
    """Return the call that failed, and what it gave."""
    if fault["status"] is None:
        return f"{fault['call']}: {fault['said']}".strip(": ") or f"{fault['kind']} is short"
    return f"{fault['call']} gave {fault['status']} {fault['name']}".rstrip()
