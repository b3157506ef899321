"""Which changes of a host and of a request are tried, and in which order.

In most tests, the function that solves a changed request has a plan for what a case says.
"""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import gpuenv
from gpuenv.errors import NoSolutionError, Reason
from gpuenv.model import Host, Plan, Request
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve.explain import Trials
from gpuenv.resolve.graph import NodeRequirement, PackageId
from gpuenv.resolve.resolution import ImpossibleError
from gpuenv.resolve.solver import solve
from gpuenv.resolve.suggestions import Alternatives, smallest_changes
from test_resolution import DATA, solved
from universe import Universe

HOST = gpuenv.describe(
    gpus=["H100"], driver="550.54.14", python="3.12", platform="linux-x86_64", glibc="2.35"
)
PLAN = solved({"packages": {"a": {"1.0": {}}}, "requires": ["a"], "target": {"python": "3.12"}})


def reason(code: str, subject: str = "a") -> Reason:
    return Reason(code=code, subject=subject, need="b", have="c")


def impossible(
    roots: Sequence[NodeRequirement], sparse: object, max_conflicts: int
) -> list[object]:
    raise ImpossibleError(PackageId("a"), ())


def changes(
    code: str,
    solve: Callable[[Request, Host], Plan | None],
    request: Request | None = None,
    host: Host = HOST,
    subject: str = "a",
) -> list[str]:
    asked = request or Request(requirements=("a",))
    alternatives = Alternatives(asked, host, DATA, lambda request: [], solve)
    trials = Trials(impossible, 10)  # type: ignore[arg-type]
    return [
        one.change for one in smallest_changes(alternatives, trials, (), [reason(code, subject)])
    ]


def on(**fields: object) -> Callable[[Request, Host], Plan | None]:
    """Return a solver that has a plan for hosts with these fields."""

    def solve(request: Request, host: Host) -> Plan | None:
        return PLAN if all(getattr(host, name) == value for name, value in fields.items()) else None

    return solve


@pytest.mark.parametrize("code", ["platform", "no-wheel-for-target", "no-wheel", "two-owners"])
def test_linux_on_a_windows_host_is_offered_where_wheels_are_for_another_platform(
    code: str,
) -> None:
    windows = HOST.replace(os="windows")
    offered = changes(code, on(os="linux"), host=windows)
    expected = [] if code == "two-owners" else ["Linux in WSL 2 (--platform linux-x86_64)"]
    assert offered == expected
    assert changes(code, on(os="windows", virtualization="wsl2")) == []


@pytest.mark.parametrize("oldest", ["555.00", "570.00", "580.65.06", "590.00"])
def test_the_oldest_driver_that_helps_is_offered(oldest: str) -> None:
    def solve(request: Request, host: Host) -> Plan | None:
        return PLAN if host.driver is not None and host.driver >= oldest else None

    branch = oldest.partition(".")[0]
    change = f"a driver of branch R{branch} or newer"
    if oldest == "580.65.06":
        change = "driver 580.65.06 or newer"
    assert changes("driver-floor", solve)[0] == change
    host = HOST.replace(driver="615.10.01")
    assert not any("driver" in one for one in changes("driver-floor", solve, host=host))


# ---- edits of the request, in a small universe ---------------------------------------------------

EDITED = tomllib.loads((Path(__file__).parent / "data" / "suggestions.toml").read_text())
NO_GPU = gpuenv.describe(gpus=["none"], python="3.12", platform="linux-x86_64", glibc="2.35")


@pytest.mark.parametrize("case", EDITED["edit"], ids=lambda case: str(case["request"]))
def test_the_smallest_edits_of_a_request(case: dict[str, Any]) -> None:
    request = Request(**{field: tuple(texts) for field, texts in case["request"].items()})
    with pytest.raises(NoSolutionError) as refusal:
        solve(request, NO_GPU, DATA, Universe(EDITED["packages"]), TargetEnvironment)
    found = [[one.change, one.gives] for one in refusal.value.explanation.changes]
    assert found == case["changes"]


MISSPELLED = [
    ("tourch", "tourch>=2.9", "torch>=2.9", "torch instead of tourch"),
    (
        "tensor-flow",
        "tensor-flow[and-cuda]",
        "tensorflow[and-cuda]",
        "tensorflow instead of tensor-flow",
    ),
    (
        "xfromers",
        "xfromers; sys_platform == 'linux'",
        "xformers; sys_platform == 'linux'",
        "xformers instead of xfromers",
    ),
    ("private-tools", "private-tools", "", ""),
]


@pytest.mark.parametrize(("name", "text", "renamed", "change"), MISSPELLED)
def test_a_name_that_no_index_has_may_be_misspelled(
    name: str, text: str, renamed: str, change: str
) -> None:
    def solve(asked: Request, host: Host) -> Plan | None:
        return PLAN if asked.requirements == (renamed, "numpy") else None

    request = Request(requirements=(text, "numpy"))
    assert changes("not-in-index", solve, request, subject=name) == ([change] if change else [])
