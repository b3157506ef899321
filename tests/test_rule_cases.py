"""Rule cases: wheels, conda records and installed distributions give the same reasons."""

import pytest

from gpuenv import api
from gpuenv.compat import conda_parts, evaluate
from gpuenv.distributions import read_distributions
from gpuenv.errors import is_doubt
from gpuenv.model import Gpu, Host, Python, parse_pair
from small_wheels import write_record
from tables import data_file, each

TABLE = data_file("rule_cases.toml")
CASES = TABLE["case"]
DATA = api.compatibility_data()


def cases(field):
    """The cases that have a field, named for pytest."""
    rows = [case for case in CASES if field in case]
    return [pytest.param(case, id=f"{case['rule']}: {case['name']}") for case in rows]


def host_of(case):
    platform = case.get("platform", "linux-x86_64")
    names = [name for name in case["gpus"] if name != "none"]
    gpus = [Gpu(name=name, compute_capability=DATA.compute_capability(name)) for name in names]
    driver = case.get("driver")
    driver_cuda = DATA.driver_cuda(driver) if driver else None
    if "driver_cuda" in case:
        driver_cuda = parse_pair(case["driver_cuda"])
    return Host(
        os="windows" if platform.startswith("win") else "linux",
        machine=platform.partition("-")[2].replace("amd64", "x86_64"),
        python=Python(version=(3, 12)),
        gpus=tuple(gpus),
        driver=driver,
        driver_cuda=driver_cuda,
    )


def records_of(case):
    subdir = "linux-aarch64" if case.get("platform") == "linux-aarch64" else "linux-64"
    defaults = {"build": "0", "build_number": 0, "channel": "conda-forge", "subdir": subdir}
    return [{**defaults, **record} for record in case["records"]]


def check(case, reasons):
    reasons = list(reasons)
    assert {reason.code for reason in reasons} == set(case["codes"])
    assert all(reason.need and reason.have and reason.subject for reason in reasons)
    answer = "accept"
    if reasons:
        answer = "unknown" if all(map(is_doubt, reasons)) else "refuse"
    assert answer == case["answer"]


@each("case", cases("pins"))
def test_wheels(case):
    check(case, evaluate.pin_reasons(case["pins"], host_of(case), DATA))


@each("case", cases("pins"))
def test_installed(case, tmp_path):
    for name, version in case["pins"]:
        write_record(tmp_path, name.replace("-", "_").title(), version)
    rows = read_distributions([str(tmp_path)])
    pins = sorted((row.name, row.version) for row in rows)
    check(case, evaluate.pin_reasons(pins, host_of(case), DATA))


@each("case", cases("records"))
def test_conda(case):
    host, records = host_of(case), records_of(case)
    packages = conda_parts.packages_of_records(records, host.platform, DATA)
    check(case, evaluate.environment_reasons(packages, host, DATA))


# Reasons that a conda closure leaves to the choice of the build, or to the lock's needs.
NOT_OF_CLOSURES = {
    "cpu-build",
    "gpu-unused",
    "driver-unknown",
    "gpu-dropped-by-driver",
    "gpu-needs-newer-driver",
    "driver-branch-unknown",
}


@each("case", cases("records"))
def test_conda_closures_and_locks_give_these_reasons_too(case):
    host, records = host_of(case), records_of(case)
    by_package = conda_parts.closure_reasons(records, host, DATA, virtual=())
    assert by_package.keys() <= {record["name"] for record in records}
    codes = {reason.code for reasons in by_package.values() for reason in reasons}
    assert codes == set(case["codes"]) - NOT_OF_CLOSURES
    lock = {reason.code for reason in conda_parts.lock_reasons(records, host, DATA)}
    # A CUDA build asks for __cuda: its own record refuses a host without a GPU.
    expected = (set(case["codes"]) - {"cpu-build"}) | ({"cuda-build"} & lock)
    assert lock == expected
    assert ("cuda-build" in lock) == ("gpu-unused" in case["codes"])


@each("named", ["libcudnn", "libcublas"])
def test_a_bad_pair_replaces_the_package_that_the_user_did_not_name(named):
    (case,) = [case for case in CASES if case["codes"] == ["bad-pair"] and "records" in case]
    by_package = conda_parts.closure_reasons(
        records_of(case), host_of(case), DATA, virtual=(), keep={named}
    )
    (name,) = by_package
    assert name == {"libcudnn": "libcublas", "libcublas": "libcudnn"}[named]
    (reason,) = by_package[name]
    assert (reason.code, reason.subject, reason.have) == (
        "bad-pair",
        "libcudnn 9.8.0.87",
        "libcublas 12.9.1.4",
    )


def test_the_table_is_complete():
    answers = {}
    for case in CASES:
        answers.setdefault(case["rule"], set()).add(case["answer"])
        assert ("pins" in case) != ("wheels_na" in case), case["name"]
        assert ("records" in case) != ("conda_na" in case), case["name"]
    assert answers.keys() == TABLE["rules"].keys()
    numbers = range(1, len(TABLE["rules"]) + len(TABLE["elsewhere"]) + 1)
    assert {*TABLE["rules"], *TABLE["elsewhere"]} == {f"R{number}" for number in numbers}
    for rule, given in answers.items():
        unknown = set() if rule in TABLE["always_decided"] else {"unknown"}
        assert given == {"accept", "refuse"} | unknown
