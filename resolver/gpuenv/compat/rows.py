"""The rows of matrix_data's JSON files as values: builds of frameworks, releases of libraries."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import DataError
from ..model import Build, Code, CudaVersion, Framework, Library, parse_pair
from .architectures import parse_target
from .known_bad import KnownBad

Row = Mapping[str, Any]


class Builds:
    """The builds of one framework and of its companions, from frameworks/<name>.json.

    A framework with few builds has them as [[build]] in its TOML file. A framework whose variants
    are distributions of their own has none.
    """

    def __init__(self, path: str, framework: Framework, more: Sequence[Row] = ()) -> None:
        """Read the rows. A row becomes a Build when it is asked for.

        Args:
            path: the file of the rows.
            framework: the framework.
            more: rows of the user, which replace none of the file.

        Raises:
            DataError: names the file and the row that is damaged.
        """
        self.path, self.framework = path, framework
        if os.path.exists(path):
            content = read(path)
        else:
            content = _inline_builds(path.removesuffix(".json") + ".toml")
        self._rows: dict[tuple[str, str], Row] = {}
        for row in _rows(content, "builds", path):
            key = (_text(row, "local", path), _text(row, "platform", path))
            if key in self._rows:
                raise DataError(f"{path}: two builds are named {key[0]} on {key[1]}")
            self._rows[key] = row
        for row in more:
            self._rows.setdefault((row["local"], row["platform"]), row)
        # torchvision 0.28.0 -> the framework releases that it fits, the one it was built with
        # first.
        self._partners: dict[tuple[str, str], list[str]] = {}
        # A framework release -> the companions that fit it.
        self._companions: dict[str, list[tuple[str, str]]] = {}
        for row in _rows(content, "companions", path):
            name, version = _text(row, "name", path), _text(row, "version", path)
            partners = _texts(row, framework.name, path)
            self._partners[name, version] = partners
            for partner in partners:
                self._companions.setdefault(partner, []).append((name, version))
        self._found: dict[tuple[str, str, str], Build | None] = {}

    def find(self, distribution: str, version: str, platform: str) -> Build | None:
        """Return the build of the framework or of a companion that a version names."""
        key = (distribution, version, platform)
        if key not in self._found:
            if distribution == self.framework.distribution:
                self._found[key] = self._own(version, platform)
            else:
                self._found[key] = self._companion(distribution, version, platform)
        return self._found[key]

    def all(self, distribution: str, platform: str, above: str = "") -> Sequence[Build]:
        """Return the builds on a platform, newest first, in a version the default index first.

        `above` leaves out that version and older ones.
        """
        versions = [local for local, row_platform in self._rows if row_platform == platform]
        if distribution != self.framework.distribution:
            versions = self._companion_versions(distribution, versions)
        limit = _numbers(above) if above else []
        builds = []
        for version in versions:
            if limit and _numbers(version.partition("+")[0]) <= limit:
                continue
            build = self.find(distribution, version, platform)
            if build is not None:
                builds.append(build)
        builds.sort(key=lambda build: build.index != "default")
        builds.sort(key=_release_numbers, reverse=True)
        return builds

    def _companion_versions(self, distribution: str, own_versions: Sequence[str]) -> list[str]:
        """Return every version of a companion with every local part that the framework has."""
        local_parts = sorted({"".join(local.partition("+")[1:]) for local in own_versions})
        versions = []
        for name, version in self._partners:
            if name == distribution:
                versions += [version + local for local in local_parts]
        return versions

    def _own(self, local: str, platform: str) -> Build | None:
        row = self._rows.get((local, platform))
        if row is None:
            return None
        version = _text(row, "version", self.path)
        return Build(
            name=self.framework.distribution,
            version=version,
            local=local,
            variant=_text(row, "variant", self.path),
            index=_text(row, "index", self.path),
            platform=platform,
            cuda=_pair_or_none(row, "cuda", self.path),
            cudnn=row.get("cudnn"),
            code=_code(row, self.path),
            companions=tuple(self._companions.get(version, ())),
        )

    def _companion(self, distribution: str, local: str, platform: str) -> Build | None:
        """Return a companion's build: it has the CUDA of the framework that it was built with."""
        version, plus, variant = local.partition("+")
        partners = self._partners.get((distribution, version), ())
        for partner in partners:
            base = self.find(self.framework.distribution, partner + plus + variant, platform)
            if base is not None:
                source = f"built with {base.name} {base.local}: {base.code.source}"
                return base.replace(
                    name=distribution,
                    version=version,
                    local=local,
                    cudnn=None,
                    code=base.code.replace(evidence="documented", source=source),
                    companions=tuple((self.framework.distribution, name) for name in partners),
                )
        return None


