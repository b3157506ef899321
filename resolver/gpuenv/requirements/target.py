"""What a wheel, a marker or a version specifier says to a described target (rule R8).

The target is a Host: it may be this machine or one described from afar, so nothing here looks at the running
interpreter. `packaging` is the authority. Importing it costs a third of the time that a whole solve may take, so it
is asked only where neither of two short ways answers:

- versions and specifiers in the usual spelling are compared in versions.py;
- markers and wheel tags that the index snapshot mentions come with compiled answers (class Answers), which
  scripts/build_snapshot.py made by asking this module without them.

Tests hold both to packaging's own answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import DataError, InputError
from ..model import Host
from .versions import (
    contains,
    is_prerelease,
    normalize_name,
    parse_requirement,
    parse_stored_requirement,
    version_key,
)

__all__ = [
    "FIRST_FREE_THREADED",
    "NEWEST_GLIBC",
    "PLATFORMS",
    "PYTHONS",
    "Answers",
    "TargetEnvironment",
    "contains",
    "fits",
    "interpreter_tag",
    "is_prerelease",
    "marker_environment",
    "normalize_name",
    "parse_requirement",
    "parse_stored_requirement",
    "tag_orders",
    "version_key",
]

# The interpreters and platforms that the snapshot and its compiled answers serve. Any other is served by packaging.
PYTHONS = tuple((3, minor) for minor in range(9, 16))
FIRST_FREE_THREADED = (3, 13)
PLATFORMS = ("linux-x86_64", "linux-aarch64", "win-amd64")

# The newest manylinux policy that a target of unknown glibc is taken to have. glibc is released each February and
# August; 2.44 is the release of August 2026.
NEWEST_GLIBC = (2, 44)

_LEGACY = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}  # PEP 600: glibc 2.N
_OLDEST = {"x86_64": 5}  # the oldest glibc 2.N that packaging gives a manylinux tag for; 17 on other machines
_LAST_MINOR = 99  # ranks leave room for glibc 2.0 to 2.99
_PLATFORM_SLOTS = 1000  # more than the platforms of one interpreter and ABI
_BUILD_SLOTS = 1000  # ranks leave room for build numbers up to 999

Fit = tuple[int, int]  # the least glibc 2.N, the rank of the tag: smaller is better


# ---- tags and markers by packaging ----------------------------------------------------------------------------


def interpreter_tag(version: tuple[int, int], free_threaded: bool) -> str:
    """(3, 13), True -> "cp313t"."""
    return f"cp{version[0]}{version[1]}" + "t" * free_threaded


def _platform_fit(tag: str, machine: str) -> Fit | None:
    """The least glibc 2.N of a Linux platform tag and its place in packaging's order; None if it never fits."""
    if tag == f"linux_{machine}":
        return 0, 0
    if not tag.endswith(f"_{machine}"):
        return None
    policy, alias = tag[: -len(machine) - 1], 0
    if policy in _LEGACY:
        minor, alias = _LEGACY[policy], 1
    elif policy.startswith("manylinux_2_") and policy[12:].isdigit():
        minor = int(policy[12:])
    else:
        return None
    if not _OLDEST.get(machine, 17) <= minor <= _LAST_MINOR:
        return None
    return minor, 1 + 2 * (_LAST_MINOR - minor) + alias


def tag_orders(version: tuple[int, int], free_threaded: bool) -> tuple[dict[str, int], dict[str, int]]:
    """packaging's order of "interpreter-abi": for tags with a platform, and for those with "any"."""
    from packaging.tags import compatible_tags, cpython_tags

    interpreter = f"cp{version[0]}{version[1]}"
    abi = interpreter_tag(version, free_threaded)
    tags = [*cpython_tags(version, [abi], ["here"]), *compatible_tags(version, interpreter, ["here"])]
    orders: dict[str, dict[str, int]] = {"here": {}, "any": {}}
    for place, tag in enumerate(tags):
        orders[tag.platform].setdefault(f"{tag.interpreter}-{tag.abi}", place)
    return orders["here"], orders["any"]


