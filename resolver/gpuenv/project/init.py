"""Write a first [tool.gpuenv] for a repository, from its files and hosts; add profiles to it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence, Set

from ..atomic_write import write_whole
from ..compat.data import CompatibilityData, gpu_key
from ..errors import InputError
from ..model import (
    Framework,
    Gpu,
    Host,
    Requirement,
    Value,
    parse_pair,
    parse_release,
    show_pair,
)
from ..requirements.target import PYTHONS, contains, normalize_name, parse_requirement
from ..serialize import parse_toml, read_input, read_toml
from .profiles import GLIBC, PLATFORM
from .read import FILE, NAME_CHARACTERS, has_table

_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_COMMENT = re.compile(r"(^|\s)#.*")
_HEADER = """\
# What `gpuenv lock` locks: one pylock.NAME.toml for each profile. See `gpuenv lock --help`.
"""


class Beginning(Value):
    """A first table, or further profiles, not written yet.

    `addition` is the text to append to the file `path`, "" if there is nothing to add.
    `frameworks` and `python` are those of the first table, () and "" if there is a table already.
    `profiles` are the new ones. `covered` are profiles that were there for one of the hosts.
    """

    path: str
    addition: str
    frameworks: tuple[str, ...]
    profiles: tuple[str, ...]
    python: str
    covered: tuple[str, ...] = ()


def begin(
    folder: str,
    hosts: Sequence[Host],
    data: CompatibilityData,
    *,
    frameworks: Sequence[str] = (),
    name: str = "",
    ci: bool = True,
) -> Beginning:
    """Return a first [tool.gpuenv] for a repository, or further profiles; nothing is written.

    Args:
        folder: the folder of the repository, "" for the working folder.
        hosts: the GPUs of each become a profile. A first table also has a profile without a GPU,
            for CI.
        data: the compatibility data, which knows the frameworks and the GPUs.
        frameworks: the frameworks; () takes those that pyproject.toml, requirements*.txt or the
            imports of *.py name.
        name: the name of the new profile; "" names each by its GPUs.
        ci: whether a first table has a profile without a GPU, for CI.

    Raises:
        InputError: no framework was found, or a profile cannot be named or added.
    """
    path = os.path.join(folder, FILE)
    document = _read_document(path)
    hosts = _distinct_hosts(hosts, data)
    if not set(name) <= NAME_CHARACTERS:
        raise InputError(f"--name {name}: must consist of letters, digits, - and _")
    if name and len(hosts) > 1:
        raise InputError(f"--name {name}: is for one host", hint="leave it out")
    if has_table(document):
        if frameworks:
            message = f"--framework {frameworks[0]}: {path} has a [tool.gpuenv] with its own"
            raise InputError(message, hint="edit the table")
        return _further_profiles(path, document, hosts, data, name)
    dependencies = _strings(_table(document, "project").get("dependencies"))
    file_requirements = _requirements_of_files(folder)
    if not frameworks:
        requirements = [*_requirements_of(document), *file_requirements]
        frameworks = _find_frameworks(requirements, dependencies, _imports(folder), data)
    if not frameworks:
        message = f"{FILE}, requirements*.txt and the imports of *.py name no framework"
        raise InputError(message, hint="name one: gpuenv init --framework torch")
    python = _choose_python(folder, document, hosts[0])
    _check_frameworks(frameworks, data)
    lines = ["[tool.gpuenv]", f"frameworks = {_toml_list(frameworks)}"]
    if dependencies:
        lines.append("project-dependencies = true")
    else:
        other_requirements = _other_requirements(file_requirements, data)
        if other_requirements:
            lines.append(f"requirements = {_toml_list(other_requirements)}")
    lines.append(f"python = {_toml_string(python)}")
    profiles = _profile_tables(name, hosts, frameworks, data, ci=ci)
    for table in profiles.values():
        lines += ["", *table]
    return Beginning(
        path=path,
        addition=_HEADER + "\n".join(lines) + "\n",
        frameworks=tuple(frameworks),
        profiles=tuple(profiles),
        python=python,
    )


def _further_profiles(
    path: str,
    document: Mapping[str, object],
    hosts: Sequence[Host],
    data: CompatibilityData,
    name: str,
) -> Beginning:
    """Return the profiles of hosts that a [tool.gpuenv] does not have yet."""
    table = _table(document, "tool", "gpuenv")
    if not {"frameworks", "requirements", "project-dependencies"} & set(table):
        hint = 'name some: frameworks = ["torch"]'
        raise InputError(f"{path}: has a [tool.gpuenv] without frameworks", hint=hint)
    profiles = _table(table, "profiles")
    taken = set(profiles)
    if name in taken:
        raise InputError(f"--name {name}: {path} has a profile of that name")
    covered: list[str] = []
    lines: list[str] = []
    names: list[str] = []
    for host in hosts:
        same = _profile_for(host, profiles, data)
        if same is not None:
            _check_driver(path, same, _table(profiles, same), host)
            covered.append(same)
            continue
        new = name or _free_name(profile_name(host), {*taken, *names})
        names.append(new)
        lines += ["", *_profile_lines(new, host, _strings(table.get("frameworks")), data)]
    addition = "\n".join(lines[1:])
    if addition:
        addition += "\n"
    return Beginning(
        path=path,
        addition=addition,
        frameworks=(),
        profiles=tuple(names),
        python="",
        covered=tuple(covered),
    )


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
    path = os.path.join(folder, FILE)
    document = _read_document(path)
    table = _table(document, "tool", "gpuenv")
    requested = {"frameworks": list(frameworks), "requirements": list(requirements)}
    lines: list[str] = []
    if has_table(document):
        for key, texts in requested.items():
            if _strings(table.get(key)) != texts:
                message = f"{path}: tool.gpuenv.{key} differs from what was solved for"
                raise InputError(message, hint="solve for the same, or write to another folder")
    else:
        lines.append("[tool.gpuenv]")
        lines += [f"{key} = {_toml_list(texts)}" for key, texts in requested.items() if texts]
    existing = _table(table, "profiles")
    names: list[str] = []
    covered: list[str] = []
    for host in hosts:
        body = _described_profile_lines(host, data, separate_versions=separate_versions)
        same = _same_profile(parse_toml("\n".join(body)), existing)
        if same is not None:
            covered.append(same)
            continue
        name = _free_name(profile_name(host), {*existing, *names})
        names.append(name)
        lines += ["", f"[tool.gpuenv.profiles.{name}]", *body]
    addition = "\n".join(lines).removeprefix("\n")
    return Beginning(
        path=path,
        addition=addition + "\n" if names else "",
        frameworks=tuple(frameworks),
        profiles=tuple(names),
        python="",
        covered=tuple(covered),
    )


def _same_profile(profile: Mapping[str, object], existing: Mapping[str, object]) -> str | None:
    """Return the name of a profile with the same content; None if there is none."""
    for name in existing:
        if dict(_table(existing, name)) == dict(profile):
            return name
    return None


def _described_profile_lines(
    host: Host, data: CompatibilityData, *, separate_versions: bool
) -> list[str]:
    """Return the keys of a profile with all facts of a host."""
    python = show_pair(host.python.version)
    if host.python.free_threaded:
        python += "t"
    texts = [_gpu_text(gpu, data) for gpu in host.gpus] or ["none"]
    lines = [f"gpu = {_toml_list(texts) if len(texts) > 1 else _toml_string(texts[0])}"]
    if host.driver is not None:
        lines.append(f"driver = {_toml_string(host.driver)}")
    lines.append(f"python = {_toml_string(python)}")
    lines.append(f"platform = {_toml_string(host.platform)}")
    if host.glibc is not None:
        lines.append(f"glibc = {_toml_string(show_pair(host.glibc))}")
    if separate_versions:
        lines.append("separate-versions = true")
    return lines


def _profile_for(host: Host, profiles: Mapping[str, object], data: CompatibilityData) -> str | None:
    """Return the profile with the GPUs and the platform of a host; None if there is none."""
    for name in profiles:
        profile = _table(profiles, name)
        gpu = profile.get("gpu")
        texts = [gpu] if isinstance(gpu, str) else _strings(gpu)
        count = profile.get("count")
        if isinstance(count, int):
            texts *= count
        wanted = [_gpu_text(host_gpu, data) for host_gpu in host.gpus] or ["none"]
        same_gpus = sorted(map(gpu_key, texts)) == sorted(map(gpu_key, wanted))
        if same_gpus and profile.get("platform", PLATFORM) == host.platform:
            return name
    return None


def _check_driver(path: str, name: str, profile: Mapping[str, object], host: Host) -> None:
    """Raise InputError if a host has an older driver than its profile allows."""
    driver = profile.get("driver")
    if not isinstance(driver, str) or host.driver is None:
        return
    if parse_release(host.driver) < parse_release(driver):
        message = f"{path}: profile {name} needs driver {driver}; a host has {host.driver}"
        raise InputError(message, hint=f'set its driver = "{host.driver}"')


def _free_name(name: str, taken: Set[str]) -> str:
    """Return a name that no profile has: h100, h100-2, ..."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def profile_name(host: Host) -> str:
    """Return a name for the profile of a host, by its GPUs: "h100", "h100-v100", "cpu"."""
    if not host.gpus:
        return "cpu"
    keys = dict.fromkeys(gpu_key(gpu.name) for gpu in host.gpus)
    return "-".join(key for key in keys if key) or "gpu"


