"""The answers of nodes: documents of `gpuenv detect --json` and `gpuenv verify --json`.

A document comes from a file of a folder (the file name is the node's name), or it is a line of
NDJSON with the key "node". `read_documents` returns one after another, so that a large fleet does
not fill the memory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuenv import InputError
from gpuenv.commands import write_whole

SUFFIX = ".json"
Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one node answered."""

    node: str
    document: Document


@dataclass(frozen=True, kw_only=True)
class Silence:
    """A node that gave no answer. `reason` is the launcher's, or the time limit."""

    node: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Collection:
    """What a run over many nodes collected. `seconds` is the time from the start to the end."""

    answers: tuple[Answer, ...]
    silent: tuple[Silence, ...] = ()
    seconds: float = 0.0


def read_documents(source: str) -> Iterator[Answer]:
    """Read the documents of a folder, of a file of NDJSON, or of stdin ("-").

    Raises:
        InputError: something is not a document; the message names the file and the line.
    """
    if source == "-":
        yield from _read_lines(sys.stdin, "stdin")
        return
    path = source
    try:
        if not os.path.isdir(source):
            with open(path, encoding="utf-8", errors="replace") as stream:
                yield from _read_lines(stream, path)
            return
        for name in sorted(os.listdir(source)):
            if name.endswith(SUFFIX) and not name.startswith("."):
                path = os.path.join(source, name)
                with open(path, encoding="utf-8", errors="replace") as stream:
                    document = _parse(stream.read(), path)
                yield _answer(document, path, name.removesuffix(SUFFIX))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def write_answer(folder: str, answer: Answer) -> None:
    """Write the document of a node into a folder that `read_documents` reads."""
    path = os.path.join(folder, answer.node + SUFFIX)
    text = json.dumps({"node": answer.node, **answer.document}, indent=2) + "\n"
    write_whole(path, text.encode())


def open_folder(folder: str) -> None:
    """Make the folder for documents. InputError if it cannot be written."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"--output {folder}: cannot be written")


def check_names(names: Iterable[str]) -> None:
    """Raise InputError if the name of a node cannot be the name of a file."""
    for name in names:
        if not name or name != os.path.basename(name) or name in (".", ".."):
            raise InputError(f"{name!r} is not the name of a node")


def _read_lines(lines: Iterable[str], where: str) -> Iterator[Answer]:
    """Read NDJSON, or one document over several lines."""
    stream = iter(lines)
    for number, line in enumerate(stream, 1):
        if number == 1 and line.strip() in ("{", "["):
            data = _parse(line + "".join(stream), where)
            if not isinstance(data, list):
                yield _answer(data, where, os.path.basename(where).removesuffix(SUFFIX))
                return
            for place, item in enumerate(data, 1):
                yield _answer(item, f"{where}, document {place}")
        elif line.strip():
            yield _answer(_parse(line, f"{where}, line {number}"), f"{where}, line {number}")


def _parse(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: is not JSON: {error}") from None


def _answer(data: object, where: str, name: str = "") -> Answer:
    if not isinstance(data, dict):
        raise InputError(f"{where}: is not a document of gpuenv detect or verify --json")
    node = data.pop("node", name)
    if not isinstance(node, str) or not node:
        hint = 'each line is {"node": NAME, ...}; gpuenv fleet detect -o DIR writes a folder'
        raise InputError(f"{where}: does not name its node", hint=hint)
    return Answer(node=node, document=data)
