"""Solve from the shipped snapshot and data: recorded cases, rules on every plan, and laws."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpuenv
from examples import examples
from gpuenv.compat import data
from gpuenv.compat.architectures import driver_branch
from gpuenv.lock import pylock
from gpuenv.lock.host_fit import fit
from gpuenv.model import IndexOptions, Request, parse_release
from hosts import host_of
from tables import cases, data_file

CASES = data_file("solve.json")
DATA = data.load()


def request_of(case):
    return Request(
        frameworks=tuple(case["framework"]),
        requirements=tuple(case.get("requirements", ())),
        default_index_only=case.get("default_index_only", False),
    )


@cases(CASES)
def test_cases(case):
    options = IndexOptions(package_indexes=tuple(case.get("package_indexes", ())))
    if "refused" in case:
        with pytest.raises(gpuenv.NoSolutionError) as refusal:
            gpuenv.solve(request_of(case), host_of(case), options)
        explanation = refusal.value.explanation
        assert set(case["refused"]) <= {reason.code for reason in explanation.reasons}
        assert all(reason.need and reason.have and reason.subject for reason in explanation.reasons)
        assert set(case.get("changes", ())) <= {change.change for change in explanation.changes}
        return
    plan = gpuenv.solve(request_of(case), host_of(case), options)
    choice = plan.choices[0]
    assert choice.version == case["torch"]
    assert choice.variant == case.get("variant", choice.variant)
    assert choice.cudnn == case.get("cudnn", choice.cudnn)
    versions = {pin.wheel.name: pin.wheel.version.partition("+")[0] for pin in plan.pins}
    assert {name: versions[name] for name in case.get("pins", {})} == case.get("pins", {})
    codes = {reason.code for item in plan.skipped for reason in item.reasons}
    assert codes.isdisjoint(case.get("not skipped", ()))
    if "skipped" in case:
        assert set(case["skipped"]) <= codes and (codes or not case["skipped"])
    assert {reason.code for reason in plan.warnings} == set(case.get("warnings", ()))
    assert all(pin.wheel.sha256 and len(pin.wheel.sha256) == 64 for pin in plan.pins)
    if case.get("default_index_only"):
        assert len({pin.wheel.index for pin in plan.pins}) == 1


GPUS = [
    "P100",
    "GTX 1080 Ti",
    "V100",
    "T4",
    "A100",
    "RTX 3090",
    "RTX 4090",
    "H100",
    "B200",
    "RTX 5090",
]
DRIVERS = [
    "470.57.02",
    "525.60.13",
    "535.54.03",
    "550.54.14",
    "570.26",
    "580.65.06",
    "595.45.04",
    "610.43.02",
]
PYTHONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]
hosts = st.fixed_dictionaries(
    {
        "framework": st.just(["torch"]),
        "gpu": st.lists(st.sampled_from(GPUS), min_size=1, max_size=2),
        "driver": st.sampled_from(DRIVERS),
        "python": st.sampled_from(PYTHONS),
        "default_index_only": st.booleans(),
    }
)
quick = settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)


def solved(case):
    try:
        return gpuenv.solve(request_of(case), host_of(case), changes=False)
    except gpuenv.NoSolutionError:
        return None


@quick
@given(hosts)
def test_a_lock_reads_back_the_same(case):
    plan = solved(case)
    if plan is None:
        return
    lock = gpuenv.lock(plan)
    text = pylock.dumps(lock)
    assert pylock.loads(text, "pylock.toml") == lock
    assert pylock.dumps(gpuenv.lock(gpuenv.solve(request_of(case), host_of(case)))) == text
    assert fit(lock, plan.host) == ()


@quick
@given(hosts, st.sampled_from(DRIVERS))
def test_a_newer_driver_never_loses_a_solution(case, driver):
    older, newer = sorted((case["driver"], driver), key=parse_release)
    dropped = any(
        (last := DATA.last_branches.get(gpu.compute_capability or (0, 0)))
        and driver_branch(newer) > last[0]
        for gpu in host_of(case).gpus
    )
    before, after = solved({**case, "driver": older}), solved({**case, "driver": newer})
    if before is not None and not dropped:
        assert [int(n) for n in after.choices[0].version.split(".")] >= [
            int(n) for n in before.choices[0].version.split(".")
        ]


@settings(quick, max_examples=examples(2))
@given(hosts)
def test_a_refusal_is_one_that_the_data_bears_out(case):
    """No torch build with a wheel for this interpreter runs on the host, tried one by one."""
    if solved(case) is not None:
        return
    builds = [build for build in DATA.builds("torch", "linux-x86_64") if build.cuda is not None]
    for build in builds:
        if case["default_index_only"] and build.index != "default":
            continue
        assert solved({**case, "framework": [f"torch=={build.local}"]}) is None
