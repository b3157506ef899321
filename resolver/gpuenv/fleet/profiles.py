"""Write the locks of a plan as profiles into the [tool.gpuenv] of a pyproject.toml."""

from __future__ import annotations

from .. import api
from ..errors import InputError
from ..model import Request
from ..project import init
from .solve import LockPlan


def write(plan: LockPlan, request: Request, folder: str) -> init.Beginning:
    """Add a profile for each lock. `gpuenv lock` makes the locks then.

    A profile that is there already stays as it is.

    Args:
        plan: the plan.
        request: what the locks are solved for.
        folder: the folder of pyproject.toml.

    Raises:
        InputError: the file asks for something else, or cannot be written; nothing was written.
    """
    for name in ("constraints", "hashes", "allow_sdist", "pre", "exclude_newer"):
        if getattr(request, name):
            flag = name.replace("_", "-")
            raise InputError(f"--write-profiles: does not write {flag}; nothing was written")
    versions = {group.lock.versions for group in plan.groups}
    begun = init.begin_profiles(
        folder,
        [group.lock.host for group in plan.groups],
        api.compatibility_data(),
        frameworks=request.frameworks,
        requirements=request.requirements,
        separate_versions=len(versions) > 1,
    )
    if begun.addition:
        init.write(begun)
    return begun
