"""The remedy for an unsuitable environment: a new solve for its frameworks on this host."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from packaging.specifiers import SpecifierSet

from ..compat.data import CompatibilityData
from ..compat.evaluate import build_reasons
from ..errors import GpuEnvError, NoSolutionError
from ..model import Build, Choice, Framework, Host, Plan, Request, Value

_PARTS_OF_RELEASE = 3  # "2.1.0"


class Solve(Protocol):
    """Solves with the embedded snapshot and the cache alone, without a network."""

    def __call__(self, request: Request, host: Host, *, changes: bool) -> Plan:
        """Return the plan. With `changes`, a failure also names the smallest changes that help.

        Raises:
            GpuEnvError: there is no solution, or the data cannot be read.
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
        failure: why there is no solution, or "".
        changes: without a solution, (change, what it makes possible) pairs.
    """

    asked: tuple[str, ...]
    command: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    needs_driver: str | None = None
    failure: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    machine: str = ""
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
) -> Remedy | None:
    """Solve for the installed frameworks: first for the same versions, then for any version.

    Args:
        distributions: (name, version) of what is installed. The version may be shortened, or "".
        target: the folder or the interpreter of the environment; None names none.
        flags: the flags that describe the host; the command repeats them.

    Returns:
        The first solution, or why there is none. None if no framework is installed.
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
    for asked in (tuple(same_versions), tuple(any_version)):
        is_last = asked == tuple(any_version)
        try:
            request = Request(frameworks=asked, requirements=companions)
            plan = solve(request, host, changes=is_last)
        except GpuEnvError as error:
            failure = _failed(asked, error)
            continue
        remedy = Remedy(
            asked=asked,
            command=_command(asked, companions, target, flags),
            choices=plan.choices,
            needs_driver=plan.needs.driver,
        )
        if not is_last:
            return remedy
        builds = _suitable_builds(frameworks, host, data)
        if not builds:
            return remedy
        command = _command(same_versions, companions, target, flags)
        return remedy.replace(unsolved=builds, unsolved_command=command)
    return failure


def _suitable_builds(
    frameworks: Sequence[tuple[Framework, str]], host: Host, data: CompatibilityData
) -> tuple[str, ...]:
    """Return for each framework the first build of its version that suits a host.

    Returns:
        () if a framework has none.
    """
    names = []
    for framework, version in frameworks:
        specifier = SpecifierSet(_same_release(version))
        for build in data.builds(framework.distribution, host.platform):
            is_asked = specifier.contains(build.version, prereleases=True)
            if is_asked and _suits(build, host, data):
                names.append(f"{framework.name} {build.version} ({build.variant})")
                break
        else:
            return ()
    return tuple(names)


def _suits(build: Build, host: Host, data: CompatibilityData) -> bool:
    return not any(build_reasons(build.local, build, host, data, on_path=True).values())


def _same_release(version: str) -> str:
    """Return the specifier of a version: "2.1" may be any release 2.1, "2.1.0+cu121" is 2.1.0."""
    public_version = version.partition("+")[0]
    if not public_version:
        return ""
    is_short = public_version.count(".") < _PARTS_OF_RELEASE - 1
    return f"=={public_version}.*" if is_short else f"=={public_version}"


def _failed(asked: tuple[str, ...], error: GpuEnvError) -> Remedy:
    remedy = Remedy(asked=asked, failure=error.message)
    if isinstance(error, NoSolutionError):
        changes = [(change.change, change.gives) for change in error.explanation.changes]
        return remedy.replace(changes=tuple(changes))
    return remedy


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
    providers = [way.requires[0].partition("[")[0] for way in framework.ways]
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
