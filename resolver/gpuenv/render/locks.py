"""Locks of a project's profiles, and locks of any tool on a host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import Reason
from ..model import Host, Lock, show_pair
from ..project.init import Beginning
from ..project.profiles import Comparison, Profile, Project, State
from ..serialize import to_plain
from .refusals import LEAST, SCREEN, host_text, reason_lines, wrapped
from .values import choice_text, download_bytes, is_doubt, reason_text, size


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


def survival_lines(
    path: str, who: str, count: int, reasons: Sequence[Reason], host: Host, *, used: int = 0
) -> list[str]:
    """What speaks against a lock on a host, contradictions before doubts; with `used` further lines on one screen."""
    failing = [reason for reason in reasons if not is_doubt(reason)]
    unknown = any(reason.code.endswith("-unknown") for reason in reasons)
    verdict = "would not work" if failing else "may not work" if unknown else "has nothing against it"
    lines = wrapped(f"{path} ({who}, {count} packages) {verdict} on {host_text(host)}", "")
    notes = []
    for one in reasons:
        if one not in failing:
            kind = "not known" if one.code.endswith("-unknown") else "note"
            notes += wrapped(f"{kind}: {reason_text(one)}", "  ")
    return [*lines, *reason_lines(failing, max(LEAST, SCREEN - used - len(lines) - len(notes))), *notes]
