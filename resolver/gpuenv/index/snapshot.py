"""The embedded index snapshot: what the default and the PyTorch index said about torch's stack on a date.

A folder with index.json (date, version, packages), compiled.json (environment.Answers) and one file for each package
of each index: default/<name>.json and pytorch/<name>.json, written by scripts/build_snapshot.py. A package file is
JSON with the wheels grouped by their tags, one wheel and one list of requirements a line, and only those groups are
parsed that fit the target: a solve looks at a few of the hundreds of wheels that a package has.

The locations of files are relative to the file store of their index, and no registry is named; the caller knows the
store of the default index.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DataError
from ..model import Requirement, Wheel
from ..requirements.target import Answers, TargetEnvironment, parse_stored_requirement, version_key
from .protocol import Index

_METADATA, _FILES, _END = '"metadata":[\n', '\n],\n"files":{\n"', "\n]\n}\n}\n"
_GROUP, _ROWS = '\n],\n"', '":[\n'
VARIANT = "{variant}"


class _Package:
    """One package file: the head is parsed, wheels and requirements are text until somebody asks for them."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        head, found, rest = text.partition(_METADATA)
        metadata, also_found, files = rest.partition(_FILES)
        if not (found and also_found and files.endswith(_END)):
            raise ValueError("it is cut off or was not written by build_snapshot.py")
        fields: dict[str, Any] = json.loads(head.rstrip(",\n") + "}")
        self.name: str = fields["name"]
        self.index: str = fields["index"]
        self.versions: list[str] = fields["versions"]
        self.left_out: list[str] = fields.get("left_out", [])
        self.requires_python: list[str] = fields["requires_python"]
        self.metadata = metadata.split(",\n")
        # [tag triple, the wheels that have it as JSON without the brackets]
        self.groups = [group.split(_ROWS, 1) for group in files[: -len(_END)].split(_GROUP)]


class Snapshot(Index):
    """An index without any network.

    `folder` is the snapshot's folder. `file_store_url` is the base of the default index's file store, or a function
    that gives it (asked once, when the first wheel of the default index is made). `default_index` is what
    Wheel.index says of those wheels. `pytorch` False leaves the PyTorch index out (--default-index-only).

    Raises errors.DataError for a missing or damaged file.
    """

    def __init__(
        self,
        folder: str,
        file_store_url: str | Callable[[], str],
        *,
        default_index: str = "default",
        pytorch: bool = True,
    ) -> None:
        self.folder = folder
        self._store = file_store_url
        self._default_index = default_index
        self._labels = ("pytorch", "default") if pytorch else ("default",)
        self._packages: dict[str, _Package] = {}
        self._requirements: dict[tuple[str, int], tuple[Requirement, ...]] = {}
        self._found: dict[tuple[str, TargetEnvironment | None], tuple[Wheel, ...]] = {}
        self._answers: Answers | None = None
        index = self._json("index.json")
        try:
            self.date: str = index["date"]
            self.version: str = index["version"]
            self._listed = frozenset(index["packages"])
        except (KeyError, TypeError):
            raise self._damaged("index.json", "date, version or packages are missing") from None

    @property
    def answers(self) -> Answers:
        """What packaging said about the snapshot's tags and markers: give it to environment.TargetEnvironment."""
        if self._answers is None:
            self._answers = Answers(self._json("compiled.json"))
        return self._answers

    def has(self, name: str) -> bool:
        """Whether the snapshot lists the package (normalized name). It need not hold each of its releases."""
        return any(f"{label}/{name}" in self._listed for label in self._labels)

    def versions(self, name: str) -> list[str]:
        """The versions of a package, newest first; [] for a package that the snapshot does not have."""
        found = {version for package in self._of(name) for version in package.versions}
        return sorted(found, key=version_key, reverse=True)

    def left_out(self, name: str) -> list[str]:
        """Versions of a package that the index has between those kept here, and that could serve some target."""
        return [version for package in self._of(name) for version in package.left_out]

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """As protocol.Index has it. With an environment only the wheels whose tags fit it, which is much quicker."""
        key = name, environment
        if key not in self._found:
            packages = self._of(name)
            found = [wheel for package in packages for wheel in self._wheels(package, environment)]
            if len(packages) > 1:  # a stable sort: the PyTorch index first where both have a version
                found.sort(key=lambda wheel: version_key(wheel.version), reverse=True)
            self._found[key] = tuple(found)
        return self._found[key]

    def dependencies(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """As protocol.Index has it, for a wheel that this snapshot gave."""
        path, number = wheel.metadata
        if (path, number) not in self._requirements:
            try:
                texts = json.loads(self._packages[path].metadata[number])
            except (ValueError, IndexError):
                raise self._damaged(path, f"the requirements of {wheel.filename} cannot be read") from None
            self._requirements[path, number] = tuple(map(parse_stored_requirement, texts))
        return self._requirements[path, number]

    # ---- reading ----

    def _of(self, name: str) -> list[_Package]:
        paths = (f"{label}/{name}" for label in self._labels)
        return [self._package(f"{path}.json") for path in paths if path in self._listed]

    def _package(self, path: str) -> _Package:
        if path not in self._packages:
            try:
                self._packages[path] = _Package(path, self._text(path))
            except (ValueError, KeyError, TypeError) as error:
                raise self._damaged(path, str(error)) from None
        return self._packages[path]

    def _wheels(self, package: _Package, environment: TargetEnvironment | None) -> list[Wheel]:
        found = []
        try:
            for tags, rows in package.groups:
                if environment is None or environment.rank(f"a-1-{tags}.whl") is not None:
                    found.append(rows)
            rows = json.loads(f"[{','.join(found)}]")
            rows.sort(reverse=True)  # by version and file name, of which there are no two alike
            return self._made(package, rows)
        except (ValueError, IndexError, TypeError):
            raise self._damaged(package.path, "a wheel cannot be read") from None

    def _made(self, package: _Package, rows: list[Any]) -> list[Wheel]:
        own = package.index != "default"  # its locations are such as "cu126", below the base of the index's own URL
        if own:
            base = package.index.removesuffix(f"/{VARIANT}")
        else:
            if not isinstance(self._store, str):
                self._store = self._store()
            base = self._store
        base, made = base.rstrip("/"), []
        for version, filename, location, sha256, size, python, yanked, upload_time, metadata in rows:
            url = f"{base}/{location}/{filename.replace('+', '%2B')}"
            needs = None if python is None else package.requires_python[python]
            index = package.index.replace(VARIANT, location) if own else self._default_index
            where, number = (package.path, metadata), package.versions[version]
            # In the order of the fields of Wheel: this is the busiest line of a solve.
            row = (package.name, number, filename, url, sha256, size, needs, yanked, upload_time, index, where)
            made.append(Wheel.of(*row))
        return made

    def _text(self, path: str) -> str:
        try:
            with open(os.path.join(self.folder, path), "rb", buffering=0) as file:
                return file.read().decode()
        except (OSError, UnicodeError) as error:
            raise self._damaged(path, getattr(error, "strerror", None) or "it is not UTF-8") from None

    def _json(self, path: str) -> Any:
        try:
            return json.loads(self._text(path))
        except ValueError as error:
            raise self._damaged(path, str(error)) from None

    def _damaged(self, path: str, why: str) -> DataError:
        where = os.path.join(self.folder, path)
        return DataError(
            f"the index snapshot is damaged: {where}: {why}",
            hint="reinstall gpuenv, or give --index-url to solve without the snapshot",
        )