def _distinct_hosts(hosts: Sequence[Host], data: CompatibilityData) -> list[Host]:
    """Return one host for each kind, with the oldest driver and glibc of that kind.

    Raises:
        InputError: the driver of a host with GPUs is not known.
    """
    distinct: dict[tuple[object, ...], Host] = {}
    for host in hosts:
        if host.gpus and host.driver is None:
            hint = "give the oldest that it must run on: --driver 580.65.06"
            raise InputError("the driver of the GPU profile is not known", hint=hint)
        key = (host.platform, *sorted(_gpu_text(gpu, data) for gpu in host.gpus))
        known = distinct.get(key)
        distinct[key] = host if known is None else _oldest(known, host)
    return list(distinct.values())


def _oldest(host: Host, other: Host) -> Host:
    """Return a host with the older driver and the older glibc of two hosts of one kind."""
    drivers = [driver for driver in (host.driver, other.driver) if driver is not None]
    glibcs = [glibc for glibc in (host.glibc, other.glibc) if glibc is not None]
    driver = min(drivers, key=parse_release, default=None)
    return host.replace(driver=driver, glibc=min(glibcs, default=None))


def write(beginning: Beginning) -> None:
    """Append tables to their file; the bytes before them stay as they are.

    Raises:
        InputError: the table cannot be appended, or the file cannot be written.
    """
    before = b""
    path = os.path.realpath(beginning.path)
    if os.path.exists(path):
        before = read_input(path)
    content = before + _separated(before, beginning.addition)
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


