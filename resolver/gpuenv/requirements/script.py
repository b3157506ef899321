"""The requirements of a Python script: its block of inline metadata (PEP 723)."""

from __future__ import annotations

import re

from ..errors import InputError
from ..model import Value
from ..serialize import from_plain, parse_toml, read_input
from .parse import checked_requirement

# The reference implementation's pattern.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_LARGEST = 1 << 20  # bytes of a script that are searched


class Script(Value, forbid_unknown_fields=False, rename="kebab"):
    """What a script needs."""

    dependencies: tuple[str, ...] = ()
    requires_python: str | None = None


def read_script(path: str) -> Script | None:
    """Return what a script needs; None if the file is no script or has no metadata.

    Raises:
        InputError: the metadata cannot be used; the message says where.
    """
    try:
        text = read_input(path)[:_LARGEST].decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return None
    blocks = [match for match in _BLOCK.finditer(text) if match["type"] == "script"]
    if not blocks:
        return None
    if len(blocks) > 1:
        raise InputError(f"{path}: has {len(blocks)} blocks of script metadata", hint="leave one")
    lines = blocks[0]["content"].splitlines()
    content = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
    try:
        metadata = parse_toml(content)
    except ValueError as error:
        raise InputError(f"{path}: the script metadata is not TOML: {error}") from None
    try:
        script = from_plain(metadata, Script, "")
    except ValueError as error:
        raise InputError(f"{path}: the script metadata: {error}") from None
    checked = tuple(checked_requirement(text, path) for text in script.dependencies)
    return script.replace(dependencies=checked)
