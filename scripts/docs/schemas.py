"""Write docs/schemas: JSON Schemas of the project table, of the config file and of --json.

    python scripts/tools.py docs schemas [--check]

They are generated from the types: those of gpuenv.documents, those that check [tool.gpuenv], and
the flags of the commands. With --check nothing is written; exit status 1 if a file is not current.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from inspect import cleandoc
from typing import Any

import msgspec

from common import ROOT
from docs.generated import write_or_check
from gpuenv.cli import all_commands, command_parser
from gpuenv.cli.mcp import property_of
from gpuenv.documents import DOCUMENTS, Failure
from gpuenv.project import read

FOLDER = ROOT / "docs" / "schemas"


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def of_documents() -> dict[str, Any]:
    """Return the schema of the documents: #/$defs/COMMAND is what a command prints."""
    types = [item for several in DOCUMENTS.values() for item in several]
    shown, parts = msgspec.json.schema_components([*types, Failure], ref_template="#/$defs/{name}")
    for part in parts.values():  # some releases of msgspec keep the indentation of a docstring
        if "description" in part:
            part["description"] = cleandoc(part["description"])
    remaining, (*_, failure) = iter(shown), shown
    commands = {
        command: {"anyOf": [*(next(remaining) for _ in several), failure]}
        for command, several in DOCUMENTS.items()
    }
    return {
        "$schema": DIALECT,
        "title": "What the commands of gpuenv print with --json",
        "$defs": {**commands, **parts},
    }


def table(keys: dict[str, Any], profiles: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of a table of [tool.gpuenv]."""
    properties = {key: msgspec.json.schema(kind) for key, (kind, _) in sorted(keys.items())}
    if profiles is not None:
        properties["profiles"] = {"type": "object", "additionalProperties": profiles}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def of_project() -> dict[str, Any]:
    """Return the schema of [tool.gpuenv]."""
    top = table(read.TOP_KEYS, table(read.PROFILE_KEYS))
    return {"$schema": DIALECT, "title": "[tool.gpuenv] of a pyproject.toml", **top}


def of_config() -> dict[str, Any]:
    """Return the schema of the config file: the flags of all commands, and those of each."""
    tables = {}
    for name in all_commands():
        flags = command_parser(name).settable_flags()
        properties = {flag.removeprefix("--"): property_of(flags[flag]) for flag in flags}
        tables[name] = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
        }
    shared: dict[str, list[Any]] = {}
    for schema in tables.values():
        for flag, value in schema["properties"].items():
            known = shared.setdefault(flag, [])
            if value not in known:
                known.append(value)
    properties = {
        flag: values[0] if len(values) == 1 else {"anyOf": values}
        for flag, values in sorted(shared.items())
    }
    return {
        "$schema": DIALECT,
        "title": "The config file of gpuenv",
        "type": "object",
        "properties": {**properties, **tables},
        "additionalProperties": False,
    }


def text_of(schema_of: Callable[[], dict[str, Any]]) -> str:
    """Return the text of a file."""
    return json.dumps(schema_of(), indent=1) + "\n"


FILES = {
    FOLDER / "documents.json": partial(text_of, of_documents),
    FOLDER / "tool-gpuenv.json": partial(text_of, of_project),
    FOLDER / "config.json": partial(text_of, of_config),
}


def main(words: list[str]) -> int:
    """Write the files; with --check name those that are not current."""
    return write_or_check(FILES, words)
