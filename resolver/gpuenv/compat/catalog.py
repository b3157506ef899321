"""What the data knows, by name: the answers of `gpuenv matrix list` and `gpuenv matrix show`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from ..errors import InputError
from ..model import Build, Code, Framework, Library, Value, Wheel, show_pair
from ..requirements.target import PLATFORMS, is_prerelease, normalize_name, version_key
from .data import CompatibilityData

# The wheels of a distribution that the index snapshot has, () for none: a stage does not read another one's files.
Wheels = Callable[[str], Sequence[Wheel]]


class Variant(Value):
    """One variant of a release on a platform.

    `cuda` is the toolkit ("13.2"), or only its major where no more is known. `version` is the distribution's own, its
    local part included; `indexes` are those that have it, best first. `bad` is as in model.Library.
    """

    distribution: str
    version: str
    variant: str
    platform: str
    cuda: str | None
    cudnn: str | None
    code: Code
    indexes: tuple[str, ...]
    requires_python: str | None = None
    bad: tuple[str, str, str] | None = None


class Release(Value):
    """A release as users name it ("2.15.0") and its variants on a platform, best first."""

    version: str
    variants: tuple[Variant, ...]


class Entry(Value):
    """A name that `show` takes. `releases` (newest first) are those on the platform asked for."""

    name: str
    kind: str  # framework | library
    distributions: tuple[str, ...]
    on_path: bool  # whether a convolution runs it, so that R2 and R3 look at it
    releases: tuple[Release, ...]


class Catalog:
    """Looks names up in a matrix. `wheels` adds what only an index knows: releases of jax, the Pythons of a wheel."""

    def __init__(self, matrix: CompatibilityData, wheels: Wheels) -> None:
        self.matrix, self.wheels = matrix, wheels
        self._found: dict[tuple[str, str], dict[str, str | None]] = {}

    def names(self) -> list[str]:
        """Frameworks, then the distributions of which there are rows, then the short names of NVIDIA's."""
        frameworks = [*self.matrix.frameworks()]
        companions = [one for name in frameworks if (found := self.matrix.framework(name)) for one in found.companions]
        libraries = sorted({*self.matrix.libraries(), *companions} - {*frameworks})
        return [*frameworks, *libraries, *sorted({short for name in libraries if (short := short_name(name))})]

    def entries(self, platform: str) -> list[Entry]:
        """Every framework and every distribution with rows, in the order of `names`."""
        return [self.entry(name, platform) for name in self.names() if self._members(name) in ([], [name])]

    def entry(self, name: str, platform: str) -> Entry:
        """What is known of a framework, a distribution, or a short name. InputError for any other name."""
        wanted = normalize_name(name)
        framework = self.matrix.framework(wanted)
        members = self._members(wanted)
        if framework is not None:
            found, members = self._of_framework(framework, platform), sorted({*_distributions(framework)})
        elif members:
            found = [variant for one in members for variant in self._of_distribution(one, platform)]
        else:
            raise InputError(f"nothing is known about {name}", hint=_like(wanted, self.names()))
        releases: dict[str, list[Variant]] = {}
        for variant in found:
            releases.setdefault(public(variant.version), []).append(variant)
        return Entry(
            name=wanted,
            kind="library" if framework is None else "framework",
            distributions=tuple(members),
            on_path=framework is not None or any(self.matrix.is_library(one) for one in members),
            releases=tuple(
                Release(version=version, variants=tuple(releases[version]))
                for version in sorted(releases, key=version_key, reverse=True)
            ),
        )

    def release(self, name: str, version: str, platform: str) -> Release:
        """The release of that version, else the newest whose numbers begin with it: 9.10.2 is 9.10.2.21.

        Of a short name, the releases of every CUDA major that the version means. With a local part (2.13.0+cu126) only
        that variant. InputError names releases like it.
        """
        entry = self.entry(name, platform)
        asked, _, local = version.partition("+")
        # The variants of a framework go by one version, the majors of a library each have their own.
        groups: dict[str, list[Variant]] = {one: [] for one in entry.distributions} if entry.kind == "library" else {}
        for each in entry.releases:
            for one in each.variants:
                groups.setdefault("" if entry.kind == "framework" else one.distribution, []).append(one)
        variants = []
        for group in groups.values():
            meant = pick({public(one.version) for one in group}, asked)
            variants += [one for one in group if public(one.version) == meant and local in ("", one.variant)]
        if not variants:
            raise self._no_release(entry, version, platform)
        newest = max((public(one.version) for one in variants), key=version_key)
        return Release(version=newest, variants=tuple(variants))

    def _no_release(self, entry: Entry, version: str, platform: str) -> InputError:
        others = [one for one in PLATFORMS if one != platform and self.entry(entry.name, one).releases]
        where = f"{entry.name} {version} on {platform}"
        if not entry.releases:
            also = f"it is known on {' and '.join(others)}: --platform" if others else "there are no rows of it yet"
            return InputError(f"nothing is known about {where}", hint=also)
        known = [one.version for one in entry.releases]
        newer = sum(version_key(one) > version_key(public(version)) for one in known)
        near = ", ".join(known[max(0, newer - 2) : newer + 3])
        return InputError(f"no release is known as {where}", hint=f"near it are {near}")

    # ---- frameworks

    def _of_framework(self, framework: Framework, platform: str) -> list[Variant]:
        found = []
        for way in framework.ways:
            if way.platforms and platform not in way.platforms:
                continue
            if way.variant == "*":
                found += self._builds(framework.distribution, platform)
                continue
            distribution = way.requires[0].partition("[")[0]
            listed = [*self._wheels(distribution, platform)]
            if not listed:  # the index was not asked: the carriers go by the framework's own version
                rows = [row for name in way.carriers for row in self.matrix.releases(name) if row.platform == platform]
                listed = [row.version for row in rows]
            for version in dict.fromkeys(listed):
                build = None if is_prerelease(version) else self.matrix.variant(framework, way, version, platform)
                if build is not None:
                    found.append(self._variant(build.replace(name=distribution), ("default",)))
        return found

    def _builds(self, distribution: str, platform: str) -> list[Variant]:
        """The builds of a distribution; those that several indexes have with the same facts are one variant."""
        same: dict[tuple[object, ...], list[Build]] = {}
        for build in self.matrix.builds(distribution, platform):
            key = (build.version, build.variant, build.cuda, build.cudnn, build.code.sass, build.code.ptx)
            same.setdefault(key, []).append(build)
        return [self._variant(group[0], tuple(one.index for one in group)) for group in same.values()]

    def _variant(self, build: Build, indexes: tuple[str, ...]) -> Variant:
        return Variant(
            distribution=build.name,
            version=build.local,
            variant=build.variant,
            platform=build.platform,
            cuda=show_pair(build.cuda) if build.cuda else None,
            cudnn=build.cudnn,
            code=build.code,
            indexes=indexes,
            requires_python=self._python(build.name, build.local, build.platform),
        )

    # ---- libraries

    def _members(self, name: str) -> list[str]:
        """The distributions that a name means: itself, or nvidia-cudnn-cu11, -cu12 and -cu13 for "cudnn"."""
        known = {*self.matrix.libraries()}
        for framework in filter(None, map(self.matrix.framework, self.matrix.frameworks())):
            known |= {framework.distribution, *framework.companions}
        return [name] if name in known else _by_major(one for one in known if short_name(one) == name)

    def _of_distribution(self, name: str, platform: str) -> list[Variant]:
        rows = {row.version: row for row in self.matrix.releases(name) if row.platform == platform}
        found = []
        for variant in self._builds(name, platform):
            row = rows.pop(variant.version, None) if variant.indexes[0] == "default" else None
            found.append(variant if row is None else variant.replace(code=row.code, bad=row.bad))  # read, not derived
        return found + [self._library(row) for row in rows.values()]

    def _library(self, row: Library) -> Variant:
        major = str(row.cuda_major) if row.cuda_major else None
        return Variant(
            distribution=row.name,
            version=row.version,
            variant=f"cu{major}" if major else "any",
            platform=row.platform,
            cuda=show_pair(row.cuda) if row.cuda else major,
            cudnn=row.version if short_name(row.name) == "cudnn" else row.cudnn,
            code=row.code,
            indexes=("default",),
            requires_python=self._python(row.name, row.version, row.platform),
            bad=row.bad,
        )

    # ---- the index

    def _wheels(self, distribution: str, platform: str) -> dict[str, str | None]:
        """The versions that the index has for a platform, with the Pythons that each asks for."""
        key = (distribution, platform)
        if key not in self._found:
            fit = [wheel for wheel in self.wheels(distribution) if platform_of(wheel.filename) in ("", platform)]
            self._found[key] = {wheel.version: wheel.requires_python for wheel in fit}
        return self._found[key]

    def _python(self, distribution: str, version: str, platform: str) -> str | None:
        known = self._wheels(distribution, platform)
        return known.get(version) or known.get(public(version))  # the variants of a release ask for the same


