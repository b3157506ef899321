"""Logs as people paste them: broken lines, quotations, escapes, and the prefixes of launchers."""

import gzip
import io
import json
import random
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gpuenv
from gpuenv.doctor.log_reader import read_log
from gpuenv.doctor.pasted import MAX_PASTED, message_lines, restored, split_prefix
from gpuenv.doctor.stream import cleaned, unpacked
from gpuenv.errors import InputError
from gpuenv.model import Host, Python
from script_modules import load_script
from tables import ROOT, cases, data_file

DATA = Path(__file__).parent / "data"
CASES: dict[str, list[dict[str, Any]]] = data_file("doctor_pasted.toml")
MAX_LOST = 0.03  # of the reports, in each form
SAMPLE = 75  # every 75th of the doctor's cases


@pytest.fixture(scope="module")
def measure_doctor() -> ModuleType:
    return load_script("prove.doctor")


@pytest.fixture(scope="module")
def measured(measure_doctor: ModuleType) -> dict[str, Any]:
    reports = measure_doctor.read_set(DATA / "doctor" / "cases.toml")[::SAMPLE]
    counts: dict[str, Any] = measure_doctor.measure(reports)
    return counts


def test_altered_reports_get_the_same_verdict(measured: dict[str, Any]) -> None:
    for form, counts in measured["forms"].items():
        assert counts["lost"] <= max(1, MAX_LOST * measured["reports"]), form
        assert counts["wrong proved"] == 0, form


@cases(CASES["restored"])
def test_the_lines_are_restored(case: dict[str, Any]) -> None:
    forms = [form.decode() for form in restored(case["log"].encode())]
    likeliest = forms[min(1, len(forms) - 1)]
    assert likeliest.rstrip("\n") == case["text"]
    for form in forms:
        assert form.count("\n") == case["log"].count("\n")


@cases(CASES["listed"])
def test_listed_source_lines_are_left_out(case: dict[str, Any]) -> None:
    assert next(restored(case["log"].encode())).decode() == case["text"]


@cases(CASES["cleaned"])
def test_escapes_are_removed_wherever_a_chunk_ends(case: dict[str, Any]) -> None:
    log = case["log"].encode()
    for end in range(len(log) + 1):
        assert b"".join(cleaned([log[:end], log[end:]])).decode() == case["text"]


@pytest.mark.parametrize("case", CASES["record"], ids=lambda case: case["text"])
def test_the_records_of_a_log_file_are_unpacked(case: dict[str, Any]) -> None:
    assert b"".join(cleaned([case["log"].encode()])).decode() == case["text"]


@pytest.mark.parametrize("case", CASES["prefix"], ids=lambda case: case["line"][:30])
def test_the_prefix_of_a_line(case: dict[str, Any]) -> None:
    source, text = split_prefix(case["line"].encode())
    assert (source.decode(), text.decode()) == (case["source"], case["text"])


def test_the_lines_of_a_message_are_those_of_one_process() -> None:
    lines = [b"[rank1]: b", b"[rank0]: b", b"", b"[rank1]: b", b"[rank1]: c", b"[rank1]: d"]
    assert message_lines(lines, 2, b"[rank1]:") == [b"b", b"c"]
    assert message_lines(lines, 2, b"") == []


def test_a_broken_line_is_found_at_its_first_line() -> None:
    message = (
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) but "
        "found runtime version (8, 9, 7)."
    )
    parts = [message[start : start + 60] for start in range(0, len(message), 60)]
    facts = read_log(["\n".join(["begin", *parts, "end"])])
    assert {fact.kind for fact in facts} - {"symptom"} == {"cudnn-loaded", "cudnn-built"}
    assert {fact.where for fact in facts} == {"log line 2"}


def test_a_long_log_is_not_restored() -> None:
    line = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to al"
    rest = "locate 2.00 GiB."
    filler = ("y" * 40 + "\n") * (MAX_PASTED // 41)
    values = {fact.value for fact in read_log([f"{line}\n{rest}\n"])}
    assert str(2 << 30) in values
    values = {fact.value for fact in read_log([f"{line}\n{rest}\n{filler}"])}
    assert str(2 << 30) not in values


# ---- compressed logs ----------------------------------------------------------------------------

FAULT = b"ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"


def zipped(*texts: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, text in enumerate(texts):
            archive.writestr(f"logs/{number}.txt", text)
    return file.getvalue()


@pytest.mark.parametrize("size", [1, 3, 1 << 16])
@pytest.mark.parametrize(
    ("packed", "text"),
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
def test_a_compressed_log_is_unpacked(packed: bytes, text: bytes, size: int) -> None:
    chunks = [packed[start : start + size] for start in range(0, len(packed), size)]
    pieces = list(unpacked(chunks))
    assert b"".join(pieces) == text
    assert max(map(len, pieces), default=0) <= 1 << 16


def test_a_compressed_log_without_its_end_is_read() -> None:
    packed = gzip.compress(FAULT + random.Random(1).randbytes(5000))  # noqa: S311
    assert b"".join(unpacked([packed[:-2000]])).startswith(FAULT)


@pytest.mark.parametrize(
    "packed", [b"\x1f\x8b" + b"x" * 50, b"PK\x03\x04" + b"x" * 50, zipped(FAULT)[:-30]]
)
def test_damaged_archives_are_reported(packed: bytes) -> None:
    with pytest.raises(InputError, match="unpack it"):
        list(unpacked([packed]))


def test_the_doctor_reads_a_compressed_log() -> None:
    found = gpuenv.examine(io.BytesIO(gzip.compress(FAULT)), Host(python=Python(version=(3, 12))))
    assert found.diagnosis.verdicts[0].cause == "cudnn_missing"


RECORD = ROOT / "docs" / "records" / "doctor.json"
RESULTS = ("right", "wrong", "abstained", "all-clear", "overclaim")


def test_the_altered_forms(measure_doctor: ModuleType) -> None:
    forms = {form: change("a 'b' c\nd" * 20) for form, change in measure_doctor.FORMS.items()}
    unbroken = [form for form in forms if forms[form] == forms["as it is"]]
    assert len(unbroken) == 5  # no line is longer than 80 columns
    assert len(set(forms.values())) == len(forms) - 4
    assert (
        max(map(len, measure_doctor.FORMS["terminal of 80 columns"]("x" * 300).split("\n"))) == 80
    )
    assert forms["8 ranks"].count("\n") == 8 * forms["as it is"].count("\n") + 7
    assert forms["noise"].count("\n") == 3000 + forms["as it is"].count("\n")


def test_the_record_holds_what_the_script_measures(measure_doctor: ModuleType) -> None:
    record = json.loads(RECORD.read_text())
    for measured in (record["outputs"], record["situations"]):
        assert measured["forms"].keys() == measure_doctor.FORMS.keys()
        for counts in measured["forms"].values():
            assert sum(counts[result] for result in RESULTS) == measured["reports"]
