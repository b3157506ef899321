"""The target of a solve: what wheels, markers and specifiers say to a host (rule R8).

The target is a Host. It may be this machine or one that is described by flags, so nothing here
looks at the running interpreter. packaging is the authority. It is asked only if neither of two
faster ways has an answer, because importing it takes a good part of the time of a solve:

- versions.py compares versions and specifiers in the usual spelling;
- the index snapshot has the answers of packaging about its own markers and wheel tags (class
  Answers). scripts/build_snapshot.py made them with the functions of this module.

tests/test_environment.py compares both with packaging.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from ..errors import DataError, InputError
from ..model import Host, show_pair
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
    "split_label",
    "tag_orders",
    "version_key",
    "wheel_tags",
]

# The interpreters and platforms that gpuenv knows, and that the snapshot has answers for.
PYTHONS = tuple((3, minor) for minor in range(9, 16))
FIRST_FREE_THREADED = (3, 13)
# Host.platform -> (Host.os, Host.machine)
PLATFORMS = {
    "linux-x86_64": ("linux", "x86_64"),
    "linux-aarch64": ("linux", "aarch64"),
    "win-amd64": ("windows", "x86_64"),
}

# The bit of an interpreter and a platform in the answers of the snapshot.
_BITS = {
    (python, platform): len(PLATFORMS) * number + place
    for number, python in enumerate(PYTHONS)
    for place, platform in enumerate(PLATFORMS)
}

# The glibc of a target whose glibc is not known: that of August 2026. Releases are in February and
# August.
NEWEST_GLIBC = (2, 44)

_LEGACY_POLICIES = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}  # PEP 600: 2.N
# The oldest glibc 2.N that packaging has a manylinux tag for.
_OLDEST_GLIBC = {"x86_64": 5}
_OLDEST_GLIBC_ELSEWHERE = 17
_LAST_MINOR = 99  # ranks have room for glibc 2.0 to 2.99
_PLATFORM_SLOTS = 1000  # more than the platforms of one interpreter and ABI
_BUILD_SLOTS = 1000  # ranks have room for build numbers up to 999

_NUMERIC = "0123456789."
_LEAST_VARIANT_DASHES = 5  # name-version-python-abi-platform-label
_LABEL_CHARACTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyz_.")

Fit = tuple[int, int]  # (the least glibc 2.N, the rank of the tag); a smaller rank is better
TagOrders = tuple[dict[str, int], dict[str, int]]


# ---- tags and markers by packaging --------------------------------------------------------------


def interpreter_tag(version: tuple[int, int], free_threaded: bool) -> str:
    """Return the ABI tag of an interpreter: (3, 13), True -> "cp313t"."""
    suffix = "t" if free_threaded else ""
    return f"cp{version[0]}{version[1]}{suffix}"


def tag_orders(version: tuple[int, int], free_threaded: bool) -> TagOrders:
    """Return packaging's order of "interpreter-abi", the best one first.

    Returns:
        Two mappings to places: for tags with a platform, and for tags with "any".
    """
    from packaging.tags import compatible_tags, cpython_tags  # heavy

    interpreter = f"cp{version[0]}{version[1]}"
    abi = interpreter_tag(version, free_threaded)
    tags = [
        *cpython_tags(version, [abi], ["here"]),
        *compatible_tags(version, interpreter, ["here"]),
    ]
    orders: dict[str, dict[str, int]] = {"here": {}, "any": {}}
    for place, tag in enumerate(tags):
        orders[tag.platform].setdefault(f"{tag.interpreter}-{tag.abi}", place)
    return orders["here"], orders["any"]


def fits(host: Host, orders: TagOrders, tags: str) -> list[Fit]:
    """Return how a wheel's tags fit a target of any glibc.

    Ranks follow the order of packaging.tags: interpreter and ABI first, then the newest platform.

    Args:
        host: the target.
        orders: tag_orders() of the target's interpreter.
        tags: "cp312-cp312-manylinux_2_28_x86_64". Each part may be a set such as "py2.py3".

    Returns:
        The best rank for each glibc that the wheel asks for, by glibc; [] if it never fits.
    """
    interpreters, abis, platforms = (part.split(".") for part in tags.split("-"))
    ranks: dict[int, int] = {}
    for platform in platforms:
        fit = _platform_fit(platform, host)
        if fit is None:
            continue
        glibc, platform_rank = fit
        place = _best_place(orders[platform == "any"], interpreters, abis)
        if place is None:
            continue
        rank = place * _PLATFORM_SLOTS + platform_rank
        ranks[glibc] = min(rank, ranks.get(glibc, rank))
    return sorted(ranks.items())


def _best_place(
    order: Mapping[str, int], interpreters: Iterable[str], abis: Sequence[str]
) -> int | None:
    best: int | None = None
    for interpreter in interpreters:
        for abi in abis:
            place = order.get(f"{interpreter}-{abi}")
            if place is not None and (best is None or place < best):
                best = place
    return best


def _platform_fit(platform: str, host: Host) -> Fit | None:
    """Return the least glibc 2.N of a platform tag and its rank; None if it never fits."""
    if platform == "any":
        return 0, 0
    if host.os == "windows":
        return (0, 0) if platform == f"win_{_windows_machine(host).lower()}" else None
    return _linux_fit(platform, host.machine)


def _linux_fit(platform: str, machine: str) -> Fit | None:
    if platform == f"linux_{machine}":
        return 0, 0
    if not platform.endswith(f"_{machine}"):
        return None
    policy = platform.removesuffix(f"_{machine}")
    is_alias = policy in _LEGACY_POLICIES
    if is_alias:
        minor = _LEGACY_POLICIES[policy]
    elif policy.startswith("manylinux_2_") and policy.removeprefix("manylinux_2_").isdigit():
        minor = int(policy.removeprefix("manylinux_2_"))
    else:
        return None
    if not _OLDEST_GLIBC.get(machine, _OLDEST_GLIBC_ELSEWHERE) <= minor <= _LAST_MINOR:
        return None
    return minor, 1 + 2 * (_LAST_MINOR - minor) + is_alias


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


# ---- the snapshot's answers ---------------------------------------------------------------------


class Answers:
    """The answers of packaging about the tags and markers of the snapshot.

    An answer of None means: ask packaging.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        """Take the content of compiled.json.

        Args:
            document: "tags" is a list of tag triples. "fits" has for an environment, for each
                triple, "glibc rank glibc rank ..." or "", separated by commas; a solve has one
                environment, and the others stay texts, which load faster. "markers" is marker ->
                extra -> bits (see _BITS).

        Raises:
            DataError: one of them is missing.
        """
        try:
            self._places = {tags: place for place, tags in enumerate(document["tags"])}
            self._fits: dict[str, str] = document["fits"]
            self._markers: dict[str, dict[str, int]] = document["markers"]
        except (KeyError, TypeError) as error:
            raise DataError(
                f"the compiled answers of the index snapshot are damaged: {error!r}"
            ) from None
        self._rows: dict[str, list[str]] = {}

    def fits(self, environment: str, tags: str) -> list[Fit] | None:
        """Return what fits() does, for an environment such as "cp313t-linux-x86_64"."""
        place, text = self._places.get(tags), self._fits.get(environment)
        if place is None or text is None:
            return None
        if environment not in self._rows:
            self._rows[environment] = text.split(",")
        numbers = list(map(int, self._rows[environment][place].split()))
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def marker(
        self, text: str, python: tuple[int, int], platform: str, extras: Sequence[str]
    ) -> bool | None:
        """Return whether a marker holds with any of some normalized extras."""
        bits, bit = self._markers.get(text), _BITS.get((python, platform))
        if bits is None or bit is None:
            return None
        for extra in extras or ("",):
            if bits.get(extra, bits[""]) >> bit & 1:
                return True
        return False


