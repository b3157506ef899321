"""The compatibility data and the index snapshot, loaded once in a process."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the stages are imported when they are first used
    from ..compat.audit import Audit
    from ..compat.catalog import Catalog
    from ..compat.data import CompatibilityData
    from ..index.snapshot import Snapshot


@cache
def compatibility_data() -> CompatibilityData:
    """Return the compatibility data: drivers, GPUs, frameworks and their builds."""
    from ..compat import data

    return data.load()


def snapshot() -> Snapshot:
    """Return the index snapshot, without the place of the default index's files."""
    from ..index.snapshot import Snapshot

    return Snapshot(os.path.join(compatibility_data().folder, "snapshot"), "")


def data_version() -> str:
    """Return the version of all data that a solve would use now, as locks record it."""
    return f"matrix {compatibility_data().version}, index snapshot {snapshot().version}"


def matrix_catalog() -> Catalog:
    """Return the known releases of frameworks and libraries, with their device code."""
    from ..compat.catalog import Catalog

    return Catalog(compatibility_data(), snapshot().wheels)


def matrix_check() -> Audit:
    """Check that the data is consistent (in a checkout also with the scans)."""
    from ..compat.audit import check

    return check(compatibility_data(), snapshot().wheels)
