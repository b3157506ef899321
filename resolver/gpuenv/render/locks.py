"""The text and the JSON documents of a project's locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model import Host, Lock, Plan, quantity_text, show_pair
from ..project.init import Beginning
from ..project.profiles import Comparison, Difference, Profile, Project, State
from ..project.shared_versions import SharedVersion
from .refusals import host_text, reason_lines, wrapped
from .text import table_lines
from .values import (
    choice_text,
    download_bytes,
    download_text,
    reason_text,
    reasons_json,
    size,
    warning_texts,
)

# What the lines mean that `gpuenv init` writes.
_SETTINGS = {
    "frameworks": "every profile locks these",
    "project-dependencies": "and the dependencies of [project]",
    "requirements": "and these packages",
    "extras": "these extras of [project]",
    "groups": "these dependency groups",
    "python": "the Python version of every lock",
    "gpu": "the GPU of the hosts; none is the CPU",
    "count": "how many each host has",
    "driver": "the oldest driver release that the lock must run on",
    "platform": "the platform of the hosts",
    "glibc": "the oldest glibc of the hosts",
}
REASONS_SHOWN = 4  # lines of reasons against a version in one profile
_LONGEST_SETTING = 60  # characters of a line that init wrote; of a longer one the key is shown
LONGEST_LIST = 3  # a longer list is shown by what was added to it and removed from it


# ---- a new lock ---------------------------------------------------------------------------------


def lock_lines(
    path: str, old: Lock | None, new: Lock, changes: Comparison, plan: Plan
) -> list[str]:
    """Return what a reviewer of a new lock wants to know, as old -> new.

    Packages, builds, driver, hardware, download and data; without an old lock only the new facts.
    A package that goes back is followed by the reason in the plan.
    """
    count = quantity_text(len(new.pins), "package")
    if old is None:
        lines = [f"{path}: new, {count}"]
        lines += [f"  {title} {value}" for title, value in _facts(new)]
    else:
        lines = [f"{path}: {len(changes.packages) + len(changes.files)} of {count} change"]
        for name, was, now in changes.packages:
            if was is None:
                lines.append(f"  + {name} {now}")
            else:
                line = f"- {name} {was}" if now is None else f"{name} {was} -> {now}"
                lines += wrapped(f"{line}{_why_back(plan, name, was)}", "  ")
        lines += [f"  {name}: another file of the same version" for name in changes.files]
        for (title, before), (_, after) in zip(_facts(old), _facts(new), strict=True):
            if before != after:
                lines.append(f"  {title} {before} -> {after}")
    return [*lines, *(f"  warning: {text}" for text in warning_texts(plan.warnings))]


def _why_back(plan: Plan, name: str, version: str) -> str:
    """Return why a package has an older version than in the earlier lock; "" if it has not."""
    names = {wheel.name: wheel.version for wheel in plan.request.earlier}
    for rejection in plan.skipped:
        if (rejection.name, rejection.version) == (name, version) and name in names:
            return f", back: {reason_text(rejection.reasons[0])}"
    return ""


def _facts(lock: Lock) -> list[tuple[str, str]]:
    """Return (title, text) of what a lock needs and has."""
    needs = lock.needs
    glibc = f", glibc >= {show_pair(needs.glibc)}" if needs.glibc is not None else ""
    return [
        ("builds", ", ".join(map(choice_text, lock.choices)) or "none"),
        ("driver", "none needed" if needs.driver is None else f">= {needs.driver}"),
        (
            "compute capabilities",
            " ".join(map(show_pair, needs.compute_capabilities)) or "none needed",
        ),
        ("platform", f"{needs.platform}{glibc}"),
        ("Python", show_pair(needs.python)),
        ("download", download_text(lock)),
        ("data", lock.data),
    ]


def lock_document(lock: Lock) -> dict[str, Any]:
    """Return what `gpuenv report` shows of a lock."""
    return {
        "kind": "lock",
        "made_for": host_text(lock.host),
        "facts": _facts(lock),
        "packages": [
            {"name": pin.wheel.name, "version": pin.wheel.version, "size": size(pin.wheel.size)}
            for pin in lock.pins
        ],
    }


def lock_json(
    path: str, profile: str, status: str, new: Lock, changes: Comparison
) -> dict[str, Any]:
    """Return one profile of `lock --json`; `status` is written or unchanged."""
    return {
        "profile": profile,
        "path": path,
        "status": status,
        "changes": [{"name": name, "was": was, "now": now} for name, was, now in changes.packages],
        "files": changes.files,
        "frameworks": new.choices,
        "needs": new.needs,
        "packages": len(new.pins),
        "download_bytes": download_bytes(new),
    }


# ---- the versions of several profiles -----------------------------------------------------------


def shared_versions_lines(shared: Sequence[SharedVersion], *, only_some: bool) -> list[str]:
    """Return where profiles have, or would have, different versions of a framework, and why.

    Args:
        only_some: whether only some profiles were locked.
    """
    lines = []
    for framework in shared:
        name, versions = framework.framework, dict(framework.versions)
        if framework.is_shared:
            alone = [f"{profile} would get {other}" for profile, other in framework.alone]
            headline = f"{name} {next(iter(versions.values()))} in all profiles; alone, "
            headline += " and ".join(alone)
            headline += " (separate-versions = true in its table allows it)"
        else:
            texts = [f"{profile} {version}" for profile, version in versions.items()]
            headline = f"{name} differs: {', '.join(texts)}"
            if framework.separate:
                separate = " and ".join(framework.separate)
                headline += f"; pyproject.toml gives {separate} an own version"
        lines += wrapped(headline, "")
        for profile, version, reasons in framework.against:
            lines.append(f"  {profile} cannot have {name} {version}:")
            lines += [f"  {line}" for line in reason_lines(reasons, REASONS_SHOWN)]
    if only_some and any(not (framework.is_shared or framework.separate) for framework in shared):
        lines.append("gpuenv lock without a name looks for one version for all profiles")
    return lines


def shared_versions_json(shared: Sequence[SharedVersion]) -> list[dict[str, Any]]:
    """Return the "frameworks" of `lock --json`."""
    return [
        {
            "framework": framework.framework,
            "versions": dict(framework.versions),
            "alone": dict(framework.alone),
            "separate": framework.separate,
            "against": [
                {"profile": profile, "version": version, "reasons": reasons_json(reasons)}
                for profile, version, reasons in framework.against
            ],
        }
        for framework in shared
    ]


# ---- whether locks are up to date ---------------------------------------------------------------


def states_lines(states: Sequence[State]) -> list[str]:
    """Return for each lock whether it is up to date, and what to do if it is not.

    "pylock.h100.toml is stale: frameworks were torch, are torch>=2.9".
    """
    lines = []
    for state in states:
        lines += state_lines(state)
        if state.newer_data:
            lines.append(f"  newer data: {state.newer_data} (gpuenv lock --upgrade uses it)")
    return lines


def state_lines(state: State) -> list[str]:
    """Return whether a lock is up to date, and what to do if it is not."""
    line, command = f"{state.path} is {state.status}", f"run gpuenv lock {state.profile}"
    if state.status == "fresh":
        return [line]
    if state.status == "missing":
        return [f"{line}: {command}"]
    detail = state.detail.removeprefix(f"{state.path}: ")
    if state.status in ("tampered", "unreadable"):  # the detail is a sentence about the file
        line, detail = f"{state.path} {detail}", ""
    elif state.differences:
        detail = "; ".join(map(_difference_text, state.differences))
    return [f"{line}: {detail}" if detail else line, f"  {command}"]


def _difference_text(difference: Difference) -> str:
    """Return "driver was 550.54.14, is 580.65.06"; of a long list only what came and went."""
    key, was, now = difference.key, difference.was, difference.now
    if not isinstance(was or now, tuple):
        before, after = (
            str(value).lower() if isinstance(value, bool) else value or "none"
            for value in (was, now)
        )
        return f"{key} was {before}, is {after}"
    old = was if isinstance(was, tuple) else ()
    new = now if isinstance(now, tuple) else ()
    if max(len(old), len(new)) <= LONGEST_LIST:
        return f"{key} were {', '.join(old) or 'none'}, are {', '.join(new) or 'none'}"
    changes = [f"{text} was added" for text in new if text not in old]
    changes += [f"{text} was removed" for text in old if text not in new]
    return f"{key}: {', '.join(changes) or 'the order changed'}"


# ---- the commands of a project ------------------------------------------------------------------


def beginning_lines(begun: Beginning, hosts: Sequence[Host]) -> list[str]:
    """Return what `gpuenv init` wrote, and what to do next."""
    profiles, frameworks = ", ".join(begun.profiles), ", ".join(begun.frameworks)
    lines = [f"{begun.path}: profile {name} is for such a host already" for name in begun.covered]
    lines += [f"imported {name}" for name in begun.imported]
    for is_conda, step in (
        (False, "gpuenv add -r FILE adds one"),
        (True, "gpuenv solve --backend conda -r FILE locks one"),
    ):
        names = [name for name in begun.left_out if name.endswith((".yml", ".yaml")) == is_conda]
        if names:
            lines.append(f"left out: {', '.join(names)} ({step})")
    if begun.python:
        facts = f"Python {begun.python}; profiles {profiles}"
        facts = f"{frameworks}; {facts}" if frameworks else facts
        lines.append(f"wrote [tool.gpuenv] to {begun.path}: {facts}")
    elif begun.profiles:
        lines.append(f"added to {begun.path}: profiles {profiles}")
    else:
        return [*lines, "nothing was written"]
    if begun.python and not any(host.gpus for host in hosts):
        step = "gpuenv init --gpu H100 --driver 580.65.06"
        lines.append(f"no GPU was found or described; to add a profile for one: {step}")
    # The lines that were written, each with its meaning.
    rows = []
    for line in begun.addition.splitlines():
        text = line.partition("  #")[0]
        key = text.partition(" =")[0]
        if key.startswith("[tool.gpuenv.profiles."):
            name = key.rpartition(".")[2].rstrip("]")
            rows.append((text, f"gpuenv lock writes pylock.{name}.toml"))
        elif key in _SETTINGS:
            text = text if len(text) <= _LONGEST_SETTING else f"{key} = [...]"
            rows.append((text, _SETTINGS[key]))
    return [
        *lines,
        *(table_lines(rows) if rows else []),
        "next: gpuenv add NAME" if begun.is_empty else "next: gpuenv lock",
    ]


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
    return [line, *state_lines(state)]
