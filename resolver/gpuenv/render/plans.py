"""The text and the JSON documents of hosts, plans, errors and checks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import GpuEnvError, HostMismatchError, NoSolutionError
from ..model import (
    Check,
    EnvironmentChanges,
    Gpu,
    Host,
    PackageChange,
    Plan,
    Rejection,
    show_pair,
)
from ..serialize import to_plain
from .refusals import explanation_json, explanation_lines
from .values import (
    choice_text,
    download_bytes,
    download_text,
    fact_text,
    is_doubt,
    quantity_text,
    reason_text,
    reasons_json,
    size,
)

__all__ = [
    "changes_json",
    "changes_lines",
    "check_lines",
    "checks_json",
    "choice_text",
    "error_json",
    "error_lines",
    "host_lines",
    "is_doubt",
    "ok",
    "plan_json",
    "plan_lines",
    "reason_text",
    "reasons_json",
    "size",
    "solution_json",
    "solution_lines",
]

MARKS = {"pass": "ok  ", "fail": "FAIL", "unknown": "?   "}
SHOWN_ADDITIONS = 6
CHECK_FIELDS = ("name", "subject", "status", "evidence", "seconds")


# ---- hosts --------------------------------------------------------------------------------------


def host_lines(host: Host) -> list[str]:
    """Return one line for each fact about a host, and then its problems with their hints."""
    lines = [_gpu_line(gpu) for gpu in host.gpus]
    if not host.gpus:
        lines.append("GPU      none")
    lines += [_driver_line(host), _platform_line(host), _python_line(host)]
    for problem in host.problems:
        lines.append(f"! {problem.code}: {problem.detail}")
        if problem.hint:
            lines.append(f"  {problem.hint}")
    return lines


def _gpu_line(gpu: Gpu) -> str:
    name = "GPU"
    if gpu.index is not None:
        name = f"GPU {gpu.index}"
    line = f"{name:<8} {gpu.name}, "
    if gpu.compute_capability is None:
        line += "unknown compute capability"
    else:
        line += f"compute capability {show_pair(gpu.compute_capability)}"
    if gpu.memory_total:
        line += f", {size(gpu.memory_total)}"
        if gpu.memory_free is not None:
            line += f" ({size(gpu.memory_free)} free)"
    if gpu.mig:
        line += ", MIG"
    return line


def _driver_line(host: Host) -> str:
    driver = host.driver
    if not driver:
        driver = "none"
        if host.gpus:
            driver = "unknown"
    line = f"driver   {driver}"
    if host.driver_cuda:
        line += f" (CUDA {show_pair(host.driver_cuda)})"
    return line


def _platform_line(host: Host) -> str:
    parts = [f"platform {host.platform}"]
    if host.glibc:
        parts.append(f"glibc {show_pair(host.glibc)}")
    if host.virtualization:
        parts.append(host.virtualization)
    return ", ".join(parts)


def _python_line(host: Host) -> str:
    python = host.python
    line = f"Python   {python.full_version or show_pair(python.version)}"
    if python.free_threaded:
        line += " free-threaded"
    if python.executable:
        line += f" at {python.executable}"
    return line


# ---- plans --------------------------------------------------------------------------------------


def plan_lines(plan: Plan, path: str) -> list[str]:
    """Return what was chosen, what it needs, what was passed over, and where the lock is."""
    lines = [choice_text(choice) for choice in plan.choices]
    lines += _older_than_newest(plan)
    if plan.needs.driver is not None:
        lines.append(_driver_need_line(plan.needs.driver, plan.host.driver))
    lines += [f"warning: {reason_text(reason)}" for reason in plan.warnings]
    skipped = [one for one in plan.skipped if not _is_only_later(one)]
    if skipped:
        lines.append("passed over:")
        lines += [f"  {line}" for line in skipped_lines(skipped)]
    count = quantity_text(len(plan.pins), "package")
    lines.append(f"wrote {path}: {count}, {download_text(plan)}")
    return lines


def _is_only_later(rejection: Rejection) -> bool:
    """Return whether a variant suits the host, and only comes later in the order."""
    return all(reason.code == "variant-order" for reason in rejection.reasons)


def _older_than_newest(plan: Plan) -> list[str]:
    """Return the packages of which better releases were passed over, except frameworks."""
    if plan.request.conda is not None:
        return []  # frameworks have other names there
    passed_over = {rejection.name for rejection in plan.skipped}
    wheels = [pin.wheel for pin in plan.pins if pin.wheel.name in passed_over]
    frameworks = {choice.framework for choice in plan.choices}
    labels = {variant.name: f" ({variant.label})" for variant in plan.variants}
    return [
        f"{wheel.name} {wheel.version}{labels.get(wheel.name, '')}"
        for wheel in wheels
        if wheel.name not in frameworks
    ]


def _driver_need_line(need: str, driver: str | None) -> str:
    if driver:
        return f"needs driver >= {need}; this host has {driver}"
    return f"needs driver >= {need}; the driver of this host is unknown"


def solution_lines(plan: Plan, paths: Sequence[str]) -> list[str]:
    """Return the lines of a plan, and then those of the wheels beside its conda packages.

    Args:
        paths: the lock files of both.
    """
    lines = plan_lines(plan, paths[0])
    if plan.wheels is not None:
        lines += plan_lines(plan.wheels, paths[1])
    return lines


def solution_json(plan: Plan, paths: Sequence[str]) -> dict[str, Any]:
    """Return the document of `solve --json`; "pip" is the document of the wheels.

    Args:
        paths: the lock files; () without a file.
    """
    path = None
    if paths:
        path = paths[0]
    document = plan_json(plan, path)
    if plan.wheels is not None:
        document["pip"] = plan_json(plan.wheels, paths[1])
    return document


def skipped_lines(skipped: Sequence[Rejection], most: int = 4) -> list[str]:
    """Return a line for each build that was passed over, for at most `most` of them."""
    lines = [_skipped_line(rejection) for rejection in skipped[:most]]
    if len(skipped) > most:
        lines.append(f"and {len(skipped) - most} more (--json lists all)")
    return lines


def _skipped_line(rejection: Rejection) -> str:
    release = f"{rejection.name} {rejection.version}"
    facts = []
    for reason in rejection.reasons:
        if reason.subject == release:
            facts.append(fact_text(reason))
        else:
            facts.append(reason_text(reason))
    return f"{release}: {'; '.join(facts)}"


def plan_json(plan: Plan, path: str | None) -> dict[str, Any]:
    """Return the document of `solve --json` for one lock file."""
    frameworks = {}
    for choice in plan.choices:
        cuda = None
        if choice.cuda is not None:
            cuda = show_pair(choice.cuda)
        frameworks[choice.framework] = {
            "version": choice.version,
            "cuda": cuda,
            "cudnn": choice.cudnn,
            "variant": choice.variant,
            "evidence": choice.evidence,
        }
    skipped = []
    for rejection in plan.skipped:
        reasons = reasons_json(rejection.reasons)
        skipped.append({"name": rejection.name, "version": rejection.version, "reasons": reasons})
    return {
        "lock": path,
        "host": to_plain(plan.host),
        "frameworks": frameworks,
        "packages": len(plan.pins),
        "download_bytes": download_bytes(plan),
        "needs": to_plain(plan.needs),
        "warnings": to_plain(plan.warnings),
        "skipped": skipped,
    }


# ---- changes of an environment ------------------------------------------------------------------


def changes_lines(changes: EnvironmentChanges) -> list[str]:
    """Return how many packages an installation adds, changes and removes, and which."""
    counts = f"{len(changes.add)} to add, {len(changes.change)} to change"
    lines = [f"{changes.target}: {counts}, {len(changes.remove)} to remove"]
    added = [_with_kind(change, change.after) for change in changes.add[:SHOWN_ADDITIONS]]
    if len(changes.add) > SHOWN_ADDITIONS:
        added.append(f"and {len(changes.add) - SHOWN_ADDITIONS} more")
    if added:
        lines.append(f"  add     {', '.join(added)}")
    lines += map(_change_line, changes.change)
    lines += [f"  remove  {_with_kind(change, change.before)}" for change in changes.remove]
    lines += [f"  again   {_with_kind(change, change.before)}" for change in changes.again]
    return lines


def changes_json(changes: EnvironmentChanges) -> dict[str, Any]:
    """Return the document of `sync --dry-run --json`."""
    document: dict[str, Any] = {"target": changes.target}
    for kind in ("add", "change", "again", "remove"):
        document[kind] = to_plain(getattr(changes, kind))
    return document


def _with_kind(change: PackageChange, version: str) -> str:
    text = f"{change.name} {version}"
    if change.wheel:
        text += " (wheel)"
    return text


def _change_line(change: PackageChange) -> str:
    after = change.after
    if after == change.before:
        after = "another file of this build"
    return f"  change  {_with_kind(change, change.before)} -> {after}"


# ---- errors -------------------------------------------------------------------------------------


def error_lines(error: GpuEnvError) -> list[str]:
    """Return the message with its hint, and the reasons of an error that has some."""
    line = f"gpuenv: {error.message}"
    if error.hint:
        line += f"; {error.hint}"
    lines = [line]
    if isinstance(error, NoSolutionError):
        lines += explanation_lines(error.explanation)
    elif isinstance(error, HostMismatchError):
        lines += [f"  {reason_text(reason)}" for reason in error.reasons]
    return lines


def error_json(error: GpuEnvError) -> dict[str, Any]:
    """Return the document of a failure under --json: the error and the reasons that it has."""
    fields = {"code": error.code, "message": error.message, "hint": error.hint}
    document: dict[str, Any] = {"error": fields}
    if isinstance(error, NoSolutionError):
        document |= explanation_json(error.explanation)
    elif isinstance(error, HostMismatchError):
        document["reasons"] = reasons_json(error.reasons)
    return document


# ---- checks -------------------------------------------------------------------------------------


def check_lines(checks: Sequence[Check], *, hint: bool = True) -> list[str]:
    """Return a line for each check with its evidence, and then the totals.

    Args:
        hint: say what to do if something is not verified.
    """
    names = [f"{check.name} {check.subject}".strip() for check in checks]
    width = max(map(len, names), default=0)
    lines = []
    for check, name in zip(checks, names, strict=True):
        first, *rest = check.evidence.split(os.linesep)
        lines.append(f"{MARKS[check.status]} {name:<{width}} {first}".rstrip())
        lines += [f"{'':{width + 5}} {line}" for line in rest]
    verdict = "NOT verified"
    if ok(checks):
        verdict = "verified"
    counts = _counts(checks)
    totals = f"{counts['pass']} passed, {counts['fail']} failed, {counts['unknown']} unknown"
    line = f"{verdict}: {totals}"
    if hint and not ok(checks):
        line += "; gpuenv doctor suggests a fix"
    return [*lines, line]


def _counts(checks: Sequence[Check]) -> Mapping[str, int]:
    counts = dict.fromkeys(MARKS, 0)
    for check in checks:
        counts[check.status] += 1
    return counts


def ok(checks: Sequence[Check]) -> bool:
    """Return whether there are checks, none failed, and every visible GPU was proved to work.

    An unknown result is neither proof nor failure. But a device that is full or busy shows nothing
    about the environment, so that an unknown result of a device is not enough.
    """
    for check in checks:
        unproved_device = check.name == "device" and check.subject and check.status == "unknown"
        if check.status == "fail" or unproved_device:
            return False
    return bool(checks)


def checks_json(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the document of `verify --json`."""
    return {"ok": ok(checks), "checks": list(map(_check_json, checks))}


def _check_json(check: Check) -> dict[str, object]:
    return {field: getattr(check, field) for field in CHECK_FIELDS}
