"""A lock as tables for the projects of other tools: sources of packages and exact versions.

Each tool gets what it can express. Tables are TOML for pyproject.toml, or pixi.toml for pixi.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import tomli_w

from ..errors import InexpressibleError
from ..index.protocol import DIRECT_URL
from ..index.urls import file_url_to_path
from ..model import Lock, Wheel, show_pair
from ..requirements.source_urls import is_editable, is_tree, read_commit
from ..requirements.target import parse_requirement
from .pylock import environment_marker, most_used_index
from .tool_settings import pixi_platform

TOOLS = ("uv", "pixi", "poetry", "pdm")

Table = dict[str, Any]


def project_tables(tool: str, lock: Lock) -> str:
    """Return the tables of a lock for a project of a tool.

    Args:
        tool: one of TOOLS.
        lock: the lock, of wheels.

    Raises:
        InexpressibleError: the tool cannot name a file of the lock.
    """
    if lock.variants:
        name = lock.variants[0].name
        raise InexpressibleError(
            f"{tool} locks no variant wheel, and {name} is one",
            hint="install the lock with gpuenv sync",
        )
    wheels = [pin.wheel for pin in lock.pins]
    names = _index_names(lock)
    python = show_pair(lock.needs.python)
    if tool == "uv":
        return tomli_w.dumps(_uv(lock, wheels, names))
    if tool == "pixi":
        return pixi_platform(lock.host, with_capability=False) + tomli_w.dumps(
            _pixi(wheels, names, python)
        )
    if tool == "poetry":
        # A group with every package, because poetry has no constraints. It ignores dependencies
        # of [tool.poetry.dependencies] that [project] does not have.
        dependencies: Table = {}
        for wheel in wheels:
            dependencies[wheel.name] = wheel.version
            if wheel.index in names:
                source = {"version": wheel.version, "source": names[wheel.index]}
                dependencies[wheel.name] = source
            elif _is_direct(wheel):
                dependencies[wheel.name] = _place(wheel, "develop")
        table: Table = {
            "dependencies": {"python": f"~{python}"},
            "group": {"gpuenv": {"dependencies": dependencies}},
        }
        sources: list[Table] = [
            {"name": name, "url": url, "priority": "explicit"} for url, name in names.items()
        ]
    else:  # pdm: overrides for every package, and the packages of each index
        overrides = {}
        for wheel in wheels:
            overrides[wheel.name] = wheel.url if _is_direct(wheel) else f"=={wheel.version}"
        table = {"resolution": {"overrides": overrides}}
        sources = [
            {
                "name": name,
                "url": url,
                "include_packages": [wheel.name for wheel in wheels if wheel.index == url],
            }
            for url, name in names.items()
        ]
    if sources:
        table["source"] = sources
    return tomli_w.dumps({"tool": {tool: table}})


def _uv(lock: Lock, wheels: Sequence[Wheel], names: Mapping[str, str]) -> Table:
    """Return [tool.uv]: constraints for every package, and the sources of some.

    uv reads the sources of direct dependencies only. A dependency group makes the others direct.
    """
    sources: Table = {}
    for wheel in wheels:
        if wheel.index in names:
            sources[wheel.name] = {"index": names[wheel.index]}
        elif wheel.is_local and not is_tree(wheel.url) and _is_direct(wheel):
            sources[wheel.name] = {"path": file_url_to_path(wheel.url)}
        elif _is_direct(wheel):
            sources[wheel.name] = _place(wheel, "editable")
    table: Table = {
        "constraint-dependencies": [f"{wheel.name}=={wheel.version}" for wheel in wheels],
        "environments": [environment_marker(lock.needs)],
    }
    if names:
        table["index"] = [
            {"name": name, "url": url, "explicit": True} for url, name in names.items()
        ]
    if sources:
        table["sources"] = sources
    asked = {parse_requirement(text).name for text in (*lock.frameworks, *lock.requirements)}
    indirect = sorted(set(sources) - asked)
    groups = {"dependency-groups": {"gpuenv": indirect}} if indirect else {}
    return {**groups, "tool": {"uv": table}}


def _pixi(wheels: Sequence[Wheel], names: Mapping[str, str], python: str) -> Table:
    """Return a feature with every package, and the environment that has it."""
    packages: Table = {}
    for wheel in wheels:
        packages[wheel.name] = {"version": f"=={wheel.version}"}
        if wheel.index in names:
            packages[wheel.name]["index"] = wheel.index
        elif _is_direct(wheel):
            packages[wheel.name] = _place(wheel, "editable")
    feature = {
        "platforms": ["gpuenv"],
        "dependencies": {"python": f"{python}.*"},
        "pypi-dependencies": packages,
    }
    return {"feature": {"gpuenv": feature}, "environments": {"gpuenv": ["gpuenv"]}}


def _place(wheel: Wheel, editable: str) -> Table:
    """Return where a file or a source tree is; `editable` is the tool's key for such a folder."""
    if not is_tree(wheel.url):
        return {"url": wheel.url}
    if not wheel.url.startswith("git+"):
        path = file_url_to_path(wheel.url)
        return {"path": path, **({editable: True} if is_editable(wheel) else {})}
    commit = read_commit(wheel.url)
    place = {"git": commit.url, "rev": commit.commit, "subdirectory": commit.subdirectory}
    return {key: text for key, text in place.items() if text}


def _is_direct(wheel: Wheel) -> bool:
    """Return whether no index has the file: it is named by its URL, or is one of --find-links."""
    return wheel.index in ("", DIRECT_URL)


def _index_names(lock: Lock) -> dict[str, str]:
    """Return URL -> name of the indexes other than the one that has most packages."""
    default = most_used_index(lock.pins)
    names: dict[str, str] = {}
    for url in sorted({pin.wheel.index for pin in lock.pins}):
        if url in ("", DIRECT_URL, default):
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
