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


def test_the_record_has_no_wrong_choice() -> None:
    record = json.loads((DOCS / "records" / "wheel-variants.json").read_text())
    order, grid, settings = record["order"], record["grid"], record["settings"]
    assert order["releases"] == order["same order as variantlib"] == 2000
    assert order["installed by uv"] == order["same first variant as uv"]
    assert grid["choices"] == grid["gpuenv right"] == len(HOSTS) * len(PACKAGES)
    assert grid["choices"] - grid["uv right"] == len(grid["uv wrong"])
    assert settings["expressible"] == settings["same choice by uv"]
    cpu = record["cpu"]
    assert cpu["features"] == cpu["same values"] and cpu["same order of all"]


def test_the_record_explains_each_difference_to_the_conformance_material() -> None:
    record = json.loads((DOCS / "records" / "wheel-variants.json").read_text())["conformance"]
    data = tomllib.loads(CONFORMANCE.read_text())
    provider = record["provider"]
    for part in ("choice", "metadata"):
        cases = len(data[part])
        assert record[part]["gpuenv"] == {"asked": cases, "agrees": cases}
        assert all(row["why"] != "unexplained" for row in record[part]["differences"])
    count = len(data["provider"])
    assert provider["cases"] == provider["reference as recorded"] == count
    assert provider["same answer"] + len(provider["differences"]) == count
