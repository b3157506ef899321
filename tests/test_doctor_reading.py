"""The log reader finds what a plain reader finds, wherever the log is cut.

The plain reader searches every needle in every line.
"""

# ruff: noqa: S311  nothing secret is drawn
import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from gpuenv.doctor import log_reader, prefilter, stream
from gpuenv.doctor.catalog import Message, fill, messages
from gpuenv.doctor.log_reader import LONG_LINE, MAX_FACTS, REPEATS, LogReader, read_log
from gpuenv.doctor.model import MAX_TEXT, Fact
from gpuenv.doctor.pasted import message_lines, restored, split_prefix
from gpuenv.doctor.prefilter import (
    AnyOf,
    Formula,
    Literal,
    Prefilter,
    find_each,
    literal_search,
    needed_literals,
)
from gpuenv.doctor.stream import AFTER, AHEAD, BEFORE

DIGITS = b"0123456789"
NEEDLES = sorted({needle for message in messages() for needle in message.needles})
NUMBERED = sorted({needle for message in messages() for needle in message.numbered})

Said = list[tuple[str, str, str, str, str]]


MESSAGES_OF = {
    needle: [message for message in messages() if needle in message.needles] for needle in NEEDLES
}


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled once: there are more than the re module keeps."""
    return re.compile(pattern, re.IGNORECASE)


def places(needle: bytes, line: bytes) -> Iterator[int]:
    """Where a needle begins in a line; its occurrences may overlap."""
    at = line.find(needle)
    while at >= 0:
        yield at
        at = line.find(needle, at + 1)


# ---- the plain reader ----------------------------------------------------------------------------


class Plain:
    """Search every needle in every line, and every pattern at every needle.

    Of lines that differ only in digits the first four count.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, str], tuple[str, str]] = {}
        self.times: dict[bytes, int] = {}
        self.seen: dict[tuple[bytes, bytes], int] = {}

    def read(self, raw: bytes) -> Said:
        return self.read_text(b"".join(stream.cleaned([raw])))

    def read_text(self, text: bytes) -> Said:
        begin = 0
        for line in re.split(rb"[\r\n]", text):
            self.line(text, begin, line)
            begin += len(line) + 1
        return [(*key, *rest) for key, rest in self.found.items()]

    def line(self, text: bytes, begin: int, line: bytes) -> None:
        needles = NEEDLES
        if len(line) <= LONG_LINE:
            key = line.translate(None, DIGITS)
            self.times[key] = self.times.get(key, 0) + 1
            needles = NEEDLES if self.times[key] <= REPEATS else NUMBERED
        hits = [(at, needle) for needle in needles for at in places(needle, line)]
        for at, needle in sorted(hits):
            first = max(0, at - BEFORE)
            window = line[first : at + AFTER]
            shape = needle, window.translate(None, DIGITS)
            self.seen[shape] = self.seen.get(shape, 0) + 1
            if self.seen[shape] <= REPEATS:
                for message in MESSAGES_OF[needle]:
                    self.match(message, text, begin + first, window)

    def match(self, message: Message, text: bytes, begin: int, window: bytes) -> None:
        if message.lines:
            ahead = text[begin : begin + len(window) + AHEAD]
            first, *others = ahead.replace(b"\r\n", b"\n").split(b"\n")
            source, _ = split_prefix(text[text.rfind(b"\n", 0, begin) + 1 : begin + len(window)])
            following = [first, *message_lines(others, message.lines, source)]
            window = b" ".join(following)[: BEFORE + AFTER]
        shown = re.sub(r"[\x00-\x1f\x7f]", " ", window.decode("utf-8", "replace"))
        window_text = shown
        found = compiled(message.pattern).search(shown)
        if found is None:
            return
        shown = shown if len(shown) <= MAX_TEXT else shown[max(0, found.start() - 60) :][:MAX_TEXT]
        number = 1 + text.count(b"\n", 0, begin)
        rest = f"log line {number}"
        if message.cause:
            self.found.setdefault(
                (message.sure, message.cause, message.name), (rest, shown.strip())
            )
        matches = [found]
        if message.every:
            matches = [*compiled(message.pattern).finditer(window_text)][:8]
        for kind, subject, value in message.facts:
            for match in matches:
                given_ = fill(value, match)
                if given_ or not value:
                    self.found.setdefault(
                        (kind, fill(subject, match), given_), (rest, shown.strip())
                    )


