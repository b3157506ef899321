"""The rules over pins alone: replayed cases, and agreement with the solver."""

from itertools import combinations

import gpuenv
from gpuenv.errors import is_doubt
from gpuenv.lock.host_fit import fit
from hosts import host_of
from tables import cases, data_file, each
from test_solve import CASES as SOLVES
from test_solve import request_of

TABLES = data_file("tables/host_fit.json")

CASES = data_file("host_fit.json")
DRIVERS_OF_PTX = (
    "525.60.13", "535.43.02", "545.23.06", "550.40.07", "550.54.14", "555.42.02", "560.35.05",
    "570.26", "575.51.02", "575.57.08", "580.65.06", "590.48.01", "595.58.03",
)  # fmt: skip
OTHERS = [
    host_of({"gpu": gpus, "driver": "580.65.06"}) for gpus in (["V100"], ["T4"], ["H100"], ["B200"])
]


@cases(CASES)
def test_cases(case):
    reasons = gpuenv.reasons_against(
        [(name, version) for name, version in case["pins"]], host_of(case)
    )
    found = {}
    for reason in reasons:
        found.setdefault(reason.code, []).append(reason.subject)
        assert reason.need and reason.have
    assert found == case["codes"]


@cases([case for case in SOLVES if "refused" not in case])
def test_nothing_speaks_against_a_plan_but_its_warnings(case):
    plan = gpuenv.solve(request_of(case), host_of(case), changes=False)
    pins = [*plan.versions.items()]
    known = {"driver-unknown", *(reason.code for reason in plan.warnings)}
    assert {reason.code for reason in gpuenv.reasons_against(pins, plan.host)} <= known
    lock = gpuenv.lock(plan)
    for host in OTHERS if plan.host.gpus else ():
        # What the lock's own needs let through is not refused by the rules either.
        elsewhere = plan.host.replace(
            gpus=host.gpus, driver=host.driver, driver_cuda=host.driver_cuda
        )
        if not fit(lock, elsewhere):
            assert all(is_doubt(reason) for reason in gpuenv.reasons_against(pins, elsewhere))


@each("framework gpu platform", TABLES["a_lock_fits_older_drivers_that_give_the_same_plan"])
def test_a_lock_fits_older_drivers_that_give_the_same_plan(framework, gpu, platform):
    plans = {}
    for driver in DRIVERS_OF_PTX:
        glibc = "2.39" if platform.startswith("linux") else None
        facts = {"gpu": [gpu], "driver": driver, "platform": platform, "glibc": glibc}
        host, request = host_of(facts), gpuenv.Request(frameworks=(framework,))
        try:
            plans[driver] = gpuenv.solve(request, host, changes=False)
        except gpuenv.NoSolutionError:
            continue
    assert len(plans) > 1
    for older, newer in combinations(plans.values(), 2):
        if older.pins == newer.pins:
            assert fit(gpuenv.lock(newer), older.host) == ()