def _separated(before: bytes, addition: str) -> bytes:
    """Return the bytes to append: an empty line, then the text, with the file's line ends."""
    newline = "\n"
    if b"\r\n" in before:
        newline = "\r\n"
    text = addition.replace("\n", newline)
    if not before:
        return text.encode()
    if before.endswith(b"\n"):
        return (newline + text).encode()
    return (newline + newline + text).encode()


# ---- what the repository names -------------------------------------------------------------------


def _read_document(path: str) -> Mapping[str, object]:
    """Read a pyproject.toml, {} if there is none."""
    if not os.path.lexists(path):
        return {}
    return read_toml(path)


def _table(document: Mapping[str, object], *names: str) -> Mapping[str, object]:
    """Return an inner table, {} if there is none."""
    table = document
    for name in names:
        value = table.get(name)
        if not isinstance(value, dict):
            return {}
        table = value
    return table


def _strings(value: object) -> list[str]:
    """Return the strings of a list, [] for another value."""
    if not isinstance(value, list):
        return []
    return [element for element in value if isinstance(element, str)]


def _requirements_of(document: Mapping[str, object]) -> list[str]:
    """Return all requirements in a pyproject.toml; from Poetry's table only the names."""
    project = _table(document, "project")
    requirements = _strings(project.get("dependencies"))
    for group in _table(project, "optional-dependencies").values():
        requirements += _strings(group)
    for group in _table(document, "dependency-groups").values():
        requirements += _strings(group)
    requirements += _table(document, "tool", "poetry", "dependencies")
    return requirements


