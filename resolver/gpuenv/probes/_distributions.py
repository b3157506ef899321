"""The installed distributions, read from the folders on sys.path.

importlib.metadata does not tell the folder of a .dist-info, and it lists what an interrupted pip
has left behind. So the folders are listed here.

Runs on Python 3.9 and later; standard library only. File formats: core metadata (PEP 566), and the
installed-distributions format (PEP 376, PEP 627).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import Distribution
from typing import NamedTuple


class InstalledDistribution(NamedTuple):
    """A distribution: its folder on sys.path, and its .dist-info or .egg-info below that.

    `name` is normalized (PEP 503). `requires` has the texts of the metadata.
    """

    name: str
    version: str
    requires: list[str]
    folder: str
    info: str

    def read_text(self, name: str) -> str | None:
        """Return the text of a file of the .dist-info; None if there is none."""
        return _read(os.path.join(self.info, name))


def distributions() -> Iterator[InstalledDistribution]:
    """Yield the distributions in the order of sys.path, also those that an earlier one hides."""
    for entry in sys.path:
        folder = os.path.abspath(entry)
        try:
            names = os.listdir(folder)
        except OSError:  # no folder, as python311.zip
            continue
        for name in names:
            lower = name.lower()
            is_egg = folder.endswith(".egg") and lower == "egg-info"
            # pip renames what it is about to remove to ~ame; an interrupted pip leaves that behind.
            if name.startswith("~") or not (is_egg or lower.endswith((".dist-info", ".egg-info"))):
                continue
            distribution = _distribution(folder, os.path.join(folder, name))
            if distribution.name:
                yield distribution


def normalize(name: str) -> str:
    """Return the normalized name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _distribution(folder: str, info: str) -> InstalledDistribution:
    """Return the distribution that a .dist-info describes; its name is "" without metadata."""
    metadata = _read(os.path.join(info, "METADATA"))
    if metadata is None:  # of an egg; before setuptools, the .egg-info itself was the file
        metadata = _read(os.path.join(info, "PKG-INFO")) or _read(info) or ""
    headers = HeaderParser().parsestr(metadata)
    requires = headers.get_all("Requires-Dist", [])
    if not requires and os.path.isfile(os.path.join(info, "requires.txt")):
        requires = list(Distribution.at(info).requires or ())
    return InstalledDistribution(
        name=normalize(headers.get("Name", "")),
        version=headers.get("Version", ""),
        requires=requires,
        folder=folder,
        info=info,
    )


def _read(path: str) -> str | None:
    """Return the text of a file; None if there is none or it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None
