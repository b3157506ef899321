"""Names and versions from file names of wheels and sdists; old spellings of Requires-Python.

An index lists thousands of files per package. File names in the usual spelling are read by a
regular expression, any other by `packaging`. This saves 2 s of the 9 s of CPU time of a live solve
of 124 packages. tests/test_index_pages.py compares the two.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from ..errors import InputError
from ..requirements.target import split_label
from ..requirements.versions import contains, normalize_name

_LONGEST_NAME = 500  # characters; file systems allow 255
SDIST_SUFFIXES = (".tar.gz", ".zip")

# The patterns are compiled when they are first used: a solve with a warm cache uses few of them.
# Versions in the usual spelling: without an epoch and with a local part of one word.
_NUMBER = r"(?:0|[1-9][0-9]*)"
_VERSION = (
    rf"[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc){_NUMBER})?"
    rf"(?:\.post{_NUMBER})?(?:\.dev{_NUMBER})?(?:\+[a-z][a-z0-9]*)?"
)
_NAME = r"[A-Za-z0-9]+(?:[{}][A-Za-z0-9]+)*"
_TAGS = (
    r"[A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z][A-Za-z0-9]*)*"
    r"(?:-[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*){2}"
)
_RELEASE = rf"({_NAME.format('._')})-({_VERSION})"
_END_OF_WHEEL = rf"(?:[0-9][A-Za-z0-9_]*-)?{_TAGS}\.whl"
_SDIST = rf"({_NAME.format('._-')})-({_VERSION})\.(?:tar\.gz|zip)"

_ZEROS = r"(?<![a-z0-9])0+(?=[0-9])"  # as in 2024.07.04, which is 2024.7.4

# Old metadata has ">=1.0.*", which PEP 440 forbids. It was always read as ">=1.0".
_STARRED = r"((?:>=|<=|~=|>|<)\s*[0-9][0-9.]*?)\.\*"


def identify(filename: str) -> tuple[str, str] | None:
    """Return the normalized (name, version) of a wheel or sdist, None for any other file name.

    The name of a variant wheel ends in a label (PEP 825).
    """
    if len(filename) > _LONGEST_NAME:
        return None
    release = _identify_usual(filename)
    if release is not None:
        return release
    ordinary, label = split_label(filename)
    if label:  # packaging knows no variant wheels
        return identify(ordinary)
    return _identify_with_packaging(filename)


def _identify_usual(filename: str) -> tuple[str, str] | None:
    """Return the name and version of a file in the usual spelling, None for any other file name."""
    if not filename.endswith(".whl"):
        return _to_release(re.fullmatch(_SDIST, filename))
    # The files of a release begin alike, and those of all releases have few ends.
    parts = filename.split("-", 2)
    if len(parts) < 3 or not _is_end_of_wheel(parts[2]):
        return None
    return _wheel_release(parts[0], parts[1])


@lru_cache
def _wheel_release(name: str, version: str) -> tuple[str, str] | None:
    return _to_release(re.fullmatch(_RELEASE, f"{name}-{version}"))


@lru_cache(1024)
def _is_end_of_wheel(end: str) -> bool:
    return re.fullmatch(_END_OF_WHEEL, end) is not None


def _to_release(match: re.Match[str] | None) -> tuple[str, str] | None:
    return (normalize_name(match[1]), re.sub(_ZEROS, "", match[2])) if match is not None else None


def _identify_with_packaging(filename: str) -> tuple[str, str] | None:
    if not filename.isprintable() or "/" in filename or "\\" in filename:
        return None
    from packaging.utils import parse_sdist_filename, parse_wheel_filename  # heavy

    try:
        if filename.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(filename)
        elif filename.endswith(SDIST_SUFFIXES):
            name, version = parse_sdist_filename(filename)
        else:
            return None
    except ValueError:  # also for a number with thousands of digits
        return None
    return str(name), str(version)


def is_sdist(filename: str) -> bool:
    """Return whether a file name is that of a source distribution."""
    return filename.endswith(SDIST_SUFFIXES)


def repair_specifiers(text: str) -> str:
    """Return specifiers without the stars that PEP 440 forbids (">=1.0.*" becomes ">=1.0")."""
    return re.sub(_STARRED, r"\1", text)


@cache
def parse_requires_python(text: str | None) -> str | None:
    """Return a Requires-Python value that PEP 440 accepts, repaired if necessary.

    None if there is none or it cannot be read; pip ignores such a value, too.
    """
    if not text:
        return None
    for specifiers in (text, repair_specifiers(text)):
        try:
            contains(specifiers, "3", True)
        except InputError:
            continue
        return specifiers
    return None
