"""Write a first [tool.gpuenv] for a repository, from its files and hosts; add profiles to it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..atomic_write import write_whole
from ..compat.data import CompatibilityData, gpu_key
from ..compat.names import unknown_framework
from ..errors import InputError
from ..index.default_index import builtin_index
from ..model import Host, Python, Requirement, Value, parse_pair, parse_release, show_pair
from ..requirements.conda_projects import is_project_file, read_project_file
from ..requirements.files import read_files
from ..requirements.parse import NameOf, RequirementSet, requirement_of_row
from ..requirements.pyproject import PLAIN, has_setup, importable, importable_by_name
from ..requirements.target import (
    PYTHONS,
    TargetEnvironment,
    contains,
    normalize_name,
    parse_requirement,
)
from ..requirements.tool_tables import poetry_python
from ..serialize import parse_toml, read_input, read_toml
from .profiles import GLIBC, PLATFORM
from .read import FILE, NAME_CHARACTERS, has_dependencies, has_table

_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_BUILD = re.compile(r"(?<=\d)\+[a-z0-9.]+")
_OPTIONS = (
    "constraints", "index_url", "extra_index_urls", "find_links", "no_index", "pre",
)  # fmt: skip
_HEADER = """\
# What `gpuenv lock` locks: one pylock.NAME.toml for each profile. See `gpuenv lock --help`.
"""


class Beginning(Value):
    """A first table, or further profiles, not written yet.

    `addition` is the text to append to the file `path`, "" if there is nothing to add.
    `frameworks` and `python` are those of the first table, () and "" if there is a table already.
    `is_empty` tells whether a new project asks for nothing, `imported` names the files of other
    tools that were read for it, and `left_out` those that were not. `profiles` are the new
    ones. `covered` are profiles that were there for one of the hosts.
    """

    path: str
    addition: str
    frameworks: tuple[str, ...] = ()
    is_empty: bool = False
    imported: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    profiles: tuple[str, ...]
    python: str = ""
    covered: tuple[str, ...] = ()


def begin(
    folder: str,
    hosts: Sequence[Host],
    data: CompatibilityData,
    *,
    frameworks: Sequence[str] = (),
    name: str = "",
    python: str = "",
    ci: bool = True,
    name_of: NameOf | None = None,
) -> Beginning:
    """Return a first [tool.gpuenv] for a repository, or further profiles; nothing is written.

    Args:
        folder: the folder of the repository, "" for the working folder.
        hosts: the GPUs of each become a profile. A first table also has a profile without a GPU,
            for CI.
        data: the compatibility data, which knows the frameworks and the GPUs.
        frameworks: the frameworks; () takes those that pyproject.toml, requirements*.txt or the
            imports of *.py name. Without a pyproject.toml they become dependencies of a new
            [project], with what the files of other tools ask for.
        name: the name of the new profile; "" names each by its GPUs.
        python: the Python X.Y of a first table; "" takes the one that the files name.
        ci: whether a first table has a profile without a GPU, for CI.
        name_of: as for `checked_requirement`.

    Raises:
        InputError: a file cannot be read, or a profile cannot be named or added.
    """
    path, document = _read_document(folder)
    hosts = _distinct_hosts(hosts, data)
    if not set(name) <= NAME_CHARACTERS:
        raise InputError(f"--name {name}: must consist of letters, digits, - and _")
    if name and len(hosts) > 1:
        raise InputError(f"--name {name}: is for one host", hint="leave it out")
    if not has_table(document):
        return _first_table(
            folder,
            document,
            hosts,
            data,
            frameworks,
            name=name,
            python=python,
            ci=ci,
            name_of=name_of,
        )
    if frameworks:
        message = f"--framework {frameworks[0]}: {path} has a [tool.gpuenv] with its own"
        raise InputError(message, hint="edit the table")
    table = _table(document, "tool", "gpuenv")
    if not {"frameworks", "requirements"} & set(table) and not has_dependencies(document):
        hint = 'name some: frameworks = ["torch"]'
        raise InputError(f"{path}: has a [tool.gpuenv] without frameworks", hint=hint)
    profiles = _table(table, "profiles")
    if name in profiles:
        raise InputError(f"--name {name}: {path} has a profile of that name")
    covered: list[str] = []
    added: dict[str, str] = {}
    for host in hosts:
        same = _profile_for(host, profiles, data)
        if same is None:
            new = name or _free_name(host, {*profiles, *added})
            added[new] = _profile(new, host, _strings(table.get("frameworks")), data)
            continue
        driver, own = _table(profiles, same).get("driver"), host.driver
        if isinstance(driver, str) and own and parse_release(own) < parse_release(driver):
            message = f"{path}: profile {same} needs driver {driver}; a host has {own}"
            raise InputError(message, hint=f'set its driver = "{own}"')
        covered.append(same)
    return Beginning(
        path=path,
        addition="\n".join(added.values()),
        profiles=tuple(added),
        covered=tuple(covered),
    )


def _first_table(
    folder: str,
    document: Mapping[str, object],
    hosts: Sequence[Host],
    data: CompatibilityData,
    frameworks: Sequence[str],
    *,
    name: str,
    python: str,
    ci: bool,
    name_of: NameOf | None,
) -> Beginning:
    """Return a first [tool.gpuenv]; the arguments are those of `begin`."""
    if not os.path.isdir(folder or "."):
        raise InputError(f"{folder}: is not a folder")
    path = os.path.join(folder, FILE)
    _require_known(frameworks, data)
    of_setuptools = has_setup(folder)
    has_project = of_setuptools or os.path.lexists(path)
    imported = _read_imports(folder, hosts[0].platform, name_of)
    if has_project and "backend" in imported.table:
        # A project is of wheels, and the file is of conda.
        imported = _Imported(left_out=(*imported.files, *imported.left_out))
    is_new = not (has_project or "backend" in imported.table)
    python = _choose_python(folder, document, hosts[0], python, imported.python)
    version = python.removesuffix("t")
    host = hosts[0].replace(python=Python(version=parse_pair(version)))
    chosen = ("", "") if frameworks else _list_with_frameworks(document, data)
    frameworks = frameworks or _asked_frameworks(
        folder, document, imported, data, host, chosen=chosen
    )
    asked = {parsed.name: text for parsed, text in _valid(imported.dependencies)}
    project, is_empty = "", False
    fields: dict[str, object] = {}
    if is_new:
        given = _frameworks_of(imported.dependencies, data)
        more = [text for text in frameworks if parse_requirement(text).name not in given]
        is_empty = not (imported.dependencies or more)
        project = _project_table(folder, version, [*imported.dependencies, *more])
    else:
        others = [
            text
            for parsed, text in _valid(imported.dependencies)
            if parsed.name not in data.installers
        ]
        fields = _fields_beside_project(
            folder, document, frameworks, others, chosen, of_setuptools=of_setuptools
        )
    if not (is_new or imported.table or "requirements" in fields):
        imported = _only_left_out(imported, document, asked)
    fields |= {**imported.table, "python": python}
    on_cpu = [_runs_without_gpu(text, data) for text in frameworks]
    # Every profile locks the dependencies of [project]: a profile for CI must be able to.
    is_for_ci = ci and (all(on_cpu) if is_new else any(on_cpu) or not on_cpu)
    required = _strings(_table(document, "project").get("dependencies"))
    for parsed, _ in _valid([*required, *imported.dependencies]):
        row = data.compiled_against(parsed.name, "")
        is_for_ci = is_for_ci and not (row is not None and row.capabilities)
    profiles = _first_profiles(hosts, data, frameworks, name=name, ci=is_for_ci)
    table = _HEADER + "\n".join([_toml_table("tool.gpuenv", fields), *profiles.values()])
    return Beginning(
        path=path,
        addition=project + table,
        frameworks=tuple(frameworks),
        is_empty=is_empty,
        imported=imported.files,
        left_out=imported.left_out,
        profiles=tuple(profiles),
        python=python,
    )


def _asked_frameworks(
    folder: str,
    document: Mapping[str, object],
    imported: _Imported,
    data: CompatibilityData,
    host: Host,
    *,
    chosen: tuple[str, str],
) -> list[str]:
    """Return the frameworks that a repository names, without those that are asked for already.

    The key `wheels` of the first table, and the chosen extra or group, ask for some.
    """
    target = TargetEnvironment(host)
    found = _find_frameworks(folder, document, imported.dependencies, data, target)
    in_list = _lists(document).get(chosen, [])
    given = _frameworks_of([*imported.table.get("wheels", ()), *in_list], data)
    return [text for text in found if parse_requirement(text).name not in given]


def _only_left_out(
    imported: _Imported, document: Mapping[str, object], asked: Mapping[str, str]
) -> _Imported:
    """Return that files were left out beside a project that has requirements of its own.

    Those of conda are named. The others are, too, if they ask for what the project does not
    require, pins aside.

    Args:
        imported: what was read.
        document: pyproject.toml.
        asked: the requirements of the files by their names.
    """
    left_out = [name for name in imported.left_out if is_project_file(name)]
    unpinned = {name for name, text in asked.items() if "==" not in text}
    if not _declared_names(document) >= unpinned:
        left_out = [*imported.files, *left_out]
    return _Imported(left_out=tuple(left_out))


def _require_known(frameworks: Iterable[str], data: CompatibilityData) -> None:
    """Raise InputError for a name that is not that of a framework."""
    for text in frameworks:
        if data.framework(parse_requirement(text).name) is None:
            raise unknown_framework(text, parse_requirement(text).name, data)


def _fields_beside_project(
    folder: str,
    document: Mapping[str, object],
    frameworks: Sequence[str],
    requirements: Sequence[str],
    chosen: tuple[str, str],
    *,
    of_setuptools: bool,
) -> dict[str, object]:
    """Return what a first table asks for beside the dependencies of a project that exists.

    `chosen` is that of `_list_with_frameworks`.
    """
    fields: dict[str, object] = {}
    if frameworks:
        fields["frameworks"] = frameworks
    if requirements and not _strings(_table(document, "project").get("dependencies")):
        fields["requirements"] = requirements
    # A setup.py that reads the requirements file asks for the same, and need not be built.
    reads_file = any(PLAIN in text for text in _read_files(folder, "setup.py"))
    if of_setuptools and not (has_dependencies(document) or (requirements and reads_file)):
        fields["project-dependencies"] = True
    of_uv = _table(document, "tool", "uv").get("default-groups", ["dev"])
    groups = [name for name in _strings(of_uv) if name in _table(document, "dependency-groups")]
    if "project" in document and groups:
        fields["groups"] = groups
    kind, name = chosen
    if name:
        fields[kind] = list(dict.fromkeys([*(groups if kind == "groups" else ()), name]))
    return fields


def _list_with_frameworks(
    document: Mapping[str, object], data: CompatibilityData
) -> tuple[str, str]:
    """Return the extra or the group which alone asks for frameworks.

    Returns:
        The key of [tool.gpuenv] and the name: ("extras", "gpu"). ("", "") if [project] itself asks
        for some; if there are several, which may be for different GPUs; if it names a build; or if
        a framework of it needs a GPU, which a profile for CI does not have.
    """
    project = _table(document, "project")
    own = _frameworks_of(_strings(project.get("dependencies")), data)
    lists = _lists(document)
    found = [place for place, texts in lists.items() if _frameworks_of(texts, data)]
    if "project" not in document or own or len(found) != 1:
        return "", ""
    texts = lists[found[0]]
    runs = all(_runs_without_gpu(name, data) for name in _frameworks_of(texts, data))
    return found[0] if runs and not any(_BUILD.search(text) for text in texts) else ("", "")


def _lists(document: Mapping[str, object]) -> dict[tuple[str, str], list[str]]:
    """Return the extras and groups of a project by the key of [tool.gpuenv] and the name."""
    extras = _table(document, "project", "optional-dependencies")
    groups = _table(document, "dependency-groups")
    return {
        (key, name): _strings(texts)
        for key, table in (("extras", extras), ("groups", groups))
        for name, texts in table.items()
    }


def _frameworks_of(texts: Sequence[str], data: CompatibilityData) -> set[str]:
    """Return the frameworks that requirements name."""
    named = (parsed.name for parsed, _ in _valid(texts))
    return {data.installers[name].name for name in named if name in data.installers}


def _first_profiles(
    hosts: Sequence[Host],
    data: CompatibilityData,
    frameworks: Sequence[str],
    *,
    name: str,
    ci: bool,
) -> dict[str, str]:
    """Return the texts of the profiles of a first table by their names: at least one."""
    profiles: dict[str, str] = {}
    for host in hosts:
        if host.gpus:
            new = name or _free_name(host, profiles)
            profiles[new] = _profile(new, host, frameworks, data)
    if not profiles or ci:
        cpu = hosts[0].replace(gpus=())
        profiles.setdefault("cpu", _profile("cpu", cpu, frameworks, data))
    return profiles


def _project_table(folder: str, python: str, dependencies: Sequence[str]) -> str:
    """Return the [project] of a new project, which has the name of its folder."""
    name = normalize_name(os.path.basename(os.path.abspath(folder)))
    about = {
        "name": re.sub(r"[^a-z0-9-]", "", name).strip("-") or "project",
        "version": "0.1.0",
        "requires-python": f">={python}",
        "dependencies": dependencies,
    }
    return _toml_table("project", about) + "\n"


def begin_profiles(
    folder: str,
    hosts: Sequence[Host],
    data: CompatibilityData,
    *,
    frameworks: Sequence[str],
    requirements: Sequence[str] = (),
    separate_versions: bool = False,
) -> Beginning:
    """Return one profile for each host, with all facts of the host; nothing is written.

    Args:
        folder: the folder of pyproject.toml, "" for the working folder.
        hosts: the described hosts.
        data: the compatibility data.
        frameworks: the frameworks of a first table. A table that is there must have the same.
        requirements: the requirements, likewise.
        separate_versions: whether each profile has its own versions of the frameworks.

    Raises:
        InputError: the table that is there asks for something else.
    """
    path, document = _read_document(folder)
    table = _table(document, "tool", "gpuenv")
    requested = {"frameworks": list(frameworks), "requirements": list(requirements)}
    first: list[str] = []
    if has_table(document):
        for key, texts in requested.items():
            if _strings(table.get(key)) != texts:
                message = f"{path}: tool.gpuenv.{key} differs from what was solved for"
                raise InputError(message, hint="solve for the same, or write to another folder")
    else:
        asked = {key: texts for key, texts in requested.items() if texts}
        first = [_toml_table("tool.gpuenv", asked)]
    existing = _table(table, "profiles")
    added: dict[str, str] = {}
    for host in hosts:
        texts = _gpu_texts(host, data) or ["none"]
        fields: dict[str, object] = {
            "gpu": texts if len(texts) > 1 else texts[0],
            "driver": host.driver,
            "python": host.python.release,
            "platform": host.platform,
            "glibc": show_pair(host.glibc) if host.glibc is not None else None,
            "separate-versions": separate_versions or None,
        }
        fields = {key: value for key, value in fields.items() if value is not None}
        if fields not in existing.values():
            name = _free_name(host, {*existing, *added})
            added[name] = _toml_table(f"tool.gpuenv.profiles.{name}", fields)
    addition = "\n".join([*first, *added.values()]) if added else ""
    return Beginning(path=path, addition=addition, profiles=tuple(added))


def write(beginning: Beginning) -> None:
    """Append tables to their file; the bytes before them stay as they are.

    Raises:
        InputError: the table cannot be appended, or the file cannot be written.
    """
    path = os.path.realpath(beginning.path)
    before = read_input(path) if os.path.exists(path) else b""
    text = beginning.addition
    if before:
        text = f"\n{text}" if before.endswith(b"\n") else f"\n\n{text}"
    if b"\r\n" in before:
        text = text.replace("\n", "\r\n")
    content = before + text.encode()
    try:
        parse_toml(content.decode())
    except ValueError as error:  # for example, `tool` is an inline table
        message = f"{beginning.path}: a [tool.gpuenv] cannot be appended: {error}"
        raise InputError(message, hint="write `tool` as tables, then try again") from None
    try:
        write_whole(path, content)
    except OSError as error:
        message = f"{beginning.path}: cannot be written: {error.strerror}"
        raise InputError(message) from None


# ---- hosts and profiles --------------------------------------------------------------------------


def _distinct_hosts(hosts: Sequence[Host], data: CompatibilityData) -> list[Host]:
    """Return one host for each kind, with the oldest driver and glibc of that kind.

    Raises:
        InputError: the driver of a host with GPUs is not known.
    """
    distinct: dict[tuple[str, ...], Host] = {}
    for host in hosts:
        if host.gpus and host.driver is None:
            hint = "give the oldest that it must run on: --driver 580.65.06"
            raise InputError("the driver of the GPU profile is not known", hint=hint)
        key = (host.platform, *sorted(_gpu_texts(host, data)))
        other = distinct.setdefault(key, host)
        drivers = [driver for driver in (other.driver, host.driver) if driver is not None]
        glibcs = [glibc for glibc in (other.glibc, host.glibc) if glibc is not None]
        driver = min(drivers, key=parse_release, default=None)
        distinct[key] = other.replace(driver=driver, glibc=min(glibcs, default=None))
    return list(distinct.values())


def _profile_for(host: Host, profiles: Mapping[str, object], data: CompatibilityData) -> str | None:
    """Return the profile with the GPUs and the platform of a host; None if there is none."""
    wanted = sorted(map(gpu_key, _gpu_texts(host, data) or ["none"]))
    for name in profiles:
        profile = _table(profiles, name)
        gpu, count = profile.get("gpu"), profile.get("count")
        texts = [gpu] if isinstance(gpu, str) else _strings(gpu)
        if isinstance(count, int):
            texts *= count
        is_same = sorted(map(gpu_key, texts)) == wanted
        if is_same and profile.get("platform", PLATFORM) == host.platform:
            return name
    return None


def _free_name(host: Host, taken: Container[str]) -> str:
    """Return a name by the GPUs of a host that no profile has: h100, h100-2, h100-v100, cpu."""
    keys = dict.fromkeys(gpu_key(gpu.name) for gpu in host.gpus)
    name = "-".join(filter(None, keys)) or ("gpu" if keys else "cpu")
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _gpu_texts(host: Host, data: CompatibilityData) -> list[str]:
    """Return the name of each GPU if the data knows it, otherwise its compute capability."""
    texts = []
    for gpu in host.gpus:
        capability, text = gpu.compute_capability, gpu.name
        if capability is not None and data.compute_capability(text) is None:
            text = f"sm_{capability[0]}{capability[1]}"
        texts.append(text)
    return texts


# ---- what the repository names -------------------------------------------------------------------


def _read_document(folder: str) -> tuple[str, Mapping[str, object]]:
    """Return the path and the content of a folder's pyproject.toml, {} if there is none."""
    path = os.path.join(folder, FILE)
    return path, read_toml(path) if os.path.lexists(path) else {}


