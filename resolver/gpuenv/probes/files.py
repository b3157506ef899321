"""Compare files with what was recorded of them, by several processes.

Options: {"files": path of a JSON list of [path, size, sha256]}. A size or sha256 of "" is not
compared; a sha256 is as RECORD spells it, and other hashes are not compared. Answers with
answers.FilesAnswer. Runs on Python 3.8 and later; standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from contextlib import ExitStack
from typing import TypedDict

from ._common import run
from .answers import FilesAnswer

CHUNK = 1 << 20  # bytes
PROCESSES = 32  # at most


class Options(TypedDict):
    """The options of this probe."""

    files: str


def difference(path: str, recorded_size: str, recorded_digest: str) -> str:
    """Return what is wrong with a file; "" if nothing is."""
    try:
        size = os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if recorded_size.isdigit() and size != int(recorded_size):
        return f"{size} bytes, not {recorded_size}"
    if not recorded_digest.startswith("sha256="):
        return ""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    text = base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")
    return "" if text == recorded_digest.partition("=")[2] else "its sha256 is not the recorded one"


def probe(options: Options) -> FilesAnswer:
    """Return the answer that this file's docstring describes."""
    with open(options["files"], encoding="utf-8") as stream:
        # (the place in the list, (path, size, sha256))
        rows: list[tuple[int, tuple[str, str, str]]] = list(enumerate(json.load(stream)))
    # Each process takes a share of the large files and of the small ones. Threads would wait for
    # each other at each small file.
    rows.sort(key=lambda row: int(row[1][1]) if row[1][1].isdigit() else 0, reverse=True)
    count = min(PROCESSES, len(os.sched_getaffinity(0)))
    wrong: list[tuple[int, str]] = []
    with ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(count)]
        children = []
        for first, output in enumerate(outputs):
            child = os.fork()
            if not child:
                found = [(number, difference(*row)) for number, row in rows[first::count]]
                json.dump([pair for pair in found if pair[1]], output)
                output.flush()
                os._exit(0)
            children.append(child)
        for child, output in zip(children, outputs):  # noqa: B905  Python 3.8
            os.waitpid(child, 0)
            output.seek(0)
            wrong += json.load(output)  # an error if the child did not finish
    return {"wrong": sorted(wrong)}


if __name__ == "__main__":
    run(probe)