def _distributions(framework: Framework) -> list[str]:
    return [way.requires[0].partition("[")[0] for way in framework.ways]


def _by_major(distributions: Iterable[str]) -> list[str]:
    """nvidia-cublas-cu11, -cu12, and nvidia-cublas last: since CUDA 13 the name is without the major."""
    return sorted(distributions, key=lambda name: (re.search(r"-cu\d\d$", name) is None, name))


def public(version: str) -> str:
    """2.13.0+cu126 -> 2.13.0."""
    return version.partition("+")[0]


def short_name(distribution: str) -> str | None:
    """nvidia-cudnn-cu12 and nvidia-cublas -> cudnn and cublas; None for a distribution that is not NVIDIA's."""
    found = re.fullmatch(r"nvidia-([a-z0-9-]+?)(?:-cu\d\d)?", distribution)
    return found[1] if found else None


def platform_of(filename: str) -> str:
    """linux-x86_64, linux-aarch64 or win-amd64, by the tag of a wheel's file name; "" for any."""
    tag = filename.removesuffix(".whl").rpartition("-")[2]
    for machine in ("x86_64", "aarch64"):
        if machine in tag:
            return f"linux-{machine}"
    return "win-amd64" if "win_amd64" in tag else ""


def pick(versions: Iterable[str], asked: str) -> str | None:
    """The version that is meant: that one, else the newest whose numbers begin with it; None for none."""
    known = sorted(versions, key=version_key, reverse=True)
    if asked in known:
        return asked
    same = [one for one in known if one.rstrip(".0") == asked.rstrip(".0")]  # 0.12 is 0.12.0, not 0.12.0.1
    return next((one for one in (*same, *known) if one.startswith(f"{asked}.")), None)


def _like(text: str, known: Sequence[str]) -> str:
    """The known names like a text, for a hint."""
    from difflib import get_close_matches

    close = get_close_matches(text, known, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else "`gpuenv matrix list` names all"
