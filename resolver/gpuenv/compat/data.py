"""The compatibility data: matrix_data -> CompatibilityData.

Builds and libraries are read one distribution at a time, when they are needed. People write the
TOML files and scripts write the JSON files. scripts/data/compile.py derives tables.json from the
TOML files and checks them. The head of each TOML file describes its
fields.
"""

from __future__ import annotations

import copy
import glob
import importlib
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, cached_property
from types import ModuleType
from typing import Any

import msgspec

from ..errors import DataError
from ..model import (
    Build,
    Code,
    ComputeCapability,
    CudaVersion,
    Framework,
    Gpu,
    Library,
    Value,
    Way,
    parse_pair,
    parse_release,
)
from ..requirements.versions import contains, version_key
from .architectures import common_code, driver_branch, parse_target
from .conda_records import Carriers
from .extensions import FRAMEWORK, Links, of_url, of_version
from .rows import Builds, BuildsFile, Family, IndexRow, Pair, Releases, Verdict, decode
from .user_rows import NO_ROWS, UserRows, read_user_rows, user_file

# What drivers, shops and people add to the name of a GPU and what says nothing about its compute
# capability: makers and brands, memory (80GB, HBM3), form factors (PCIe, SXM4), laptop editions,
# profiles of virtual GPUs (40C), architectures beside a name (Grace Hopper).
_NOISE_WORDS = (
    "nvidia", "geforce", "tesla", "grid", "hgx", "gpu", "nvgpu", "laptop", "mobile", "max", "q",
    "maxq", "with", "design", "generation", "edition", "workstation", "server", "active", "passive",
    "lhr", "gb", "tb", "pcie", "fhhl", "dgxs", "cnx", "sxm", "nvl", "superchip", "grace", "hopper",
    "developer", "kit",
)  # fmt: skip
_NOISE = r"\d+[gt]b?|hbm\d\w?|gddr\d\w?|sxm\d|nvl\d+|\d+[abcq]"
_IS_NOISE = re.compile(f"{'|'.join(_NOISE_WORDS)}|{_NOISE}").fullmatch

# Of a bad release: choose it if nothing else fits; never choose it; never on these devices.
SEVERITIES = ("avoid", "broken", "unsupported")

SCHEMA = 2  # the layout of matrix_data that this gpuenv reads

# A release on side "a" or "b" of a pair of releases that must not meet: (pair, side, verdict).
BadPair = tuple[str, str, Verdict]
_Names = tuple[str, ...]
_Side = tuple[_Names, str]  # distributions, versions
_Pair = tuple[str, _Side, _Side, int, str, str, str]
# Distributions, versions, severity, text, source, the capabilities that count (none: all), the CUDA
# of the oldest driver that does not count, and the platforms and Pythons that count (none: all).
_Devices = frozenset[ComputeCapability]
_Bad = tuple[_Names, str, str, str, str, _Devices, CudaVersion | None, _Names, str]
_Branches = tuple[tuple[int, tuple[ComputeCapability, ...], str], ...]


class RuleRow(Value, forbid_unknown_fields=False):
    """A row of a table of libraries.toml, as written there. () and "" mean that nothing is said."""

    distributions: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    versions: str = ""
    variants: tuple[str, ...] = ()
    capabilities: tuple[Pair, ...] = ()
    value: bool | str = ""
    gives: str = ""
    libraries: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    beside: dict[str, str] = msgspec.field(default_factory=dict)
    unless: tuple[str, ...] = ()
    source: str

    def is_about(self, distribution: str, version: str) -> bool:
        """Return whether a release is one of the row."""
        return distribution in self.distributions and within(version, self.versions)


class Removal(Value):
    """Names that a release of a package, and all newer ones, do not have any more.

    Attributes:
        since: the first minor release without them, "1.14".
        date: when it was uploaded, "2024-06-24".
        source: the file of the release that was read.
        names: the names, and modules that stand for all in them: "scipy.integrate.simps".
    """

    since: str
    date: str
    source: str
    names: tuple[str, ...]


