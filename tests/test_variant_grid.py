"""Every package of variant wheels on every host of the grid: the wheel that runs on all devices."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuenv
from gpuenv.errors import NoSolutionError
from gpuenv.model import IndexOptions, Request
from tables import HERE
from variant_grid import HOSTS, PACKAGES, describe, make_packages, right_labels

DOCS = Path(__file__).parent.parent / "docs"
CONFORMANCE = Path(__file__).parent / "data" / "variant_conformance.toml"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexOptions]:
    folder = tmp_path_factory.mktemp("grid")
    make_packages(folder)
    yield IndexOptions(no_index=True, find_links=(str(folder),))


def test_the_grid_has_forty_hosts_and_ten_packages() -> None:
    assert (len(HOSTS), len(PACKAGES)) == (40, 10)


@pytest.mark.parametrize("name", HOSTS)
def test_the_wheel_that_runs_on_all_devices(name: str, options: IndexOptions) -> None:
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


def test_the_record_explains_each_difference_to_the_reference_implementations() -> None:
    """`tools.py prove variants --record docs/records/wheel-variants.json` writes the record."""
    record = json.loads((DOCS / "records" / "wheel-variants.json").read_text())
    data = tomllib.loads(CONFORMANCE.read_text())
    assert record["order"] == {"releases": 2000, "other order": 0}
    assert record["conformance"]["metadata"] == len(data["metadata"])
    assert all(record["conformance"]["differences"].values())
    assert record["provider"]["cases"] == len(data["provider"])