def said(facts: Iterable[Fact]) -> Said:
    return [(fact.kind, fact.subject, fact.value, fact.where, fact.text) for fact in facts]


def as_long(log: Iterable[bytes]) -> Said:
    """As a long log is read."""
    reader = LogReader(small=0)
    for block in stream.blocks(stream.cleaned(log)):
        reader.read(*block)
    return said(reader.facts.values())


def cut(raw: bytes, size: int) -> Iterator[bytes]:
    return (raw[at : at + size] for at in range(0, len(raw), size))


# ---- logs ----------------------------------------------------------------------------------------

CASES = tomllib.loads((Path(__file__).parent / "data" / "doctor" / "cases.toml").read_text())[
    "case"
]
EXAMPLES = sorted({line for case in CASES for line in case["log"].split("\n") if line.strip()})
SEVERAL = (
    "Outdated cuDNN installation found.\nVersion JAX was built against: 90100\nMinimum supported: "
    "9000\n"
    "Installed version: 80907\nThe local installation must be newer",
    "torch.cuda.is_available()\r\nFalse",
)
NOISE = (
    "", " ", "\t", "an ordinary "
                   "line", "\x1b[1;31m", "\\u001b[0m", "\\033[", "^[[0m", "\x1b", "0x7f3acafe",
                   "caf\u00e9",
    "\u212aernel", "\u017f", "\ufffd", "loss 0.1234 step "
                                       "5", "CUDA cuDNN NCCL "
                                            "driver", "/usr/lib/x.so.9", "(" * 50, "'",
    "A" * 300, "9.1.0", "\0", "deadbeef", "ab" * 700, "error: ", "GPU 0 of 8 ", "MiB ",
)  # fmt: skip
PIECES = st.one_of(
    st.sampled_from(EXAMPLES),
    st.sampled_from([needle.decode() for needle in NEEDLES]),
    st.sampled_from(SEVERAL),
    st.sampled_from(NOISE),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
    st.sampled_from([message.pattern.replace("\\", "")[:80] for message in messages()]),
    st.text(max_size=8),
)
LOGS = st.lists(PIECES, max_size=30).map(lambda parts: "".join(parts).encode("utf-8", "replace"))


def of_pasted(log: bytes) -> Said:
    """What the plain reader gives for the form of a short log that says most."""
    forms = restored(b"".join(stream.cleaned([log])))
    return max((Plain().read_text(form) for form in forms), key=len)


@settings(max_examples=examples(50), deadline=None)
@given(LOGS, st.integers(1, 3000))
def test_nothing_is_lost(log: bytes, size: int) -> None:
    expected = Plain().read(log)
    assert as_long([log]) == expected
    assert as_long(cut(log, size)) == expected
    facts = read_log(cut(log, size))
    of_messages = tuple(fact for fact in facts if fact.kind != "year")  # years: dates.py
    assert said(of_messages) == of_pasted(log)


def made(seed: int, count: int, end: str = "\n") -> bytes:
    """A log of examples with other numbers, names and addresses, between lines of noise."""
    chance = random.Random(seed)
    lines = []
    for _ in range(count):
        line = chance.choice(EXAMPLES if chance.random() < 0.4 else [*NOISE, *SEVERAL])
        name = "".join(chance.choices("abcdefghijklmnop", k=5))
        prefix = chance.choice(
            ("", "[rank3]: ", f"{name} ", "\x1b[32mINFO\x1b[0m ", f"0x{chance.getrandbits(40):x} ")
        )
        lines.append(prefix + re.sub(r"\d", lambda _one: str(chance.randrange(10)), line))
    return end.join(lines).encode("utf-8", "replace")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", " "])
@pytest.mark.parametrize("seed", range(6))
def test_longer_logs_are_read_the_same(seed: int, end: str) -> None:
    log = made(seed, 120, end)
    expected = Plain().read(log)
    assert len(expected) > 5
    assert as_long([log]) == expected
    assert as_long(cut(log, 997)) == expected


