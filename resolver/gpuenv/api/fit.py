"""Whether a lock, or pinned packages, fit a host."""

from __future__ import annotations

from collections.abc import Iterable

from ..compat import evaluate
from ..errors import HostMismatchError, InputError, Reason
from ..install import conda as conda_installer
from ..lock import conda_formats
from ..lock.host_fit import fit, variant_fit
from ..model import Check, Host, Lock
from .data import carriers, compatibility_data
from .hosts import with_python_of

# Reasons of `host_fit.fit` that can be checked without looking at the GPU and the driver.
WITHOUT_DEVICE = ("platform", "python", "glibc", "glibc-unknown")


def reasons_against(pins: Iterable[tuple[str, str]], host: Host) -> tuple[Reason, ...]:
    """Return what the compatibility rules say against pinned packages on a host. Nothing is solved.

    Args:
        pins: (name, version) pairs of wheels, whoever pinned them.
        host: the host.
    """
    return evaluate.pin_reasons(pins, host, compatibility_data())


def rule_reasons(lock: Lock, host: Host) -> tuple[Reason, ...]:
    """Return what the rules say against the conda packages of a lock, by any tool, on a host."""
    return conda_installer.reasons(lock, host, compatibility_data(), carriers())


def lock_reasons(lock: Lock, host: Host) -> tuple[Reason, ...]:
    """Return what a host lacks that a lock needs; () if it fits.

    Of conda packages also return what the rules say against them.
    """
    if not lock.conda:
        reasons = fit(lock, host)
        if not lock.variants or any(reason.code == "no-gpu" for reason in reasons):
            return reasons
        return reasons + variant_fit(lock, host, compatibility_data())
    host = with_python_of(host, lock)
    reasons = fit(lock, host)
    if not any(reason.code in ("platform", "no-gpu") for reason in reasons):
        reasons += rule_reasons(lock, host)
    if lock.wheels is not None:
        reasons += fit(lock.wheels, host)
    return tuple(dict.fromkeys(reasons))


def require_fit(lock: Lock, host: Host) -> None:
    """Check that a lock can be installed for a host.

    Raises:
        HostMismatchError: the host lacks what the lock needs, or a rule refuses it.
        InputError: the lock beside it is missing: of its wheels, or of its conda packages.
    """
    conda_lock = None if lock.conda else conda_formats.conda_lock_of(lock)
    if conda_lock is not None:
        raise InputError(
            f"the lock has the wheels that belong to {conda_lock}",
            hint=f"sync both: gpuenv sync {conda_lock}",
        )
    reasons = lock_reasons(lock, host)
    if reasons:
        raise HostMismatchError("the lock does not fit this host; nothing was installed", reasons)
    if lock.conda and lock.wheels is None and conda_formats.wheel_lock_of(lock) is not None:
        raise InputError("the lock has pip packages beside it: give their lock, too")


def host_checks(reasons: Iterable[Reason], *, device: bool) -> list[Check]:
    """Return the checks that the host as it is now fulfills the needs of a lock.

    Args:
        reasons: those of `lock_reasons`.
        device: False leaves out what concerns the GPU and the driver.
    """
    checks = []
    for reason in dict.fromkeys(reasons):
        if device or reason.code in WITHOUT_DEVICE:
            status = "unknown" if reason.code.endswith("-unknown") else "fail"
            evidence = f"needs {reason.need}; have {reason.have}"
            checks.append(Check(name="host", subject=reason.code, status=status, evidence=evidence))
    if checks:
        return checks
    evidence = "this host fulfils what the lock needs"
    if not device:
        evidence += ", its GPU and driver not asked"
    return [Check(name="host", subject="", status="pass", evidence=evidence)]
