"""The fix explains numbers and symbols, and names the command of the new solve."""

import io
import shlex
from functools import cache
from itertools import product

import gpuenv
from gpuenv import cli, solve
from gpuenv.compat.data import load
from gpuenv.compat.evaluate import agreements, built_with, packages_of_pins
from gpuenv.doctor.log_reader import read_log
from gpuenv.doctor.origin import find_origin
from gpuenv.render import doctor as render
from tables import data_file, each, together
from test_doctor_origin import NO_GPU

CASES = data_file("doctor_advice.toml")


@cache
def examined(log):
    return gpuenv.examine(io.BytesIO(log.encode()), NO_GPU)


@together(CASES["case"])
def test_the_fix_says_what_the_facts_mean(case):
    found = examined(case["log"])
    fix = render.doctor_json(found)["verdicts"][0]["fix"]
    for part in case.get("says", ()):
        assert part in fix
    for part in case.get("never", ()):
        assert part not in fix
    if "command" in case:
        command = shlex.join(found.remedy.command) if found.remedy else ""
        assert command == case["command"]
        assert command in fix


@together([case for case in CASES["case"] if case.get("command")])
def test_the_proposed_command_gives_what_the_answer_says(case):
    remedy = examined(case["log"]).remedy
    asked = cli.parse_arguments([*remedy.command[1:], "--offline"])
    host = cli.requests.read_host(asked, need_gpu=True)
    assert solve(gpuenv.Request(frameworks=tuple(asked.framework)), host).choices == remedy.choices


@together(CASES["case"])
def test_the_answer_is_short(case):
    found = examined(case["log"])
    short = render.doctor_lines(found, "the log")
    whole = render.doctor_lines(found, "the log", verbose=True)
    assert len(short) < len(whole)
    assert short[0] == whole[0]
    assert short[1].startswith("  log line")
    assert any("read on a machine without a GPU" in line for line in short)
    for verdict in found.diagnosis.verdicts[:1]:
        for line in verdict.evidence:  # a long line is cut
            assert any(line[:100] in shown for shown in whole)


@together(CASES["mention"])
def test_a_gpu_that_is_only_mentioned_is_not_of_the_machine(case):
    facts = read_log([case["line"]])
    assert [fact for fact in facts if fact.kind == "gpu"]
    assert find_origin(facts, NO_GPU).place == "unknown"


OLD = {"onnxruntime-gpu": "1.0.0 1.4.0 1.6.0 1.12.0 1.16.3", "ctranslate2": "2.24.0 3.20.0"}
OLD |= {"tensorflow-gpu": "1.2.0 1.4.0 1.14.0 2.3.0"}
PARTNERS = {
    "cudnn-major": {8: ("nvidia-cudnn-cu12", "8.9.7.29"), 9: ("nvidia-cudnn-cu12", "9.10.2.21")},
    "cuda-major": {11: ("torch", "2.4.0+cu118"), 12: ("torch", "2.4.0+cu121")},
}


@each("name", ["ctranslate2", "onnxruntime-gpu", "tensorflow", *OLD, "torch"])
def test_what_the_doctor_knows_of_releases_the_solver_knows(name):
    data, host = load(), gpuenv.describe(gpus=["A100"], driver="580.65.06", python="3.10")
    partners = dict(PARTNERS)
    if name == "torch":
        known = {11: ("onnxruntime-gpu", "1.18.1"), 12: ("onnxruntime-gpu", "1.20.2")}
        partners["cuda-major"] = known
    releases = {release.version for release in data.releases(name, host.platform)}
    releases |= {*data.known_versions(name, host.platform), *OLD.get(name, "").split()}
    assert releases
    for release in sorted(releases):
        cuda, cudnn = built_with(name, release, host.platform, data)
        assert cuda, (name, release)
        for code, major in (("cuda-major", cuda), ("cudnn-major", cudnn)):
            for other, pin in partners[code].items():
                packages = packages_of_pins([(name, release), pin], host.platform, data)
                own, others = ([*agreements(package, host, data)] for package in packages)
                differs = any(
                    one.code == code and one.topic == two.topic and not one.agrees_with(two)
                    for one, two in product(own, others)
                )
                assert differs is (bool(major) and major[0] != other), (release, pin)


def test_no_wheel_of_tensorflow_is_for_cuda_12_8():
    """A row says so."""
    for release in load().releases("tensorflow", "linux-x86_64"):
        assert built_with("tensorflow", release.version, "linux-x86_64", load())[0] < (12, 8)