def _table(document: Mapping[str, object], *names: str) -> Mapping[str, object]:
    """Return an inner table, {} if there is none."""
    for name in names:
        value = document.get(name)
        document = value if isinstance(value, dict) else {}
    return document


def _strings(value: object) -> list[str]:
    """Return the strings of a list, [] for another value."""
    if not isinstance(value, list):
        return []
    return [element for element in value if isinstance(element, str)]


def _read_files(folder: str, pattern: str) -> Iterator[str]:
    """Yield the text of each file in a folder whose name matches a pattern, sorted by name."""
    for path in sorted(Path(folder).glob(pattern)):
        if path.is_file():
            yield read_input(str(path)).decode(errors="replace")


def _valid(texts: Sequence[str]) -> Iterator[tuple[Requirement, str]]:
    """Yield the texts that are requirements, each with what it says."""
    for text in texts:
        try:
            yield parse_requirement(text), text
        except InputError:
            continue


def _declared_names(document: Mapping[str, object]) -> set[str]:
    """Return the names of what [project] and its extras require."""
    project = _table(document, "project")
    texts = _strings(project.get("dependencies"))
    for extra in _table(project, "optional-dependencies").values():
        texts += _strings(extra)
    return {requirement.name for requirement, _ in _valid(texts)}


def _find_frameworks(
    folder: str,
    document: Mapping[str, object],
    in_files: Sequence[str],
    data: CompatibilityData,
    target: TargetEnvironment,
) -> list[str]:
    """Return the frameworks that a repository names, in alphabetical order.

    Each has the first version range that is given; of an extra or a group, which may be one of
    several for different GPUs, without the build; these do not count if [project] requires some
    itself. A framework among the dependencies of [project] has none here: the project states the
    range, and only there.

    Args:
        folder: the folder of the repository.
        document: its pyproject.toml. Of Poetry's table only the names count.
        in_files: the requirements of its other files.
        data: the compatibility data.
        target: what the markers are for.
    """
    project = _table(document, "project")

    def found_in(texts: Sequence[str]) -> list[tuple[str, str]]:
        return [
            (data.installers[requirement.name].name, requirement.specifier)
            for requirement, _ in _valid(texts)
            if requirement.name in data.installers
            if requirement.marker is None or target.marker(requirement.marker, ())
        ]

    own = dict(found_in(_strings(project.get("dependencies"))))
    texts = [_BUILD.sub("", text) for group in _lists(document).values() for text in group]
    texts = [] if own else texts
    texts += [*_table(document, "tool", "poetry", "dependencies"), *in_files]
    named: dict[str, str] = {}
    for name, specifier in found_in(texts):
        if named.get(name, name) == name:
            named[name] = name + specifier
    named |= {name: name for name in own}
    modules = {framework.import_name: framework.name for framework in data.all_frameworks()}
    for content in _read_files(folder, "*.py"):
        for module in _IMPORT.findall(content):
            if module in modules:
                named.setdefault(modules[module], modules[module])
    return [named[name] for name in sorted(named)]


