"""Names and versions from file names of wheels and sdists; old spellings of Requires-Python."""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.specifiers import SpecifierSet
from packaging.utils import parse_sdist_filename, parse_wheel_filename

from ..requirements.target import split_label

SDIST_SUFFIXES = (".tar.gz", ".zip")

_LONGEST_NAME = 500  # characters; file systems allow 255
# Old metadata has ">=1.0.*", which PEP 440 forbids. It was always read as ">=1.0".
_STARRED = r"((?:>=|<=|~=|>|<)\s*[0-9][0-9.]*?)\.\*"


def identify(filename: str) -> tuple[str, str] | None:
    """Return the normalized (name, version) of a wheel or sdist, None for any other file name.

    The name of a variant wheel ends in a label (PEP 825), which packaging does not know.
    """
    filename = split_label(filename)[0]
    if len(filename) > _LONGEST_NAME or not filename.isprintable() or set(filename) & {*"/\\"}:
        return None
    try:
        if filename.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(filename)
        elif filename.endswith(SDIST_SUFFIXES):
            name, version = parse_sdist_filename(filename)
        else:
            return None
    except ValueError:  # also for a number with thousands of digits
        return None
    return name, str(version)


def is_sdist(filename: str) -> bool:
    """Return whether a file name is that of a source distribution."""
    return filename.endswith(SDIST_SUFFIXES)


def repair_specifiers(text: str) -> str:
    """Return specifiers without the stars that PEP 440 forbids (">=1.0.*" becomes ">=1.0")."""
    return re.sub(_STARRED, r"\1", text)


@lru_cache  # the files of a page have few values
def parse_requires_python(text: object) -> str | None:
    """Return a Requires-Python value that PEP 440 accepts, repaired if necessary.

    None if there is none or it cannot be read; pip ignores such a value, too.
    """
    for specifiers in (text, repair_specifiers(text)) if isinstance(text, str) and text else ():
        try:
            SpecifierSet(specifiers)
        except ValueError:
            continue
        return specifiers
    return None
