"""The target of a solve: what wheels, markers and specifiers say to a host (rule R8).

The target is a Host. It may be this machine or one that is described by flags, so nothing here
looks at the running interpreter. `packaging` gives every answer, but for the platform tags of a
Linux that is not this one: it lists those of the running machine only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from packaging.markers import Marker
from packaging.tags import InvalidTag, Tag, compatible_tags, cpython_tags, parse_tag
from packaging.utils import parse_sdist_filename, parse_wheel_filename

from ..errors import InputError
from ..model import Host, show_pair
from .versions import contains, is_prerelease, normalize_name, parse_requirement, version_key

__all__ = [
    "FIRST_FREE_THREADED",
    "LEGACY_POLICIES",
    "NEWEST_GLIBC",
    "PLATFORMS",
    "PYTHONS",
    "TargetEnvironment",
    "contains",
    "interpreter_tag",
    "is_prerelease",
    "marker_environment",
    "normalize_name",
    "parse_requirement",
    "split_label",
    "version_key",
    "wheel_tags",
]

# The interpreters and platforms that gpuenv knows.
PYTHONS = tuple((3, minor) for minor in range(9, 16))
FIRST_FREE_THREADED = (3, 13)
# Host.platform -> (Host.os, Host.machine)
PLATFORMS = {
    "linux-x86_64": ("linux", "x86_64"),
    "linux-aarch64": ("linux", "aarch64"),
    "win-amd64": ("windows", "x86_64"),
}

# The glibc of a target whose glibc is not known: that of August 2026. Releases are in February and
# August.
NEWEST_GLIBC = (2, 44)

LEGACY_POLICIES = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}  # PEP 600, glibc 2.N
# The oldest glibc 2.N that packaging has a manylinux tag for.
_OLDEST_GLIBC = {"x86_64": 5}
_OLDEST_GLIBC_ELSEWHERE = 17
_LAST_MINOR = 99
_BUILD_SLOTS = 1000  # ranks have room for build numbers up to 999
SDIST_SUFFIXES = (".tar.gz", ".zip")
FILE_SUFFIXES = (".whl", *SDIST_SUFFIXES)  # of what can be installed
_LONGEST_NAME = 500  # characters; file systems allow 255
SDIST_RANK = 1 << 62  # a source distribution ranks after every wheel

_LEAST_VARIANT_DASHES = 5  # name-version-python-abi-platform-label
_LABEL_CHARACTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyz_.")


def interpreter_tag(version: tuple[int, int], free_threaded: bool) -> str:
    """Return the ABI tag of an interpreter: (3, 13), True -> "cp313t"."""
    suffix = "t" if free_threaded else ""
    return f"cp{version[0]}{version[1]}{suffix}"


def _platform_tags(host: Host) -> dict[str, int]:
    """Return {platform tag: N of the glibc 2.N that it needs, or 0}, best first, for any glibc."""
    if host.os == "windows":
        return {f"win_{_windows_machine(host).lower()}": 0}
    platforms = {f"linux_{host.machine}": 0}
    oldest = _OLDEST_GLIBC.get(host.machine, _OLDEST_GLIBC_ELSEWHERE)
    for minor in range(_LAST_MINOR, oldest - 1, -1):
        platforms[f"manylinux_2_{minor}_{host.machine}"] = minor
        if minor in LEGACY_POLICIES:
            platforms[f"{LEGACY_POLICIES[minor]}_{host.machine}"] = minor
    return platforms


def _windows_machine(host: Host) -> str:
    """Return the machine as Windows and platform.machine() name it."""
    return {"x86_64": "AMD64", "aarch64": "ARM64"}.get(host.machine, host.machine)


def marker_environment(host: Host) -> dict[str, str]:
    """Return the PEP 508 variables of a target. Without a full Python version it is X.Y.0."""
    short = show_pair(host.python.version)
    full = host.python.full_version or f"{short}.0"
    variables = {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": host.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": short,
        "sys_platform": "linux",
    }
    if host.os == "windows":
        variables |= {
            "os_name": "nt",
            "platform_machine": _windows_machine(host),
            "platform_system": "Windows",
            "sys_platform": "win32",
        }
    return variables


def wheel_tags(filename: str) -> str:
    """Return the tags of a wheel, as "cp312-cp312-linux_x86_64"; "" for any other file."""
    parts = split_label(filename)[0].removesuffix(".whl").split("-")
    return "-".join(parts[-3:]) if filename.endswith(".whl") and len(parts) in (5, 6) else ""


def split_label(filename: str) -> tuple[str, str]:
    """Split the variant label off the file name of a wheel (PEP 825).

    The third part of the name is a build tag if it starts with a digit, otherwise the Python tag.

    Returns:
        The file name without the label, and the label; "" for a file that is no variant wheel.
    """
    if filename.count("-") < _LEAST_VARIANT_DASHES or not filename.endswith(".whl"):
        return filename, ""
    stem = filename.removesuffix(".whl")
    head, _, label = stem.rpartition("-")
    parts = head.split("-")
    has_build = parts[2][:1].isdigit()
    if len(parts) != 5 + has_build or not label or not _LABEL_CHARACTERS.issuperset(label):
        return filename, ""
    return f"{head}.whl", label


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


class TargetEnvironment:
    """Answers about wheels, markers and specifiers for one host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._glibc_minor = _glibc_minor(host)
        self._platforms = _platform_tags(host)
        # The tags of a target of any glibc, with their places in packaging's order, best first.
        self._places = _tag_places(host, self._platforms)
        self._variables = marker_environment(host)
        micro = re.match(r"\d+\.\d+\.(\d+)", host.python.full_version or "")
        self._python = f"{show_pair(host.python.version)}.{micro[1] if micro else 0}"
        # Most packages of a solve have the same few markers: 10 of the 180 ms of a torch solve.
        self._markers: dict[tuple[str, tuple[str, ...]], bool] = {}
        # The thousands of wheels of a solve have a few hundred tags.
        self._ranks: dict[str, int | None] = {}

    def _fits(self, tags: str) -> list[tuple[int, int]]:
        """Return (the glibc 2.N that it needs, its place) of each tag of a wheel that can fit."""
        try:
            return [
                (self._platforms.get(tag.platform, 0), self._places[tag])
                for tag in parse_tag(tags)
                if tag in self._places
            ]
        except InvalidTag:
            return []

    def _tags_rank(self, tags: str) -> int | None:
        if tags not in self._ranks:
            places = [place for glibc, place in self._fits(tags) if glibc <= self._glibc_minor]
            self._ranks[tags] = min(places, default=None)
        return self._ranks[tags]

    def rank(self, filename: str) -> int | None:
        """Return how well a wheel fits the target (smaller is better); None if it does not fit.

        The order is that of packaging for the tags, then the greater build number (PEP 427). The
        name of a file that is not a wheel fits nothing.
        """
        rank = self._tags_rank(wheel_tags(filename))
        if rank is None:
            return None
        build = re.match(r"[^-]*-[^-]*-(\d{1,9})", filename)
        number = min(int(build[1]), _BUILD_SLOTS - 1) if build else 0
        return rank * _BUILD_SLOTS + _BUILD_SLOTS - 1 - number

    def fits(self, tags: str) -> bool:
        """Return whether a wheel with these tags (see wheel_tags) fits the target."""
        return self._tags_rank(tags) is not None

    def least_glibc(self, filename: str) -> tuple[int, int] | None:
        """Return the oldest glibc on which a wheel fits this interpreter; None if it needs none.

        None, too, for a wheel that never fits and for a file that is not a wheel.
        """
        least = min((glibc for glibc, _ in self._fits(wheel_tags(filename))), default=0)
        return (NEWEST_GLIBC[0], least) if least else None

    def marker(self, text: str, extras: Sequence[str]) -> bool:
        """Return whether a marker holds on the target with any of some extras, or with none.

        Raises:
            InputError: the marker cannot be evaluated.
        """
        key = text, tuple(extras)
        if key in self._markers:
            return self._markers[key]
        try:
            marker = Marker(text)
            self._markers[key] = any(
                marker.evaluate({**self._variables, "extra": extra}) for extra in extras or ("",)
            )
            return self._markers[key]
        except (ValueError, RecursionError) as error:
            detail = str(error).partition("\n")[0]
            raise InputError(
                f"the environment marker {text!r} cannot be evaluated: {detail}"
            ) from None

    def accepts_python(self, requires_python: str | None) -> bool:
        """Return whether the target's Python satisfies a Requires-Python.

        As in pip, three numbers are compared: a release candidate of 3.15.0 counts as 3.15.0.

        Raises:
            InputError: Requires-Python is not a specifier.
        """
        if not requires_python:
            return True
        return contains(requires_python, self._python)


def _tag_places(host: Host, platforms: Iterable[str]) -> dict[Tag, int]:
    python = host.python
    abi = interpreter_tag(python.version, python.free_threaded)
    abi += "m" if python.version < (3, 8) else ""
    tags = [
        *cpython_tags(python.version, [abi], platforms),
        *compatible_tags(python.version, interpreter_tag(python.version, False), platforms),
    ]
    return {tag: place for place, tag in reversed(list(enumerate(tags)))}


def _glibc_minor(host: Host) -> int:
    """Return N of the target's glibc 2.N. Another major version has all 2.N, or none."""
    major, minor = host.glibc or NEWEST_GLIBC
    if major == NEWEST_GLIBC[0]:
        return minor
    return _LAST_MINOR if major > NEWEST_GLIBC[0] else 0
