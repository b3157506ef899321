"""A first [tool.gpuenv] for a repository, from what its files say and from a host."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import dumps as quoted
from typing import Any

from ..atomic_write import write_whole
from ..compat.data import CompatibilityData
from ..errors import InputError
from ..model import Framework, Gpu, Host, Value, parse_release, show_pair
from ..requirements.target import PYTHONS, normalize_name, parse_requirement
from ..serialize import read_toml
from .profiles import GLIBC, PLATFORM
from .read import FILE, has_table

_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_HEADER = """\
# What `gpuenv lock` locks: one pylock.NAME.toml for each profile. See `gpuenv lock --help`.
"""


class Beginning(Value):
    """A first table: the text that goes after what `path` has, and what it says."""

    path: str
    addition: str
    frameworks: tuple[str, ...]
    profiles: tuple[str, ...]
    python: str


def begin(folder: str, host: Host, matrix: CompatibilityData, *, frameworks: Sequence[str] = (), name: str = "gpu") -> Beginning:
    """A first [tool.gpuenv] for the repository in `folder` ("" for here); nothing is written.

    Frameworks are those given, else those that pyproject.toml, requirements*.txt or the imports of *.py name. The
    host's GPUs become the profile `name`; a profile without a GPU is for CI. InputError if there is a table already, or
    if no framework is found.
    """
    path = os.path.join(folder, FILE)
    data = read_toml(path) if os.path.lexists(path) else {}
    if has_table(data):
        raise InputError(f"{path}: has a [tool.gpuenv]", hint="edit it, or take it out first")
    if host.gpus and host.driver is None:
        raise InputError("the driver of the GPU profile is not known", hint="give the oldest that it must run on: "
                         "--driver 580.65.06")  # fmt: skip
    asked, files = _texts(data), list(_requirement_files(folder))
    named = _frameworks([*asked, *files], _imports(folder), matrix)
    own = _frameworks(_strings(_table(data, "project").get("dependencies")), (), matrix)
    # The range of a framework that the project depends on stands there, and only there.
    found = tuple(frameworks) or tuple(name if name in own else text for name, text in named.items())
    if not found:
        where = f"{FILE}, requirements*.txt and the imports of *.py"
        raise InputError(f"{where} name no framework", hint="name one: gpuenv init --framework torch")
    python = _python(folder, data, host)
    for text in found:
        if matrix.framework(parse_requirement(text).name) is None:
            known = ", ".join(matrix.frameworks())
            raise InputError(f"--framework {text}: no framework of that name; known: {known}")
    static = bool(_strings(_table(data, "project").get("dependencies")))
    lines = [f"frameworks = {_list(found)}"]
    if static:
        lines.append("project-dependencies = true")
    elif others := _others(files, matrix):
        lines.append(f"requirements = {_list(others)}")
    lines += [f"python = {quoted(python)}", ""]
    profiles = []
    if host.gpus:
        profiles.append(name)
        lines += _gpu_profile(name, host, matrix)
    on_cpu = [text for text in found if _runs_without_gpu(text, matrix)]
    if on_cpu:
        profiles.append("cpu")
        lines += ["# for CI, and for machines without a GPU", "[tool.gpuenv.profiles.cpu]", 'gpu = "none"']
        lines += [f"frameworks = {_list(on_cpu)}"] if len(on_cpu) < len(found) else []
    elif not host.gpus:
        what = f"{' and '.join(found)} run on a GPU only, and this host has none"
        raise InputError(what, hint="describe one: gpuenv init --gpu H100 --driver 580.65.06")
    text = _HEADER + "[tool.gpuenv]\n" + "\n".join(lines).rstrip() + "\n"
    return Beginning(path=path, addition=text, frameworks=found, profiles=tuple(profiles), python=python)


def write(beginning: Beginning) -> None:
    """Puts the table after the file's text, which stays as it is to the byte. InputError if that cannot be."""
    import tomllib

    before = b""
    path = os.path.realpath(beginning.path)
    if os.path.exists(path):
        with open(path, "rb") as file:
            before = file.read()
    newline = "\r\n" if b"\r\n" in before else "\n"
    gap = "" if not before else newline if before.endswith(b"\n") else newline * 2
    whole = before + (gap + beginning.addition.replace("\n", newline)).encode()
    try:
        tomllib.loads(whole.decode())
    except tomllib.TOMLDecodeError as error:  # such as `tool` being an inline table
        what = f"{beginning.path}: a [tool.gpuenv] cannot be appended: {error}"
        raise InputError(what, hint="write `tool` as tables, then try again") from None
    try:
        write_whole(path, whole)
    except OSError as error:
        raise InputError(f"{beginning.path}: cannot be written: {error.strerror}") from None


# ---- what the repository names --------------------------------------------------------------------------------------