def _choose_python(
    folder: str, document: Mapping[str, object], host: Host, asked: str, imported: str
) -> str:
    """Return the Python X.Y that was asked for, otherwise that of a file of another tool.

    Otherwise it is the first that requires-python admits: that of .python-version, then the
    host's, then the known versions from the oldest.

    Raises:
        InputError: requires-python does not admit it.
    """
    of_poetry = poetry_python(_table(document, "tool", "poetry"))
    requires_python = _table(document, "project").get("requires-python", of_poetry)
    if not isinstance(requires_python, str):
        requires_python = ""
    if asked and not _admits(requires_python, asked.removesuffix("t")):
        message = f"--python {asked}: requires-python {requires_python!r} does not admit it"
        raise InputError(message, hint="give another one, or correct that")
    if asked or imported:
        return asked or imported
    candidates = [host.python.version, *PYTHONS]
    for content in _read_files(folder, ".python-version"):
        pinned = re.match(r"[ \t]*(\d+)\.(\d+)[ \t]*(?:\.|$)", content, re.MULTILINE)
        if pinned:
            candidates.insert(0, (int(pinned[1]), int(pinned[2])))
    for version in candidates:
        if _admits(requires_python, show_pair(version)):
            return show_pair(version)
    message = f"project.requires-python {requires_python!r} admits no Python that is known"
    raise InputError(message, hint="correct it")


