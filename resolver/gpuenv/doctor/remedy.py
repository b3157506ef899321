"""The remedy for an unsuitable environment: a new solve for its frameworks.

The solve is for this host, or for the machine and the frameworks that a log names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from packaging.specifiers import SpecifierSet

from ..compat.data import CompatibilityData, gpu_key, load
from ..compat.evaluate import build_reasons
from ..compat.extensions import FRAMEWORK
from ..errors import GpuEnvError, InputError, NoSolutionError
from ..model import Build, Choice, Framework, Host, Plan, Request, Value, show_pair
from .catalog import causes, toolkit_driver
from .model import Fact
from .origin import stated_gpus

_PARTS_OF_RELEASE = 3  # "2.1.0"
_KINDS_WITH_VERSION = ("framework", "version", "package")
_FRAMEWORKS = ("torch", "tensorflow", "jax", "cupy", "onnxruntime")

Failing = Mapping[str, tuple[str, str]]  # framework -> its version, and its CUDA, "12.8" or ""


class Solve(Protocol):
    """Solves with the embedded snapshot and the cache alone, without a network."""

    def __call__(self, request: Request, host: Host, *, changes: bool) -> Plan:
        """Return the plan. With `changes`, a failure also names the smallest changes that help.

        Raises:
            GpuEnvError: there is no solution, or the data cannot be read.
        """


class Describe(Protocol):
    """Makes a host from the texts of the host flags."""

    def __call__(self, *, gpus: tuple[str, ...], driver: str | None, python: str | None) -> Host:
        """Return the host.

        Raises:
            InputError: a text is not understood.
        """


class Remedy(Value):
    """The result of a new solve.

    Attributes:
        machine: the machine that the solve was for, in words; "" for this host.
        unsolved: builds of the same versions that suit the host, but are not in the snapshot, and
            the command that solves for them with a network; () if there are none.
        unsolved_command: that command, or ().
        asked: the frameworks that the solve was for, such as "torch==2.13.0".
        command: the command that installs the new environment; () without a solution.
        choices: the chosen builds; () without a solution.
        failure: why there is no solution that helps, or "".
        same: the solution is what is installed.
        changes: without a solution, (change, what it makes possible) pairs.
    """

    asked: tuple[str, ...]
    command: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    needs_driver: str | None = None
    failure: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    machine: str = ""
    same: bool = False
    unsolved: tuple[str, ...] = ()
    unsolved_command: tuple[str, ...] = ()


def find_remedy(
    distributions: Iterable[tuple[str, str]],
    host: Host,
    target: str | None,
    flags: Sequence[str],
    *,
    data: CompatibilityData,
    solve: Solve,
    failing: Failing | None = None,
) -> Remedy | None:
    """Solve for the installed frameworks: first for the same versions, then for any version.

    Args:
        distributions: (name, version) of what is installed. The version may be shortened, or "".
        target: the folder or the interpreter of the environment; None names none.
        flags: the flags that describe the host; the command repeats them.
        failing: the builds that fail, if the same releases do not help in a new environment.

    Returns:
        The first solution with known builds, or what makes one possible. None if no framework is
        installed, or if nothing is known to help.
    """
    installed = dict(distributions)
    frameworks = _installed_frameworks(installed, data)
    if not frameworks:
        return None
    companions = _installed_companions(frameworks, installed)
    same_versions = []
    any_version = []
    for framework, version in frameworks:
        same_versions.append(framework.name + _same_release(version))
        any_version.append(framework.name)
    failure = None
    for asked in (same_versions, any_version):
        try:
            request = Request(frameworks=tuple(asked), requirements=companions)
            plan = solve(request, host, changes=asked == any_version)
        except NoSolutionError as error:
            found = [(change.change, change.gives) for change in error.explanation.changes]
            if found:
                failure = Remedy(asked=tuple(asked), failure=error.message, changes=tuple(found))
            continue
        except GpuEnvError:
            continue  # without a network nothing tells
        if any(reason.code == "build-unknown" for reason in plan.warnings):
            continue  # it may not run
        if failing is not None and _is_circle(plan, failing, companions, installed):
            same = " and ".join(f"{choice.framework} {choice.version}" for choice in plan.choices)
            failure = Remedy(
                asked=tuple(asked), failure=f"it gives the same build, {same}", same=True
            )
            continue
        remedy = Remedy(
            asked=tuple(asked),
            command=_command(asked, companions, target, flags),
            choices=plan.choices,
            needs_driver=plan.needs.driver,
        )
        if asked == same_versions:
            return remedy
        builds = _suitable_builds(frameworks, host, data, failing or {})
        if not builds:
            return remedy
        command = _command(same_versions, companions, target, flags)
        return remedy.replace(unsolved=builds, unsolved_command=command)
    return failure


def _is_circle(
    plan: Plan, failing: Failing, companions: Iterable[str], installed: Mapping[str, str]
) -> bool:
    """Whether a plan has the failing builds again, and the companions that are installed."""
    pins = {pin.wheel.name: pin.wheel.version for pin in plan.pins}
    return all(_is_same(choice.framework, choice, failing) for choice in plan.choices) and all(
        pins.get(name, "").partition("+")[0] == installed[name].partition("+")[0]
        for name in companions
    )


def _is_same(framework: str, build: Build | Choice, failing: Failing) -> bool:
    """Whether a build is the failing one. torch has builds for several CUDA versions."""
    version, cuda = failing.get(framework, ("", ""))
    is_release = bool(version) and f"{build.version}.".startswith(f"{version}.")
    if not cuda and framework != FRAMEWORK:
        return is_release
    return is_release and build.cuda is not None and cuda == show_pair(build.cuda)


def _suitable_builds(
    frameworks: Sequence[tuple[Framework, str]],
    host: Host,
    data: CompatibilityData,
    failing: Failing,
) -> tuple[str, ...]:
    """Return for each framework the first build of its version that suits a host and does not fail.

    Returns:
        () if a framework has none.
    """
    names = []
    for framework, version in frameworks:
        specifier = SpecifierSet(_same_release(version))
        for build in data.builds(framework.distribution, host.platform):
            is_asked = specifier.contains(build.version, prereleases=True)
            is_other = not _is_same(framework.name, build, failing)
            if is_asked and is_other and _suits(build, host, data):
                names.append(f"{framework.name} {build.version} ({build.variant})")
                break
        else:
            return ()
    return tuple(names)


def _suits(build: Build, host: Host, data: CompatibilityData) -> bool:
    return not build_reasons(build.local, build, host, data, on_path=True)


def _same_release(version: str) -> str:
    """Return the specifier of a version: "2.1" may be any release 2.1, "2.1.0+cu121" is 2.1.0."""
    public_version = version.partition("+")[0]
    if not public_version:
        return ""
    is_short = public_version.count(".") < _PARTS_OF_RELEASE - 1
    return f"=={public_version}.*" if is_short else f"=={public_version}"


def _installed_frameworks(
    installed: Mapping[str, str], data: CompatibilityData
) -> list[tuple[Framework, str]]:
    """Return the installed frameworks with their versions."""
    frameworks = []
    for name in data.frameworks():
        framework = data.framework(name)
        version = _installed_version(framework, installed) if framework else None
        if framework is not None and version is not None:
            frameworks.append((framework, version))
    return frameworks


def _installed_version(framework: Framework, installed: Mapping[str, str]) -> str | None:
    """Return the installed version of a framework, whichever distribution provides it."""
    providers = [way.distribution for way in framework.ways]
    for name in (framework.distribution, *providers):
        if name in installed:
            return installed[name]
    return None


def _installed_companions(
    frameworks: Iterable[tuple[Framework, str]], installed: Mapping[str, str]
) -> tuple[str, ...]:
    names = []
    for framework, _version in frameworks:
        names += [name for name in framework.companions if name in installed]
    return tuple(sorted(names))


def _command(
    frameworks: Sequence[str],
    requirements: Sequence[str],
    target: str | None,
    flags: Sequence[str],
) -> tuple[str, ...]:
    """Return the command that installs the solution next to the present environment."""
    command = ["gpuenv", "install"]
    for framework in frameworks:
        command += ["--framework", framework]
    command += [*requirements, *flags]
    if target is None:
        return tuple(command)
    folder = target.rstrip("/")
    if not os.path.isdir(folder):  # an interpreter: DIR/bin/python
        folder = os.path.dirname(os.path.dirname(folder))
    return (*command, "--target", f"{folder}-new")


# ---- the machine of a log -----------------------------------------------------------------------


def remedy_for_log(
    log_facts: Sequence[Fact],
    describe: Describe,
    cause: str,
    *,
    data: CompatibilityData,
    solve: Solve,
) -> Remedy | None:
    """Return the new solve for the machine and the frameworks that a log names.

    Returns:
        None if the log names no GPU or no framework, if one of them is unknown, or if the log's
        nvcc cannot compile for the solution.
    """
    machine = machine_of(log_facts)
    host = machine.described(describe) if machine.gpus and machine.frameworks else None
    if host is None:
        return None
    failing = None
    if not causes()[cause].reinstall:
        built = {fact.subject: fact.value for fact in log_facts if fact.kind == "cuda-built"}
        failing = {name: (version, built.get(name, "")) for name, version in machine.frameworks}
    remedy = find_remedy(
        machine.frameworks, host, None, machine.flags, data=data, solve=solve, failing=failing
    )
    if remedy is None or not _suits_compiler(remedy.choices, log_facts):
        return None
    return remedy.replace(machine="the machine of the log")


def _suits_compiler(choices: Iterable[Choice], log_facts: Sequence[Fact]) -> bool:
    """Whether the nvcc of a log, which failed to compile an extension, can do so for the builds."""
    failed = any((fact.kind, fact.subject) == ("says", "cuda_major_mismatch") for fact in log_facts)
    compilers = [fact for fact in log_facts if (fact.kind, fact.subject) == ("toolkit", "nvcc")]
    if not failed or not compilers:
        return True
    major = compilers[0].value.partition(".")[0]
    return all(choice.cuda is None or str(choice.cuda[0]) == major for choice in choices)


class LogMachine(Value):
    """What a log says about its machine and about the frameworks that are installed on it.

    Attributes:
        gpus: names of GPUs, or compute capabilities.
        driver: a driver release, or "".
        python: a version of Python, or "".
        frameworks: (name, version) pairs; the version may be shortened, or "".
    """

    gpus: tuple[str, ...]
    driver: str
    python: str
    frameworks: tuple[tuple[str, str], ...]

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the flags that describe the machine."""
        words: list[str] = []
        for gpu in self.gpus:
            words += ["--gpu", gpu]
        if self.driver:
            words += ["--driver", self.driver]
        if self.python:
            words += ["--python", self.python]
        return tuple(words)

    def described(self, describe: Describe) -> Host | None:
        """Return the machine as a host, or None if a text is not understood."""
        try:
            return describe(gpus=self.gpus, driver=self.driver or None, python=self.python or None)
        except InputError:
            return None


