"""Prefixes that launchers and loggers put before each line of a program.

A message of several lines is read without them, and only from lines of the same process: several
ranks write into one log, a line at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# The time at which a line was written. It differs between the lines of one process.
_TIME = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,+:Z-]{0,20}(?: std(?:out|err) [FP])? "
    rb"|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d "
    rb"|\[ {0,8}\d{1,9}\.\d{1,9}\] ?"
)
# What names the process: its rank, worker, pod or host.
_SOURCE = re.compile(
    rb"\[(?:rank|default|node)?\d{1,5}\]: ?"  # torchrun
    rb"|\[\d{1,5},\d{1,5}\]<std(?:out|err)>: ?"  # mpirun
    rb"|[\w.-]{1,60} {0,20}\| "  # docker compose
    rb"|\([A-Za-z_][\w .]{0,60}[ =]\d{1,9}[^)\n]{0,60}\) "  # Ray, vLLM
    rb"|\d{1,5}: "  # srun --label
    rb"|[\w.-]{1,60} [\w./-]{1,40}\[\d{1,9}\]: "  # systemd
    rb"|>{1,2}(?!>) ?"  # a quotation, but no prompt of Python
    rb"|E {3}"  # pytest
)
_MAX_PARTS = 4


def split_prefix(line: bytes) -> tuple[bytes, bytes]:
    """Return what names the process of a line, and the line without its prefix."""
    sources = []
    place = 0
    for _part in range(_MAX_PARTS):
        time = _TIME.match(line, place)
        source = None if time else _SOURCE.match(line, place)
        match = time or source
        if match is None:
            break
        place = match.end()
        if source is not None:
            sources.append(source[0].strip())
    return b"".join(sources), line[place:]


def message_lines(lines: Iterable[bytes], count: int, source: bytes) -> list[bytes]:
    """Return the first lines of a process, without prefixes.

    Empty lines and repetitions of an earlier line are left out: ranks that a launcher does not name
    repeat each other's lines.

    Args:
        count: how many lines to return at most.
        source: what names the process, as `split_prefix` returns it.
    """
    found: dict[bytes, None] = {}
    for line in lines:
        line_source, text = split_prefix(line)
        if line_source == source and text.strip():
            found[text] = None
        if len(found) == count:
            break
    return list(found)
