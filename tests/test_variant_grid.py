"""Every package of variant wheels on every host of the grid: the wheel that runs on all devices."""

import pytest

import gpuenv
from gpuenv.errors import NoSolutionError
from gpuenv.model import IndexOptions, Request
from tables import HERE, each
from variant_grid import HOSTS, PACKAGES, describe, make_packages, right_labels


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid")
    make_packages(folder)
    yield IndexOptions(no_index=True, find_links=(str(folder),))


def test_the_grid_has_forty_hosts_and_ten_packages():
    assert (len(HOSTS), len(PACKAGES)) == (40, 10)


@each("name", [*HOSTS])
def test_the_wheel_that_runs_on_all_devices(name, options):
    host = describe(name, HERE)
    chosen, right = {}, {}
    for package in PACKAGES:
        right[package] = next(iter(right_labels(package, name)), "no solution")
        try:
            plan = gpuenv.solve(Request(requirements=(package,)), host, options, changes=False)
        except NoSolutionError:
            chosen[package] = "no solution"
        else:
            labels = [variant.label for variant in plan.variants]
            chosen[package] = labels[0] if labels else ""
    assert chosen == right
