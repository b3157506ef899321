"""The rows of matrix_data's JSON files as values: builds of a framework, releases of a library."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import DataError
from ..model import Build, Code, Framework, Library, parse_pair
from .architectures import parse_target
from .known_bad import KnownBad


class Builds:
    """The builds of one framework and of its companions, from frameworks/<name>.json."""

    def __init__(self, path: str, framework: Framework) -> None:
        """DataError names the file and the row that is damaged; the rest of a row is looked at when it is asked for.

        A framework of few builds has them as [[build]] in its TOML file; one whose variants are distributions of
        their own has none at all.
        """
        self.path, self.framework = path, framework
        if os.path.exists(path):
            data, lines = _in_lines(path, "builds")
        else:
            data, lines = _inline(path.removesuffix(".json") + ".toml"), None
        # A row of a file as derive_rows.py writes it stays a line until it is asked for.
        self.rows: dict[tuple[str, str], dict[str, Any] | str] = {}
        for row in _rows(data, "builds", path) if lines is None else lines:
            key = (_text(row, "local", path), _text(row, "platform", path))
            if key in self.rows:
                raise DataError(f"{path}: two builds are named {key[0]} on {key[1]}")
            self.rows[key] = row
        # torchvision 0.28.0 -> the releases of the framework that it goes with, the one it was built with first
        self.partners: dict[tuple[str, str], list[str]] = {}
        self.companions: dict[str, list[tuple[str, str]]] = {}
        for row in _rows(data, "companions", path):
            name, version = _text(row, "name", path), _text(row, "version", path)
            self.partners[name, version] = partners = _texts(row, framework.name, path)
            for partner in partners:
                self.companions.setdefault(partner, []).append((name, version))
        self.found: dict[tuple[str, str, str], Build | None] = {}

    def find(self, distribution: str, version: str, platform: str) -> Build | None:
        """The build of the framework or of a companion that a version string names."""
        key = (distribution, version, platform)
        if key not in self.found:
            own = distribution == self.framework.distribution
            self.found[key] = self._own(version, platform) if own else self._companion(*key)
        return self.found[key]

    def all(self, distribution: str, platform: str, above: str = "") -> Sequence[Build]:
        """Every build on a platform (above a version), newest first, the default index first within a version."""
        versions = [local for local, where in self.rows if where == platform]
        if distribution != self.framework.distribution:
            ways = sorted({local.partition("+")[1] + local.partition("+")[2] for local in versions})
            known = [version for name, version in self.partners if name == distribution]
            versions = [version + way for version in known for way in ways]
        if above:
            limit = _numbers(above)
            versions = [version for version in versions if _numbers(version.partition("+")[0]) > limit]
        found = [build for version in versions if (build := self.find(distribution, version, platform))]
        found.sort(key=lambda build: build.index != "default")
        return sorted(found, key=lambda build: [int(part) for part in build.version.split(".")], reverse=True)

    def _own(self, local: str, platform: str) -> Build | None:
        row = self.rows.get((local, platform))
        if isinstance(row, str):
            row = self.rows[local, platform] = _parsed(row, self.path)
        if row is None:
            return None
        version, cuda = _text(row, "version", self.path), row.get("cuda")
        return Build(
            name=self.framework.distribution,
            version=version,
            local=local,
            variant=_text(row, "variant", self.path),
            index=_text(row, "index", self.path),
            platform=platform,
            cuda=_pair(row, "cuda", self.path) if cuda is not None else None,
            cudnn=row.get("cudnn"),
            code=_code(row, self.path),
            companions=tuple(self.companions.get(version, ())),
        )

    def _companion(self, distribution: str, local: str, platform: str) -> Build | None:
        version, _, variant = local.partition("+")
        partners = self.partners.get((distribution, version), ())
        for partner in partners:
            base = self.find(self.framework.distribution, partner + ("+" + variant if variant else ""), platform)
            if base is not None:
                source = f"built with {base.name} {base.local}: {base.code.source}"
                names = tuple((self.framework.distribution, name) for name in partners)
                code = base.code.replace(evidence="documented", source=source)
                return base.replace(
                    name=distribution, version=version, local=local, cudnn=None, code=code, companions=names
                )
        return None


class Releases:
    """The releases of one CUDA library, from libraries/<distribution>.json."""

    def __init__(self, path: str, distribution: str, bad: KnownBad) -> None:
        """`bad` says which releases are known to be bad. DataError as for builds."""
        self.path, self.distribution, self.bad = path, distribution, bad
        data = read(path)
        major = data.get("cuda_major", "")
        if major is not None and not isinstance(major, int):
            raise DataError(f"{path}: cuda_major is missing or no number")
        self.major: int | None = major  # None: it differs by release, and is that of the release's toolkit
        self.rows = {
            (_text(row, "version", path), _text(row, "platform", path)): row for row in _rows(data, "releases", path)
        }
        self.found: dict[tuple[str, str], Library] = {}

    def find(self, version: str, platform: str) -> Library | None:
        """What is known about a release on a platform."""
        key = (version, platform)
        if key not in self.rows:
            return None
        if key not in self.found:
            bad = self.bad.of(self.distribution, version)
            cuda = self._cuda(key)
            self.found[key] = Library(
                name=self.distribution, version=version, platform=platform,
                cuda_major=self.major if self.major is not None else cuda[0] if cuda else 0,
                code=_code(self.rows[key], self.path), bad=bad, cuda=cuda, cudnn=self.rows[key].get("cudnn"),
            )  # fmt: skip
        return self.found[key]

    def _cuda(self, key: tuple[str, str]) -> tuple[int, int] | None:
        return _pair(self.rows[key], "cuda", self.path) if self.rows[key].get("cuda") is not None else None

    def reaches(self, version: str) -> bool:
        """Whether there is a release of that version or an older one, on whatever platform."""
        limit = _numbers(version)
        return any(_numbers(one) <= limit for one, _ in self.rows)

    def upto(self, version: str, platform: str) -> Library | None:
        """The release of this version, else the newest older one: what a plug-in's version range admits."""
        if (version, platform) not in self.rows:
            limit = _numbers(version)
            older = [one for one, where in self.rows if where == platform and _numbers(one) < limit]
            version = max(older, key=_numbers, default=version)
        return self.find(version, platform)

    def all(self) -> Sequence[Library]:
        """Every release and platform, in the order of the file."""
        return [library for key in self.rows if (library := self.find(*key))]


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def read(path: str) -> dict[str, Any]:
    """The object in a JSON file. DataError if there is none."""
    try:
        data = json.loads(_content(path))
    except ValueError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise DataError(f"{path} must hold an object")
    return data


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing", hint="reinstall gpuenv, or run scripts/compile_matrix.py") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def read_toml(path: str) -> dict[str, Any]:
    """The content of a TOML file. DataError if there is none. Slow to import: for what is not in tables.json."""
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _inline(path: str) -> dict[str, Any]:
    data = read_toml(path)
    if "build" not in data and [way["variant"] for way in data.get("way", [])] in ([], ["*"]):
        missing = path.removesuffix(".toml") + ".json"
        raise DataError(f"{missing} is missing", hint="reinstall gpuenv, or give the framework's file a [[build]]")
    rows = [{"local": row.get("version"), "index": "default", **row} for row in data.get("build", [])]
    return {"builds": rows, "companions": data.get("companion", [])}


