"""Look the compatibility data up by name, for `gpuenv matrix list` and `gpuenv matrix show`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from ..errors import InputError, did_you_mean
from ..model import Build, Code, Framework, Library, Value, Wheel, show_pair
from ..requirements.target import PLATFORMS, is_prerelease, normalize_name, version_key
from ..requirements.versions import public
from .data import CompatibilityData

# The wheels of a distribution in the index snapshot, () for none. The caller gives the function,
# because this package does not read the index's files.
Wheels = Callable[[str], Sequence[Wheel]]


class Variant(Value):
    """One variant of a release on a platform.

    `version` is the distribution's own, with its local part. `cuda` is the toolkit ("13.2"), or
    only its major if no more is known. `indexes` are those that have the variant, best first. `bad`
    is as in model.Library.
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
    """A name that `show` takes, with its releases on one platform, newest first.

    `kind` is framework or library. `on_path` says that a convolution runs it, so that R2 and R3
    apply.
    """

    name: str
    kind: str
    distributions: tuple[str, ...]
    on_path: bool
    releases: tuple[Release, ...]


class Catalog:
    """Looks names up in the data.

    `wheels` adds what only an index knows: releases of jax, Requires-Python of a wheel.
    """

    def __init__(self, data: CompatibilityData, wheels: Wheels) -> None:
        self._data, self._wheels = data, wheels
        self._distributions = set(data.libraries())
        for framework in data.all_frameworks():
            self._distributions.update(framework.distributions)
        self._pythons: dict[tuple[str, str], dict[str, str | None]] = {}

    def names(self) -> list[str]:
        """Return frameworks, then distributions with rows, then the short names of NVIDIA's."""
        frameworks = list(self._data.frameworks())
        libraries = sorted(self._distributions.difference(frameworks))
        short_names = {short_name(name) for name in libraries}
        return [*frameworks, *libraries, *sorted(filter(None, short_names))]

    def entries(self, platform: str) -> list[Entry]:
        """Return every framework and every distribution with rows, in the order of `names`."""
        names = [name for name in self.names() if self._members(name) in ([], [name])]
        return [self.entry(name, platform) for name in names]

    def entry(self, name: str, platform: str) -> Entry:
        """Return what is known of a framework, a distribution or a short name.

        Raises:
            InputError: nothing is known of the name.
        """
        normalized = normalize_name(name)
        framework = self._data.framework(normalized)
        members = self._members(normalized)
        variants: list[Variant] = []
        if framework is not None:
            variants = self._variants_of_framework(framework, platform)
            members = sorted({way.distribution for way in framework.ways})
        elif members:
            for member in members:
                variants += self._variants_of_distribution(member, platform)
        else:
            hint = did_you_mean(normalized, self.names(), 3) or "`gpuenv matrix list` names all"
            raise InputError(f"nothing is known about {name}", hint=hint)
        return Entry(
            name=normalized,
            kind="library" if framework is None else "framework",
            distributions=tuple(members),
            on_path=framework is not None or any(map(self._data.is_library, members)),
            releases=_releases(variants),
        )

    def release(self, name: str, version: str, platform: str) -> Release:
        """Return the release of a version, else the newest whose numbers begin with it.

        9.10.2 means 9.10.2.21. For a short name, these are the releases of every CUDA major that
        the version means. A version with a local part (2.13.0+cu126) means only that variant.

        Raises:
            InputError: there is no such release; the hint names releases like it.
        """
        entry = self.entry(name, platform)
        prefix, _, local = version.partition("+")
        # Variants that share versions: a framework's all, a library's by distribution.
        groups: dict[str, list[Variant]] = {name: [] for name in entry.distributions}
        for release in entry.releases:
            for variant in release.variants:
                key = variant.distribution if entry.kind == "library" else ""
                groups.setdefault(key, []).append(variant)
        variants: list[Variant] = []
        for group in groups.values():
            meant = pick({public(variant.version) for variant in group}, prefix)
            same = [variant for variant in group if public(variant.version) == meant]
            variants += [variant for variant in same if local in ("", variant.variant)]
        if not variants:
            raise self._no_release(entry, version, platform)
        newest = max((public(variant.version) for variant in variants), key=version_key)
        return Release(version=newest, variants=tuple(variants))

    def _no_release(self, entry: Entry, version: str, platform: str) -> InputError:
        where = f"{entry.name} {version} on {platform}"
        if not entry.releases:
            others = [other for other in PLATFORMS if self.entry(entry.name, other).releases]
            hint = "there are no rows of it yet"
            if others:
                hint = f"it is known on {' and '.join(others)}: --platform"
            return InputError(f"nothing is known about {where}", hint=hint)
        known = [release.version for release in entry.releases]
        newer = [other for other in known if version_key(other) > version_key(public(version))]
        near = known[max(0, len(newer) - 2) : len(newer) + 3]
        hint = f"near it are {', '.join(near)}"
        for_gpu = f"{entry.name}-gpu"  # TensorFlow 2.10 for Windows is tensorflow-gpu
        if for_gpu in self.names():
            versions = {release.version for release in self.entry(for_gpu, platform).releases}
            if pick(versions, public(version)) is not None:
                hint += f"; {for_gpu} has it: `gpuenv matrix show {for_gpu} {version}`"
        return InputError(f"no release is known as {where}", hint=hint)

    # ---- frameworks

    def _variants_of_framework(self, framework: Framework, platform: str) -> list[Variant]:
        variants: list[Variant] = []
        for way in framework.ways:
            if way.platforms and platform not in way.platforms:
                continue
            if way.variant == "*":
                variants += self._variants_of_builds(framework.distribution, platform)
                continue
            distribution = way.distribution
            for version in self._pythons_of(distribution, platform):
                if is_prerelease(version):
                    continue
                build = self._data.variant(framework, way, version, platform)
                if build is not None:
                    build = build.replace(name=distribution)
                    variants.append(self._variant_of_build(build, ("default",)))
        return variants

    def _variants_of_builds(self, distribution: str, platform: str) -> list[Variant]:
        """Return a distribution's builds; builds of several indexes with the same facts are one."""
        groups: dict[tuple[object, ...], list[Build]] = {}
        for build in self._data.builds(distribution, platform):
            code = build.code
            facts = (build.version, build.variant, build.cuda, build.cudnn, code.sass, code.ptx)
            groups.setdefault(facts, []).append(build)
        variants = []
        for group in groups.values():
            indexes = tuple(build.index for build in group)
            variants.append(self._variant_of_build(group[0], indexes))
        return variants

    def _variant_of_build(self, build: Build, indexes: tuple[str, ...]) -> Variant:
        return Variant(
            distribution=build.name,
            version=build.local,
            variant=build.variant,
            platform=build.platform,
            cuda=show_pair(build.cuda) if build.cuda else None,
            cudnn=build.cudnn,
            code=build.code,
            indexes=indexes,
            requires_python=self._requires_python(build.name, build.local, build.platform),
        )

    # ---- libraries

    def _members(self, name: str) -> list[str]:
        """Return the distributions that a name means; a short name (cudnn) may mean several."""
        if name in self._distributions:
            return [name]
        members = [other for other in self._distributions if short_name(other) == name]
        # nvidia-cublas-cu11, -cu12, and nvidia-cublas last: the name since CUDA 13.
        return sorted(members, key=lambda name: (re.search(r"-cu\d\d$", name) is None, name))

    def _variants_of_distribution(self, name: str, platform: str) -> list[Variant]:
        releases = self._data.releases(name, platform)
        by_version = {library.version: library for library in releases}
        variants = []
        for variant in self._variants_of_builds(name, platform):
            library = None
            if variant.indexes[0] == "default":
                library = by_version.pop(variant.version, None)
            if library is None:
                variants.append(variant)
            else:  # the code was read from the file, not derived from the framework
                bad = self._data.bad(name, library.version)
                variants.append(variant.replace(code=library.code, bad=bad))
        for library in by_version.values():
            if not library.by_cuda:
                variants.append(self._variant_of_library(library))
            for choice in library.choices():
                tag = "cu" + show_pair(choice.cuda or (0, 0)).replace(".", "")
                variants.append(self._variant_of_library(choice).replace(variant=tag))
        return variants

    def _variant_of_library(self, library: Library) -> Variant:
        major = str(library.cuda_major) if library.cuda_major else None
        local = library.version.partition("+")[2]
        is_cudnn = short_name(library.name) == "cudnn"
        return Variant(
            distribution=library.name,
            version=library.version,
            variant=local or (f"cu{major}" if major else "any"),
            platform=library.platform,
            cuda=show_pair(library.cuda) if library.cuda else major,
            cudnn=library.version if is_cudnn else library.cudnn,
            code=library.code,
            indexes=("url",) if library.url else ("default",),
            requires_python=self._requires_python(library.name, library.version, library.platform),
            bad=self._data.bad(library.name, library.version),
        )

    # ---- the index

    def _pythons_of(self, distribution: str, platform: str) -> dict[str, str | None]:
        """Return the versions that the index has for a platform, each with its Requires-Python."""
        key = (distribution, platform)
        if key not in self._pythons:
            pythons: dict[str, str | None] = {}
            for wheel in self._wheels(distribution):
                if platform_of(wheel.filename) in ("", platform):
                    pythons[wheel.version] = wheel.requires_python
            self._pythons[key] = pythons
        return self._pythons[key]

    def _requires_python(self, distribution: str, version: str, platform: str) -> str | None:
        pythons = self._pythons_of(distribution, platform)
        # The variants of a release have the same Requires-Python.
        return pythons.get(version) or pythons.get(public(version))


