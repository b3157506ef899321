"""Finds out whether a log comes from this machine or from another one.

A log names its host: its GPUs, its driver, WSL or a container, the operating system and folders of
packages. Facts of this machine count for a log only if nothing shows that the log is from another
machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence

from ..compat.data import gpu_key
from ..model import Host, Value
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
    log_facts: Sequence[Fact],
    host: Host,
    *,
    stated: str = "",
    described: bool = False,
    folder_exists: Callable[[str], bool] = os.path.isdir,
) -> Origin:
    """Return where a log comes from.

    Args:
        host: this machine; not used if flags say where the log is from.
        stated: "here" or "elsewhere" if the user said so.
        described: flags describe the machine of the log.
        folder_exists: whether a folder is on this machine.
    """
    if described:
        reason = "flags describe its machine"
        return Origin(place="elsewhere", reason=reason, is_evidence=False, stated=True)
    origin = _stated_origin(stated) if stated else _origin_by_facts(log_facts, host, folder_exists)
    return origin.replace(without_gpu=has_no_gpu(host))


def _stated_origin(place: str) -> Origin:
    is_here = place == "here"
    return Origin(place=place, reason=f"--{place}", is_evidence=is_here, stated=True)


def _origin_by_facts(
    log_facts: Sequence[Fact], host: Host, folder_exists: Callable[[str], bool]
) -> Origin:
    contradiction = (
        _other_gpu(log_facts, host)
        or _other_driver(log_facts, host)
        or _other_system(log_facts, host)
        or _missing_folder(log_facts, folder_exists)
    )
    if contradiction:
        return Origin(place="elsewhere", reason=contradiction, is_evidence=False)
    doubt = _doubt(log_facts, host)
    if doubt:
        return Origin(place="unknown", reason=doubt, is_evidence=False)
    if _values(log_facts, "gpu") and _values(log_facts, "driver"):
        reason = f"the log names this machine's GPU and its driver {host.driver}"
        return Origin(place="here", reason=reason, is_evidence=True)
    reason = "the log does not name both its GPU and its driver"
    return Origin(place="unknown", reason=reason, is_evidence=True)


def _doubt(log_facts: Iterable[Fact], host: Host) -> str:
    """Return why a log that nothing contradicts may still be from another machine, or ""."""
    if has_no_gpu(host):
        return "this machine has no GPU"
    if _values(log_facts, "container"):
        return "the log is of a container, and this container may be another one"
    return ""


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
        if named and not any(_is_release(version, release) for release in named):
            return f"the log names {name} {named[0]}, and the environment has {version}"
    return ""


def _is_release(version: str, release: str) -> bool:
    """Whether a version is a release, of which the last parts may be left out."""
    return f"{version.partition('+')[0]}.".startswith(f"{release}.")


# ---- contradictions: each function returns the reason, or "" -------------------------------------


def stated_gpus(log_facts: Iterable[Fact]) -> list[Fact]:
    """Return the GPUs that a log has, not those that a sentence only mentions."""
    return [fact for fact in log_facts if fact.kind == "gpu" and not _is_mentioned(fact)]


def _is_mentioned(gpu: Fact) -> bool:
    """Whether a line mentions a GPU as an example or as a requirement: "needs an A100"."""
    before, name, after = gpu.text.partition(gpu.value)
    return bool(name and (_MENTION.search(before) or _ALTERNATIVE.match(after)))


def _other_gpu(log_facts: Iterable[Fact], host: Host) -> str:
    named = [fact.value for fact in stated_gpus(log_facts)]
    present = [gpu.name for gpu in host.gpus]
    if not named or not (present or has_no_gpu(host)):
        return ""
    if any(_is_same_gpu(name, gpu) for name in named for gpu in present):
        return ""
    return f"the log names the GPU {named[0]}, and this machine has {_listed(present)}"


def _is_same_gpu(name: str, other: str) -> bool:
    first, second = gpu_key(name), gpu_key(other)
    return first in second or second in first


def _listed(gpus: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(gpus)) or "none"


def _other_driver(log_facts: Iterable[Fact], host: Host) -> str:
    named = _values(log_facts, "driver")
    if not named or not (host.driver or has_no_gpu(host)) or host.driver in named:
        return ""
    return f"the log names driver {named[0]}, and this machine has {host.driver or 'none'}"


def _other_system(log_facts: Iterable[Fact], host: Host) -> str:
    if _values(log_facts, "os") and host.os != "windows":
        return "the log is of Windows"
    if _values(log_facts, "wsl") and host.virtualization != "wsl2":
        return "the log is of WSL"
    if _values(log_facts, "container") and host.virtualization is None:
        return "the log is of a container, and this process runs in none"
    return ""


def _missing_folder(log_facts: Iterable[Fact], folder_exists: Callable[[str], bool]) -> str:
    folders = _values(log_facts, "packages-folder")
    if not folders or any(map(folder_exists, folders)):
        return ""
    return f"the log names {folders[0]}, which does not exist here"


def _values(facts: Iterable[Fact], kind: str) -> list[str]:
    return [fact.value for fact in facts if fact.kind == kind]
