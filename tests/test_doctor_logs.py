"""Logs without a GPU fault get no verdict; the reader survives any input in bounded memory."""

# ruff: noqa: S311  lines of logs are as long as they are; nothing secret is drawn
import random
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuenv.doctor.catalog import messages
from gpuenv.doctor.judge import diagnose
from gpuenv.doctor.log_reader import MAX_FACTS, read_log
from gpuenv.doctor.stream import BLOCK
from tables import data_file, each, together

TABLES = data_file("tables/doctor_logs.json")

# ---- logs with no GPU fault in them --------------------------------------------------------------

STAMPS = (
    "",
    "2026-03-04 05:06:07,890 ",
    "[rank{n}]: ",
    "(worker pid={n}) ",
    "web-1  | ",
    "\x1b[32mINFO\x1b[0m ",
    "{n}: ",
)
KINDS = TABLES["kinds"]


def ordinary(seed):
    """A log of one kind or of several mixed, with prefixes; its lines repeat with other numbers."""
    chance = random.Random(seed)
    kinds = [sorted(KINDS)[seed % len(KINDS)], *chance.sample(sorted(KINDS), chance.randrange(3))]
    lines = [line for kind in kinds for line in KINDS[kind]]
    stamp = chance.choice(STAMPS)
    return "\n".join(
        (stamp + chance.choice(lines)).replace("{n}", str(chance.randrange(1000)))
        for _ in range(chance.randrange(3, 200))
    )


@together(range(90))
def test_a_log_without_a_fault_gets_no_verdict(seed):
    found = diagnose(read_log([ordinary(seed)]), ())
    assert (found.verdicts, found.abstained) == ((), False), ordinary(seed)


def test_the_ordinary_logs_are_not_empty_of_words_that_messages_have():
    """The test above could fail: the reader does find needles in those logs, and facts, too."""
    text = "\n".join(ordinary(seed) for seed in range(45))
    assert (
        sum(needle.decode() in text for message in messages() for needle in message.needles) >= 30
    )
    assert {fact.kind for fact in read_log([text])} >= {"driver", "gpu", "package", "capability"}


# ---- one fault in all that -----------------------------------------------------------------------

FAULT = "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version"


@together(range(15))
def test_a_fault_is_found_in_an_ordinary_log(seed):
    lines = ordinary(seed).split("\n")
    at = len(lines) // 2
    broken = FAULT.replace("version is insufficient", "\x1b[1mversion is insuffi\x1b[0mcient")
    lines.insert(at, f"[rank3]: \x1b[31m{broken}\x1b[0m")
    (first, *_rest) = diagnose(read_log(["\n".join(lines)]), ()).verdicts
    assert first.cause == "driver_too_old"
    assert first.evidence[0].startswith(f"log line {at + 1}: ")


@each("encoding", ["utf-8", "utf-16", "utf-8-sig"])
def test_a_log_of_windows_is_read(encoding):
    facts = read_log([("words\r\n" * 9 + FAULT + "\r\n").encode(encoding)])
    (fact,) = [fact for fact in facts if fact.kind == "says"]
    assert (fact.subject, fact.where) == ("driver_too_old", "log line 10")


def test_a_fault_between_repeated_lines_is_found():
    """A message that repeats a million times, or a very long line, hides no other message."""
    again = [f"cuDNN error: CUDNN_STATUS_INTERNAL_ERROR in call {n}" for n in range(5000)]
    fault = "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
    again[4000:4000] = ["step " * BLOCK, fault]
    assert diagnose(read_log(["\n".join(again)]), ()).verdicts[0].cause == "gpu_hardware_fault"


# ---- bounds --------------------------------------------------------------------------------------


def endless(line, size):
    block = line * (BLOCK // len(line) + 1)
    for _ in range(size // len(block)):
        yield block


@each("line", [b"x" * 999, FAULT.encode() + b"\n"])
def test_memory_is_bounded(line):
    """A log that is 400 kB longer takes no more memory."""
    read_log(endless(line, 2 * BLOCK))  # makes the tables, which stay in memory
    peaks = []
    for size in (400_000, 800_000):
        tracemalloc.start()
        facts = read_log(endless(line, size))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(facts) <= MAX_FACTS
    assert peaks[1] < peaks[0] + 300_000 and max(peaks) < 14_000_000


PARTS = sorted({needle.decode() for message in messages() for needle in message.needles})
PIECES = st.one_of(
    st.sampled_from(PARTS),
    st.text(max_size=20),
    st.sampled_from(
        [
            "\n",
            " ",
            "\x1b[31m",
            "'",
            "(",
            "9.1.0",
            "undefined symbol: ",
            "/",
            ".so.9",
            "0" * 40,
            "\r",
            "\0",
        ]
    ),
    st.sampled_from([message.pattern[:60] for message in messages()]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=60).map("".join))
def test_any_text_is_read(text):
    found = diagnose(read_log([text]), ())
    assert all(verdict.evidence for verdict in found.verdicts)
    assert found.verdicts or found.abstained or not found.failures


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=8))
def test_any_bytes_are_read(chunks):
    assert len(read_log(chunks)) <= MAX_FACTS