class _Tables(Value, forbid_unknown_fields=False):
    """tables.json, as scripts/data/compile.py writes it."""

    schema: int
    version: str
    floors: tuple[tuple[int, str | None, str | None, str], ...]
    branches: tuple[tuple[int, Pair], ...]
    first: _Branches
    last: _Branches
    ptx_toolkits: dict[str, str]
    # The first driver of each branch, on Linux and on Windows, as far as they are known.
    first_drivers: dict[int, tuple[str | None, str | None]]
    gpus: dict[str, ComputeCapability]
    gpu_platforms: dict[str, str]
    gpu_names: tuple[str, ...]
    ambiguous: frozenset[str]
    families: tuple[Family, ...]
    bad: tuple[_Bad, ...]
    bad_pairs: tuple[_Pair, ...]
    rules: dict[str, tuple[RuleRow, ...]]
    path: frozenset[str]
    # A companion, and whether only the newest release of each of its lines has a row.
    extension_libraries: dict[str, bool]
    # What releases of a companion need: versions, links, the platforms of its CUDA and cuDNN.
    companions: dict[str, tuple[tuple[str, Links, tuple[str, ...]], ...]]
    indexes: tuple[IndexRow, ...] = ()
    frameworks: dict[str, Framework]
    # Of the frameworks that have no JSON file.
    builds: dict[str, BuildsFile] = msgspec.field(default_factory=dict)


def data_folder() -> str:
    """Return the folder of the data: gpuenv-matrix's if it is newer, otherwise gpuenv's own.

    gpuenv's own is in the package, or in a checkout.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    own = os.path.join(package, "matrix_data")
    if not os.path.isdir(own):
        own = os.path.join(os.path.dirname(os.path.dirname(package)), "matrix_data")
    newer = _installed_package()
    if newer is None or newer.SCHEMA != SCHEMA:
        return own

    def date(folder: str) -> str:
        try:
            tables = decode(os.path.join(folder, "tables.json"), _Tables)
        except DataError:
            return ""
        return tables.version.partition(".")[0]

    return max(own, os.path.dirname(os.path.abspath(str(newer.__file__))), key=date)


def unread_package() -> tuple[str, int] | None:
    """Return (version, schema) of an installed gpuenv-matrix that this gpuenv cannot read."""
    package = _installed_package()
    if package is None or package.SCHEMA == SCHEMA:
        return None
    return package.__version__, package.SCHEMA


def _installed_package() -> ModuleType | None:
    """Return the module of gpuenv-matrix, None if it is not installed."""
    try:
        return importlib.import_module("gpuenv_matrix")
    except ImportError:
        return None


def load(folder: str | None = None, user_rows: UserRows | None = None) -> CompatibilityData:
    """Read the data of a folder, by default `data_folder()`, and add the rows of the user.

    Raises:
        DataError: the data is missing or damaged.
    """
    return CompatibilityData(data_folder() if folder is None else folder, user_rows)


@cache
def compatibility_data() -> CompatibilityData:
    """Return the compatibility data: drivers, GPUs, frameworks and their builds.

    The rows of the user are included (`gpuenv matrix update`).
    """
    return load(user_rows=read_user_rows(user_file()))


def within(version: str, versions: str) -> bool:
    """Return whether a version is one of `versions`: "9.10.0.*", ">=9.8,<9.10.1" or a version.

    What follows the numbers of a release does not count: 13.2rc1 is within ">=13.2".
    """
    specifier = versions if versions.startswith(("<", ">", "=")) else f"=={versions}"
    return contains(specifier, version_key(version).base_version)


def gpu_key(name: str) -> str:
    """Return the comparable form of a GPU's name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb" -> "a100"."""
    key: list[str] = []
    for word in _words(name):
        if word == "mig":  # the profile of the instance follows
            break
        if not _IS_NOISE(word):
            key.append(word)
        elif word in ("gb", "tb") and key and key[-1].isdigit():  # "80 GB"
            key.pop()
    return "".join(key)


def _words(name: str) -> list[str]:
    """Return the words of a GPU's name: "RTX6000-Ada" -> rtx6000, ada."""
    return re.findall("[a-z0-9]+", name.lower())


