"""Values to text: the only place that writes sentences. JSON shapes are those of the command-line contract."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..errors import GpuEnvError, HostMismatchError, NoSolutionError
from ..model import Check, Host, Plan, Rejection, show_pair
from ..serialize import to_plain
from .values import (
    choice_text,
    download_bytes,
    fact_text,
    is_doubt,
    reason_text,
    reasons_json,
    size,
)

__all__ = [
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


# ---- hosts --------------------------------------------------------------------------------------------------------


def host_lines(host: Host) -> list[str]:
    """What is known of a host, a fact a line, then its problems."""
    lines = []
    for gpu in host.gpus:
        known = "unknown compute capability"
        if gpu.compute_capability is not None:
            known = f"compute capability {show_pair(gpu.compute_capability)}"
        memory = f", {size(gpu.memory_total)}" if gpu.memory_total else ""
        free = f" ({size(gpu.memory_free)} free)" if gpu.memory_free is not None and memory else ""
        number = f"GPU {gpu.index}" if gpu.index is not None else "GPU"
        lines.append(f"{number:<8} {gpu.name}, {known}{memory}{free}{', MIG' if gpu.mig else ''}")
    if not host.gpus:
        lines.append("GPU      none")
    cuda = f" (CUDA {show_pair(host.driver_cuda)})" if host.driver_cuda else ""
    lines.append(f"driver   {host.driver or ('unknown' if host.gpus else 'none')}{cuda}")
    where = f", {host.virtualization}" if host.virtualization else ""
    glibc = f", glibc {show_pair(host.glibc)}" if host.glibc else ""
    lines.append(f"platform {host.platform}{glibc}{where}")
    python = host.python
    version = python.full_version or show_pair(python.version)
    path = f" at {python.executable}" if python.executable else ""
    lines.append(f"Python   {version}{' free-threaded' if python.free_threaded else ''}{path}")
    for problem in host.problems:
        lines.append(f"! {problem.code}: {problem.detail}")
        if problem.hint:
            lines.append(f"  {problem.hint}")
    return lines


# ---- plans --------------------------------------------------------------------------------------------------------


def plan_lines(plan: Plan, path: str) -> list[str]:
    """What was chosen, what it needs, what was passed over, where the lock is."""
    lines = [choice_text(choice) for choice in plan.choices]
    needs = plan.needs
    if needs.driver is not None:
        have = f"; this host has {plan.host.driver}" if plan.host.driver else "; the host's driver is not known"
        lines.append(f"needs driver >= {needs.driver}{have}")
    lines += [f"warning: {reason_text(reason)}" for reason in plan.warnings]
    if plan.skipped:
        lines.append("passed over:")
        lines += [f"  {line}" for line in skipped_lines(plan.skipped)]
    unknown = sum(pin.wheel.size is None for pin in plan.pins)
    more = f" and {unknown} of unknown size" if unknown else ""
    lines.append(f"wrote {path}: {len(plan.pins)} packages, {size(download_bytes(plan))}{more}")
    return lines


def solution_lines(plan: Plan, paths: Sequence[str]) -> list[str]:
    """The lines of a plan, then those of the wheels beside its conda packages; `paths` are their lock files."""
    lines = plan_lines(plan, paths[0])
    if plan.wheels is not None:
        lines += plan_lines(plan.wheels, paths[1])
    return lines


def solution_json(plan: Plan, paths: Sequence[str]) -> dict[str, Any]:
    """The document of `solve --json`; "pip" is that of the wheels. `paths` is () without a file."""
    document = plan_json(plan, paths[0] if paths else None)
    if plan.wheels is not None:
        document["pip"] = plan_json(plan.wheels, paths[1])
    return document


def skipped_lines(skipped: Sequence[Rejection], most: int = 4) -> list[str]:
    """A line for each build, at most `most` of them."""
    lines = []
    for item in skipped[:most]:
        who = f"{item.name} {item.version}"
        facts = [fact_text(reason) if reason.subject == who else reason_text(reason) for reason in item.reasons]
        lines.append(f"{who}: {'; '.join(facts)}")
    if len(skipped) > most:
        lines.append(f"and {len(skipped) - most} more (--json names all)")
    return lines


def plan_json(plan: Plan, path: str | None) -> dict[str, Any]:
    """The document of `solve --json`."""
    frameworks = {
        choice.framework: {
            "version": choice.version,
            "cuda": None if choice.cuda is None else show_pair(choice.cuda),
            "cudnn": choice.cudnn,
            "variant": choice.variant,
            "evidence": choice.evidence,
        }
        for choice in plan.choices
    }
    return {
        "lock": path,
        "host": to_plain(plan.host),
        "frameworks": frameworks,
        "packages": len(plan.pins),
        "download_bytes": download_bytes(plan),
        "needs": to_plain(plan.needs),
        "warnings": [to_plain(reason) for reason in plan.warnings],
        "skipped": [
            {"name": item.name, "version": item.version, "reasons": reasons_json(item.reasons)} for item in plan.skipped
        ],
    }


# ---- refusals -----------------------------------------------------------------------------------------------------


def error_lines(error: GpuEnvError) -> list[str]:
    """One line, its hint included, and the reasons where the error carries some."""
    lines = [f"gpuenv: {error.message}" + (f"; {error.hint}" if error.hint else "")]
    if isinstance(error, NoSolutionError):
        from .refusals import explanation_lines

        lines += explanation_lines(error.explanation)
    elif isinstance(error, HostMismatchError):
        lines += [f"  {reason_text(reason)}" for reason in error.reasons]
    return lines


def error_json(error: GpuEnvError) -> dict[str, Any]:
    """A failure under --json: code, message, hint, and the explanation or reasons where there are some."""
    document: dict[str, Any] = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    if isinstance(error, NoSolutionError):
        from .refusals import explanation_json

        document |= explanation_json(error.explanation)
    elif isinstance(error, HostMismatchError):
        document["reasons"] = reasons_json(error.reasons)
    return document


# ---- checks -------------------------------------------------------------------------------------------------------


def check_lines(checks: Sequence[Check]) -> list[str]:
    """A line a check, evidence behind it; then the sum."""
    width = max((len(f"{check.name} {check.subject}") for check in checks), default=0)
    lines = []
    for check in checks:
        who = f"{check.name} {check.subject}".strip()
        head, *rest = check.evidence.split(os.linesep)
        lines.append(f"{MARKS[check.status]} {who:<{width}} {head}".rstrip())
        lines += [f"{'':{width + 5}} {line}" for line in rest]
    counts = {status: sum(check.status == status for check in checks) for status in MARKS}
    verdict = "verified" if ok(checks) else "NOT verified"
    lines.append(f"{verdict}: {counts['pass']} passed, {counts['fail']} failed, {counts['unknown']} unknown")
    return lines


def ok(checks: Sequence[Check]) -> bool:
    """True if there are checks, none failed, and each GPU that is there was proved.

    An unknown is no proof and no failure; but on a device that is full or busy nothing of the environment was seen.
    """
    unproved = any(one.name == "device" and one.subject and one.status == "unknown" for one in checks)
    return bool(checks) and not unproved and all(check.status != "fail" for check in checks)


def checks_json(checks: Sequence[Check]) -> dict[str, Any]:
    """The document of `verify --json`."""
    fields = ("name", "subject", "status", "evidence", "seconds")
    return {"ok": ok(checks), "checks": [{field: getattr(check, field) for field in fields} for check in checks]}
