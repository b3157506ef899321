"""The compatibility rules: replayed cases, and laws that hold for all inputs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuenv.compat import data as matrix
from gpuenv.compat import evaluate, rules
from gpuenv.compat.architectures import driver_branch, parse_target, ptx_runs, sass_runs
from gpuenv.model import Code, Gpu, Host, Python, parse_pair, parse_release
from tables import data_file, each, read_data

CASES = data_file("rules.json")
DATA = matrix.load()
TABLES = read_data(Path(DATA.folder) / "tables.json")
ORDER = {None: 0, "unknown": 1, "ptx": 2, "sass": 3}


def pair(text):
    return None if text is None else parse_pair(text)


def code(case):
    if "library" in case:
        library = DATA.library(*case["library"])
        return library.code
    if "build" in case:
        build = DATA.build(*case["build"])
        return build.code
    return plain_code(case["code"])


def plain_code(data):
    lists = {name: None if data[name] is None else tuple(data[name]) for name in ("sass", "ptx")}
    return Code(**lists, made_by=pair(data["made_by"]))


def gpus(case):
    return tuple(Gpu(name=f"GPU of {one}", compute_capability=pair(one)) for one in case["gpus"])


def codes(reasons):
    return [reason.code for reason in reasons]


def host(driver, gpus=()):
    return Host(python=Python(version=(3, 12)), driver=driver, gpus=gpus)


def driver_reasons(case):
    cuda = parse_pair(case["cuda"])
    return codes(
        rules.driver_reasons("x", cuda, host(case["driver"]), DATA.driver_floor(cuda, case["os"]))
    )


def host_reasons(case):
    return codes(evaluate.host_reasons(host(case["driver"], gpus(case)), DATA))


def library_reasons(case):
    library = DATA.library(*case["library"])
    return codes(evaluate.library_reasons("x", library, host(case["driver"], gpus(case)), DATA))


def owner_reasons(case):
    pins = [(name, "9.10.2.21") for name in case["distributions"]]
    return codes(evaluate.pin_reasons(pins, host(None), DATA))


def targets_serving(code, gpus, driver_cuda):
    """Return the targets of `code` that run on a device of `gpus`, SASS first."""
    devices = [gpu.compute_capability for gpu in gpus if gpu.compute_capability is not None]
    compiled = driver_cuda is not None and code.made_by is not None and driver_cuda >= code.made_by
    sass = [
        f"sm_{target}"
        for target in code.sass or ()
        if any(sass_runs(target, one) for one in devices)
    ]
    ptx = [
        f"compute_{t}"
        for t in code.ptx or ()
        if compiled and any(ptx_runs(t, one) for one in devices)
    ]
    return (*sass, *ptx)


CALLS = {
    "serves": lambda case: rules.serves(
        code(case), pair(case["capability"]), pair(case["driver_cuda"])
    ),
    "serves_all": lambda case: rules.serves_all(
        map(plain_code, case["codes"]), pair(case["capability"]), pair(case["driver_cuda"])
    ),
    "serving": lambda case: list(
        targets_serving(code(case), gpus(case), pair(case["driver_cuda"]))
    ),
    "device_reasons": lambda case: codes(
        rules.device_reasons(
            "x", code(case), host(None, gpus(case)).replace(driver_cuda=pair(case["driver_cuda"]))
        )
    ),
    "device_tier": lambda case: evaluate.device_tier(
        code(case), host(None, gpus(case)).replace(driver_cuda=pair(case["driver_cuda"]))
    ),
    "library_reasons": library_reasons,
    "driver_reasons": driver_reasons,
    "host_reasons": host_reasons,
    "cudnn_reasons": lambda case: codes(rules.cudnn_reasons("x", case["build"], case["runtime"])),
    "owner_reasons": owner_reasons,
}


@each("case", CASES, ids=[f"{case['call']}: {case['name']}" for case in CASES])
def test_case(case):
    assert CALLS[case["call"]](case) == case["want"]


def test_cases_cover_every_rule_and_have_names_of_their_own():
    assert {case["rule"] for case in CASES} == {f"R{number}" for number in range(1, 8)}
    names = [(case["call"], case["name"]) for case in CASES]
    assert len(set(names)) == len(names)


@each("text", ["", "9", "a", "sm_90", "90b", "1000", "9 0", "90af"])
def test_what_is_no_target_is_refused(text):
    with pytest.raises(ValueError, match="is not a target"):
        parse_target(text)


# ---- laws

targets = st.sampled_from(
    sorted({target for compiler in TABLES["compilers"].values() for target in compiler})
)
lists = st.none() | st.lists(targets, max_size=5).map(tuple)
cudas = st.tuples(st.integers(11, 14), st.integers(0, 9))
built = st.builds(
    lambda sass, ptx, made: Code(sass=sass, ptx=ptx, made_by=made), lists, lists, st.none() | cudas
)
capabilities = targets.map(lambda target: parse_target(target)[0])


@given(built, capabilities, cudas, cudas)
def test_a_newer_driver_takes_nothing_away(of, capability, one, other):
    older, newer = sorted((one, other))
    assert ORDER[rules.serves(of, capability, older)] <= ORDER[rules.serves(of, capability, newer)]


@given(built, capabilities, cudas, targets)
def test_more_code_takes_nothing_away(of, capability, driver, extra):
    more = of.replace(sass=None if of.sass is None else (*of.sass, extra))
    assert (
        ORDER[rules.serves(of, capability, driver)] <= ORDER[rules.serves(more, capability, driver)]
    )


@given(targets)
def test_code_runs_on_the_device_that_it_names(target):
    device = parse_target(target)[0]
    assert sass_runs(target, device)
    assert ptx_runs(target, device)


@given(targets, capabilities)
def test_sass_never_leaves_its_major_nor_goes_back(target, device):
    made_for = parse_target(target)[0]
    if sass_runs(target, device):
        assert made_for[0] == device[0]
        assert made_for <= device


@given(targets.filter(lambda target: target.endswith("a")), capabilities)
def test_architecture_specific_code_stays_where_it_is(target, device):
    assert sass_runs(target, device) == ptx_runs(target, device)
    assert sass_runs(target, device) == (parse_target(target)[0] == device)


@given(st.lists(built, max_size=4), capabilities, cudas)
def test_the_worst_member_counts(members, capability, driver):
    worst = rules.serves_all(members, capability, driver)
    assert all(
        ORDER[worst] <= ORDER[rules.serves(member, capability, driver)] for member in members
    )
    assert not members or worst in [rules.serves(member, capability, driver) for member in members]


@given(built, st.lists(capabilities, max_size=4), st.none() | cudas)
def test_a_device_has_a_reason_or_a_target(of, devices, driver):
    """R6: no device is passed over, and nothing is said against a device that a target serves."""
    for device in devices:
        gpu = (Gpu(name="one", compute_capability=device),)
        reasons = rules.device_reasons("x", of, host(None, gpu).replace(driver_cuda=driver))
        assert bool(reasons) != bool(targets_serving(of, gpu, driver))
        assert all(reason.source and reason.need and reason.have for reason in reasons)


numbers = st.tuples(st.integers(450, 610), st.integers(0, 200), st.integers(0, 20))
releases = numbers.map("{0[0]}.{0[1]}.{0[2]:02}".format)


@given(
    releases,
    releases,
    st.sampled_from([(11, 8), (12, 4), (13, 0)]),
    st.sampled_from(["linux", "windows"]),
)
def test_a_newer_driver_meets_every_floor_that_an_older_one_meets(one, other, cuda, os):
    older, newer = sorted((one, other), key=parse_release)
    floor = DATA.driver_floor(cuda, os)
    if not rules.driver_reasons("x", cuda, host(older), floor):
        assert not rules.driver_reasons("x", cuda, host(newer), floor)
    assert (DATA.driver_cuda(older) or (0, 0)) <= (DATA.driver_cuda(newer) or (0, 0))


@given(releases, capabilities)
def test_a_known_branch_drives_what_came_before_it_and_what_it_has_not_dropped(release, device):
    gpu = Gpu(name="one", compute_capability=device)
    branch = driver_branch(release)
    first, last = DATA.first_branches.get(device), DATA.last_branches.get(device)
    expected = []
    if first is not None and branch < first[0]:
        expected.append("gpu-needs-newer-driver")
    if last is not None and branch > last[0]:
        expected.append("gpu-dropped-by-driver")
    assert codes(evaluate.host_reasons(host(release, (gpu,)), DATA)) == expected