def _table(data: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        inner = data.get(name)
        data = inner if isinstance(inner, dict) else {}
    return data


def _texts(data: Mapping[str, Any]) -> list[str]:
    """The requirements of a pyproject.toml, wherever they stand; of Poetry's tables only the names."""
    project = _table(data, "project")
    groups = [*_table(project, "optional-dependencies").values(), *_table(data, "dependency-groups").values()]
    found = [one for part in (project.get("dependencies"), *groups) for one in _strings(part)]
    return [*found, *_table(data, "tool", "poetry", "dependencies")]


def _strings(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _requirement_files(folder: str) -> Iterator[str]:
    """The lines of requirements*.txt that are requirements; options, files and URLs are left to who wrote them."""
    for name in _listed(folder):
        if name.startswith("requirements") and name.endswith(".txt"):
            for line in _lines(os.path.join(folder, name)):
                text = re.sub(r"(^|\s)#.*", "", line).strip().removesuffix("\\").strip()
                if text and not text.startswith("-") and "://" not in text:
                    yield text


def _imports(folder: str) -> list[str]:
    """The names that *.py files in the folder import."""
    found = []
    for name in _listed(folder):
        if name.endswith(".py"):
            found += _IMPORT.findall("\n".join(_lines(os.path.join(folder, name))))
    return found


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder or "."))
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None


def _lines(path: str) -> list[str]:
    if not os.path.isfile(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def _frameworks(texts: Iterable[str], imports: Iterable[str], matrix: CompatibilityData) -> dict[str, str]:
    """name -> the text that asks for it, with the first version range that is found, in alphabetical order."""
    known = [one for one in map(matrix.framework, matrix.frameworks()) if one is not None]
    distributions = {name: framework.name for framework in known for name in _distributions(framework)}
    modules = {framework.import_name: framework.name for framework in known}
    found: dict[str, str] = {}
    for text in texts:
        try:
            parsed = parse_requirement(text)
        except InputError:
            continue
        name = distributions.get(parsed.name)
        if name is not None and (name not in found or found[name] == name):
            found[name] = name + parsed.specifier
    for module in imports:
        if module in modules:
            found.setdefault(modules[module], modules[module])
    return dict(sorted(found.items()))


def _distributions(framework: Framework) -> set[str]:
    return {framework.distribution, *(normalize_name(way.requires[0].partition("[")[0]) for way in framework.ways)}


def _runs_without_gpu(text: str, matrix: CompatibilityData) -> bool:
    framework = matrix.framework(parse_requirement(text).name)
    return framework is not None and any(way.variant == "*" or not way.carriers for way in framework.ways)


def _others(texts: Sequence[str], matrix: CompatibilityData) -> list[str]:
    """The requirements that are no framework, each once."""
    frameworks = [one for one in map(matrix.framework, matrix.frameworks()) if one is not None]
    names = {name for framework in frameworks for name in _distributions(framework)}
    found = []
    for text in texts:
        try:
            parsed = parse_requirement(text)
        except InputError:
            continue
        if parsed.name not in names and text not in found:
            found.append(text)
    return found


# ---- what is written ------------------------------------------------------------------------------------------------


def _python(folder: str, data: Mapping[str, Any], host: Host) -> str:
    """X.Y: that of .python-version, else the host's, else the oldest that requires-python admits."""
    from ..requirements.target import contains

    asked = _table(data, "project").get("requires-python")
    wanted = asked if isinstance(asked, str) else ""
    pinned = "".join(_lines(os.path.join(folder, ".python-version"))[:1]).strip().split(".")
    first = [(int(pinned[0]), int(pinned[1]))] if len(pinned) > 1 and all(map(str.isdigit, pinned[:2])) else []
    for version in (*first, host.python.version, *PYTHONS):
        # 99: some release of X.Y is admitted by >=3.11.4 too
        if contains(wanted, f"{show_pair(version)}.99", True) or contains(wanted, f"{show_pair(version)}.0", True):
            return show_pair(version)
    raise InputError(f"project.requires-python {wanted!r} admits no Python that is known", hint="correct it")


def _gpu_profile(name: str, host: Host, matrix: CompatibilityData) -> list[str]:
    texts = [_gpu_text(gpu, matrix) for gpu in host.gpus]
    lines = [f"[tool.gpuenv.profiles.{name}]"]
    if len(set(texts)) == 1:
        lines.append(f"gpu = {quoted(texts[0])}")
        lines += [f"count = {len(texts)}"] if len(texts) > 1 else []
    else:
        lines.append(f"gpu = {_list(texts)}")
    parse_release(host.driver or "")
    lines.append(f"driver = {quoted(host.driver)}  # the oldest driver release that the lock must run on")
    if host.platform != PLATFORM:
        lines.append(f"platform = {quoted(host.platform)}")
    if host.glibc is not None and show_pair(host.glibc) != GLIBC and host.glibc < (2, 28):
        lines.append(f"glibc = {quoted(show_pair(host.glibc))}")
    return [*lines, ""]


def _gpu_text(gpu: Gpu, matrix: CompatibilityData) -> str:
    """Its name if the data knows it, else its compute capability."""
    if matrix.compute_capability(gpu.name) is not None or gpu.compute_capability is None:
        return gpu.name
    return f"sm_{gpu.compute_capability[0]}{gpu.compute_capability[1]}"


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(map(quoted, texts)) + "]"
