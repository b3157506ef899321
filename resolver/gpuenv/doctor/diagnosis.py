"""What the doctor does, composed of the stages: a log read, the host and the environment looked at, and what follows.

The facts of the host are those that the other commands find: `detect`, the checks of `verify`, the rules of
compatibility, the variables of the process, and with `probe` the tests that a diagnosis asks for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

from .. import api, doctor
from ..compat.parts import known_builds as builds_of_pins
from ..errors import GpuEnvError, NoSolutionError
from ..loader_env import Shadow, libraries, loader_variables
from ..model import Build, Check, Choice, Framework, Host, IndexOptions, Request, Value
from ..verify import probe_tests
from . import check_facts, host_facts
from .catalog import causes
from .facts import Case
from .log_reader import read_log
from .verdicts import diagnose

NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")
# Problems of the detection for which the device nodes may tell why.
_UNANSWERED = frozenset({"driver-libraries-missing", "driver-libraries-broken", "nvml-unknown-error",
                         "no-permission", "nvml-error", "nvml-library-not-found"})  # fmt: skip
# Kinds of facts of a log that only a process which had a GPU can have written.
_HAD_GPU = frozenset({"gpu", "capability", "free-bytes", "total-bytes", "out-of-memory", "xid", "ecc"})
_OF_DEVICES = frozenset({"pci-gpu", "module", "device-node", "driver", "driver-cuda"})
_TESTS_OF_DEVICES = frozenset({"nvml", "libcuda", "device-open", "cuinit", "context", "driver-runtime"})


class Remedy(Value):
    """What a new solve would give: the frameworks asked for, the command, and the builds that it chose.

    Without a solution `choices` is () and `failure` says why; `changes` are then (change, what it gives) pairs.
    """

    asked: tuple[str, ...]
    command: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    needs_driver: str | None = None
    failure: str = ""
    changes: tuple[tuple[str, str], ...] = ()


class Examination(Value):
    """All that was seen and what follows. `shown` are tests that were made; `log` is whether a log was read.

    `elsewhere`: the log is of a process that had a GPU, and this machine has none, so that what is known of its devices
    and its driver was left out.
    """

    diagnosis: doctor.Diagnosis
    host: Host
    target: str | None
    checks: tuple[Check, ...]
    shown: tuple[probe_tests.Shown, ...]
    remedy: Remedy | None
    shadows: tuple[Shadow, ...]
    log: bool
    elsewhere: bool


def examine(
    log: BinaryIO | None,
    host: Host,
    *,
    target: str | None = None,
    described: bool = False,
    probe: bool = False,
    timeout: float = 300.0,
    env: Mapping[str, str] | None = None,
    root: str = "/",
    flags: Sequence[str] = (),
    step: Callable[[str], None] = lambda _: None,
) -> Examination:
    """What is wrong, by the log and by what is seen here; changes nothing.

    `target` is the environment, its folder or its interpreter; None leaves it out. `described`: the host was described
    by flags (`flags`, repeated in the command that is proposed), and no device of this machine is touched. Without a
    log everything is checked, on the devices too; with one the devices are only used for `probe`. `timeout` is in
    seconds and bounds the checks, and the tests by themselves. Variables are those of `env` (this process's) as a fact;
    children have this process's own. `step` is told what is done next. InputError if there is no interpreter at
    `target`.
    """
    variables = os.environ if env is None else env
    said: tuple[doctor.Fact, ...] = ()
    if log is not None:
        step("reading the log")
        said = tuple(read_log(_chunks(log)))
    facts = _of_host(host, variables, root, described=described)
    installed, checks = None, tuple[Check, ...]()
    if target is not None:
        step("looking at the environment")
        installed = probe_tests.survey(target, timeout=timeout)
        device = not described and (probe or log is None)
        checks = api.verify(None, target, host, device=device, timeout=timeout)
        facts += _environment(installed, host, checks)
    elsewhere = log is not None and not described and _elsewhere(said, host)
    facts = _heeding(said, _left(facts) if elsewhere else facts, log=log is not None)
    shown: tuple[probe_tests.Shown, ...] = ()
    if probe and installed is not None and not described:
        step("making the tests")
        shown = probe_tests.tests(installed, host, timeout=timeout)
        facts += check_facts.test_facts((one.test, one.device, one.status, one.evidence) for one in shown)
    diagnosis = diagnose(said, facts)
    remedy = None
    first = diagnosis.verdicts[0].cause if diagnosis.verdicts else ""
    if installed is not None and host.gpus and first and causes()[first].solve:
        step("solving")
        remedy = find_remedy(installed.distributions, host, target or "", flags)
    return Examination(
        diagnosis=diagnosis,
        host=host,
        target=target,
        checks=checks,
        shown=shown,
        remedy=remedy,
        shadows=_shadows(variables, installed),
        log=log is not None,
        elsewhere=elsewhere,
    )


def _of_host(host: Host, variables: Mapping[str, str], root: str, *, described: bool) -> list[doctor.Fact]:
    """The facts of the host, of the process's variables and, where the driver did not answer, of its device nodes."""
    facts = [*host_facts.host_facts(host, described=described), *host_facts.variable_facts(variables)]
    if {problem.code for problem in host.problems} & _UNANSWERED and host.virtualization not in ("wsl2", "tegra"):
        facts += host_facts.node_facts(_nodes(root))
    return facts


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    """A stream piece by piece, whatever the length of its lines; of a pipe as it comes."""
    read = getattr(stream, "read1", stream.read)
    while chunk := read(1 << 16):
        yield chunk


def _environment(installed: probe_tests.Installed, host: Host, checks: Sequence[Check]) -> list[doctor.Fact]:
    """The facts of what is installed, and of its checks; what a framework's import said is read as a log is."""
    builds = known_builds(installed.distributions, host)
    reasons = api.reasons_against(installed.distributions, host)
    facts = [
        *host_facts.package_facts(installed.distributions, installed.libraries, builds),
        *host_facts.reason_facts(reasons, host, builds, installed.distributions),
        *check_facts.check_facts(checks),
        *host_facts.presence_facts(installed.libraries, probe_tests.system_cudnn(), installed.distributions),
    ]
    for check in checks:
        if check.subject == "import" and check.status == "fail":
            where = f"host: check {check.name} import"
            read = read_log([check.evidence])
            facts += [fact.replace(where=where) for fact in read]
    return facts


def known_builds(distributions: Iterable[tuple[str, str]], host: Host) -> tuple[Build, ...]:
    """What the data knows of the installed frameworks' builds."""
    return builds_of_pins(distributions, host.platform, api.compatibility_data())


def _nodes(root: str) -> dict[str, str]:
    """Device nodes of the driver: yes, missing, or denied to this user."""
    found = {}
    for path in NODES:
        place = os.path.join(root, path.lstrip("/"))
        if not os.path.exists(place):
            found[path] = "missing"
        else:
            found[path] = "yes" if os.access(place, os.R_OK | os.W_OK) else "denied"
    return found


def _elsewhere(said: Iterable[doctor.Fact], host: Host) -> bool:
    """Whether the log is of a process that had a GPU, on a machine that has none at all."""
    if host.gpus or [problem.code for problem in host.problems] != ["no-gpu"]:
        return False
    return any(fact.kind in _HAD_GPU or (fact.kind, fact.subject) == ("status", "cudnn") for fact in said)


def _left(facts: Iterable[doctor.Fact]) -> list[doctor.Fact]:
    return [
        fact
        for fact in facts
        if fact.kind not in _OF_DEVICES and not (fact.kind == "test" and fact.subject in _TESTS_OF_DEVICES)
    ]


def _heeding(said: Iterable[doctor.Fact], facts: Iterable[doctor.Fact], *, log: bool) -> list[doctor.Fact]:
    """The host's facts without what they cannot know: a library that the log's program missed may be asked for by a
    package that no check reads, so that those that were found prove nothing about it; and a full card failed for
    nobody where the log shows no fault."""
    said = tuple(said)
    missed = [fact.subject for fact in said if fact.kind == "library-missing"]
    doubted = {"cudnn-complete", "cudnn-present"} if any(one.startswith("libcudnn") for one in missed) else set()
    doubted |= {"libraries-resolve"} if missed else set()
    nobody = log and not Case(said, ()).faults()
    return [
        fact
        for fact in facts
        if fact.kind != "test"
        or not ((fact.value == "pass" and fact.subject in doubted) or (nobody and fact.subject == "free-memory"))
    ]


def _shadows(env: Mapping[str, str], installed: probe_tests.Installed | None) -> tuple[Shadow, ...]:
    if installed is None:
        return ()
    return tuple(loader_variables(env, installed.prefix, libraries(installed.prefix))[1])


# ---- what a new solve would give ----------------------------------------------------------------------------------


def find_remedy(
    distributions: Iterable[tuple[str, str]], host: Host, target: str, flags: Sequence[str] = ()
) -> Remedy | None:
    """A solve for the frameworks that are installed, of the same versions if there are builds of them that fit.

    Only the snapshot and the cache are asked. None if no framework is installed.
    """
    have = dict(distributions)
    matrix = api.compatibility_data()
    found = [(one, _version(one, have)) for one in filter(None, map(matrix.framework, matrix.frameworks()))]
    wanted = [(one, version) for one, version in found if version is not None]
    if not wanted:
        return None
    more = tuple(sorted(name for one, _ in wanted for name in one.companions if name in have))
    ways = [
        tuple(f"{one.name}=={version.partition('+')[0]}" for one, version in wanted),
        tuple(one.name for one, _ in wanted),
    ]
    failure = Remedy(asked=ways[1])
    for asked in ways:
        try:
            request = Request(frameworks=asked, requirements=more)
            plan = api.solve(request, host, IndexOptions(offline=True), changes=asked == ways[1])
        except NoSolutionError as error:
            changes = tuple((one.change, one.gives) for one in error.explanation.changes)
            failure = Remedy(asked=asked, failure=error.message, changes=changes)
            continue
        except GpuEnvError as error:
            failure = Remedy(asked=asked, failure=error.message)
            continue
        return Remedy(
            asked=asked,
            command=_command(asked, more, target, flags),
            choices=plan.choices,
            needs_driver=plan.needs.driver,
        )
    return failure


def _version(framework: Framework, have: Mapping[str, str]) -> str | None:
    """The installed version of a framework, whatever distribution has it."""
    names = [framework.distribution, *(way.requires[0].partition("[")[0] for way in framework.ways)]
    return next((have[name] for name in names if name in have), None)


def _command(asked: Sequence[str], more: Sequence[str], target: str, flags: Sequence[str]) -> tuple[str, ...]:
    """The command that installs it, beside what is there now."""
    folder = target.rstrip("/")
    if not os.path.isdir(folder):  # an interpreter: DIR/bin/python
        folder = os.path.dirname(os.path.dirname(folder))
    pairs = [word for one in asked for word in ("--framework", one)]
    return ("gpuenv", "install", *pairs, *more, *flags, "--target", f"{folder}-new")
