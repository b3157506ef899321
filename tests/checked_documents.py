"""Every document that a test's command prints with --json follows its schema."""

import functools
import json

from jsonschema import Draft202012Validator

from tables import ROOT


def _closed(schema):
    """A schema without keys that it does not name: no key is undocumented."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if "properties" in closed and isinstance(schema.get("type"), str):
        closed["additionalProperties"] = False
    return closed


@functools.cache
def _definitions():
    text = (ROOT / "docs" / "schemas" / "documents.json").read_text(encoding="utf-8")
    return _closed(json.loads(text))["$defs"]


@functools.cache
def _validator(command):
    return Draft202012Validator({"$ref": f"#/$defs/{command}", "$defs": _definitions()})


def check(words, text):
    """Compare what a command printed with its schema."""
    if "--json" not in words or words[0] not in _definitions() or not text.strip():
        return
    if words[0] == "run" and words[1] != "--json":  # that of the command which it runs
        return
    error = next(_validator(words[0]).iter_errors(json.loads(text)), None)
    if error is not None:
        best = min(error.context or [error], key=lambda one: len(one.path) == 0)
        raise AssertionError(f"{words[0]} --json: {best.json_path}: {best.message[:300]}")
