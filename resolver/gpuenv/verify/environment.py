"""Proof that an environment works: its files, its cuDNN, and a convolution of its frameworks on every device.

Everything is done by child processes in the target's interpreter; nothing is written. A check passes, fails, or is
unknown, with what was seen as its evidence.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from ..errors import InputError
from ..model import Check, Gpu, Host, Lock, Value
from . import cudnn_log as evidence
from . import devices, installed, loader
from .frameworks import framework_checks, pinned_cudnn
from .linkage import closure_check
from .rule_checks import Against, suitability_checks
from .runner import PROBES, Children, Outcome, has_probe

Named = tuple[str, str, str]  # framework: name, import name, probe
Probe = Callable[..., Outcome]  # Children.run
Logged = tuple[Outcome, tuple[str, ...]]  # with the reasons of cuDNN's log, if it failed


def verify(
    lock: Lock | None,
    target: str,
    host: Host,
    *,
    frameworks: Sequence[Named],
    device: bool = True,
    timeout: float = 300.0,
    env: Mapping[str, str] | None = None,
    verbose: bool = False,
    probes: str = PROBES,
    against: Against | None = None,
) -> tuple[Check, ...]:
    """The checks of the environment at `target`, its folder or its interpreter, in a stated order.

    `lock` None checks an environment that gpuenv did not make: what is installed is what should be. `device` false
    touches no GPU. `timeout` is in seconds and bounds all checks together; children that are not done are killed.
    `verbose` lets cuDNN's log of a failed run hold every call. `probes` is the folder of the scripts that are run.
    `against` gives what the rules of compatibility say of (name, version) pairs on the host; None leaves them out.
    InputError if there is no interpreter at `target`.
    """
    python = _interpreter(target)
    variables = dict(os.environ if env is None else env)
    deadline = time.monotonic() + timeout
    children = Children(python, variables, deadline, probes)
    first = children.run("installed", {"mode": "survey", "imports": [module for _, module, _ in frameworks]})
    if first.answer is None:
        return (Check(name="interpreter", subject="", status="fail", evidence=first.failure, seconds=first.seconds),)
    about = _Target(
        lock=lock,
        host=host,
        gpus=_shown(host) if device else (),
        device=device,
        verbose=verbose,
        probes=probes,
        env=variables,
        survey=first.answer,
        chosen=_present(lock, first.answer, frameworks),
        folder=_cudnn_folder(first.answer),
        origins=loader.Origins(variables),
    )
    checks = installed.survey_checks(lock, first.answer)
    # The children are ended before the pool waits for its threads, so that an interrupt is not held up by a hang.
    with ThreadPoolExecutor(3 + len(about.gpus) + len(about.chosen)) as pool, children:
        probe = _in_turn(children.run) if device and devices.one_by_one(host) else children.run
        started = _start(about, pool, probe)
        modules = [module for _, module, _ in frameworks]
        closure = pool.submit(closure_check, first.answer, modules, about.origins, deadline)
        if against is not None:
            names = [name for name, _, _ in frameworks]
            checks += suitability_checks(lock, first.answer, host, against, names)
        checks += [*installed.file_checks(first.answer, started.files.result()), closure.result()]
        checks += _collect(about, started)
    return tuple(checks)


def _shown(host: Host) -> tuple[Gpu, ...]:
    """The devices to try. Where the detection could not list them for a fault, the first that CUDA may show."""
    if host.gpus or not devices.is_broken(host):
        return host.gpus
    return (Gpu(name="", compute_capability=None, index=0),)


def _in_turn(probe: Probe) -> Probe:
    """The probe, but never two at once on a device: each for itself, they would be in one another's way."""
    turn = threading.Lock()

    def run(name: str, options: Mapping[str, Any], more: Mapping[str, str] | None = None) -> Outcome:
        if not options.get("device"):
            return probe(name, options, more)
        with turn:
            return probe(name, options, more)

    return run


class _Target(Value):
    """What is examined: the lock, the host and its devices, what is installed, and where its cuDNN is."""

    lock: Lock | None
    host: Host
    gpus: tuple[Gpu, ...]
    device: bool
    verbose: bool
    probes: str
    env: Mapping[str, str]
    survey: dict[str, Any]
    chosen: list[Named]
    folder: str | None
    origins: loader.Origins


