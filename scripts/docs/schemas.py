"""docs/schemas: the JSON Schemas of [tool.gpuenv] and of the config file, from types and flags."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gpuenv.cli import all_commands, command_parser
from gpuenv.cli.mcp import property_of
from gpuenv.project import read

Schema = dict[str, Any]


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
    """Return both schemas."""
    schemas = {
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
