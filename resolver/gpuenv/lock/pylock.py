"""Plan -> pylock.toml (PEP 751) with [tool.gpuenv], and back; hash-pinned requirements.

A lock holds no date: the same plan gives the same bytes. [tool.gpuenv.needs] holds what the lock
asks of a host, so that it can be checked before anything is written. [tool.gpuenv] content is a
digest of the rest of the document, whatever its layout: it shows that a lock was edited.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import tomli_w

from ..atomic_write import require_place, write_all
from ..errors import InputError, TamperedError, error_text
from ..index.protocol import DIRECT_URL
from ..index.source_trees import folder_of
from ..index.urls import file_url_to_path, path_to_file_url
from ..model import Gpu, Host, Lock, Needs, Pin, Plan, Wheel, show_pair
from ..requirements.source_urls import (
    EDITABLE,
    Commit,
    is_editable,
    is_tree,
    key_of,
    read_commit,
)
from ..requirements.target import identify, split_label
from ..serialize import canonical_json, parse_toml, read_input, text_digest
from . import foreign, grammar
from .fields import PYLOCK, Document, read_table, write_table

if TYPE_CHECKING:
    from packaging.pylock import Package, Pylock

_IDENTITIES = "attestation-identities"
_BUILT_WITH = "built-with"
_BUILD_SETTINGS = "build-settings"
VARIANTS_JSON = "variants-json"  # the table of a package that PEP 825 adds
_OTHER_TOOLS = "gpuenv explain, sync and verify read locks of other tools"
_KEPT_OF_WHEEL = ("name", "version", "filename", "url", "sha256", "size", "index")
# What a lock says to whoever installs it. Other warnings are about the data or about the machine.
_KEPT_WARNINGS = frozenset({
    "compiled", "cpu-dependency", "gpu-unused", "replaced", "shared-paths",
})  # fmt: skip


def lock(plan: Plan) -> Lock:
    """Return the lock of a plan. InputError if the index gave no sha256 for one of the files."""
    refuse_missing_hashes(plan, "index")
    pins = []
    for pin in plan.pins:
        kept = {field: getattr(pin.wheel, field) for field in _KEPT_OF_WHEEL}
        if pin.wheel.index != DIRECT_URL:
            # Tools that do not know variant wheels take one under the ordinary name of its file.
            kept["filename"] = split_label(pin.wheel.filename)[0]
        pins.append(pin.replace(wheel=Wheel(**kept)))
    return Lock(
        pins=tuple(pins),
        needs=plan.needs,
        choices=plan.choices,
        host=host_to_lock(plan.host),
        frameworks=plan.request.frameworks,
        requirements=plan.request.requirements,
        constraints=plan.request.constraints,
        overrides=plan.request.overrides,
        no_build=plan.request.no_build,
        no_binary=plan.request.no_binary,
        data=plan.data,
        digest=plan.digest,
        warnings=tuple(warning for warning in plan.warnings if warning.code in _KEPT_WARNINGS),
        variants=plan.variants,
    )


def refuse_missing_hashes(plan: Plan, source: str) -> None:
    """Raise InputError for a file without sha256; `source` names who should give it."""
    for pin in plan.pins:
        is_folder = pin.wheel.index == DIRECT_URL and is_tree(pin.wheel.url)
        if pin.wheel.sha256 is None and not is_folder:
            message = f"{pin.wheel.filename}: its {source} gives no sha256"
            raise InputError(f"{message}, and a lock needs one for each file")


def host_to_lock(host: Host) -> Host:
    """Return a host without what differs between boots, or between nodes of one kind."""
    gpus = [
        Gpu(name=gpu.name, compute_capability=gpu.compute_capability, mig=gpu.mig)
        for gpu in host.gpus
    ]
    python = host.python.replace(executable=None)
    return host.replace(gpus=tuple(gpus), sources=(), problems=(), python=python, cpu=())


# ---- writing ------------------------------------------------------------------------------------


def dumps(lock: Lock, folder: str | None = None) -> str:
    """Return the text of pylock.toml.

    Args:
        lock: the lock.
        folder: the folder of the file, from where the paths in it start; None writes whole paths.
    """
    document: Document = {
        "lock-version": "1.0",
        "environments": [environment_marker(lock.needs)],
        "requires-python": f"=={show_pair(lock.needs.python)}.*",
        "created-by": "gpuenv",
        "packages": [_package(pin, folder) for pin in lock.pins],
        "tool": {"gpuenv": write_table(lock)},
    }
    document["tool"]["gpuenv"]["content"] = content(document)
    return tomli_w.dumps(document)


def installer_text(lock: Lock) -> str:
    """Return a pylock.toml with only what an installer needs to install these files.

    Dependencies are left out: the files need not be all of an environment.
    """
    packages = []
    for pin in lock.pins:
        wheel = pin.wheel
        is_file = wheel.is_local and not wheel.is_sdist
        if wheel.index == DIRECT_URL and is_file:
            # HACK: uv 0.13 reads an archive from servers only, and a wheel from a folder, too.
            wheel = wheel.replace(index="")
        packages.append(_package(Pin(wheel=wheel)))
    document = {"lock-version": "1.0", "created-by": "gpuenv", "packages": packages}
    return tomli_w.dumps(document)


def content(document: Document) -> str:
    """Return the sha256 of what a lock says, whatever its layout.

    Tables of other tools and the digest itself are left out.
    """
    table = dict(document["tool"]["gpuenv"])
    table.pop("content", None)
    return text_digest(canonical_json({**document, "tool": table}))


def _package(pin: Pin, folder: str | None = None) -> dict[str, object]:
    wheel = pin.wheel
    package: dict[str, object] = {"name": wheel.name, "version": wheel.version}
    if pin.dependencies:
        package["dependencies"] = [{"name": name} for name in pin.dependencies]
    if is_tree(wheel.url):
        del package["version"]  # PEP 751: that of a source tree is not sure
        return package | _tree(pin, folder)
    if wheel.index and wheel.index != DIRECT_URL:
        package["index"] = wheel.index
    file: dict[str, object] = {} if wheel.index == DIRECT_URL else {"name": wheel.filename}
    if folder is not None and wheel.index == DIRECT_URL and wheel.is_local:
        path = file_url_to_path(wheel.url)
        file["path"] = os.path.relpath(path, folder or ".")
    else:
        file["url"] = wheel.url
    if wheel.size is not None:
        file["size"] = wheel.size
    file["hashes"] = {"sha256": wheel.sha256}
    if wheel.index == DIRECT_URL:
        package["archive"] = file
    elif not wheel.is_sdist:
        package["wheels"] = [file]
    else:
        package["sdist"] = file
    if pin.publishers:
        package[_IDENTITIES] = [json.loads(text) for text in pin.publishers]
    if own := _of_build(pin):
        package["tool"] = {"gpuenv": own}
    return package


def _of_build(pin: Pin) -> dict[str, object]:
    """Return what a lock has of the build of a source distribution."""
    own: dict[str, object] = {_BUILT_WITH: pin.built_with} if pin.built_with else {}
    if pin.build_settings:
        own[_BUILD_SETTINGS] = list(pin.build_settings)
    return own


def _tree(pin: Pin, folder: str | None) -> dict[str, object]:
    """Return what a lock has of a source tree: its place, and the version that was solved for."""
    wheel = pin.wheel
    tool = {"tool": {"gpuenv": {"version": wheel.version, **_of_build(pin)}}}
    if wheel.url.startswith("git+"):
        commit = read_commit(wheel.url)
        vcs = {
            "type": "git",
            "url": commit.url,
            "requested-revision": commit.revision,
            "commit-id": commit.commit,
            "subdirectory": commit.subdirectory,
        }
        return {"vcs": {key: text for key, text in vcs.items() if text}, **tool}
    path = folder_of(wheel.url)
    if folder is not None:
        path = os.path.relpath(path, folder or ".")
    editable = {"editable": True} if is_editable(wheel) else {}
    return {"directory": {"path": path, **editable}, **tool}


def environment_marker(needs: Needs) -> str:
    """Return the PEP 508 marker of the one environment that the lock is for."""
    system, machine = "linux", needs.platform.removeprefix("linux-")
    if needs.platform == "win-amd64":
        system, machine = "win32", "AMD64"
    return (
        f'implementation_name == "cpython" and platform_machine == "{machine}" and '
        f'python_version == "{show_pair(needs.python)}" and sys_platform == "{system}"'
    )


def requirements_text(lock: Lock) -> str:
    """Return hash-pinned requirements for `pip install --no-deps --require-hashes -r`.

    Packages of an index other than the default are named by URL, so that no other index can
    supply them.
    """
    if lock.variants:
        name = lock.variants[0].name
        message = f"requirements cannot name the variant wheel of {name}"
        raise InputError(message, hint="write a lock: --format pylock")
    python, driver = show_pair(lock.needs.python), lock.needs.driver or "none"
    lines = [f"# gpuenv {lock.digest[:16]}: Python {python}, driver >= {driver}"]
    default = most_used_index(lock.pins)
    for pin in lock.pins:
        wheel = pin.wheel
        if is_tree(wheel.url):
            message = f"requirements with hashes cannot name {wheel.name}, which is a source tree"
            raise InputError(message, hint="write a lock: --format pylock")
        requirement = f"{wheel.name} @ {wheel.url}"
        if wheel.index == default:
            requirement = f"{wheel.name}=={wheel.version}"
        lines.append(f"{requirement} \\\n    --hash=sha256:{wheel.sha256}")
    return "\n".join(lines) + "\n"


def most_used_index(pins: Sequence[Pin]) -> str:
    """Return the index that has most of some packages: the default index."""
    indexes = [pin.wheel.index for pin in pins if pin.wheel.index not in ("", DIRECT_URL)]
    return max(sorted(set(indexes)), key=indexes.count, default="")


def write_texts(texts: Mapping[str, str]) -> None:
    """Write several files or none. InputError if one cannot be written."""
    for path in texts:
        require_place(path)
    try:
        write_all({path: text.encode() for path, text in texts.items()})
    except OSError as error:
        message = f"{', '.join(texts)}: cannot be written: {error.strerror}"
        raise InputError(message, hint="give another path") from None


# ---- reading ------------------------------------------------------------------------------------


def read(path: str) -> Lock:
    """Return the lock in a file. InputError says what is wrong with it and where."""
    try:
        text = read_input(path).decode()
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise InputError(message, hint="make a lock with gpuenv solve") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    return loads(text, path)


def loads(text: str, path: str) -> Lock:
    """Return the lock in a text; `path` is for messages.

    Raises:
        TamperedError: The digest does not fit: the lock was edited.
        InputError: The text is no lock of gpuenv, or a newer gpuenv wrote it.
    """
    try:
        document: Document = parse_toml(text)
    except ValueError as error:
        raise InputError(f"{path}: is not TOML: {error}", hint=_other_tool_hint(path)) from None
    tools = document.get("tool")
    table = tools.get("gpuenv") if isinstance(tools, dict) else None
    is_edited = False
    if isinstance(table, dict):
        PYLOCK.refuse_newer(table, f"{path}: tool.gpuenv.format")
        is_edited = "content" in table and table["content"] != content(document)
    lock, problem = None, ""
    try:
        with_ordinary_names(document)
        packages = validated(document).packages
        if isinstance(table, dict):
            folder = os.path.dirname(os.path.abspath(path))
            lock = _lock_of(packages, table, folder)
    except ValueError as error:
        problem = f": {error}"
    if is_edited:
        # The problem may be what the edit has made, such as a file of another version.
        message = f"{path}: was edited after it was locked{problem}"
        raise TamperedError(message, hint="lock it again")
    if problem:
        raise InputError(f"{path}{problem}", hint=_other_tool_hint(path))
    if lock is None:
        message = f"{path}: has no [tool.gpuenv], so what it needs of a host is not known"
        hint = f"{_OTHER_TOOLS}, or make another with gpuenv solve"
        raise InputError(message, hint=hint)
    return lock


def _other_tool_hint(path: str) -> str:
    """Return what to do with a lock of another tool; "" if a file is none."""
    return _OTHER_TOOLS if foreign.tool_of(path) else ""


def validated(document: Document) -> Pylock:
    """Return a document as a PEP 751 lock. ValueError if it is none."""
    from packaging.pylock import Pylock, PylockValidationError  # a solve does not read locks

    try:
        return Pylock.from_dict(document)
    except PylockValidationError as error:
        raise ValueError(f"is not a valid lock: {error_text(error)}") from None


def with_ordinary_names(document: Document) -> list[str]:
    """Remove the labels from the names of variant wheels, because packaging refuses them.

    Returns:
        The packages that have [packages.variants-json] (PEP 825).
    """
    packages = document.get("packages")
    described: list[str] = []
    for package in packages if isinstance(packages, list) else ():
        if isinstance(package, dict) and VARIANTS_JSON in package:
            described.append(str(package.get("name")))
            wheels = package.get("wheels")
            for wheel in wheels if isinstance(wheels, list) else ():
                if isinstance(wheel, dict):
                    place = wheel.get("name") or wheel.get("path") or wheel.get("url")
                    wheel["name"] = split_label(_last_part(str(place)))[0]
    return described


def _lock_of(packages: Sequence[Package], table: Document, folder: str) -> Lock:
    pins = []
    for package in packages:
        names = [other.get("name", "") for other in package.dependencies or ()]
        if not all(name and isinstance(name, str) for name in names):
            raise ValueError(f"package {package.name} depends on a package without a name")
        pin = Pin(
            wheel=_wheel(package, folder),
            dependencies=tuple(names),
            publishers=tuple(map(canonical_json, package.attestation_identities or ())),
            built_with=grammar.check_built_with(package.name, _own(package).get(_BUILT_WITH, "")),
            build_settings=grammar.check_build_settings(
                package.name, _own(package).get(_BUILD_SETTINGS, [])
            ),
        )
        pins.append(pin)
    return Lock(pins=tuple(pins), **read_table(table))


def _wheel(package: Package, folder: str) -> Wheel:
    """Return the one file of a package: a wheel, a source distribution, or either by its URL.

    A source tree is one, too. Its path starts from the folder of the lock.
    """
    from packaging.pylock import PackageArchive

    if package.vcs is not None or package.directory is not None:
        version: Any = _own(package).get("version")
        return tree_wheel(package.name, version, tree_url(package, folder))
    files = [*(package.wheels or ()), package.sdist, package.archive]
    given = [file for file in files if file is not None]
    if len(given) != 1:
        raise ValueError(f"package {package.name} has {len(given)} files; gpuenv locks one")
    if package.version is None:
        raise ValueError(f"package {package.name} has no version")
    file = given[0]
    url = file.url
    if package.archive is not None and package.archive.path is not None:
        url = path_to_file_url(os.path.abspath(os.path.join(folder, package.archive.path)))
    if url is None:
        raise ValueError(f"package {package.name} has no url of its file")
    filename = _last_part(url)
    if not isinstance(file, PackageArchive):
        filename = file.filename
    if isinstance(file, PackageArchive) and identify(filename) is None:  # of a source tree
        filename = f"{package.name}-{package.version}{os.path.splitext(filename)[1]}"
    wheel = Wheel(
        name=package.name,
        version=str(package.version),
        filename=filename,
        url=url,
        sha256=grammar.check_sha256(package.name, file.hashes.get("sha256")),
        size=file.size,
        index=DIRECT_URL if package.archive is not None else package.index or "",
    )
    grammar.check_wheel(wheel)
    return wheel


def _own(package: Package) -> Mapping[str, Any]:
    """Return [packages.tool.gpuenv], {} without one."""
    own = (package.tool or {}).get("gpuenv", {})
    return own if isinstance(own, dict) else {}


def tree_url(package: Package, folder: str) -> str:
    """Return the URL of the source tree of a package; paths start from the folder of the lock."""
    vcs, directory = package.vcs, package.directory
    if vcs is not None and directory is None and vcs.type == "git" and vcs.url:
        commit = Commit(
            url=vcs.url,
            commit=vcs.commit_id,
            revision=vcs.requested_revision or "",
            subdirectory=vcs.subdirectory or "",
        )
        return str(commit)
    if vcs is not None or directory is None:
        raise ValueError(f"package {package.name}: only a git repository at a URL is read")
    path = os.path.join(folder, directory.path, directory.subdirectory or "")
    return path_to_file_url(os.path.abspath(path)) + EDITABLE * bool(directory.editable)


def tree_wheel(name: str, version: str, url: str) -> Wheel:
    """Return a source tree as a wheel. ValueError if its texts are not what they should be."""
    filename = f"{name}-{version}.tar.gz"
    wheel = Wheel(
        name=name, version=version, filename=filename, url=url, sha256=key_of(url), index=DIRECT_URL
    )
    grammar.check_tree(wheel)
    return wheel


def _last_part(url: str) -> str:
    return unquote(url.rpartition("/")[2])