def machine_of(log_facts: Sequence[Fact]) -> LogMachine:
    """Return the machine of a log."""
    return LogMachine(
        gpus=_gpus(log_facts),
        driver=_driver(log_facts),
        python=next(_values(log_facts, "python"), ""),
        frameworks=_frameworks(log_facts),
    )


def _gpus(log_facts: Sequence[Fact]) -> tuple[str, ...]:
    named = {
        gpu_key(fact.value): fact.value
        for fact in stated_gpus(log_facts)
        if load().compute_capability(fact.value) is not None
    }
    if named:
        return tuple(named.values())
    capabilities = [
        fact.value for fact in log_facts if fact.kind == "capability" and fact.subject != "compiler"
    ]
    return tuple(dict.fromkeys(capabilities))


def _driver(log_facts: Sequence[Fact]) -> str:
    """Return the driver release, or the first one that supports the stated CUDA version."""
    releases = [fact for fact in log_facts if fact.kind == "driver" and "." in fact.value]
    for fact in sorted(releases, key=lambda fact: fact.subject == "userspace"):
        return fact.value
    named = next(_values(log_facts, "driver-named"), "")
    return named or next(map(toolkit_driver, _values(log_facts, "driver-cuda")), "")


def _frameworks(log_facts: Sequence[Fact]) -> tuple[tuple[str, str], ...]:
    """Return the named frameworks, each with the most exact version that the log states."""
    versions: dict[str, str] = {}
    for fact in log_facts:
        if fact.subject not in _FRAMEWORKS:
            continue
        if fact.kind in _KINDS_WITH_VERSION:
            known = versions.get(fact.subject, "")
            versions[fact.subject] = max(known, fact.value, key=_parts)
        elif fact.kind in ("cuda-built", "architecture-missing"):
            versions.setdefault(fact.subject, "")
    return tuple(versions.items())


def _parts(version: str) -> int:
    return len(version.split(".")) if version else 0


def _values(log_facts: Iterable[Fact], kind: str) -> Iterator[str]:
    return (fact.value for fact in log_facts if fact.kind == kind)