class Releases:
    """The releases of one CUDA library, from libraries/<distribution>.json."""

    def __init__(
        self, path: str, distribution: str, bad: KnownBad, more: Sequence[Row] = ()
    ) -> None:
        """Read the rows.

        Args:
            path: the file.
            distribution: the library's distribution.
            bad: the releases that are known to be bad.
            more: rows of the user, which replace none of the file.

        Raises:
            DataError: names the file and the row that is damaged.
        """
        self._path, self._distribution, self._bad = path, distribution, bad
        content = read(path)
        major = content.get("cuda_major", "")
        if major is not None and not isinstance(major, int):
            raise DataError(f"{path}: cuda_major is missing or is not a number")
        # None: it is that of each release's toolkit.
        self.major: int | None = major
        self._rows: dict[tuple[str, str], Row] = {}
        for row in _rows(content, "releases", path):
            self._rows[_text(row, "version", path), _text(row, "platform", path)] = row
        for row in more:
            self._rows.setdefault((row["version"], row["platform"]), row)
        self._found: dict[tuple[str, str], Library] = {}

    def find(self, version: str, platform: str) -> Library | None:
        """Return what is known about a release on a platform."""
        key = (version, platform)
        if key not in self._rows:
            return None
        if key not in self._found:
            self._found[key] = self._library(version, platform)
        return self._found[key]

    def _library(self, version: str, platform: str) -> Library:
        row = self._rows[version, platform]
        cuda, major = _pair_or_none(row, "cuda", self._path), self.major
        if major is None:
            major = cuda[0] if cuda else 0
        return Library(
            name=self._distribution,
            version=version,
            platform=platform,
            cuda_major=major,
            code=_code(row, self._path),
            bad=self._bad.of(self._distribution, version),
            cuda=cuda,
            cudnn=row.get("cudnn"),
            by_cuda=self._by_cuda(row),
            url=row.get("url", ""),
        )

    def _by_cuda(self, row: Row) -> tuple[tuple[CudaVersion, Code], ...]:
        """Return the libraries of a row that has one for each CUDA version."""
        libraries = []
        for library in row.get("by_cuda", ()):
            cuda = _pair_or_none(library, "cuda", self._path)
            if cuda is not None:
                libraries.append((cuda, _code({**row, **library}, self._path)))
        return tuple(libraries)

    def reaches(self, version: str) -> bool:
        """Return whether there is a release of that version or an older one, on any platform."""
        limit = _numbers(version)
        return any(_numbers(known) <= limit for known, _ in self._rows)

    def upto(self, version: str, platform: str, local: str = "") -> Library | None:
        """Return the release of a version, else the newest older one.

        That is the release that the version range of a plug-in admits. With `local` it is the
        build whose local version begins so; these builds end with the newest one.
        """
        if local or (version, platform) not in self._rows:
            limit, older, newest = _numbers(version), [], [0]
            for known, known_platform in self._rows:
                public, _, known_local = known.partition("+")
                if known_platform != platform or not _is_local(known_local, local):
                    continue
                newest = max(newest, _numbers(public))
                if _numbers(public) <= limit:
                    older.append(known)
            if local and newest < limit:
                return None
            version = max(
                older, key=lambda known: _numbers(known.partition("+")[0]), default=version
            )
        return self.find(version, platform)

    def all(self) -> Sequence[Library]:
        """Return every release on every platform, in the order of the file."""
        libraries = (self.find(version, platform) for version, platform in self._rows)
        return [library for library in libraries if library is not None]


def _is_local(known: str, local: str) -> bool:
    return known.startswith(local) if local else not known


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def _release_numbers(build: Build) -> list[int]:
    return [int(part) for part in build.version.split(".")]


