"""docs/schemas: JSON Schemas of the project table, of the config file and of --json.

They are generated from the types: those of documents.py, those that check [tool.gpuenv], and
the flags of the commands.
"""

from __future__ import annotations

import json
from inspect import cleandoc
from typing import Any

import msgspec

from docs.documents import DOCUMENTS, Failure
from gpuenv.cli import all_commands, command_parser
from gpuenv.cli.mcp import property_of
from gpuenv.project import read

Schema = dict[str, Any]


def of_documents() -> Schema:
    """Return the schema of the documents: #/$defs/COMMAND is what a command prints."""
    types = [item for several in DOCUMENTS.values() for item in several]
    shown, parts = msgspec.json.schema_components([*types, Failure], ref_template="#/$defs/{name}")
    for part in parts.values():  # some releases of msgspec keep the indentation of a docstring
        if "description" in part:
            part["description"] = cleandoc(part["description"])
    schema_of = dict(zip([*types, Failure], shown, strict=True))
    commands = {
        command: {"anyOf": [schema_of[kind] for kind in (*several, Failure)]}
        for command, several in DOCUMENTS.items()
    }
    return {"$defs": {**commands, **parts}}


def table(properties: Schema) -> Schema:
    """Return the schema of a table with no other keys."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def of_project() -> Schema:
    """Return the schema of [tool.gpuenv]."""
    top, profile = (
        {key: msgspec.json.schema(kind) for key, (kind, _) in sorted(keys.items())}
        for keys in (read.TOP_KEYS, read.PROFILE_KEYS)
    )
    profiles = {"type": "object", "additionalProperties": table(profile)}
    return table({**top, "profiles": profiles})


def of_config() -> Schema:
    """Return the schema of the config file: the flags of all commands, and those of each."""
    commands: dict[str, Schema] = {}
    shared: dict[str, list[Schema]] = {}  # flags differ between commands in their help
    for name in all_commands():
        flags = command_parser(name).settable_flags()
        commands[name] = {flag.removeprefix("--"): property_of(flags[flag]) for flag in flags}
        for key, schema in commands[name].items():
            known = shared.setdefault(key, [])
            if schema not in known:
                known.append(schema)
    properties = {
        key: several[0] if len(several) == 1 else {"anyOf": several}
        for key, several in sorted(shared.items())
    }
    return table(properties | {name: table(flags) for name, flags in commands.items()})


def files() -> dict[str, str]:
    """Return the three schemas."""
    schemas = {
        "documents": ("What the commands of gpuenv print with --json", of_documents()),
        "tool-gpuenv": ("[tool.gpuenv] of a pyproject.toml", of_project()),
        "config": ("The config file of gpuenv", of_config()),
    }
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {
        f"docs/schemas/{name}.json": json.dumps(
            {"$schema": dialect, "title": title, **schema}, indent=1
        )
        + "\n"
        for name, (title, schema) in schemas.items()
    }
