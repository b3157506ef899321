"""Whether the texts of a lock are what they stand for: names, versions, file names and URLs.

A lock is input. Whoever writes it can write its digest, too, so every reader of locks checks every
package. Installers get these texts in a file of requirements. After the check, none of them can be
an option, a second line, or a variable that the installer expands.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from ..errors import InputError
from ..model import Wheel
from ..requirements.target import split_label, version_key

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")  # PEP 503, normalized
_CONDA_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*")
_CONDA_VERSION = re.compile(r"[A-Za-z0-9_.!+~]+")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.!+~-]*")
# The characters of RFC 3986: no spaces, no line breaks, and no braces as in ${NAME}.
_URL = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
_SCHEMES = ("https", "http", "file")
_BUILD_SETTING = re.compile(
    r"((requirement|constraint) [\w*-]+ [A-Za-z0-9]|(config|variable) [\w*-]+ [\w.+:-]+=)[^\r\n$]*"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_wheel(wheel: Wheel) -> None:
    """Raise ValueError for a file of the Python package index that is not what it should be."""
    _check_release(wheel)
    _check_file(wheel)
    if wheel.index:
        _check(_URL, wheel.index, f"package {wheel.name}: the index", "is no URL (RFC 3986)")


def _check_release(wheel: Wheel) -> None:
    _check(_NAME, wheel.name, "package", "is not the normalized name of a package (PEP 503)")
    try:
        version_key(wheel.version)
    except (InputError, TypeError):
        raise ValueError(f"package {wheel.name}: {wheel.version!r} is no version") from None


def check_tree(wheel: Wheel) -> None:
    """Raise ValueError for a source tree that is not what it should be."""
    _check_release(wheel)
    subject = f"package {wheel.name}:"
    _check(_FILE_NAME, wheel.filename, subject, "is no file name of a package")
    _check(_URL, wheel.url, subject, "is no URL (RFC 3986)")
    is_commit = re.fullmatch(
        r"git\+(https|http|ssh|git|file)://[^-].*@([0-9a-f]{40}|[0-9a-f]{64})(#.*)?", wheel.url
    )
    if not is_commit and not wheel.url.startswith("file:///"):
        raise ValueError(f"{subject} {wheel.url} is no commit of a repository and no folder")


def check_conda_package(wheel: Wheel) -> None:
    """Raise ValueError for a file of a conda channel that is not what it should be."""
    _check(_CONDA_NAME, wheel.name, "package", "is not the name of a conda package")
    subject = f"package {wheel.name}: version"
    _check(_CONDA_VERSION, wheel.version, subject, "is no version of conda")
    _check_file(wheel)


def check_sha256(name: str, sha256: object) -> str:
    """Return the sha256 of a file. Raise ValueError if it is none."""
    if isinstance(sha256, str) and _SHA256.fullmatch(sha256):
        return sha256
    raise ValueError(
        f"package {name} has no sha256 of its file, and nothing is installed without one"
    )


def check_built_with(name: str, package: object) -> str:
    """Return the package that a source distribution is built with, "" for none; or ValueError."""
    if package != "":
        _check(_NAME, package, f"package {name}: built-with", "is no normalized name (PEP 503)")
    return str(package)


def check_build_settings(name: str, texts: object) -> tuple[str, ...]:
    """Return what a lock says about the build of a package (IndexOptions); or ValueError."""
    settings = texts if isinstance(texts, list) else [texts]
    for text in settings:
        _check(_BUILD_SETTING, text, f"package {name}: build-settings", "is no setting of a build")
    return tuple(settings)


def _check_file(wheel: Wheel) -> None:
    subject = f"package {wheel.name}:"
    _check(_FILE_NAME, wheel.filename, subject, "is no file name of a package")
    _check(_URL, wheel.url, subject, "is no URL (RFC 3986)")
    try:
        parts = urlsplit(wheel.url)
    except ValueError:
        raise ValueError(f"{subject} {wheel.url!r} is no URL (RFC 3986)") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"{subject} {wheel.url} has the scheme {parts.scheme!r}; locks have https")
    # A lock has a variant wheel under its ordinary name, without the label; uv normalizes names.
    last_part = unquote(parts.path.rpartition("/")[2])
    names = (wheel.filename, last_part, split_label(last_part)[0])
    own, *others = (re.sub(r"[-_.]+", "-", name).lower() for name in names)
    if own not in others:
        raise ValueError(f"{subject} its file is {wheel.filename}, and its url is {wheel.url}")


def _check(pattern: re.Pattern[str], text: object, subject: str, problem: str) -> None:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(f"{subject} {text!r} {problem}")
