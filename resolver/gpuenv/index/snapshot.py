"""The shipped index snapshot: what the default and the PyTorch index had for torch's stack.

A folder with index.json (date, version, packages) and one JSON file for each package of each index,
default/<name>.json and pytorch/<name>.json. scripts/build_snapshot.py writes them.

File locations are relative to the file store of their index, and no host of a registry is named.
The caller knows the file store of the default index.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from ..errors import DataError
from ..model import Host, Python, Wheel
from ..requirements.target import TargetEnvironment
from ..requirements.versions import parse_requirement, version_key
from .protocol import Metadata
from .sources import Source

_DEFAULT, _PYTORCH = "default", "pytorch"
_LABELS = (_PYTORCH, _DEFAULT)
_VARIANT = "{variant}"  # stands for "cu126" and the like in the URL of the PyTorch index

_SHA256, _METADATA = 3, 8  # fields of a file

_Target = tuple[Python, str, tuple[int, int] | None]  # interpreter, platform, glibc


class Snapshot(Source):
    """An index without any network.

    Args:
        folder: the snapshot's folder.
        file_store: the base URL of the files of the default index.
        default_index: the value of `Wheel.index` for wheels of the default index.

    Raises:
        DataError: a file is missing or damaged. Files are read on first use.
    """

    label = "snapshot"

    def __init__(self, folder: str, file_store: str, *, default_index: str = _DEFAULT) -> None:
        self.folder = folder
        self._file_store, self._default_index = file_store.rstrip("/"), default_index
        self._packages: dict[str, dict[str, Any]] = {}  # by path in the folder
        self._files: dict[tuple[str, TargetEnvironment | None], list[Wheel]] = {}
        self._environments: dict[_Target, TargetEnvironment] = {}
        try:
            index = self._read("index.json")
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
        """Implement Source.has. The snapshot need not have every release of a package."""
        return any(f"{label}/{name}" in self._listed for label in _LABELS)

    def similar(self, name: str) -> list[str]:
        """Return names of packages that are close to a name."""
        names = {path.partition("/")[2] for path in self._listed}
        return get_close_matches(name, sorted(names), n=2, cutoff=0.8)

    def left_out(self, name: str) -> list[str]:
        """Return releases between those kept that could serve some target."""
        packages = self._packages_of(name)
        return [version for package in packages for version in package.get("left_out", ())]

    def files(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """Implement Source.files; the snapshot has wheels only."""
        key = name, environment
        if key not in self._files:
            files: list[Wheel] = []
            for package in self._packages_of(name):
                try:
                    files += self._wheels(package, environment)
                except (ValueError, KeyError, IndexError, TypeError, AttributeError):
                    raise self._damaged(package["path"], "a wheel cannot be read") from None
            # A stable sort: the PyTorch index first within a version
            files.sort(key=lambda wheel: version_key(wheel.version), reverse=True)
            self._files[key] = files
        return self._files[key]

    def metadata(self, wheel: Wheel) -> Metadata | None:
        """Return the metadata of a file by its sha256; None if the snapshot does not have it."""
        for package in self._packages_of(wheel.name):
            number = package["numbers"].get(wheel.sha256)
            if number is not None:
                try:
                    requirements = map(parse_requirement, package["metadata"][number])
                    return Metadata(dependencies=tuple(requirements))
                except (LookupError, TypeError, ValueError, AttributeError):
                    problem = f"the requirements of {wheel.filename} cannot be read"
                    raise self._damaged(package["path"], problem) from None
        return None

    def _packages_of(self, name: str) -> list[dict[str, Any]]:
        packages = []
        for path in [f"{label}/{name}" for label in _LABELS if f"{label}/{name}" in self._listed]:
            if path not in self._packages:
                package = self._read(f"{path}.json")
                try:
                    rows = [row for of_tags in package["files"].values() for row in of_tags]
                    package["numbers"] = {row[_SHA256]: row[_METADATA] for row in rows}
                except (LookupError, TypeError, AttributeError):
                    raise self._damaged(f"{path}.json", "its files cannot be read") from None
                self._packages[path] = {**package, "path": f"{path}.json"}
            packages.append(self._packages[path])
        return packages

    def _wheels(
        self, package: dict[str, Any], environment: TargetEnvironment | None
    ) -> list[Wheel]:
        base, index = self._file_store, self._default_index
        if package["index"] != _DEFAULT:
            # A location such as "cu126" is relative to the URL of the index without its variant.
            index = package["index"]
            base = index.removesuffix(f"/{_VARIANT}").rstrip("/")
        rows = []
        for tags, of_tags in package["files"].items():
            if environment is None or environment.fits(tags):
                rows += of_tags
        rows.sort(reverse=True)  # by version number and file name, which are unique together
        wheels = []
        for number, filename, location, sha256, size, python, yanked, time, metadata in rows:
            wheels.append(
                Wheel(
                    name=package["name"],
                    version=package["versions"][number],
                    filename=filename,
                    url=f"{base}/{location}/{filename.replace('+', '%2B')}",
                    sha256=sha256,
                    size=size,
                    requires_python=None if python is None else package["requires_python"][python],
                    yanked=yanked,
                    upload_time=time,
                    index=index.replace(_VARIANT, location),
                    metadata=metadata,
                )
            )
        return wheels

    def _read(self, path: str) -> Any:
        try:
            with open(os.path.join(self.folder, path), encoding="utf-8") as file:
                return json.load(file)
        except OSError as error:
            raise self._damaged(path, error.strerror or str(error)) from None
        except ValueError as error:
            raise self._damaged(path, str(error)) from None

    def _damaged(self, path: str, problem: str) -> DataError:
        return DataError(
            f"the index snapshot is damaged: {os.path.join(self.folder, path)}: {problem}",
            hint="reinstall gpuenv, or give --index-url to solve without the snapshot",
        )