def fits(host: Host, orders: tuple[dict[str, int], dict[str, int]], tags: str) -> list[Fit]:
    """How "cp312-cp312-manylinux_2_28_x86_64" (each part may be a set: "py2.py3") fits a target of any glibc.

    Pairs (least glibc 2.N, rank), the best rank for each glibc; [] if it never fits. Ranks follow the order of
    packaging.tags: by interpreter and ABI first, then newest platform first.
    """
    interpreters, abis, platforms = (part.split(".") for part in tags.split("-"))
    found: dict[int, int] = {}
    for platform in platforms:
        fit: Fit | None = (0, 0)
        if host.os == "windows":
            machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(host.machine, host.machine)
            fit = (0, 0) if platform in ("any", f"win_{machine}") else None
        elif platform != "any":
            fit = _platform_fit(platform, host.machine)
        if fit is None:
            continue
        order = orders[platform == "any"]
        places = [order[f"{i}-{a}"] for i in interpreters for a in abis if f"{i}-{a}" in order]
        if places:
            rank = min(places) * _PLATFORM_SLOTS + fit[1]
            found[fit[0]] = min(rank, found.get(fit[0], rank))
    return sorted(found.items())


def marker_environment(host: Host) -> dict[str, str]:
    """The PEP 508 variables of a target. A target with no full Python version is taken to be X.Y.0."""
    short = f"{host.python.version[0]}.{host.python.version[1]}"
    full = host.python.full_version or f"{short}.0"
    windows = host.os == "windows"
    machine = {"x86_64": "AMD64", "aarch64": "ARM64"}.get(host.machine, host.machine) if windows else host.machine
    return {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "nt" if windows else "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Windows" if windows else "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": short,
        "sys_platform": "win32" if windows else "linux",
    }


# ---- compiled answers -----------------------------------------------------------------------------------------