@pytest.mark.parametrize("seed", range(3))
def test_every_place_of_a_cut_gives_the_same(seed: int) -> None:
    """In a needle, in a message of several lines, in CRLF, in a colour code and in a character."""
    chance = random.Random(seed)
    parts = [
        "caf\u00e9 \x1b[1;31mError: \x1b[0mCUDA driver version is insuffi\\u001b[1mcient for CUDA "
        "runtime",
        *SEVERAL,
        *chance.sample(EXAMPLES, 4),
    ]
    log = "\r\n".join(parts).encode()
    expected = Plain().read(log)
    assert len(expected) >= 4
    for at in range(len(log) + 1):
        assert as_long([log[:at], log[at:]]) == expected
    assert as_long(cut(log, 1)) == expected


@pytest.mark.parametrize(("end", "needles"), [("\n", NUMBERED[::2]), (" ", NUMBERED[1::2])])
def test_every_edge_of_a_block_gives_the_same(
    end: str, needles: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that are longer than a block have pieces that overlap; needles may hold digits."""
    log = (
        end.join(
            [*(f"{needle.decode()} and cuda" for needle in needles), made(5, 60, end).decode()]
        ).encode()
        * 2
    )
    expected = Plain().read(log)
    assert len(log) > 8000
    for size in range(2 * LONG_LINE, 3 * LONG_LINE, 211):
        monkeypatch.setattr(stream, "BLOCK", size)
        assert as_long([log]) == expected


@pytest.mark.parametrize(
    ("separator", "read"),
    [
        ("\n", REPEATS),
        (" " * 700 + "\n", REPEATS),
        # Windows of one long line. The first one has nothing before it, so it differs.
        (" " * 3000, REPEATS + 1),
    ],
)
def test_what_differs_in_digits_only_is_read_a_few_times(separator: str, read: int) -> None:
    lines = [f"kernel reported version is: 450.{number}.0" for number in range(10)]
    log = "".join(line + separator for line in lines).encode()
    for found in (as_long([log]), said(read_log([log]))):
        assert [value for _, _, value, _, _ in found] == [f"450.{n}.0" for n in range(read)]


@pytest.mark.parametrize(("repeats", "found"), [(0, True), (528, True), (529, False)])
def test_messages_that_say_nothing_new_are_skipped_for_the_rest_of_a_block(
    repeats: int, found: bool
) -> None:
    """After the first line that is 512 lines, and 16 more in the block."""
    chance = random.Random(1)
    lines = ["kernel reported version is: 450.66.0"]
    for _ in range(repeats):
        lines.append(f"{lines[0]} {''.join(chance.choices('bcdfghjklmnpqr', k=9))}")
    lines.append("kernel reported version is: 460.1.0 at last")
    facts = as_long(["\n".join(lines).encode()])
    assert ("460.1.0" in [value for _, _, value, _, _ in facts]) is found


@pytest.mark.parametrize(
    ("readings", "read"),
    [(3, [True, True, True, True]), (4, [True, True, False, False])],
)
def test_what_brings_nothing_new_is_read_a_few_times_in_a_block(
    readings: int, read: list[bool]
) -> None:
    reader, needle = LogReader(), b"cuda"
    reader.read(b"", b"", 0, 0)
    for _ in range(readings):
        reader._count_reading(needle, 0)
    assert [not reader._is_idle(needle, (3, 2)) for _ in read] == read


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("LoadLibrary failed with error 126 cudnn64_8.dll", "error 193"),
        ("OSError: [WinError 126] the module was not found: torch.dll", "[WinError 193]"),
        ("OSError: [WinError 127] a procedure was not found: cudnn64_8.dll", "[WinError 193]"),
        ("failed call to cuInit: UNKNOWN ERROR (303)", "(100)"),
        ("Linux version 5.15 WSL2", "WSL1"),
        ("Unexpected error from cudaGetDeviceCount(). Error 804: a driver", "Error 100"),
    ],
)
def test_a_number_that_matters_is_seen_after_others(line: str, other: str) -> None:
    """Lines that differ only in digits are read four times, except for numbers in needles."""
    often = re.sub(r"error \d+|\[WinError \d+\]|\(\d+\)|WSL\d|Error \d+", other, line)
    assert often != line
    (expected,) = said(read_log([line]))
    for count in (50, 5000):
        lines = "\n".join([*[often] * count, line])
        assert (*expected[:3], f"log line {count + 1}", expected[4]) in as_long([lines.encode()])


def holds(formula: Formula | None, text: str) -> bool:
    """Return whether a text in small letters has the literals of a formula."""
    if formula is None:
        return True
    if isinstance(formula, Literal):
        return formula.text in text
    parts = [holds(part, text) for part in formula.parts]
    return any(parts) if isinstance(formula, AnyOf) else all(parts)


def test_what_a_pattern_needs_is_in_what_it_matches() -> None:
    """Every line of the examples that a pattern matches has its literals."""
    checked = 0
    lines = [(line, line.lower().encode()) for line in [*EXAMPLES, *SEVERAL]]
    for message in messages():
        formula = needed_literals(message.pattern)
        needles = [needle.lower() for needle in message.needles]
        for line, lowered in lines:
            if any(needle in lowered for needle in needles) and message.compiled().search(line):
                checked += 1
                assert holds(formula, line.lower()), message.name
    assert checked > 100


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(messages()), st.data())
def test_the_literals_of_a_pattern_are_in_all_that_it_matches(
    message: Message, data: st.DataObject
) -> None:
    codes = re.findall(r"\\u([0-9a-f]{4})", message.pattern)
    letters = "".join(chr(int(code, 16)) for code in codes)
    alphabet = st.characters(max_codepoint=127, include_characters=letters)
    text = data.draw(st.from_regex(message.pattern, alphabet=alphabet))
    assert holds(needed_literals(message.pattern), text.lower())


def test_a_rare_fault_among_lines_that_are_all_different_is_found() -> None:
    chance = random.Random(1)
    lines = []
    for number in range(30_000):
        name = "".join(chance.choices("abcdefghijklmnop", k=9))
        lines.append(
            f"{name} Loaded cuDNN version 9{number} on NVIDIA H100, compute capability 9.0, by "
            f"0x{number:x}"
        )
    lines[20_000] = "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
    found = {(fact.kind, fact.value): fact.where for fact in read_log(["\n".join(lines)])}
    assert found["xid", "79"] == "log line 20001"


# ---- limits of effort ----------------------------------------------------------------------------

OLD = "kernel reported version is: 450.66.0"
NEW = "kernel reported version is: 460.1.0"
NEEDLE = b"ernel reported version is"


def word(number: int) -> str:
    """Return a word of letters that no other number has."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def feed(reader: LogReader, *lines: str) -> None:
    """Let the reader read a block of lines."""
    block = "".join(f"{line}\n" for line in lines).encode()
    reader.read(block, b"", 0, len(block))


def found(reader: LogReader) -> list[tuple[str, str]]:
    """Return the values of the facts and their places."""
    return [(fact.value, fact.where) for fact in reader.facts.values()]


@pytest.mark.parametrize(
    ("count", "old_lines", "is_read"),
    [(512, 16, True), (512, 17, False), (513, 15, True), (513, 16, False)],
)
def test_lines_without_news_are_read_sixteen_times_in_a_block(
    count: int, old_lines: int, is_read: bool
) -> None:
    """The limit counts after 512 readings. A line is read before it is counted."""
    reader = LogReader(small=0)
    feed(reader, OLD)
    (messages_of_line,) = reader._idle_reads
    for _ in range(count):
        reader._count_reading(messages_of_line, len(reader.facts))
    block = [*(f"{word(number)} {OLD}" for number in range(old_lines)), f"{NEW} at last"]
    feed(reader, *block)
    assert (("460.1.0", f"log line {old_lines + 2}") in found(reader)) is is_read
    feed(reader, f"the next block: {NEW.replace('460', '470')}")
    assert ("470.1.0", f"log line {old_lines + 3}") in found(reader)


@pytest.mark.parametrize(
    ("count", "old_places", "is_read"),
    [(256, 4, True), (256, 5, False), (257, 3, True), (257, 4, False)],
)
def test_a_needle_of_a_long_line_without_news_is_read_four_times_in_a_block(
    count: int, old_places: int, is_read: bool
) -> None:
    """The limit counts after 256 readings. A place is read before it is counted."""
    reader = LogReader(small=0)
    feed(reader, OLD)
    for _ in range(count):
        reader._count_reading(NEEDLE, len(reader.facts))
    parts = [*(f"{word(number)} {OLD}" for number in range(old_places)), NEW]
    feed(reader, (" " * (BEFORE + AFTER)).join(parts))
    assert ("460.1.0" in dict(found(reader))) is is_read


def test_a_new_fact_ends_the_idle_time_of_a_message() -> None:
    reader = LogReader(small=0)
    feed(reader, OLD)
    (messages_of_line,) = reader._idle_reads
    for number in range(3):
        feed(reader, f"{word(number)} {OLD}")
    assert reader._idle_reads[messages_of_line] == 3
    feed(reader, NEW)
    assert reader._idle_reads[messages_of_line] == 0


@pytest.mark.parametrize("in_line", [1, 2, 4, 5])
def test_a_needle_counts_as_often_as_a_line_has_it(in_line: int) -> None:
    """Lines of one form are read until they have had four needles."""
    lines = [f"{OLD.replace('66', str(number))} " * in_line for number in range(6)]
    reader = LogReader()
    feed(reader, *lines)
    read = -(-REPEATS // in_line)
    assert [value for value, _ in found(reader)] == [f"450.{number}.0" for number in range(read)]


def test_lines_are_finished_after_four_readings() -> None:
    for count, finished in ((1, 0), (3, 0), (4, 1), (9, 1)):
        reader = LogReader()
        block = "\n".join(OLD.replace("66", str(number)) for number in range(count)).encode()
        reader.read(block, b"", 0, len(block))
        assert len(reader._finished_lines) == finished, count


def test_a_number_that_matters_is_seen_in_a_line_that_was_read_for_another_message() -> None:
    reader = LogReader()
    feed(reader, *[f"{OLD} Linux version 5.15 WSL1"] * 9, f"{OLD} Linux version 5.15 WSL2")
    assert ("wsl", "", "yes") in reader.facts
    assert reader.facts["wsl", "", "yes"].where == "log line 10"


def test_repeated_lines_are_looked_for_in_the_first_block_and_then_in_every_sixteenth() -> None:
    """If repeated lines were found, the next block is searched, too."""
    reader, compared = LogReader(small=0), []
    for block in range(1, 50):
        before = len(reader._finished_lines)
        feed(reader, *(word(10 * block + number) for number in range(9)))
        if len(reader._finished_lines) > before:
            compared.append(block)
    assert compared == [1, 16, 32, 48]


@pytest.mark.parametrize(("known", "helps"), [(0, False), (4, False), (5, True), (9, True)])
def test_looking_for_repeated_lines_goes_on_if_more_than_half_of_the_lines_are_known(
    known: int, helps: bool
) -> None:
    reader = LogReader(small=0)
    lines = [word(number) for number in range(9)]  # and an empty one, after the last line end
    feed(reader, *lines)
    for _ in range(14):
        feed(reader, "")
    feed(reader, *lines[:known], *(word(100 + number) for number in range(9 - known)))
    before = len(reader._finished_lines)
    feed(reader, "another line")
    assert (len(reader._finished_lines) > before) is helps


def after_repeated_lines(*lines: str) -> LogReader:
    """Return a reader that knows two lines and has read its sixteenth block, `lines`."""
    reader = LogReader(small=0)
    feed(reader, "an ordinary line", "False")
    for _ in range(14):
        feed(reader, "")
    feed(reader, *lines)
    return reader


def test_facts_between_lines_that_are_left_out_have_their_places() -> None:
    known = "an ordinary line"
    reader = after_repeated_lines(known, known, OLD, known, "a new one", NEW, known)
    assert found(reader) == [("450.66.0", "log line 19"), ("460.1.0", "log line 22")]


@pytest.mark.parametrize("before", [[], ["an ordinary line"], ["an ordinary line", "a new one"]])
def test_a_message_goes_on_in_lines_that_are_left_out(before: list[str]) -> None:
    asked = "torch.cuda.is_available()"
    (expected,) = said(read_log([f"{asked}\nFalse"]))
    (fact,) = after_repeated_lines(*before, asked, "False").facts.values()
    assert said([fact]) == [(*expected[:3], f"log line {17 + len(before)}", expected[4])]


def test_a_block_may_end_in_a_message_of_several_lines() -> None:
    reader, block = LogReader(), b"torch.cuda.is_available()\n"
    reader.read(block, b"False\n", 0, len(block))
    assert said(reader.facts.values()) == said(read_log([block + b"False\n"]))


@pytest.mark.parametrize(
    ("begin", "end", "is_read"),
    [(-1, 1, True), (0, 1, True), (1, 2, False), (-2, 0, False), (-1, 9, True)],
)
def test_a_piece_of_a_long_line_is_searched_in_its_range_only(
    begin: int, end: int, is_read: bool
) -> None:
    """`begin` and `end` are relative to the needle; a window reaches beyond them."""
    block = b"x" * 500 + b" " + OLD.encode() + b" " + b"x" * 500
    place = block.index(NEEDLE)
    reader = LogReader(small=0)
    reader.read(block, b"", place + begin, place + end)
    assert bool(reader.facts) is is_read


@pytest.mark.parametrize(
    ("begin", "start", "stop", "is_long"),
    [
        (0, 0, 2048, False),
        (0, 0, 2049, True),
        (0, 9, 2057, False),
        (0, 9, 2058, True),
        (400, 0, 9, True),
        (1, 0, 9, True),
        (400, 1, 9, False),
    ],
)
def test_lines_of_more_than_2048_bytes_and_continued_ones_are_read_around_their_needles(
    begin: int, start: int, stop: int, is_long: bool
) -> None:
    reader = LogReader()
    reader.read(b"x" * 9000, b"", begin, 9000)
    assert reader._is_long(start, stop) is is_long


def test_a_continued_line_that_is_left_out_does_not_make_the_next_one_long() -> None:
    reader = LogReader(small=0)
    reader.read(b"first\nsecond", b"", 3, 12)
    assert reader._is_long(0, 5)
    reader = after_repeated_lines()
    for _ in range(15):
        feed(reader, "")
    block = b"an ordinary line\nsecond"
    reader.read(block, b"", 3, len(block))
    assert not reader._is_long(0, 6)


@pytest.mark.parametrize(
    ("block", "following", "line", "is_exact"),
    [
        (b"x" * 32767, b"", 1, True),
        (b"x" * 32768, b"", 1, False),
        (b"x", b"more", 1, False),
        (b"x", b"", 2, False),
        ("x\u017f".encode(), b"more", 1, True),
        ("x\u212a".encode(), b"more", 1, True),
        ("x\u0130".encode(), b"more", 1, True),
        ("x\u0131".encode(), b"more", 1, True),
        ("caf\u00e9".encode(), b"more", 1, False),
    ],
)
def test_small_logs_and_letters_that_fold_to_ascii_are_searched_for_needles(
    block: bytes, following: bytes, line: int, is_exact: bool
) -> None:
    """Other logs are searched by formulas, which take time to prepare and are lowercase ASCII."""
    reader = LogReader()
    reader.line = line
    reader.read(block, following, 0, len(block))
    assert reader._choose_prefilter().exact is is_exact


def test_two_thousand_facts_are_kept_and_then_nothing_is_read() -> None:
    reader = LogReader()
    known = Fact(kind="gpu", where="log line 1")
    reader.facts = {("gpu", "", str(number)): known for number in range(MAX_FACTS - 1)}
    feed(reader, "an ordinary line", OLD)
    assert len(reader.facts) == MAX_FACTS == 2000
    assert reader.line == 3
    reader._note("gpu", "", "one more", "x")
    feed(reader, NEW)
    assert len(reader.facts) == MAX_FACTS
    assert reader.line == 3


def test_a_fact_keeps_the_place_where_it_is_stated_first() -> None:
    reader = LogReader()
    feed(reader, "an ordinary line", OLD, f"again: {OLD}")
    feed(reader, f"and again: {OLD}")
    assert found(reader) == [("450.66.0", "log line 2")]


def test_a_carriage_return_ends_a_line() -> None:
    (fact,) = read_log([f"loading: 10%\rloading: 20%\r{OLD}\rloading: 30%"])
    assert (fact.text, fact.where) == (OLD, "log line 1")


def test_what_is_remembered_of_lines_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "_MAX_LINES", 3)
    monkeypatch.setattr(log_reader, "_MAX_WINDOWS", 3)
    reader, sizes = LogReader(), []
    others = ["Linux version 5.15 WSL2", "CUDA driver version is insufficient", "NVIDIA H100"]
    for number, line in enumerate([OLD, *others, "cuDNN 9.1.0", "CUDA 12.4"]):
        feed(reader, f"{word(number)}: {line}")
        sizes.append((len(reader._line_reads), len(reader._needles_of), len(reader._idle_reads)))
    assert sizes == [(1, 1, 1), (2, 2, 2), (3, 3, 3), (1, 1, 1), (2, 2, 2), (3, 3, 3)]
    assert len(reader._window_reads) == 3


def test_the_readings_of_sixteen_thousand_lines_are_remembered() -> None:
    reader = LogReader(small=0)
    reader._line_reads = dict.fromkeys(range(16_383), 1)
    feed(reader, OLD)
    assert len(reader._line_reads) == 16_384
    feed(reader, f"another line: {OLD}")
    assert len(reader._line_reads) == 1


@pytest.mark.parametrize(("size", "shown_from"), [(MAX_TEXT, 0), (MAX_TEXT + 1, 140)])
def test_the_text_of_a_longer_line_begins_before_the_message(size: int, shown_from: int) -> None:
    """It begins sixty characters before, so that the text shows what it is about."""
    line = ("abcdefghij" * 20 + OLD).ljust(size - 1, " ") + "z"
    (fact,) = read_log([line])
    assert fact.text == line[shown_from:][:MAX_TEXT]


def test_a_message_at_the_start_of_a_longer_line_is_shown_from_the_start() -> None:
    line = ("abcdefghij" * 5 + OLD).ljust(400, "z")
    (fact,) = read_log([line])
    assert fact.text == line[:MAX_TEXT]


def test_control_characters_are_shown_as_spaces_and_no_others() -> None:
    (fact,) = read_log([f"!~\x7f\x1f\x01\t{OLD}"])
    assert fact.text == f"!~    {OLD}"


def test_eight_values_of_a_message_in_a_line_are_kept() -> None:
    values = [f"RTX {number}090" for number in range(2, 6)]
    values += [f"RTX {number}080" for number in range(2, 6)] + ["GTX 1080", "GTX 1070"]
    facts = read_log([", ".join(values)])
    assert [fact.value for fact in facts if fact.kind == "gpu"] == values[:8]


@pytest.mark.parametrize(
    ("text", "is_failure"),
    [
        ("address already in use".ljust(512, "."), True),
        ("address already in use".ljust(513, "."), False),
        ("address already in use\n\n.", True),
        ("address already in use\n\n\n.", False),
        ("\naddress already in use\n\n", True),
    ],
)
def test_a_failure_of_any_program_counts_in_a_short_text(text: str, is_failure: bool) -> None:
    """A report of three lines and 512 bytes is about a failure; a log may have the same words."""
    facts = read_log([text], with_failure=True)
    assert bool([fact for fact in facts if fact.subject == "unexplained"]) is is_failure


# ---- memory --------------------------------------------------------------------------------------

MEASURED = """
import random, re, sys
from gpuenv.doctor import read_log

def peak():
    # Of this process itself: ru_maxrss starts with that of the parent's.
    return int(re.findall(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[0])

def log(kind, size):
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnop", k=9)) for _ in range(5000)]
    for number in range(size >> 18):
        line = f"%s cuDNN error CUDNN_STATUS_INTERNAL_ERROR %s of {number} at 0x{number:x}" + kind
        text = "".join(line % tuple(chance.choices(words, k=2)) for _ in range(100))
        yield (text * ((1 << 18) // len(text) + 1)).encode()[: 1 << 18]

read_log(log("\\n", 1 << 20))
before = peak()
for end in ("\\n", " "):
    facts = read_log(log(end, 2_000_000))
    assert facts
print(before, peak())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_memory_does_not_grow_with_the_log() -> None:
    """2 MB of lines and 2 MB of one line, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], check=True, capture_output=True, text=True
    )
    before, after = map(int, done.stdout.split())
    assert after - before < 2 * 1024  # KiB


def test_the_needles_without_the_library_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text, wanted = made(3, 400), set(NEEDLES[::3])
    found = Prefilter(messages(), exact=True).needles(text, wanted)
    monkeypatch.setattr(prefilter, "_has_automaton", lambda: False)
    assert found and Prefilter(messages(), exact=True).needles(text, wanted) == found


@pytest.mark.parametrize("prepared", [False, True])
def test_the_search_without_the_library_finds_the_same(prepared: bool) -> None:
    """ahocorasick-rs has no wheel for every Python."""
    literals = [b"cuda error", b"error", b"rror: no", b"sm_9", b"sm_90", b"aa", b"a"]
    search = literal_search(literals, prepared=prepared)
    for text in (b"cuda error: no kernel for sm_90", b"baaab sm_9 sm_90", b"", made(3, 40).lower()):
        assert find_each(literals, text) == search(text)