def wheel_tags(filename: str) -> str:
    """Return the tags of a wheel, as "cp312-cp312-linux_x86_64"; "" for any other file."""
    _, *end = filename.split("-", 2)
    return _tags_of_end(end[-1]) if filename.endswith(".whl") and end else ""


@lru_cache(1024)  # the wheels of all releases of a package have few ends
def _tags_of_end(end: str) -> str:
    """Return the tags of a wheel by what follows the version in its file name."""
    ordinary = split_label(f"name-1-{end}")[0]
    return "-".join(ordinary.removesuffix(".whl").rsplit("-", 3)[1:])


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


# ---- the target ---------------------------------------------------------------------------------


class KeptAnswers(Protocol):
    """Answers of packaging that another process asked for (see index.snapshot)."""

    def find(self, question: str) -> object:
        """Return the answer to a question; None if it is not known."""

    def add(self, question: str, answer: object) -> None:
        """Keep an answer that `find` did not know."""


SDIST_RANK = 1 << 62  # a source distribution ranks after every wheel


class TargetEnvironment:
    """Answers about wheels, markers and specifiers for one host. Every answer is cached.

    Attributes:
        host: the target.
        kept: the answers of packaging that are kept between processes; None keeps none.
    """

    def __init__(self, host: Host, answers: Answers | None = None) -> None:
        self.host = host
        self.kept: KeptAnswers | None = None
        self._answers = answers
        tag = interpreter_tag(host.python.version, host.python.free_threaded)
        self._name = f"{tag}-{host.platform}"
        self._glibc_minor = _glibc_minor(host)
        self._python = _three_numbers(host)
        self._fits_of_tags: dict[str, list[Fit]] = {}
        self._rank_of_tags: dict[str, int | None] = {}
        self._markers: dict[tuple[str, tuple[str, ...]], bool] = {}
        self._contained: dict[tuple[str, str, bool], bool] = {}
        self._tag_orders: TagOrders | None = None
        self._variables: dict[str, str] | None = None

    def rank(self, filename: str) -> int | None:
        """Return how well a wheel fits the target (smaller is better); None if it does not fit.

        The order is that of packaging for the tags, then the greater build number (PEP 427). The
        name of a file that is not a wheel fits nothing.
        """
        filename = split_label(filename)[0]
        head, *triple = filename.rsplit("-", 3)
        dashes = head.count("-")
        if len(triple) != 3 or dashes not in (1, 2) or not filename.endswith(".whl"):
            return None
        tags = filename[len(head) + 1 : -len(".whl")]
        rank = self._tags_rank(tags)
        if rank is None:
            return None
        build = 0
        if dashes == 2:
            build = min(_leading_number(head.rpartition("-")[2]), _BUILD_SLOTS - 1)
        return rank * _BUILD_SLOTS + _BUILD_SLOTS - 1 - build

    def fits(self, tags: str) -> bool:
        """Return whether a wheel with these tags (see wheel_tags) fits the target."""
        return bool(tags) and self._tags_rank(tags) is not None

    def least_glibc(self, filename: str) -> tuple[int, int] | None:
        """Return the oldest glibc on which a wheel fits this interpreter; None if it needs none.

        None, too, for a wheel that never fits and for a file that is not a wheel.
        """
        if not filename.endswith(".whl"):
            return None
        fits_of_tags = self._fits(wheel_tags(filename))
        least = min((glibc for glibc, _ in fits_of_tags), default=0)
        if not least:
            return None
        return NEWEST_GLIBC[0], least

    def _tags_rank(self, tags: str) -> int | None:
        if tags not in self._rank_of_tags:  # one triple serves many files of a page
            ranks = [rank for glibc, rank in self._fits(tags) if glibc <= self._glibc_minor]
            self._rank_of_tags[tags] = min(ranks, default=None)
        return self._rank_of_tags[tags]

    def _fits(self, tags: str) -> list[Fit]:
        if tags not in self._fits_of_tags:
            known = None
            if self._answers is not None:
                known = self._answers.fits(self._name, tags)
            if known is None:
                known = self._kept_fits(tags)
            self._fits_of_tags[tags] = known
        return self._fits_of_tags[tags]

    def _kept_fits(self, tags: str) -> list[Fit]:
        known = self.kept.find(tags) if self.kept is not None else None
        if isinstance(known, list):
            return [(glibc, rank) for glibc, rank in known]
        fits = self._fits_by_packaging(tags)
        if self.kept is not None:
            self.kept.add(tags, fits)
        return fits

    def _fits_by_packaging(self, tags: str) -> list[Fit]:
        if self._tag_orders is None:
            python = self.host.python
            self._tag_orders = tag_orders(python.version, python.free_threaded)
        return fits(self.host, self._tag_orders, tags)

    def marker(self, text: str, extras: Sequence[str]) -> bool:
        """Return whether a marker holds on the target with any of some extras, or with none.

        Raises:
            InputError: the marker cannot be evaluated.
        """
        normalized = tuple(map(normalize_name, extras))
        if text.startswith('extra == "') and text.count('"') == 2:
            return normalize_name(text[len('extra == "') : -1]) in normalized
        key = (text, normalized)
        if key not in self._markers:
            known = None
            if self._answers is not None:
                python, platform = self.host.python.version, self.host.platform
                known = self._answers.marker(text, python, platform, normalized)
            if known is None:
                known = self._kept_marker(text, normalized)
            self._markers[key] = known
        return self._markers[key]

    def _kept_marker(self, text: str, extras: tuple[str, ...]) -> bool:
        question = f"{','.join(extras)};{text}"
        known = self.kept.find(question) if self.kept is not None else None
        if isinstance(known, bool):
            return known
        holds = self._marker_by_packaging(text, extras)
        if self.kept is not None:
            self.kept.add(question, holds)
        return holds

    def _marker_by_packaging(self, text: str, extras: tuple[str, ...]) -> bool:
        from packaging.markers import Marker  # heavy

        if self._variables is None:
            self._variables = marker_environment(self.host)
        try:
            marker = Marker(text)
            for extra in extras or ("",):
                if marker.evaluate({**self._variables, "extra": extra}):
                    return True
            return False
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
        return not requires_python or self.contains(requires_python, self._python, pre=True)

    def contains(self, specifier: str, version: str, pre: bool) -> bool:
        """Return whether a specifier set admits a version (see versions.contains)."""
        key = (specifier, version, pre)
        if key not in self._contained:
            self._contained[key] = contains(specifier, version, pre)
        return self._contained[key]

    def is_prerelease(self, version: str) -> bool:
        """Return whether a version is a pre-release (see versions.is_prerelease)."""
        if not version.strip(_NUMERIC):
            return False  # most versions of an index; this is faster than to parse them
        return is_prerelease(version)


def _glibc_minor(host: Host) -> int:
    """Return N of the target's glibc 2.N. Another major version has all 2.N, or none."""
    major, minor = host.glibc or NEWEST_GLIBC
    if major == NEWEST_GLIBC[0]:
        return minor
    return _LAST_MINOR if major > NEWEST_GLIBC[0] else 0


def _three_numbers(host: Host) -> str:
    """Return the target's Python as "3.12.3"; "3.12.0" if only 3.12 is known."""
    micro = (host.python.full_version or "").split(".")[2:3]
    return f"{show_pair(host.python.version)}.{_leading_number(''.join(micro))}"


def _leading_number(text: str) -> int:
    """Return the number that a text starts with; 0 if it starts with none."""
    end = 0
    while end < len(text) and text[end].isdigit():
        end += 1
    return int(text[:end] or 0)
