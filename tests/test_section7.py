"""Cases that other tools solve wrongly: one CUDA major, one cuDNN, one owner, the newest."""

import pytest

import gpuenv
import plan_checker
import raw_facts as raw
from gpuenv.model import IndexOptions, Request
from hosts import host_of
from tables import cases, data_file

CASES = data_file("section7.json")
CAPABILITIES = {"H100": (9, 0), "A100": (8, 0), "V100": (7, 0), "GTX 1080 Ti": (6, 1)}


def solve(case, frameworks):
    host = host_of({"gpu": [case["gpu"]], "driver": case["driver"]})
    request = Request(frameworks=tuple(frameworks), default_index_only="indexes" not in case)
    return gpuenv.solve(request, host, IndexOptions(offline=True), changes=False)


@cases(CASES)
def test_cases(case):
    plan = solve(case, case["framework"])
    assert [[one.framework, one.version, one.variant] for one in plan.choices] == case["choices"]
    pins = plan.versions
    assert {name: pins[name] for name in pins if name.startswith("nvidia-cudnn")} == dict(
        [case["cudnn"]]
    )
    majors = {major for name, version in pins.items() if (major := raw.cuda_major(name, version))}
    assert majors == {case["cuda"]}
    assert [*plan_checker.owners(pins), *plan_checker.cudnn(pins)] == []
    assert {reason.code for reason in plan.warnings} == set(case.get("warnings", ()))
    if "indexes" not in case:  # the scans are of the default index's wheels
        assert (
            plan_checker.contradictions(plan, CAPABILITIES[case["gpu"]], case["driver"], (3, 12))
            == []
        )


@cases([case for case in CASES if "beyond" in case])
def test_nothing_newer_works(case):
    for frameworks in case["beyond"]:
        with pytest.raises(gpuenv.NoSolutionError) as refusal:
            solve(case, frameworks)
        assert refusal.value.explanation.reasons
