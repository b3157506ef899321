"""The text and the JSON documents of hosts, plans and errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

from ..compat.data import SCHEMA
from ..errors import GpuEnvError, HostMismatchError, NoSolutionError, is_about_others
from ..model import Host, Plan, Wheel, quantity_text, show_pair
from ..requirements.versions import parse_requirement
from .refusals import EVERY_LINE, explanation_json, explanation_lines, host_text, reason_lines
from .text import Line, table_lines
from .values import (
    download_bytes,
    download_text,
    evidence_text,
    index_lines,
    reason_text,
    reasons_json,
    rejections_json,
    size,
    update_offer,
    warning_texts,
)

SHOWN_REQUIREMENTS = 8


# ---- hosts --------------------------------------------------------------------------------------


def host_lines(host: Host) -> list[str]:
    """Return one line for each fact about a host, and then its problems with their hints."""
    lines = []
    for gpu in host.gpus:
        capability = f"compute capability {show_pair(gpu.compute_capability)}"
        if gpu.compute_capability is None:
            capability = "unknown compute capability"
        name = "GPU" if gpu.index is None else f"GPU {gpu.index}"
        line = f"{name:<8} {gpu.name}, {capability}"
        if gpu.memory_total:
            line += f", {size(gpu.memory_total)}"
            if gpu.memory_free is not None:
                line += f" ({size(gpu.memory_free)} free)"
        lines.append(line + ", MIG" * gpu.mig)
    if not host.gpus:
        lines.append("GPU      none")
    driver = f"driver   {host.driver or ('unknown' if host.gpus else 'none')}"
    if host.driver_cuda:
        driver += f" (CUDA {show_pair(host.driver_cuda)})"
    platform = f"platform {host.platform}"
    if host.glibc:
        platform += f", glibc {show_pair(host.glibc)}"
    if host.virtualization:
        platform += f", {host.virtualization}"
    python = f"Python   {host.python.full_version or show_pair(host.python.version)}"
    if host.python.free_threaded:
        python += " free-threaded"
    if host.python.executable:
        python += f" at {host.python.executable}"
    lines += [driver, platform, python]
    variables = [source for _, source in host.sources if source.startswith("CONDA_OVERRIDE_")]
    lines += [f"conda    {name} replaces what was detected" for name in variables]
    for problem in host.problems:
        lines.append(f"! {problem.code}: {problem.detail}")
        if problem.hint:
            lines.append(f"  {problem.hint}")
    return lines


# ---- plans --------------------------------------------------------------------------------------


def plan_lines(plan: Plan, path: str | None, *, verbose: bool = False) -> list[str]:
    """Return where the lock is, what was chosen and why, and what the host needs.

    Args:
        plan: the plan.
        path: the lock file; None if none was written.
        verbose: whether to list every release that was passed over, with all reasons.
    """
    result = "solved" if path is None else f"wrote {path}"
    lines: list[str] = [
        Line(f"{result}: {summary_text(plan)}", "headline", marked=len(result)),
        *_chosen_lines(plan),
    ]
    if plan.needs.driver is not None:
        driver = "the driver of this host is unknown"
        if plan.host.driver:
            driver = f"this host has {plan.host.driver}"
        lines.append(f"needs driver >= {plan.needs.driver}; {driver}")
    wheels = [pin.wheel for pin in plan.pins if pin.wheel.is_sdist]
    if wheels:
        built = ", ".join(f"{wheel.name} {wheel.version}" for wheel in wheels)
        lines.append(f"sync builds from source: {built}")
    lines += [
        Line(f"warning: {text}", "doubt", marked=len("warning:"))
        for text in warning_texts(plan.warnings)
    ]
    reasons = [reason for rejection in plan.skipped for reason in rejection.reasons]
    # The newest build of each package that would run here, on an index that was not reached.
    unreached: dict[str, str] = {}
    for rejection in plan.skipped:
        for reason in rejection.reasons:
            if reason.code == "no-offline-file":
                unreached.setdefault(rejection.name, f"newer: {reason.subject}: {reason.have}")
    lines += unreached.values()
    if plan.skipped and verbose:
        lines += ["passed over:", *reason_lines(reasons, EVERY_LINE)]
    elif plan.skipped:
        lines.append(f"passed over: {quantity_text(len(plan.skipped), 'build')} (-v says why)")
    return [*lines, *update_offer([*plan.warnings, *reasons]), *index_lines(plan.index_date)]


def summary_text(plan: Plan) -> str:
    """Return how many packages a plan has, how large they are, and for which host they are."""
    count = quantity_text(len(plan.pins), "package")
    return f"{count}, {download_text(plan)}, for {host_text(plan.host)}"


def _chosen_lines(plan: Plan) -> list[str]:
    """Return a table of the frameworks, and of what else the user named or got an older one of."""
    rows = [("chosen", "build", "CUDA", "cuDNN", "why")]
    for choice in plan.choices:
        cuda = "" if choice.cuda is None else show_pair(choice.cuda)
        why = why_chosen(plan, choice.framework)
        if choice.evidence != "scanned" and choice.cuda is not None:
            why += f"; {evidence_text(choice)}"
        release = f"{choice.framework} {choice.version}"
        rows.append((release, choice.variant, cuda, choice.cudnn or "", why))
    wheels: list[Wheel] = []
    if plan.request.conda is None:  # frameworks have other names there
        names = {rejection.name for rejection in plan.skipped}
        names |= {parse_requirement(text).name for text in plan.request.requirements}
        names -= {choice.framework for choice in plan.choices}
        wheels = [pin.wheel for pin in plan.pins if pin.wheel.name in names]
    labels = {variant.name: variant.label for variant in plan.variants}
    for wheel in wheels[:SHOWN_REQUIREMENTS]:
        why = why_chosen(plan, wheel.name)
        rows.append((f"{wheel.name} {wheel.version}", labels.get(wheel.name, ""), "", "", why))
    lines = table_lines(rows) if rows[1:] else []
    if len(wheels) > SHOWN_REQUIREMENTS:
        lines.append(f"  and {len(wheels) - SHOWN_REQUIREMENTS} more that were asked for")
    return lines


def why_chosen(plan: Plan, name: str) -> str:
    """Return why no better release was chosen: the first reason against the best one.

    One that is known to be bad counts only if no other one was passed over.
    """
    in_conda = plan.request.conda is not None  # where torch is pytorch
    reasons = [
        rejection.reasons[0]
        for rejection in plan.skipped
        if rejection.reasons and (rejection.name == name or (in_conda and name in rejection.name))
    ]
    if not reasons:
        return "the newest that is allowed"
    reason = min(reasons, key=lambda reason: reason.code in ("known-avoid", "known-broken"))
    version = reason.replace(subject=reason.subject.removeprefix(f"{name} "))
    if reason.code == "no-offline-file":
        return f"{version.subject} is not in the offline data"
    return reason_text(version, brief=not is_about_others(reason))


def solution_lines(plan: Plan, paths: Sequence[str], *, verbose: bool) -> list[str]:
    """Return the lines of a plan, then those of the wheels beside its conda packages.

    Args:
        plan: the plan.
        paths: the lock files of both; () if none was written.
        verbose: as in `plan_lines`.
    """
    path, path_beside, *_ = (*paths, None, None)
    lines = plan_lines(plan, path, verbose=verbose)
    if plan.wheels is not None:
        lines += plan_lines(plan.wheels, path_beside, verbose=verbose)
    return lines


def solution_json(plan: Plan, paths: Sequence[str]) -> dict[str, Any]:
    """Return the document of `solve --json`; "pip" is the document of the wheels.

    Args:
        paths: the lock files; () without a file.
    """
    document = {
        "lock": paths[0] if paths else None,
        "host": plan.host,
        "frameworks": {
            choice.framework: {
                "version": choice.version,
                "cuda": None if choice.cuda is None else show_pair(choice.cuda),
                "cudnn": choice.cudnn,
                "variant": choice.variant,
                "evidence": choice.evidence,
            }
            for choice in plan.choices
        },
        "packages": len(plan.pins),
        "download_bytes": download_bytes(plan),
        "needs": plan.needs,
        "warnings": plan.warnings,
        "skipped": rejections_json(plan.skipped),
    }
    if plan.wheels is not None:
        document["pip"] = solution_json(plan.wheels, paths[1:])
    return document


# ---- errors -------------------------------------------------------------------------------------


def error_lines(error: GpuEnvError, *, verbose: bool = False) -> list[str]:
    """Return the message with its hint, and the reasons of an error that has some."""
    text = f"gpuenv: {error.message}"
    marked = len(text)
    if error.hint:
        text += f"; {error.hint}"
    lines: list[str] = [Line(text, "bad", marked=marked)]
    if isinstance(error, NoSolutionError):
        lines += explanation_lines(error.explanation, verbose=verbose)
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
