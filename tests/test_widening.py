"""The live index is asked for releases that the snapshot leaves out, and for nothing else."""

from collections.abc import Collection
from typing import Any

import pytest

from gpuenv.errors import NoSolutionError, OfflineError, PackageIndexError
from gpuenv.index.multi_index import MultiIndex
from gpuenv.index.protocol import Metadata
from gpuenv.model import Host, Plan, Python, Request, Wheel
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve import solver
from test_resolution import DATA, versions
from universe import Universe

HOST = Host(glibc=(2, 28), python=Python(version=(3, 12), full_version="3.12.4"))
SNAPSHOT: dict[str, Any] = {
    "np": {"1.26": {}, "2.0": {}},
    "mid": {"1.15": {}, "1.26": {}},
    "sp": {"1.0": {"requires": ["np>=1.26"]}},
    "old": {"1.0": {"tags": ["cp39-cp39-manylinux_2_17_x86_64"]}},
    "torch": {"2.9.0": {}},
    "torchvision": {"0.24.0": {"requires": ["torch==2.9.0"]}},
    "jax": {"0.8.0": {}},
}
LIVE: dict[str, Any] = {
    **SNAPSHOT,
    "np": {"1.14": {}, "1.19": {}, "1.26": {}, "2.0": {}, "2.1": {}},
    "mid": {"1.15": {}, "1.19": {}, "1.26": {}},
    "old": {"1.0": {}, "2.0": {}},
    "torch": {"1.0.0": {}, "1.12.1": {}, "2.9.0": {}},
    "torchvision": {"0.13.1": {"requires": ["torch==1.12.1"]}, "0.24.0": {}},
    "jax": {"0.4.20": {}, "0.8.0": {}},
    "app": {"1.0": {"requires": ["np"]}, "2.0": {"requires": ["np<1.20"]}},
    "narrow": {"1.0": {"requires": ["mid<1.20", "mid>1.15"]}},
    "clash": {"1.0": {"requires": ["mid<1.20"]}, "0.5": {}},
    "torchy": {"1.0": {"requires": ["torch<1.5"]}, "0.5": {"requires": ["torch"]}},
    "torch-old": {"1.0": {"requires": ["torch<2"]}, "0.5": {"requires": ["torch"]}},
    "named": {"1.0": {}, "2.0": {"requires": ["nowhere>=1"]}},
    "pair": {"1.0": {"requires": ["np==1.26"]}, "2.0": {"requires": ["np==1.19"]}},
    "oldy": {"1.0": {"requires": ["old"]}, "0.5": {}},
}


class Shipped(Universe):
    """Stands for the snapshot, which knows its own files only."""

    def metadata(self, wheel: Wheel) -> Metadata | None:  # type: ignore[override]
        is_own = wheel.filename in [file.filename for file in self.files(wheel.name)]
        return super().metadata(wheel) if is_own else None


class Live(Universe):
    """A live index; `up` says whether it answers, `cached` which pages it has offline.

    `without_metadata` has the releases whose dependencies the cache lacks.
    """

    label = "live"
    up = True
    cached: frozenset[str] | None = None
    without_metadata: Collection[str] = ()

    def metadata(self, wheel: Wheel) -> Metadata:
        if f"{wheel.name}-{wheel.version}" in self.without_metadata:
            raise OfflineError(f"the dependencies of {wheel.filename} are not in the cache")
        return super().metadata(wheel)

    def has(self, name: str) -> bool:
        if self.cached is not None and name in SNAPSHOT and name not in self.cached:
            raise OfflineError("its page is not in the cache and --offline is on")
        self.asked.append(name)
        if not self.up and name in SNAPSHOT:
            raise PackageIndexError("the index does not answer")
        return super().has(name)


def solve(
    *requires: str,
    up: bool = True,
    cached: frozenset[str] | None = None,
    without_metadata: Collection[str] = (),
    **fields: Any,
) -> tuple[Plan, set[str]]:
    """The plan, and the names of the snapshot that the live index was asked for."""
    live = Live(LIVE)
    live.up, live.cached, live.without_metadata = up, cached, without_metadata
    offline = cached is not None
    index = MultiIndex(live, default=live, snapshot=Shipped(SNAPSHOT), offline=offline)
    request = Request(requirements=requires, **fields)
    plan = solver.solve(
        request, HOST, DATA, index, TargetEnvironment, widen=index.widen, changes=False
    )
    return plan, set(live.asked) & set(SNAPSHOT)


def test_a_users_requirement_outside_the_snapshot() -> None:
    assert versions(solve("np==1.19")[0]) == {"np": "1.19"}


def test_a_dependency_outside_the_snapshot() -> None:
    plan, asked = solve("app")
    assert versions(plan) == {"app": "2.0", "np": "1.19"}
    assert asked == {"np"}
    assert plan.warnings == ()


def test_a_range_that_only_two_needs_make_together() -> None:
    assert versions(solve("narrow")[0]) == {"narrow": "1.0", "mid": "1.19"}
    assert versions(solve("clash", "mid>1.15")[0]) == {"clash": "1.0", "mid": "1.19"}


