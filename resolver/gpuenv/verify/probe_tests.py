"""What is installed, and the tests that tell the causes of one symptom apart: each runs in a process of its own.

A cuDNN that gives NOT_INITIALIZED or INTERNAL_ERROR says nothing of why. The tests ask in order what it may be: a
process that did nothing before, the loader's path without the variables that lead elsewhere, the folders that the
libraries came from, the memory that is free, the plain convolution in float32, and another stream; on every device.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import InputError
from ..loader_env import DRIVER, interpreter, path_entries, preload_entries
from ..model import Host, Value
from . import devices, loader
from .runner import PROBES, Children, Outcome

TESTS = ("fresh-process", "clean-loader", "one-folder", "free-memory", "float32-convolution", "other-stream")


class Installed(Value):
    """What an interpreter finds: (name, version) of its distributions, paths of their libraries, its cuDNN's folder.

    `twice` are names that one folder has in several versions.
    """

    python: str
    prefix: str
    distributions: tuple[tuple[str, str], ...]
    libraries: tuple[str, ...]
    folder: str | None
    twice: tuple[str, ...] = ()


class Shown(Value):
    """What a test showed on a device, by the CUDA runtime's number: pass, fail or unknown.

    `free` and `total` are bytes of the device's memory where they were read.
    """

    test: str
    device: int
    status: str
    evidence: str
    free: int | None = None
    total: int | None = None


def survey(target: str, env: Mapping[str, str] | None = None, timeout: float = 60.0) -> Installed:
    """What is installed at `target`, a folder or an interpreter. InputError if that gives no answer."""
    if not os.path.exists(target):
        raise InputError(f"{target}: does not exist")
    python = interpreter(target)
    with Children(python, os.environ if env is None else env, time.monotonic() + timeout) as children:
        outcome = children.run("installed", {"mode": "survey", "imports": []})
    if outcome.answer is None:
        raise InputError(f"{target}: {outcome.failure}")
    found = outcome.answer
    libraries = tuple(str(path) for path, _ in found["libraries"])
    mains = (path for path in libraries if os.path.basename(path).startswith("libcudnn.so."))
    return Installed(
        python=python,
        prefix=found["interpreter"]["prefix"],
        distributions=tuple((str(row["name"]), str(row["version"])) for row in found["distributions"]),
        libraries=libraries,
        folder=next((os.path.dirname(path) for path in mains), None),
        twice=tuple(str(name) for name, _ in found["twice"]),
    )


def system_cudnn(env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Paths of cuDNN's libraries that the loader would find outside of any environment: its cache, LD_LIBRARY_PATH."""
    origins = loader.Origins(os.environ if env is None else env)
    found = [path for path in origins.cache() if os.path.basename(path).startswith("libcudnn")]
    found += [os.path.join(entry, name) for entry, name in origins.shadows() if name.startswith("libcudnn")]
    return tuple(dict.fromkeys(found))


