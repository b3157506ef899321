"""Parts of a solve: what a request requires, doubts, hashes, and what a refusal reads again."""

import pytest

from gpuenv.errors import InputError, NoSolutionError, PackageIndexError
from gpuenv.model import Gpu, Request
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve.solver import solve
from tables import data_file, each
from test_resolution import DATA, HOST
from universe import BASE, Universe

TABLES = data_file("tables/solver.json")

WITH_GPU = HOST.replace(gpus=(Gpu(name="H100", compute_capability=(9, 0)),), driver="580.65.06")


def plan_for(packages, *requirements, on=HOST, **fields):
    request = Request(requirements=requirements, **fields)
    return solve(request, on, DATA, Universe(packages), TargetEnvironment, changes=False)


def test_an_empty_request_is_a_mistake():
    with pytest.raises(InputError, match="nothing to solve"):
        plan_for({"a": {"1.0": {}}})
    assert plan_for({"jax": {"0.6.2": {}}}, frameworks=("jax",)).versions == {"jax": "0.6.2"}


def test_a_local_version_of_another_package_stays_as_it_is():
    with pytest.raises(NoSolutionError):
        plan_for({"a": {"2.4.0": {}}}, "a==2.4.0+cu121")


CUDNN = "nvidia-cudnn-cu12"
DOUBTFUL = {
    # The data does not have cuDNN 99.0.
    CUDNN: {"9.5.1.17": {}, "99.0": {}},
    "app": {"1.0": {"requires": [CUDNN]}, "0.5": {}},
    "pinned": {"1.0": {"requires": [f"{CUDNN}==99.0"]}, "0.5": {}},
    "jax": {"0.6.2": {"requires": [CUDNN]}},
}
APP_AT_URL = f"app @ {BASE}app-1.0-py3-none-any.whl"


@each(
    "requirements expected warnings",
    [
        (("app",), {"app": "1.0", CUDNN: "9.5.1.17"}, []),
        ((APP_AT_URL,), {"app": "1.0", CUDNN: "9.5.1.17"}, []),
        (("app", CUDNN), {"app": "1.0", CUDNN: "99.0"}, ["library-unknown"]),
        (("pinned",), {"pinned": "1.0", CUDNN: "99.0"}, ["library-unknown"]),
        (("pinned<1",), {"pinned": "0.5"}, []),
    ],
)
def test_doubts_cost_older_dependencies_but_nothing_that_the_request_names(
    requirements, expected, warnings
):
    plan = plan_for(DOUBTFUL, *requirements, on=WITH_GPU)
    assert plan.versions == expected
    assert [reason.code for reason in plan.warnings] == warnings


@each(
    "text is_known",
    TABLES["hashes"],
)
def test_the_hash_of_a_url_counts_in_hash_checking_mode(text, is_known):
    packages = {"a": {"1.0": {}}, "b": {"1.0": {}}}
    universe = Universe(packages)
    [a], [b] = universe.files("a"), universe.files("b")
    requirement = text.format(base=BASE, sha256=a.sha256)
    hashes = (("b", (str(b.sha256),)),)
    fields = {"hashes": hashes, "require_hashes": True}
    if is_known:
        assert plan_for(packages, "b", requirement, **fields).versions.keys() == {"a", "b"}
        return
    with pytest.raises(InputError, match=r"no hash of a 1\.0") as error:
        plan_for(packages, "b", requirement, **fields)
    assert error.value.hint is not None and str(a.sha256) in error.value.hint


class Snapshot(Universe):
    """An index that may have left out releases of every package."""

    def at_hand(self, name):
        return self.has(name)


def test_the_data_refuse_a_gpu_stack_although_an_index_does_not_answer():
    """No index can change that answer. For another package, the index may have more releases."""
    packages = {"torch": {"2.9.0": {}}, "a": {"1.0": {}}, "b": {"1.0": {"requires": ["a>9"]}}}

    def widen(name):
        raise PackageIndexError(f"no answer about {name}")

    def answer(*requirements):
        request = Request(requirements=requirements)
        index = Snapshot(packages)
        return solve(request, HOST, DATA, index, TargetEnvironment, widen=widen, changes=False)

    with pytest.raises(PackageIndexError, match="no answer about a"):
        answer("b")
    with pytest.raises(PackageIndexError, match="no answer about a"):
        answer("torch==2.9.0", "b")
    with pytest.raises(NoSolutionError):
        answer("torch==2.5.99", "b")


@each("requirements subject", TABLES["a_refusal_names_the_requirements_as_they_were_written"])
def test_a_refusal_names_the_requirements_as_they_were_written(requirements, subject):
    packages = {"jax": {"0.6.2": {}}, "torch": {"2.9.0": {}}, "b": {"1.0": {}}}
    with pytest.raises(NoSolutionError) as refusal:
        plan_for(packages, *requirements)
    assert refusal.value.explanation.subject == subject