def _admits(requires_python: str, python: str) -> bool:
    # >=3.11.4 admits some release of 3.11: X.Y.99 stands for the newest, X.Y.0 is the first.
    return any(contains(requires_python, f"{python}.{patch}") for patch in (99, 0))


# ---- what the files of other tools ask for ------------------------------------------------------


class _Imported(Value):
    """What was read.

    Attributes:
        files: the names of the files.
        left_out: those of further files.
        dependencies: PEP 508 texts, for [project].
        table: keys of [tool.gpuenv].
        python: the version that they name, "" for none.
    """

    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    table: Mapping[str, Any] = {}
    python: str = ""


def _read_imports(folder: str, platform: str, name_of: NameOf | None) -> _Imported:
    """Read the first of the files that a project can begin from.

    Without a requirements.txt, all requirements*.txt count. Beside one they are left out: they are
    for other machines, or for tests.

    Raises:
        InputError: a file cannot be read, or asks for what [tool.gpuenv] cannot say.
    """
    files = importable(folder)
    if not files:
        others = importable_by_name(folder)[:5]
        return _Imported(left_out=tuple(os.path.relpath(path, folder or ".") for path in others))
    read, of_conda = files[:1], is_project_file(files[0].name)
    if files[0].suffix == ".txt" and files[0].name != PLAIN:
        read = [path for path in files if path.suffix == ".txt"]
    if files[0].name == "Pipfile":
        imported = _of_pipfile(files[0])
    elif of_conda:
        imported = _of_environment(files[0], platform, name_of)
    else:
        imported = _of_requirements(read, name_of)
    return imported.replace(left_out=tuple(path.name for path in files if path not in read))


