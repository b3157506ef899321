"""The installed distributions, read from the folders on sys.path.

importlib.metadata reads the same files. Its imports (email, zipfile) take longer than all else that
a probe of a small environment does, so only the requirements of eggs are left to it. It also finds
distributions inside zip files, which this module does not.

Runs on Python 3.9 and later; standard library only. File formats: core metadata (PEP 566), which
has the headers of an e-mail, and the installed-distributions format (PEP 376, PEP 627).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

# A header, or a further line of the header above it.
_HEADER = re.compile(r"([!-9;-~]+):[ \t]*(.*)|([ \t].*)")


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
            # pip renames what it is about to remove to ~ame; an interrupted pip leaves that behind.
            if not name.startswith("~") and _is_info(folder, name):
                distribution = _distribution(folder, os.path.join(folder, name))
                if distribution.name:
                    yield distribution


def normalize(name: str) -> str:
    """Return the normalized name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_info(folder: str, name: str) -> bool:
    """Return whether the entry of a folder describes a distribution."""
    name = name.lower()
    is_egg = folder.endswith(".egg") and name == "egg-info"
    return is_egg or name.endswith((".dist-info", ".egg-info"))


def _distribution(folder: str, info: str) -> InstalledDistribution:
    """Return the distribution that a .dist-info describes; its name is "" without metadata."""
    metadata = _read(os.path.join(info, "METADATA"))
    if metadata is None:  # of an egg; before setuptools, the .egg-info itself was the file
        metadata = _read(os.path.join(info, "PKG-INFO")) or _read(info) or ""
    headers = _headers(metadata)
    requires = headers.get("requires-dist", [])
    if not requires and os.path.isfile(os.path.join(info, "requires.txt")):
        from importlib.metadata import Distribution

        requires = list(Distribution.at(info).requires or ())
    return InstalledDistribution(
        name=normalize(headers.get("name", [""])[0]),
        version=headers.get("version", [""])[0],
        requires=requires,
        folder=folder,
        info=info,
    )


def _headers(metadata: str) -> dict[str, list[str]]:
    """Return the values of each header; the keys are in lower case."""
    headers: dict[str, list[str]] = {}
    values: list[str] = []
    for line in metadata.split("\n"):
        match = _HEADER.fullmatch(line)
        if match is None:  # The rest is the description.
            break
        key, value, continued = match.groups()
        if key:
            values = headers.setdefault(key.lower(), [])
            values.append(value)
        elif values:
            values[-1] += "\n" + continued
    return headers


def _read(path: str) -> str | None:
    """Return the text of a file; None if there is none or it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None
