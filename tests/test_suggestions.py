"""Which changes of a host and of a request are tried, and in which order.

In most tests, the function that solves a changed request has a plan for what a case says.
"""

from collections.abc import Callable, Sequence
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
from universe import RecordingUniverse, Universe

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


@pytest.mark.parametrize(
    ("oldest_need", "change", "most"),
    [
        # The releases 1.6.x and older do not need b 2.0.
        ("1.7.0", "a 1.6.29 instead of a==1.29.29", 60),
        # Only 1.0.0 does not need it, which is not the newest of its series.
        ("1.0.1", "a 1.0.0 instead of a==1.29.29", 1000),
        ("1.0.0", None, 1000),
    ],
)
def test_a_release_of_hundreds_is_found_by_the_newest_of_each_minor_series(
    oldest_need: str, change: str | None, most: int
) -> None:
    releases: dict[str, Any] = {}
    for minor in range(30):
        for micro in range(30):
            needs = (minor, micro) >= tuple(map(int, oldest_need.split(".")[1:]))
            releases[f"1.{minor}.{micro}"] = {"requires": ["b>=2"] * needs}
    universe = RecordingUniverse({"a": releases, "b": {"1.0": {}, "2.0": {}}})
    request = Request(requirements=("a==1.29.29", "b<2"))
    with pytest.raises(NoSolutionError) as refusal:
        solve(request, HOST, DATA, universe, TargetEnvironment)
    offered = [one.change for one in refusal.value.explanation.changes]
    assert [text for text in offered if text.startswith("a ")] == ([change] if change else [])
    assert "b 2.0 instead of b<2" in offered
    assert len(set(universe.read)) <= most


# ---- edits of the request, in a small universe ---------------------------------------------------

EDITED: dict[str, Any] = {
    "a": {"1.0": {}, "2.0": {"requires": ["c<2"]}},
    "b": {"1.0": {"requires": ["c>=2"]}},
    "c": {"1.0": {}, "2.0": {}, "3.0": {}},
    "d": {"1.0": {}, "1.5": {"requires": ["e>=2"]}},
    "e": {"1.0": {}, "2.0": {}},
    "f": {"1.0": {"requires": ["c==3.0"]}},
    "t": {"1.0": {"requires": ["s1"]}, "2.0": {"requires": ["s2", "u"]}},
    "u": {"1.0": {}},
    "v": {"1.0": {"requires": ["a<2"]}},
    "jax": {"0.6.2": {"requires": ["jaxlib==0.6.2"]}},
    "jaxlib": {"0.6.2": {}},
    **{f"s{number}": {"1.0": {"wheel": False, "sdist": True}} for number in range(1, 5)},
}
NO_GPU = gpuenv.describe(gpus=["none"], python="3.12", platform="linux-x86_64", glibc="2.35")
EDITS: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    (
        {"requirements": ("a==2.0", "b")},
        [("a 1.0 instead of a==2.0", "a 1.0, b 1.0"), ("without b", "a 2.0")],
    ),
    # The requirements of the user are left out last.
    (
        {"requirements": ("a", "b", "u"), "constraints": ("a>1",)},
        [
            ("without the constraint a>1", "a 1.0, b 1.0, u 1.0"),
            ("without a", "b 1.0, u 1.0"),
            ("without b", "a 2.0, u 1.0"),
        ],
    ),
    # One of two requirements is changed, and the other is left out.
    (
        {"requirements": ("a==9", "s1"), "no_build": ("s1",)},
        [("a 2.0 instead of a==9 and without s1", "a 2.0")],
    ),
    # The only requirement cannot be left out.
    ({"requirements": ("a>3",)}, [("a 2.0 instead of a>3", "a 2.0")]),
    # Two faults: an edit for each of them.
    (
        {"requirements": ("a==2.0", "b", "d==9")},
        [
            (
                "a 1.0 instead of a==2.0 and d 1.5 instead of d==9",
                "a 1.0, b 1.0, d 1.5",
            ),
            ("d 1.5 instead of d==9 and without b", "a 2.0, d 1.5"),
        ],
    ),
    (
        {"requirements": ("a==2.0", "b", "d==1.5", "e<2")},
        [
            (
                "a 1.0 instead of a==2.0 and d 1.0 instead of d==1.5",
                "a 1.0, b 1.0, d 1.0, e 1.0",
            ),
            (
                "a 1.0 instead of a==2.0 and e 2.0 instead of e<2",
                "a 1.0, b 1.0, d 1.5, e 2.0",
            ),
            ("e 2.0 instead of e<2 and without b", "a 2.0, d 1.5, e 2.0"),
            ("d 1.0 instead of d==1.5 and without b", "a 2.0, d 1.0, e 1.0"),
        ],
    ),
    # One requirement in two faults: one edit is enough.
    (
        {"requirements": ("a==2.0", "b", "f", "u")},
        [
            ("a 1.0 instead of a==2.0", "a 1.0, b 1.0, f 1.0, u 1.0"),
            ("without b and without f", "a 2.0, u 1.0"),
        ],
    ),
    (
        {"requirements": ("a==2.0", "v>0", "c>=2")},
        [
            ("a 1.0 instead of a==2.0", "a 1.0, c 3.0, v 1.0"),
            ("c 1.0 instead of c>=2 and without v>0", "a 2.0, c 1.0"),
        ],
    ),
    (
        {"requirements": ("a==2.0 ; python_version > '3'", "b", "u")},
        [("a 1.0 instead of a==2.0", "a 1.0, b 1.0, u 1.0"), ("without b", "a 2.0, u 1.0")],
    ),
    (
        {"requirements": ("a==2.0", "a<2", "u")},
        [("a 2.0 instead of a<2", "a 2.0, u 1.0"), ("a 1.0 instead of a==2.0", "a 1.0, u 1.0")],
    ),
    (
        {"frameworks": ("jax==99",), "requirements": ("u",)},
        [("jax 0.6.2 instead of jax==99", "jax 0.6.2 (cpu)")],
    ),
    ({"frameworks": ("jax==99",)}, [("jax 0.6.2 instead of jax==99", "jax 0.6.2 (cpu)")]),
    (
        {"requirements": ("a>1", "u"), "constraints": ("a<2", "u>=1")},
        [
            ("a 1.0 instead of a>1", "a 1.0, u 1.0"),
            ("without the constraint a<2", "a 2.0, u 1.0"),
        ],
    ),
    # Builds, where they are forbidden.
    ({"requirements": ("t",), "no_build": (":all:",)}, [("leave out --no-build", "t 2.0")]),
    (
        {"requirements": ("s1", "u"), "no_build": ("s1",)},
        [("leave out --no-build", "s1 1.0, u 1.0"), ("without s1", "u 1.0")],
    ),
]


@pytest.mark.parametrize(("fields", "expected"), EDITS, ids=[str(fields) for fields, _ in EDITS])
def test_the_smallest_edits_of_a_request(
    fields: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    with pytest.raises(NoSolutionError) as refusal:
        solve(Request(**fields), NO_GPU, DATA, Universe(EDITED), TargetEnvironment)
    assert [(one.change, one.gives) for one in refusal.value.explanation.changes] == expected


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
