"""Installation of conda locks: by conda if it runs gpuenv, otherwise by rattler in a child process.

Nothing is solved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from ..compat import conda_parts, evaluate
from ..compat.conda_records import Record
from ..compat.data import CompatibilityData
from ..errors import InputError, InstallError, Reason, error_text, is_doubt
from ..index.urls import file_url_to_path
from ..model import Host, Lock, Pin
from ..prefix import conda_packages, is_conda
from ..requirements.conda_versions import inside_conda
from ..resolve.conda.solvers import RattlerSolver, conda_variables
from ..resolve.conda.wheels_beside import records_of
from ..serialize import file_digest, read_input
from . import conda_history
from .conda_prefix import difference_of

# gpuenv verifies the environment itself afterwards.
_VARIABLES = {"CONDA_PLUGINS_GPUENV_VERIFY": "off"}


def reasons(lock: Lock, host: Host, matrix: CompatibilityData) -> tuple[Reason, ...]:
    """Return what speaks against the files of a lock on a host, whoever wrote the lock.

    The rules are asked of names and builds, because conda installs an explicit file without
    looking at `constrains`. Doubts are left out.
    """
    wheels = lock.wheels.pins if lock.wheels is not None else ()
    names = [(pin.wheel.name, pin.wheel.version) for pin in wheels]
    beside = evaluate.packages_of_pins(names, host.platform, matrix)
    records = records_of(lock.pins)
    reasons = conda_parts.lock_reasons(records, host, matrix, beside=beside)
    return tuple(dict.fromkeys(reason for reason in reasons if not is_doubt(reason)))


def check(target: str) -> bool:
    """Return whether the prefix must be made.

    Raises:
        InputError: The folder is not empty and no conda environment, it cannot be made or
            written to, or it is frozen (CEP 22).
    """
    target = os.path.abspath(target)
    if os.path.exists(target) and not os.path.isdir(target):
        raise InputError(f"--target {target}: is not a folder")
    if os.path.isdir(target) and os.listdir(target):
        if not is_conda(target):
            raise InputError(f"--target {target}: has files in it and is no conda environment")
        if not os.access(os.path.join(target, "conda-meta"), os.W_OK | os.X_OK):
            raise InputError(f"--target {target}: cannot be written to")
        path = os.path.join(target, "conda-meta", "frozen")
        if os.path.isfile(path):
            try:
                message = json.loads(read_input(path))["message"]
            except (OSError, ValueError, KeyError, TypeError):
                message = "it has the file conda-meta/frozen"
            message = f"--target {target}: is frozen: {' '.join(str(message).split())}"
            raise InputError(message, hint="install into another environment")
        return False
    if not os.path.isdir(os.path.dirname(target)):
        message = f"--target {target}: the folder above it does not exist"
        raise InputError(message, hint="make it, or give another target")
    return True


def install(
    pins: Sequence[Pin],
    target: str,
    removed: Sequence[str],
    requested: Sequence[str] = (),
    withdrawn: Sequence[str] = (),
) -> None:
    """Install packages into a prefix, and remove the packages that `removed` names.

    The history of the prefix gets the specs in `requested`, and the names in `withdrawn` as no
    longer requested.

    Raises:
        InstallError: A file could not be installed as pinned.
    """
    _check_local_files(pins, target)
    records = records_of(pins)
    if inside_conda():
        run_transaction(target, records, removed, requested, withdrawn)
    else:
        subdirs = {str(record["subdir"]) for record in records} - {"noarch"}
        subdir = next(iter(subdirs), "noarch")
        # The child ends with the block: nothing goes on writing into a prefix that is removed.
        with RattlerSolver((), (subdir, "noarch")) as solver:
            solver.install(target, records, subdir, remove=removed)
    installed = conda_packages(target)
    for pin in pins:
        difference = difference_of(pin.wheel, installed.get(pin.wheel.name))
        if difference is not None:
            raise InstallError(f"{pin.wheel.filename} was not installed as locked: {difference}")
    conda_history.record(target, requested, withdrawn)


def run_transaction(
    prefix: str,
    records: Sequence[Record],
    remove: Sequence[str] = (),
    requested: Sequence[str] = (),
    withdrawn: Sequence[str] = (),
) -> None:
    """Install packages into a prefix by the transaction of the conda that runs gpuenv.

    It links, runs the scripts of packages, reverses what failed, and writes conda's history. Other
    packages stay.

    Args:
        prefix: The folder.
        records: The packages.
        remove: Packages to remove.
        requested: The specs that conda writes to the history of the prefix.
        withdrawn: Packages that are no longer requested; conda writes them to the history, too.

    Raises:
        InstallError: A package cannot be installed.
    """
    from conda.core.link import (  # type: ignore[import-not-found,unused-ignore]
        PrefixSetup,
        UnlinkLinkTransaction,
    )
    from conda.core.package_cache_data import (  # type: ignore[import-not-found,unused-ignore]
        PackageCacheData,
        ProgressiveFetchExtract,
    )
    from conda.core.prefix_data import (  # type: ignore[import-not-found,unused-ignore]
        PrefixData,
    )
    from conda.core.solve import (  # type: ignore[import-not-found,unused-ignore]
        diff_for_unlink_link_precs,
    )
    from conda.models.match_spec import (  # type: ignore[import-not-found,unused-ignore]
        MatchSpec,
    )
    from conda.models.prefix_graph import (  # type: ignore[import-not-found,unused-ignore]
        PrefixGraph,
    )

    with conda_variables(_VARIABLES):
        try:
            prefix_data = PrefixData(prefix)
            prefix_data.reload()
            installed = {record.name: record for record in prefix_data.iter_records()}
            files = {name: record.get("sha256") for name, record in installed.items()}
            changed = [row for row in records if files.get(row["name"]) != row["sha256"]]
            if not changed and not remove:
                return  # conda would write a revision without packages, as of an empty environment
            replaced = {*remove, *(row["name"] for row in changed)}
            kept = [record for name, record in installed.items() if name not in replaced]
            specs = [MatchSpec(row["url"], sha256=row["sha256"]) for row in changed]
            ProgressiveFetchExtract(specs).execute()
            for row, spec in zip(changed, specs, strict=True):
                cached = next(PackageCacheData.query_all(spec), None)
                if cached is None:
                    raise InstallError(f"{row['fn']} was not fetched as locked")
                kept.append(cached)
            unlinked, linked = diff_for_unlink_link_precs(
                prefix,
                tuple(PrefixGraph(kept).graph),
                specs_to_add=[MatchSpec(row["name"]) for row in changed],
                force_reinstall=True,
            )
            removed_specs = tuple(map(MatchSpec, dict.fromkeys((*remove, *withdrawn))))
            update_specs = tuple(map(MatchSpec, requested))
            setup = PrefixSetup(prefix, unlinked, linked, removed_specs, update_specs, ())
            UnlinkLinkTransaction(setup).execute()
        except InstallError:
            raise
        except Exception as error:
            raise InstallError(f"installing failed (conda: {error_text(error)})") from None


def _check_local_files(pins: Sequence[Pin], target: str) -> None:
    """Raise InstallError if a file of a local channel is not the one that was locked.

    conda and rattler compare the hashes of what they download only.
    """
    installed = conda_packages(target)
    for pin in pins:
        wheel = pin.wheel
        if not wheel.is_local:
            continue
        if installed.get(wheel.name, {}).get("sha256") == wheel.sha256:
            continue
        try:
            have = file_digest(file_url_to_path(wheel.url))
        except OSError as error:
            raise InstallError(f"{wheel.filename} cannot be read: {error}") from None
        if have != wheel.sha256:
            locked = f"the lock says sha256 {wheel.sha256}, the file has {have}"
            raise InstallError(f"hash mismatch of {wheel.filename}: {locked}")
