"""Prove that an environment works.

Its files, its cuDNN, and a convolution of its frameworks on every device.

Child processes of the target's interpreter do all of the work; nothing is written. A check passes,
fails or is unknown, and its evidence says what was found.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial

from ..compat import conda_parts, evaluate
from ..compat.conda_records import Carriers, Record
from ..compat.data import CompatibilityData
from ..errors import InputError, Reason
from ..loader_env import interpreter
from ..model import Check, Gpu, Host, Lock, Value
from ..probes.answers import CudnnAnswer, SurveyAnswer
from . import cudnn_log, devices, installed, loader
from .dependencies import dependency_check
from .device_code import device_code_checks
from .devices import Logged
from .frameworks import expected_cudnn, framework_checks
from .linkage import closure_check
from .probe_tests import cudnn_folder
from .rule_checks import suitability_checks
from .runner import PROBES, Children, Outcome, RunProbe, has_probe

Named = tuple[str, str, str]  # framework: name, import name, probe


class _Target(Value):
    """What is verified, and how.

    `gpus` are the devices to try. `folder` is that of the installed cuDNN.
    """

    lock: Lock | None
    host: Host
    gpus: tuple[Gpu, ...]
    device: bool
    verbose: bool
    probes: str
    env: Mapping[str, str]
    survey: SurveyAnswer
    frameworks: list[Named]
    folder: str | None
    origins: loader.Origins
    system: Mapping[str, Sequence[str]]
    fast: bool


class _CudnnRun(Value):
    """What the probe "cudnn" found.

    `crash` is how a first run ended; `lines` are the reasons of cuDNN's log.

    After a crash the outcome is that of a run without cuDNN's own version checks.
    """

    outcome: Outcome
    crash: str = ""
    lines: tuple[str, ...] = ()


class _Running(Value):
    """The probes that were started."""

    files: Future[Outcome]
    cudnn: Future[_CudnnRun] | None
    gpus: list[Future[Logged]]
    frameworks: list[Future[Outcome]]


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
    data: CompatibilityData | None = None,
    conda: Sequence[Record] = (),
    fast: bool = False,
) -> tuple[Check, ...]:
    """Return the checks of the environment at `target`, in a fixed order.

    Args:
        lock: None verifies an environment that gpuenv did not make: what is installed is what
        should be installed.
        target: the folder of an environment, or its interpreter.
        frameworks: those to check; without a lock, those of them that can be imported.
        device: false touches no GPU.
        timeout: seconds for all checks together. Children that are not done by then are killed.
        env: the environment variables of the children; None is this process's.
        verbose: record every call in cuDNN's log of a failed run.
        probes: the folder of the probes.
        data: the compatibility data; None skips the rules and the device code.
        conda: the records of the conda packages in the environment.
        fast: compare the sizes of files, not their hashes.

    Raises:
        InputError: there is no interpreter at `target`.
    """
    python = _find_interpreter(target)
    variables = dict(os.environ if env is None else env)
    deadline = time.monotonic() + timeout
    children = Children(python, variables, deadline, probes)
    modules = [module for _, module, _ in frameworks]
    first = children.run("installed", {"mode": "survey", "imports": modules})
    if first.answer is None:
        return (Check("interpreter", "", "fail", first.failure, seconds=first.seconds),)
    survey: SurveyAnswer = first.answer
    to_run = list(frameworks)
    if lock is None:  # a namespace package (the remains of an uninstallation) has no file
        files = {name: file or "" for name, file in survey["imports"].items()}
        to_run = [named for named in frameworks if os.path.isabs(files.get(named[1], ""))]
    gpus = host.gpus
    if not gpus and devices.is_broken(host):
        # A fault kept the detection from listing the devices: try the first that CUDA may show.
        gpus = (Gpu(name="", compute_capability=None, index=0),)
    about = _Target(
        lock=lock,
        host=host,
        gpus=gpus if device else (),
        device=device,
        verbose=verbose,
        probes=probes,
        env=variables,
        survey=survey,
        frameworks=to_run,
        folder=cudnn_folder(survey),
        origins=loader.Origins(variables),
        system={} if data is None else _system_libraries(lock, survey, host, data),
        fast=fast,
    )
    checks = [*installed.survey_checks(lock, survey), dependency_check(survey)]
    threads = 4 + len(about.gpus) + len(about.frameworks)
    # `children` is left first: it kills the children, so that an interrupt does not wait for one
    # that hangs.
    with ThreadPoolExecutor(threads) as pool, children:
        run_probe = children.run
        if device and devices.needs_turns(host):
            run_probe = _in_turn(children.run)
        running = _start(about, pool, run_probe)
        closure = pool.submit(closure_check, survey, modules, about.origins, deadline, about.system)
        code = None
        if data is not None:
            code = pool.submit(device_code_checks, target, survey, host, data, deadline)
            names = [name for name, _, _ in frameworks]
            against = partial(_rule_reasons, conda=conda, host=host, data=data)
            checks += suitability_checks(lock, survey, host, against, names)
        checks += installed.file_checks(survey, running.files.result())
        checks.append(closure.result())
        if code is not None:
            checks += code.result()
        checks += _collect(about, running)
    return tuple(checks)


def _find_interpreter(target: str) -> str:
    if not os.path.exists(target):
        raise InputError(f"{target}: does not exist", hint="name an environment: --target DIR")
    python = interpreter(target)
    if not os.path.isdir(target) and not os.access(python, os.X_OK):
        raise InputError(f"{target}: is neither an environment nor an interpreter")
    return python


def _rule_reasons(
    pins: Iterable[tuple[str, str]], conda: Sequence[Record], host: Host, data: CompatibilityData
) -> tuple[Reason, ...]:
    """Return what the rules say against installed wheels and conda packages on a host."""
    reasons = conda_parts.lock_reasons(conda, host, data, Carriers(data.folder)) if conda else ()
    # A CUDA build may be installed on a host without a GPU, such as a login node.
    of_conda = [reason for reason in reasons if reason.code != "cuda-build"]
    return (*evaluate.pin_reasons(pins, host, data), *of_conda)


def _system_libraries(
    lock: Lock | None, survey: SurveyAnswer, host: Host, data: CompatibilityData
) -> dict[str, Sequence[str]]:
    """Return the libraries that distributions must find on a system with a GPU.

    A lock of CPU builds needs none of them.
    """
    is_for_cpu = lock is not None and not any(choice.cuda for choice in lock.choices)
    files: dict[str, Sequence[str]] = {}
    if is_for_cpu or not host.gpus:
        return files
    for row in survey["distributions"]:
        name = str(row["name"])
        needs = data.system_cuda(name, str(row["version"]), host.platform)
        if needs is not None and needs.libraries:
            files[name] = needs.libraries
    return files


def _in_turn(run_probe: RunProbe) -> RunProbe:
    """Return a function that runs the probes that use a device one after another."""
    turn = threading.Lock()

    def run(
        name: str, options: Mapping[str, object], more: Mapping[str, str] | None = None
    ) -> Outcome:
        if not options.get("device"):
            return run_probe(name, options, more)
        with turn:
            return run_probe(name, options, more)

    return run


# ---- starting the probes ------------------------------------------------------------------------


def _start(about: _Target, pool: Executor, run_probe: RunProbe) -> _Running:
    """Start all probes.

    There is one child for the files, one for cuDNN, one for each device and one for each
    framework.
    """
    cudnn = None
    gpus: list[Future[Logged]] = []
    if about.folder is not None:
        cudnn = pool.submit(_run_cudnn, run_probe, about.folder, about.verbose)
        gpus = [
            pool.submit(_run_convolution, run_probe, about.folder, ordinal, about.verbose)
            for ordinal in range(len(about.gpus))
        ]
    return _Running(
        files=pool.submit(run_probe, "installed", {"mode": "files", "fast": about.fast}),
        cudnn=cudnn,
        gpus=gpus,
        frameworks=[
            pool.submit(_run_framework, run_probe, about, framework)
            for framework in about.frameworks
        ],
    )


def _run_framework(run_probe: RunProbe, about: _Target, framework: Named) -> Outcome:
    _, module, probe = framework
    options = {
        "import_name": module,
        "device": about.device,
        "devices": len(about.host.gpus),
    }
    if not has_probe(probe, about.probes):
        probe = "module"
    return run_probe(probe, options)


def _run_cudnn(run_probe: RunProbe, folder: str, verbose: bool) -> _CudnnRun:
    options = {"folder": folder}
    outcome, lines = _run_logged(
        run_probe, "cudnn", options, folder, loader.should_rerun_with_log, verbose
    )
    if outcome.answer is not None or outcome.ended != "crash":
        return _CudnnRun(outcome=outcome, lines=lines)
    second = run_probe("cudnn", {**options, "checks": False})
    return _CudnnRun(outcome=second, crash=outcome.failure, lines=lines)


def _run_convolution(run_probe: RunProbe, folder: str, ordinal: int, verbose: bool) -> Logged:
    options = {"folder": folder, "device": {"ordinal": ordinal}, "need": devices.NEED}
    return _run_logged(
        run_probe, "convolution", options, folder, devices.should_rerun_with_log, verbose
    )


def _run_logged(  # noqa: PLR0917
    run_probe: RunProbe,
    name: str,
    options: Mapping[str, object],
    folder: str,
    should_rerun: Callable[[Outcome], bool],
    verbose: bool,
) -> Logged:
    """Run a probe, and once more with cuDNN's log if cuDNN failed.

    Return the first outcome and the log's reasons.
    """
    outcome = run_probe(name, options)
    if not should_rerun(outcome):
        return outcome, ()
    major = cudnn_log.cudnn_major(folder)
    second, lines = cudnn_log.run_with_log(run_probe, name, options, major=major, verbose=verbose)
    if second.answer is not None and not should_rerun(second):
        lines = (*lines, "a second run of the same check did not fail")
    return outcome, lines


# ---- collecting the checks ----------------------------------------------------------------------


def _collect(about: _Target, running: _Running) -> list[Check]:
    """Return the checks of the probes' answers, in a fixed order whichever answers first."""
    checks = [loader.variable_check(about.folder, about.origins)]
    checks += _cudnn_checks(about, running)
    if about.device:
        checks += devices.host_checks(about.host, checks)
    for (name, _, _), outcome in zip(about.frameworks, running.frameworks, strict=True):
        checks += framework_checks(
            name,
            outcome.result(),
            lock=about.lock,
            survey=about.survey,
            visible=len(about.host.gpus) if about.device else 0,
            origins=about.origins,
            system=about.system,
        )
    return checks


def _cudnn_checks(about: _Target, running: _Running) -> list[Check]:
    """Return the checks of cuDNN's libraries and of the devices."""
    expected = expected_cudnn(about.lock, about.survey)
    if running.cudnn is None or about.folder is None:
        if expected is None:
            return []
        evidence = f"cuDNN {expected} is locked and no libcudnn is installed"
        marks = (("none", "libcudnn", expected),)
        return [Check("cudnn", "libraries", "fail", evidence, marks=marks)]
    run = running.cudnn.result()
    checks = loader.cudnn_checks(
        run.outcome, about.folder, expected, about.origins, crash=run.crash, lines=run.lines
    )
    answer: CudnnAnswer = {}
    if run.outcome.answer is not None:
        answer = run.outcome.answer
    outcomes = [future.result() for future in running.gpus]
    place = devices.Place(host=about.host, env=about.env, folder=about.folder)
    checks += devices.all_checks(outcomes, about.gpus, answer.get("max_device"), place)
    return checks
