"""Planted faults on stand-ins in C for the driver, with and without the host as evidence.

Each pair is one process that detects the host and examines an environment on it, as `gpuenv doctor
LOG` does.
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import gpuenv
import hosts
import planting
from gpuenv.compat.data import load
from gpuenv.compat.evaluate import known_builds
from gpuenv.doctor import host_facts
from gpuenv.doctor.judge import diagnose
from gpuenv.doctor.log_reader import read_log
from gpuenv.doctor.other_binaries import other_binary_facts
from processes import run_program
from small_wheels import write_files, write_record
from tables import data_file, each, on_x86_64
from test_host_conditions import variables_of
from test_verification import file_name, install, member_file, place, site_of

HERE = Path(__file__).parent
RESOLVER = HERE.parent / "resolver"
PAIRS = data_file("doctor_host.toml")["pair"]

pytestmark = on_x86_64

EXAMINE = """
import io, json, sys
import gpuenv
from gpuenv.render import doctor as explanation
root, target, log, probe, tests, kept = json.loads(sys.argv[1])
sys.path.append(tests)
import kept_answers
kept_answers.keep_in(kept)
host = gpuenv.detect(root=root, python="3.12")
stream = io.BytesIO(log.encode())
found = gpuenv.examine(stream, host, target=target, probe=probe, root=root, timeout=200)
json.dump(explanation.doctor_json(found), sys.stdout)
"""


@pytest.fixture(scope="module")
def plain(native, tmp_path_factory):
    """An environment with a stand-in of cuDNN, which nothing changes."""
    target = tmp_path_factory.mktemp("plain") / "env"
    venv.create(target, symlinks=True)
    install(site_of(target), native, [])
    return target


def is_plain(pair):
    """Whether its environment is the one that others have too."""
    return not {"real", "bare", "broken", "packages", "tags"} & set(pair)


def fill(pair, site, native, request, outside):
    """Makes the environment of a pair; the entries of LD_LIBRARY_PATH that it wants."""
    entries = []
    if "real" in pair:
        published = request.getfixturevalue("published")
        release = pair["real"]
        planting.install(published[release], site)
        for name in planting.OF_MAJOR[planting.RELEASES[release]]:
            planting.stand_in(site, name, native)
        planter = planting.Planter(site, release, published, native, outside)
        for step in pair.get("do", ()):
            planter.do(step)
        planter.drop_hashes()
        entries = [
            planting.place_of(entry, site, published, native, outside)
            for entry in pair.get("path", ())
        ]
    elif not pair.get("bare"):
        install(site, native, [])
    if "broken" in pair:
        place(
            member_file(native, pair["broken"], defines=["CRASH"]),
            outside / file_name(pair["broken"], 92000),
        )
        entries.append(str(outside))
    for name, version in pair.get("packages", {}).items():
        write_record(site, name, version)
    for name, tag in pair.get("tags", {}).items():
        wheel = site / planting.info_of(name, pair["packages"][name]) / "WHEEL"
        wheel.write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")
    return entries


def first_cause(document):
    """The cause of the first verdict, or "abstain" where none is named."""
    causes = [
        one["cause"] for one in document["verdicts"] if one["cause"] != "cudnn_init_failed_unknown"
    ]
    return "abstain" if document["abstained"] or not causes else str(causes[0])


def without_host(log):
    found = diagnose(read_log([log]), ())
    return {
        "abstained": found.abstained,
        "verdicts": [{"cause": one.cause} for one in found.verdicts],
    }


@each("pair", PAIRS, ids=[pair["name"] for pair in PAIRS])
def test_the_evidence_settles_it(pair, native, tmp_path, request):
    assert first_cause(without_host(pair["log"])) == pair["without"]
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    write_files(root, pair.get("files", {}))
    env = request.getfixturevalue("plain" if is_plain(pair) else "env")
    entries = [] if is_plain(pair) else fill(pair, site_of(env), native, request, outside)
    variables = variables_of(pair, native, tmp_path)
    variables["LD_LIBRARY_PATH"] = ":".join([variables["LD_LIBRARY_PATH"], *entries])
    kept = str(env.parent) if is_plain(pair) else ""
    arguments = [str(root), str(env), pair["log"], pair.get("probe", False), str(HERE), kept]
    command = [sys.executable, "-c", EXAMINE, json.dumps(arguments)]
    document = run_program(command, 280, env=variables).document
    assert list(document)[:2] == ["abstained", "verdicts"]
    said = json.dumps(
        {key: document[key] for key in ("abstained", "verdicts", "next_tests", "tests")}, indent=1
    )
    said += "\n".join(" ".join(map(str, one.values())) for one in document["checks"])
    assert first_cause(document) == pair["with"], said
    assert not {one["cause"] for one in document["verdicts"]} & set(pair.get("never", ())), said
    first = document["verdicts"][0] if document["verdicts"] else {"evidence": [], "fix": ""}
    words = "\n".join([*first["evidence"], first["fix"]])
    for text in pair.get("says", []):
        assert text in words, said
    if pair["with"] not in ("abstain", pair["without"]):
        assert any(line.startswith("host") for line in first["evidence"]), said
    shown = {one["test"]: one["status"] for one in document["tests"]}
    assert shown | pair.get("tests", {}) == shown, said
    assert pair.get("solves", "") in " ".join((document["remedy"] or {}).get("gives", [])), (
        document["remedy"]
    )


# ---- the command ---------------------------------------------------------------------------------

LOG = "epoch 1\nRuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n"
DESCRIBED = "--gpu H100 --driver 525.60.13"
NEWER = "--gpu H100 --driver 580.65.06"


def doctor(words, folder, *, text="", status=1):
    """`gpuenv doctor` as users run it, with `text` piped in."""
    dropped = ("VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD")
    env = {key: value for key, value in os.environ.items() if key not in dropped}
    env["PYTHONPATH"] = str(RESOLVER)
    command = f"{sys.executable} -m gpuenv doctor {words}"
    stdin = {"input": text} if text else {"stdin": subprocess.DEVNULL}
    return run_program(command, cwd=folder, env=env, status=status, **stdin)


def test_the_verdict_comes_first_then_what_it_rests_on_and_what_to_do(env, tmp_path):
    write_record(site_of(env), "torch", "2.13.0")
    (tmp_path / "train.log").write_text(LOG)
    done = doctor(f"train.log -v --target env {DESCRIBED}", tmp_path)
    lines = done.stdout.splitlines()
    assert done.stderr == ""
    assert lines[0].startswith("The driver is too old for the build  [driver_too_old; proved]")
    assert lines[1] == "evidence:"
    assert any("525.60.13" in line and "580.65.06" in line for line in lines[2:6])
    assert "what to do:" in lines
    (command,) = [line.strip() for line in lines if line.strip().startswith("gpuenv install")]
    assert command.endswith(
        "--framework torch==2.13.0 --gpu H100 --driver 525.60.13 --target env-new"
    )
    assert any("It gives torch 2.13.0 (cu126, CUDA 12.6, cuDNN" in line for line in lines)
    assert len(lines) < 40 and max(map(len, lines)) <= 230


@each("words", ["-", ""])
def test_a_log_comes_from_a_pipe(words, tmp_path):
    document = doctor(f"{words} --json {NEWER}", tmp_path, text=LOG).document
    assert document["abstained"] and document["next_tests"]
    assert any("log line 2" in line for one in document["verdicts"] for line in one["evidence"])


def test_what_has_no_fault_ends_well(tmp_path):
    done = doctor(f"- {NEWER}", tmp_path, text="epoch 1: loss 0.5\n" * 100, status=0)
    assert done.stdout.startswith(
        "No fault of a GPU, its driver or its libraries was found in the log."
    )


LISTINGS = {
    "[pip3] torch==2.5.1+cu121\nGPU models and configuration: GPU 0: NVIDIA GeForce RTX 5090\n": (
        "gpu_too_new_for_build"
    ),
    "Package     Version\n----------- -------\ntorch       2.6.0\ntorchvision 0.15.2\n": (
        "companion_binary_mismatch"
    ),
    "torch==2.6.0\ntorchvision==0.21.0\n": None,
    "Collecting torch==2.6.0\n  Using cached torchvision-0.15.2\n": None,
}


@each("text", [*LISTINGS])
def test_a_list_of_versions_shows_what_does_not_match(text, tmp_path):
    done = doctor("- --elsewhere --json", tmp_path, text=text, status=None)
    verdicts = done.document["verdicts"]
    assert (verdicts[0]["cause"] if verdicts else None) == LISTINGS[text]
    assert all("versions in the log" in str(one["evidence"]) for one in verdicts)


def test_without_a_log_all_checks_are_on_one_page(env, native, tmp_path):
    install(site_of(env), native, [])
    done = doctor("--target env --gpu none", tmp_path, status=0)
    assert done.stdout.startswith("No fault was found.")
    assert "cudnn version" in done.stdout and "verified: " in done.stdout
    install_over = site_of(env) / "nvidia" / "cudnn" / "lib" / "libcudnn_ops.so.9"
    install_over.unlink()
    done = doctor("--target env --gpu none", tmp_path)
    assert "[cudnn_sublib_missing; proved]" in done.stdout.splitlines()[0], done.stdout


def test_a_build_for_the_cpu_beside_one_for_cuda_is_no_cause():
    """ONNX Runtime for the CPU beside torch for CUDA, alone and under another's log."""
    host = hosts.host("H200", "580.159.04")
    alone = [("onnxruntime", "1.30.0")]
    both = [*alone, ("torch", "2.11.0"), ("nvidia-cudnn-cu13", "9.19.0.56")]
    for pins, fails in ((alone, True), (both, False)):
        builds = known_builds(pins, host.platform, load())
        facts = host_facts.reason_facts(gpuenv.reasons_against(pins, host), host, builds, pins)
        assert any(fact.kind == "cuda-built" and fact.value == "none" for fact in facts)
        assert any(fact.subject == "cuda-build" and fact.value == "fail" for fact in facts) is fails
        causes = [verdict.cause for verdict in diagnose((), facts).verdicts]
        assert ("cpu_only_build" in causes) is fails


def test_a_binary_beside_the_framework_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.ptx").write_text(".version 8.7\n.target sm_120\n.address_size 64\n")
    (tmp_path / "other.ptx").write_text(".version 7.8\n.target sm_80\n.address_size 64\n")
    host = hosts.host("H100", "580.65.06")
    facts = other_binary_facts(host, load(), named=(), env={"HOME": str(tmp_path)})
    assert [(fact.subject, Path(fact.value).name) for fact in facts] == [("older", "kernel.ptx")]
    assert "rebuild" in facts[0].text


def test_an_environment_that_lost_its_python_is_evidence(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /gone/bin\n")
    for named in ("--python env/bin/python", "--target env"):
        done = doctor(f"{named} --json", tmp_path, text="CUDA error\n")
        document = done.document
        assert not done.stderr
        assert "cannot be examined" in document["verdicts"][0]["evidence"][0]
        assert {fact["kind"] for fact in document["facts"]} >= {"test"}
        assert all(test["command"] for test in document["next_tests"])
