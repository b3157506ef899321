"""Prove that an environment works.

Its files, its cuDNN, and a convolution of its frameworks on every device.

Child processes of the target's interpreter do all of the work; nothing is written. A check passes,
fails or is unknown, and its evidence says what was found.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from ..compat.data import CompatibilityData
from ..errors import InputError
from ..model import Check, Host, Lock
from ..probes.answers import CudnnAnswer
from ..requirements.versions import parse_requirement
from . import companions, devices, installed, loader
from .cudnn_log import Logged
from .frameworks import framework_checks
from .linkage import Libraries, closure_check
from .rule_checks import device_code_checks, rule_checks
from .runner import PROBES, Children
from .survey import Survey, bare_survey, environment_python, read_survey

Named = tuple[str, str, str]  # framework: name, import name, probe


def verify(
    lock: Lock | None,
    target: str,
    host: Host,
    *,
    data: CompatibilityData,
    frameworks: Sequence[Named],
    device: bool = True,
    timeout: float = 300.0,
    env: Mapping[str, str] | None = None,
    verbose: bool = False,
    fast: bool = False,
    whole: bool = True,
    changed: Collection[str] | None = None,
) -> tuple[Check, ...]:
    """Return the checks of the environment at `target`, in a fixed order.

    Args:
        lock: None verifies an environment that gpuenv did not make: what is installed is what
        should be installed.
        target: the folder of an environment, or its interpreter.
        data: the compatibility data.
        frameworks: those to check; without a lock, those of them that can be imported.
        device: false touches no GPU.
        timeout: seconds for all checks together. Children that are not done by then are killed.
        env: the environment variables of the children; None is this process's.
        verbose: record every call in cuDNN's log of a failed run.
        fast: compare the sizes of files, not their hashes.
        whole: false imports nothing but the frameworks.
        changed: the distributions that differ from an environment that was verified, and those
            that require them; None is all. Of the others the sizes of files are compared. Without
            one of the frameworks nothing touches cuDNN and the devices.

    Raises:
        InputError: there is no interpreter at `target`.
    """
    python = environment_python(target)
    variables = dict(os.environ if env is None else env)
    deadline = time.monotonic() + timeout
    turns = device and devices.needs_turns(host)
    children = Children(python, variables, deadline, turns=turns)
    gpus = devices.to_try(host) if device else ()
    modules = [module for _, module, _ in frameworks]
    # `children` is left first: it kills the children, so that an interrupt does not wait for one
    # that hangs.
    with (
        ThreadPoolExecutor(5 + len(gpus) + len(frameworks)) as pool,
        ThreadPoolExecutor(companions.processes()) as imports,
        children,
    ):
        first = children.run("interpreter", {"imports": modules, "users": True})
        if first.answer is None:
            return (Check("interpreter", "", "fail", first.failure, seconds=first.seconds),)
        survey = read_survey(first.answer)
        children.isolated = survey.interpreter["isolated"]
        place = loader.Place(
            lock=lock,
            survey=survey,
            host=host,
            gpus=gpus,
            origins=loader.Origins(variables),
            system=_system_libraries(lock, survey, host, data),
        )
        folder = survey.cudnn_folder
        cudnn: Future[loader.CudnnRun] | None = None
        convolutions: list[Future[Logged]] = []
        runs_code = changed is None or bool(frameworks)
        if folder and runs_code:
            cudnn = pool.submit(loader.run_cudnn, children.run, folder, verbose=verbose)
            run = partial(devices.run_convolution, children.run, folder, verbose=verbose)
            convolutions = [pool.submit(run, ordinal) for ordinal in range(len(gpus))]
        present = frameworks
        if lock is None:  # a namespace package (the remains of an uninstallation) has no file
            present = [row for row in frameworks if os.path.isabs(survey.origin(row[1]))]
        # After cuDNN's own checks: one that hangs must not keep a scarce device from these.
        use = {"device": device, "devices": len(host.gpus)}
        running = [
            (row[0], pool.submit(children.run, *_framework_task(row, use))) for row in present
        ]
        hashed = () if fast else changed
        files = pool.submit(installed.compare_files, children.run, survey, hashed)
        libraries = pool.submit(Libraries, survey, place.origins, deadline, place.system)
        closure = pool.submit(lambda: closure_check(libraries.result(), modules))
        used = host.gpus if device else ()
        started = companions.start(
            imports,
            children.run,
            survey,
            frameworks=modules,
            is_named=data.is_companion,
            requested=_requested_names(lock),
            devices=len(used),
            changed=changed if whole else (),
        )
        checks = installed.survey_checks(lock, survey, data)
        code: Future[list[Check]] | None = None
        if runs_code:
            code = pool.submit(device_code_checks, target, survey, host, data, deadline)
        checks += rule_checks(lock, survey, host, data, [name for name, _, _ in frameworks])
        checks += installed.file_checks(survey, files.result(), data)
        checks.append(closure.result())
        if code is not None:
            checks += code.result()
        checks.append(loader.variable_check(folder, place.origins))
        if runs_code:
            checks += _cudnn_checks(cudnn, convolutions, place)
        is_for_cpu = lock is not None and not lock.host.gpus and lock.needs.driver is None
        if device and (host.gpus or not is_for_cpu):
            checks += devices.host_checks(host, checks)
        for name, task in running:
            checks += framework_checks(name, task.result(), used, place)
        checks += companions.checks(started, libraries.result(), used)
    return tuple(checks)


def verify_bare(prefix: str, host: Host, data: CompatibilityData) -> list[Check]:
    """Return what the rules say about a conda environment without Python, which can prove less."""
    return rule_checks(None, bare_survey(prefix), host, data, ())


def _framework_task(framework: Named, use: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Return the probe of a framework, or the one that only imports it, with its options."""
    _, module, probe = framework
    name = probe if os.path.isfile(os.path.join(PROBES, f"{probe}.py")) else "module"
    return name, {"import_name": module, **use}