def _of_requirements(paths: list[Path], name_of: NameOf | None) -> _Imported:
    read = read_files([str(path) for path in paths], name_of=name_of)
    return _Imported(
        files=tuple(path.name for path in paths),
        dependencies=tuple(dict.fromkeys(read.requirements)),
        table=_options_of(read),
    )


def _options_of(read: RequirementSet) -> dict[str, Any]:
    """Return the options of requirements files as keys of [tool.gpuenv]."""
    return {name.replace("_", "-"): value for name in _OPTIONS if (value := getattr(read, name))}


def _of_pipfile(path: Path) -> _Imported:
    document = read_toml(str(path))
    urls = [str(source.get("url", "")).rstrip("/") for source in document.get("source", ())]
    first, *others = urls or [""]
    table: dict[str, Any] = {"index-url": first} if first not in ("", builtin_index()[0]) else {}
    if others:
        table["extra-index-urls"] = others
    try:
        rows = document.get("packages", {}).items()
        dependencies = [requirement_of_row(name, value) for name, value in rows]
    except ValueError as error:
        raise InputError(f"{path}: {error}", hint="leave it out, then gpuenv add it") from None
    python = str(document.get("requires", {}).get("python_version", ""))
    return _Imported(
        files=(path.name,), dependencies=tuple(dependencies), table=table, python=python
    )


