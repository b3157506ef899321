"""The distributions that are installed in folders of packages.

File formats: core metadata (PEP 566), the installed-distributions format (PEP 376, PEP 627), RECORD
(PEP 427). importlib.metadata does not tell the folder of a .dist-info, and it lists what an
interrupted pip has left behind.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterable, Iterator, Sequence
from email.parser import HeaderParser

from packaging.utils import canonicalize_name

from .model import Value

_DEBIAN = "/usr/lib/python3/dist-packages"


class Distribution(Value):
    """A distribution: its folder on sys.path, and its .dist-info or .egg-info.

    `requires` has the texts of the metadata.
    """

    name: str
    version: str
    requires: tuple[str, ...] = ()
    folder: str = ""
    info: str = ""
    of_conda: bool = False  # conda installed it

    def read_text(self, name: str) -> str:
        """Return the text of a file of the .dist-info; "" if there is none."""
        return _read(os.path.join(self.info, name)) or ""

    @property
    def is_direct(self) -> bool:
        """Whether it is from a folder, a file or a URL (PEP 610): no index has it."""
        return self.read_text("direct_url.json") != ""

    @property
    def has_own_record(self) -> bool:
        """Whether its RECORD and its requirements hold.

        They do not for packages of conda and Debian: these change files and keep other records.
        """
        return not self.of_conda and not self.folder.startswith(_DEBIAN)


def read_distributions(path: Iterable[str]) -> Iterator[Distribution]:
    """Yield the distributions in the order of a path, also those that an earlier one hides."""
    for folder in path:
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
            distribution = _read_distribution(folder, os.path.join(folder, name))
            if distribution.name:
                yield distribution


def _read_distribution(folder: str, info: str) -> Distribution:
    """Return the distribution that a .dist-info describes.

    A file of it may be missing: with a RECORD, the name of the folder tells which one it is.
    Otherwise its name is "" without metadata.
    """
    metadata = _read(os.path.join(info, "METADATA"))
    if metadata is None:  # of an egg; before setuptools, the .egg-info itself was the file
        metadata = _read(os.path.join(info, "PKG-INFO")) or _read(info) or ""
    headers = HeaderParser().parsestr(metadata)
    requires: Sequence[str] = headers.get_all("Requires-Dist", [])
    if not requires and os.path.isfile(os.path.join(info, "requires.txt")):
        requires = importlib.metadata.Distribution.at(info).requires or ()
    name = version = ""
    if os.path.isfile(os.path.join(info, "RECORD")):
        name, _, version = os.path.basename(info).removesuffix(".dist-info").partition("-")
    return Distribution(
        name=canonicalize_name(headers.get("Name", name)),
        version=headers.get("Version", version),
        requires=tuple(requires),
        folder=folder,
        info=info,
        of_conda=(_read(os.path.join(info, "INSTALLER")) or "").strip() == "conda",
    )


def _read(path: str) -> str | None:
    """Return the text of a file; None if there is none or it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None
