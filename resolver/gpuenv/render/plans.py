"""The text and the JSON documents of hosts, plans and errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

from ..errors import GpuEnvError, HostMismatchError, NoSolutionError, Reason
from ..model import (
    EnvironmentChanges,
    Gpu,
    Host,
    PackageChange,
    Plan,
    Rejection,
    Wheel,
    show_pair,
)
from ..requirements.versions import normalize_name
from ..serialize import to_plain
from .refusals import explanation_json, explanation_lines, host_text, reason_lines
from .text import Line, table_lines
from .values import (
    choice_text,
    download_bytes,
    download_text,
    evidence_text,
    is_doubt,
    quantity_text,
    reason_text,
    reasons_json,
    size,
    update_offer,
    warning_texts,
)

__all__ = [
    "age_lines",
    "changes_json",
    "changes_lines",
    "choice_text",
    "error_json",
    "error_lines",
    "host_lines",
    "is_doubt",
    "plan_json",
    "plan_lines",
    "reason_text",
    "reasons_json",
    "size",
    "solution_json",
    "solution_lines",
    "why_chosen",
]

SHOWN_ADDITIONS = 6
SHOWN_REQUIREMENTS = 8
EVERY_LINE = 10_000


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


def plan_lines(plan: Plan, path: str | None, *, verbose: bool = False) -> list[str]:
    """Return where the lock is, what was chosen and why, and what the host needs.

    Args:
        plan: the plan.
        path: the lock file; None if none was written.
        verbose: whether to list every release that was passed over, with all reasons.
    """
    lines: list[str] = [_headline(plan, path), *_chosen_lines(plan)]
    if plan.needs.driver is not None:
        lines.append(_driver_need_line(plan.needs.driver, plan.host.driver))
    lines += map(_warning_line, warning_texts(plan.warnings))
    skipped = _passed_over(plan)
    if skipped and verbose:
        lines += ["passed over:", *skipped_lines(skipped)]
    elif skipped:
        builds = quantity_text(len(skipped), "build")
        lines.append(f"passed over: {builds} (-v says why)")
    passed_over = [reason for rejection in plan.skipped for reason in rejection.reasons]
    return lines + update_offer([*plan.warnings, *passed_over])


def _passed_over(plan: Plan) -> list[Rejection]:
    """Return the builds that do not suit the host, or that something excludes."""
    return [rejection for rejection in plan.skipped if not _is_only_later(rejection)]


def _is_only_later(rejection: Rejection) -> bool:
    """Return whether a variant suits the host, and only comes later in the order."""
    return all(reason.code == "variant-order" for reason in rejection.reasons)


def _warning_line(text: str) -> Line:
    return Line(f"warning: {text}", "doubt", marked=len("warning:"))


def _headline(plan: Plan, path: str | None) -> Line:
    result = "solved"
    if path is not None:
        result = f"wrote {path}"
    count = quantity_text(len(plan.pins), "package")
    text = f"{result}: {count}, {download_text(plan)}"
    return Line(f"{text}, for {host_text(plan.host)}", "headline", marked=len(result))


def _chosen_lines(plan: Plan) -> list[str]:
    """Return a table of the frameworks, and of what else the user named or got an older one of."""
    rows = [("chosen", "build", "CUDA", "cuDNN", "why")]
    for choice in plan.choices:
        cuda = "-"
        if choice.cuda is not None:
            cuda = show_pair(choice.cuda)
        release = f"{choice.framework} {choice.version}"
        why = why_chosen(plan, choice.framework)
        if choice.evidence != "scanned":
            why += f"; {evidence_text(choice)}"
        rows.append((release, choice.variant, cuda, choice.cudnn or "-", why))
    named = _named_wheels(plan)
    rows += [_requirement_row(plan, wheel) for wheel in named[:SHOWN_REQUIREMENTS]]
    if len(rows) == 1:
        return []
    lines = table_lines(rows)
    if len(named) > SHOWN_REQUIREMENTS:
        lines.append(f"  and {len(named) - SHOWN_REQUIREMENTS} more that were asked for")
    return lines


def _requirement_row(plan: Plan, wheel: Wheel) -> tuple[str, str, str, str, str]:
    labels = {variant.name: variant.label for variant in plan.variants}
    build = labels.get(wheel.name, "-")
    return f"{wheel.name} {wheel.version}", build, "-", "-", why_chosen(plan, wheel.name)


def _named_wheels(plan: Plan) -> list[Wheel]:
    """Return what the user named, and what better releases were passed over of."""
    if plan.request.conda is not None:
        return []  # frameworks have other names there
    frameworks = {choice.framework for choice in plan.choices}
    names = {_package_name(text) for text in plan.request.requirements}
    names |= {rejection.name for rejection in plan.skipped}
    wheels = [pin.wheel for pin in plan.pins]
    return [wheel for wheel in wheels if wheel.name in names - frameworks]


def _package_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
    return normalize_name(match[0]) if match else ""


def why_chosen(plan: Plan, name: str) -> str:
    """Return why no better release was chosen: the first reason against the first of them."""
    in_conda = plan.request.conda is not None  # where torch is pytorch
    for rejection in _passed_over(plan):
        is_same = rejection.name == name or (in_conda and name in rejection.name)
        if is_same and rejection.reasons and not rejection.is_later:
            reason = rejection.reasons[0]
            version = reason.replace(subject=reason.subject.removeprefix(f"{name} "))
            return reason_text(version, brief=reason.code != "conflict")
    return "the newest that is allowed"


def _driver_need_line(need: str, driver: str | None) -> str:
    if driver:
        return f"needs driver >= {need}; this host has {driver}"
    return f"needs driver >= {need}; the driver of this host is unknown"


def solution_lines(
    plan: Plan, paths: Sequence[str], *, verbose: bool = False, next_step: str = ""
) -> list[str]:
    """Return the lines of a plan, then those of the wheels beside its conda packages.

    Args:
        plan: the plan.
        paths: the lock files of both; () if none was written.
        verbose: as in `plan_lines`.
        next_step: what to type next.
    """
    path, *beside = (*paths, None, None)[:2]
    lines = plan_lines(plan, path, verbose=verbose)
    if plan.wheels is not None:
        lines += plan_lines(plan.wheels, beside[0], verbose=verbose)
    if next_step:
        lines.append(f"next: {next_step}")
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


def skipped_lines(skipped: Sequence[Rejection]) -> list[str]:
    """Return every reason against the builds that were passed over; equal ones are one line."""
    reasons: list[Reason] = []
    for rejection in skipped:
        reasons += rejection.reasons
    return reason_lines(reasons, EVERY_LINE)


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
    text = f"gpuenv: {error.message}"
    marked = len(text)
    if error.hint:
        text += f"; {error.hint}"
    lines: list[str] = [Line(text, "bad", marked=marked)]
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


def package_lines(package: tuple[str, int] | None) -> list[str]:
    """Return one line if the installed gpuenv-matrix cannot be read.

    Args:
        package: the version and the schema of a package that cannot be read, otherwise None.
    """
    if package is None:
        return []
    version, schema = package
    from ..compat.data import SCHEMA  # slow, and only this table needs it

    if schema > SCHEMA:
        text = f"needs a newer gpuenv (schema {schema}, this one reads {SCHEMA}): upgrade gpuenv"
    else:
        text = f"is for an older gpuenv (schema {schema}): upgrade gpuenv-matrix"
    return [f"gpuenv-matrix {version} is not used because it {text}"]


_OLD = 90  # days


def age_lines(dates: Iterable[str], today: date) -> list[str]:
    """Return one line if the compatibility data is old.

    Args:
        dates: the dates of the data; "" for none.
        today: the day of the command.
    """
    newest = max(date.fromisoformat(text[:10]) for text in dates if text)
    days = (today - newest).days
    if days <= _OLD:
        return []
    update = "`gpuenv matrix update` scans newer releases"
    return [f"the compatibility data is of {newest}, {days} days old: {update}"]
