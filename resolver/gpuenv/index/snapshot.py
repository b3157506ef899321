"""The shipped index snapshot: what the default and the PyTorch index had for torch's stack.

A folder with index.json (date, version, packages) and one JSON file for each package of each index,
default/<name>.json and pytorch/<name>.json. scripts/data/snapshot.py writes them.

File locations are relative to the file store of their index, and no host of a registry is named.
The caller knows the file store of the default index.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from operator import itemgetter
from typing import TypeVar

from ..errors import DataError
from ..model import Host, Python, Value, Wheel
from ..requirements.target import TargetEnvironment
from ..requirements.versions import parse_requirement
from ..serialize import decode
from .protocol import Metadata
from .sources import Source, newest_first

_DEFAULT, _PYTORCH = "default", "pytorch"
_LABELS = (_PYTORCH, _DEFAULT)
_VARIANT = "{variant}"  # stands for "cu126" and the like in the URL of the PyTorch index

# A file: (number of its version, name, location, sha256, size, number of its Requires-Python,
# yanked, upload time, number of its requirements).
_Row = tuple[int, str, str, str, int | None, int | None, str | None, str | None, int]
_Target = tuple[Python, str, tuple[int, int] | None]  # interpreter, platform, glibc
_Content = TypeVar("_Content")


class _Index(Value, forbid_unknown_fields=False):
    date: str
    version: str
    packages: dict[str, object]


class _Package(Value, forbid_unknown_fields=False):
    """A package of one index: what the numbers of its files name, and the files by their tags."""

    name: str
    index: str
    versions: list[str]
    requires_python: list[str]
    metadata: list[list[str]]
    files: dict[str, list[_Row]]
    left_out: tuple[str, ...] = ()

    def rows(self, environment: TargetEnvironment | None = None) -> list[_Row]:
        """Return the files; with an environment, those that fit."""
        return [
            row
            for tags, rows in self.files.items()
            if environment is None or environment.fits(tags)
            for row in rows
        ]


class Snapshot(Source):
    """An index without any network.

    Args:
        folder: the snapshot's folder.
        file_store: the base URL of the files of the default index.
        default_index: the value of `Wheel.index` for wheels of the default index.

    Raises:
        DataError: a file is missing or damaged. Files are read on first use.
    """

    def __init__(self, folder: str, file_store: str, *, default_index: str = _DEFAULT) -> None:
        self.folder = folder
        self._file_store, self._default_index = file_store.rstrip("/"), default_index
        self._packages: dict[str, _Package] = {}  # by path in the folder
        self._requirements: dict[str, list[str]] = {}  # of the files that were read, by sha256
        self._files: dict[tuple[str, TargetEnvironment | None], list[Wheel]] = {}
        self._environments: dict[_Target, TargetEnvironment] = {}
        index = self._read("index.json", _Index)
        self.date, self.version, self._listed = index.date, index.version, index.packages

    def environment(self, host: Host) -> TargetEnvironment:
        """Return the tags and markers of a host.

        Hosts that differ in their GPUs and drivers only have the same one, with what it has cached.
        """
        target = host.python, host.platform, host.glibc
        if target not in self._environments:
            self._environments[target] = TargetEnvironment(host)
        return self._environments[target]

    def has(self, name: str) -> bool:
        """Implement Source.has. The snapshot need not have every release of a package."""
        return any(f"{label}/{name}" in self._listed for label in _LABELS)

    def similar(self, name: str) -> list[str]:
        """Return names of packages that are close to a name."""
        names = {path.partition("/")[2] for path in self._listed}
        return get_close_matches(name, sorted(names), n=2, cutoff=0.8)

    def left_out(self, name: str) -> list[str]:
        """Return releases between those kept that could serve some target."""
        return [version for package in self._packages_of(name) for version in package.left_out]

    def files(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """Implement Source.files; the snapshot has wheels only."""
        key = name, environment
        if key not in self._files:
            files: list[Wheel] = []
            for package in self._packages_of(name):
                files += self._wheels(package, environment)
            # A stable sort: the PyTorch index first within a version
            self._files[key] = newest_first(files)
        return self._files[key]

    def metadata(self, wheel: Wheel) -> Metadata | None:
        """Return the metadata of a file by its sha256; None if the snapshot does not have it."""
        self._packages_of(wheel.name)
        texts = self._requirements.get(wheel.sha256 or "")
        if texts is None:
            return None
        return Metadata(dependencies=tuple(map(parse_requirement, texts)))

    def _packages_of(self, name: str) -> list[_Package]:
        packages = []
        for path in [f"{label}/{name}" for label in _LABELS if f"{label}/{name}" in self._listed]:
            if path not in self._packages:
                package = self._read(f"{path}.json", _Package)
                try:
                    for number, _, _, sha256, _, python, _, _, requirements in package.rows():
                        self._requirements[sha256] = package.metadata[requirements]
                        package.versions[number]
                        if python is not None:
                            package.requires_python[python]
                except IndexError:
                    raise self._damaged(f"{path}.json", "a number names nothing") from None
                self._packages[path] = package
            packages.append(self._packages[path])
        return packages

    def _wheels(self, package: _Package, environment: TargetEnvironment | None) -> list[Wheel]:
        base, index = self._file_store, self._default_index
        if package.index != _DEFAULT:
            # A location such as "cu126" is relative to the URL of the index without its variant.
            index = package.index
            base = index.removesuffix(f"/{_VARIANT}").rstrip("/")
        # By version number and file name, which are unique together.
        rows = sorted(package.rows(environment), key=itemgetter(0, 1), reverse=True)
        return [
            Wheel(
                name=package.name,
                version=package.versions[number],
                filename=filename,
                url=f"{base}/{location}/{filename.replace('+', '%2B')}",
                sha256=sha256,
                size=size,
                requires_python=None if python is None else package.requires_python[python],
                yanked=yanked,
                upload_time=time,
                index=index.replace(_VARIANT, location),
            )
            for number, filename, location, sha256, size, python, yanked, time, _ in rows
        ]

    def _read(self, path: str, kind: type[_Content]) -> _Content:
        try:
            with open(os.path.join(self.folder, path), "rb") as file:
                return decode(file.read(), kind)
        except (OSError, ValueError) as error:
            raise self._damaged(path, str(error)) from None

    def _damaged(self, path: str, problem: str) -> DataError:
        return DataError(
            f"the index snapshot is damaged: {os.path.join(self.folder, path)}: {problem}",
            hint="reinstall gpuenv, or give --index-url to solve without the snapshot",
        )
