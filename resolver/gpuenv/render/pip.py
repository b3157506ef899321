"""The text of `gpuenv pip install` about its changes to an environment, and its JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..install.inplace_install import Step
from ..model import Check, Plan
from .checks import checks_json
from .values import choice_text, warning_texts


def step_lines(plan: Plan, steps: Sequence[Step], *, dry: bool) -> list[str]:
    """Return what was chosen, the warnings, and a line for each distribution that changes.

    Args:
        dry: the steps are only planned.
    """
    lines = [choice_text(choice) for choice in plan.choices]
    lines += [f"warning: {text}" for text in warning_texts(plan.warnings)]
    if not steps:
        lines.append("nothing to install: the environment has everything")
    for step in steps:
        text = _step_text(step)
        if dry:
            text = f"would {text}"
        lines.append(text)
    return lines


def _step_text(step: Step) -> str:
    if step.new is None:
        return f"remove {step.name} {step.old}"
    if step.old is None:
        return f"install {step.name} {step.new}"
    return f"install {step.name} {step.new}, was {step.old}"


def pip_json(
    prefix: str, plan: Plan, steps: Sequence[Step], checks: Sequence[Check] | None, *, dry: bool
) -> dict[str, Any]:
    """Return the document of `pip install --json`.

    "verify" is the document of `verify --json`, or null without a verification.
    """
    installed, removed = [], []
    for step in steps:
        if step.new is None:
            removed.append({"name": step.name, "version": step.old})
        else:
            installed.append({"name": step.name, "version": step.new, "was": step.old})
    verification = None
    if checks is not None:
        verification = checks_json(checks)
    return {
        "target": prefix,
        "dry_run": dry,
        "frameworks": {choice.framework: choice.version for choice in plan.choices},
        "installed": installed,
        "removed": removed,
        "verify": verification,
    }
