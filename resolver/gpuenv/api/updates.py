"""Bring the compatibility data up to date on this machine: scan releases that it does not know.

The rows go to the user's data folder, one after another, so that an interrupted update continues.
The data that came with gpuenv does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import IO, TYPE_CHECKING, Any

from ..errors import DataError, InputError, PackageIndexError
from ..model import IndexOptions, Value, Wheel

if TYPE_CHECKING:  # the stages are imported when they are first used
    from packaging.version import Version

    from ..compat.data import CompatibilityData
    from ..compat.user_rows import Update, UserRows
    from ..index.http import Transport
    from ..index.protocol import Source

Progress = Callable[[str], None]
_BLOCK = 8 << 20  # bytes of one range request
_ANY = ("*",)


class _Task(Value):
    """A release to scan, and the [[scan]] row that asks for it."""

    name: str
    wheel: Wheel
    scope: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Return how messages name the release."""
        return f"{self.name} {self.wheel.version}"


def update_matrix(
    names: Sequence[str],
    platform: str,
    options: IndexOptions,
    *,
    verify: bool = False,
    progress: Progress | None = None,
) -> Update:
    """Scan the releases on the user's index that the data does not know, and store their rows.

    Args:
        names: distributions; () is every distribution that the data knows.
        platform: as in Host.platform.
        options: `index_url` replaces the default index.
        verify: scan the releases of the user's rows again instead, and compare.
        progress: is called with a line for each step.

    Raises:
        InputError: a name is none of a known distribution, or the rows cannot be written.
        PackageIndexError: the index did not answer.
    """
    from ..compat.user_rows import Update, read_user_rows, user_file, write_user_rows
    from ..index.http import Transport

    path = user_file()
    known = read_user_rows(path)
    tell = progress or _ignore
    updater = _Updater(known, platform, options, tell)
    tasks = list(updater.known_tasks(names) if verify else updater.new_tasks(names))
    new: list[str] = []
    changed: list[str] = []
    errors: list[str] = []
    with Transport(cert=updater.cert) as transport:
        for number, task in enumerate(tasks, 1):
            tell(f"{number} of {len(tasks)}: {task.label}")
            try:
                row = updater.scan(task, transport)
            except (DataError, PackageIndexError) as error:
                errors.append(f"{task.wheel.filename}: {error}")
                continue
            if verify:
                changed += updater.differences(task, row)
                continue
            new.append(f"{task.label}: {_code_text(row)}")
            known = _with_row(known, task.name, row)
            try:
                write_user_rows(path, known)
            except OSError as error:
                raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    return Update(
        path=path,
        rows=known.count(),
        new=tuple(new),
        changed=tuple(changed),
        errors=tuple(errors),
    )


