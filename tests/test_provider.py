"""The answers that resolvelib gets: the next decision, satisfaction, requirements of a release."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from gpuenv.errors import Reason, UnfinishedError
from gpuenv.model import Build, Code, Host, Python, Request, Requirement
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve.candidates import CandidateStore, Constraints
from gpuenv.resolve.graph import (
    FILE_FACT,
    AgreementId,
    AgreementRequirement,
    Candidate,
    Cause,
    FrameworkId,
    FrameworkRequirement,
    HostRequirement,
    Identifier,
    Node,
    NodeRequirement,
    PackageId,
    PackageRequirement,
    SameFileRequirement,
    Token,
)
from gpuenv.resolve.provider import Progress, Provider
from gpuenv.resolve.release_facts import ReleaseFacts, with_cudnn_range
from gpuenv.resolve.requested import read_request
from gpuenv.resolve.resolution import PATIENCE, ImpossibleError, LearningResolver
from gpuenv.resolve.widening import Widening
from test_resolution import DATA
from universe import BASE, Packages, RecordingUniverse, Universe

HOST = Host(glibc=(2, 28), python=Python(version=(3, 12), full_version="3.12.4"))
PACKAGES: dict[str, Any] = {
    "a": {"1.0": {}, "2.0": {"requires": ["b; extra == 'x'", "c", "d; sys_platform == 'win32'"]}},
    "self": {
        "1.0": {"requires": ["self[x]==1.0", "b; extra == 'x'"]},
        "2.0": {"requires": ["self<2"]},
    },
    "b": {"1.0": {}},
    "c": {"1.0": {}},
    "later": {"1.0": {"requires": ["a>=2"]}},
}
REFUSED = Reason(code="driver-floor", subject="a 1.0", need="driver 580", have="driver 550")
DOUBT = Reason(code="driver-unknown", subject="a 1.0", need="driver 580", have="not known")


def provider(
    *order: Identifier,
    roots: Sequence[NodeRequirement] = (),
    lenient: bool = False,
    packages: Packages | None = None,
    index: Universe | None = None,
) -> Provider:
    environment = TargetEnvironment(HOST)
    request = Request(requirements=("a",))
    index = index or Universe(packages or PACKAGES)
    store = CandidateStore(request, HOST, DATA, index, environment)
    widening = Widening(None, store, frozenset())
    facts = ReleaseFacts(store)
    return Provider(store, facts, roots, order, widening=widening, lenient=lenient)


def candidate(name: str, version: str, found: Provider) -> Candidate:
    (match,) = [one for one in found.store.candidates(name) if one.version == version]
    return match


def package(text: str, *extras: str) -> PackageRequirement:
    name, _, specifier = text.partition(" ")
    return PackageRequirement(name, extras, specifier)


def cause(requirement: NodeRequirement, parent: Node | None = None) -> Cause:
    return Cause(requirement, parent)


def count_conflicts(asked: Provider, conflicts: int) -> None:
    for _ in range(conflicts):
        asked.note_conflict({B, C})


NOTHING: Mapping[Identifier, Node] = {}
PARENT = Token(PackageId.of("parent"))
TORCH = FrameworkId.of("torch")
TORCH_ITSELF = DATA.framework("torch")
assert TORCH_ITSELF is not None
A, B, C = (PackageId.of(name) for name in "abc")
MANY = PackageId.of("many")
A_WITH_X = PackageId.of("a", ("x",))
LATER, TORCH_PACKAGE = PackageId.of("later"), PackageId.of("torch")


# ---- what is decided next -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("open_nodes", "conflicts", "expected"),
    [
        ([A, FILE_FACT, AgreementId.of("CUDA")], 0, [FILE_FACT]),
        ([A, AgreementId.of("CUDA"), FILE_FACT], 0, [AgreementId.of("CUDA")]),
        ([A, TORCH, B], 0, [A, TORCH, B]),
        ([A, TORCH, C], 5, [A, TORCH, C]),
        ([A, B, C], 0, [A, B, C]),
        ([A, B, C], 4, [A, B, C]),
        ([A, B, C], 5, [B, C]),
        ([A, A_WITH_X, B], 0, [A_WITH_X, B]),
        # A framework that only dependencies name waits for the packages of the request.
        ([A, LATER, TORCH_PACKAGE], 0, [A, LATER, TORCH_PACKAGE]),
        ([A, TORCH_PACKAGE, B], 0, [TORCH_PACKAGE]),
        ([A, TORCH_PACKAGE, B], 5, [TORCH_PACKAGE]),
    ],
)
def test_what_may_be_decided_next(
    open_nodes: list[Identifier], conflicts: int, expected: list[Identifier]
) -> None:
    """`conflicts`: how often B and C had one. The request names `later`."""
    asked = provider(TORCH, roots=[package("later")])
    count_conflicts(asked, conflicts)
    found = asked.narrow_requirement_selection(open_nodes, {}, {}, {}, [])
    assert list(found) == expected


# Each list is one order of decisions: a node with these causes before one with the next.
ORDERS = [
    [[package("n ==1")], [package("n <2")], [package("n >1")], [package("n")]],
    [[package("n ===1")], [package("n ==1.*")]],
    [[package("n ~=1.0")], [package("n >=1")]],
    [[package("n >=1,<=2")], [package("n >=1,!=2")]],
    [[package("n >1,<=2")], [package("n !=1,>=0")]],
    [[package("n ~=1.1")], [package("n >1")]],
    [[PackageRequirement("n", (), "", f"{BASE}n-1.0-py3-none-any.whl")], [package("n ==1")]],
]


@pytest.mark.parametrize("order", ORDERS)
def test_narrow_requirements_are_decided_first(order: list[list[NodeRequirement]]) -> None:
    asked = provider()
    keys = []
    for requirements in order:
        causes = [cause(requirement, PARENT) for requirement in requirements]
        keys.append(asked.get_preference(A, {}, {}, {A: iter(causes)}, []))
    assert keys == sorted(keys) and len(set(keys)) == len(keys)


def test_how_narrow_the_requirements_on_a_node_are() -> None:
    """A file, one version, an upper bound, the user, any range: each counts more than the rest."""
    file = SameFileRequirement(candidate("b", "1.0", provider()).wheel)
    order = [
        [cause(file, PARENT), cause(package("n >1"), PARENT)],
        [cause(file, PARENT)],
        [cause(package("n ==1"))],
        [cause(package("n ==1"), PARENT)],
        [cause(package("n <2"))],
        [cause(package("n <2"), PARENT)],
        [cause(package("n >1"))],
        [cause(package("n"))],
        [cause(package("n >1"), PARENT)],
        [cause(package("n"), PARENT), cause(HostRequirement(FILE_FACT, ()), PARENT)],
    ]
    asked = provider()
    keys = [asked.get_preference(A, {}, {}, {A: iter(causes)}, []) for causes in order]
    assert keys == sorted(keys) and len(set(keys)) == len(keys)


def test_the_order_of_decisions_among_nodes() -> None:
    asked = provider(TORCH, FrameworkId.of("jax"))
    file = candidate("b", "1.0", asked).wheel
    nodes: dict[Identifier, list[Cause]] = {
        TORCH: [cause(package("n"), PARENT)],
        FrameworkId.of("jax"): [cause(package("n ==1"))],
        PackageId.of("often"): [cause(package("n"), PARENT)],
        PackageId.of("file"): [cause(SameFileRequirement(file), PARENT)],
        PackageId.of("user"): [cause(package("n"), PARENT), cause(package("n"))],
        PackageId.of("z-range"): [cause(package("n !=1"), PARENT)],
        A: [cause(package("n"), PARENT)],
        B: [cause(package("n"), PARENT)],
    }
    for _ in range(5):
        asked.note_conflict({PackageId.of("often")})
    keys = {
        node: asked.get_preference(node, {}, {}, {node: iter(causes)}, [])
        for node, causes in nodes.items()
    }
    assert sorted(nodes, key=keys.__getitem__) == list(nodes)


# ---- what meets what ----------------------------------------------------------------------------


def same_file(name: str, version: str) -> SameFileRequirement:
    return SameFileRequirement(candidate(name, version, provider()).wheel)


def at_url(name: str) -> PackageRequirement:
    return PackageRequirement("a", (), "", f"{BASE}{name}-py3-none-any.whl")


@pytest.mark.parametrize(
    ("requirement", "version", "meets"),
    [
        (package("a"), "1.0", True),
        (package("a >=2"), "1.0", False),
        (package("a >=2"), "2.0", True),
        (at_url("a-1.0"), "2.0", False),
        (HostRequirement(FILE_FACT, (REFUSED,)), "1.0", False),
        (AgreementRequirement("CUDA", "12"), "1.0", False),
    ],
)
def test_what_a_candidate_meets(requirement: NodeRequirement, version: str, meets: bool) -> None:
    asked = provider()
    assert asked.is_satisfied_by(requirement, candidate("a", version, asked)) is meets


def test_a_file_meets_the_requirement_of_that_file_only() -> None:
    asked = provider()
    first, second = candidate("a", "1.0", asked), candidate("a", "2.0", asked)
    assert asked.is_satisfied_by(SameFileRequirement(first.wheel), first)
    assert not asked.is_satisfied_by(SameFileRequirement(first.wheel), second)
    variants = {"x": {"nvidia": {"sm_arch": ["90_real"]}}, "null": {}}
    asked = provider(packages={"a": {"1.0": {"variants": variants}}})
    first, second = asked.store.candidates("a")
    assert first.version == second.version
    assert asked.is_satisfied_by(SameFileRequirement(first.wheel), first)
    assert not asked.is_satisfied_by(SameFileRequirement(first.wheel), second)


@pytest.mark.parametrize(("value", "meets"), [("12", True), ("13", False)])
def test_a_token_meets_the_agreement_of_its_value(value: str, meets: bool) -> None:
    token = Token(AgreementId.of("CUDA"), value)
    assert provider().is_satisfied_by(AgreementRequirement("CUDA", "12"), token) is meets
    assert not provider().is_satisfied_by(package("a"), token)


@pytest.mark.parametrize(("reasons", "meets"), [((), True), ((REFUSED,), False)])
def test_a_token_meets_a_fact_that_the_host_fulfils(
    reasons: tuple[Reason, ...], meets: bool
) -> None:
    assert (
        provider().is_satisfied_by(HostRequirement(FILE_FACT, reasons), Token(FILE_FACT)) is meets
    )


@pytest.mark.parametrize(
    ("reasons", "lenient", "blocked"),
    [
        ((), False, False),
        ((REFUSED,), False, True),
        ((REFUSED,), True, True),
        ((DOUBT,), False, True),
        ((DOUBT,), True, False),
    ],
)
def test_a_lenient_provider_lets_doubts_pass(
    reasons: tuple[Reason, ...], lenient: bool, blocked: bool
) -> None:
    asked = provider(lenient=lenient)
    assert asked.is_blocked(HostRequirement(FILE_FACT, reasons)) is blocked
    assert not asked.is_blocked(package("a"))


# ---- candidates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        ([AgreementRequirement("CUDA", "12")], ["12"]),
        ([AgreementRequirement("CUDA", "12")] * 2, ["12"]),
        ([AgreementRequirement("CUDA", "12"), AgreementRequirement("CUDA", "13")], []),
        ([AgreementRequirement("CUDA", "12", "13")], ["13", "12"]),
        ([AgreementRequirement("CUDA", "12", "13"), AgreementRequirement("CUDA", "12")], ["12"]),
        ([], []),
    ],
)
def test_an_agreement_has_the_value_that_all_name(
    requirements: list[NodeRequirement], expected: list[str]
) -> None:
    node = AgreementId.of("CUDA")
    matches = provider().find_matches(node, {node: iter(requirements)}, {})
    assert not callable(matches)
    assert [one.value for one in matches if isinstance(one, Token)] == expected


@pytest.mark.parametrize(
    ("reasons", "expected"), [([()], 1), ([(REFUSED,)], 0), ([(), (REFUSED,)], 0), ([(), ()], 1)]
)
def test_a_host_fact_has_one_candidate_if_the_host_fulfils_it(
    reasons: list[tuple[Reason, ...]], expected: int
) -> None:
    facts: list[NodeRequirement] = [HostRequirement(FILE_FACT, one) for one in reasons]
    requirements: dict[Identifier, Iterator[NodeRequirement]] = {FILE_FACT: iter(facts)}
    matches = provider().find_matches(FILE_FACT, requirements, {})
    assert not callable(matches) and len(matches) == expected


@pytest.mark.parametrize(
    ("node", "later", "order", "gives_way"),
    [
        (A, LATER, (), True),
        (A, LATER, (A,), False),  # a framework of the request
        (TORCH_PACKAGE, A, (), False),
        (TORCH_PACKAGE, LATER, (), True),
    ],
)
def test_what_gives_way_to_a_later_requirement(
    node: Identifier, later: Identifier, order: tuple[Identifier, ...], gives_way: bool
) -> None:
    """A framework that only dependencies name gives way to packages of the request."""
    asked = provider(*order, roots=[package("later")])
    assert asked.may_give_way(node, later) is gives_way


# ---- what a release requires --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "extras", "expected"),
    [
        ("a", "1.0", (), []),
        ("a", "2.0", (), ["c"]),
        ("a", "2.0", ("x",), ["a==2.0", "b", "c"]),
        ("a", "2.0", ("y",), ["a==2.0", "c"]),
        # A requirement on the package itself: met, with extras, or never.
        ("self", "1.0", (), ["self[x]"]),
        ("self", "1.0", ("x",), ["self==1.0", "b"]),
        ("self", "2.0", (), ["__file (self<2)"]),
    ],
)
def test_the_dependencies_of_a_node(
    name: str, version: str, extras: tuple[str, ...], expected: list[str]
) -> None:
    asked = provider()
    node = candidate(name, version, asked)
    if extras:
        node = node.with_extras(extras)
        assert candidate(name, version, asked).with_extras(extras) is node
    assert [str(one) for one in asked.get_dependencies(node)] == expected


@pytest.mark.parametrize(
    ("dependency", "specifier", "cudnn", "expected"),
    [
        ("nvidia-cudnn-cu12", "", "9.10.2.21", ">=9.10,<10"),
        ("nvidia-cudnn-cu12", ">=9", "9.10.2.21", ">=9,>=9.10,<10"),
        ("nvidia-cudnn-cu12", "==9.10.2.21", "9.10.2.21", "==9.10.2.21"),
        ("nvidia-cudnn-cu12", "==9.*", "9.10.2.21", "==9.*,>=9.10,<10"),
        ("nvidia-cudnn-cu12", ">=8", "8", ">=8,>=8.0,<9"),
        ("nvidia-cudnn-cu12", ">=9", None, ">=9"),
        ("nvidia-cublas-cu12", ">=12", "9.10.2.21", ">=12"),
    ],
)
def test_a_range_of_cudnn_is_narrowed_to_what_fits_the_build(
    dependency: str, specifier: str, cudnn: str | None, expected: str
) -> None:
    build = Build(
        name="a",
        version="1.0",
        local="1.0",
        variant="cu12",
        index="default",
        platform="linux-x86_64",
        cuda=(12, 8),
        cudnn=cudnn,
        code=Code(sass=(), ptx=(), source="made up"),
    )
    assert with_cudnn_range(build, Requirement(name=dependency, specifier=specifier)) == expected
    assert with_cudnn_range(None, Requirement(name=dependency, specifier=specifier)) == specifier


def resolver(packages: Packages) -> LearningResolver:
    asked = provider(packages=packages)
    return LearningResolver(asked, Progress(asked.store.index))


def test_a_requirement_that_is_impossible_alone_ends_a_long_search() -> None:
    """Without that, each of the 400 releases of `many` is excluded by a conflict of its own."""
    packages: Packages = {
        "many": {f"{number}.0": {"requires": ["core>=3"]} for number in range(1, 401)},
        "bad": {"1.0": {"requires": ["old"]}},
        "old": {"2.0": {"requires": ["nowhere"]}, "1.0": {"requires": ["core<3"]}},
        "core": {"1.0": {"requires": ["nowhere"]}, "3.0": {}},
    }
    roots = [package("many"), package("bad")]
    with pytest.raises(ImpossibleError):
        resolver(packages).resolve(roots, PATIENCE + 1)
    with pytest.raises(UnfinishedError, match=f"{PATIENCE} conflicts for many, bad"):
        resolver(packages).resolve(roots, PATIENCE)


def test_the_proof_of_a_refusal_leads_down_to_what_no_release_meets() -> None:
    packages: Packages = {
        "a": {"2.0": {"requires": ["b"]}, "1.0": {}},
        "b": {"1.0": {"requires": ["c>9"]}},
        "c": {"1.0": {}},
    }
    asked = resolver(packages)
    with pytest.raises(ImpossibleError) as refusal:
        asked.resolve([package("a >1")])
    assert refusal.value.node == A
    told = [(str(one.requirement), str(one.parent)) for one in refusal.value.causes]
    assert told[-1] == ("c>9", "b 1.0")
    only = candidate("b", "1.0", asked.provider)
    assert [str(one.requirement) for one in asked.why_excluded(only)] == ["c>9"]
    root, other = cause(package("a >1")), cause(package("a <2"))
    proof = asked.proof([root, other])
    assert [str(one.requirement) for one in proof] == ["a>1", "c>9", "a<2"]
    assert [one.parent for one in proof] == [None, only, None]
    assert asked.proof([other, root]) == [other, root]
    agreement = cause(AgreementRequirement("CUDA", "12"))
    assert asked.proof([agreement]) == [agreement]


def test_a_solution_has_the_graph_of_its_requirements() -> None:
    result = resolver(PACKAGES).resolve([package("later"), package("a", "x")])
    assert [str(one) for one in result.mapping.values()] == [
        "a[x] 2.0", "a 2.0", "later 1.0", "b 1.0", "c 1.0",
    ]  # fmt: skip
    edges = {(parent, node) for parent, node in result.graph.iter_edges()}
    assert edges == {
        (None, "later"), (None, "a[x]"), ("later", "a"), ("a[x]", "a"), ("a[x]", "b"),
        ("a[x]", "c"), ("a", "c"),
    }  # fmt: skip


def test_a_constraint_whose_marker_does_not_hold_hides_no_other() -> None:
    texts = ["a<1; sys_platform == 'win32'", "a<2", "a<3"]
    request = Request(requirements=("a",), constraints=tuple(texts))
    constraints = Constraints(request, TargetEnvironment(HOST))
    assert list(constraints.texts("a")) == ["a<2", "a<3"]


def versions_of(
    asked: Provider, requirement: PackageRequirement, excluded: Mapping[Identifier, Node] = NOTHING
) -> list[str]:
    node = requirement.identifier
    incompatible = {other: iter([release]) for other, release in excluded.items()}
    matches = asked.find_matches(node, {node: iter([requirement])}, incompatible)
    assert callable(matches)
    return [one.version for one in matches() if isinstance(one, Candidate)]


def test_the_dependencies_of_further_releases_are_requested_in_growing_batches() -> None:
    """Each batch when a release is tried that none of the better ones could replace."""
    index = RecordingUniverse({"many": {f"{number}.0": {} for number in range(1, 1201)}})
    asked = provider(index=index)
    assert len(versions_of(asked, package("many"))) == 1200
    assert [len(batch) for batch in index.batches] == [3, 12, 48, 192, 768]
    requested = [version for batch in index.batches for version in batch]
    assert requested == [f"{number}.0" for number in range(1199, 176, -1)]
    versions_of(asked, package("many"))
    versions_of(asked, package("many >=1100"))
    assert len(index.batches) == 5
    matches = provider(index=index).find_matches(MANY, {MANY: iter([package("many")])}, {})
    assert callable(matches)
    next(iter(matches()))
    assert len(index.batches) == 5  # the best release is read by itself


def test_what_a_candidate_requires_is_requested_once() -> None:
    index = RecordingUniverse(PACKAGES)
    asked, progress = provider(index=index), Progress(index)
    newest = candidate("a", "2.0", asked)
    for node in (newest, newest, newest.with_extras(("x",)), None):
        for requirement in (package("c"), package("b")):
            progress.adding_requirement(requirement, node)
    assert index.needs == [("a 2.0", ()), ("a 2.0", ("x",))]


def test_a_node_has_a_new_place_in_the_order_at_its_fifth_conflict() -> None:
    asked = provider()
    conflicts = [{B, C}] * 4 + [{A, B}] * 5
    assert list(map(asked.note_conflict, conflicts)) == [False] * 4 + [True] + [False] * 3 + [True]


def test_incompatible_releases_are_no_candidates() -> None:
    """A node with extras has the incompatibilities of its package, too."""
    asked = provider()
    old, new = candidate("a", "1.0", asked), candidate("a", "2.0", asked)
    assert versions_of(asked, package("a", "x")) == ["2.0", "1.0"]
    incompatible: dict[Identifier, Node] = {A_WITH_X: new.with_extras(("x",))}
    assert versions_of(asked, package("a", "x"), incompatible) == ["1.0"]
    assert versions_of(asked, package("a"), incompatible) == ["2.0", "1.0"]
    assert versions_of(asked, package("a", "x"), {**incompatible, A: old}) == []


def test_the_whole_request_decides_which_prereleases_are_admitted() -> None:
    """The requirements of the request are added one by one."""
    packages: dict[str, Any] = {"a": {"1.0": {}, "2.0": {}, "3.0rc1": {}}}
    roots = [package("a"), package("a >=2.0rc1"), package("b")]
    asked = provider(packages=packages, roots=roots)
    assert versions_of(asked, package("a")) == ["3.0rc1", "2.0"]
    # What the other requirements leave is empty: then they are not counted.
    asked = provider(packages=packages, roots=[package("a"), package("a >4")])
    assert versions_of(asked, package("a")) == ["2.0", "1.0"]


@pytest.mark.parametrize(
    ("roots", "order"),
    [
        (["late", "app", "jax"], ["late", "app", "@jax"]),
        (["nothing>1", "app", "jax"], ["app", "@jax"]),
        (["app==0.5", "jax"], ["@jax"]),
        (["app", "late"], ["@jax"]),  # no framework in the request
    ],
)
def test_packages_that_require_a_way_of_a_framework_are_decided_before_it(
    roots: list[str], order: list[str]
) -> None:
    packages: Packages = {
        "app": {"0.5": {"requires": ["late"]}, "1.0": {"requires": ["other", "jax<0.6"]}},
        "late": {"1.0": {"requires": ["jax>=0.4"]}},
        "other": {"1.0": {}},
        "nothing": {"1.0": {"requires": ["jax"]}},
        "jax": {"0.5.0": {}},
    }
    request, environment = Request(requirements=tuple(roots)), TargetEnvironment(HOST)
    frameworks, others = read_request(request, DATA, environment)
    named = [FrameworkRequirement(framework, "") for framework, _ in frameworks]
    requirements = [PackageRequirement(one.name, one.extras, one.specifier) for one in others]
    index = RecordingUniverse(packages)
    asked = provider(FrameworkId.of("jax"), index=index, roots=[*requirements, *named])
    assert list(asked.order) == order
    if not named:
        assert index.read == []  # no package can require one


def test_packages_that_require_a_framework_are_decided_before_it() -> None:
    packages: Packages = {
        "torch": {"2.9.0": {}},
        "app": {"1.0": {"requires": ["torch==2.9.0"]}},
        "other": {"1.0": {}},
        "torchvision": {"0.24.0": {"requires": ["torch"]}},
    }
    torch = PackageId.of("torch")
    asked = provider(torch, packages=packages, roots=[package(name) for name in packages])
    assert list(asked.order) == [PackageId.of("app"), torch]


@pytest.mark.parametrize(
    ("text", "requires"),
    [
        ("onnxruntime", [["onnxruntime-gpu[cuda,cudnn]"], ["onnxruntime"]]),
        (
            "tensorflow[x]",
            [["tensorflow[and-cuda]", "tensorflow[x]"], ["tensorflow", "tensorflow[x]"]],
        ),
        ("jax[cuda12]", [["jax[cuda12]"]]),
    ],
)
def test_the_ways_of_a_framework_that_a_requirement_leaves(
    text: str, requires: list[list[str]]
) -> None:
    [(framework, _)], others = read_request(
        Request(requirements=(text,)), DATA, TargetEnvironment(HOST)
    )
    assert others == ()
    assert [list(way.requires) for way in framework.ways] == requires
