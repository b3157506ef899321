"""The compatibility data: matrix_data -> Matrix. Builds and libraries are read one distribution at a time, when asked.

People write the TOML files and scripts write the JSON ones; scripts/compile_matrix.py derives tables.json from the
TOML files because reading TOML takes longer than a solve may spend here. docs/matrix.md describes the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import DataError
from ..model import (
    Build,
    Code,
    ComputeCapability,
    CudaVersion,
    Framework,
    Library,
    Way,
    parse_pair,
    parse_release,
)
from .known_bad import KnownBad
from .rows import Builds, Releases, read, read_toml
from .rules import driver_branch, least, parse_target

# What drivers, shops and people add to the name of a GPU, and what says nothing about its compute capability:
# makers and brands, memory (80GB, HBM3), form factors (PCIe, SXM4), laptop editions, virtual GPU profiles (40C).
# Compiled by the first look-up: it takes 3 ms, and most solves have the compute capability from the driver.
_NOISE_WORDS = {
    "nvidia", "geforce", "tesla", "grid", "hgx", "gpu", "nvgpu", "laptop", "mobile", "max", "q", "maxq", "with",
    "design", "generation", "edition", "workstation", "server", "active", "passive", "lhr", "gb", "tb", "pcie", "fhhl",
    "dgxs", "cnx", "sxm", "nvl",
}  # fmt: skip
_NOISE = r"\d+[gt]b?|hbm\d\w?|gddr\d\w?|sxm\d|nvl\d+|\d+[abcq]"
_NOISE_STARTS = (*"0123456789", "hbm", "gddr", "sxm", "nvl")
_TEXTS = ("name", "distribution", "import_name", "probe", "source")
_LISTS = ("companions", "indexes", "packages")
_WAY_LISTS = ("requires", "carriers", "platforms")


def load(folder: str | None = None) -> DataMatrix:
    """The matrix of a folder; by default the data that came with the package. DataError if it is damaged."""
    if folder is None:
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        folder = os.path.join(package, "matrix_data")
        if not os.path.isdir(folder):  # a checkout
            folder = os.path.join(os.path.dirname(os.path.dirname(package)), "matrix_data")
    return DataMatrix(folder)


def _is_noise(word: str) -> bool:
    import re

    return re.fullmatch(_NOISE, word) is not None


def gpu_key(name: str) -> str:
    """The comparable form of a GPU's name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb" -> "a100", "rtx4090" as "RTX 4090"."""
    words: list[str] = []
    for word in "".join(char if char.isascii() and char.isalnum() else " " for char in name.lower()).split():
        if word == "mig":  # what follows is the instance's profile
            break
        # Compiling the pattern would cost a solve 0.2 ms, and "h100" is no match at a glance.
        if word not in _NOISE_WORDS and not (word.startswith(_NOISE_STARTS) and _is_noise(word)):
            words.append(word)
        elif word in ("gb", "tb") and words and words[-1].isdigit():  # "80 GB"
            words.pop()
    return "".join(words)


