"""Proof that an environment works: its files, its cuDNN, and a convolution of its frameworks on every device.

Everything is done by child processes in the target's interpreter; nothing is written. A check passes, fails, or is
unknown, with what was seen as its evidence.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from ..errors import InputError
from ..model import Check, Host, Lock, Value
from . import installed, loader
from .children import Children, Outcome, has_probe
from .frameworks import framework_checks, pinned_cudnn

Named = tuple[str, str, str]  # framework: name, import name, probe
Probe = Callable[[str, Mapping[str, Any]], Outcome]


def verify(
    lock: Lock | None,
    target: str,
    host: Host,
    *,
    frameworks: Sequence[Named],
    device: bool = True,
    timeout: float = 300.0,
    env: Mapping[str, str] | None = None,
) -> tuple[Check, ...]:
    """The checks of the environment at `target`, its folder or its interpreter, in a stated order.

    `lock` None checks an environment that gpuenv did not make: what is installed is what should be. `device` false
    touches no GPU. `timeout` is in seconds and bounds all checks together; children that are not done are killed.
    InputError if there is no interpreter at `target`.
    """
    python = _interpreter(target)
    variables = dict(os.environ if env is None else env)
    children = Children(python, variables, time.monotonic() + timeout)
    first = children.run("installed", {"mode": "survey"})
    if first.answer is None:
        return (Check(name="interpreter", subject="", status="fail", evidence=first.failure, seconds=first.seconds),)
    about = _Target(
        lock=lock,
        gpus=tuple(gpu.name for gpu in host.gpus) if device else (),
        device=device,
        survey=first.answer,
        chosen=_present(lock, first.answer, frameworks),
        folder=_cudnn_folder(first.answer),
        origins=loader.Origins(variables),
    )
    checks = installed.survey_checks(lock, first.answer)
    # The children are ended before the pool waits for its threads, so that an interrupt is not held up by a hang.
    with ThreadPoolExecutor(2 + len(about.gpus) + len(about.chosen)) as pool, children:
        checks += _collect(about, _start(about, pool, children.run))
    if device and not host.gpus:
        problem = "; ".join(f"{one.code}: {one.detail}" for one in host.problems) or "no GPU is visible"
        checks.append(Check(name="device", subject="", status="unknown", evidence=f"nothing ran on a GPU: {problem}"))
    return tuple(checks)


class _Target(Value):
    """What is examined: the lock, the devices' names, what is installed, and where its cuDNN is."""

    lock: Lock | None
    gpus: tuple[str, ...]
    device: bool
    survey: dict[str, Any]
    chosen: list[Named]
    folder: str | None
    origins: loader.Origins


class _Started(Value):
    """The probes under way, as futures."""

    files: Future[Outcome]
    cudnn: Future[tuple[Outcome, str]] | None
    handles: list[Future[Outcome]]
    runs: list[Future[Outcome]]


def _start(about: _Target, pool: Executor, probe: Probe) -> _Started:
    """All probes at once: a child for the files, one for cuDNN, one a device, one a framework."""
    folder, modules = about.folder, [module for _, module, _ in about.chosen]
    options = [{"folder": folder, "device": {"ordinal": ordinal}} for ordinal in range(len(about.gpus))]
    return _Started(
        files=pool.submit(probe, "installed", {"mode": "files", "imports": modules}),
        cudnn=pool.submit(_cudnn, probe, folder) if folder else None,
        handles=[pool.submit(probe, "cudnn", one) for one in options] if folder else [],
        runs=[
            pool.submit(
                probe, script if has_probe(script) else "module", {"import_name": module, "device": about.device}
            )
            for _, module, script in about.chosen
        ],
    )


def _collect(about: _Target, started: _Started) -> list[Check]:
    """The checks of what the probes answer, in a stated order whichever answers first."""
    checks = [installed.file_check(started.files.result()), loader.variable_check(about.folder, about.origins)]
    pinned = pinned_cudnn(about.lock, about.survey)
    if started.cudnn is not None and about.folder is not None:
        members, crash = started.cudnn.result()
        checks += loader.cudnn_checks(members, about.folder, pinned, about.origins, crash=crash)
    elif pinned is not None:
        evidence = f"cuDNN {pinned} is locked and no libcudnn is installed"
        checks.append(Check(name="cudnn", subject="libraries", status="fail", evidence=evidence))
    for ordinal, handle in enumerate(started.handles):
        checks.append(loader.handle_check(handle.result(), f"GPU {ordinal} {about.gpus[ordinal]}"))
    for (name, _, _), outcome in zip(about.chosen, started.runs, strict=True):
        checks += framework_checks(
            name,
            outcome.result(),
            lock=about.lock,
            survey=about.survey,
            visible=len(about.gpus),
            origins=about.origins,
        )
    return checks


def _cudnn(probe: Probe, folder: str) -> tuple[Outcome, str]:
    """What the cuDNN probe found. If it crashed, how, and what it finds without cuDNN's own version checks."""
    outcome = probe("cudnn", {"folder": folder, "device": None})
    if outcome.answer is not None or not outcome.failure.startswith("killed by"):
        return outcome, ""
    return probe("cudnn", {"folder": folder, "device": None, "checks": False}), outcome.failure


def _interpreter(target: str) -> str:
    if os.path.isdir(target):
        for parts in (("bin", "python"), ("Scripts", "python.exe"), ("python.exe",)):
            path = os.path.join(target, *parts)
            if os.path.exists(path):
                return path
        raise InputError(f"{target}: has no interpreter, so it is no environment")
    if not os.path.exists(target):
        raise InputError(f"{target}: does not exist")
    if not os.access(target, os.X_OK):
        raise InputError(f"{target}: is neither an environment nor an interpreter")
    return target


def _present(lock: Lock | None, survey: dict[str, Any], frameworks: Sequence[Named]) -> list[Named]:
    """The frameworks to run: those of the lock, or those that are installed."""
    if lock is not None:
        return list(frameworks)
    names = {row["name"] for row in survey["distributions"]}
    return [one for one in frameworks if one[0] in names or one[1] in names]


def _cudnn_folder(survey: dict[str, Any]) -> str | None:
    """The folder of the installed distributions' libcudnn.so.N."""
    for path, _ in survey["libraries"]:
        if os.path.basename(path).startswith("libcudnn.so."):
            return os.path.dirname(str(path))
    return None
