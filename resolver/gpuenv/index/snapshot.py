"""The shipped index snapshot: what the default and the PyTorch index had for torch's stack.

A folder with index.json (date, version, packages) and one file for each package of each index,
default/<name>.json and pytorch/<name>.json.
scripts/build_snapshot.py writes them. A package file is JSON with its wheels grouped by their tags,
and one wheel or one list of requirements per line. Only the groups that fit the target are parsed:
a solve looks at a few of the hundreds of wheels of a package.

File locations are relative to the file store of their index, and no host of a registry is named.
The caller knows the file store of the default index.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Final

from ..errors import DataError
from ..model import Host, Python, Requirement, Wheel
from ..requirements.target import TargetEnvironment
from ..requirements.versions import parse_requirement, version_key
from .protocol import Index, Listed, Releases

# A package file consists of a head, the lines of metadata, and the groups of files.
_METADATA_START = '"metadata":[\n'
_FILES_START = '\n],\n"files":{\n"'
_FILE_END = "\n]\n}\n}\n"
_LINE_END = ",\n"
_GROUP_SEPARATOR = '\n],\n"'
_TAGS_END = '":[\n'

_DEFAULT, _PYTORCH = "default", "pytorch"
_LABELS = (_PYTORCH, _DEFAULT)
_VARIANT = "{variant}"  # stands for "cu126" and the like in the URL of the PyTorch index

_Target = tuple[Python, str, tuple[int, int] | None]  # interpreter, platform, glibc

# version number, file name, location, sha256, size, number of the Requires-Python, yanked, upload
# time, number of the metadata
_FileRow = tuple[int, str, str, str, int | None, int | None, str | None, str | None, int]
_VERSION: Final = 0
_PYTHON: Final = 5
_YANKED: Final = 6


class _Package:
    """One package file: its head is parsed; files and requirements are text until they are needed.

    Raises ValueError, KeyError or TypeError for a damaged file.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        head_end = text.find(_METADATA_START)
        metadata_end = text.find(_FILES_START)
        if head_end < 0 or metadata_end < head_end or not text.endswith(_FILE_END):
            raise ValueError("it is cut off or was not written by build_snapshot.py")
        fields: dict[str, Any] = json.loads(text[:head_end].rstrip(_LINE_END) + "}")
        self.name: str = fields["name"]
        self.index: str = fields["index"]
        self.versions: list[str] = fields["versions"]
        self.left_out: list[str] = fields.get("left_out", [])
        self.requires_python: list[str] = fields["requires_python"]
        self._metadata = text[head_end + len(_METADATA_START) : metadata_end + 1]
        files = text[metadata_end + len(_FILES_START) : -len(_FILE_END)]
        # [tags, the files that have them as JSON without the brackets]
        self._groups = [group.split(_TAGS_END, 1) for group in files.split(_GROUP_SEPARATOR)]

    def metadata(self, number: int) -> list[str]:
        """Return the requirements on one of the lines of metadata."""
        start = 0
        for _ in range(number):
            start = self._metadata.index("\n", start) + 1
        line = self._metadata[start : self._metadata.index("\n", start)]
        requirements: list[str] = json.loads(line.rstrip(","))
        return requirements

    def files(self, environment: TargetEnvironment | None) -> dict[str, list[_FileRow]]:
        """Return the files whose tags fit the environment, by version, newest version first."""
        texts = []
        for tags, text in self._groups:
            if environment is None or environment.fits(tags):
                texts.append(text)
        rows: list[_FileRow] = json.loads(f"[{','.join(texts)}]")
        rows.sort(reverse=True)  # by version number and file name, which are unique together
        files: dict[str, list[_FileRow]] = {}
        for row in rows:
            files.setdefault(self.versions[row[_VERSION]], []).append(row)
        return files

    def accepted_pythons(self, environment: TargetEnvironment) -> set[int | None]:
        """Return the numbers of the Requires-Python that accept the target; None is none."""
        accepted: set[int | None] = {None}
        for number, text in enumerate(self.requires_python):
            if environment.accepts_python(text):
                accepted.add(number)
        return accepted


