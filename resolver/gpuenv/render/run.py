"""The text of `gpuenv run` about changed loader variables, and its JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..loader_env import Shadow

SHOWN = 3  # libraries of an entry that are named


def shadow_lines(shadows: Sequence[Shadow], prefix: str) -> list[str]:
    """Return a line for each entry of a loader variable that was removed or moved."""
    return [f"gpuenv: {shadow.variable}: {_change_text(shadow, prefix)}" for shadow in shadows]


def _change_text(shadow: Shadow, prefix: str) -> str:
    reason = _shadowed_text(shadow.libraries, prefix)
    if shadow.kept:
        moved = f"moved {shadow.entry} behind the folders of {prefix}"
        return f"{moved}: it leads to the driver, but {reason}"
    if shadow.variable == "LD_PRELOAD":
        return f"removed {shadow.entry}: it shadows the one in {prefix}"
    return f"removed {shadow.entry}: {reason}"


def _shadowed_text(libraries: Sequence[str], prefix: str) -> str:
    """Return "its libcudnn.so.9 shadows the one in /srv/env"."""
    if len(libraries) == 1:
        return f"its {libraries[0]} shadows the one in {prefix}"
    names = ", ".join(libraries[:SHOWN])
    if len(libraries) > SHOWN:
        names += f" and {len(libraries) - SHOWN} more"
    return f"its {names} shadow those in {prefix}"


def run_json(
    prefix: str,
    command: Sequence[str],
    changed: Mapping[str, str | None],
    shadows: Sequence[Shadow],
) -> dict[str, Any]:
    """Return the document of `run --json`.

    Args:
        changed: the variables that the command gets; None is one that is not set.
    """
    rows = []
    for shadow in shadows:
        row = {
            "variable": shadow.variable,
            "entry": shadow.entry,
            "libraries": list(shadow.libraries),
            "kept": shadow.kept,
        }
        rows.append(row)
    return {
        "target": prefix,
        "command": list(command),
        "set": {name: value for name, value in changed.items() if value is not None},
        "unset": [name for name, value in changed.items() if value is None],
        "shadows": rows,
    }
