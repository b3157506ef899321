"""The log reader finds what a plain reader finds, wherever the log is cut.

The plain reader searches every needle in every line.
"""

# ruff: noqa: S311  nothing secret is drawn
import random
import re
from collections.abc import Iterable, Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from gpuenv.doctor import stream
from gpuenv.doctor.catalog import Message, fill, messages
from gpuenv.doctor.log_reader import LONG_LINE, REPEATS, LogReader, read_log
from gpuenv.doctor.model import MAX_TEXT, Fact
from gpuenv.doctor.pasted import message_lines, restored, split_prefix
from gpuenv.doctor.prefilter import (
    AnyOf,
    Formula,
    Literal,
    needed_literals,
)
from gpuenv.doctor.stream import AFTER, AHEAD, BEFORE
from tables import data_file, each

TABLES = data_file("tables/doctor_reading.json")

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

CASES = data_file("doctor/cases.toml")["case"]
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


@settings(max_examples=examples(25), deadline=None)
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
@pytest.mark.parametrize("seed", range(2))
def test_longer_logs_are_read_the_same(seed: int, end: str) -> None:
    log = made(seed, 120, end)
    expected = Plain().read(log)
    assert len(expected) > 5
    assert as_long([log]) == expected
    assert as_long(cut(log, 997)) == expected


@pytest.mark.parametrize("seed", range(1))
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
    for size in range(2 * LONG_LINE, 3 * LONG_LINE, 997):
        monkeypatch.setattr(stream, "BLOCK", size)
        assert as_long([log]) == expected


@each("line other", TABLES["a_number_that_matters_is_seen_after_others"])
def test_a_number_that_matters_is_seen_after_others(line: str, other: str) -> None:
    """Lines that differ only in digits are read four times, except for numbers in needles."""
    often = re.sub(r"error \d+|\[WinError \d+\]|\(\d+\)|WSL\d|Error \d+", other, line)
    assert often != line
    (expected,) = said(read_log([line]))
    for count in (50, 1000):
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
    for number in range(6_000):
        name = "".join(chance.choices("abcdefghijklmnop", k=9))
        lines.append(
            f"{name} Loaded cuDNN version 9{number} on NVIDIA H100, compute capability 9.0, by "
            f"0x{number:x}"
        )
    lines[4_000] = "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
    found = {(fact.kind, fact.value): fact.where for fact in read_log(["\n".join(lines)])}
    assert found["xid", "79"] == "log line 4001"


# ---- limits of effort ----------------------------------------------------------------------------

OLD = "kernel reported version is: 450.66.0"


def feed(reader: LogReader, *lines: str) -> None:
    """Let the reader read a block of lines."""
    block = "".join(f"{line}\n" for line in lines).encode()
    reader.read(block, b"", 0, len(block))


def found(reader: LogReader) -> list[tuple[str, str]]:
    """Return the values of the facts and their places."""
    return [(fact.value, fact.where) for fact in reader.facts.values()]


def test_a_fact_keeps_the_place_where_it_is_stated_first() -> None:
    reader = LogReader()
    feed(reader, "an ordinary line", OLD, f"again: {OLD}")
    feed(reader, f"and again: {OLD}")
    assert found(reader) == [("450.66.0", "log line 2")]


def test_a_carriage_return_ends_a_line() -> None:
    (fact,) = read_log([f"loading: 10%\rloading: 20%\r{OLD}\rloading: 30%"])
    assert (fact.text, fact.where) == (OLD, "log line 1")


def test_control_characters_are_shown_as_spaces_and_no_others() -> None:
    (fact,) = read_log([f"!~\x7f\x1f\x01\t{OLD}"])
    assert fact.text == f"!~    {OLD}"


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
