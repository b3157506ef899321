"""`gpuenv solve --backend conda --pip REQUIREMENT`: wheels in a conda environment, and their lock beside its own."""

from __future__ import annotations

import hashlib
import os
from argparse import Namespace

from .. import api
from ..compat import conda_records
from ..errors import Explanation, InputError, NoSolutionError
from ..index.multi_index import MultiIndex
from ..lock import conda_formats
from ..model import IndexOptions, Lock, Plan, Request
from ..resolve.conda import wheels_beside


def planned(arguments: Namespace, conda: Plan, options: IndexOptions, path: str) -> tuple[Plan, str]:
    """The wheels beside a conda plan whose lock goes to `path`, and the file that their own lock goes to.

    NoSolutionError if there are none that fit beside what conda brings.
    """
    from .request_args import names, readable

    if conda.needs.python is None:
        raise InputError(f"--pip {arguments.pip[0]}: there is no Python in the environment", hint="ask for python too")
    matrix = api.compatibility_data()
    held = wheels_beside.supply(conda.pins, conda_records.Carriers(matrix.folder), matrix)
    request = Request(
        requirements=tuple(map(readable, arguments.pip)),
        allow_sdist=names(arguments.allow_sdist),
        default_index_only=arguments.default_index_only,
        pre=arguments.pre,
        exclude_newer=arguments.exclude_newer,
    )
    asked = request.replace(requirements=tuple(map(held.renamed, request.requirements)))

    _check_own(request, held)
    made: list[wheels_beside.Beside] = []

    def beside(index: MultiIndex) -> wheels_beside.Beside:
        made.append(wheels_beside.Beside(index, held))
        made[0].want_extras(asked.requirements)
        return made[0]

    try:
        plan = wheels_beside.without_held(api.solve(asked, conda.host, options, beside=beside), request)
    except NoSolutionError as error:
        # The last conflict is about the oldest releases: what kept the newest ones out is said before it.
        said = {reason.subject.partition(" ")[0] for reason in error.explanation.reasons}
        refused = tuple(reason for name, reason in made[0].refused.items() if name not in said)
        reasons = refused + error.explanation.reasons
        raise NoSolutionError(error.explanation.replace(reasons=reasons)) from None
    return plan, os.path.join(os.path.dirname(path), conda_formats.wheel_lock_name(path))


def _check_own(request: Request, held: wheels_beside.Supply) -> None:
    """NoSolutionError for what the user asks of a package that conda brings in another version."""
    from ..requirements.versions import contains

    def admits(specifier: str, version: str) -> bool:
        return contains(specifier, version, True)

    reasons = wheels_beside.unmet(request.requirements, held, admits)
    if reasons:
        raise NoSolutionError(Explanation(subject=", ".join(request.requirements), reasons=reasons))


def written(lock: Lock, path: str, plan: Plan, beside: str) -> tuple[Lock, Lock]:
    """Writes the lock of the wheels. Returns (the conda lock with its name and sha256, the lock of the wheels).

    That names the file of the conda lock, without which its wheels lack what conda brings.
    """
    from ..lock import pylock

    second = api.lock(plan).replace(inputs=((conda_formats.CONDA_LOCK, os.path.basename(path)),))
    text = pylock.dumps(second)
    pylock.write(beside, text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return lock.replace(inputs=(*lock.inputs, ("pip", (os.path.basename(beside), digest)))), second