class _Started(Value):
    """The probes under way, as futures."""

    files: Future[Outcome]
    cudnn: Future[tuple[Outcome, str, tuple[str, ...]]] | None
    gpus: list[Future[Logged]]
    runs: list[Future[Outcome]]


def _start(about: _Target, pool: Executor, probe: Probe) -> _Started:
    """All probes at once: a child for the files, one for cuDNN, one a device, one a framework."""
    folder = about.folder
    ordinals = range(len(about.gpus)) if folder else ()
    return _Started(
        files=pool.submit(probe, "installed", {"mode": "files"}),
        cudnn=pool.submit(_cudnn, probe, folder, about.verbose) if folder else None,
        gpus=[pool.submit(_convolution, probe, str(folder), ordinal, about.verbose) for ordinal in ordinals],
        runs=[
            pool.submit(
                probe,
                script if has_probe(script, about.probes) else "module",
                {"import_name": module, "device": about.device, "devices": len(about.host.gpus)},
            )
            for _, module, script in about.chosen
        ],
    )


def _collect(about: _Target, started: _Started) -> list[Check]:
    """The checks of what the probes answer, in a stated order whichever answers first."""
    checks = [loader.variable_check(about.folder, about.origins)]
    pinned = pinned_cudnn(about.lock, about.survey)
    if started.cudnn is not None and about.folder is not None:
        members, crash, lines = started.cudnn.result()
        checks += loader.cudnn_checks(members, about.folder, pinned, about.origins, crash=crash, lines=lines)
        most = (members.answer or {}).get("max_device")
        place = devices.Place(host=about.host, env=about.env, folder=about.folder)
        checks += devices.all_checks([one.result() for one in started.gpus], about.gpus, most, place)
    elif pinned is not None:
        evidence = f"cuDNN {pinned} is locked and no libcudnn is installed"
        marks = (("none", "libcudnn", pinned),)
        checks.append(Check(name="cudnn", subject="libraries", status="fail", evidence=evidence, marks=marks))
    if about.device:
        checks += devices.host_checks(about.host, checks)
    for (name, _, _), outcome in zip(about.chosen, started.runs, strict=True):
        checks += framework_checks(
            name,
            outcome.result(),
            lock=about.lock,
            survey=about.survey,
            visible=len(about.host.gpus) if about.device else 0,
            origins=about.origins,
        )
    return checks


def _cudnn(probe: Probe, folder: str, verbose: bool) -> tuple[Outcome, str, tuple[str, ...]]:
    """What the cuDNN probe found, how it crashed ("" if it did not), and the reasons of cuDNN's log if it failed.

    After a crash the answer is that of a run without cuDNN's own version checks.
    """
    options = {"folder": folder}
    outcome, lines = _logged(probe, "cudnn", options, loader.again_wanted, verbose)
    if outcome.answer is not None or outcome.ended != "crash":
        return outcome, "", lines
    return probe("cudnn", {**options, "checks": False}), outcome.failure, lines


def _convolution(probe: Probe, folder: str, ordinal: int, verbose: bool) -> Logged:
    options = {"folder": folder, "device": {"ordinal": ordinal}, "need": devices.NEED}
    return _logged(probe, "convolution", options, devices.again_wanted, verbose)


def _logged(
    probe: Probe, name: str, options: Mapping[str, Any], wanted: Callable[[Outcome], bool], verbose: bool
) -> Logged:
    """A probe, and once more with cuDNN's log if it failed in cuDNN. The first run is what counts."""
    outcome = probe(name, options)
    if not wanted(outcome):
        return outcome, ()
    major = evidence.major_of(options["folder"])
    second, lines = evidence.again(probe, name, options, major=major, verbose=verbose)
    if second.answer is not None and not wanted(second):
        lines = (*lines, "a second run of the same check did not fail")
    return outcome, lines


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
    """The frameworks to run: those of the lock, or those that can be imported, whatever distribution has them."""
    if lock is not None:
        return list(frameworks)
    # A namespace (what an uninstallation left) has no file.
    return [one for one in frameworks if os.path.isabs(survey["imports"].get(one[1]) or "")]


def _cudnn_folder(survey: dict[str, Any]) -> str | None:
    """The folder of the installed distributions' libcudnn.so.N."""
    for path, _ in survey["libraries"]:
        if os.path.basename(path).startswith("libcudnn.so."):
            return os.path.dirname(str(path))
    return None