def _releases(variants: Iterable[Variant]) -> tuple[Release, ...]:
    """Group variants by version, newest first."""
    groups: dict[str, list[Variant]] = {}
    for variant in variants:
        groups.setdefault(public(variant.version), []).append(variant)
    versions = sorted(groups, key=version_key, reverse=True)
    return tuple(Release(version=version, variants=tuple(groups[version])) for version in versions)


def short_name(distribution: str) -> str | None:
    """Return the short name of an NVIDIA distribution: nvidia-cudnn-cu12 -> cudnn; else None."""
    match = re.fullmatch(r"nvidia-([a-z0-9-]+?)(?:-cu\d\d)?", distribution)
    return match[1] if match else None


def platform_of(filename: str) -> str:
    """Return a wheel's platform (linux-x86_64, linux-aarch64, win-amd64); "" for any."""
    tag = filename.rpartition("-")[2]
    for machine in ("x86_64", "aarch64"):
        if machine in tag:
            return f"linux-{machine}"
    return "win-amd64" if "win_amd64" in tag else ""


def pick(versions: Iterable[str], prefix: str) -> str | None:
    """Return the version that a text means: itself, else the newest whose numbers begin with it."""
    known = sorted(versions, key=version_key, reverse=True)
    if prefix in known:
        return prefix
    # 0.12 is 0.12.0 rather than 0.12.0.1.
    same = [version for version in known if version.rstrip(".0") == prefix.rstrip(".0")]
    for version in (*same, *known):
        if version.startswith(f"{prefix}."):
            return version
    return None
