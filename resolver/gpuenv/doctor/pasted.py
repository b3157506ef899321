"""Restores the lines of a log that was pasted, and finds the prefixes of launchers.

The source lines that a traceback lists around the failing line become empty: nothing printed the
messages in them.

A pasted log may be quoted, or broken at the width of a window. Lines keep their numbers: the parts
of a broken line are joined in its first line, and empty lines follow it.

Launchers and loggers put a prefix before each line. A message of several lines is read without
prefixes, and only from lines of the same process: several ranks write into one log, a line at a
time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_to_bytes

MAX_PASTED = 1 << 18  # bytes; a longer log was not pasted
_WIDTHS = range(40, 181)  # columns of windows, and of editors that break lines at words
# Text in which spaces or line ends are escaped as in the address of a page, and no address.
_URL_ENCODED = re.compile(
    rb"(?<!\S)(?![\"'(<\[]?/|[^\s%]{0,200}://)[^\s%?]{0,200}%(?:20|0[AaDd])\S*"
)
_QUOTED = re.compile(rb"(?m)^(?:>{1,2}(?!>) ?){1,3}")  # and no prompt of Python
# A line that begins like this, or like the line before it, is no continuation.
_BEGINS_RECORD = re.compile(
    rb"\[\w|<|\{|>>>|\$ |# |\| |\+[-=+]|\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[DIWEF]\d{4} |[DIWE] \w"
    rb'|Traceback|File "|[\w.]{1,60}(?:Error|Exception|Warning)\b|DEBUG|INFO|WARN|ERROR|FATAL|E  '
    rb"|[\w.-]{1,60}(?:==| {2,})\d"  # a version in a list of packages
)
_SAME_BEGIN = 6  # bytes
_ENDS = (b".", b")", b"!", b"?", b"]", b"}", b";")  # of a sentence or of a record
_CONTINUES_SENTENCE = re.compile(rb"[a-z](?![\w.]{1,60} ?[:=])")
# The time at which a line was written. It differs between the lines of one process.
_TIME = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,+:Z-]{0,20}(?: std(?:out|err) [FP])? "
    rb"|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d "
    rb"|\[ {0,8}\d{1,9}\.\d{1,9}\] ?"
)
# What names the process: a rank, worker, pod or host.
_SOURCE = re.compile(
    rb"\[(?:rank|default|node)?\d{1,5}\]: ?"  # torchrun
    rb"|\[\d{1,5},\d{1,5}\]<std(?:out|err)>: ?"  # mpirun
    rb"|[\w.-]{1,60} {0,20}\| "  # docker compose
    rb"|\([A-Za-z_][\w .]{0,60}[ =]\d{1,9}[^)\n]{0,60}\) "  # Ray, vLLM
    rb"|\d{1,5}: "  # srun --label
    rb"|[\w.-]{1,60} [\w./-]{1,40}\[\d{1,9}\]: "  # systemd
    rb"|>{1,2}(?!>) ?"  # a quotation, but not the prompt of Python
    rb"|E {3}"  # pytest
)
_MAX_PARTS = 4

# Lines of source code with their numbers, as IPython, pdb and rich list them, and the failing line.
_LISTED = re.compile(rb"(?:\xe2\x94\x82|\|)? {0,12}(?:\(\.{3}\) {0,12})?(\d{1,6})(?=[ \t]|$)")
_LISTED_FAILING = re.compile(  # "---> 12 ", "12 -> ", "| > 12 |"
    rb"-{1,6}> ?(\d{1,6})\b"
    rb"| {0,6}(\d{1,6}) {1,2}->"
    rb"|(?:\xe2\x94\x82|\|) {0,3}(?:\xe2\x9d\xb1|>) {0,6}(\d{1,6}) "
)
_MAX_WRAPPED = 2  # lines without a number that may continue a listed line
_NEXT_LINES = 2  # how far the next listed line may be from a wrapped one: empty lines are left out
# pytest lists a function without numbers, up to the failing line, whose mark is a prefix.
_PYTEST_FAILING = b">"
_PYTEST_ERROR = re.compile(rb"(?m)^(?:[\d:.TZ -]{20,40} )?E {3}")


def restored(text: bytes) -> Iterator[bytes]:
    """Yield the log in the forms that it may have had before it was pasted.

    The first form is the log as it is, without marks of quotation, escapes of addresses, and
    listed source lines. Of the others, the likeliest comes first.
    """
    decoded = _URL_ENCODED.sub(lambda escaped: unquote_to_bytes(escaped[0]), text)
    if all(line.startswith(b">") for line in decoded.split(b"\n") if line.strip()):
        decoded = _QUOTED.sub(b"", decoded)
    plain = _without_listed_source(decoded)
    yield plain
    lines = plain.split(b"\n")
    # A single word may be longer than the width at which lines are broken.
    width = max([_columns(line) for line in lines if b" " in line], default=0)
    at_column, at_space = set(), set()  # the lines that continue the line before them
    for number in range(1, len(lines)) if width in _WIDTHS else ():
        before, line = lines[number - 1], lines[number]
        columns, words = _columns(before), line.split(maxsplit=1)
        fills_line = columns == width
        has_words = bool(words and before.strip())
        next_word_has_no_room = has_words and columns + 1 + _columns(words[0]) > width
        if not (fills_line or next_word_has_no_room) or _begins_record(before, line):
            continue
        if fills_line:
            at_column.add(number)
        if next_word_has_no_room:
            at_space.add(number)
    if len(at_column) == 1 and width % 10:
        at_column = set()  # no sign of a terminal: one line is the longest by chance
    ways = [(at_column, b""), (at_space, b" ")]
    # A terminal breaks all lines at the same column, mostly a round number.
    if len(at_space) > len(at_column) or width % 10:
        ways.reverse()
    for continued, separator in ways:
        if continued:
            yield _joined(lines, continued, separator)


# ---- source lines that a traceback lists --------------------------------------------------------


def _without_listed_source(text: bytes) -> bytes:
    """Return a log with empty lines for listed source, except for the failing lines."""
    lines = text.split(b"\n")
    split_lines = [split_prefix(line) for line in lines]
    processes: dict[bytes, list[tuple[int, bytes]]] = {}
    for number, (source, line) in enumerate(split_lines):
        processes.setdefault(source, []).append((number, line))
    listed: set[int] = set()
    for process_lines in processes.values():
        listed.update(_around_failing_lines(process_lines))
    if _PYTEST_ERROR.search(text):
        listed.update(_before_failing_lines(split_lines))
    if not listed:
        return text
    return b"\n".join(b"" if number in listed else line for number, line in enumerate(lines))


def _around_failing_lines(lines: list[tuple[int, bytes]]) -> set[int]:
    """Return the numbers of the lines of each listing that marks a failing line by an arrow."""
    listed: set[int] = set()
    listing: list[int] = []
    wrapped: list[int] = []
    is_failing = False
    source_line = 0
    for number, line in [*lines, (0, b"")]:
        failing = _LISTED_FAILING.match(line)
        match = failing or _LISTED.match(line)
        if match is None and line.strip() and len(wrapped) < _MAX_WRAPPED:
            wrapped.append(number)
            continue
        before, source_line = source_line, int(match[match.lastindex or 0]) if match else 0
        if not before < source_line or (wrapped and source_line > before + _NEXT_LINES):
            if is_failing:
                listed.update(listing)
            listing, is_failing = [], False
        elif listing:
            listing += wrapped
        wrapped = []
        if failing:
            is_failing = True
        elif match:
            listing.append(number)
    return listed


def _before_failing_lines(lines: list[tuple[bytes, bytes]]) -> set[int]:
    """Return the numbers of the lines that pytest lists before its failing lines."""
    listed: set[int] = set()
    function: list[int] = []
    for number, (source, line) in enumerate(lines):
        if not source and line.startswith((b"    ", b"\t")):
            function.append(number)
            continue
        if source == _PYTEST_FAILING and line.startswith((b"  ", b"\t")):
            listed.update(function)
        if source or line.strip():
            function = []
    return listed


# ---- broken lines -------------------------------------------------------------------------------


def _columns(line: bytes) -> int:
    """Return the width of a line in characters, which may have several bytes each."""
    return len(line.decode("utf-8", "replace"))


def _begins_record(before: bytes, line: bytes) -> bool:
    """Whether a line begins a record of a log or a row of a table."""
    if line[:1] == b" " and line[1:2].strip():
        return False  # a window broke the line before a space
    text = line.lstrip()
    if not text or before[-1:] in (b"|", b"+") or not before.strip(b"=-+ "):
        return True
    if before[-1:] in _ENDS and not _CONTINUES_SENTENCE.match(text):
        return True
    begin = line[:_SAME_BEGIN]
    is_alike = len(begin.strip()) == _SAME_BEGIN and before.startswith(begin)
    has_prefix = split_prefix(line)[1] != line
    return is_alike or has_prefix or _BEGINS_RECORD.match(text) is not None


def _joined(lines: list[bytes], continued: set[int], separator: bytes) -> bytes:
    """Return the log with each continuation joined to its line, and empty lines in its place."""
    joined = [*lines]
    first = 0  # the number of the line that others continue
    for number, line in enumerate(lines):
        if number not in continued:
            first = number
            continue
        # What is broken at a space is indented by some programs.
        joined[first] += separator + (line.lstrip() if separator else line)
        joined[number] = b""
    return b"\n".join(joined)


# ---- prefixes -----------------------------------------------------------------------------------


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
    texts: dict[bytes, None] = {}
    # What follows the prompt of R or MATLAB, which looks like a quotation, has no prefix.
    sources = (source, b"") if source in (b">", b">>") else (source,)
    for line in lines:
        line_source, text = split_prefix(line)
        if line_source in sources and text.strip():
            texts[text] = None
        if len(texts) == count:
            break
    return list(texts)
