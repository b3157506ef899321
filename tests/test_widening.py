"""The live index is asked for releases that the snapshot leaves out, and for nothing else."""

from collections.abc import Collection

import pytest

from gpuenv.errors import NoSolutionError, OfflineError, PackageIndexError
from gpuenv.index.multi_index import MultiIndex
from gpuenv.model import Request
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve import solver
from tables import cases, data_file
from test_resolution import DATA, HOST
from universe import Universe

TABLES = data_file("widening.toml")
SNAPSHOT = TABLES["snapshot"]
LIVE = {**SNAPSHOT, **TABLES["live"]}


class Shipped(Universe):
    """Stands for the snapshot, which knows its own files only."""

    def metadata(self, wheel):
        is_own = wheel.filename in [file.filename for file in self.files(wheel.name)]
        return super().metadata(wheel) if is_own else None


class Live(Universe):
    """A live index; `up` says whether it answers, `cached` which pages it has offline.

    `without_metadata` has the releases whose dependencies the cache lacks.
    """

    up = True
    cached: frozenset[str] | None = None
    without_metadata: Collection[str] = ()

    def known(self, wheel):
        """No metadata that the user gave."""

    def end_builds(self, seconds):
        """Nothing is built."""

    def metadata(self, wheel):
        if f"{wheel.name}-{wheel.version}" in self.without_metadata:
            raise OfflineError(f"the dependencies of {wheel.filename} are not in the cache")
        return super().metadata(wheel)

    def has(self, name):
        if self.cached is not None and name in SNAPSHOT and name not in self.cached:
            raise OfflineError("its page is not in the cache and --offline is on")
        self.asked.append(name)
        if not self.up and name in SNAPSHOT:
            raise PackageIndexError("the index does not answer")
        return super().has(name)


@cases(TABLES["case"])
def test_what_the_live_index_is_asked_for(case):
    live = Live(LIVE)
    live.up, live.without_metadata = case.get("up", True), case.get("without_metadata", ())
    live.cached = frozenset(case["cached"]) if "cached" in case else None
    index = MultiIndex(
        live, default=live, snapshot=Shipped(SNAPSHOT), offline=live.cached is not None
    )
    fields = {name: tuple(texts) for name, texts in case.get("request", {}).items()}
    request = Request(requirements=tuple(case["requires"]), **fields)

    def solve():
        return solver.solve(
            request, HOST, DATA, index, TargetEnvironment, widen=index.widen, changes=False
        )

    if "error" in case:
        with pytest.raises((NoSolutionError, OfflineError, PackageIndexError)) as error:
            solve()
        refused = isinstance(error.value, NoSolutionError)
        codes = [one.code for one in error.value.explanation.reasons] if refused else []
        assert codes == case["error"] if refused else case["error"] in str(error.value)
        return
    plan = solve()
    assert plan.versions == case["pins"]
    assert sorted(set(live.asked) & set(SNAPSHOT)) == case.get("asked", [])
    assert [one.code for one in plan.warnings] == case.get("warnings", [])


def test_a_name_that_was_widened_stays_so_beside_its_own_builds() -> None:
    live = Live(LIVE)
    index = MultiIndex(live, default=live, snapshot=Shipped(SNAPSHOT))
    assert index.widen("torch")
    index.read_own(["torch"])
    assert "1.12.1" in {file.version for file in index.files("torch")}
