"""Compare files with what was recorded of them, by several processes.

Options: {"files": path of a JSON list of [path, size, sha256], "fast": true to compare sizes only}.
A size of "" is not compared; a sha256 is as RECORD spells it, and other hashes are not compared.
Answers with answers.FilesAnswer. Runs on Python 3.9 and later; standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TypedDict

from ._common import run
from .answers import FilesAnswer

CHUNK = 1 << 20  # bytes
PROCESSES = 32  # at most
Row = tuple[int, str, str, str]  # the place in the list, path, size, sha256


class Options(TypedDict):
    """The options of this probe."""

    files: str
    fast: bool


def compare(path: str, recorded_size: str, recorded_digest: str, *, fast: bool) -> tuple[int, str]:
    """Return the size of a file, and "" or what is wrong with it."""
    try:
        size = os.stat(path).st_size
    except OSError:
        return 0, "missing"
    if recorded_size.isdigit() and size != int(recorded_size):
        return 0, f"{size} bytes, not {recorded_size}"
    if fast or not recorded_digest.startswith("sha256="):
        return size, ""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        return 0, f"cannot be read: {error.strerror}"
    text = base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=")
    if text != recorded_digest.partition("=")[2]:
        return 0, "its sha256 is not the recorded one"
    return size, ""


def compare_share(rows: Iterable[Row], *, fast: bool) -> FilesAnswer:
    """Return what compare() finds for each file."""
    answer: FilesAnswer = {"bytes": 0, "wrong": []}
    for number, path, recorded_size, recorded_digest in rows:
        size, reason = compare(path, recorded_size, recorded_digest, fast=fast)
        answer["bytes"] += size
        if reason:
            answer["wrong"].append((number, reason))
    return answer


def probe(options: Options) -> FilesAnswer:
    """Return the answer that this file's docstring describes."""
    with open(options["files"], encoding="utf-8") as stream:
        rows: list[Row] = [(number, *row) for number, row in enumerate(json.load(stream))]
    # Each process takes a share of the large files and of the small ones. Threads would wait for
    # each other at each small file.
    rows.sort(key=lambda row: int(row[2]) if row[2].isdigit() else 0, reverse=True)
    count = min(PROCESSES, len(os.sched_getaffinity(0)))
    answer: FilesAnswer = {"bytes": 0, "wrong": []}
    with ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(count)]
        children = []
        for first, output in enumerate(outputs):
            child = os.fork()
            if not child:
                json.dump(compare_share(rows[first::count], fast=options["fast"]), output)
                output.flush()
                os._exit(0)
            children.append(child)
        for child, output in zip(children, outputs):  # noqa: B905  Python 3.9
            os.waitpid(child, 0)
            output.seek(0)
            part: FilesAnswer = json.load(output)  # an error if the child did not finish
            answer["bytes"] += part["bytes"]
            answer["wrong"] += part["wrong"]
    answer["wrong"].sort()
    return answer


if __name__ == "__main__":
    run(probe)
