"""Composes a diagnosis: reads the log, looks at the host and the environment, and judges the facts.

The facts of the host come from the same functions that other commands use: detection, the checks
of `gpuenv verify`, the compatibility rules, and the probe tests. The stages that a diagnosis needs
are passed in as `Stages`, because `api` composes the stages.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Protocol

from ..compat import conda_parts
from ..compat.data import CompatibilityData
from ..compat.evaluate import known_builds, pin_reasons
from ..errors import GpuEnvError, is_doubt
from ..loader_env import Shadow, libraries, loader_variables
from ..model import Check, Host, Value, show_pair
from ..prefix import prefix_of
from ..verify import probe_tests
from ..verify.survey import Survey
from . import check_facts, host_facts
from .catalog import causes
from .facts import Case
from .judge import diagnose
from .log_reader import read_log
from .model import Diagnosis, Fact
from .origin import Origin, find_origin, other_packages
from .other_binaries import other_binary_facts
from .remedy import Remedy, Solve, find_remedy, machine_of, remedy_for_log, repairs
from .stream import unpacked

_CHUNK = 1 << 16  # bytes of a log that are read at once
# Problems of the detection that the device nodes may explain.
_UNEXPLAINED_PROBLEMS = frozenset(
    {
        "driver-not-loaded",
        "driver-libraries-missing",
        "driver-libraries-broken",
        "nvml-unknown-error",
        "no-permission",
        "nvml-error",
        "nvml-library-not-found",
    }
)


class Verify(Protocol):
    """Checks an environment without a lock."""

    def __call__(
        self, target: str, host: Host, *, device: bool, timeout: float
    ) -> tuple[Check, ...]:
        """Return the checks of the environment at `target`; `device` allows the use of GPUs."""


class Stages(Value):
    """The stages of the pipeline that a diagnosis calls; `api` provides them."""

    data: CompatibilityData
    verify: Verify
    solve: Solve


class Examination(Value):
    """The diagnosis, and everything that was observed for it.

    Attributes:
        facts: what was read from the log, and what was seen of the host and the environment.
        target: the environment that was examined, or None.
        checks: the checks of the environment.
        test_results: the probe tests that were run.
        remedy: the result of a new solve, if the first verdict calls for one.
        repairs: commands that install in the environment what is missing, damaged or of a release
            that another package does not accept.
        shadows: entries of loader variables that shadow the environment's libraries.
        origin: where the log comes from, and so whether this machine was used as evidence; None
            without a log.
        other_environment: why the active environment is not the one of the log, or "".
    """

    diagnosis: Diagnosis
    facts: tuple[Fact, ...]
    host: Host
    target: str | None
    checks: tuple[Check, ...]
    test_results: tuple[probe_tests.Shown, ...]
    remedy: Remedy | None
    repairs: tuple[tuple[str, ...], ...]
    shadows: tuple[Shadow, ...]
    origin: Origin | None
    other_environment: str = ""


def examine(
    log: BinaryIO | None,
    host: Host,
    stages: Stages,
    *,
    target: str | None,
    target_is_named: bool,
    described: bool,
    stated_origin: str,
    probe: bool,
    timeout: float,
    root: str,
    flags: Sequence[str],
) -> Examination:
    """Find the cause of a failure from a log and from this host. Changes nothing.

    Without a log, everything is checked, on the devices too. With a log, devices are only used for
    the probe tests, and facts of this machine only if the log may be from it.

    Args:
        target: the folder or the interpreter of the environment; None leaves it out.
        target_is_named: the user named the environment of the log. Otherwise it is the active one,
            which is evidence only if the log may be from this machine.
        described: flags described the host, so that no device of this machine is used.
        stated_origin: "here" or "elsewhere" if the user said where the log is from.
        probe: run the probe tests.
        timeout: seconds for the checks, and again for the probe tests.
        root: the folder that holds /dev.
        flags: the flags that described the host; the proposed command repeats them.

    Raises:
        InputError: there is no interpreter at `target`, or the log cannot be unpacked.
    """
    log_facts: tuple[Fact, ...] = ()
    origin = None
    if log is not None:
        log_facts = read_log(unpacked(_chunks(log)))
        origin = find_origin(log_facts, host, stated=stated_origin, described=described)
    is_evidence = origin is None or origin.is_evidence
    uses_devices = is_evidence and not described
    if not (is_evidence or described):
        host = host.replace(gpus=(), driver=None, driver_cuda=None)
    environment = _Environment()
    if target is not None and (is_evidence or target_is_named):
        environment = _examine_environment(
            target,
            host,
            stages,
            named_in_log=() if target_is_named else log_facts,
            device=uses_devices and (probe or log is None),
            probe=uses_devices and probe,
            timeout=timeout,
        )
    facts = _facts_of_machine(
        host,
        environment.facts,
        root,
        is_evidence=is_evidence,
        described=described,
        has_variables=is_evidence or (described and stated_origin != "elsewhere"),
    )
    if uses_devices and host.gpus and _lacks_code(log_facts):
        named = [fact.value for fact in log_facts if fact.kind == "file-named"]
        facts += other_binary_facts(host, stages.data, named=named, env=os.environ)
    of_log = Case(log_facts)
    if log is not None:
        facts = _without_doubtful(facts, of_log)
    facts += check_facts.test_facts(environment.test_results)
    diagnosis = diagnose(log_facts, facts)
    if not (diagnosis.verdicts or diagnosis.abstained):
        facts += _facts_of_listing(of_log, stages.data)
        diagnosis = diagnose(log_facts, facts)
    installed, remedy = environment.installed, None
    cause = _cause_for_solve(diagnosis, facts)
    if cause and installed is not None:
        remedy = _remedy_for_environment(installed, host, target, flags, stages, cause=cause)
    elif cause and not described:
        remedy = remedy_for_log(of_log, cause, data=stages.data, solve=stages.solve)
    return Examination(
        diagnosis=diagnosis,
        facts=(*log_facts, *facts),
        host=host,
        target=target if installed else None,
        checks=environment.checks,
        test_results=environment.test_results,
        remedy=remedy,
        repairs=repairs(environment.checks, installed),
        shadows=environment.shadows if is_evidence else (),
        origin=origin,
        other_environment=environment.difference,
    )


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield a log in chunks, however long its lines are. The data of a pipe come as they arrive."""
    read = stream.read
    if isinstance(stream, io.BufferedIOBase):
        read = stream.read1
    while chunk := read(_CHUNK):
        yield chunk


