"""Installation by the transaction of the conda that runs gpuenv.

It links, runs the scripts of packages, reverses what failed, and writes conda's history.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..compat.conda_records import Record
from ..errors import InstallError
from ..resolve.conda.solvers import conda_variables

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
            text = " ".join(str(error).split())
            raise InstallError(f"installing failed (conda: {text})") from None
