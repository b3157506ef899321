"""Laws of general resolution, over universes that hypothesis makes up."""

import itertools

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement as Parsed
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from examples import examples
from gpuenv.errors import NoSolutionError
from gpuenv.lock import pylock
from gpuenv.model import Request
from gpuenv.requirements.target import TargetEnvironment, marker_environment
from gpuenv.resolve import solver
from test_resolution import DATA, HOST
from universe import Universe

NAMES = ["a", "b", "c", "d"]
VERSIONS = ["1.0", "1.1", "2.0", "2.1a1", "3.0"]
RANGES = ["", ">=1.1", "<2", "==1.0", "!=2.0", "~=1.0", ">=2,<4", "==2.*", ">2", ">=2.1a1", "<=1.1"]
EXTRAS = ["", "", "", "[x]", "[x,y]"]
MARKERS = [
    "",
    "",
    "",
    ' ; python_version < "3"',
    ' ; sys_platform == "linux"',
    ' ; extra == "x"',
    ' ; extra == "y"',
]

asked = st.builds(
    lambda name, extra, limit: f"{name}{extra}{limit}",
    *map(st.sampled_from, (NAMES, EXTRAS, RANGES)),
)
needed = st.builds(lambda text, marker: text + marker, asked, st.sampled_from(MARKERS))
releases = st.fixed_dictionaries(
    {},
    optional={
        "requires": st.lists(needed, max_size=3),
        "python": st.sampled_from([">=3.9", ">=3.12", ">=3.13", "<3.12"]),
        "yanked": st.booleans(),
        "tags": st.sampled_from(
            [["py3-none-any"], ["cp312-cp312-manylinux_2_17_x86_64"], ["cp311-cp311-win_amd64"]]
        ),
    },
)
universes = st.dictionaries(
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(VERSIONS), releases, min_size=1),
    min_size=2,
)
requests = st.lists(asked, min_size=1, max_size=3)
limits = st.lists(
    st.builds(lambda name, limit: name + limit, st.sampled_from(NAMES), st.sampled_from(RANGES)),
    max_size=2,
)
laws = settings(
    max_examples=examples(25), deadline=None, derandomize=True, suppress_health_check=[*HealthCheck]
)


def solve(packages, requires, constraints=None):
    request = Request(requirements=tuple(requires), constraints=tuple(constraints or ()))
    try:
        return solver.solve(
            request, HOST, DATA, Universe(packages), TargetEnvironment, changes=False
        )
    except NoSolutionError as error:
        assert error.explanation.reasons, "a refusal has a reason"
        return None


def holds(marker, extras):
    variables = marker_environment(HOST)
    return marker is None or any(
        marker.evaluate({**variables, "extra": extra}) for extra in extras | {""}
    )


def faults(packages, pins, requires, constraints):
    """What speaks against a set of pins, asked of packaging and of the universe itself."""
    found, extras = [], {name: set() for name in pins}
    waiting, reached = [Parsed(text) for text in requires], set()
    while waiting:
        need = waiting.pop()
        if need.name not in pins:
            found.append(f"{need} is not there")
            continue
        if not need.specifier.contains(Version(pins[need.name]), prereleases=True):
            found.append(f"{need} is not met by {pins[need.name]}")
        extras[need.name] |= need.extras
        for extra in ("", *need.extras):
            if (need.name, extra) in reached:
                continue
            reached.add((need.name, extra))
            inner = [
                Parsed(text) for text in packages[need.name][pins[need.name]].get("requires", ())
            ]
            waiting += [one for one in inner if holds(one.marker, {extra})]
    found += [f"nothing needs {name}" for name in set(pins) - {name for name, _ in reached}]
    for limit in map(Parsed, constraints):
        if limit.name in pins and not limit.specifier.contains(
            Version(pins[limit.name]), prereleases=True
        ):
            found.append(f"the constraint {limit} is not met by {pins[limit.name]}")
    for name, version in pins.items():
        python = packages[name][version].get("python")
        if python and not SpecifierSet(python).contains("3.12.4"):
            found.append(f"{name} {version} is for Python {python}")
        if "win_amd64" in str(packages[name][version].get("tags")):
            found.append(f"{name} {version} is for Windows")
    return found


