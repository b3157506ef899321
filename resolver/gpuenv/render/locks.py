"""The text and the JSON documents of a project's locks, and of any tool's lock on a host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Reason
from ..model import Host, Lock, show_pair
from ..serialize import to_plain
from .refusals import LEAST, SCREEN, host_text, reason_lines, wrapped
from .text import table_lines
from .values import (
    choice_text,
    download_bytes,
    download_text,
    is_doubt,
    quantity_text,
    reason_text,
    reasons_json,
    size,
    warning_texts,
)

if TYPE_CHECKING:  # most commands of locks need no project
    from ..project.init import Beginning
    from ..project.profiles import Comparison, Difference, Profile, Project, State
    from ..project.shared_versions import SharedVersion

# What the lines mean that `gpuenv init` writes.
_SETTINGS = {
    "frameworks": "every profile locks these",
    "project-dependencies": "and the dependencies of [project]",
    "requirements": "and these packages",
    "python": "the Python version of every lock",
    "gpu": "the GPU of the hosts; none is the CPU",
    "count": "how many each host has",
    "driver": "the oldest driver release that the lock must run on",
    "platform": "the platform of the hosts",
    "glibc": "the oldest glibc of the hosts",
}
REASONS_SHOWN = 4  # lines of reasons against a version in one profile
LONGEST_LIST = 3  # a longer list is shown by what was added to it and removed from it


# ---- a new lock ---------------------------------------------------------------------------------


def lock_lines(
    path: str, old: Lock | None, new: Lock, changes: Comparison, warnings: Sequence[Reason]
) -> list[str]:
    """Return what a reviewer of a new lock wants to know, as old -> new.

    Packages, builds, driver, hardware, download and data; without an old lock only the new facts.
    """
    lines = [_lock_headline(path, old, new, changes)]
    if old is not None:
        lines += _change_lines(changes)
    lines += _fact_lines(old, new)
    lines += [f"  warning: {text}" for text in warning_texts(warnings)]
    return lines


def _lock_headline(path: str, old: Lock | None, new: Lock, changes: Comparison) -> str:
    count = quantity_text(len(new.pins), "package")
    if old is None:
        return f"{path}: new, {count}"
    changed = len(changes.packages) + len(changes.files)
    return f"{path}: {changed} of {count} change"


def _change_lines(changes: Comparison) -> list[str]:
    lines = []
    for name, old_version, new_version in changes.packages:
        if old_version is None:
            lines.append(f"  + {name} {new_version}")
        elif new_version is None:
            lines.append(f"  - {name} {old_version}")
        else:
            lines.append(f"  {name} {old_version} -> {new_version}")
    lines += [f"  {name}: another file of the same version" for name in changes.files]
    return lines


def _fact_lines(old: Lock | None, new: Lock) -> list[str]:
    lines = []
    for title, fact in _LOCK_FACTS:
        value = fact(new)
        if old is None:
            lines.append(f"  {title} {value}")
        elif fact(old) != value:
            lines.append(f"  {title} {fact(old)} -> {value}")
    return lines


def _builds(lock: Lock) -> str:
    return ", ".join(map(choice_text, lock.choices)) or "none"


def _driver(lock: Lock) -> str:
    if lock.needs.driver is None:
        return "none needed"
    return f">= {lock.needs.driver}"


def _compute_capabilities(lock: Lock) -> str:
    return " ".join(map(show_pair, lock.needs.compute_capabilities)) or "none needed"


def _platform(lock: Lock) -> str:
    return f"{lock.needs.platform}, glibc >= {show_pair(lock.needs.glibc)}"


def _python(lock: Lock) -> str:
    return show_pair(lock.needs.python)


def _data(lock: Lock) -> str:
    return lock.data


_LOCK_FACTS: tuple[tuple[str, Callable[[Lock], str]], ...] = (
    ("builds", _builds),
    ("driver", _driver),
    ("compute capabilities", _compute_capabilities),
    ("platform", _platform),
    ("Python", _python),
    ("download", download_text),
    ("data", _data),
)


def lock_document(lock: Lock) -> dict[str, Any]:
    """Return what `gpuenv report` shows of a lock."""
    packages = []
    for pin in lock.pins:
        wheel = pin.wheel
        packages.append({"name": wheel.name, "version": wheel.version, "size": size(wheel.size)})
    return {
        "kind": "lock",
        "made_for": host_text(lock.host),
        "facts": [(name, text(lock)) for name, text in _LOCK_FACTS],
        "packages": packages,
    }


def lock_json(
    path: str, profile: str, status: str, new: Lock, changes: Comparison
) -> dict[str, Any]:
    """Return one profile of `lock --json`; `status` is written or unchanged."""
    rows = []
    for name, old_version, new_version in changes.packages:
        rows.append({"name": name, "was": old_version, "now": new_version})
    return {
        "profile": profile,
        "path": path,
        "status": status,
        "changes": rows,
        "files": list(changes.files),
        "frameworks": to_plain(new.choices),
        "needs": to_plain(new.needs),
        "packages": len(new.pins),
        "download_bytes": download_bytes(new),
    }


# ---- the versions of several profiles -----------------------------------------------------------


def shared_versions_lines(shared: Sequence[SharedVersion], *, only_some: bool = False) -> list[str]:
    """Return where profiles have, or would have, different versions of a framework, and why.

    Args:
        only_some: whether only some profiles were locked.
    """
    lines = []
    for framework in shared:
        lines += wrapped(_shared_headline(framework), "")
        for profile, version, reasons in framework.against:
            lines.append(f"  {profile} cannot have {framework.framework} {version}:")
            lines += [f"  {line}" for line in reason_lines(reasons, REASONS_SHOWN)]
    if only_some and any(not (framework.is_shared or framework.separate) for framework in shared):
        lines.append("gpuenv lock without a name looks for one version for all profiles")
    return lines


def _shared_headline(framework: SharedVersion) -> str:
    name, versions = framework.framework, dict(framework.versions)
    if framework.is_shared:
        version = next(iter(versions.values()))
        alone = " and ".join(f"{profile} would get {other}" for profile, other in framework.alone)
        return (
            f"{name} {version} in all profiles; alone, {alone}"
            " (separate-versions = true in its table allows it)"
        )
    text = ", ".join(f"{profile} {version}" for profile, version in versions.items())
    line = f"{name} differs: {text}"
    if framework.separate:
        line += f"; pyproject.toml gives {' and '.join(framework.separate)} an own version"
    return line


def shared_versions_json(shared: Sequence[SharedVersion]) -> list[dict[str, Any]]:
    """Return the "frameworks" of `lock --json`."""
    documents = []
    for framework in shared:
        against = []
        for profile, version, reasons in framework.against:
            rows = reasons_json(reasons)
            against.append({"profile": profile, "version": version, "reasons": rows})
        documents.append(
            {
                "framework": framework.framework,
                "versions": dict(framework.versions),
                "alone": dict(framework.alone),
                "separate": list(framework.separate),
                "against": against,
            }
        )
    return documents


# ---- whether locks are up to date ---------------------------------------------------------------


def states_lines(states: Sequence[State]) -> list[str]:
    """Return for each lock whether it is up to date, and what to do if it is not.

    "pylock.h100.toml is stale: frameworks were torch, are torch>=2.9".
    """
    lines = []
    for state in states:
        lines += _state_lines(state)
        if state.newer_data:
            lines.append(f"  newer data: {state.newer_data} (gpuenv lock --upgrade uses it)")
    return lines


def _state_lines(state: State) -> list[str]:
    line = f"{state.path} is {state.status}"
    command = f"run gpuenv lock {state.profile}"
    if state.status == "fresh":
        return [line]
    if state.status == "missing":
        return [f"{line}: {command}"]
    detail = state.detail.removeprefix(f"{state.path}: ")
    if state.status in ("tampered", "unreadable"):  # the detail is a sentence about the file
        return [f"{state.path} {detail}", f"  {command}"]
    if state.differences:
        detail = "; ".join(map(_difference_text, state.differences))
    if detail:
        line += f": {detail}"
    return [line, f"  {command}"]


def _difference_text(difference: Difference) -> str:
    """Return "driver was 550.54.14, is 580.65.06"; of a long list only what came and went."""
    key, old, new = difference.key, difference.was, difference.now
    if not isinstance(old or new, tuple):
        return f"{key} was {_input_text(old)}, is {_input_text(new)}"
    old, new = _items(old), _items(new)
    if max(len(old), len(new)) <= LONGEST_LIST:
        return f"{key} were {', '.join(old) or 'none'}, are {', '.join(new) or 'none'}"
    changes = [f"{text} was added" for text in new if text not in old]
    changes += [f"{text} was removed" for text in old if text not in new]
    return f"{key}: {', '.join(changes) or 'the order changed'}"


def _items(value: object) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _input_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value or "none")


def states_json(states: Sequence[State]) -> list[dict[str, Any]]:
    """Return the "profiles" of `lock --check --json`."""
    return [to_plain(state) for state in states]


# ---- the commands of a project ------------------------------------------------------------------


def beginning_lines(begun: Beginning, hosts: Sequence[Host]) -> list[str]:
    """Return what `gpuenv init` wrote, and what to do next."""
    profiles, frameworks = ", ".join(begun.profiles), ", ".join(begun.frameworks)
    lines = [f"{begun.path}: profile {name} is for such a host already" for name in begun.covered]
    if begun.frameworks:
        facts = f"{frameworks}; Python {begun.python}; profiles {profiles}"
        lines.append(f"wrote [tool.gpuenv] to {begun.path}: {facts}")
    elif begun.profiles:
        lines.append(f"added to {begun.path}: profiles {profiles}")
    else:
        return [*lines, "nothing was written"]
    if begun.frameworks and not any(host.gpus for host in hosts):
        lines.append(
            "no GPU was found or described: add a profile for one, with its gpu and driver"
        )
    return [*lines, *_written_lines(begun.addition), "next: gpuenv lock"]


def _written_lines(addition: str) -> list[str]:
    """Return a table of the lines that were written, each with its meaning."""
    rows = []
    for line in addition.splitlines():
        text = line.partition("  #")[0]
        key = text.partition(" =")[0]
        if key.startswith("[tool.gpuenv.profiles."):
            name = key.rpartition(".")[2].rstrip("]")
            rows.append((text, f"gpuenv lock writes pylock.{name}.toml"))
        elif key in _SETTINGS:
            rows.append((text, _SETTINGS[key]))
    return table_lines(rows) if rows else []


def chosen_lines(project: Project, good: Sequence[Profile], state: State) -> list[str]:
    """Return which lock `gpuenv sync` installs, and which others fit.

    Args:
        good: the profiles whose locks fit the host; the first one is installed.
        state: the state of the first one's lock.
    """
    path, *others = [project.lock_path(profile) for profile in good]
    line = f"{path} fits this host"
    if others:
        line += f" best; {' and '.join(others)} would work, too"
    if state.status != "stale":
        return [line]
    return [line, *_state_lines(state)]


# ---- a lock on a host ---------------------------------------------------------------------------


def lock_check_lines(
    path: str, created_by: str, count: int, reasons: Sequence[Reason], host: Host, *, used: int = 0
) -> list[str]:
    """Return what speaks against a lock on a host, failures before doubts, on one screen.

    Args:
        created_by: the tool that made the lock.
        count: how many packages it has.
        used: lines that the caller prints on the same screen.
    """
    failures = [reason for reason in reasons if not is_doubt(reason)]
    doubts = [reason for reason in reasons if is_doubt(reason)]
    subject = f"{path} ({created_by}, {quantity_text(count, 'package')})"
    lines = wrapped(f"{subject} {_verdict_text(failures, doubts)} on {host_text(host)}", "")
    notes = []
    for reason in doubts:
        kind = "note"
        if _is_unknown(reason):
            kind = "not known"
        notes += wrapped(f"{kind}: {reason_text(reason)}", "  ")
    most = max(LEAST, SCREEN - used - len(lines) - len(notes))
    return [*lines, *reason_lines(failures, most), *notes]


def _verdict_text(failures: Sequence[Reason], doubts: Sequence[Reason]) -> str:
    if failures:
        return "would not work"
    if any(map(_is_unknown, doubts)):
        return "may not work"
    return "violates no rule"


def _is_unknown(reason: Reason) -> bool:
    return reason.code.endswith("-unknown")
