"""Bring the compatibility data up to date on this machine: scan releases that it does not know.

The rows go to the user's data folder, one after another, so that an interrupted update continues.
The data that came with gpuenv does not change.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import IO, Any

from ..binaries.fat_binaries import DamagedFileError
from ..binaries.rows import code_fields, read_record, toolkit_fields
from ..compat import data as matrix
from ..compat.catalog import platform_of
from ..compat.rows import read_scopes
from ..compat.user_rows import SOURCE, Update, UserRows, read_user_rows, user_file, write_user_rows
from ..errors import DataError, InputError, PackageIndexError
from ..index.cache import Cache, cache_folder
from ..index.default_index import default_index
from ..index.factory import open_index
from ..index.http import Transport
from ..index.metadata import NoRangesError, RemoteFile
from ..index.pages import PageReader
from ..index.urls import file_url_to_path
from ..model import IndexOptions, Value, Wheel
from ..requirements.target import is_prerelease, normalize_name, version_key

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
    progress: Progress,
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
    path = user_file()
    known = read_user_rows(path)
    cache = Cache(cache_folder())
    default = default_index()
    new: list[str] = []
    changed: list[str] = []
    errors: list[str] = []
    with Transport(cert=default.cert) as transport:
        updater = _Updater(known, platform, transport, progress)
        scopes = updater.scopes(names)
        url = options.index_url or default.url
        index = open_index(url, PageReader(transport, cache, options), options)
        tasks: list[_Task] = []
        for name, scope in scopes.items():
            wheels = index.files(name)
            wheels = [wheel for wheel in wheels if platform_of(wheel.filename) == platform]
            find = updater.known_tasks if verify else updater.new_tasks
            tasks += find(name, scope, wheels)
        for number, task in enumerate(tasks, 1):
            progress(f"{number} of {len(tasks)}: {task.label}")
            try:
                row = updater.scan(task)
            except (DataError, PackageIndexError) as error:
                errors.append(f"{task.wheel.filename}: {error}")
                continue
            if verify:
                changed += updater.differences(task, row)
                continue
            code = [f"sm_{target}" for target in row["sass"]]
            code += [f"compute_{target}" for target in row["ptx"]]
            new.append(f"{task.label}: {' '.join(code) or 'no device code'}")
            rows = {**known.rows, task.name: [*known.rows.get(task.name, ()), row]}
            known = known.replace(rows=rows, date=date.today().isoformat())
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
    """Finds and scans the releases of one platform."""

    def __init__(
        self, known: UserRows, platform: str, transport: Transport, progress: Progress
    ) -> None:
        self._known, self._platform = known, platform
        self._transport, self._progress = transport, progress
        self._data = matrix.load(user_rows=known)

    # ---- which releases

    def scopes(self, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return the [[scan]] rows of distributions by name. InputError for an unknown name."""
        known: dict[str, Mapping[str, Any]] = {}
        for scope in read_scopes(self._data.folder):
            if scope["platform"] == self._platform:
                for name in scope["distributions"]:
                    known.setdefault(name, scope)
        chosen = [normalize_name(name) for name in names] or list(known)
        for name in chosen:
            if name not in known:
                hint = f"known are {', '.join(sorted(known))}"
                raise InputError(f"{name}: the data does not have this distribution", hint=hint)
        return {name: known[name] for name in chosen}

    def new_tasks(
        self, name: str, scope: Mapping[str, Any], wheels: Iterable[Wheel]
    ) -> Iterator[_Task]:
        """Yield the releases that are newer than those that the data knows."""
        versions = [scope["since"]]
        versions += [build.version for build in self._data.builds(name, self._platform)]
        versions += [library.version for library in self._data.releases(name, self._platform)]
        newest = max(map(version_key, versions))
        releases: dict[str, list[Wheel]] = {}
        for wheel in wheels:
            is_new = version_key(wheel.version) > newest and not is_prerelease(wheel.version)
            if is_new and "+" not in wheel.version and wheel.yanked is None:
                releases.setdefault(wheel.version, []).append(wheel)
        for version in sorted(releases, key=version_key):
            # The libraries are the same for each interpreter.
            wheel = min(
                releases[version], key=lambda wheel: ("t-" in wheel.filename, wheel.filename)
            )
            yield _Task(name=name, wheel=wheel, scope=scope)

    def known_tasks(
        self, name: str, scope: Mapping[str, Any], wheels: Iterable[Wheel]
    ) -> Iterator[_Task]:
        """Yield the releases of the user's rows."""
        files = {wheel.filename: wheel for wheel in wheels}
        for row in self._known.rows.get(name, ()):
            if row["platform"] != self._platform:
                continue
            if row["file"] in files:
                yield _Task(name=name, wheel=files[row["file"]], scope=scope)
            else:
                self._progress(f"{row['file']} is no longer on the index")

    # ---- scanning

    def scan(self, task: _Task) -> dict[str, Any]:
        """Return the row of a release.

        Raises:
            DataError: the wheel is damaged.
            PackageIndexError: the wheel could not be read.
        """
        wheel, scope = task.wheel, task.scope
        if wheel.sha256 is None:
            raise DataError("the index has no sha256 of it")
        try:
            with self._open(wheel) as file:
                record = read_record(
                    file,
                    wheel.filename,
                    sha256=wheel.sha256,
                    patterns=scope.get("files", _ANY),
                    progress=self._progress,
                )
        except DamagedFileError as error:
            raise DataError(f"it is damaged: {error}") from error
        row: dict[str, Any] = {"version": wheel.version, "platform": self._platform}
        built_with = toolkit_fields(record, scope)
        # The versions of some distributions name the builds of a framework.
        framework = self._data.framework_of(task.name)
        if framework is not None and framework.distribution == task.name:
            if built_with["cuda"] is None:
                raise DataError("it does not say for which CUDA it was built")
            variant = "cu" + built_with["cuda"].replace(".", "")
            row |= {"local": wheel.version, "variant": variant, "index": "default", **built_with}
        elif built_with["cuda"] is not None:
            row |= built_with
        row |= code_fields(record, scope, self._data.capabilities(), self._data.ptx_toolkits)
        row["source"] = f"{SOURCE} of {date.today().isoformat()}; {row['source']}"
        return row

    def _open(self, wheel: Wheel) -> IO[bytes]:
        """Open a wheel by range requests, or as a whole if its server has none.

        Raises:
            PackageIndexError: it could not be read, or has another sha256 than the index says.
        """
        if wheel.url.startswith("file:"):
            return open(file_url_to_path(wheel.url), "rb")
        try:
            return RemoteFile(self._transport, wheel, _BLOCK)  # type: ignore[return-value]
        except NoRangesError:
            pass
        self._progress(f"{wheel.filename}: the server has no ranges: downloading the whole file")
        file = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
        _, digest = self._transport.download(wheel.url, wheel.filename, file, wheel.size)
        if digest != wheel.sha256:
            file.close()
            raise PackageIndexError(f"the download has sha256 {digest}, the index {wheel.sha256}")
        file.seek(0)
        return file

    def differences(self, task: _Task, row: Mapping[str, Any]) -> Iterator[str]:
        """Yield what a second scan says otherwise than the user's row."""
        for old in self._known.rows.get(task.name, ()):
            if (old["version"], old["platform"]) != (row["version"], row["platform"]):
                continue
            for field in ("sha256", "sass", "ptx", "made_by", "cuda", "cudnn"):
                if old.get(field) != row.get(field):
                    yield f"{task.label}: {field} {old.get(field)} -> {row.get(field)}"
