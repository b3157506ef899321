"""What nodes answered: documents of `gpuenv detect --json` and `gpuenv verify --json`.

A document comes from a file of a folder (the file name is the node's name), or it is a line of
NDJSON with the key "node". `read_documents` returns one after another, so that a large fleet does
not fill the memory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TextIO

from gpuenv import InputError
from gpuenv.commands import write_whole

SUFFIX = ".json"
Document = Mapping[str, Any]
Answer = tuple[str, Document]  # the name of a node, and what it printed


@dataclass(frozen=True, kw_only=True)
class Collection:
    """What the nodes of a fleet answered.

    `silent` has the reason for each node without an answer. `seconds` is the time that the nodes
    were asked, 0 for documents that were read.
    """

    answers: Iterable[Answer]
    silent: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def read_documents(source: str) -> Iterator[Answer]:
    """Read the documents of a folder, of a file of NDJSON, or of stdin ("-").

    Raises:
        InputError: something is not a document; the message names the file and the line.
    """
    path = source
    try:
        if not os.path.isdir(source):
            with nullcontext(sys.stdin) if source == "-" else _open(path) as stream:
                yield from _read(stream, "stdin" if source == "-" else path)
            return
        for name in sorted(os.listdir(source)):
            if name.endswith(SUFFIX) and not name.startswith("."):
                path = os.path.join(source, name)
                with _open(path) as stream:
                    yield from _read(stream, path, name.removesuffix(SUFFIX))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def write_answer(folder: str, node: str, document: Document) -> None:
    """Write the document of a node into a folder that `read_documents` reads."""
    text = json.dumps({"node": node, **document}, indent=2) + "\n"
    write_whole(os.path.join(folder, node + SUFFIX), text.encode())


def _open(path: str) -> TextIO:
    return open(path, encoding="utf-8", errors="replace")


def _read(stream: TextIO, where: str, name: str = "") -> Iterator[Answer]:
    """Read NDJSON, one document over several lines, or a list of documents.

    `name` is that of the node if the whole text is its document.
    """
    for number, line in enumerate(stream, 1):
        text, place = line, f"{where}, line {number}"
        if number == 1 and (name or line.strip() in ("{", "[")):
            text += stream.read()
            name = name or os.path.basename(where).removesuffix(SUFFIX)
        if not text.strip():
            continue
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{place}: is not JSON: {error}") from None
        for document in data if isinstance(data, list) else [data]:
            if not isinstance(document, dict):
                raise InputError(f"{place}: is not a document of gpuenv detect or verify --json")
            node = document.pop("node", name)
            if not isinstance(node, str) or not node:
                hint = (
                    'each line is {"node": NAME, ...}; gpuenv fleet detect -o DIR writes a folder'
                )
                raise InputError(f"{place}: does not name its node", hint=hint)
            yield node, document