class Snapshot(Index):
    """An index without any network.

    Args:
        folder: the snapshot's folder.
        file_store: the base URL of the files of the default index.
        default_index: the value of `Wheel.index` for wheels of the default index.

    Raises:
        DataError: a file is missing or damaged. Files are read on first use.
    """

    def __init__(
        self,
        folder: str,
        file_store: str,
        *,
        default_index: str = _DEFAULT,
    ) -> None:
        self.folder = folder
        self._file_store = file_store.rstrip("/")
        self._default_index = default_index
        self._packages: dict[str, _Package] = {}  # by path in the folder
        self._dependencies: dict[tuple[str, int], tuple[Requirement, ...]] = {}
        self._wheels: dict[tuple[str, TargetEnvironment | None], tuple[Wheel, ...]] = {}
        self._releases: dict[tuple[str, TargetEnvironment], Releases | None] = {}
        self._environments: dict[_Target, TargetEnvironment] = {}
        index = self._read_json("index.json")
        try:
            self.version: str = index["version"]
            self._listed = frozenset(index["packages"])
        except (KeyError, TypeError):
            raise self._damaged("index.json", "version or packages are missing") from None

    def environment(self, host: Host) -> TargetEnvironment:
        """Return the tags and markers of a host.

        Hosts that differ in their GPUs and drivers only have the same one, with what it has cached.
        """
        target = host.python, host.platform, host.glibc
        if target not in self._environments:
            self._environments[target] = TargetEnvironment(host)
        return self._environments[target]

    def has(self, name: str) -> bool:
        """Implement Index.has. The snapshot need not have every release of a package."""
        return any(f"{label}/{name}" in self._listed for label in _LABELS)

    def similar(self, name: str) -> list[str]:
        """Implement Index.similar."""
        from difflib import get_close_matches  # slow, and only mistakes need it

        names = {path.partition("/")[2] for path in self._listed}
        return get_close_matches(name, sorted(names), n=2, cutoff=0.8)

    def left_out(self, name: str) -> list[str]:
        """Implement Index.left_out: releases between those kept that could serve some target."""
        versions: list[str] = []
        for package in self._packages_of(name):
            versions.extend(package.left_out)
        return versions

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """Implement Index.wheels. With an environment it is much faster."""
        key = name, environment
        if key not in self._wheels:
            packages = self._packages_of(name)
            wheels: list[Wheel] = []
            for package in packages:
                for version, rows in self._files(package, environment).items():
                    wheels.extend(self._make_wheels(package, version, rows))
            if len(packages) > 1:  # a stable sort: the PyTorch index first within a version
                wheels.sort(key=lambda wheel: version_key(wheel.version), reverse=True)
            self._wheels[key] = tuple(wheels)
        return self._wheels[key]

    def releases(self, name: str, environment: TargetEnvironment) -> Releases | None:
        """Implement Index.releases: None for a package that is on both indexes."""
        key = name, environment
        if key not in self._releases:
            self._releases[key] = self._list_releases(name, environment)
        return self._releases[key]

    def dependencies(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """Implement Index.dependencies."""
        path, number = key = wheel.metadata
        if key not in self._dependencies:
            try:
                texts = self._packages[path].metadata(number)
            except ValueError:
                problem = f"the requirements of {wheel.filename} cannot be read"
                raise self._damaged(path, problem) from None
            self._dependencies[key] = tuple(map(parse_requirement, texts))
        return self._dependencies[key]

    # ---- reading ----

    def _packages_of(self, name: str) -> list[_Package]:
        paths = [f"{label}/{name}" for label in _LABELS]
        return [self._read_package(f"{path}.json") for path in paths if path in self._listed]

    def _read_package(self, path: str) -> _Package:
        if path not in self._packages:
            try:
                self._packages[path] = _Package(path, self._read_text(path))
            except (ValueError, KeyError, TypeError) as error:
                raise self._damaged(path, str(error)) from None
        return self._packages[path]

    def _list_releases(self, name: str, environment: TargetEnvironment) -> Releases | None:
        packages = self._packages_of(name)
        if len(packages) != 1:
            return None
        package = packages[0]
        accepted = package.accepted_pythons(environment)
        versions: dict[str, Listed] = {}
        files: dict[str, list[_FileRow]] = {}
        for version, rows in self._files(package, environment).items():
            fitting = [row for row in rows if row[_PYTHON] in accepted]
            if fitting:
                is_yanked = all(row[_YANKED] is not None for row in fitting)
                versions[version] = Listed(is_yanked, needs_build=False)
                files[version] = fitting

        def wheels(version: str) -> Sequence[Wheel]:
            return self._make_wheels(package, version, files[version])

        return Releases(versions, wheels)

    def _files(
        self, package: _Package, environment: TargetEnvironment | None
    ) -> dict[str, list[_FileRow]]:
        try:
            return package.files(environment)
        except (ValueError, IndexError, TypeError):
            raise self._damaged_wheel(package) from None

    def _make_wheels(
        self, package: _Package, version: str, rows: Sequence[_FileRow]
    ) -> list[Wheel]:
        base, index = self._file_store, self._default_index
        if package.index != _DEFAULT:
            # A location such as "cu126" is relative to the URL of the index without its variant.
            base = package.index.removesuffix(f"/{_VARIANT}").rstrip("/")
            index = package.index
        try:
            return [_wheel(package, version, row, base, index) for row in rows]
        except (ValueError, IndexError, TypeError):
            raise self._damaged_wheel(package) from None

    def _read_text(self, path: str) -> str:
        try:
            with open(os.path.join(self.folder, path), "rb", buffering=0) as file:
                return file.read().decode()
        except OSError as error:
            raise self._damaged(path, error.strerror or str(error)) from None
        except UnicodeError:
            raise self._damaged(path, "it is not UTF-8") from None

    def _read_json(self, path: str) -> Any:
        try:
            return json.loads(self._read_text(path))
        except ValueError as error:
            raise self._damaged(path, str(error)) from None

    def _damaged_wheel(self, package: _Package) -> DataError:
        return self._damaged(package.path, "a wheel cannot be read")

    def _damaged(self, path: str, problem: str) -> DataError:
        return DataError(
            f"the index snapshot is damaged: {os.path.join(self.folder, path)}: {problem}",
            hint="reinstall gpuenv, or give --index-url to solve without the snapshot",
        )


def _wheel(package: _Package, version: str, row: _FileRow, base: str, index: str) -> Wheel:
    """Return a file as a wheel; `base` and `index` are those of its index."""
    _, filename, location, sha256, size, python, yanked, upload_time, metadata = row
    return Wheel(
        name=package.name,
        version=version,
        filename=filename,
        url=f"{base}/{location}/{filename.replace('+', '%2B')}",
        sha256=sha256,
        size=size,
        requires_python=None if python is None else package.requires_python[python],
        yanked=yanked,
        upload_time=upload_time,
        index=index.replace(_VARIANT, location),
        metadata=(package.path, metadata),
    )
