"""Logs as people paste them: broken lines, quotations, escapes, and the prefixes of launchers."""

import gzip
import io
import random
import zipfile
from zlib import crc32

import pytest

import gpuenv
from gpuenv.doctor.log_reader import read_log
from gpuenv.doctor.pasted import MAX_PASTED, message_lines, restored, split_prefix
from gpuenv.doctor.stream import cleaned, unpacked
from gpuenv.errors import InputError
from gpuenv.model import Host, Python
from script_modules import load_script
from tables import ROOT, cases, data_file, each

DATA = ROOT / "tests" / "data"
CASES = data_file("doctor_pasted.toml")
MAX_LOST = 0.03  # of the reports, in each form
SAMPLE = 36  # one of 36 of the doctor's cases, whatever their order


@pytest.fixture(scope="module")
def measure_doctor():
    return load_script("prove.doctor")


@pytest.fixture(scope="module")
def measured(measure_doctor):
    reports = measure_doctor.read_set(DATA / "doctor" / "cases.toml")
    sample = [report for report in reports if crc32(report.log.encode()) % SAMPLE == 0]
    return measure_doctor.measure(sample)


def test_altered_reports_get_the_same_verdict(measured):
    for form, counts in measured["forms"].items():
        assert counts["lost"] <= max(1, MAX_LOST * measured["reports"]), form
        assert counts["wrong proved"] == 0, form


@cases(CASES["restored"])
def test_the_lines_are_restored(case):
    forms = [form.decode() for form in restored(case["log"].encode())]
    likeliest = forms[min(1, len(forms) - 1)]
    assert likeliest.rstrip("\n") == case["text"]
    for form in forms:
        assert form.count("\n") == case["log"].count("\n")


@cases(CASES["listed"])
def test_listed_source_lines_are_left_out(case):
    assert next(restored(case["log"].encode())).decode() == case["text"]


@cases(CASES["cleaned"])
def test_escapes_are_removed_wherever_a_chunk_ends(case):
    log = case["log"].encode()
    for end in range(len(log) + 1):
        assert b"".join(cleaned([log[:end], log[end:]])).decode() == case["text"]


@each("case", CASES["record"], ids=lambda case: case["text"])
def test_the_records_of_a_log_file_are_unpacked(case):
    assert b"".join(cleaned([case["log"].encode()])).decode() == case["text"]


@each("case", CASES["prefix"], ids=lambda case: case["line"][:30])
def test_the_prefix_of_a_line(case):
    source, text = split_prefix(case["line"].encode())
    assert (source.decode(), text.decode()) == (case["source"], case["text"])


def test_the_lines_of_a_message_are_those_of_one_process():
    lines = [b"[rank1]: b", b"[rank0]: b", b"", b"[rank1]: b", b"[rank1]: c", b"[rank1]: d"]
    assert message_lines(lines, 2, b"[rank1]:") == [b"b", b"c"]
    assert message_lines(lines, 2, b"") == []


def test_a_broken_line_is_found_at_its_first_line():
    message = (
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) but "
        "found runtime version (8, 9, 7)."
    )
    parts = [message[start : start + 60] for start in range(0, len(message), 60)]
    facts = read_log(["\n".join(["begin", *parts, "end"])])
    assert {fact.kind for fact in facts} - {"symptom"} == {"cudnn-loaded", "cudnn-built"}
    assert {fact.where for fact in facts} == {"log line 2"}


def test_a_long_log_is_not_restored():
    line = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to al"
    rest = "locate 2.00 GiB."
    filler = ("y" * 40 + "\n") * (MAX_PASTED // 41)
    values = {fact.value for fact in read_log([f"{line}\n{rest}\n"])}
    assert str(2 << 30) in values
    values = {fact.value for fact in read_log([f"{line}\n{rest}\n{filler}"])}
    assert str(2 << 30) not in values


# ---- compressed logs ----------------------------------------------------------------------------

FAULT = b"ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"


def zipped(*texts):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, text in enumerate(texts):
            archive.writestr(f"logs/{number}.txt", text)
    return file.getvalue()


@each("size", [1, 3, 1 << 16])
@each(
    "packed text",
    [
        (gzip.compress(FAULT), FAULT),
        (gzip.compress(b"a\n") + gzip.compress(FAULT), b"a\n" + FAULT),
        (zipped(b"a", FAULT), b"a\n" + FAULT + b"\n"),
        (FAULT, FAULT),
        (b"", b""),
        (gzip.compress(b"x" * 1_000_000), b"x" * 1_000_000),
    ],
    ids=["gzip", "two gzip members", "zip", "plain", "empty", "large"],
)
def test_a_compressed_log_is_unpacked(packed, text, size):
    chunks = [packed[start : start + size] for start in range(0, len(packed), size)]
    pieces = list(unpacked(chunks))
    assert b"".join(pieces) == text
    assert max(map(len, pieces), default=0) <= 1 << 16


def test_a_compressed_log_without_its_end_is_read():
    packed = gzip.compress(FAULT + random.Random(1).randbytes(5000))  # noqa: S311
    assert b"".join(unpacked([packed[:-2000]])).startswith(FAULT)


@each("packed", [b"\x1f\x8b" + b"x" * 50, b"PK\x03\x04" + b"x" * 50, zipped(FAULT)[:-30]])
def test_damaged_archives_are_reported(packed):
    with pytest.raises(InputError, match="unpack it"):
        list(unpacked([packed]))


def test_the_doctor_reads_a_compressed_log():
    found = gpuenv.examine(io.BytesIO(gzip.compress(FAULT)), Host(python=Python(version=(3, 12))))
    assert found.diagnosis.verdicts[0].cause == "cudnn_missing"
