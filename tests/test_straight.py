"""The way without conflicts chooses what resolvelib chooses."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from resolvelib.reporters import BaseReporter
from resolvelib.resolvers import Resolver

import gpuenv
from gpuenv.errors import GpuEnvError
from gpuenv.model import IndexOptions, Request
from gpuenv.solver import resolving, straight
from gpuenv.solver.needs import Need
from gpuenv.solver.provider import Node, Provider

SETS = [
    ("torch",), ("tensorflow",), ("jax",), ("cupy",), ("onnxruntime",), ("torch", "jax"), ("jax", "cupy", "torch"),
    ("tensorflow", "jax"), ("torch", "tensorflow"), ("torch", "tensorflow", "jax", "cupy", "onnxruntime"),
]  # fmt: skip
HOSTS = [("P100", "525.147.05"), ("V100", "550.54.14"), ("T4", "580.65.06"), ("H100", "580.65.06"),
         ("B200", "570.86.15"), ("RTX 5090", "595.45.04"), ("none", None)]  # fmt: skip
OTHERS = ("torchvision", "torchaudio", "scipy", "keras", "numpy<2")


@pytest.mark.parametrize("frameworks", SETS, ids=["+".join(one) for one in SETS])
def test_both_choose_the_same(frameworks: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[Node] | None, list[Node] | None]] = []

    def both(provider: Provider, needs: list[Need]) -> list[Node] | None:
        mine = straight.walk(provider, needs)
        if mine is None:
            seen.append((None, None))
            return None
        # A provider of its own, that nothing has been asked yet.
        fresh = Provider(
            provider.shelf, list(provider.order), provider.limits, provider.widening, lenient=provider.lenient
        )
        fresh.within = provider.within
        resolver: Resolver[Need, Node, str] = Resolver(cast(Any, fresh), BaseReporter())
        seen.append((mine, list(resolver.resolve(needs, max_rounds=1000).mapping.values())))
        return mine

    monkeypatch.setattr(resolving, "walk", both)
    for gpu, driver in HOSTS:
        host = gpuenv.describe(gpus=[gpu], driver=driver, python="3.12", platform="linux-x86_64", glibc="2.39")
        for others in ((), OTHERS):
            try:
                request = Request(frameworks=frameworks, requirements=others)
                gpuenv.solve(request, host, IndexOptions(offline=True), changes=False)
            except GpuEnvError:
                continue
    went = [pair for pair in seen if pair[0] is not None]
    assert went
    for mine, theirs in went:
        assert list(map(repr, mine or ())) == list(map(repr, theirs or ()))


def test_most_cases_need_no_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the module would serve nothing: of the cases of torch alone nearly all go straight."""
    cases = json.loads((Path(__file__).parent / "data" / "solve.json").read_text())
    plain = [case for case in cases if case.get("framework") == ["torch"] and "torch" in case and "gpu" in case]
    straightly: list[bool] = []

    def counted(provider: Provider, needs: list[Need]) -> list[Node] | None:
        found = straight.walk(provider, needs)
        straightly.append(found is not None)
        return found

    monkeypatch.setattr(resolving, "walk", counted)
    for case in plain:
        host = gpuenv.describe(
            gpus=case["gpu"], driver=case.get("driver"), python=case.get("python", "3.12"),
            platform=case.get("platform", "linux-x86_64"), glibc="2.39",
        )  # fmt: skip
        gpuenv.solve(Request(frameworks=("torch",)), host, IndexOptions(offline=True), changes=False)
    assert len(straightly) >= 20
    assert sum(straightly) > 0.8 * len(straightly)