def framework_fields(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of a Framework from the content of its TOML file. DataError names the file and the field.

    A file without a [[way]] says that the distribution has every variant.
    """
    fields: dict[str, Any] = {name: _text(data, name, where) for name in _TEXTS}
    fields |= {name: _list(data, name, where) for name in _LISTS}
    name = fields["distribution"]
    ways = data.get("way", [{"variant": "*", "requires": [name], "carriers": [name]}])
    if not isinstance(ways, list) or not ways or not all(isinstance(way, dict) for way in ways):
        raise DataError(f"{where}: way must be one table or more")
    fields["ways"] = []
    for way in ways:
        inside = f"{where}: way {way.get('variant', '')}"
        lists = {name: _list(way, name, inside) for name in _WAY_LISTS}
        if not lists["requires"]:
            raise DataError(f"{inside}: requires is missing")
        fields["ways"].append({"variant": _text(way, "variant", inside), **lists})
    return fields


def _text(data: Mapping[str, Any], field: str, where: str) -> str:
    value = data.get(field)
    if not isinstance(value, str) or not value:
        raise DataError(f"{where}: {field} is missing or no text")
    return value


def _list(data: Mapping[str, Any], field: str, where: str) -> list[str]:
    value = data.get(field, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(f"{where}: {field} is no list of texts")
    return value


class DataMatrix:
    """Implements protocols.Matrix over a folder of data. Everything is read once, on first use."""

    def __init__(self, folder: str) -> None:
        """DataError if tables.json is missing or damaged."""
        self.folder = folder
        tables = read(os.path.join(folder, "tables.json"))
        try:
            self.version: str = tables["version"]
            self.branches: dict[int, CudaVersion] = {branch: parse_pair(cuda) for branch, cuda in tables["branches"]}
            self.floors = {major: (linux, windows, source) for major, linux, windows, source in tables["floors"]}
            self._last = {(x, y): (branch, source) for branch, pairs, source in tables["last"] for x, y in pairs}
            self.compilers = {parse_pair(cuda): tuple(targets) for cuda, targets in tables["compilers"].items()}
            self.toolkits: Mapping[str, Mapping[str, str]] = tables["toolkits"]
            self._gpus: Mapping[str, Sequence[int]] = tables["gpus"]
            self._names, self._ambiguous = tuple(tables["gpu_names"]), frozenset(tables["ambiguous"])
            self._slots: Mapping[str, Sequence[str]] = tables["slots"]
            self._bad = KnownBad(tables["bad"], tables["bad_pairs"])
            self._path = frozenset(tables["path"])
            known = tables["frameworks"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            path = os.path.join(folder, "tables.json")
            raise DataError(f"{path} is damaged ({error!r})", hint="run scripts/compile_matrix.py") from error
        names = self._listed("frameworks", ".toml")
        self._frameworks = {name: self._framework(name, known.get(name)) for name in names}
        self._libraries = frozenset(self._listed("libraries", ".json"))
        self._builds: dict[str, Builds] = {}
        self._variants: dict[tuple[str, str, str, str], Build | None] = {}
        self._releases: dict[str, Releases] = {}
        self._capabilities: tuple[ComputeCapability, ...] = ()

    def _listed(self, folder: str, suffix: str) -> list[str]:
        try:
            names = sorted(os.listdir(os.path.join(self.folder, folder)))
        except FileNotFoundError:
            return []
        return [name.removesuffix(suffix) for name in names if name.endswith(suffix)]

    def _framework(self, name: str, fields: dict[str, Any] | None) -> Framework:
        if fields is None:  # a file newer than tables.json
            path = os.path.join(self.folder, "frameworks", name + ".toml")
            fields = framework_fields(read_toml(path), path)
        values: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in fields.items()}
        ways = [Way(variant=way["variant"], **{key: tuple(way[key]) for key in _WAY_LISTS}) for way in fields["ways"]]
        return Framework(**values | {"ways": tuple(ways)})

    # ---- frameworks and their builds

    def framework(self, name: str) -> Framework | None:
        """By the framework's own name."""
        return self._frameworks.get(name)

    def frameworks(self) -> Sequence[str]:
        """The names, in alphabetical order."""
        return tuple(self._frameworks)

    def build(self, distribution: str, version: str, platform: str) -> Build | None:
        """The build that an index's version string names ("2.13.0+cu126", or "2.13.0" on the default index)."""
        builds = self._builds_of(distribution)
        return builds.find(distribution, version, platform) if builds else None

    def builds(self, distribution: str, platform: str, above: str = "") -> Sequence[Build]:
        """Every known build, newest version first, the default index first; with `above` only newer versions."""
        builds = self._builds_of(distribution)
        return builds.all(distribution, platform, above) if builds else ()

    def _builds_of(self, distribution: str) -> Builds | None:
        for framework in self._frameworks.values():
            if distribution == framework.distribution or distribution in framework.companions:
                if framework.name not in self._builds:
                    path = os.path.join(self.folder, "frameworks", framework.name + ".json")
                    self._builds[framework.name] = Builds(path, framework)
                return self._builds[framework.name]
        return None

    def variant(self, framework: Framework, way: Way, version: str, platform: str) -> Build | None:
        """A release of a framework, installed one way, as a build; None if nothing is known about its carriers."""
        key = (framework.name, way.variant, version, platform)
        if key not in self._variants:
            self._variants[key] = self._variant(framework, way, version, platform)
        return self._variants[key]

    def _variant(self, framework: Framework, way: Way, version: str, platform: str) -> Build | None:
        releases = [self._releases_of(name) for name in way.carriers if name in self._libraries]
        found = [one.upto(version, platform) for one in releases]
        carriers = [library for library in found if library is not None]
        majors = [library.cuda_major for library in carriers] or [one.major for one in releases if one.major]
        if len(carriers) < len(way.carriers):
            if not majors or not all(one.reaches(version) for one in releases):
                return None
            code = Code(sass=None, source=f"no row of {' and '.join(way.carriers)} {version} on {platform}")
        else:
            none = Code(sass=(), ptx=(), source=framework.source)
            code = least([library.code for library in carriers], self.capabilities()) if carriers else none
        return Build(
            name=framework.name,
            version=version,
            local=version,
            variant=way.variant,
            index="default",
            platform=platform,
            cuda=next((one.cuda for one in carriers if one.cuda), (majors[0], 0) if majors else None),
            cudnn=next((library.cudnn for library in carriers if library.cudnn), None),
            code=code,
        )

    # ---- libraries

    def library(self, distribution: str, version: str, platform: str) -> Library | None:
        """What is known about a release of a CUDA library on a platform."""
        return self._releases_of(distribution).find(version, platform) if distribution in self._libraries else None

    def releases(self, distribution: str) -> Sequence[Library]:
        """Every release and platform of a CUDA library, oldest first; () for another distribution."""
        return self._releases_of(distribution).all() if distribution in self._libraries else ()

    def libraries(self) -> Sequence[str]:
        """The distributions of CUDA libraries about whose code there are facts, in alphabetical order."""
        return sorted(self._libraries)

    def is_library(self, distribution: str) -> bool:
        """Whether a convolution runs this distribution's code, so that R2 and R3 look at its releases."""
        return distribution in self._path

    def _releases_of(self, distribution: str) -> Releases:
        if distribution not in self._releases:
            path = os.path.join(self.folder, "libraries", distribution + ".json")
            self._releases[distribution] = Releases(path, distribution, self._bad)
        return self._releases[distribution]

    def slots(self, distribution: str) -> Sequence[str]:
        """The folders under site-packages that only one distribution of a plan may own (R5)."""
        return tuple(self._slots.get(distribution, ()))

    def bad(
        self, distribution: str, version: str, capabilities: Iterable[ComputeCapability] = ()
    ) -> tuple[str, str, str] | None:
        """(severity, text, source) of a release known to be bad, everywhere or on a device of these capabilities."""
        return self._bad.of(distribution, version, capabilities)

    def bad_pairs(self, distribution: str, version: str) -> Sequence[tuple[str, str, bool, str, str, str]]:
        """(pair, side, several_gpus, text, source, severity): the bad pairs of which the release is side "a" or "b"."""
        return self._bad.pairs(distribution, version)

    # ---- GPUs and drivers

    def compute_capability(self, gpu: str) -> ComputeCapability | None:
        """By marketing name, as people and drivers write it; None for an unknown or an ambiguous one."""
        key = gpu_key(gpu)
        pair = None if key in self._ambiguous else self._gpus.get(key) or self._gpus.get("quadro" + key)
        if pair is None and key[:1].isdigit():  # "1080 Ti", "4090": said without the family
            families = {tuple(self._gpus[family + key]) for family in ("gtx", "rtx") if family + key in self._gpus}
            pair = families.pop() if len(families) == 1 else None
        return (pair[0], pair[1]) if pair else None

    def capabilities(self) -> Sequence[ComputeCapability]:
        """Every compute capability that the GPU table knows, ascending."""
        if not self._capabilities:
            self._capabilities = tuple(sorted({(pair[0], pair[1]) for pair in self._gpus.values()}))
        return self._capabilities

    def gpu_names(self) -> Sequence[str]:
        """Every known name, in the order of compute capability."""
        return self._names

    def close_names(self, text: str, count: int = 3) -> Sequence[str]:
        """Known names like `text`, best first, for a hint."""
        from difflib import get_close_matches

        names = {gpu_key(name): name for name in self._names}
        return [names[key] for key in get_close_matches(gpu_key(text), names, n=count, cutoff=0.6)]

    def driver_cuda(self, release: str) -> CudaVersion | None:
        """The CUDA version that a driver release supports; None beyond the newest branch and before the oldest.

        A branch between two known ones counts as the older: a driver supports what older drivers do.
        """
        branch = driver_branch(release)
        known = [one for one in self.branches if one <= branch]
        return self.branches[max(known)] if known and branch <= self.newest_branch() else None

    def driver_floor(self, cuda: CudaVersion, os: str) -> tuple[str, str] | None:
        """(release, source) of R1 for a toolkit, by its major; None is unknown. `os` is linux or windows."""
        linux, windows, source = self.floors.get(cuda[0], (None, None, ""))
        release = windows if os == "windows" else linux
        return (release, source) if release else None

    def last_branch(self, capability: ComputeCapability) -> tuple[int, str] | None:
        """(branch, source) of the last driver branch that drives the device; None if none has dropped it."""
        return self._last.get((capability[0], capability[1]))

    def newest_branch(self) -> int:
        """The newest driver branch about which there are facts."""
        return max(self.branches)

    def driver_steps(self, os: str) -> Sequence[str]:
        """The driver releases from which on more runs than before, ascending: floors, and branches of a newer CUDA.

        A branch stands as "595.00"; one that has a floor in it is left out, the floor is what helps.
        """
        rows = [self.driver_floor((major, 0), os) for major in self.floors]
        floors = [row[0] for row in rows if row is not None]
        taken = {driver_branch(release) for release in floors}
        steps, newest = list(floors), (0, 0)
        for branch, cuda in sorted(self.branches.items()):
            if cuda > newest and branch not in taken:
                steps.append(f"{branch}.00")
            newest = max(newest, cuda)
        return sorted(steps, key=parse_release)

    def first_cuda(self, capability: ComputeCapability) -> CudaVersion | None:
        """The oldest known toolkit whose compiler has the device as a target."""
        able = [cuda for cuda, made in self.compilers.items() if capability in map(_capability, made)]
        return min(able, default=None)


def _capability(target: str) -> ComputeCapability:
    return parse_target(target)[0]
