"""cuDNN's handles, followed through its own logs of programs that ran on a GPU."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuenv.doctor.cudnn_calls import HandleTracker
from gpuenv.doctor.judge import diagnose
from gpuenv.doctor.log_reader import read_log
from tables import DATA, cases, each, read_data

HERE = DATA / "cudnn_handles"
RECORD = read_data(HERE / "record.toml")["log"]
LOGS = {case["name"]: (HERE / f"{case['name']}.log").read_bytes() for case in RECORD}


def handles_of(chunks):
    reader, line = HandleTracker(), 1
    for chunk in chunks:
        reader.read(chunk, line)
        line += chunk.count(b"\n")
    return {kind: (fact.where, fact.text) for kind, fact in reader.facts.items()}


def test_every_log_is_in_the_record():
    assert {path.stem for path in HERE.glob("*.log")} == set(LOGS)


@cases(RECORD)
def test_a_log_tells_what_the_program_did(case):
    found = diagnose(read_log([LOGS[case["name"]]]), ())
    first = found.verdicts[0] if found.verdicts else None
    assert (first.cause if first else "") == case["first"], found
    assert found.abstained is case.get("abstained", False)
    if "sure" in case:
        assert first.confidence == case["sure"]


@each("name", [case["name"] for case in RECORD if case.get("sure") == "proved"])
def test_the_evidence_is_the_call(name):
    """The line that is named is the one that says who called, of the function that is named."""
    (where, text), *others = handles_of([LOGS[name]]).values()
    assert not others
    function, _, caller = text.partition("(): ")
    lines = LOGS[name].decode().splitlines()
    number = int(where.removeprefix("log line "))
    assert lines[number - 1].endswith(f"{caller}.")
    before = next(line for line in reversed(lines[:number]) if "() called:" in line)
    assert f"function {function}() called:" in before


@each("name", list(LOGS))
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_where_a_chunk_ends_is_no_matter(name, data):
    lines = LOGS[name].splitlines(keepends=True)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(lines)), max_size=8)))
    chunks = [
        b"".join(lines[begin:end])
        for begin, end in zip([0, *cuts], [*cuts, len(lines)], strict=True)
    ]
    assert handles_of(chunks) == handles_of([LOGS[name]])


@each("name", [case["name"] for case in RECORD if case.get("sure") == "proved"])
@each("other", ["plain", "torch-threads", "jax"])
def test_another_process_in_the_same_log_is_no_matter(name, other):
    mixed = diagnose(read_log([LOGS[other], LOGS[name]]), ())
    alone = diagnose(read_log([LOGS[name]]), ())
    assert mixed.verdicts[0].cause == alone.verdicts[0].cause


def test_a_log_that_begins_late_proves_nothing():
    """If the log does not show who made the handles, none counts as destroyed or as another's."""
    for name in ("destroyed", "forked"):
        late = LOGS[name].partition(b"function cudnnCreateTensorDescriptor() called:")[2]
        assert handles_of([late]) == {}
