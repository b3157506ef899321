"""Finds out whether a log comes from this machine or from another one.

A log names its host: its GPUs, its driver, WSL or a container, the operating system and folders of
packages. Facts of this machine count for a log only if nothing shows that the log is from another
machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from ..compat.data import gpu_key
from ..model import Host, Value
from .facts import Case
from .model import Fact

# Words before and after the name of a GPU that the machine need not have.
_MENTION = re.compile(
    r"(?i)(?:needs?|requires?|such as|e\.g\.,?|like|at least|or newer|than|recommend\w*|supports?|"
    r"only|works? on|tested on|designed for|optimized for|or) (?:an? |the )?"
    r"(?:NVIDIA |GeForce |Tesla )*$"
)
_ALTERNATIVE = re.compile(r"(?i),? (?:or (?:newer|better|later|higher|above|an?\b)|is required)")


class Origin(Value):
    """The answer to "is this log from this machine?".

    Attributes:
        place: here, elsewhere or unknown.
        reason: why.
        is_evidence: whether facts of this machine may explain the log.
        stated: the user said so, by --here, by --elsewhere or by describing the machine.
        without_gpu: the log was read on a machine without a GPU.
    """

    place: str
    reason: str
    is_evidence: bool
    stated: bool = False
    without_gpu: bool = False


def find_origin(
    log_facts: Sequence[Fact], host: Host, *, stated: str = "", described: bool = False
) -> Origin:
    """Return where a log comes from.

    Args:
        host: this machine; not used if flags say where the log is from.
        stated: "here" or "elsewhere" if the user said so.
        described: flags describe the machine of the log.
    """
    if described:
        reason = "flags describe its machine"
        return Origin(place="elsewhere", reason=reason, is_evidence=False, stated=True)
    log, without_gpu = Case(log_facts), has_no_gpu(host)
    is_evidence = False
    if stated:
        place, reason, is_evidence = stated, f"--{stated}", stated == "here"
    elif contradiction := next(_contradictions(log, host), ""):
        place, reason = "elsewhere", contradiction
    elif without_gpu:
        place, reason = "unknown", "this machine has no GPU"
    elif log.of_kind("container"):
        place = "unknown"
        reason = "the log is of a container, and this container may be another one"
    elif log.of_kind("gpu") and log.of_kind("driver"):
        place, is_evidence = "here", True
        reason = f"the log names this machine's GPU and its driver {host.driver}"
    else:
        place, is_evidence = "unknown", True
        reason = "the log does not name both its GPU and its driver"
    return Origin(
        place=place,
        reason=reason,
        is_evidence=is_evidence,
        stated=bool(stated),
        without_gpu=without_gpu,
    )


def _contradictions(log: Case, host: Host) -> Iterator[str]:
    """Yield why a log cannot be from a machine."""
    is_known = host.gpus or has_no_gpu(host)
    named = [gpu.value for gpu in stated_gpus(log)]
    present = [gpu.name for gpu in host.gpus]
    pairs = product(map(gpu_key, named), map(gpu_key, present))
    is_present = any(first in second or second in first for first, second in pairs)
    if named and is_known and not is_present:
        listed = ", ".join(dict.fromkeys(present)) or "none"
        yield f"the log names the GPU {named[0]}, and this machine has {listed}"
    drivers = [driver.value for driver in log.of_kind("driver")]
    if drivers and (host.driver or has_no_gpu(host)) and host.driver not in drivers:
        yield f"the log names driver {drivers[0]}, and this machine has {host.driver or 'none'}"
    for kind, is_same, reason in (
        ("os", host.os == "windows", "the log is of Windows"),
        ("wsl", host.virtualization == "wsl2", "the log is of WSL"),
        (
            "container",
            host.virtualization,
            "the log is of a container, and this process runs in none",
        ),
    ):
        if log.of_kind(kind) and not is_same:
            yield reason
    folders = [folder.value for folder in log.of_kind("packages-folder")]
    if folders and not any(map(os.path.isdir, folders)):
        yield f"the log names {folders[0]}, which does not exist here"


def stated_gpus(log: Case) -> list[Fact]:
    """Return the GPUs that a log has, not those that a sentence only mentions: "needs an A100"."""
    stated = []
    for gpu in log.of_kind("gpu"):
        before, name, after = gpu.text.partition(gpu.value)
        if not (name and (_MENTION.search(before) or _ALTERNATIVE.match(after))):
            stated.append(gpu)
    return stated


def has_no_gpu(host: Host) -> bool:
    """Return whether the detection found that a machine has neither a GPU nor a driver."""
    return not host.gpus and [problem.code for problem in host.problems] == ["no-gpu"]


def other_packages(log_facts: Iterable[Fact], installed: Iterable[tuple[str, str]]) -> str:
    """Return how the first package that differs between a log and the environment differs, or "".

    Args:
        installed: (name, version) of what is installed.
    """
    versions: dict[str, list[str]] = {}
    for fact in log_facts:
        if fact.kind in ("package", "version"):
            name = fact.subject.replace("_", "-")
            versions.setdefault(name, []).append(fact.value)
    for name, version in installed:
        named = versions.get(name, [])
        # The last parts of a release may be left out.
        public_version = f"{version.partition('+')[0]}."
        if named and not any(public_version.startswith(f"{release}.") for release in named):
            return f"the log names {name} {named[0]}, and the environment has {version}"
    return ""