@laws
@given(universes, requests, limits)
def test_a_solution_meets_all_that_is_asked(packages, requires, constraints):
    plan = solve(packages, requires, constraints)
    if plan is not None:
        assert faults(packages, plan.versions, requires, constraints) == []


@laws
@given(universes, requests)
def test_yanks_and_prereleases_are_taken_for_a_reason_only(packages, requires):
    plan = solve(packages, requires)
    if plan is None:
        return
    texts = [*requires, *itertools.chain.from_iterable(
        packages[name][version].get("requires", ()) for name, version in plan.versions.items()
    )]  # fmt: skip
    for pin in plan.pins:
        wheel = pin.wheel
        said = [str(one.specifier) for one in map(Parsed, texts) if one.name == wheel.name]
        if wheel.yanked is not None:
            assert any(text.startswith("==") and not text.endswith(".*") for text in said)
        if Version(wheel.version).is_prerelease:
            finals = [
                version
                for version in packages[wheel.name]
                if not Version(version).is_prerelease
                and all(SpecifierSet(text).contains(version) for text in said)
                and faults(packages, {wheel.name: version}, [], [])
                == [f"nothing needs {wheel.name}"]
                and not packages[wheel.name][version].get("yanked")
            ]
            assert ">=2.1a1" in said or not finals


@laws
@given(universes, requests, limits)
def test_a_contradiction_is_refused(packages, requires, constraints):
    plan = solve(packages, requires, constraints)
    assume(plan is not None)
    for pin in plan.pins:
        contradiction = f"{pin.wheel.name}>{pin.wheel.version},<{pin.wheel.version}"
        assert solve(packages, [*requires, contradiction], constraints) is None
        other = solve(packages, requires, [*constraints, contradiction])
        assert other is None or pin.wheel.name not in other.versions


@laws
@given(universes, requests, limits, st.randoms(use_true_random=False))
def test_the_order_says_nothing(packages, requires, constraints, random):
    plan = solve(packages, requires, constraints)
    shuffled, limited = (
        random.sample(requires, len(requires)),
        random.sample(constraints, len(constraints)),
    )
    other = solve(packages, shuffled, limited)
    assert (plan is None) == (other is None)
    if plan is not None and other is not None:
        assert plan.pins == other.pins


@laws
@given(universes, requests, limits)
def test_two_runs_give_the_same_bytes(packages, requires, constraints):
    texts = []
    for _ in range(2):
        plan = solve(packages, requires, constraints)
        if plan is None:
            return
        lock = pylock.lock(plan)
        texts.append(pylock.dumps(lock))
        assert pylock.loads(texts[-1], "pylock.toml") == lock
    assert texts[0] == texts[1]


@settings(laws, max_examples=examples(30))
@given(universes, requests)
def test_what_is_refused_has_no_solution(packages, requires):
    """No set of releases meets the request, tried one by one; extras and pre-releases aside."""
    texts = [*requires, *(
        text
        for name in packages
        for release in packages[name].values()
        for text in release.get("requires", ())
    )]  # fmt: skip
    assume(not any("[" in text for text in texts))
    if solve(packages, requires) is not None:
        return
    choices = [
        [
            None,
            *(version for version in packages[name] if not packages[name][version].get("yanked")),
        ]
        for name in packages
    ]
    for chosen in itertools.product(*choices):
        pins = {
            name: version
            for name, version in zip(packages, chosen, strict=True)
            if version is not None
        }
        if any(Version(version).is_prerelease for version in pins.values()):
            continue
        assert faults(packages, pins, requires, []) != []
