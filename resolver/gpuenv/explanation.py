"""Values to text: the only place that writes sentences. JSON shapes are those of the command-line contract."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .errors import Explanation, GpuEnvError, HostMismatchError, NoSolutionError, Reason
from .model import Check, Choice, Host, Lock, Plan, Rejection, show_pair
from .plain import to_plain

if TYPE_CHECKING:
    from .matrix.audit import Audit
    from .matrix.catalog import Entry, Release, Variant
    from .project import Comparison, Profile, Project, State
    from .project.beginning import Beginning

MARKS = {"pass": "ok  ", "fail": "FAIL", "unknown": "?   "}


def size(count: int | None) -> str:
    """2100000000 -> "2.1 GB"; None -> "unknown"."""
    if count is None:
        return "unknown"
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit in ("B", "kB") else f"{value:.1f} {unit}"


def download_bytes(plan: Plan | Lock) -> int:
    """The sizes of all files that are known, added up."""
    return sum(pin.wheel.size or 0 for pin in plan.pins)


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


def choice_text(choice: Choice) -> str:
    """torch 2.15.0 (cu132, CUDA 13.2, cuDNN 9.26.0.51)."""
    parts = [choice.variant]
    if choice.cuda is not None:
        parts.append(f"CUDA {show_pair(choice.cuda)}")
    if choice.cudnn is not None and choice.cuda is not None:
        parts.append(f"cuDNN {choice.cudnn}")
    if choice.evidence != "scanned" and choice.cuda is not None:
        parts.append("architectures as documented")
    return f"{choice.framework} {choice.version} ({', '.join(parts)})"


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


def fact_text(reason: Reason) -> str:
    """needs driver 580.65.06 or newer for CUDA 13.2; this host has driver 550.54.14."""
    return f"needs {reason.need}; have {reason.have}"


def reason_text(reason: Reason) -> str:
    """As fact_text, with the subject in front."""
    return f"{reason.subject} {fact_text(reason)}"


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


def reasons_json(reasons: Iterable[Reason]) -> list[dict[str, str]]:
    """[{"code", "subject", "need", "have", "source"}]."""
    fields = ("code", "subject", "need", "have", "source")
    return [{field: getattr(reason, field) for field in fields} for reason in reasons]


# ---- refusals -----------------------------------------------------------------------------------------------------


def error_lines(error: GpuEnvError) -> list[str]:
    """One line, its hint included, and the reasons where the error carries some."""
    lines = [f"gpuenv: {error.message}" + (f"; {error.hint}" if error.hint else "")]
    if isinstance(error, NoSolutionError):
        lines += explanation_lines(error.explanation)
    elif isinstance(error, HostMismatchError):
        lines += [f"  {reason_text(reason)}" for reason in error.reasons]
    return lines


def explanation_lines(explanation: Explanation, most: int = 12) -> list[str]:
    """The reasons, those that say the same of several builds on one line, then the changes that help."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for reason in explanation.reasons:
        need = reason.need
        groups.setdefault((reason.code, need, reason.have), []).append(reason.subject)
    lines = []
    for (_, need, have), subjects in list(groups.items())[:most]:
        names = list(dict.fromkeys(subjects))
        who = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others down to {names[-1]}"
        lines.append(f"  {who} needs {need}; have {have}")
    if len(groups) > most:
        lines.append(f"  and {len(groups) - most} more reasons (--json names all)")
    if explanation.changes:
        lines.append("what would help:")
        lines += [f"  {change.change}: gives {change.gives}" for change in explanation.changes]
    else:
        lines.append("no single change of the driver, Python or the version range was found to help")
    return lines


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """The document of `explain --json`, and of a refusal under --json."""
    return {
        "possible": False,
        "reasons": reasons_json(explanation.reasons),
        "smallest_changes": [{"change": change.change, "gives": change.gives} for change in explanation.changes],
    }


def error_json(error: GpuEnvError) -> dict[str, Any]:
    """A failure under --json: code, message, hint, and the explanation or reasons where there are some."""
    document: dict[str, Any] = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    if isinstance(error, NoSolutionError):
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
    """True if there are checks and none failed. An unknown is no proof, and no failure."""
    return bool(checks) and all(check.status != "fail" for check in checks)