class Answers:
    """What packaging said about the tags and markers of the snapshot. None everywhere means "ask packaging".

    `data` has "tags" (tag triples), "fits" (environment -> for each triple "" or "glibc 2.N, rank, ...", apart by
    spaces, the triples by commas) and "markers" (marker -> {extra: bits}), where bit 3 * n + m stands for PYTHONS[n] on
    PLATFORMS[m]. A solve has one environment: the others stay texts, which are read faster.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        try:
            self._places = {tags: place for place, tags in enumerate(data["tags"])}
            self._fits: dict[str, str] = data["fits"]
            self._markers: dict[str, dict[str, int]] = data["markers"]
            self._rows: dict[str, list[str]] = {}
        except (KeyError, TypeError) as error:
            raise DataError(f"the compiled answers of the index snapshot are damaged: {error!r}") from None

    def fits(self, environment: str, tags: str) -> list[Fit] | None:
        """As the function `fits`, for an environment such as "cp313t-linux-x86_64"."""
        place, text = self._places.get(tags), self._fits.get(environment)
        if place is None or text is None:
            return None
        if environment not in self._rows:
            self._rows[environment] = text.split(",")
        row = self._rows[environment]
        numbers = list(map(int, row[place].split()))
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def marker(self, text: str, python: tuple[int, int], platform: str, extras: Sequence[str]) -> bool | None:
        """Whether the marker holds with any of the extras, which are normalized."""
        bits = self._markers.get(text)
        if bits is None or python not in PYTHONS or platform not in PLATFORMS:
            return None
        bit = 3 * PYTHONS.index(python) + PLATFORMS.index(platform)
        return any(bits.get(extra, bits[""]) >> bit & 1 for extra in extras or ("",))


class TargetEnvironment:
    """Answers about tags, markers and versions for a target. Every answer is cached."""

    def __init__(self, host: Host, answers: Answers | None = None) -> None:
        self.host = host
        self._answers = answers
        self._name = f"{interpreter_tag(host.python.version, host.python.free_threaded)}-{host.platform}"
        major, minor = host.glibc or NEWEST_GLIBC
        self._glibc = minor if major == NEWEST_GLIBC[0] else _LAST_MINOR * (major > NEWEST_GLIBC[0])
        self._python = _three_numbers(host)
        self._fitted: dict[str, list[Fit]] = {}
        self._ranks: dict[str, int | None] = {}
        self._answered: dict[tuple[str, tuple[str, ...]], bool] = {}
        self._contained: dict[tuple[str, str, bool], bool] = {}
        self._orders: tuple[dict[str, int], dict[str, int]] | None = None
        self._variables: dict[str, str] | None = None

    def rank(self, filename: str) -> int | None:
        """None if the wheel does not fit the target; else smaller is better.

        The order is packaging's for the tags, then the greater build number (PEP 427). A target of unknown glibc is
        taken to have the newest known one. A name that is not a wheel's fits nothing.
        """
        head, *triple = filename.rsplit("-", 3)
        dashes = head.count("-")
        if len(triple) != 3 or dashes not in (1, 2) or not filename.endswith(".whl"):
            return None
        tags = filename[len(head) + 1 : -len(".whl")]
        if tags not in self._ranks:
            # One triple serves many files of a page.
            self._ranks[tags] = min((rank for glibc, rank in self._fits(tags) if glibc <= self._glibc), default=None)
        best = self._ranks[tags]
        if best is None:
            return None
        if dashes == 1:
            return best * _BUILD_SLOTS + _BUILD_SLOTS - 1
        build = head.rpartition("-")[2]
        number = build[: next((at for at, char in enumerate(build) if not char.isdigit()), len(build))]
        return best * _BUILD_SLOTS + _BUILD_SLOTS - 1 - min(int(number or 0), _BUILD_SLOTS - 1)

    def least_glibc(self, filename: str) -> tuple[int, int] | None:
        """The oldest glibc on which the wheel fits this interpreter; None if it needs none, never fits or is none."""
        if not filename.endswith(".whl"):
            return None
        fitted = self._fits("-".join(filename.removesuffix(".whl").split("-")[-3:]))
        least = min((glibc for glibc, _ in fitted), default=0)
        return (NEWEST_GLIBC[0], least) if least else None

    def _fits(self, tags: str) -> list[Fit]:
        if tags not in self._fitted:
            known = self._answers.fits(self._name, tags) if self._answers else None
            if known is None:
                self._orders = self._orders or tag_orders(self.host.python.version, self.host.python.free_threaded)
                known = fits(self.host, self._orders, tags)
            self._fitted[tags] = known
        return self._fitted[tags]

    def marker(self, text: str, extras: Sequence[str]) -> bool:
        """Whether a marker holds on the target with any of the extras ((): with none). InputError for nonsense."""
        key = text, tuple(map(normalize_name, extras)) if extras else ()
        if text.startswith('extra == "') and text.count('"') == 2:
            return bool(extras) and normalize_name(text[10:-1]) in key[1]
        if key not in self._answered:
            known = None
            if self._answers:
                known = self._answers.marker(text, self.host.python.version, self.host.platform, key[1])
            self._answered[key] = self._marker(*key) if known is None else known
        return self._answered[key]

    def _marker(self, text: str, extras: tuple[str, ...]) -> bool:
        from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

        self._variables = self._variables or marker_environment(self.host)
        try:
            marker = Marker(text)
            return any(marker.evaluate({**self._variables, "extra": extra}) for extra in extras or ("",))
        except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName) as error:
            first = str(error).partition("\n")[0]
            raise InputError(f"the environment marker {text!r} cannot be evaluated: {first}") from None

    def accepts_python(self, requires_python: str | None) -> bool:
        """Whether the target's Python satisfies a Requires-Python. InputError for nonsense.

        As pip does, three numbers are compared: a candidate of 3.15.0 counts as 3.15.0.
        """
        return not requires_python or self.contains(requires_python, self._python, pre=True)

    def contains(self, specifier: str, version: str, pre: bool) -> bool:
        """Whether a PEP 440 specifier set admits a version; `pre` lets pre-releases in. InputError for nonsense."""
        key = specifier, version, pre
        if key not in self._contained:
            self._contained[key] = contains(specifier, version, pre)
        return self._contained[key]

    def is_prerelease(self, version: str) -> bool:
        """Whether PEP 440 calls the version an alpha, beta, candidate or development release."""
        return is_prerelease(version)


def _three_numbers(host: Host) -> str:
    """The target's Python as "3.12.3"; "3.12.0" where only 3.12 is known."""
    major, minor = host.python.version
    third = (host.python.full_version or "").split(".")[2:3]
    micro = third[0] if third else ""
    end = next((at for at, char in enumerate(micro) if not char.isdigit()), len(micro))
    return f"{major}.{minor}.{int(micro[:end] or 0)}"
