"""The log reader finds the same facts wherever a log is cut, and however often lines repeat."""

# ruff: noqa: S311  nothing secret is drawn
import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from gpuenv.doctor import stream
from gpuenv.doctor.log_reader import LONG_LINE, LogReader, literal_search, read_log
from tables import data_file, each

TABLES = data_file("tables/doctor_reading.json")
CASES = data_file("doctor/cases.toml")["case"]
EXAMPLES = sorted({line for case in CASES for line in case["log"].split("\n") if line.strip()})
SEVERAL = (
    "Outdated cuDNN installation found.\nVersion JAX was built against: 90100\nMinimum supported: "
    "9000\nInstalled version: 80907\nThe local installation must be newer"
)
NOISE = ("", "an ordinary line", "\x1b[1;31m", "caf\u00e9", "A" * 300, "error: ", "GPU 0 of 8 ")


def said(facts):
    return [(fact.kind, fact.subject, fact.value, fact.where, fact.text) for fact in facts]


def as_long(log):
    """As a long log is read."""
    reader = LogReader()
    for block in stream.blocks(stream.cleaned(log)):
        reader.read(*block)
    return said(reader.facts.values())


def made(seed, count, end):
    """A log of examples and noise, with prefixes."""
    chance = random.Random(seed)
    lines = [
        chance.choice(("", "[rank3]: ", "worker ", f"0x{chance.getrandbits(40):x} "))
        + chance.choice(EXAMPLES if chance.random() < 0.4 else [*NOISE, SEVERAL])
        for _ in range(count)
    ]
    return end.join(lines).encode()


@each("end", ["\n", "\r\n", "\r"])
@each("size", [1, 997])
def test_where_a_log_is_cut_is_no_matter(end, size):
    log = made(size, 40, end)
    whole = as_long([log])
    assert len(whole) > 5
    assert as_long(log[at : at + size] for at in range(0, len(log), size)) == whole


@each("end", ["\n", " "])
def test_every_edge_of_a_block_gives_the_same(end, monkeypatch):
    """A line that is longer than a block has pieces that overlap."""
    log = made(5, 300, end)
    causes = {fact[:3] for fact in as_long([log]) if fact[0] == "says"}
    assert len(log) > 8000 and len(causes) > 2
    for size in range(2 * LONG_LINE, 3 * LONG_LINE, 997):
        monkeypatch.setattr(stream, "BLOCK", size)
        assert causes <= {fact[:3] for fact in as_long([log])}


@each("line other", TABLES["a_number_that_matters_is_seen_after_others"])
def test_a_number_that_matters_is_seen_after_others(line, other):
    """Lines that differ only in digits are read a few times, except for numbers that matter."""
    often = re.sub(r"error \d+|\[WinError \d+\]|\(\d+\)|WSL\d|Error \d+", other, line)
    assert often != line
    (expected, *_others) = [fact for fact in said(read_log([line])) if fact[0] != "os"]
    lines = "\n".join([*[often] * 1000, line])
    assert (*expected[:3], "log line 1001", expected[4]) in as_long([lines.encode()])


def test_a_rare_fault_among_lines_that_are_all_different_is_found():
    chance = random.Random(1)
    lines = []
    for number in range(6_000):
        name = "".join(chance.choices("abcdefghijklmnop", k=9))
        lines.append(f"{name} Loaded cuDNN version 9{number} on NVIDIA H100 by 0x{number:x}")
    lines[4_000] = "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
    lines[:0] = ["NVRM: Xid (PCI:0000:02:00): 13, Graphics SM Warp Exception"] * 100
    found = {(fact.kind, fact.value): fact.where for fact in read_log(["\n".join(lines)])}
    assert found["xid", "79"] == "log line 4101"


@each(
    "text printed",
    TABLES["texts"],
)
def test_a_text_without_output_of_a_program_is_told_so(text, printed):
    kinds = {fact.kind for fact in read_log([text])}
    assert ("words" in kinds) is not printed


@settings(max_examples=examples(40), deadline=None)
@given(st.text("abn ", max_size=60))
def test_all_places_of_literals_are_found(text):
    literals = [b"a", b"ab", b"ban", b"nab a"]
    expected = {
        (number, at)
        for number, literal in enumerate(literals)
        for at in range(len(text))
        if text.encode().startswith(literal, at)
    }
    places = literal_search(literals)(text.encode())
    assert {(number, begin) for number, begin, _end in places} == expected
