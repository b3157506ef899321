"""What `gpuenv run` says before the command starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..loader_env import Shadow

SHOWN = 3


def shadow_lines(shadows: Sequence[Shadow], prefix: str) -> list[str]:
    """A line for each entry."""
    lines = []
    for one in shadows:
        more = f" and {len(one.libraries) - SHOWN} more" if len(one.libraries) > SHOWN else ""
        holds = f"{', '.join(one.libraries[:SHOWN])}{more}"
        if one.kept:
            done = f"put behind the libraries of {prefix}: it leads to the driver, and holds {holds}"
        elif one.variable == "LD_PRELOAD":
            done = f"taken out: {prefix} has its own"
        else:
            done = f"taken out: it holds {holds}, which {prefix} has of its own"
        lines.append(f"gpuenv: {one.variable}: {one.entry} {done}")
    return lines


def run_json(
    prefix: str, command: Sequence[str], changed: Mapping[str, str | None], shadows: Sequence[Shadow]
) -> dict[str, Any]:
    """The document of `run --json`."""
    return {
        "target": prefix,
        "command": list(command),
        "set": {name: value for name, value in changed.items() if value is not None},
        "unset": [name for name, value in changed.items() if value is None],
        "shadows": [
            {"variable": one.variable, "entry": one.entry, "libraries": list(one.libraries), "kept": one.kept}
            for one in shadows
        ],
    }