def test_the_snapshot_is_enough_where_it_has_a_release() -> None:
    plan, asked = solve("sp", "np<2")
    assert (versions(plan), asked) == ({"sp": "1.0", "np": "1.26"}, set())


def test_a_release_without_a_wheel_for_the_target_may_have_a_source_distribution() -> None:
    plan, asked = solve("oldy")
    assert (versions(plan), asked) == ({"oldy": "1.0", "old": "2.0"}, {"old"})
    plan, asked = solve("oldy", no_build=(":all:",))
    assert (versions(plan), asked) == ({"oldy": "0.5"}, set())


def test_a_dependency_gets_builds_that_the_data_has() -> None:
    plan, asked = solve("torchy")
    assert (versions(plan), asked) == ({"torchy": "0.5", "torch": "2.9.0"}, set())
    plan, asked = solve("torch-old")
    assert versions(plan) == {"torch-old": "1.0", "torch": "1.12.1"}
    assert asked == {"torch", "torchvision"}


@pytest.mark.parametrize(
    ("requires", "pins"),
    [
        (("torch==1.12.1",), {"torch": "1.12.1"}),
        (("torch==1.0.0",), {"torch": "1.0.0"}),
        (("torch==1.12.1", "torchvision"), {"torch": "1.12.1", "torchvision": "0.13.1"}),
        (("jax==0.4.20",), {"jax": "0.4.20"}),
    ],
)
def test_a_framework_older_than_the_snapshot(
    requires: tuple[str, ...], pins: dict[str, str]
) -> None:
    assert versions(solve(*requires)[0]) == pins


@pytest.mark.parametrize("name", ["torch==1.12.1", "jax==0.4.25"])
def test_an_old_release_of_a_framework_needs_the_network(name: str) -> None:
    with pytest.raises(PackageIndexError, match="does not answer"):
        solve(name, up=False)
    with pytest.raises(OfflineError):
        solve(name, cached=frozenset())


def test_an_index_that_does_not_answer_is_a_doubt_where_there_is_another_way() -> None:
    plan, _ = solve("app", up=False)
    assert versions(plan) == {"app": "1.0", "np": "2.0"}
    assert [(one.code, one.subject, one.have) for one in plan.warnings] == [
        ("index-unknown", "np", "the index does not answer")
    ]


def test_and_an_error_where_there_is_none() -> None:
    with pytest.raises(PackageIndexError, match="does not answer"):
        solve("app==2.0", up=False)
    with pytest.raises(PackageIndexError, match="does not answer"):
        solve("np==1.19", up=False)


def test_offline_the_snapshot_is_all_there_is() -> None:
    plan, asked = solve("app", cached=frozenset())
    assert (versions(plan), asked) == ({"app": "1.0", "np": "2.0"}, set())


def test_offline_a_page_that_is_missing_is_no_refusal() -> None:
    with pytest.raises(OfflineError, match="its page is not in the cache"):
        solve("np==1.19", cached=frozenset())


def test_offline_the_pages_in_the_cache_are_used() -> None:
    plan, asked = solve("app", cached=frozenset({"np"}))
    assert (versions(plan), asked) == ({"app": "2.0", "np": "1.19"}, {"np"})


def test_offline_a_release_without_metadata_in_the_cache_is_passed_over() -> None:
    plan, _ = solve("np<1.20", cached=frozenset({"np"}), without_metadata={"np-1.19"})
    assert versions(plan) == {"np": "1.14"}
    assert [(one.version, one.reasons[0].code) for one in plan.skipped] == [("1.19", "not-cached")]
    with pytest.raises(OfflineError, match="dependencies of np"):
        solve("np==1.19", cached=frozenset({"np"}), without_metadata={"np-1.19"})


def test_offline_the_snapshot_has_the_metadata_of_its_files() -> None:
    unknown = {f"np-{version}" for version in LIVE["np"]}
    plan, asked = solve("pair", cached=frozenset({"np"}), without_metadata=unknown)
    assert (versions(plan), asked) == ({"pair": "1.0", "np": "1.26"}, {"np"})


def test_an_index_that_fails_for_a_name_of_the_user_is_an_error() -> None:
    """Another name would be a doubt: see below."""
    assert versions(solve("pair", "np")[0]) == {"pair": "2.0", "np": "1.19"}
    with pytest.raises(PackageIndexError, match="does not answer"):
        solve("pair", "np", up=False)
    plan, asked = solve("pair", up=False)
    assert (versions(plan), asked) == ({"pair": "1.0", "np": "1.26"}, {"np"})


@pytest.mark.parametrize(
    "fields", [{"requirements": ("torch==99",)}, {"frameworks": ("torch==99",)}]
)
def test_an_index_that_does_not_answer_cannot_supply_another_gpu_stack(
    fields: dict[str, Any],
) -> None:
    requirements = (*fields.pop("requirements", ()), "app==2.0")
    with pytest.raises(NoSolutionError) as refusal:
        solve(*requirements, up=False, **fields)
    assert "no-version" in {reason.code for reason in refusal.value.explanation.reasons}
    with pytest.raises(PackageIndexError):
        solve("torch", "app==2.0", up=False)
