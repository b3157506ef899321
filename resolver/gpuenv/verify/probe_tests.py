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
from ..loader_env import DRIVER_SONAMES, interpreter, path_entries, preload_entries
from ..model import Host, Value
from ..probes.answers import ConvolutionAnswer, Fault
from . import devices, loader
from .runner import PROBES, Children, Outcome
from .survey import Survey, read_survey

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


class Installed(Value):
    """What an interpreter finds.

    `distributions` are (name, version), `libraries` their paths, `folder` is that of the cuDNN.

    `twice` are names that one folder has in several versions.
    """

    python: str
    prefix: str
    distributions: tuple[tuple[str, str], ...]
    libraries: tuple[str, ...]
    folder: str | None
    twice: tuple[str, ...] = ()


class Shown(Value):
    """The result of a test on a device (the CUDA runtime's number): pass, fail or unknown.

    `free` and `total` are bytes of the device's memory, if they were read.
    """

    test: str
    device: int
    status: str
    evidence: str
    free: int | None = None
    total: int | None = None


# ---- what is installed --------------------------------------------------------------------------


def survey(target: str, env: Mapping[str, str] | None = None, timeout: float = 60.0) -> Installed:
    """Return what is installed at `target`, a folder or an interpreter.

    InputError if it gives no answer.
    """
    if not os.path.exists(target):
        raise InputError(f"{target}: does not exist", hint="name an environment: --target DIR")
    python = interpreter(target)
    variables = os.environ if env is None else env
    with Children(python, variables, time.monotonic() + timeout) as children:
        outcome = children.run("interpreter", {"imports": []})
    if outcome.answer is None:
        raise InputError(f"{target}: {outcome.failure}")
    answer = read_survey(outcome.answer)
    return Installed(
        python=python,
        prefix=answer.interpreter["prefix"],
        distributions=tuple(answer.versions.items()),
        libraries=tuple(answer.libraries),
        folder=cudnn_folder(answer),
        twice=tuple(name for name, _ in answer.twice),
    )


def cudnn_folder(survey: Survey) -> str | None:
    """Return the folder of the installed libcudnn.so.N."""
    for path in survey.libraries:
        if os.path.basename(path).startswith("libcudnn.so."):
            return os.path.dirname(path)
    return None


