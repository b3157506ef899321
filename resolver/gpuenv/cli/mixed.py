"""`gpuenv solve --backend conda --pip REQUIREMENT`: wheels in a conda environment, and their lock beside its own."""

from __future__ import annotations

import os

import gpuenv

from ..backends.conda import mixed, rows
from ..errors import Explanation, InputError, NoSolutionError
from ..model import IndexOptions, Lock, Plan, Request

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from argparse import Namespace

    from ..index.combined import CombinedIndex


def planned(arguments: Namespace, conda: Plan, options: IndexOptions, path: str) -> tuple[Plan, str]:
    """The wheels beside a conda plan whose lock goes to `path`, and the file that their own lock goes to.

    NoSolutionError if there are none that fit beside what conda brings.
    """
    from .asking import names, readable

    if conda.needs.python is None:
        raise InputError(f"--pip {arguments.pip[0]}: there is no Python in the environment", hint="ask for python too")
    matrix = gpuenv.compatibility_data()
    held = mixed.supply(conda.pins, rows.Carriers(matrix.folder), matrix)
    request = Request(
        requirements=tuple(map(readable, arguments.pip)),
        allow_sdist=names(arguments.allow_sdist),
        default_index_only=arguments.default_index_only,
        pre=arguments.pre,
        exclude_newer=arguments.exclude_newer,
    )
    asked = request.replace(requirements=tuple(map(held.asked, request.requirements)))

    _check_own(request, held)
    made: list[mixed.Beside] = []

    def beside(index: CombinedIndex) -> mixed.Beside:
        made.append(mixed.Beside(index, held))
        made[0].want_extras(asked.requirements)
        return made[0]

    try:
        plan = mixed.without_held(gpuenv.solve(asked, conda.host, options, beside=beside), request)
    except NoSolutionError as error:
        # The last conflict is about the oldest releases: what kept the newest ones out is said before it.
        said = {reason.subject.partition(" ")[0] for reason in error.explanation.reasons}
        refused = tuple(reason for name, reason in made[0].refused.items() if name not in said)
        reasons = refused + error.explanation.reasons
        raise NoSolutionError(error.explanation.replace(reasons=reasons)) from None
    return plan, os.path.join(os.path.dirname(path), mixed.name_beside(path))


def _check_own(request: Request, held: mixed.Supply) -> None:
    """NoSolutionError for what the user asks of a package that conda brings in another version."""
    from ..environment.versions import contains

    reasons = mixed.unmet(request.requirements, held, lambda specifier, version: contains(specifier, version, True))
    if reasons:
        raise NoSolutionError(Explanation(subject=", ".join(request.requirements), reasons=reasons))


def written(lock: Lock, path: str, plan: Plan, beside: str) -> tuple[Lock, Lock]:
    """Writes the lock of the wheels. Returns (the conda lock with its name and sha256, the lock of the wheels).

    That names the file of the conda lock, without which its wheels lack what conda brings.
    """
    from .. import lockfile
    from ..digests import sha256

    second = gpuenv.lock(plan).replace(inputs=((mixed.CONDA, os.path.basename(path)),))
    text = lockfile.dumps(second)
    lockfile.write(beside, text)
    digest = sha256(text.encode())
    return lock.replace(inputs=(*lock.inputs, ("pip", (os.path.basename(beside), digest)))), second