class _Updater:
    """Finds and scans the releases of one platform on one index."""

    def __init__(
        self, known: UserRows, platform: str, options: IndexOptions, tell: Progress
    ) -> None:
        from ..compat import data as matrix
        from ..compat.rows import read_scopes
        from ..index.cache import Cache, cache_folder
        from ..index.default_index import default_index

        self._known, self._platform, self._options, self._tell = known, platform, options, tell
        self.data: CompatibilityData = matrix.load(user_rows=known)
        self._scopes = [
            scope for scope in read_scopes(self.data.folder) if scope["platform"] == platform
        ]
        self._cache = Cache(cache_folder())
        default = default_index(self._cache)
        self.cert, self._url = default.cert, options.index_url or default.url

    # ---- which releases

    def new_tasks(self, names: Sequence[str]) -> Iterator[_Task]:
        """Yield the releases that are newer than those that the data knows."""
        from ..requirements.target import is_prerelease, version_key

        for name, scope in self._chosen(names):
            newest = self._newest_known(name, scope)
            releases: dict[str, list[Wheel]] = {}
            for wheel in self._wheels(name):
                is_new = version_key(wheel.version) > newest and not is_prerelease(wheel.version)
                if is_new and "+" not in wheel.version and wheel.yanked is None:
                    releases.setdefault(wheel.version, []).append(wheel)
            for version in sorted(releases, key=version_key):
                yield _Task(name=name, wheel=_best(releases[version]), scope=scope)

    def known_tasks(self, names: Sequence[str]) -> Iterator[_Task]:
        """Yield the releases of the user's rows."""
        for name, scope in self._chosen(names):
            files = {wheel.filename: wheel for wheel in self._wheels(name)}
            for row in self._known.of_distribution(name):
                if row["platform"] != self._platform:
                    continue
                if row["file"] in files:
                    yield _Task(name=name, wheel=files[row["file"]], scope=scope)
                else:
                    self._tell(f"{row['file']} is no longer on the index")

    def _chosen(self, names: Sequence[str]) -> list[tuple[str, Mapping[str, Any]]]:
        from ..requirements.target import normalize_name

        known: dict[str, Mapping[str, Any]] = {}
        for scope in self._scopes:
            for name in scope["distributions"]:
                known.setdefault(name, scope)
        chosen = [normalize_name(name) for name in names] or list(known)
        for name in chosen:
            if name not in known:
                hint = f"known are {', '.join(sorted(known))}"
                raise InputError(f"{name}: the data does not have this distribution", hint=hint)
        return [(name, known[name]) for name in chosen]

    def _newest_known(self, name: str, scope: Mapping[str, Any]) -> Version:
        from ..requirements.target import version_key

        versions = [scope["since"]]
        versions += [build.version for build in self.data.builds(name, self._platform)]
        versions += [library.version for library in self.data.releases(name, self._platform)]
        return max(map(version_key, versions))

    def _wheels(self, name: str) -> list[Wheel]:
        """Return the wheels of a distribution for the platform."""
        from ..compat.catalog import platform_of

        wheels = self._index.wheels(name) if self._index.has(name) else ()
        return [wheel for wheel in wheels if platform_of(wheel.filename) == self._platform]

    @property
    def _index(self) -> Source:
        from ..index.factory import open_index
        from ..index.http import Transport

        if not hasattr(self, "_opened"):
            transport = Transport(cert=self.cert)
            self._opened = open_index(
                self._url, self._options, transport=transport, cache=self._cache
            )
        return self._opened

    # ---- scanning

    def scan(self, task: _Task, transport: Transport) -> dict[str, Any]:
        """Return the row of a release.

        Raises:
            DataError: the wheel is damaged.
            PackageIndexError: the wheel could not be read.
        """
        from ..binaries.fat_binaries import DamagedFileError
        from ..binaries.rows import code_fields, toolkit_fields
        from ..binaries.wheel import read_record
        from ..compat.user_rows import SOURCE

        wheel, scope = task.wheel, task.scope
        if wheel.sha256 is None:
            raise DataError("the index has no sha256 of it")
        try:
            with self._open(wheel, transport) as file:
                record = read_record(
                    file,
                    wheel.filename,
                    sha256=wheel.sha256,
                    patterns=scope.get("files", _ANY),
                    progress=self._tell,
                )
        except DamagedFileError as error:
            raise DataError(f"it is damaged: {error}") from error
        devices, toolkits = self.data.capabilities(), self.data.ptx_toolkits
        row: dict[str, Any] = {"version": wheel.version, "platform": self._platform}
        built_with = toolkit_fields(record, scope)
        if self._is_framework(task.name):
            if built_with["cuda"] is None:
                raise DataError("it does not say for which CUDA it was built")
            variant = "cu" + built_with["cuda"].replace(".", "")
            row |= {"local": wheel.version, "variant": variant, "index": "default", **built_with}
        elif built_with["cuda"] is not None:
            row |= built_with
        row |= code_fields(record, scope, devices, toolkits)
        row["source"] = f"{SOURCE} of {date.today().isoformat()}; {row['source']}"
        return row

    def _is_framework(self, name: str) -> bool:
        """Return whether the versions of a distribution name the builds of a framework."""
        for framework in self.data.all_frameworks():
            ways = [way.variant for way in framework.ways]
            if framework.distribution == name and ways == ["*"]:
                return True
        return False

    def _open(self, wheel: Wheel, transport: Transport) -> IO[bytes]:
        """Open a wheel by range requests, or as a whole if its server has none.

        Raises:
            PackageIndexError: it could not be read, or has another sha256 than the index says.
        """
        from ..index.metadata import NoRangesError, RemoteFile
        from ..index.urls import file_url_to_path

        if wheel.url.startswith("file:"):
            return open(file_url_to_path(wheel.url), "rb")
        try:
            return RemoteFile(transport, wheel, _BLOCK)  # type: ignore[return-value]
        except NoRangesError:
            pass
        self._tell(f"{wheel.filename}: the server has no ranges: downloading the whole file")
        import tempfile

        file = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
        _, digest = transport.download(wheel.url, wheel.filename, file, wheel.size)
        if digest != wheel.sha256:
            file.close()
            raise PackageIndexError(f"the download has sha256 {digest}, the index {wheel.sha256}")
        file.seek(0)
        return file

    def differences(self, task: _Task, row: Mapping[str, Any]) -> Iterator[str]:
        """Yield what a second scan says otherwise than the user's row."""
        for old in self._known.of_distribution(task.name):
            if (old["version"], old["platform"]) != (row["version"], row["platform"]):
                continue
            for field in ("sha256", "sass", "ptx", "made_by", "cuda", "cudnn"):
                if old.get(field) != row.get(field):
                    yield f"{task.label}: {field} {old.get(field)} -> {row.get(field)}"


def _best(wheels: Iterable[Wheel]) -> Wheel:
    """Return the wheel of a release to scan: the libraries are the same for each interpreter."""
    return min(wheels, key=lambda wheel: ("t-" in wheel.filename, wheel.filename))


def _with_row(known: UserRows, name: str, row: Mapping[str, Any]) -> UserRows:
    rows = {**known.rows, name: [*known.of_distribution(name), row]}
    return known.replace(rows=rows, date=date.today().isoformat())


def _code_text(row: Mapping[str, Any]) -> str:
    names = [f"sm_{target}" for target in row["sass"]]
    names += [f"compute_{target}" for target in row["ptx"]]
    return " ".join(names) or "no device code"


def _ignore(line: str) -> None:
    del line
