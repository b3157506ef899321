"""Which combinations of releases constraint propagation leaves, over small made universes."""

from typing import Any

import pytest

from gpuenv.model import Host, Python, Request
from gpuenv.requirements.target import TargetEnvironment, parse_requirement
from gpuenv.resolve.candidates import CandidateStore
from gpuenv.resolve.graph import NodeRequirement, PackageId, PackageRequirement
from gpuenv.resolve.propagation import TooManyTrialsError, combinations
from gpuenv.resolve.provider import Provider
from gpuenv.resolve.release_facts import ReleaseFacts
from gpuenv.resolve.selection import Constraints
from gpuenv.resolve.widening import Widening
from test_resolution import DATA
from universe import BASE, Universe

HOST = Host(glibc=(2, 28), python=Python(version=(3, 12), full_version="3.12.4"))
# Two frameworks, f and g, of which the newest releases need different releases of lib.
TWO: dict[str, Any] = {
    "f": {
        "3.0": {"requires": ["lib==3.0"]},
        "2.0": {"requires": ["lib==2.0"]},
        "1.0": {"requires": ["lib"]},
    },
    "g": {"2.0": {"requires": ["lib<3"]}, "1.0": {"requires": ["lib<2"]}},
    "lib": {"3.0": {}, "2.0": {}, "1.0": {}},
}
EXTRAS: dict[str, Any] = {
    "f": {"2.0": {"requires": ["lib[x]"]}, "1.0": {}},
    "lib": {"2.0": {"requires": ["none; extra == 'x'"]}, "1.0": {"requires": ["g; extra == 'x'"]}},
    "g": {"1.0": {}},
    "none": {},
}
REMOTE: dict[str, Any] = {
    "f": {"2.0": {"requires": ["remote>5"]}, "1.0": {}},
    "remote": {"1.0": {}},
}
BACKWARDS: dict[str, Any] = {
    "f": {"2.0": {}, "1.0": {}},
    "g": {"2.0": {"requires": ["f<2"]}, "1.0": {"requires": ["f"]}},
    "h": {"2.0": {"requires": ["remote", "f>2"]}, "1.0": {"requires": ["remote"]}},
    "remote": {"1.0": {}},
}
DEEP: dict[str, Any] = {
    "f": {"2.0": {"requires": ["a", "b"]}, "1.0": {"requires": ["a"]}},
    "a": {"2.0": {"requires": ["c==2.0"]}, "1.0": {"requires": ["c==1.0"]}},
    "b": {"2.0": {"requires": ["c==1.5"]}, "1.0": {"requires": ["c==3.0"]}},
    "c": {"3.0": {}, "2.0": {}, "1.5": {}, "1.0": {}},
}



class Local(Universe):
    """An index whose pages are all at hand, except that of `remote`."""

    def at_hand(self, name: str) -> bool:
        return name != "remote"


Left = dict[str, str]  # node -> the versions that are left, best first


def left_by(
    packages: dict[str, Any],
    requires: list[str],
    *order: str,
    constraints: tuple[str, ...] = (),
    shallow: bool = False,
    max_trials: int = 100,
) -> list[Left]:
    environment = TargetEnvironment(HOST)
    request = Request(requirements=tuple(requires))
    store = CandidateStore(request, HOST, DATA, Local(packages), environment)
    limits = Constraints([parse_requirement(text) for text in constraints], environment)
    nodes = [PackageId.of(name) for name in order]
    widening = Widening(None, store, frozenset())
    provider = Provider(store, ReleaseFacts(store), nodes, limits, widening, lenient=False)
    roots: list[NodeRequirement] = []
    for text in requires:
        parsed = parse_requirement(text)
        need = PackageRequirement(parsed.name, parsed.extras, parsed.specifier, parsed.url)
        roots += need.with_base()
    found = []
    for allowed in combinations(provider, roots, max_trials, shallow=shallow):
        left: Left = {}
        for node, ids in allowed.items():
            versions = [one.version for one in store.candidates(node) if id(one.wheel) in ids]
            left[node] = " ".join(versions)
        found.append(left)
    return found


@pytest.mark.parametrize(
    ("packages", "requires", "order", "expected"),
    [
        # The first framework is as new as possible, then the second one.
        (
            TWO,
            ["f", "g"],
            "fg",
            [
                {"f": "2.0", "g": "2.0", "lib": "2.0"},
                {"f": "1.0", "g": "2.0", "lib": "2.0 1.0"},
                {"f": "1.0", "g": "1.0", "lib": "1.0"},
            ],
        ),
        (
            TWO,
            ["f", "g"],
            "gf",
            [
                {"f": "2.0", "g": "2.0", "lib": "2.0"},
                {"f": "1.0", "g": "2.0", "lib": "2.0 1.0"},
                {"f": "1.0", "g": "1.0", "lib": "1.0"},
            ],
        ),
        (TWO, ["f>=3", "g"], "fg", []),
        (TWO, ["f<3,>1"], "f", [{"f": "2.0", "lib": "2.0"}]),
        (TWO, ["f", "lib<3"], "", [{"f": "2.0 1.0", "lib": "2.0 1.0"}]),
        (TWO, ["f", "lib<3", "lib>1"], "", [{"f": "2.0 1.0", "lib": "2.0"}]),
        # A file at a URL may be anything.
        (TWO, ["f", f"lib @ {BASE}lib-1.0-py3-none-any.whl"], "f", [
            {"f": "3.0", "lib": "3.0"}, {"f": "2.0", "lib": "2.0"}, {"f": "1.0", "lib": "3.0 2.0 1.0"}
        ]),
        (EXTRAS, ["f"], "f", [{"f": "2.0", "lib": "1.0", "g": "1.0"}, {"f": "1.0"}]),
        (REMOTE, ["f"], "f", [{"f": "2.0"}, {"f": "1.0"}]),
        (BACKWARDS, ["f", "g"], "f", [{"f": "2.0", "g": "1.0"}, {"f": "1.0", "g": "2.0 1.0"}]),
        (BACKWARDS, ["h"], "h", [{"h": "1.0"}]),
        # No release of a and b goes together: that needs a search.
        (DEEP, ["f"], "f", [{"f": "1.0", "a": "2.0 1.0", "c": "2.0 1.0"}]),
    ],
)  # fmt: skip
def test_what_is_left(
    packages: dict[str, Any], requires: list[str], order: str, expected: list[Left]
) -> None:
    assert left_by(packages, requires, *order) == expected


def test_shallow_propagation_follows_nodes_with_one_release() -> None:
    assert left_by(TWO, ["f>=2", "g"], "f", "g", shallow=True) == left_by(
        TWO, ["f>=2", "g"], "f", "g"
    )
    (newest, *_) = left_by(DEEP, ["f"], "f", shallow=True)
    assert newest["f"] == "2.0"


def test_constraints_limit_releases() -> None:
    found = left_by(TWO, ["f"], "f", constraints=("lib<3", "f!=2.0"))
    assert found == [{"f": "1.0", "lib": "2.0 1.0"}]


def test_the_search_ends_after_its_trials() -> None:
    assert len(left_by(TWO, ["f", "g"], "f", "g", max_trials=20)) == 3
    with pytest.raises(TooManyTrialsError):
        left_by(TWO, ["f", "g"], "f", "g", max_trials=2)
