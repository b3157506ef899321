"""The conda environment that is active, and what of a plan of wheels it has already.

Every solve in one comes through here: what takes time is imported only where there is something to say.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .. import api
from ..model import Plan


def active_prefix(env: Mapping[str, str]) -> str | None:
    """The conda environment that is active; None in a venv, which stands before it."""
    venv, prefix = env.get("VIRTUAL_ENV"), env.get("CONDA_PREFIX")
    if venv and os.path.isfile(os.path.join(venv, "pyvenv.cfg")):
        return None
    return prefix if prefix and os.path.isdir(os.path.join(prefix, "conda-meta")) else None


def with_conda_owners(plan: Plan, prefix: str) -> Plan:
    """A plan of wheels with a warning of what they have in common with the packages of a conda environment."""
    words = {"cuda", *(choice.framework for choice in plan.choices)}
    for pin in plan.pins:
        if pin.wheel.name.startswith("nvidia-"):
            words.add(pin.wheel.name.removeprefix("nvidia-").rpartition("-cu")[0] or pin.wheel.name[7:])
    names = os.listdir(os.path.join(prefix, "conda-meta"))
    if not any(word in name for name in names for word in words):
        return plan
    from ..compat import conda_records
    from ..install import conda_prefix

    matrix = api.compatibility_data()
    found = conda_prefix.beside_conda(prefix, plan.pins, conda_records.Carriers(matrix.folder), matrix)
    return plan.replace(warnings=(*plan.warnings, *found))
