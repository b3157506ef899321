"""A lock as tables for the projects of other tools: sources of packages and exact versions.

Each tool gets what it can express. Tables are TOML for pyproject.toml, or pixi.toml for pixi.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from ..errors import InexpressibleError
from ..model import Lock, Wheel, show_pair
from ..requirements.target import parse_requirement
from .pylock import DIRECT, environment_marker, most_used_index
from .tool_settings import pixi_platform

TOOLS = ("uv", "pixi", "poetry", "pdm")

Table = dict[str, object]


def project_tables(tool: str, lock: Lock) -> str:
    """Return the tables of a lock for a project of a tool.

    Args:
        tool: one of TOOLS.
        lock: the lock, of wheels.

    Raises:
        InexpressibleError: the tool cannot name a file of the lock.
    """
    import tomli_w

    if lock.variants:
        name = lock.variants[0].name
        raise InexpressibleError(
            f"{tool} locks no variant wheel, and {name} is one",
            hint="install the lock with gpuenv sync",
        )
    if tool == "pixi":
        return pixi_platform(lock.host, with_capability=False) + tomli_w.dumps(_pixi(lock))
    if tool == "uv":
        return tomli_w.dumps(_uv(lock))
    make = {"poetry": _poetry, "pdm": _pdm}[tool]
    return tomli_w.dumps({"tool": {tool: make(lock)}})


def _uv(lock: Lock) -> Table:
    """Return [tool.uv]: constraints for every package, and the sources of some.

    uv reads the sources of direct dependencies only. A dependency group makes the others direct.
    """
    names = _index_names(lock)
    sources: dict[str, dict[str, str]] = {}
    for pin in lock.pins:
        wheel = pin.wheel
        if wheel.index in names:
            sources[wheel.name] = {"index": names[wheel.index]}
        elif _is_direct(wheel):
            sources[wheel.name] = _file_source(wheel)
    table: Table = {
        "constraint-dependencies": [_exact(pin.wheel) for pin in lock.pins],
        "environments": [environment_marker(lock.needs)],
    }
    if names:
        table["index"] = [
            {"name": name, "url": url, "explicit": True} for url, name in names.items()
        ]
    if sources:
        table["sources"] = sources
    document: Table = {"tool": {"uv": table}}
    indirect = sorted(set(sources) - _direct_names(lock))
    if indirect:
        document = {"dependency-groups": {"gpuenv": indirect}, **document}
    return document


def _pixi(lock: Lock) -> Table:
    """Return a feature with every package, and the environment that has it."""
    packages: Table = {}
    names = _index_names(lock)
    for pin in lock.pins:
        wheel = pin.wheel
        entry: Table = {"version": f"=={wheel.version}"}
        if wheel.index in names:
            entry["index"] = wheel.index
        elif _is_direct(wheel):
            entry = {"url": wheel.url}
        packages[wheel.name] = entry
    feature = {
        "platforms": ["gpuenv"],
        "dependencies": {"python": f"{show_pair(lock.needs.python)}.*"},
        "pypi-dependencies": packages,
    }
    return {"feature": {"gpuenv": feature}, "environments": {"gpuenv": ["gpuenv"]}}


def _poetry(lock: Lock) -> Table:
    """Return [tool.poetry]: a group with every package, because poetry has no constraints.

    Poetry ignores dependencies of [tool.poetry.dependencies] that [project] does not have.
    """
    names = _index_names(lock)
    dependencies: Table = {}
    for pin in lock.pins:
        wheel = pin.wheel
        if wheel.index in names:
            entry: object = {"version": wheel.version, "source": names[wheel.index]}
        elif _is_direct(wheel):
            entry = {"url": wheel.url}
        else:
            entry = wheel.version
        dependencies[wheel.name] = entry
    table: Table = {
        "dependencies": {"python": f"~{show_pair(lock.needs.python)}"},
        "group": {"gpuenv": {"dependencies": dependencies}},
    }
    if names:
        table["source"] = [
            {"name": name, "url": url, "priority": "explicit"} for url, name in names.items()
        ]
    return table


def _pdm(lock: Lock) -> Table:
    """Return [tool.pdm]: overrides for every package, and the packages of each index."""
    overrides = {}
    packages: dict[str, list[str]] = {}
    for pin in lock.pins:
        wheel = pin.wheel
        overrides[wheel.name] = wheel.url if _is_direct(wheel) else f"=={wheel.version}"
        packages.setdefault(wheel.index, []).append(wheel.name)
    table: Table = {"resolution": {"overrides": overrides}}
    names = _index_names(lock)
    if names:
        table["source"] = [
            {"name": name, "url": url, "include_packages": packages[url]}
            for url, name in names.items()
        ]
    return table


def _direct_names(lock: Lock) -> set[str]:
    return {parse_requirement(text).name for text in (*lock.frameworks, *lock.requirements)}


def _exact(wheel: Wheel) -> str:
    return f"{wheel.name}=={wheel.version}"


def _is_direct(wheel: Wheel) -> bool:
    """Return whether no index has the file: it is named by its URL, or is one of --find-links."""
    return wheel.index in ("", DIRECT)


def _file_source(wheel: Wheel) -> dict[str, str]:
    if wheel.url.startswith("file:"):
        from ..index.urls import file_url_to_path

        return {"path": file_url_to_path(wheel.url)}
    return {"url": wheel.url}


def _index_names(lock: Lock) -> dict[str, str]:
    """Return URL -> name of the indexes other than the one that has most packages."""
    default = most_used_index(lock.pins)
    names: dict[str, str] = {}
    for url in sorted({pin.wheel.index for pin in lock.pins}):
        if url in ("", DIRECT, default):
            continue
        parts = urlsplit(url)
        host = (parts.hostname or "index").split(".")
        base = f"{host[-2] if len(host) > 1 else host[0]}-{parts.path.strip('/').split('/')[-1]}"
        name, number = base, 1
        while name in names.values():
            number += 1
            name = f"{base}-{number}"
        names[url] = name
    return names
