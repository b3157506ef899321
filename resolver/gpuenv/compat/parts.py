"""What an environment consists of, as the rules see it: from pins, wheels or conda records.

`parts_of_pins` reads (name, version) pairs: a plan, a lock of any tool, an installed environment.
compat.conda_parts does the same for conda records. compat.evaluate applies the rules to the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..model import Build, CudaVersion, Library, Value
from ..requirements.target import normalize_name
from .data import CompatibilityData
from .extensions import BuiltFor


class Package(Value):
    """One package of an environment.

    `name` is what its installer calls it (libcudnn). `distribution` is the wheel distribution whose
    rows in the data describe it (nvidia-cudnn-cu12); "" if there is none. `built_for` is the torch
    that the name of an extension names.
    """

    name: str
    version: str
    distribution: str
    built_for: BuiltFor | None = None

    @property
    def subject(self) -> str:
        """How reasons name the package."""
        return f"{self.name} {self.version}"


class FrameworkBuild(Value):
    """The build of a framework or of a companion.

    `build` None is a release that the data does not know. `on_path` says that a convolution runs
    the build's own code: true for a framework, false for a companion.
    """

    package: str
    framework: str
    subject: str
    build: Build | None
    on_path: bool


class CudaLibrary(Value):
    """A CUDA library on the path of a convolution. `library` None: the data does not know it."""

    package: Package
    library: Library | None


class Toolkit(Value):
    """A package whose version is the CUDA version of the environment (cuda-version of conda)."""

    package: Package
    cuda: CudaVersion


class Parts(Value):
    """The parts of an environment. `packages` holds every package; the others are views of some."""

    packages: tuple[Package, ...]
    builds: tuple[FrameworkBuild, ...]
    libraries: tuple[CudaLibrary, ...]
    toolkits: tuple[Toolkit, ...] = ()


def parts_of_pins(pins: Iterable[tuple[str, str]], platform: str, data: CompatibilityData) -> Parts:
    """Describe pinned or installed distributions.

    Args:
        pins: (name, version) pairs. Names may be spelled in any way. Packages that no rule is
            about are allowed.
        platform: as in Host.platform.
        data: the compatibility data.
    """
    versions = {normalize_name(name): version for name, version in pins}
    packages = [
        Package(
            name=name, version=version, distribution=name, built_for=data.built_for(name, version)
        )
        for name, version in versions.items()
    ]
    # A framework's own library counts with the framework's build.
    ways = [way for framework in data.all_frameworks() for way in framework.ways]
    carriers = {name for way in ways for name in way.carriers}
    libraries = []
    for package in packages:
        name = package.name
        if data.is_library(name) and name not in carriers:
            library = data.library(name, package.version, platform)
            libraries.append(CudaLibrary(package=package, library=library))
        elif data.is_extension(name):
            library = data.extension(name, package.version, platform)
            if library is not None:
                libraries.append(CudaLibrary(package=package, library=library))
    return Parts(
        packages=tuple(packages),
        builds=tuple(_builds(versions, platform, data)),
        libraries=tuple(libraries),
    )


def known_builds(
    pins: Iterable[tuple[str, str]], platform: str, data: CompatibilityData
) -> tuple[Build, ...]:
    """Return the builds of the frameworks among pinned packages, as far as the data knows them."""
    versions = {normalize_name(name): version for name, version in pins}
    parts = _builds(versions, platform, data)
    return tuple(part.build for part in parts if part.build is not None and part.on_path)


def _builds(
    versions: Mapping[str, str], platform: str, data: CompatibilityData
) -> Iterator[FrameworkBuild]:
    """Yield the frameworks and the companions among the packages."""
    for framework in data.all_frameworks():
        if [way.variant for way in framework.ways] == ["*"]:  # versions name builds: 2.13.0+cu126
            for name in framework.distributions:
                if name in versions:
                    yield FrameworkBuild(
                        package=name,
                        framework=framework.name,
                        subject=f"{name} {versions[name]}",
                        build=data.build(name, versions[name], platform),
                        on_path=name == framework.distribution,
                    )
            continue
        way = framework.installed_way(versions, platform)
        if way is not None:
            version = versions[way.distribution]
            yield FrameworkBuild(
                package=way.distribution,
                framework=framework.name,
                subject=f"{framework.name} {version} ({way.variant})",
                build=data.variant(framework, way, version, platform),
                on_path=True,
            )
