"""The compatibility data and the index snapshot, loaded once in a process."""

from __future__ import annotations

import os

from ..compat.catalog import Catalog
from ..compat.data import compatibility_data
from ..index.snapshot import Snapshot


def snapshot() -> Snapshot:
    """Return the index snapshot, without the place of the default index's files."""
    return Snapshot(os.path.join(compatibility_data().folder, "snapshot"), "")


def data_version(snapshot_version: str = "") -> str:
    """Return the version of all data that a solve would use now, as locks record it.

    Args:
        snapshot_version: that of the index snapshot, if it was read already.
    """
    matrix = compatibility_data()
    text = f"matrix {matrix.version}, index snapshot {snapshot_version or snapshot().version}"
    if matrix.user_rows.rows:
        rows = matrix.user_rows
        text += f", {rows.count()} rows of matrix update of {rows.date}"
    return text


def matrix_catalog() -> Catalog:
    """Return the known releases of frameworks and libraries, with their device code."""
    return Catalog(compatibility_data(), snapshot().files)