def _rows(data: Mapping[str, Any], name: str, path: str) -> Iterator[dict[str, Any]]:
    rows = data.get(name)
    if not isinstance(rows, list):
        raise DataError(f"{path}: {name} must be a list")
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(f"{path}: {name}[{number}] must be an object")
        yield row


def _in_lines(path: str, name: str) -> tuple[dict[str, Any], list[str] | None]:
    """The object in a JSON file without its last list, and that one's rows as texts, one a line.

    None in place of these if the file is not laid out like that; then the object is whole.
    """
    text = _content(path).decode(errors="replace")
    head, found, body = text.partition(f',\n "{name}": [\n  {{')
    lines = body.removesuffix("}\n ]\n}\n").split("},\n  {")
    if not found or not body.endswith("}\n ]\n}\n") or any("\n" in line for line in lines):
        return read(path), None
    try:
        return json.loads(head + "}"), lines
    except ValueError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _parsed(line: str, path: str) -> dict[str, Any]:
    try:
        row = json.loads(f"{{{line}}}")
    except ValueError as error:
        raise DataError(f"{path} cannot be read: {error} in the row {line[:80]}") from error
    return dict(row)


def _text(row: Mapping[str, Any] | str, field: str, path: str) -> str:
    if isinstance(row, str):
        found = row.partition(f'"{field}": "')[2].partition('"')[0]
        return found or _text(_parsed(row, path), field, path)
    value = row.get(field)
    if not isinstance(value, str) or not value:
        raise DataError(f"{path}: {field} is missing or no text in {_name(row)}")
    return value


def _texts(row: Mapping[str, Any], field: str, path: str) -> list[str]:
    value = row.get(field)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(f"{path}: {field} is no list of texts in {_name(row)}")
    return value


def _pair(row: Mapping[str, Any], field: str, path: str) -> tuple[int, int]:
    try:
        return parse_pair(_text(row, field, path))
    except ValueError as error:
        raise DataError(f"{path}: {field} in {_name(row)}: {error}") from error


def _name(row: Mapping[str, Any]) -> str:
    """How a message names a row."""
    return f"the row {row.get('local') or row.get('version') or '?'} on {row.get('platform') or '?'}"


def _code(row: Mapping[str, Any], path: str) -> Code:
    lists: list[tuple[str, ...] | None] = []
    for field in ("sass", "ptx"):
        targets = None if row.get(field) is None else tuple(_texts(row, field, path))
        try:
            for target in targets or ():
                parse_target(target)
        except ValueError as error:
            raise DataError(f"{path}: {field} in {_name(row)}: {error}") from error
        lists.append(targets)
    evidence, source = _text(row, "evidence", path), _text(row, "source", path)
    if evidence not in ("scanned", "documented"):
        raise DataError(f"{path}: evidence in {_name(row)} is neither scanned nor documented")
    if evidence == "scanned":
        source += f" of {_text(row, 'file', path)} (sha256 {_text(row, 'sha256', path)})"
    made_by = _pair(row, "made_by", path) if row.get("made_by") is not None else None
    some = tuple(_texts(row, "some", path)) if "some" in row else ()
    return Code(sass=lists[0], ptx=lists[1], made_by=made_by, evidence=evidence, source=source, some=some)