# ---- files ---------------------------------------------------------------------------------------


def read(path: str) -> dict[str, Any]:
    """Return the object in a JSON file. Raises DataError if there is none."""
    try:
        content = json.loads(_content(path))
    except ValueError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold an object")
    return content


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError as error:
        hint = "reinstall gpuenv, or run scripts/compile_matrix.py"
        raise DataError(f"{path} is missing", hint=hint) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def read_toml(path: str) -> dict[str, Any]:
    """Return the content of a TOML file. Raises DataError if it cannot be read."""
    import tomllib  # compiles patterns for 2 ms, and a solve reads tables.json instead

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def read_scopes(folder: str) -> list[dict[str, Any]]:
    """Return the [[scan]] rows in a folder of the data: which wheels are scanned, and how.

    They are in scans.toml and in frameworks/*.toml.

    Raises:
        DataError: a file is damaged.
    """
    paths = glob.glob(os.path.join(glob.escape(folder), "frameworks", "*.toml"))
    scopes: list[dict[str, Any]] = []
    for path in (os.path.join(folder, "scans.toml"), *sorted(paths)):
        scopes += read_toml(path).get("scan", [])
    return scopes


def _inline_builds(path: str) -> dict[str, Any]:
    """Return the builds of a framework's TOML file in the form of the JSON file."""
    content = read_toml(path)
    variants = [way["variant"] for way in content.get("way", [])]
    if "build" not in content and variants in ([], ["*"]):
        missing = path.removesuffix(".toml") + ".json"
        hint = "reinstall gpuenv, or give the framework's file a [[build]]"
        raise DataError(f"{missing} is missing", hint=hint)
    rows = content.get("build", [])
    builds = [{"local": row.get("version"), "index": "default", **row} for row in rows]
    return {"builds": builds, "companions": content.get("companion", [])}


# ---- fields of a row -----------------------------------------------------------------------------


def _rows(content: Mapping[str, Any], name: str, path: str) -> Iterator[Row]:
    rows = content.get(name)
    if not isinstance(rows, list):
        raise DataError(f"{path}: {name} must be a list")
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(f"{path}: {name}[{number}] must be an object")
        yield row


def _text(row: Row, field: str, path: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value:
        raise DataError(f"{path}: {field} is missing or is not a text in {_row_name(row)}")
    return value


def _texts(row: Row, field: str, path: str) -> list[str]:
    value = row.get(field)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(f"{path}: {field} is not a list of texts in {_row_name(row)}")
    return value


def _pair_or_none(row: Row, field: str, path: str) -> CudaVersion | None:
    if row.get(field) is None:
        return None
    try:
        return parse_pair(_text(row, field, path))
    except ValueError as error:
        raise DataError(f"{path}: {field} in {_row_name(row)}: {error}") from error


def _targets(row: Row, field: str, path: str) -> tuple[str, ...] | None:
    if row.get(field) is None:
        return None
    targets = tuple(_texts(row, field, path))
    try:
        for target in targets:
            parse_target(target)
    except ValueError as error:
        raise DataError(f"{path}: {field} in {_row_name(row)}: {error}") from error
    return targets


def _code(row: Row, path: str) -> Code:
    sass, ptx = _targets(row, "sass", path), _targets(row, "ptx", path)
    evidence, source = _text(row, "evidence", path), _text(row, "source", path)
    if evidence not in ("scanned", "documented"):
        name = _row_name(row)
        raise DataError(f"{path}: evidence in {name} is neither scanned nor documented")
    if evidence == "scanned":
        source += f" of {_text(row, 'file', path)} (sha256 {_text(row, 'sha256', path)})"
    if "url" in row:
        source += f"; {_text(row, 'url', path)}"
    return Code(
        sass=sass,
        ptx=ptx,
        made_by=_pair_or_none(row, "made_by", path),
        evidence=evidence,
        source=source,
        some=tuple(_texts(row, "some", path)) if "some" in row else (),
    )


def _row_name(row: Row) -> str:
    """Return how messages name a row."""
    version = row.get("local") or row.get("version") or "?"
    return f"the row {version} on {row.get('platform') or '?'}"
