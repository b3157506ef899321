"""What commands do to an environment: the text and the JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..activity import Activity
from ..loader_env import Shadow
from ..model import (
    Check,
    EnvironmentChanges,
    PackageChange,
    Plan,
    first_texts,
    quantity_text,
)
from .checks import checks_json
from .values import choice_text, warning_texts

SHOWN_LIBRARIES = 3
SHOWN_PARTS = 2
PROBES = {"installed": "files"}


def changes_lines(changes: EnvironmentChanges) -> list[str]:
    """Return how many packages an installation adds, changes and removes, and which."""

    def text(change: PackageChange, version: str) -> str:
        return f"{change.name} {version}" + " (wheel)" * change.wheel

    counts = f"{len(changes.add)} to add, {len(changes.change)} to change"
    lines = [f"{changes.target}: {counts}, {len(changes.remove)} to remove"]
    added = [text(change, change.after) for change in changes.add]
    if added:
        lines.append(f"  add     {first_texts(added, ', ')}")
    for change in changes.change:
        after = change.after if change.after != change.before else "another file of this build"
        lines.append(f"  change  {text(change, change.before)} -> {after}")
    lines += [f"  remove  {text(change, change.before)}" for change in changes.remove]
    lines += [f"  again   {text(change, change.before)}" for change in changes.again]
    return lines


def proof_line(count: int) -> str:
    """Return what a verification after a change of some packages looks at."""
    changed = quantity_text(count, "package")
    return f"verifying what changed ({changed}) and what requires it; the rest by file size"


# ---- gpuenv pip install --------------------------------------------------------------------------


def step_lines(plan: Plan, steps: Sequence[PackageChange], *, dry: bool) -> list[str]:
    """Return what was chosen, the warnings, and a line for each distribution that changes.

    Args:
        plan: the plan.
        steps: the changes.
        dry: the steps are only planned.
    """
    lines = [choice_text(choice) for choice in plan.choices]
    lines += [f"warning: {text}" for text in warning_texts(plan.warnings)]
    if not steps:
        lines.append("nothing to install: the environment has everything")
    for step in steps:
        text = f"install {step.name} {step.after}"
        if not step.after:
            text = f"remove {step.name} {step.before}"
        elif step.before:
            text += f", was {step.before}"
        lines.append(f"would {text}" if dry else text)
    return lines


def pip_json(
    prefix: str,
    plan: Plan,
    steps: Sequence[PackageChange],
    checks: Sequence[Check] | None,
    *,
    dry: bool,
) -> dict[str, Any]:
    """Return the document of `pip install --json`.

    "verify" is the document of `verify --json`, or null without a verification.
    """
    return {
        "target": prefix,
        "dry_run": dry,
        "frameworks": {choice.framework: choice.version for choice in plan.choices},
        "installed": [
            {"name": step.name, "version": step.after, "was": step.before or None}
            for step in steps
            if step.after
        ],
        "removed": [
            {"name": step.name, "version": step.before} for step in steps if not step.after
        ],
        "verify": None if checks is None else checks_json(checks),
    }


# ---- gpuenv run ----------------------------------------------------------------------------------


def shadow_lines(shadows: Sequence[Shadow], prefix: str) -> list[str]:
    """Return a line for each entry of a loader variable that was removed or moved."""
    lines = []
    for shadow in shadows:
        first, *others = shadow.libraries
        reason = f"its {first} shadows the one in {prefix}"
        if others:
            names = ", ".join(shadow.libraries[:SHOWN_LIBRARIES])
            if len(shadow.libraries) > SHOWN_LIBRARIES:
                names += f" and {len(shadow.libraries) - SHOWN_LIBRARIES} more"
            reason = f"its {names} shadow those in {prefix}"
        change = f"removed {shadow.entry}: {reason}"
        if shadow.kept:
            change = f"moved {shadow.entry} behind the folders of {prefix}"
            change += f": it leads to the driver, but {reason}"
        elif shadow.variable == "LD_PRELOAD":
            change = f"removed {shadow.entry}: it shadows the one in {prefix}"
        lines.append(f"gpuenv: {shadow.variable}: {change}")
    return lines


# ---- progress ------------------------------------------------------------------------------------


def activity_text(activity: Activity, seconds: int) -> str:
    """Return "solving (3 s): 14 requests, last for numpy; 31 packages decided; 2 conflicts"."""
    facts = []
    if activity.requests:
        requests = quantity_text(activity.requests, "request")
        facts.append(f"{requests} to indexes, last for {activity.subject}")
    if activity.decided:
        facts.append(f"{quantity_text(activity.decided, 'package')} decided")
    if activity.conflicts:
        facts.append(quantity_text(activity.conflicts, "conflict"))
    running = activity.running
    if running:
        names = ", ".join(PROBES.get(name, name) for name in running[:SHOWN_PARTS])
        if len(running) > SHOWN_PARTS:
            names += f" and {len(running) - SHOWN_PARTS} more"
        done = activity.started - len(running)
        facts.append(f"{done} of {activity.started} parts done; now: {names}")
    text = f"{activity.step} ({seconds} s)"
    return f"{text}: {'; '.join(facts)}" if facts else text
