"""`gpuenv explain`: why a request is not possible here and what would help; whether a lock survives another host."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence

from .. import api
from ..compat.evaluate import is_doubt
from ..errors import Change, GpuEnvError, InputError, NoSolutionError, Reason, TamperedError
from ..model import Host, IndexOptions, Lock, Plan, Rejection, Request
from .host_args import host_flags, host_of
from .output import print_json, print_lines
from .request_args import request_flags

_PYTHON = frozenset({"python", "lock-python", "lock-environment", "no-wheel-for-target"})
_CHANGES = ("gpu", "driver", "python", "platform", "glibc")


def explain_flags(parser: ArgumentParser) -> None:
    """Flags of `gpuenv explain`."""
    request_flags(parser, output=False)
    host_flags(parser)


def explain(arguments: Namespace) -> int:
    """0 if it is possible, 3 if it is not; either way the answer is on stdout."""
    locks = [one for one in arguments.requirement if one.endswith(".toml")]
    if locks:
        if len(locks) > 1 or len(arguments.requirement) > 1 or arguments.framework:
            raise InputError(f"{locks[0]}: a lock is explained alone: give one LOCK, or requirements")
        return _explain_lock(arguments, locks[0])
    return _explain_request(arguments)


# ---- a request ----------------------------------------------------------------------------------------------------


def _explain_request(arguments: Namespace) -> int:
    from ..render import refusals
    from .request_args import asked, frameworks_first

    arguments.framework, arguments.requirement = frameworks_first(arguments.framework, arguments.requirement)
    request, options, host = asked(arguments, lambda: host_of(arguments, solving=True))
    try:
        plan = api.solve(request, host, options)
    except NoSolutionError as error:
        if arguments.json:
            print_json(refusals.explanation_json(error.explanation))
        else:
            print_lines(refusals.impossible_lines(error.explanation, host))
        return error.exit_status
    plan = plan.replace(skipped=tuple(_whole(plan, request, host, options)))
    if arguments.json:
        print_json(refusals.possible_json(plan))
    else:
        print_lines(refusals.possible_lines(plan))
    return 0


def _whole(plan: Plan, request: Request, host: Host, options: IndexOptions) -> Iterator[Rejection]:
    """What was passed over; of the first release of a framework that another one kept out the reasons of a refusal.

    They are those against asking for just this release and for that other one.
    """
    from ..requirements.target import parse_requirement

    done: set[str] = set()
    for one in plan.skipped:
        if one.name in done or any(reason.code != "conflict" for reason in one.reasons):
            yield one
            continue
        done.add(one.name)
        pinned = f"{one.name}=={one.version.partition(' ')[0]}"
        others = [text for text in request.frameworks if parse_requirement(text).name != one.name]
        asked = [request.replace(frameworks=(pinned, other), requirements=()) for other in others]
        asked += [request.replace(frameworks=(pinned,), requirements=(other,)) for other in request.requirements]
        against = next(filter(None, (_refusal(pair, host, options) for pair in asked)), ())
        yield one.replace(reasons=against or one.reasons)


def _refusal(request: Request, host: Host, options: IndexOptions) -> tuple[Reason, ...]:
    """The reasons against a request, () if there are none or they are not known."""
    try:
        api.solve(request, host, options, changes=False)
    except NoSolutionError as error:
        return error.explanation.reasons
    except GpuEnvError:
        return ()
    return ()


# ---- a lock -------------------------------------------------------------------------------------------------------


def _explain_lock(arguments: Namespace, path: str) -> int:
    from ..render import locks, refusals

    own = _own(path)
    host = _host(arguments, own)
    who, count, reasons = against_lock(path, host)
    failing = any(not is_doubt(reason) for reason in reasons)
    changes = list(_changes(path, host, reasons)) if failing else []
    if arguments.json:
        document = refusals.lock_json(path, who, count, reasons, changes)
        print_json(document)
    else:
        help_lines = refusals.change_lines(changes) if failing else []
        print_lines([*locks.survival_lines(path, who, count, reasons, host, used=len(help_lines)), *help_lines])
    return NoSolutionError.exit_status if failing else 0


def against_lock(path: str, host: Host) -> tuple[str, int, tuple[Reason, ...]]:
    """Who wrote a lock, how many packages it installs on the host, and all that speaks against it there.

    Of gpuenv's own locks their needs are asked, too. One that was made for the CPU is meant to leave a GPU alone: then
    that its builds are CPU builds is a note (gpu-unused), in any other lock it is a failure.
    """
    from ..lock import pylock

    others = pylock.read_others(path, host)
    found = list(others.reasons)
    rules = api.reasons_against(others.pins, host)
    if others.created_by == "gpuenv":
        try:
            lock = api.read_lock(path)
        except TamperedError:
            need, have, source = "the content that was locked", "an edited one", "[tool.gpuenv] content"
            found.append(Reason(code="lock-edited", subject="lock", need=need, have=have, source=source))
        else:
            found += pylock.fit(lock, host)
            rules = tuple(_meant(reason, lock) for reason in rules)
    if any(reason.code == "no-gpu" for reason in found):
        rules = tuple(reason for reason in rules if reason.code != "gpu-unused")
    return others.created_by, len(others.pins), (*found, *rules)


def _meant(reason: Reason, lock: Lock) -> Reason:
    if reason.code != "cpu-build" or lock.needs.driver is not None:
        return reason
    return reason.replace(code="gpu-unused", need="no GPU", have="one, which stays unused")


def _own(path: str) -> Lock | None:
    """The lock, if gpuenv wrote it and nobody edited it."""
    try:
        return api.read_lock(path)
    except InputError:
        return None  # of another tool; what cannot be read at all is told when it is read as any lock


def _host(arguments: Namespace, own: Lock | None) -> Host:
    """The lock's own host with what the flags change; without any flag, and for other tools' locks, as everywhere."""
    if own is None or arguments.host or not any(getattr(arguments, name) for name in _CHANGES):
        host = host_of(arguments, solving=True, python=own is None or arguments.python is not None)
        return host if own is None or arguments.python else host.replace(python=own.host.python)
    return api.describe(
        own.host,
        gpus=arguments.gpu,
        driver=arguments.driver,
        python=arguments.python,
        platform=arguments.platform,
        glibc=arguments.glibc,
    )


def _changes(path: str, host: Host, reasons: Sequence[Reason]) -> list[Change]:
    """Single changes of the host with which nothing fails any more."""
    from ..compat import what_if

    matrix = api.compatibility_data()

    def works(one: what_if.ChangedHost) -> bool:
        return all(is_doubt(reason) for reason in against_lock(path, one.host)[2])

    def first(kind: Iterable[what_if.ChangedHost]) -> what_if.ChangedHost | None:
        return next((one for one in kind if works(one)), None)

    found = [
        first(what_if.pythons(host)) if _PYTHON & {reason.code for reason in reasons} else None,
        first(what_if.drivers(host, matrix)),
        first(what_if.fewer_gpus(host)) or first(what_if.gpus(host, matrix)),
    ]
    return [Change(change=one.change, gives="a host on which the lock works") for one in found if one is not None]
