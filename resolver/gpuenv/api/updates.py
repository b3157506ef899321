"""Bring the compatibility data up to date on this machine: scan releases that it does not know.

The rows go to the user's data folder, one after another, so that an interrupted update continues.
The data that came with gpuenv does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from ..binaries.device_code import DamagedFileError
from ..binaries.rows import code_fields, read_record, toolkit_fields
from ..compat import data as matrix
from ..compat.catalog import platform_of
from ..compat.data import CompatibilityData
from ..compat.rows import read_scopes
from ..compat.user_rows import SOURCE, Update, read_user_rows, user_file, write_user_rows
from ..errors import DataError, InputError, PackageIndexError
from ..index.cache import Cache, cache_folder
from ..index.default_index import default_index
from ..index.http import Transport
from ..index.metadata import open_wheel
from ..index.multi_index import open_index
from ..index.pages import PageReader
from ..model import IndexOptions, Wheel
from ..requirements.target import is_prerelease, normalize_name, version_key

Progress = Callable[[str], None]
_ANY = ("*",)


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
    data = matrix.load(user_rows=known)
    scopes = _scopes(names, platform, data)
    default = default_index()
    new: list[str] = []
    changed: list[str] = []
    errors: list[str] = []
    with Transport() as transport:
        reader = PageReader(transport, Cache(cache_folder()), options)
        index = open_index(options.index_url or default.url, reader)
        tasks: list[tuple[str, Wheel, Mapping[str, Any]]] = []  # with the user's row, if any
        for name, scope in scopes.items():
            wheels = index.files(name)
            wheels = [wheel for wheel in wheels if platform_of(wheel.filename) == platform]
            if not verify:
                releases = _new_releases(name, platform, wheels, scope["since"], data)
                tasks += [(name, wheel, {}) for wheel in releases]
                continue
            files = {wheel.filename: wheel for wheel in wheels}
            for row in known.rows.get(name, ()):
                if row["platform"] == platform and row["file"] in files:
                    tasks.append((name, files[row["file"]], row))
                elif row["platform"] == platform:
                    progress(f"{row['file']} is no longer on the index")
        for number, (name, wheel, old) in enumerate(tasks, 1):
            label = f"{name} {wheel.version}"
            progress(f"{number} of {len(tasks)}: {label}")
            try:
                row = _scan(name, wheel, scopes[name], data, transport=transport, progress=progress)
            except (DataError, PackageIndexError) as error:
                errors.append(f"{wheel.filename}: {error}")
                continue
            if verify:
                changed += [
                    f"{label}: {field} {old.get(field)} -> {row.get(field)}"
                    for field in ("sha256", "sass", "ptx", "made_by", "cuda", "cudnn")
                    if old.get(field) != row.get(field)
                ]
                continue
            code = [f"sm_{target}" for target in row["sass"]]
            code += [f"compute_{target}" for target in row["ptx"]]
            new.append(f"{label}: {' '.join(code) or 'no device code'}")
            rows = {**known.rows, name: [*known.rows.get(name, ()), row]}
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


def _scopes(
    names: Sequence[str], platform: str, data: CompatibilityData
) -> dict[str, Mapping[str, Any]]:
    """Return the [[scan]] rows of distributions by name. InputError for an unknown name."""
    known: dict[str, Mapping[str, Any]] = {}
    for scope in read_scopes(data.folder):
        if scope["platform"] == platform:
            for name in scope["distributions"]:
                known.setdefault(name, scope)
    chosen = [normalize_name(name) for name in names] or list(known)
    for name in chosen:
        if name not in known:
            hint = f"known are {', '.join(sorted(known))}"
            raise InputError(f"{name}: the data does not have this distribution", hint=hint)
    return {name: known[name] for name in chosen}


def _new_releases(
    name: str, platform: str, wheels: Iterable[Wheel], since: str, data: CompatibilityData
) -> list[Wheel]:
    """Return a wheel of each release that is newer than those that the data knows."""
    versions = [since]
    versions += [build.version for build in data.builds(name, platform)]
    versions += [library.version for library in data.releases(name, platform)]
    newest = max(map(version_key, versions))
    releases: dict[str, list[Wheel]] = {}
    for wheel in wheels:
        is_new = version_key(wheel.version) > newest and not is_prerelease(wheel.version)
        if is_new and "+" not in wheel.version and wheel.yanked is None:
            releases.setdefault(wheel.version, []).append(wheel)
    # The libraries are the same for each interpreter.
    return [
        min(releases[version], key=lambda wheel: ("t-" in wheel.filename, wheel.filename))
        for version in sorted(releases, key=version_key)
    ]


def _scan(
    name: str,
    wheel: Wheel,
    scope: Mapping[str, Any],
    data: CompatibilityData,
    *,
    transport: Transport,
    progress: Progress,
) -> dict[str, Any]:
    """Return the row of a release.

    Raises:
        DataError: the wheel is damaged.
        PackageIndexError: the wheel could not be read.
    """
    if wheel.sha256 is None:
        raise DataError("the index has no sha256 of it")
    try:
        with open_wheel(wheel, transport, progress) as file:
            record = read_record(
                file,
                wheel.filename,
                sha256=wheel.sha256,
                patterns=scope.get("files", _ANY),
                progress=progress,
            )
    except DamagedFileError as error:
        raise DataError(f"it is damaged: {error}") from error
    row: dict[str, Any] = {"version": wheel.version, "platform": scope["platform"]}
    built_with = toolkit_fields(record, scope)
    # The versions of some distributions name the builds of a framework.
    framework = data.framework_of(name)
    if framework is not None and framework.distribution == name:
        if built_with["cuda"] is None:
            raise DataError("it does not say for which CUDA it was built")
        variant = "cu" + built_with["cuda"].replace(".", "")
        row |= {"local": wheel.version, "variant": variant, "index": "default", **built_with}
    elif built_with["cuda"] is not None:
        row |= built_with
    row |= code_fields(record, scope, data.capabilities(), data.ptx_toolkits)
    row["source"] = f"{SOURCE} of {date.today().isoformat()}; {row['source']}"
    return row
