"""The handwritten tables: bad releases, targets of toolkits, driver branches, GPU names."""

import re
import shutil
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

import gpuenv
from gpuenv.compat import data
from gpuenv.compat.data import within
from gpuenv.errors import GpuEnvError
from gpuenv.model import IndexOptions, Request, parse_pair
from hosts import host_of
from script_modules import load_script
from small_wheels import replace_in
from tables import ROOT, data_file, each, read_data

FOLDER = ROOT / "matrix_data"
CASES = data_file("versions.json")
DATA = data.load()


compile_matrix = load_script("data.compile")
RANGE = re.compile(load_script("data.toml_files").RANGE)


def toml(name):
    return read_data(FOLDER / name)


DRIVERS, TOOLKITS, GPUS, LIBRARIES = map(
    toml, ("drivers.toml", "toolkits.toml", "gpus.toml", "libraries.toml")
)


# ---- releases known to be bad


@each("text", CASES["refused"])
def test_what_is_no_range_is_refused(text):
    assert not RANGE.fullmatch(text)


releases = st.lists(st.integers(0, 20), min_size=1, max_size=4).map(
    lambda numbers: ".".join(map(str, numbers))
)
signs = st.sampled_from(["==", "<=", ">=", "<", ">"])
ranges = st.lists(st.builds(str.__add__, signs, releases), min_size=1, max_size=3).map(",".join)


@given(releases, ranges)
def test_ranges_mean_what_specifiers_of_final_releases_mean(version, versions):
    assert within(version, versions) == SpecifierSet(versions).contains(version)


def test_every_bad_row_can_count():
    """A row that no device or no known wheel can meet is refused as a mistake."""
    capabilities = set(DATA.capabilities()) | {parse_pair("10.7")}
    for row in LIBRARIES["bad"]:
        assert {parse_pair(one) for one in row.get("capabilities", ())} <= capabilities
    for row in LIBRARIES["bad_pair"]:
        assert not set(row["a"]["distributions"]) & set(row["b"]["distributions"])


# ---- what the solver makes of them


def plan_of(requirements, *gpus):
    host = host_of({"gpu": gpus, "driver": "580.65.06"})
    return gpuenv.solve(Request(requirements=tuple(requirements)), host, IndexOptions(offline=True))


def test_a_pair_is_kept_apart_on_several_gpus_only():
    one, several = (plan_of(["nvidia-cudnn-cu12==9.8.0.87"], *["H100"] * count) for count in (1, 2))
    assert within(one.versions["nvidia-cublas-cu12"], ">=12.9")
    assert within(several.versions["nvidia-cublas-cu12"], "<12.9")


def test_a_pair_that_is_asked_for_is_refused_with_its_reason():
    asked = ["nvidia-cudnn-cu12==9.8.0.87", "nvidia-cublas-cu12>=12.9"]
    assert plan_of(asked, "H100").pins
    with pytest.raises(gpuenv.NoSolutionError) as refusal:
        plan_of(asked, "H100", "H100")
    reasons = refusal.value.explanation.reasons
    pair = LIBRARIES["bad_pair"][0]
    assert {reason.code for reason in reasons} == {"bad-pair"}
    assert any(reason.need == pair["text"] for reason in reasons)


@each("gpu warned", [("B200", True), ("H100", False), ("RTX 5090", False)])
def test_a_release_to_avoid_is_taken_where_nothing_else_is_asked_for(gpu, warned):
    plan = plan_of(["nvidia-cublas-cu12>=12.8"], gpu)
    assert within(plan.versions["nvidia-cublas-cu12"], ">=12.8")
    assert [reason.code for reason in plan.warnings] == ["known-avoid"] * warned


def test_a_release_to_avoid_is_passed_over_where_another_fits():
    assert not plan_of(["nvidia-cublas"], "B200").warnings
    assert within(plan_of(["nvidia-cublas"], "B200").versions["nvidia-cublas"], ">=13.2")


# ---- toolkits and drivers


def test_one_row_for_each_toolkit_line():
    lines = {row["cuda"] for row in TOOLKITS["compiler"]}
    assert {row["version"].rpartition(".")[0] for row in TOOLKITS["toolkit"]} == lines


def test_toolkits_only_lose_old_targets_and_gain_new_ones():
    rows = [
        {int(re.sub("[af]", "", one)) for one in row["targets"]} for row in TOOLKITS["compiler"]
    ]
    for older, newer in pairwise(rows):
        assert all(lost < min(newer) for lost in older - newer - {101})  # 101 became 110
        assert 101 not in older - newer or 110 in newer
    # Specific and family targets have their plain one.
    for row in TOOLKITS["compiler"]:
        assert {re.sub("[af]", "", one) for one in row["targets"]} <= set(row["targets"])


def test_forward_compatibility_starts_from_branches_that_are_too_old():
    cuda = {row["branch"]: parse_pair(row["cuda"]) for row in DRIVERS["branch"]}
    for row in DRIVERS["forward_compat"]:
        assert all(cuda[branch] < parse_pair(row["cuda"]) for branch in row["branches"])
        assert row["classes"] == ["data-centre"]


def test_a_long_term_branch_outlives_those_around_it():
    rows = [
        row for row in DRIVERS["branch"] if "end_of_life" in row and row["kind"] != "new-feature"
    ]
    assert len(rows) > 10
    for row in rows:
        later = [other for other in rows if other["branch"] > row["branch"]]
        assert row["kind"] == "long-term" or all(
            other["end_of_life"] > row["end_of_life"] for other in later
        )


def test_gpu_names_have_a_class_and_data_centre_ones_no_other_name():
    for group in GPUS["group"]:
        if group["class"] == "data-centre":
            assert not [
                name for name in group["names"] if re.match("(GTX|RTX|Quadro|Jetson|GT) ", name)
            ]
        if group["class"] == "jetson":
            assert parse_pair(group["capability"]) in {(5, 3), (6, 2), (7, 2), (8, 7), (11, 0)}


# ---- what the compilation refuses

DAMAGE = data_file("tables/tables.json")["damage"]


@each("file old new message", DAMAGE, ids=[row[2].split("\n")[0] for row in DAMAGE])
def test_what_the_compilation_refuses(tmp_path, file, old, new, message):
    for source in (
        *FOLDER.glob("*.toml"),
        *FOLDER.glob("libraries/*.json"),
        *FOLDER.glob("frameworks/*"),
    ):
        target = tmp_path / source.relative_to(FOLDER)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(source, target)
    replace_in(tmp_path / file, old, new)
    with pytest.raises(GpuEnvError, match=re.escape(message)):
        list(compile_matrix.compiled(tmp_path))
    assert not (tmp_path / "tables.json").exists()


@each("case", CASES["within"], ids=lambda case: f"{case['version']} in {case['versions']}")
def test_versions_that_a_row_means(case):
    assert RANGE.fullmatch(case["versions"])
    assert within(case["version"], case["versions"]) == case["want"]


@each("case", CASES["sides"], ids=lambda case: f"{case['distribution']} {case['version']}")
def test_sides_of_bad_pairs(case):
    pairs = DATA.bad_pairs(case["distribution"], case["version"], 2)
    assert [side for _, side, _ in pairs] == case["want"]
