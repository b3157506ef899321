"""The remedy for an unsuitable environment: a new solve for its frameworks.

The solve is for this host, or for the machine and the frameworks that a log names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from packaging.specifiers import SpecifierSet

from ..compat.data import CompatibilityData, gpu_key, load
from ..compat.evaluate import build_reasons
from ..compat.extensions import FRAMEWORK
from ..detect.described import describe
from ..errors import GpuEnvError, InputError, NoSolutionError
from ..model import Build, Check, Choice, Framework, Host, Plan, Request, Value, show_pair
from ..verify.survey import Survey
from .catalog import causes, toolkit_driver
from .facts import Case
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
    failing: Failing,
) -> Remedy | None:
    """Solve for the installed frameworks: first for the same versions, then for any version.

    Args:
        distributions: (name, version) of what is installed. The version may be shortened, or "".
        target: the folder or the interpreter of the environment; None names none.
        flags: the flags that describe the host; the command repeats them.
        failing: the builds that fail; none if the same releases help in a new environment.

    Returns:
        The first solution with known builds, or what makes one possible. None if no framework is
        installed, or if nothing is known to help.
    """
    installed = dict(distributions)
    frameworks = _installed_frameworks(installed, data)
    if not frameworks:
        return None
    possible = {name for framework, _ in frameworks for name in framework.companions}
    companions = tuple(sorted(possible.intersection(installed)))
    same_versions = tuple(
        framework.name + _same_release(version) for framework, version in frameworks
    )
    any_version = tuple(framework.name for framework, _ in frameworks)
    failure = None
    for asked in (same_versions, any_version):
        try:
            request = Request(frameworks=asked, requirements=companions)
            plan = solve(request, host, changes=asked == any_version)
        except NoSolutionError as error:
            found = [(change.change, change.gives) for change in error.explanation.changes]
            if found:
                failure = Remedy(asked=asked, failure=error.message, changes=tuple(found))
            continue
        except GpuEnvError:
            continue  # without a network nothing tells
        if any(reason.code == "build-unknown" for reason in plan.warnings):
            continue  # it may not run
        versions = plan.versions
        pins = {name: versions.get(name, "").partition("+")[0] for name in companions}
        present = {name: installed[name].partition("+")[0] for name in companions}
        fails = [_is_same(choice.framework, choice, failing) for choice in plan.choices]
        if all(fails) and pins == present:
            same = " and ".join(f"{choice.framework} {choice.version}" for choice in plan.choices)
            failure = Remedy(asked=asked, failure=f"it gives the same build, {same}", same=True)
            continue
        remedy = Remedy(
            asked=asked,
            command=_command(asked, companions, target, flags),
            choices=plan.choices,
            needs_driver=plan.needs.driver,
        )
        if asked == same_versions:
            return remedy
        builds = _suitable_builds(frameworks, host, data, failing)
        if not builds:
            return remedy
        command = _command(same_versions, companions, target, flags)
        return remedy.replace(unsolved=builds, unsolved_command=command)
    return failure


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
            reasons = build_reasons(build.local, build, host, data, on_path=True)
            if is_asked and is_other and not reasons:
                names.append(f"{framework.name} {build.version} ({build.variant})")
                break
        else:
            return ()
    return tuple(names)


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
    """Return the installed frameworks with their versions, whichever distribution has them."""
    frameworks = []
    for framework in filter(None, map(data.framework, data.frameworks())):
        providers = [framework.distribution, *(way.distribution for way in framework.ways)]
        versions = [installed[name] for name in providers if name in installed]
        if versions:
            frameworks.append((framework, versions[0]))
    return frameworks


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


# ---- repairs ------------------------------------------------------------------------------------


def repairs(checks: Iterable[Check], installed: Survey | None) -> tuple[tuple[str, ...], ...]:
    """Return the commands that install what failed checks of an environment ask for.

    The release of a framework is not changed, and a build that only its own index has is left out.
    There are none without an interpreter, nor for a conda environment, whose packages pip and uv
    must not replace.
    """
    if installed is None or installed.conda or "executable" not in installed.interpreter:
        return ()
    versions, python = installed.versions, installed.interpreter["executable"]
    tool: tuple[str, ...] = ("uv", "pip", "{}", "--python", python)
    again = ("--reinstall", "--no-deps")
    if "pip" in versions:
        tool, again = (python, "-m", "pip", "{}"), ("--ignore-installed", "--no-deps")
    damaged, required, twice = set(), dict[str, SpecifierSet](), set()
    for code, name, value in (mark for check in checks for mark in check.marks):
        if code == "damaged" and "+" not in value:
            damaged.add(f"{name}=={value}")
        elif code == "required" and not (name in _FRAMEWORKS and name in versions):
            required[name] = required.get(name, SpecifierSet()) & SpecifierSet(value)
        elif code == "two-owners":
            twice.update(value.split())
    if twice:  # which one is meant to stay, nothing tells
        return (tuple(word.format("uninstall") for word in tool) + tuple(sorted(twice)),)
    install = tuple(word.format("install") for word in tool)
    commands = []
    if damaged:
        commands.append((*install, *again, *sorted(damaged)))
    if required:
        names = (f"{name}{specifier}" for name, specifier in sorted(required.items()))
        commands.append((*install, *names))
    return tuple(commands)


# ---- the machine of a log -----------------------------------------------------------------------


def remedy_for_log(
    log: Case, cause: str, *, data: CompatibilityData, solve: Solve
) -> Remedy | None:
    """Return the new solve for the machine and the frameworks that a log names.

    Returns:
        None if the log names no GPU or no framework, if one of them is unknown, or if the log's
        nvcc cannot compile for the solution.
    """
    host, flags = machine_of(log, data)
    frameworks = _frameworks(log)
    if host is None or not host.gpus or not frameworks:
        return None
    failing = {}
    if not causes()[cause].reinstall:
        built = {fact.subject: fact.value for fact in log.of_kind("cuda-built")}
        failing = {name: (version, built.get(name, "")) for name, version in frameworks.items()}
    remedy = find_remedy(
        frameworks.items(), host, None, flags, data=data, solve=solve, failing=failing
    )
    compiler = log.first("toolkit", subject="nvcc")
    if remedy and compiler and log.about("says", "cuda_major_mismatch"):
        # It failed to compile an extension, and compiles for builds of its own CUDA alone.
        major = compiler.major
        if any(choice.cuda and str(choice.cuda[0]) != major for choice in remedy.choices):
            return None
    return remedy.replace(machine="the machine of the log") if remedy else None


def machine_of(log: Case, data: CompatibilityData) -> tuple[Host | None, list[str]]:
    """Return the machine of a log, and the flags that describe it.

    The machine is None if the data does not know its GPU or its driver.
    """
    named = {
        gpu_key(gpu.value): gpu.value
        for gpu in stated_gpus(log)
        if load().compute_capability(gpu.value) is not None
    }
    capabilities = [fact.value for fact in log.of_kind("capability") if fact.subject != "compiler"]
    gpus = list(named.values() or dict.fromkeys(capabilities))
    releases = [fact for fact in log.of_kind("driver") if "." in fact.value]
    releases.sort(key=lambda fact: fact.subject == "userspace")
    releases += log.of_kind("driver-named")
    supported = log.first("driver-cuda")
    driver = None
    if releases:
        driver = releases[0].value
    elif supported:  # the first release that supports the stated CUDA version
        driver = toolkit_driver(supported.value) or None
    python = next((fact.value for fact in log.of_kind("python")), None)
    flags = [word for gpu in gpus for word in ("--gpu", gpu)]
    if driver:
        flags += ["--driver", driver]
    if python:
        flags += ["--python", python]
    try:
        host = describe(
            None, data, gpus=gpus, driver=driver, python=python, platform=None, glibc=None
        )
    except InputError:
        return None, flags
    return host, flags


def _frameworks(log: Case) -> dict[str, str]:
    """Return the named frameworks with the most exact version that the log states; "" for none."""
    versions: dict[str, str] = {}
    for fact in log.log:
        if fact.subject not in _FRAMEWORKS:
            continue
        if fact.kind in _KINDS_WITH_VERSION:
            known = versions.setdefault(fact.subject, "")
            if not known or fact.value.count(".") > known.count("."):
                versions[fact.subject] = fact.value
        elif fact.kind in ("cuda-built", "architecture-missing"):
            versions.setdefault(fact.subject, "")
    return versions
