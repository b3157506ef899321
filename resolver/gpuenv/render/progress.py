"""The line that shows what a command is doing."""

from __future__ import annotations

from ..activity import Activity
from .values import quantity_text

PARTS_SHOWN = 2
PROBES = {"installed": "files"}


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
    facts += _running_parts(activity)
    text = f"{activity.step} ({seconds} s)"
    if facts:
        text += f": {'; '.join(facts)}"
    return text


def _running_parts(activity: Activity) -> list[str]:
    running = activity.running
    if not running:
        return []
    names = ", ".join(PROBES.get(name, name) for name in running[:PARTS_SHOWN])
    if len(running) > PARTS_SHOWN:
        names += f" and {len(running) - PARTS_SHOWN} more"
    done = activity.started - len(running)
    return [f"{done} of {activity.started} parts done; now: {names}"]