class CompatibilityData:
    """The facts about GPUs, drivers, frameworks and libraries in a folder. Read once, on first use.

    Methods take a `platform` as in Host.platform.

    Attributes:
        accepts_pairs: whether the pairs to avoid are left out (see `accepting`).
    """

    accepts_pairs = False

    def __init__(self, folder: str, user_rows: UserRows | None = None) -> None:
        """Read tables.json of a folder. Raises DataError if it is missing or damaged."""
        self.folder = folder
        self.user_rows = user_rows or NO_ROWS
        path = os.path.join(folder, "tables.json")
        tables = self._tables = decode(path, _Tables)
        if tables.schema != SCHEMA:
            hint = "run scripts/data/compile.py"
            text = f"its schema is {tables.schema}, this gpuenv reads {SCHEMA}"
            raise DataError(f"{path} is damaged: {text}", hint=hint)
        self.version = tables.version
        self.ptx_toolkits: Mapping[str, str] = tables.ptx_toolkits
        self.branches = {branch: parse_pair(cuda) for branch, cuda in tables.branches}
        self.floors = {
            major: (linux, windows, source) for major, linux, windows, source in tables.floors
        }
        # The first driver branch of a capability, and the last one if a later branch dropped it.
        self.first_branches = _by_capability(tables.first)
        self.last_branches = _by_capability(tables.last)
        paths = glob.glob(os.path.join(glob.escape(folder), "libraries", "*.json"))
        self._libraries = sorted(os.path.basename(path)[:-5] for path in paths)
        self._pairs: dict[str, list[_Pair]] = {}
        for pair in tables.bad_pairs:
            for name in {*pair[1][0], *pair[2][0]}:
                self._pairs.setdefault(name, []).append(pair)
        self.tolerated = tuple(family for family in tables.families if family.tolerated)
        self._families = {
            name: family for family in tables.families for name in family.distributions
        }
        self._common_codes: dict[tuple[Code, ...], Code] = {}
        self._frameworks = tables.frameworks
        # The frameworks by the distributions that have their versions, and those whose versions
        # name builds by all of their distributions.
        self.installers: dict[str, Framework] = {}
        self._framework_of: dict[str, Framework] = {}
        self._framework_distributions: set[str] = set()
        for framework in tables.frameworks.values():
            if framework.is_single_distribution:
                self._framework_of |= dict.fromkeys(framework.distributions, framework)
            self.installers[framework.distribution] = framework
            self._framework_distributions.update(framework.distributions)
            for way in framework.ways:
                self.installers[way.distribution] = framework
                self._framework_distributions.update(way.carriers)
                self._framework_distributions.update(
                    text.partition("[")[0] for text in way.requires
                )
        self._builds: dict[str, Builds] = {}
        self._releases: dict[str, Releases] = {}

    @cached_property
    def conda(self) -> Carriers:
        """The conda packages of the frameworks. Raises DataError if their file is damaged."""
        return Carriers(self.folder)

    @cached_property
    def removals(self) -> Mapping[str, Sequence[Removal]]:
        """What the releases of packages, and of "python", do not have any more, oldest first."""
        path = os.path.join(self.folder, "removed_names.json")
        return decode(path, dict[str, tuple[Removal, ...]])

    @cached_property
    def removed_names(self) -> Mapping[str, tuple[str, Removal]]:
        """Return {name or module that is gone: (the distribution that had it, its removal)}."""
        return {
            name: (distribution, removal)
            for distribution, removals in self.removals.items()
            for removal in removals
            for name in removal.names
        }

    # ---- frameworks and their builds

    def framework(self, name: str) -> Framework | None:
        """Return a framework by its own name."""
        return self._frameworks.get(name)

    def frameworks(self) -> Sequence[str]:
        """Return the names of the frameworks, in alphabetical order."""
        return tuple(self._frameworks)

    def framework_of(self, distribution: str) -> Framework | None:
        """Return the framework whose builds are versions of a distribution (torch, torchvision).

        None for the distributions of frameworks that install in several ways.
        """
        return self._framework_of.get(distribution)

    def all_frameworks(self) -> Sequence[Framework]:
        """Return the frameworks, in alphabetical order of their names."""
        return tuple(self._frameworks.values())

    def build(self, distribution: str, version: str, platform: str) -> Build | None:
        """Return the build that an index's version string names; None for an unknown one.

        "2.13.0+cu126" names a variant; "2.13.0" names the build of the default index.
        """
        framework = self._framework_of.get(distribution)
        if framework is None:
            return None
        return self._builds_of(framework).find(distribution, version, platform)

    def builds(self, distribution: str, platform: str, above: str = "") -> Sequence[Build]:
        """Return the known builds, newest version first; in a version the default index first.

        `above` leaves out that version and older ones.
        """
        framework = self._framework_of.get(distribution)
        if framework is None:
            return ()
        return self._builds_of(framework).all(distribution, platform, above)

    def _builds_of(self, framework: Framework) -> Builds:
        name = framework.name
        if name not in self._builds:
            rows = self._tables.builds.get(name)
            if rows is None:
                rows = decode(os.path.join(self.folder, "frameworks", name + ".json"), BuildsFile)
            more = self.user_rows.rows.get(framework.distribution, ())
            self._builds[name] = Builds(framework, rows, more)
        return self._builds[name]

    def known_versions(self, distribution: str, platform: str) -> Iterator[str]:
        """Yield the releases on the default index of a framework, or of a companion of one.

        The index snapshot leaves out the oldest of them.
        """
        for build in self.builds(distribution, platform):
            if build.index == "default":
                yield build.local
        framework = self.installers.get(distribution)
        for carrier in (
            {name for way in framework.ways for name in way.carriers} if framework else ()
        ):
            for release in self.releases(carrier):
                yield release.version

    def variant(self, framework: Framework, way: Way, version: str, platform: str) -> Build | None:
        """Return a release of a framework, installed one way, as one build (R3).

        Its code is what all of its carriers have in common. None if nothing is known of them.
        """
        releases = [self._releases_of(name) for name in way.carriers if name in self._libraries]
        libraries = [rows.upto(version, platform, way.local) for rows in releases]
        carriers = [library for library in libraries if library is not None]
        # The CUDA major of the carriers; None if none of them has one.
        major = next((rows.major for rows in releases if rows.major), None)
        if carriers:
            major = carriers[0].cuda_major
        if not way.carriers:
            code = Code(sass=(), ptx=(), source=framework.source)
        elif len(carriers) == len(way.carriers):
            codes = tuple(library.code for library in carriers)
            if codes not in self._common_codes:  # many releases share them
                self._common_codes[codes] = common_code(codes, self.capabilities())
            code = self._common_codes[codes]
        elif major is not None and all(rows.reaches(version) for rows in releases):
            missing = " and ".join(way.carriers)
            code = Code(sass=None, source=f"no row of {missing} {version} on {platform}")
        else:
            return None
        cuda = next((library.cuda for library in carriers if library.cuda), None)
        if cuda is None and major is not None:
            cuda = (major, 0)
        return Build(
            name=framework.name,
            version=version,
            local=version,
            variant=way.variant,
            index="default",
            platform=platform,
            cuda=cuda,
            cudnn=next((library.cudnn for library in carriers if library.cudnn), None),
            code=code,
        )

    # ---- libraries

    def library(self, distribution: str, version: str, platform: str) -> Library | None:
        """Return what is known about a release of a CUDA library or a companion on a platform.

        If only the newest release of each line of a companion is scanned, its row stands for the
        whole line (0.27.1 for 0.27.0), as documented. A release that is older than every row has
        no code for devices that are too new for the oldest row. Whether it has code for older
        devices is unknown.
        """
        if distribution not in self._libraries:
            return None
        has_lines = self._tables.extension_libraries.get(distribution)
        if has_lines is None:
            return self._releases_of(distribution).find(version, platform)
        row = self._releases_of(distribution).find(version.lower(), platform)
        rows = [] if row else self.releases(distribution, platform)
        rows = [release for release in rows if "+" not in release.version]
        if not rows:
            return row
        if has_lines:
            line = version.split(".")[:2]
            for release in rows:
                if release.version.split(".")[:2] == line:
                    source = f"as {release.version} of its line; {release.code.source}"
                    code = release.code.replace(evidence="documented", source=source)
                    return release.replace(version=version, code=code, url="")
        oldest = rows[0]
        targets = (*(oldest.code.sass or ()), *(oldest.code.ptx or ()))
        if not targets or version_key(version) >= version_key(oldest.version):
            return None
        code = oldest.code.replace(
            evidence="documented",
            source=f"older than {oldest.version}; {oldest.code.source}",
            unknown_below=min(parse_target(target)[0] for target in targets),
        )
        major = self._releases_of(distribution).major or 0
        return oldest.replace(
            version=version, code=code, cuda=None, cuda_major=major, by_cuda=(), url=""
        )

    def releases(self, distribution: str, platform: str = "") -> Sequence[Library]:
        """Return the releases of a CUDA library, oldest first; () for other distributions.

        `platform` "" means every platform.
        """
        if distribution not in self._libraries:
            return ()
        releases = self._releases_of(distribution).all()
        if not platform:
            return releases
        return [release for release in releases if release.platform == platform]

    def libraries(self) -> Sequence[str]:
        """Return the distributions of CUDA libraries with known code, in alphabetical order."""
        return self._libraries

    def is_library(self, distribution: str) -> bool:
        """Return whether a convolution runs this distribution's code, so that R2 to R4 apply."""
        return distribution in self._tables.path

    def is_extension(self, distribution: str) -> bool:
        """Return whether a distribution is a companion with device code, such as vllm.

        R1 and R2 apply to its releases that `library` knows; the others are not known to be wrong.
        """
        return distribution in self._tables.extension_libraries

    def other_library_major(self, distribution: str) -> int:
        """Return the CUDA major of a library that no convolution runs, such as NCCL; 0 if none.

        R1 applies to it where no framework decides which driver is needed.
        """
        is_judged = self.is_library(distribution) or self.is_extension(distribution)
        if is_judged or distribution not in self._libraries:
            return 0
        return self._releases_of(distribution).major or 0

    def covers(self, distribution: str) -> bool:
        """Return whether the data has the builds of a distribution: a framework, or a library."""
        return distribution in self._framework_distributions or self.is_library(distribution)

    def names(self) -> Sequence[str]:
        """Return the distributions that the data has builds of, or that a row names, sorted."""
        tables = self._tables
        names = {*self._framework_distributions, *self._libraries}
        names.update(tables.companions, tables.extension_libraries)
        for rows in tables.companions.values():
            names.update(name for _, links, _ in rows for name, _ in links.frameworks)
        for _, (ones, _), (others, _), *_ in tables.bad_pairs:
            names.update(ones, others)
        for table in tables.rules.values():
            names.update(name for row in table for name in row.distributions)
        return sorted(names)

    def _releases_of(self, distribution: str) -> Releases:
        if distribution not in self._releases:
            path = os.path.join(self.folder, "libraries", distribution + ".json")
            more = self.user_rows.rows.get(distribution, ())
            self._releases[distribution] = Releases(path, distribution, more)
        return self._releases[distribution]

    def family(self, distribution: str) -> Family | None:
        """Return the family of distributions that install the same paths as this one (R5)."""
        return self._families.get(distribution)

    def bad(
        self,
        distribution: str,
        version: str,
        capabilities: Iterable[ComputeCapability] = (),
        driver_cuda: CudaVersion | None = None,
        *,
        platform: str = "",
        python: str = "",
    ) -> Verdict | None:
        """Return the worst verdict on a release, of the rows that count on these devices.

        `driver_cuda` is as in Host; a row about older drivers does not count if it is unknown.
        A row about platforms or Pythons does not count without `platform` or `python`.
        """
        devices, worst = frozenset(capabilities), None
        for row in self._tables.bad:
            names, versions, severity, text, source, only_on, needed_cuda, platforms, pythons = row
            counts = distribution in names and (not only_on or only_on & devices)
            counts = counts and (not platforms or platform in platforms)
            counts = counts and (not pythons or (bool(python) and within(python, pythons)))
            if needed_cuda is not None:
                counts = counts and driver_cuda is not None and driver_cuda < needed_cuda
            worse = worst is None or SEVERITIES.index(severity) > SEVERITIES.index(worst[0])
            if counts and worse and within(version, versions):
                worst = (severity, text, source)
        return worst

    def bad_pairs(self, distribution: str, version: str, gpus: int) -> Sequence[BadPair]:
        """Return the bad pairs that a release belongs to, on a host with that number of GPUs.

        Pairs to avoid are left out if `accepts_pairs` is set.
        """
        return [
            (pair, side, (severity, text, source))
            for pair, a, b, least_gpus, severity, text, source in self._pairs.get(distribution, ())
            for side, (names, versions) in (("a", a), ("b", b))
            if gpus >= least_gpus and distribution in names and within(version, versions)
            if not (self.accepts_pairs and severity == "avoid")
        ]

    def has_pair_to_avoid(self, names: Container[str]) -> bool:
        """Return whether names contain both sides of a pair to avoid."""
        return any(
            severity == "avoid"
            and any(map(names.__contains__, ones))
            and any(map(names.__contains__, others))
            for _, (ones, _), (others, _), _, severity, *_ in self._tables.bad_pairs
        )

    def accepting(self) -> CompatibilityData:
        """Return a copy that accepts the pairs to avoid."""
        data = copy.copy(self)
        data.accepts_pairs = True
        return data

    def indexes(self, distribution: str) -> Sequence[IndexRow]:
        """Return the indexes that have further builds of a companion."""
        return [row for row in self._tables.indexes if distribution in row.distributions]

    def links(self, distribution: str, version: str, platform: str, url: str = "") -> Links | None:
        """Return what a release needs of the packages beside it (R4, R10, R11); None is unknown.

        What the local part of a version says comes before what was read from another build. So does
        the URL of a file that a companion's own index has, if its version has no local part.
        """
        companions = self._tables.companions.get(distribution, ())
        named = of_version(version, names_cuda=bool(companions))
        is_other_build = "+" in version
        if url and not is_other_build:
            named = self.own_links(distribution, url)
            is_other_build = named is not None
        rows = (row for row in companions if contains(row[0], version))
        row = next(rows, None)
        if row is None:
            return named
        _, links, platforms = row
        if platforms and platform not in platforms:
            links = links.replace(cuda=(), cuda_versions=(), cudnn=())
        if is_other_build:  # than the one that was read
            links = links.replace(cuda=(), cudnn=())
        if named is None:
            return links
        names_release = any(specifier for _, specifier in named.frameworks)
        return links.replace(
            frameworks=named.frameworks if names_release else links.frameworks or named.frameworks,
            cuda=named.cuda,
            cxx11_abi=named.cxx11_abi,
            source=f"{named.source}; {links.source}",
        )

    def own_links(self, distribution: str, url: str) -> Links | None:
        """Return what the URL of a file of a companion's own index says; None for other files."""
        rows = self.indexes(distribution)
        is_own = any(url.startswith((row.url.partition("{")[0], *row.files)) for row in rows)
        return of_url(url) if is_own else None

    def is_companion(self, distribution: str) -> bool:
        """Return whether the data has rows of a distribution: what it needs, or its device code."""
        return distribution in self._tables.companions or self.is_extension(distribution)

    def needs_framework(self, distribution: str) -> bool:
        """Return whether a row says that releases need something of a framework or of CUDA."""
        for _, links, _ in self._tables.companions.get(distribution, ()):
            needed = {name for name, _ in links.frameworks}
            if links.cuda or links.cudnn or not needed.isdisjoint(self._framework_distributions):
                return True
        return False

    def cxx11_abi(self, build: Build) -> bool | None:
        """Return _GLIBCXX_USE_CXX11_ABI of a torch wheel; None is unknown."""
        if build.name != FRAMEWORK:
            return None
        row = self._rule("cxx11_abi", build.version, build.platform, variant=build.variant)
        return None if row is None else bool(row.value)

    def system_cuda(self, distribution: str, version: str, platform: str) -> RuleRow | None:
        """Return the CUDA that a release takes from the system; None if wheels bring it all.

        `value` names it (CUDA 11.2 and cuDNN 8.1), `libraries` are the files that it opens.
        """
        return self._rule("system_cuda", version, platform, distribution=distribution)

    def compiled_against(self, distribution: str, version: str) -> RuleRow | None:
        """Return the row of a source distribution that compiles code for a framework.

        `value` is the distribution of the framework; None for others. A source tree may have no
        version: its row is the first, which is for the newest releases.
        """
        for row in self.rule_rows("compiled_against"):
            is_meant = not (version and row.versions) or within(version, row.versions)
            if distribution in row.distributions and is_meant:
                return row
        return None

    def undeclared(self, versions: Mapping[str, str]) -> list[RuleRow]:
        """Return the rows about requirements that the metadata of releases lack (R10).

        A row counts if one of `beside` is among the releases, or none of `unless`.

        Args:
            versions: the releases: {distribution: version}.
        """
        found = []
        for row in self.rule_rows("undeclared"):
            ranges = row.beside.items()
            beside = any(name in versions and within(versions[name], text) for name, text in ranges)
            alone = row.unless and versions.keys().isdisjoint(row.unless)
            if (beside or alone) and any(row.is_about(*release) for release in versions.items()):
                found.append(row)
        return found

    def _rule(
        self, table: str, version: str, platform: str, *, distribution: str = "", variant: str = ""
    ) -> RuleRow | None:
        """Return the first row of a table that is about a build."""
        for row in self.rule_rows(table):
            is_distribution = not row.distributions or distribution in row.distributions
            is_variant = not row.variants or variant in row.variants
            is_meant = is_distribution and is_variant and platform in row.platforms
            if is_meant and within(version, row.versions):
                return row
        return None

    def rule_rows(self, table: str) -> Sequence[RuleRow]:
        """Return the rows of a table of libraries.toml."""
        return self._tables.rules.get(table, ())

    # ---- GPUs and drivers

    def compute_capability(self, gpu: str) -> ComputeCapability | None:
        """Return a GPU's compute capability by its name; None if it is unknown or ambiguous."""
        key, gpus = gpu_key(gpu), self._tables.gpus
        if key in self._tables.ambiguous:
            return None
        capability = gpus.get(key) or gpus.get("quadro" + key)
        if capability is None and key[:1].isdigit():  # "1080 Ti" and "4090" lack the family
            families = {gpus[family + key] for family in ("gtx", "rtx") if family + key in gpus}
            return families.pop() if len(families) == 1 else None
        return capability

    def known_gpu(self, text: str) -> tuple[str, ComputeCapability] | None:
        """Return (name, compute capability) of a GPU; None for an unknown or ambiguous name.

        The name has the spelling of the data: "H100" for "h100", "RTX 4090" for "rtx4090". A name
        that says more or less than that of the data stays as it is.
        """
        capability = self.compute_capability(text)
        if capability is None:
            return None
        if text in self.gpu_names():
            return text, capability
        letters = "".join(_words(text))
        same = (name for name in self.gpu_names() if "".join(_words(name)) == letters)
        return next(same, text), capability

    def capabilities(self) -> Sequence[ComputeCapability]:
        """Return every compute capability of the GPU table, ascending."""
        return sorted(set(self._tables.gpus.values()))

    def gpu_platform(self, gpu: Gpu) -> str | None:
        """Return the platform of a GPU that exists on one platform only (R9); None for others.

        Of a GPU without a known name, its compute capability decides: every GPU of 12.1 has an Arm
        CPU beside it.
        """
        key, gpus, platforms = gpu_key(gpu.name), self._tables.gpus, self._tables.gpu_platforms
        if key in gpus:
            return platforms.get(key)
        of_capability = {
            platforms.get(name)
            for name, capability in gpus.items()
            if capability == gpu.compute_capability
        }
        return of_capability.pop() if len(of_capability) == 1 else None

    def gpu_names(self) -> Sequence[str]:
        """Return every known GPU name, in the order of compute capability."""
        return self._tables.gpu_names

    def gpu_tables(self) -> dict[str, Any]:
        """Return the tables of `compute_capability` and `gpu_platform`, for other programs.

        A compute capability is given by its index in `capabilities`.
        """
        columns = {capability: place for place, capability in enumerate(self.capabilities())}
        keys = {key: columns[capability] for key, capability in self._tables.gpus.items()}
        return {
            "names": [(name, keys[gpu_key(name)]) for name in self.gpu_names()],
            "keys": keys,
            "platforms": self._tables.gpu_platforms,
            "ambiguous": sorted(self._tables.ambiguous),
            "noise_words": sorted(_NOISE_WORDS),
            "noise": _NOISE,
        }

    def close_names(self, text: str) -> Sequence[str]:
        """Return a few known GPU names like `text`, best first, for a hint.

        For a text that several GPUs share, such as "RTX 6000", these are all its GPUs with their
        targets: "RTX 6000 Ada (sm_89)".
        """
        spaced = re.sub(r"(?i)(rtx|titan)(?=\w)", r"\1 ", text)
        words = {word for word in _words(spaced) if not _IS_NOISE(word)}
        # The GPUs whose names have all of the words, one of each compute capability.
        shared: dict[ComputeCapability, str] = {}
        for name in sorted(self.gpu_names(), key=lambda name: (len(name), name)):
            if words and words <= set(_words(name)):
                shared.setdefault(self._tables.gpus[gpu_key(name)], name)
        if len(shared) > 1:
            return [f"{name} (sm_{pair[0]}{pair[1]})" for pair, name in sorted(shared.items())]
        if shared:
            return list(shared.values())
        names = {gpu_key(name): name for name in self.gpu_names()}
        keys = get_close_matches(gpu_key(text), names, n=3, cutoff=0.6)
        return [names[key] for key in keys]

    def driver_cuda(self, release: str) -> CudaVersion | None:
        """Return the CUDA version that a driver release supports.

        A branch between two known ones counts as the older one, because a driver supports what
        older drivers do. None for releases beyond the newest branch and before the oldest.
        """
        branch = driver_branch(release)
        if branch > self.newest_branch():
            return None
        known = max((listed for listed in self.branches if listed <= branch), default=None)
        return None if known is None else self.branches[known]

    def driver_floor(self, cuda: CudaVersion, os: str) -> tuple[str, str] | None:
        """Return (release, source) of R1 for a toolkit, by its major; None is unknown.

        `os` is linux or windows.
        """
        if cuda[0] not in self.floors:
            return None
        linux, windows, source = self.floors[cuda[0]]
        release = windows if os == "windows" else linux
        return (release, source) if release else None

    def first_driver(self, cuda: CudaVersion, os: str) -> str | None:
        """Return the first driver release that compiles PTX of a toolkit (R2); None is unknown.

        Of a branch without a known release this is the branch, as "615.00". `os` is as in
        `driver_floor`.
        """
        for branch, supported in sorted(self.branches.items()):
            if supported >= cuda:
                linux, windows = self._tables.first_drivers.get(branch, (None, None))
                return (windows if os == "windows" else linux) or f"{branch}.00"
        return None

    def newest_branch(self) -> int:
        """Return the newest driver branch about which there are facts."""
        return max(self.branches)

    def driver_steps(self, os: str) -> Sequence[str]:
        """Return the driver releases from which on more runs than before, ascending.

        These are the floors of R1, and the first release for each newer CUDA. A branch that holds
        a floor is left out: the floor is what helps.
        """
        floors = [self.driver_floor((major, 0), os) for major in self.floors]
        steps = [floor[0] for floor in floors if floor is not None]
        taken = {driver_branch(release) for release in steps}
        for cuda in sorted(set(self.branches.values())):
            first = self.first_driver(cuda, os)
            if first is not None and driver_branch(first) not in taken:
                steps.append(first)
        return sorted(steps, key=parse_release)


def _by_capability(rows: _Branches) -> dict[ComputeCapability, tuple[int, str]]:
    """Return compute capability -> (driver branch, source)."""
    return {
        capability: (branch, source)
        for branch, capabilities, source in rows
        for capability in capabilities
    }
