"""Locks that gpuenv does not read: how their tools export them to a form that it reads."""

from __future__ import annotations

import json
from typing import Any

from ..serialize import parse_toml, read_input

_PYLOCK = "export it, and give pylock.toml: {} -o pylock.toml"
_UV = _PYLOCK.format("uv export --format pylock.toml")
_POETRY = _PYLOCK.format("poetry export --format pylock.toml") + " (poetry-plugin-export 1.10)"
_PDM = _PYLOCK.format("pdm export --format pylock")
_PIPENV = "export it, and give -r requirements.txt: pipenv requirements > requirements.txt"


def export_hint(path: str) -> str:
    """Return how to export a lock of uv, poetry, pdm or pipenv, by its content; "" for others."""
    document: dict[str, Any]
    try:
        text = read_input(path).decode()
        document = json.loads(text) if text.lstrip().startswith("{") else parse_toml(text)
    except (OSError, ValueError, RecursionError):
        return ""
    meta, metadata = document.get("_meta"), document.get("metadata")
    if isinstance(meta, dict) and "pipfile-spec" in meta:
        return _PIPENV
    if not isinstance(document.get("package"), list):
        return ""
    if isinstance(metadata, dict) and "content-hash" in metadata:
        return _POETRY
    if isinstance(metadata, dict) and "lock_version" in metadata:
        return _PDM
    return _UV if "requires-python" in document and "version" in document else ""
