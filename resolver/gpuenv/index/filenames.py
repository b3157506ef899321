"""What the file name of a wheel or sdist says, and what an old index writes where a Python range should be.

An index lists thousands of files of a package, nearly all of them named in the usual spelling. Those are read here;
`packaging` is asked about any other.
"""

from __future__ import annotations

import re
from functools import cache

from ..errors import InputError
from ..requirements.target import contains, normalize_name

SDISTS = (".tar.gz", ".zip")

# Versions as PEP 440 normalizes them: they are written back as they stand. No epoch; a local part of one word.
_NUMBER = r"(?:0|[1-9][0-9]*)"
_VERSION = (
    rf"{_NUMBER}(?:\.{_NUMBER})*(?:(?:a|b|rc){_NUMBER})?(?:\.post{_NUMBER})?(?:\.dev{_NUMBER})?(?:\+[a-z][a-z0-9]*)?"
)
_NAME = r"[A-Za-z0-9]+(?:[{}][A-Za-z0-9]+)*"
_TAGS = r"[A-Za-z][A-Za-z0-9]*(?:\.[A-Za-z][A-Za-z0-9]*)*(?:-[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*){2}"
_WHEEL = re.compile(rf"({_NAME.format('._')})-({_VERSION})(?:-[0-9][A-Za-z0-9_]*)?-{_TAGS}\.whl")
_SDIST = re.compile(rf"({_NAME.format('._-')})-({_VERSION})\.(?:tar\.gz|zip)")


def identify(filename: str) -> tuple[str, str] | None:
    """(normalized name, normalized version) of the file name of a wheel or sdist; None if it is of neither."""
    usual = _WHEEL.fullmatch(filename) or _SDIST.fullmatch(filename)
    return (normalize_name(usual[1]), usual[2]) if usual else _asked(filename)


def _asked(filename: str) -> tuple[str, str] | None:
    """What packaging makes of a file name."""
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    if not filename.endswith((".whl", *SDISTS)) or not filename.isprintable() or "/" in filename or "\\" in filename:
        return None
    try:
        parse = parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename
        name, version = parse(filename)[:2]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    return str(name), str(version)


# Old files say ">=1.0.*", which PEP 440 forbids and which never meant anything but ">=1.0".
_STARRED = re.compile(r"((?:>=|<=|~=|>|<)\s*[0-9][0-9.]*?)\.\*")


def without_stars(text: str) -> str:
    """Specifiers as old files meant them."""
    return _STARRED.sub(r"\1", text)


@cache
def python_range(text: str | None) -> str | None:
    """A Requires-Python as PEP 440 has it; None for one that cannot be read, which pip passes over, too."""
    for one in (text, without_stars(text)) if text else ():
        try:
            contains(one, "3", True)
        except InputError:
            continue
        return one
    return None