def _requirements_of_files(folder: str) -> list[str]:
    """Return the requirements in requirements*.txt; options, other files and URLs are skipped."""
    requirements = []
    for name in _list_folder(folder):
        if not name.startswith("requirements") or not name.endswith(".txt"):
            continue
        for line in _read_lines(os.path.join(folder, name)):
            text = _COMMENT.sub("", line).strip().removesuffix("\\").strip()
            if text and not text.startswith("-") and "://" not in text:
                requirements.append(text)
    return requirements


def _imports(folder: str) -> list[str]:
    """Return the names that the *.py files of the folder import."""
    names: list[str] = []
    for name in _list_folder(folder):
        if name.endswith(".py"):
            lines = _read_lines(os.path.join(folder, name))
            names += _IMPORT.findall("\n".join(lines))
    return names


def _list_folder(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder or "."))
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None


def _read_lines(path: str) -> list[str]:
    if not os.path.isfile(path):
        return []
    return read_input(path).decode(errors="replace").splitlines()


# ---- frameworks ----------------------------------------------------------------------------------


def _known_frameworks(data: CompatibilityData) -> list[Framework]:
    frameworks = map(data.framework, data.frameworks())
    return [framework for framework in frameworks if framework is not None]


def _distributions(data: CompatibilityData) -> dict[str, str]:
    """Return the name of the framework for each distribution that installs one."""
    names = {}
    for framework in _known_frameworks(data):
        names[framework.distribution] = framework.name
        for way in framework.ways:
            distribution = way.requires[0].partition("[")[0]
            names[normalize_name(distribution)] = framework.name
    return names


def _parse_if_valid(text: str) -> Requirement | None:
    try:
        return parse_requirement(text)
    except InputError:
        return None


def _find_frameworks(
    requirements: Sequence[str],
    dependencies: Sequence[str],
    imports: Iterable[str],
    data: CompatibilityData,
) -> list[str]:
    """Return the frameworks that a repository names, in alphabetical order.

    Args:
        requirements: all requirements of the repository.
        dependencies: the project's own among them. A framework among these is returned without a
            version range: the project states the range, and only there.
        imports: the names of imported modules.
        data: the compatibility data.
    """
    named = _named_frameworks(requirements, data)
    modules = {framework.import_name: framework.name for framework in _known_frameworks(data)}
    for module in imports:
        if module in modules:
            named.setdefault(modules[module], modules[module])
    own = _named_frameworks(dependencies, data)
    texts = []
    for name in sorted(named):
        if name in own:
            texts.append(name)
        else:
            texts.append(named[name])
    return texts


def _named_frameworks(requirements: Sequence[str], data: CompatibilityData) -> dict[str, str]:
    """Return the requirement for each framework, with the first version range that is given."""
    distributions = _distributions(data)
    named: dict[str, str] = {}
    for text in requirements:
        requirement = _parse_if_valid(text)
        if requirement is None or requirement.name not in distributions:
            continue
        name = distributions[requirement.name]
        if named.get(name, name) == name:
            named[name] = name + requirement.specifier
    return named


def _other_requirements(requirements: Sequence[str], data: CompatibilityData) -> list[str]:
    """Return the requirements that name no framework, without duplicates."""
    distributions = _distributions(data)
    others: list[str] = []
    for text in requirements:
        requirement = _parse_if_valid(text)
        if requirement is None or requirement.name in distributions:
            continue
        if text not in others:
            others.append(text)
    return others


def _check_frameworks(texts: Sequence[str], data: CompatibilityData) -> None:
    for text in texts:
        if data.framework(parse_requirement(text).name) is None:
            known = ", ".join(data.frameworks())
            message = f"--framework {text}: unknown framework; known are {known}"
            raise InputError(message)


def _runs_without_gpu(text: str, data: CompatibilityData) -> bool:
    framework = data.framework(parse_requirement(text).name)
    if framework is None:
        return False
    return any(way.variant == "*" or not way.carriers for way in framework.ways)


# ---- what is written -----------------------------------------------------------------------------