def checks_json(checks: Sequence[Check]) -> dict[str, Any]:
    """The document of `verify --json`."""
    fields = ("name", "subject", "status", "evidence", "seconds")
    return {"ok": ok(checks), "checks": [{field: getattr(check, field) for field in fields} for check in checks]}


# ---- the compatibility data ---------------------------------------------------------------------------------------


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows of a table as lines, each column as wide as its widest cell; "-" for an empty one."""
    cells = [[cell or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in cells]


def entries_lines(entries: Sequence[Entry]) -> list[str]:
    """Frameworks with the variants of their newest release, then libraries; "-" where the platform has none."""
    lines: list[str] = []
    for kind in ("framework", "library"):
        rows = [[kind, "newest", "releases", "variants"]]
        for one in entries:
            if one.kind == kind:
                newest = one.releases[0] if one.releases else None
                names = " ".join(variant.variant for variant in newest.variants) if newest else ""
                rows.append([one.name, newest.version if newest else "", str(len(one.releases)), names])
        lines += [*([""] if lines else []), *columns(rows)]
    return lines


def entries_json(entries: Sequence[Entry], platform: str) -> dict[str, Any]:
    """The document of `matrix list --json`."""
    document: dict[str, Any] = {"platform": platform, "frameworks": [], "libraries": []}
    for one in entries:
        newest = one.releases[0] if one.releases else None
        row = {
            "name": one.name,
            "distributions": list(one.distributions),
            "releases": len(one.releases),
            "newest": newest.version if newest else None,
            "variants": [variant.variant for variant in newest.variants] if newest else [],
            "on_path": one.on_path,
        }
        document["frameworks" if one.kind == "framework" else "libraries"].append(row)
    return document


def entry_lines(entry: Entry, platform: str) -> list[str]:
    """A line a release, newest first; the facts are those of its first variant."""
    rows = [["release", "variants", "CUDA", "cuDNN", "SASS", "PTX", "evidence"]]
    for release in entry.releases:
        first = release.variants[0]
        names = " ".join(dict.fromkeys(one.variant for one in release.variants))
        facts = [first.cuda or "", first.cudnn or "", *_targets(first), first.code.evidence]
        rows.append([release.version, names, *facts])
    return [f"{entry.name} on {platform}", *(columns(rows) if entry.releases else ["no release is known"])]


def entry_json(entry: Entry, platform: str) -> dict[str, Any]:
    """The document of `matrix show NAME --json`: its releases, newest first, each as `release_json` has them."""
    versions = [{"version": one.version, "variants": [*map(_variant_json, one.variants)]} for one in entry.releases]
    return {"name": entry.name, "platform": platform, "versions": versions}


def release_lines(name: str, release: Release, platform: str) -> list[str]:
    """A line a variant, then what is to be said of each: targets in few places, faults, the source."""
    rows = [["variant", "wheel", "CUDA", "cuDNN", "SASS", "PTX", "Python", "evidence"]]
    notes = []
    for one in release.variants:
        wheel = f"{one.distribution} {one.version}"
        python = one.requires_python or ""
        rows.append([one.variant, wheel, one.cuda or "", one.cudnn or "", *_targets(one), python, one.code.evidence])
        if one.code.some:
            notes.append(f"{one.variant} has in some libraries or few fat binaries only: {' '.join(one.code.some)}")
        if one.bad:
            severity, text, source = one.bad
            notes.append(f"{one.variant} is known to be bad ({severity}): {text} ({source})")
        notes.append(f"{one.variant} source: {one.code.source}")
    return [f"{name} {release.version} on {platform}", *columns(rows), *notes]


def release_json(name: str, release: Release) -> dict[str, Any]:
    """The document of `matrix show NAME VERSION --json`: targets without a suffix are numbers, others texts."""
    return {"name": name, "version": release.version, "variants": [*map(_variant_json, release.variants)]}


def _targets(variant: Variant) -> tuple[str, str]:
    """SASS and PTX as a table shows them: "none" is known to be empty."""
    lists = (variant.code.sass, variant.code.ptx)
    sass, ptx = ("unknown" if one is None else " ".join(one) or "none" for one in lists)
    return sass, ptx


def _variant_json(variant: Variant) -> dict[str, Any]:
    code, bad = variant.code, variant.bad
    return {
        "variant": variant.variant,
        "cuda": variant.cuda,
        "cudnn": variant.cudnn,
        "sass": _numbers(code.sass),
        "ptx": _numbers(code.ptx),
        "requires_python": variant.requires_python,
        "source": code.source,
        "distribution": variant.distribution,
        "version": variant.version,
        "platform": variant.platform,
        "index": variant.indexes[0],
        "indexes": list(variant.indexes),
        "evidence": code.evidence,
        "some": _numbers(code.some),
        "made_by": show_pair(code.made_by) if code.made_by else None,
        "known_bad": {"severity": bad[0], "text": bad[1], "source": bad[2]} if bad else None,
    }


def _numbers(targets: Sequence[str] | None) -> list[int | str] | None:
    return None if targets is None else [int(one) if one.isdigit() else one for one in targets]


def audit_ok(audit: Audit) -> bool:
    """True if no facts contradict one another and every row has a source. What is not known is no contradiction."""
    return not audit.contradictions and not audit.unsourced


def audit_lines(audit: Audit, most: int = 20) -> list[str]:
    """How much is known, then what is wrong, at most `most` of each kind."""
    lines = ["rows of device code: " + ", ".join(f"{count} {kind}" for kind, count in audit.counts)]
    if audit.records:
        total = sum(count for _, count in audit.records)
        lines.append(f"wheels scanned: {total} of {len(audit.records)} distributions")
        lines += [f"  {name} {count}" for name, count in audit.records]
    if audit.unlisted:
        lines.append(f"not in the index snapshot, so that nothing can be missed: {', '.join(audit.unlisted)}")
    kinds = (
        ("in scope and not scanned", audit.unscanned),
        ("carried by a build and not by its cuDNN", audit.narrowed),
        ("rows without a source", audit.unsourced),
        ("contradictions", audit.contradictions),
    )
    for title, found in kinds:
        lines.append(f"{title}: {len(found)}")
        lines += [f"  {one}" for one in found[:most]]
        if len(found) > most:
            lines.append(f"  and {len(found) - most} more (--json names all)")
    lines.append("the data agrees with itself" if audit_ok(audit) else "the data is NOT right")
    return lines


def audit_json(audit: Audit) -> dict[str, Any]:
    """The document of `matrix check --json`."""
    return {
        "ok": audit_ok(audit),
        "counts": dict(audit.counts),
        "records": dict(audit.records),
        "unscanned": list(audit.unscanned),
        "unlisted": list(audit.unlisted),
        "narrowed": list(audit.narrowed),
        "unsourced": list(audit.unsourced),
        "contradictions": list(audit.contradictions),
    }


# ---- locks of a project -------------------------------------------------------------------------------------------


def lock_lines(path: str, old: Lock | None, new: Lock, changes: Comparison, warnings: Sequence[Reason]) -> list[str]:
    """What a reviewer of a new lock wants to know: the packages, CUDA, the download, the hardware; was -> is."""
    count = f"{len(new.pins)} packages"
    if old is None:
        lines = [f"{path}: new, {count}"]
    else:
        lines = [f"{path}: {len(changes.packages) + len(changes.files)} of {count} change"]
        for name, was, now in changes.packages:
            lines.append(f"  {name} {was} -> {now}" if was and now else f"  {'+' if now else '-'} {name} {now or was}")
        lines += [f"  {name}: another file of the same version" for name in changes.files]
    facts = [(title, None if old is None else fact(old), fact(new)) for title, fact in _LOCK_FACTS]
    lines += [f"  {title} {now}" if was in (None, now) else f"  {title} {was} -> {now}" for title, was, now in facts
              if old is None or was != now]  # fmt: skip
    return lines + [f"  warning: {reason_text(reason)}" for reason in warnings]


def _lock_size(lock: Lock) -> str:
    unknown = sum(pin.wheel.size is None for pin in lock.pins)
    return size(download_bytes(lock)) + (f" and {unknown} of unknown size" if unknown else "")


_LOCK_FACTS: tuple[tuple[str, Callable[[Lock], str]], ...] = (
    ("builds", lambda lock: ", ".join(map(choice_text, lock.choices)) or "none"),
    ("driver", lambda lock: f">= {lock.needs.driver}" if lock.needs.driver else "none needed"),
    ("compute capabilities", lambda lock: " ".join(map(show_pair, lock.needs.compute_capabilities)) or "none needed"),
    ("platform", lambda lock: f"{lock.needs.platform}, glibc >= {show_pair(lock.needs.glibc)}"),
    ("Python", lambda lock: show_pair(lock.needs.python)),
    ("download", _lock_size),
    ("data", lambda lock: lock.data),
)


def lock_json(path: str, profile: str, status: str, new: Lock, changes: Comparison) -> dict[str, Any]:
    """One profile of `lock --json`; `status` is written or unchanged."""
    return {
        "profile": profile,
        "path": path,
        "status": status,
        "changes": [{"name": name, "was": was, "now": now} for name, was, now in changes.packages],
        "files": list(changes.files),
        "frameworks": [to_plain(choice) for choice in new.choices],
        "needs": to_plain(new.needs),
        "packages": len(new.pins),
        "download_bytes": download_bytes(new),
    }


def states_lines(states: Sequence[State]) -> list[str]:
    """A line a lock: "pylock.h100.toml is stale: frameworks were torch, are torch>=2.9"."""
    lines = []
    for one in states:
        said = one.detail.removeprefix(f"{one.path}: ")
        if one.status == "missing":
            said = f"run gpuenv lock {one.profile}"
        elif one.differences:
            said = "; ".join(_difference(each.key, each.was, each.now) for each in one.differences)
        lines.append(f"{one.path} is {one.status}" + (f": {said}" if said else ""))
        if one.newer_data:
            lines.append(f"  newer data: {one.newer_data} (gpuenv lock --upgrade uses it)")
    return lines


def _difference(key: str, was: Any, now: Any) -> str:
    """ "driver was 550.54.14, is 580.65.06"; of long lists only what came and went."""
    if not isinstance(was or now, tuple):
        return f"{key} was {_input(was)}, is {_input(now)}"
    was, now = was or (), now or ()
    if max(len(was), len(now)) > 3:
        more = [f"{one} was added" for one in now if one not in was]
        less = [f"{one} was removed" for one in was if one not in now]
        return f"{key}: {', '.join(more + less) or 'the order changed'}"
    return f"{key} were {', '.join(was) or 'none'}, are {', '.join(now) or 'none'}"


def _input(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value or "none")


def states_json(states: Sequence[State]) -> list[dict[str, Any]]:
    """The "profiles" of `lock --check --json`."""
    return [to_plain(one) for one in states]


def beginning_lines(begun: Beginning, host: Host) -> list[str]:
    """What `gpuenv init` wrote, and what comes next."""
    profiles, frameworks = ", ".join(begun.profiles), ", ".join(begun.frameworks)
    lines = [f"wrote [tool.gpuenv] to {begun.path}: {frameworks}; Python {begun.python}; profiles {profiles}"]
    if not host.gpus:
        lines.append("no GPU was found or described: add a profile for one, with its gpu and driver")
    return [*lines, "next: gpuenv lock"]


def chosen_lines(project: Project, good: Sequence[Profile], state: State) -> list[str]:
    """Which lock `gpuenv sync` takes, what else would fit, and whether it is stale."""
    names = [project.lock_path(profile) for profile in good]
    also = f" ({' and '.join(names[1:])} would too; the closest and first is taken)" if names[1:] else ""
    lines = [f"{names[0]} fits this host{also}"]
    return lines + (states_lines([state])[:1] if state.status == "stale" else [])


def survival_lines(path: str, who: str, count: int, reasons: Sequence[Reason], host: Host) -> list[str]:
    """What speaks against a lock on a host, contradictions before doubts."""
    gpus = " and ".join(dict.fromkeys(gpu.name for gpu in host.gpus)) or "no GPU"
    where = f"{host.platform}, Python {show_pair(host.python.version)}, {gpus}"
    where += f", driver {host.driver}" if host.driver else ""
    failing = [reason for reason in reasons if not is_doubt(reason)]
    verdict = "would not work" if failing else "may not work" if reasons else "has nothing against it"
    lines = [f"{path} ({who}, {count} packages) {verdict} on {where}"]
    lines += [f"  {reason_text(reason)}" for reason in failing]
    return lines + [f"  not known: {reason_text(reason)}" for reason in reasons if reason not in failing]


def is_doubt(reason: Reason) -> bool:
    """Whether a reason says that the facts do not decide, or is a warning, rather than that something fails."""
    return reason.code.endswith("-unknown") or reason.code == "known-avoid"
