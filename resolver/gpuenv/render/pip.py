"""What `gpuenv pip install` says of what it does to an environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..install.inplace_install import Step
from ..model import Check, Plan
from .plans import checks_json
from .values import choice_text, reason_text


def step_lines(plan: Plan, steps: Sequence[Step], *, dry: bool) -> list[str]:
    """What was chosen, the warnings, and a line for each distribution that changes."""
    lines = [choice_text(choice) for choice in plan.choices]
    lines += [f"warning: {reason_text(reason)}" for reason in plan.warnings]
    if not steps:
        return [*lines, "nothing to install: all of it is there"]
    would = "would " if dry else ""
    for step in steps:
        if step.new is None:
            lines.append(f"{would}remove {step.name} {step.old}")
        elif step.old is None:
            lines.append(f"{would}install {step.name} {step.new}")
        else:
            lines.append(f"{would}install {step.name} {step.new}, was {step.old}")
    return lines


def pip_json(
    prefix: str, plan: Plan, steps: Sequence[Step], checks: Sequence[Check] | None, *, dry: bool
) -> dict[str, Any]:
    """The document of `pip install --json`; "verify" is that of `verify --json`, null where none was made."""
    return {
        "target": prefix,
        "dry_run": dry,
        "frameworks": {choice.framework: choice.version for choice in plan.choices},
        "installed": [{"name": one.name, "version": one.new, "was": one.old} for one in steps if one.new is not None],
        "removed": [{"name": one.name, "version": one.old} for one in steps if one.new is None],
        "verify": None if checks is None else checks_json(checks),
    }
