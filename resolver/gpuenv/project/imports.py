"""What a repository without a pyproject.toml asks for, by the files of other tools."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..index.default_index import builtin_index
from ..model import Value
from ..requirements.conda_projects import read_project_file
from ..requirements.files import read_files
from ..requirements.parse import requirement_of_row
from ..serialize import read_toml

PIPFILE = "Pipfile"
_OPTIONS = (
    "constraints", "index_url", "extra_index_urls", "find_links", "no_index", "pre",
)  # fmt: skip


class Imported(Value):
    """What was read.

    Attributes:
        files: the names of the files.
        dependencies: PEP 508 texts, for [project].
        table: keys of [tool.gpuenv].
        python: the version that they name, "" for none.
    """

    files: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    table: Mapping[str, Any] = {}
    python: str = ""


def read_imports(folder: str, platform: str) -> Imported:
    """Read requirements*.txt, a Pipfile or an environment.yml: the first of these that is there.

    Raises:
        InputError: a file cannot be read, or asks for what [tool.gpuenv] cannot say.
    """
    place = Path(folder)
    texts = sorted(path for path in place.glob("requirements*.txt") if path.is_file())
    if texts:
        return _of_requirements(texts)
    if (place / PIPFILE).is_file():
        return _of_pipfile(place / PIPFILE)
    for name in ("environment.yml", "environment.yaml"):
        if (place / name).is_file():
            return _of_environment(place / name, platform)
    return Imported()


def _of_requirements(paths: list[Path]) -> Imported:
    read = read_files([str(path) for path in paths])
    values = {name.replace("_", "-"): getattr(read, name) for name in _OPTIONS}
    return Imported(
        files=tuple(path.name for path in paths),
        dependencies=tuple(dict.fromkeys(read.requirements)),
        table={key: value for key, value in values.items() if value},
    )


def _of_pipfile(path: Path) -> Imported:
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
    return Imported(
        files=(path.name,), dependencies=tuple(dependencies), table=table, python=python
    )


def _of_environment(path: Path, platform: str) -> Imported:
    """Read an environment.yml: its profiles are of conda packages."""
    read = read_project_file(str(path), platform)
    table: dict[str, Any] = {"backend": "conda", "requirements": []}
    python = ""
    for spec in read.specs:
        version = re.fullmatch(r"python\s*={1,2}\s*(\d+\.\d+)[\d.*]*", spec)
        if version:
            python = version[1]
        else:
            table["requirements"].append(spec)
    table |= {key: list(getattr(read, key)) for key in ("channels", "wheels") if getattr(read, key)}
    return Imported(files=(os.path.basename(path),), table=table, python=python)
