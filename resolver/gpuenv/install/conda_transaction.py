"""Installation by the transaction of the conda that runs gpuenv.

It links, runs the scripts of packages, reverses what failed, and writes conda's history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..compat.conda_records import Record
from ..errors import InstallError
from ..resolve.conda.solvers import CondaVariables

# gpuenv verifies the environment itself afterwards.
_VARIABLES = {"CONDA_PLUGINS_GPUENV_VERIFY": "off"}


def install(
    prefix: str,
    records: Sequence[Record],
    *,
    remove: Sequence[str] = (),
    requested: Sequence[str] = (),
    withdrawn: Sequence[str] = (),
) -> None:
    """Install packages into a prefix. Other packages stay.

    Args:
        prefix: The folder.
        records: The packages.
        remove: Packages to remove.
        requested: The specs that conda writes to the history of the prefix.
        withdrawn: Packages that are no longer requested; conda writes them to the history, too.

    Raises:
        InstallError: A package cannot be installed.
    """
    with CondaVariables(_VARIABLES):
        try:
            _run_transaction(prefix, records, remove, requested, withdrawn)
        except InstallError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            raise InstallError(f"installing failed (conda: {text})") from None


def _run_transaction(
    prefix: str,
    records: Sequence[Record],
    remove: Sequence[str],
    requested: Sequence[str],
    withdrawn: Sequence[str],
) -> None:
    from conda.core.link import (  # type: ignore[import-not-found,unused-ignore]
        PrefixSetup,
        UnlinkLinkTransaction,
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

    prefix_data = PrefixData(prefix)
    prefix_data.reload()
    installed = {record.name: record for record in prefix_data.iter_records()}
    changed = list(_changed(records, installed))
    if not changed and not remove:
        return  # conda would write a revision without packages, as of an empty environment
    replaced = {*remove, *(record["name"] for record in changed)}
    kept = [record for name, record in installed.items() if name not in replaced]
    sorted_records = tuple(PrefixGraph([*kept, *_fetched(changed)]).graph)
    unlinked, linked = diff_for_unlink_link_precs(
        prefix,
        sorted_records,
        specs_to_add=[MatchSpec(record["name"]) for record in changed],
        force_reinstall=True,
    )
    removed_specs = tuple(map(MatchSpec, dict.fromkeys((*remove, *withdrawn))))
    update_specs = tuple(map(MatchSpec, requested))
    setup = PrefixSetup(prefix, unlinked, linked, removed_specs, update_specs, ())
    UnlinkLinkTransaction(setup).execute()


def _changed(records: Sequence[Record], installed: dict[str, Any]) -> Iterator[Record]:
    """Yield the records whose files are not installed."""
    for record in records:
        before = installed.get(record["name"])
        if before is None or before.get("sha256") != record["sha256"]:
            yield record


def _fetched(records: Sequence[Record]) -> Iterator[object]:
    """Fetch packages into conda's cache and yield their records there."""
    from conda.core.package_cache_data import (  # type: ignore[import-not-found,unused-ignore]
        PackageCacheData,
        ProgressiveFetchExtract,
    )
    from conda.models.match_spec import (  # type: ignore[import-not-found,unused-ignore]
        MatchSpec,
    )

    specs = [MatchSpec(record["url"], sha256=record["sha256"]) for record in records]
    ProgressiveFetchExtract(specs).execute()
    for record, spec in zip(records, specs, strict=True):
        cached = next(PackageCacheData.query_all(spec), None)
        if cached is None:
            raise InstallError(f"{record['fn']} was not fetched as locked")
        yield cached