def _choose_python(folder: str, document: Mapping[str, object], host: Host) -> str:
    """Return the first Python X.Y that requires-python admits.

    That of .python-version comes first, then the host's, then the known versions from the oldest.
    """
    requires_python = _table(document, "project").get("requires-python")
    if not isinstance(requires_python, str):
        requires_python = ""
    candidates = [host.python.version, *PYTHONS]
    pinned = _pinned_python(folder)
    if pinned is not None:
        candidates.insert(0, pinned)
    for version in candidates:
        text = show_pair(version)
        # >=3.11.4 admits some release of 3.11: X.Y.99 stands for the newest, X.Y.0 is the first.
        for release in (f"{text}.99", f"{text}.0"):
            if contains(requires_python, release, True):
                return text
    message = f"project.requires-python {requires_python!r} admits no Python that is known"
    raise InputError(message, hint="correct it")


def _pinned_python(folder: str) -> tuple[int, int] | None:
    """Return the version in .python-version, None if there is none."""
    lines = _read_lines(os.path.join(folder, ".python-version"))
    if not lines:
        return None
    parts = lines[0].strip().split(".")
    if len(parts) < 2 or not parts[0].isdigit() or not parts[1].isdigit():
        return None
    return int(parts[0]), int(parts[1])


def _profile_tables(
    name: str,
    hosts: Sequence[Host],
    frameworks: Sequence[str],
    data: CompatibilityData,
    *,
    ci: bool,
) -> dict[str, list[str]]:
    """Return the lines of each profile: those of the hosts' GPUs, and with `ci` one for the CPU.

    Raises:
        InputError: there is no GPU, and no framework runs without one.
    """
    tables: dict[str, list[str]] = {}
    for host in hosts:
        if host.gpus:
            new = name or _free_name(profile_name(host), set(tables))
            tables[new] = _gpu_profile_lines(new, host, data)
    if not tables or (ci and any(_runs_without_gpu(text, data) for text in frameworks)):
        tables.setdefault("cpu", _cpu_profile_lines("cpu", frameworks, data))
    return tables


def _profile_lines(
    name: str, host: Host, frameworks: Sequence[str], data: CompatibilityData
) -> list[str]:
    if host.gpus:
        return _gpu_profile_lines(name, host, data)
    return _cpu_profile_lines(name, frameworks, data)


def _gpu_profile_lines(name: str, host: Host, data: CompatibilityData) -> list[str]:
    texts = [_gpu_text(gpu, data) for gpu in host.gpus]
    lines = [f"[tool.gpuenv.profiles.{name}]"]
    if len(set(texts)) > 1:
        lines.append(f"gpu = {_toml_list(texts)}")
    else:
        lines.append(f"gpu = {_toml_string(texts[0])}")
        if len(texts) > 1:
            lines.append(f"count = {len(texts)}")
    comment = "# the oldest driver release that the lock must run on"
    lines.append(f"driver = {_toml_string(host.driver or '')}  {comment}")
    if host.platform != PLATFORM:
        lines.append(f"platform = {_toml_string(host.platform)}")
    if host.glibc is not None and host.glibc < parse_pair(GLIBC):
        lines.append(f"glibc = {_toml_string(show_pair(host.glibc))}")
    return lines


def _cpu_profile_lines(name: str, frameworks: Sequence[str], data: CompatibilityData) -> list[str]:
    """Return the lines of a profile without a GPU. InputError if all frameworks need one."""
    on_cpu = [text for text in frameworks if _runs_without_gpu(text, data)]
    if frameworks and not on_cpu:
        message = f"{' and '.join(frameworks)} run on a GPU only, and this host has none"
        raise InputError(message, hint="describe one: gpuenv init --gpu H100 --driver 580.65.06")
    lines = [
        "# for CI, and for machines without a GPU",
        f"[tool.gpuenv.profiles.{name}]",
        'gpu = "none"',
    ]
    if len(on_cpu) < len(frameworks):
        lines.append(f"frameworks = {_toml_list(on_cpu)}")
    return lines


def _gpu_text(gpu: Gpu, data: CompatibilityData) -> str:
    """Return a GPU's name if the data knows it, otherwise its compute capability."""
    if gpu.compute_capability is None or data.compute_capability(gpu.name) is not None:
        return gpu.name
    return f"sm_{gpu.compute_capability[0]}{gpu.compute_capability[1]}"


def _toml_string(text: str) -> str:
    return json.dumps(text)  # a JSON string is also a TOML string


def _toml_list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(map(_toml_string, texts)) + "]"