def _requested_names(lock: Lock | None) -> set[str]:
    """Return the distributions that the request of a lock names.

    A distribution at a URL or in a folder is left out: it may be the user's own program, which an
    import would run.
    """
    names = set()
    for text in () if lock is None else lock.requirements:
        try:
            requirement = parse_requirement(text)
        except InputError:  # a spec of conda that is no requirement of wheels
            continue
        if requirement.url is None:
            names.add(requirement.name)
    return names


def _system_libraries(
    lock: Lock | None, survey: Survey, host: Host, data: CompatibilityData
) -> dict[str, Sequence[str]]:
    """Return the libraries that distributions must find on a system with a GPU.

    A lock of CPU builds needs none of them.
    """
    is_for_cpu = lock is not None and not any(choice.cuda for choice in lock.choices)
    files: dict[str, Sequence[str]] = {}
    if is_for_cpu or not host.gpus:
        return files
    for name, version in survey.versions.items():
        needs = data.system_cuda(name, version, host.platform)
        if needs is not None and needs.libraries:
            files[name] = needs.libraries
    return files


def _cudnn_checks(
    cudnn: Future[loader.CudnnRun] | None,
    convolutions: Sequence[Future[Logged]],
    place: loader.Place,
) -> list[Check]:
    """Return the checks of cuDNN's libraries and of the devices."""
    if cudnn is None:
        expected = place.expected_cudnn
        if expected is None:
            return []
        evidence = f"cuDNN {expected} is locked and no libcudnn is installed"
        marks = (("none", "libcudnn", expected),)
        return [Check("cudnn", "libraries", "fail", evidence, marks=marks)]
    run = cudnn.result()
    checks = loader.cudnn_checks(run, place)
    answer: CudnnAnswer = {}
    if run.outcome.answer is not None:
        answer = run.outcome.answer
    outcomes = [future.result() for future in convolutions]
    return checks + devices.all_checks(outcomes, answer.get("max_device"), place)