def system_cudnn(env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return cuDNN's libraries that the loader finds outside of any environment.

    These are those of its cache and of the loader variables.
    """
    origins = loader.Origins(os.environ if env is None else env)
    paths = origins.cache()
    paths = [path for path in paths if os.path.basename(path).startswith("libcudnn")]
    for entry, name in origins.cuda_in_variables():
        if name.startswith("libcudnn"):
            paths.append(os.path.join(entry, name))
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


def tests(
    installed: Installed,
    host: Host,
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 120.0,
    probes: str = PROBES,
) -> tuple[Shown, ...]:
    """Return the results of the tests on every device of the host, in the order of TESTS.

    There are none without a cuDNN or without a device. One child of a device answers all tests but
    "clean-loader", which has a child of its own if loader variables are set.

    Args:
        timeout: seconds for all of them.
    """
    if installed.folder is None:
        return ()
    variables = dict(os.environ if env is None else env)
    settings = [variables]
    if path_entries(variables) or preload_entries(variables):
        settings.append(clean_path(variables))
    origins = loader.Origins(variables)
    shown: list[Shown] = []
    deadline = time.monotonic() + timeout
    for ordinal in range(len(host.gpus)):
        options = {
            "folder": installed.folder,
            "device": {"ordinal": ordinal},
            "need": devices.NEED,
        }
        outcomes = []
        for setting in settings:
            with Children(installed.python, setting, deadline, probes) as children:
                outcomes.append(children.run("convolution", options))
        shown += _results(ordinal, outcomes, installed.folder, origins)
    return tuple(sorted(shown, key=lambda result: TESTS.index(result.test)))


def _results(
    ordinal: int, outcomes: Sequence[Outcome], folder: str, origins: loader.Origins
) -> Iterator[Shown]:
    """Return the results of one device. The second outcome is that of the clean search path."""
    yield _child_result("fresh-process", ordinal, outcomes[0])
    if len(outcomes) > 1:
        yield _child_result("clean-loader", ordinal, outcomes[1])
    answer: ConvolutionAnswer = {}
    if outcomes[0].answer is not None:
        answer = outcomes[0].answer
    yield from _folder_result(ordinal, answer, folder, origins)
    yield from _memory_result(ordinal, answer)
    for test, run_name in _RUNS.items():
        yield from _run_result(test, ordinal, answer, run_name)


def _child_result(test: str, ordinal: int, outcome: Outcome) -> Shown:
    """Return the result of a whole child: its handles and its convolutions."""
    if outcome.answer is None:
        status = "unknown" if outcome.ended in ("late", "failed") else "fail"
        return Shown(test=test, device=ordinal, status=status, evidence=outcome.failure)
    answer: ConvolutionAnswer = outcome.answer
    fault = answer["fault"]
    if fault is not None:
        return Shown(test=test, device=ordinal, status="fail", evidence=_fault_text(fault))
    wrong = [run["what"] for run in answer["runs"] if run["wrong"]]
    if wrong:
        evidence = f"wrong values: {', '.join(wrong)}"
        return Shown(test=test, device=ordinal, status="fail", evidence=evidence)
    evidence = f"{answer['handles']} handles made, {len(answer['runs'])} convolutions right"
    return Shown(test=test, device=ordinal, status="pass", evidence=evidence)


def _folder_result(
    ordinal: int, answer: ConvolutionAnswer, folder: str, origins: loader.Origins
) -> Iterator[Shown]:
    """Return whether all of cuDNN came from the environment, if any of it was loaded."""
    mapped = [path for path in answer.get("mapped", ()) if "libcudnn" in path]
    if not mapped:
        return
    foreign = loader.foreign_cudnn(mapped, folder, origins)
    status, evidence = "pass", f"{len(mapped)} libraries of cuDNN, all from {folder}"
    if foreign:
        status, evidence = "fail", "; ".join(file.text for file in foreign)
    yield Shown(test="one-folder", device=ordinal, status=status, evidence=evidence)


def _memory_result(ordinal: int, answer: ConvolutionAnswer) -> Iterator[Shown]:
    """Return whether enough memory is free, if that was read. A quarter of the device is plenty."""
    device = answer.get("device", {})
    free, total = answer.get("free", device.get("free")), device.get("total")
    if free is None:
        return
    evidence = f"{free >> 20} MiB free"
    if total:
        evidence += f" of {total >> 20} MiB"
    status = "unknown"
    if free < answer["need"]:
        status = "fail"
    elif total and free > total // 4:
        status = "pass"
    yield Shown(
        test="free-memory",
        device=ordinal,
        status=status,
        evidence=evidence,
        free=free,
        total=total,
    )


def _run_result(
    test: str, ordinal: int, answer: ConvolutionAnswer, run_name: str
) -> Iterator[Shown]:
    """Return the result of one convolution, if the child reached it."""
    for run in answer.get("runs", ()):
        if run["what"] == run_name:
            status, evidence = "pass", f"{run_name}: all values are right"
            if run["wrong"]:
                status = "fail"
                evidence = f"{run_name}: {run['wrong']} of {run['values']} values are wrong"
            yield Shown(test=test, device=ordinal, status=status, evidence=evidence)
            return
    fault = answer.get("fault")
    if fault is not None and fault.get("said", "").endswith(run_name):
        evidence = f"{run_name}: {_fault_text(fault)}"
        yield Shown(test=test, device=ordinal, status="fail", evidence=evidence)


def _fault_text(fault: Fault) -> str:
    """Return the call that failed, and what it gave."""
    if fault["status"] is None:
        return f"{fault['call']}: {fault['said']}".strip(": ") or f"{fault['kind']} is short"
    return f"{fault['call']} gave {fault['status']} {fault['name']}".rstrip()
