"""The compatibility data and the index snapshot, loaded once in a process."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the stages are imported when they are first used
    from ..compat.catalog import Catalog
    from ..compat.data import CompatibilityData
    from ..index.snapshot import Snapshot


@cache
def compatibility_data() -> CompatibilityData:
    """Return the compatibility data: drivers, GPUs, frameworks and their builds.

    The rows of the user are included (`gpuenv matrix update`).
    """
    from ..compat import data
    from ..compat.user_rows import read_user_rows, user_file

    return data.load(user_rows=read_user_rows(user_file()))


def snapshot() -> Snapshot:
    """Return the index snapshot, without the place of the default index's files."""
    from ..index.snapshot import Snapshot

    return Snapshot(os.path.join(compatibility_data().folder, "snapshot"), "")


def data_version(snapshot_version: str = "") -> str:
    """Return the version of all data that a solve would use now, as locks record it.

    Args:
        snapshot_version: that of the index snapshot, if it was read already.
    """
    data = compatibility_data()
    text = f"matrix {data.version}, index snapshot {snapshot_version or snapshot().version}"
    if data.user_rows.rows:
        text += f", {data.user_rows.count()} rows of matrix update of {data.user_rows.date}"
    return text


def data_dates() -> tuple[str, str]:
    """Return the date of the shipped compatibility data, and of the user's last update or ""."""
    data = compatibility_data()
    return data.version, data.user_rows.date


def unread_package() -> tuple[str, int] | None:
    """Return (version, schema) of an installed gpuenv-matrix that this gpuenv cannot read."""
    from ..compat import data

    return data.unread_package()


def matrix_catalog() -> Catalog:
    """Return the known releases of frameworks and libraries, with their device code."""
    from ..compat.catalog import Catalog

    return Catalog(compatibility_data(), snapshot().wheels)


def matrix_tables() -> dict[str, Any]:
    """Return the solver's answers about every release and host, as tables.

    They come from the shipped data and the index snapshot alone. resolve.answer_tables describes
    them.
    """
    from ..index.factory import open_indexes
    from ..model import IndexOptions
    from ..resolve.answer_tables import AnswerTables

    data = compatibility_data()
    snapshot, index = open_indexes(IndexOptions(offline=True), data.folder)
    tables = AnswerTables(data, index, snapshot.environment).document()
    return {"data": data_version(snapshot.version), **tables}