def _lacks_code(log_facts: Iterable[Fact]) -> bool:
    """Return whether a log says that a binary has no code for the GPU, or PTX that is too new."""
    return any(
        fact.kind == "architecture-missing" or fact.value in ("unsupported-ptx", "invalid-image")
        for fact in log_facts
    )


# ---- the environment ----------------------------------------------------------------------------


class _Environment(Value):
    """What was found in an environment; by default it was not examined.

    Attributes:
        installed: what is installed; None if the environment is not the one of the log.
        difference: how it differs from what the log names, or "".
    """

    installed: Survey | None = None
    difference: str = ""
    checks: tuple[Check, ...] = ()
    facts: tuple[Fact, ...] = ()
    test_results: tuple[probe_tests.Shown, ...] = ()
    shadows: tuple[Shadow, ...] = ()


def _examine_environment(
    target: str,
    host: Host,
    stages: Stages,
    *,
    named_in_log: Sequence[Fact],
    device: bool,
    probe: bool,
    timeout: float,
) -> _Environment:
    """Check an environment, unless the facts named in a log are of another one.

    Args:
        device: whether the checks use the devices.
        probe: whether the probe tests run.
    """
    try:
        installed = probe_tests.survey(target, timeout=timeout)
    except (GpuEnvError, OSError) as error:
        return _Environment(facts=(_broken(target, error),))
    difference = other_packages(named_in_log, installed.versions.items())
    if difference:
        return _Environment(difference=difference)
    try:
        checks = stages.verify(target, host, device=device, timeout=timeout)
        facts = tuple(_facts_of_environment(installed, host, checks, stages.data))
    except (GpuEnvError, OSError) as error:
        checks, facts = (), (_broken(target, error),)
    results: tuple[probe_tests.Shown, ...] = ()
    if probe:
        results = probe_tests.tests(installed, host, timeout=timeout)
    prefix = installed.interpreter["prefix"]
    return _Environment(
        installed=installed,
        checks=checks,
        facts=facts,
        test_results=results,
        shadows=tuple(loader_variables(os.environ, prefix, libraries(prefix))[1]),
    )


def _broken(target: str, error: Exception) -> Fact:
    """Return the fact that an environment cannot be examined. Its state is evidence, no error."""
    text = f"{target} cannot be examined: {error}"
    return host_facts.fact("test", "environment", "fail", "host: the environment", text)


# ---- facts of the host and the environment ------------------------------------------------------


def _facts_of_machine(
    host: Host,
    of_environment: Iterable[Fact],
    root: str,
    *,
    is_evidence: bool,
    described: bool,
    has_variables: bool,
) -> list[Fact]:
    """Return the facts of the host, of the variables and of the environment.

    If the log is from another machine, the loader of this machine is no evidence.

    Args:
        is_evidence: the log may be from this machine, or there is no log.
        described: flags described the host.
        has_variables: the variables of this process are facts.
    """
    facts: list[Fact] = []
    if described or is_evidence:
        facts += host_facts.host_facts(host, described=described)
    problems = {problem.code for problem in host.problems} & _UNEXPLAINED_PROBLEMS
    has_nodes = is_evidence and not described and host.virtualization not in ("wsl2", "tegra")
    if problems and has_nodes:
        facts += host_facts.node_facts(root)
    if has_variables:
        facts += host_facts.variable_facts(os.environ)
    if is_evidence and not described:
        facts += host_facts.limit_facts()
    for fact in of_environment:
        is_test = (fact.kind, fact.subject) == ("test", "loader-path")
        is_of_loader = is_test or fact.where == host_facts.SYSTEM_LOADER
        if is_evidence or not is_of_loader:
            facts.append(fact)
    return facts