def clean_path(env: Mapping[str, str]) -> dict[str, str]:
    """The variables without LD_PRELOAD and LD_LIBRARY_PATH, but for entries that only lead to the driver.

    A host may have its driver nowhere but in such an entry (/usr/local/nvidia/lib64 in a container).
    """
    left = {name: value for name, value in env.items() if name not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
    entries = [entry for entry in path_entries(env) if _only_driver(entry or os.curdir)]
    return {**left, "LD_LIBRARY_PATH": ":".join(entries)} if entries else left


def _only_driver(folder: str) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(name in DRIVER for name in names) and not any(name.startswith("libcudnn") for name in names)


def tests(
    installed: Installed,
    host: Host,
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 120.0,
    probes: str = PROBES,
) -> tuple[Shown, ...]:
    """What the tests show on every device of the host, in their order; () without a cuDNN or without a device.

    The first child of a device answers all tests but "clean-loader", which has one of its own where loader variables
    are set. `timeout` is in seconds and bounds all of them.
    """
    if installed.folder is None:
        return ()
    variables = dict(os.environ if env is None else env)
    ways = [variables]
    if path_entries(variables) or preload_entries(variables):
        ways.append(clean_path(variables))
    shown: list[Shown] = []
    deadline = time.monotonic() + timeout
    for ordinal, _ in enumerate(host.gpus):
        options = {"folder": installed.folder, "device": {"ordinal": ordinal}, "need": devices.NEED}
        outcomes = []
        for way in ways:
            with Children(installed.python, way, deadline, probes) as children:
                outcomes.append(children.run("convolution", options))
        shown += _shown(ordinal, outcomes, installed.folder, loader.Origins(variables))
    return tuple(sorted(shown, key=lambda one: TESTS.index(one.test)))


def _shown(ordinal: int, outcomes: Sequence[Outcome], folder: str, origins: loader.Origins) -> Iterator[Shown]:
    first = outcomes[0]
    yield _result("fresh-process", ordinal, first)
    if len(outcomes) > 1:
        yield _result("clean-loader", ordinal, outcomes[1])
    answer: dict[str, Any] = first.answer or {}
    mapped = [path for path in answer.get("mapped", ()) if "libcudnn" in path]
    if mapped:
        foreign = loader.foreign_cudnn(mapped, folder, origins)
        told = "; ".join(foreign) if foreign else f"{len(mapped)} libraries of cuDNN, all from {folder}"
        yield Shown(test="one-folder", device=ordinal, status="fail" if foreign else "pass", evidence=told)
    device = answer.get("device") or {}
    free, total = answer.get("free", device.get("free")), device.get("total")
    if free is not None:
        told = f"{free >> 20} MiB free" + (f" of {total >> 20} MiB" if total else "")
        status = "fail" if free < answer["need"] else "pass" if total and free > total // 4 else "unknown"
        yield Shown(test="free-memory", device=ordinal, status=status, evidence=told, free=free, total=total)
    for test, what in (
        ("float32-convolution", "float32 on the default stream"),
        ("other-stream", "float32 on a second stream"),
    ):
        yield from _run(test, ordinal, answer, what)


def _result(test: str, ordinal: int, outcome: Outcome) -> Shown:
    """A whole child: its handles and its convolutions."""
    answer = outcome.answer
    if answer is None:
        status = "unknown" if outcome.ended in ("late", "failed") else "fail"
        return Shown(test=test, device=ordinal, status=status, evidence=outcome.failure)
    if answer["fault"] is not None:
        return Shown(test=test, device=ordinal, status="fail", evidence=fault_text(answer["fault"]))
    wrong = [one["what"] for one in answer["runs"] if one["wrong"]]
    if wrong:
        return Shown(test=test, device=ordinal, status="fail", evidence=f"wrong values: {', '.join(wrong)}")
    told = f"{answer['handles']} handles made, {len(answer['runs'])} convolutions right"
    return Shown(test=test, device=ordinal, status="pass", evidence=told)


def _run(test: str, ordinal: int, answer: Mapping[str, Any], what: str) -> Iterator[Shown]:
    """One convolution, if the child came to it."""
    done = next((one for one in answer.get("runs", ()) if one["what"] == what), None)
    if done is not None:
        status = "fail" if done["wrong"] else "pass"
        told = f"{done['wrong']} of {done['values']} values are wrong" if done["wrong"] else "all values are right"
        yield Shown(test=test, device=ordinal, status=status, evidence=f"{what}: {told}")
    elif str((answer.get("fault") or {}).get("said", "")).endswith(what):
        yield Shown(test=test, device=ordinal, status="fail", evidence=f"{what}: {fault_text(answer['fault'])}")


def fault_text(fault: Mapping[str, Any]) -> str:
    """The call that failed, and what it gave."""
    if fault["status"] is None:
        return f"{fault['call']}: {fault['said']}".strip(": ") or f"{fault['kind']} is short"
    return f"{fault['call']} gave {fault['status']} {fault['name']}".rstrip()