def _of_environment(path: Path, platform: str, name_of: NameOf | None) -> _Imported:
    """Read an environment.yml: its profiles are of conda packages."""
    read = read_project_file(str(path), platform, name_of)
    table: dict[str, Any] = {"backend": "conda", "requirements": []}
    python = ""
    for spec in read.specs:
        version = re.fullmatch(r"python\s*={1,2}\s*(\d+\.\d+)[\d.*]*", spec)
        if version:
            python = version[1]
        else:
            table["requirements"].append(spec)
    lists = {"channels": read.channels, "wheels": read.wheels.requirements}
    table |= {key: values for key, values in lists.items() if values}
    table |= _options_of(read.wheels)
    return _Imported(files=(os.path.basename(path),), table=table, python=python)


# ---- what is written -----------------------------------------------------------------------------


def _profile(name: str, host: Host, frameworks: Sequence[str], data: CompatibilityData) -> str:
    """Return the table of a profile for the GPUs of a host, or for a host without a GPU.

    InputError if the host has no GPU and all frameworks need one.
    """
    header, texts = f"tool.gpuenv.profiles.{name}", _gpu_texts(host, data)
    if not texts:
        on_cpu = [text for text in frameworks if _runs_without_gpu(text, data)]
        if frameworks and not on_cpu:
            message = f"{' and '.join(frameworks)} run on a GPU only, and this host has none"
            hint = "describe one: gpuenv init --gpu H100 --driver 580.65.06"
            raise InputError(message, hint=hint)
        of_cpu = {"frameworks": on_cpu} if len(on_cpu) < len(frameworks) else {}
        comment = "# for CI, and for machines without a GPU\n"
        return comment + _toml_table(header, {"gpu": "none", **of_cpu})
    fields: dict[str, object] = {"gpu": texts if len(set(texts)) > 1 else texts[0]}
    if len(texts) > 1 and len(set(texts)) == 1:
        fields["count"] = len(texts)
    fields["driver"] = host.driver
    if host.platform != PLATFORM:
        fields["platform"] = host.platform
    if host.glibc is not None and host.glibc < parse_pair(GLIBC):
        fields["glibc"] = show_pair(host.glibc)
    driver = f'driver = "{host.driver}"'
    comment = "  # the oldest driver release that the lock must run on"
    return _toml_table(header, fields).replace(driver, driver + comment)


def _runs_without_gpu(text: str, data: CompatibilityData) -> bool:
    framework = data.framework(parse_requirement(text).name)
    ways = () if framework is None else framework.ways
    return any(way.variant == "*" or not way.carriers for way in ways)


def _toml_table(name: str, fields: Mapping[str, object]) -> str:
    # The JSON of texts, flags, numbers and lists of them is also TOML.
    lines = [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items())]
    return "".join(f"{line}\n" for line in lines)