def _facts_of_environment(
    installed: Survey, host: Host, checks: Sequence[Check], data: CompatibilityData
) -> list[Fact]:
    """Return the facts of what is installed and of its checks.

    The message of a failed import is read in the same way as a log.
    """
    pins, records = tuple(installed.versions.items()), list(installed.conda.values())
    builds = (
        *known_builds(installed.wheels, host.platform, data),
        *conda_parts.known_builds(records, host.platform, data),
    )
    reasons = conda_parts.installed_reasons(installed.wheels, records, host, data)
    facts = [
        *host_facts.package_facts(pins, installed.libraries, builds),
        *host_facts.reason_facts(reasons, host, builds, pins),
        *check_facts.check_facts(checks),
    ]
    presence = host_facts.presence_facts(installed.libraries, probe_tests.system_cudnn(), pins)
    needs_cudnn = any(build.cuda is not None for build in builds)
    facts += [fact for fact in presence if needs_cudnn or fact.kind != "test"]
    for check in checks:
        if check.subject == "import" and check.status == "fail":
            where = f"host: check {check.name} import"
            facts += [fact.replace(where=where) for fact in read_log([check.evidence])]
    return facts


def _facts_of_listing(log: Case, data: CompatibilityData) -> Iterator[Fact]:
    """Yield what the compatibility rules have against the versions and the GPU that a log lists.

    A log that lists them without a failure may show the cause of one.
    """
    versions: dict[str, set[str]] = {}
    for fact in log.of_kind("package"):
        versions.setdefault(fact.subject, set()).add(fact.value)
    pins = tuple(
        (name, max(listed, key=len))  # with its local part
        for name, listed in versions.items()
        if len({version.partition("+")[0] for version in listed}) == 1
    )
    host, _flags = machine_of(log, data)
    if host is None or not pins:
        return
    reasons = pin_reasons(pins, host, data)
    builds = known_builds(pins, host.platform, data)
    for fact in host_facts.reason_facts(reasons, host, builds, pins):
        if (fact.kind, fact.value) != ("test", "pass"):
            yield fact.replace(where="versions in the log")


# ---- facts of the host that say nothing about the log -------------------------------------------


def _without_doubtful(facts: Iterable[Fact], log: Case) -> list[Fact]:
    """Return the host's facts without the tests that say nothing about the log's failure.

    The program of the log may need a library for a package that no check reads. If the log misses
    a library, a passed check of libraries is therefore no proof. A full GPU memory explains
    nothing if the log shows no failure.
    """
    missing = [fact.subject for fact in log.of_kind("library-missing")]
    # Tests, and the result that says nothing; "" is any result.
    doubtful = {"libraries-resolve": "pass"} if missing else {}
    if any(name.startswith("libcudnn") for name in missing):
        doubtful |= {"cudnn-complete": "pass", "cudnn-present": "pass"}
    if not log.faults():
        doubtful["free-memory"] = ""
    return [
        fact
        for fact in facts
        if fact.kind != "test" or doubtful.get(fact.subject) not in ("", fact.value)
    ]


# ---- the remedy ---------------------------------------------------------------------------------


def _cause_for_solve(diagnosis: Diagnosis, facts: Iterable[Fact]) -> str:
    """Return the cause of the first verdict if a new solve may fix it, or "".

    If files lack code for a device in an environment whose releases have it, a new solve gives the
    same releases.
    """
    first = diagnosis.verdicts[0] if diagnosis.verdicts else None
    if first is None or first.complete or not causes()[first.cause].solve:
        return ""
    tests = [fact for fact in facts if (fact.kind, fact.subject) == ("test", "architecture")]
    return "" if {fact.value for fact in tests} >= {"pass", "fail"} else first.cause


def _remedy_for_environment(
    installed: Survey,
    host: Host,
    target: str | None,
    flags: Sequence[str],
    stages: Stages,
    *,
    cause: str,
) -> Remedy | None:
    """Return the new solve for the host's GPUs and the frameworks of an environment."""
    if not host.gpus:
        return None
    records = list(installed.conda.values())
    wheels = known_builds(installed.wheels, host.platform, stages.data)
    if target is not None and records and not wheels:
        if all(map(is_doubt, conda_parts.installed_reasons((), records, host, stages.data))):
            return None
        return Remedy(asked=(), command=("gpuenv", "solve", "--repair", prefix_of(target), *flags))
    versions, failing = installed.versions, {}
    if not causes()[cause].reinstall:
        builds = known_builds(versions.items(), host.platform, stages.data)
        failing = {
            build.name: (build.version, show_pair(build.cuda)) for build in builds if build.cuda
        }
    return find_remedy(
        versions.items(),
        host,
        target,
        flags,
        data=stages.data,
        solve=stages.solve,
        failing=failing,
    )
