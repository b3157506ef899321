"""`gpuenv fleet solve`: classes, the fewest locks, the cost of merges, what-if, profiles."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuenv import api
from gpuenv.model import Choice, IndexOptions, Lock, Needs, Request, parse_release
from gpuenv.serialize import to_plain
from gpuenv_fleet.classes import classify
from gpuenv_fleet.documents import Collection
from gpuenv_fleet.solve import Solver, fewest_groups, serves, solve_fleet
from hosts import host_of
from tables import data_file, each, read_data
from test_fleet_verify import write

TABLES = data_file("tables/fleet_solve.json")
SOLVE = "fleet solve --framework torch --offline --from"

TORCH = Request(frameworks=("torch",))
OFFLINE = IndexOptions(offline=True)
# V100 to H100, and drivers around the floors of the toolkits.
GPUS = ("V100", "T4", "A100", "L40S", "H100")
DRIVERS = ("470.82.01", "525.60.13", "535.104.05", "550.54.14", "580.65.06", "595.45.04")
GLIBCS = ("2.17", "2.28", "2.35")
PYTHONS = ("3.11", "3.12")


@cache
def described(gpu, driver, glibc="2.35", python="3.12"):
    return host_of({"gpu": gpu.split("+"), "driver": driver, "glibc": glibc, "python": python})


def fleet(*hosts):
    """The classes of (how many nodes, their host)."""
    answers = []
    for number, (count, host) in enumerate(hosts):
        answers += [(f"h{number}n{i}", to_plain(host)) for i in range(count)]
    return classify(Collection(answers=answers)).classes


class Builds(Solver):
    """A solver of an index with a few builds: (version, driver floor, capabilities, glibc)."""

    def __init__(self, builds):
        super().__init__(TORCH, OFFLINE)
        self.builds = sorted(builds, reverse=True, key=lambda build: build[0])

    def lock_for(self, host):
        locks = [self.lock(build, host) for build in self.builds]
        return next((lock for lock in locks if serves(lock, host)), ())

    @staticmethod
    def lock(build, host):
        version, floor, capabilities, glibc = build
        needs = Needs(
            driver=floor,
            compute_capabilities=tuple(sorted(capabilities)),
            glibc=glibc,
            python=host.python.version,
            platform=host.platform,
        )
        choice = Choice(
            framework="torch", version=f"2.{version}.0", variant="", cuda=None, cudnn=None
        )
        return Lock(pins=(), needs=needs, choices=(choice,), host=host, frameworks=("torch",))


def brute_force(count, holds):
    """The fewest sets that cover all items, by trying all sets."""
    held = {items for items in range(1, 1 << count) if holds(members(items))}
    fewest = {0: 0}
    for items in range(1, 1 << count):
        lowest, part, best = items & -items, items, count + 1
        while part:
            if part & lowest and part in held:
                best = min(best, 1 + fewest[items ^ part])
            part = (part - 1) & items
        fewest[items] = best
    return fewest[(1 << count) - 1]


def members(items):
    """The numbers of the items in a bit mask."""
    return frozenset(item for item in range(items.bit_length()) if items >> item & 1)


# ---- the fewest groups ---------------------------------------------------------------------------


@st.composite
def families(draw):
    """Items, and the largest sets that a group can hold; each item fits into some group."""
    count = draw(st.integers(1, 8))
    return count, draw(st.lists(st.frozensets(st.integers(0, count - 1)), max_size=8))


def family_of(count, sets):
    largest = [*sets, *(frozenset({item}) for item in range(count))]
    return lambda items: any(items <= one for one in largest)


@settings(max_examples=100, deadline=None)
@given(families())
def test_the_number_of_groups_is_minimal(case):
    count, sets = case
    holds = family_of(count, sets)
    groups, proved = fewest_groups(range(count), holds)
    assert proved
    assert sorted(item for group in groups for item in group) == list(range(count))
    assert all(map(holds, groups))
    assert len(groups) == brute_force(count, holds)


# ---- hosts with generated builds -----------------------------------------------------------------

hosts = st.builds(
    described,
    st.sampled_from(GPUS),
    st.sampled_from(DRIVERS),
    st.sampled_from(GLIBCS),
    st.sampled_from(PYTHONS),
)
CAPABILITIES = [(7, 0), (7, 5), (8, 0), (8, 9), (9, 0)]
builds = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.sampled_from(["450.80.02", "525.60.13", "580.65.06"]),
        st.frozensets(st.sampled_from(CAPABILITIES), min_size=1),
        st.sampled_from([(2, 17), (2, 28), (2, 31)]),
    ),
    min_size=1,
    max_size=6,
)


def solve(some, of):
    return solve_fleet(fleet(*((1, host) for host in some)), Builds(of), drivers=[])


def fewest(solution):
    plans, document = solution
    assert document["locks"] == len(plans[0].groups)
    return len(plans[0].groups)


@settings(max_examples=30, deadline=None)
@given(st.lists(hosts, min_size=1, max_size=8), builds)
def test_the_locks_of_generated_builds_are_minimal(some, of):
    classes = fleet(*((1, host) for host in some))
    solution = plans, document = solve_fleet(classes, Builds(of), drivers=[])
    unsolved = {one["class"] for one in document["unsolved"]}
    solved = [one for item, one in enumerate(classes) if item not in unsolved]
    for item in unsolved:
        host = classes[item].host
        assert not any(serves(Builds.lock(build, host), host) for build in of)

    def holds(items):
        members_of = [solved[item].host for item in items]
        locks = [Builds.lock(build, members_of[0]) for build in of]
        return any(all(serves(lock, host) for host in members_of) for lock in locks)

    assert fewest(solution) == (brute_force(len(solved), holds) if solved else 0)
    assert document["proved"]
    for plan in plans:
        placed = sorted(item for _, items in plan.groups for item in items)
        assert placed == [item for item in range(len(classes)) if item not in unsolved]
        for lock, items in plan.groups:
            assert all(serves(lock, classes[item].host) for item in items)
    costs = [plan.cost for plan in plans]
    assert costs == sorted(set(costs), reverse=True)
    counts = [len(plan.groups) for plan in plans]
    assert counts == sorted(set(counts))
    assert costs[-1] == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(hosts, min_size=1, max_size=12), hosts, builds)
def test_another_host_never_lowers_the_number_of_locks(some, more, of):
    assert fewest(solve([*some, more], of)) >= fewest(solve(some, of))


@settings(max_examples=12, deadline=None)
@given(st.lists(hosts, min_size=1, max_size=8), builds, st.randoms(use_true_random=False))
def test_the_order_of_the_hosts_does_not_matter(some, of, random):
    shuffled = list(some)
    random.shuffle(shuffled)
    assert fewest(solve(some, of)) == fewest(solve(shuffled, of))


@settings(max_examples=12, deadline=None)
@given(st.lists(hosts, min_size=1, max_size=6), builds)
def test_a_newer_driver_saves_what_it_says(some, of):
    classes = fleet(*((1, host) for host in some))
    solution = _, document = solve_fleet(classes, Builds(of), drivers=["580.65.06"])
    for what_if in document["what_if"]:
        changed = [one.host for one in classes]
        for item in what_if["classes"]:
            assert parse_release(changed[item].driver or "") < (580, 65, 6)
            changed[item] = changed[item].replace(driver="580.65.06", driver_cuda=(13, 0))
        assert what_if["locks"] == fewest(solve(changed, of))
        assert what_if["locks"] < fewest(solution) or what_if["solved"] or what_if["gains"]


# ---- the real resolver ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solver():
    return Solver(TORCH, OFFLINE)


def test_a_driver_upgrade_that_saves_a_lock(solver):
    # The driver of the 60 nodes is too old for the B200's builds, and 525 is too old for a B200.
    classes = fleet((60, described("V100", "470.82.01")), (940, described("B200", "580.65.06")))
    solution = _, document = solve_fleet(classes, solver)
    question = next(one for one in document["what_if"] if one["driver"] == "525.60.13")
    gained = sum(gain["nodes"] for gain in question["gains"])
    assert (question["locks"], question["solved"] + gained) == (1, 60)
    assert fewest(solution) == (1 if document["unsolved"] else 2)


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture
def documents(tmp_path):
    rows = [(5, "H100", "580.65.06"), (2, "V100", "550.54.14"), (1, "GTX 1080 Ti", "595.45.04")]
    nodes = {
        f"{gpu[0].lower()}{number}": to_plain(described(gpu, driver))
        for count, gpu, driver in rows
        for number in range(count)
    }
    return write(tmp_path / "nodes.ndjson", nodes)


def test_the_document_and_the_text(call, documents):
    command = f"{SOLVE} {documents}"
    document = call(f"{command} --json", status=3).document  # R580 is the last branch for Pascal
    assert (document["nodes"], document["locks"], document["proved"]) == (8, 1, True)
    assert [plan["locks"] for plan in document["plans"]] == [1, 2]
    group = document["plans"][0]["groups"][0]
    assert (group["nodes"], group["host"]["gpus"]) == (7, ["V100", "H100"])
    assert group["older"] == [{"name": "torch", "newest": "2.15.0", "nodes": 5}]
    assert document["unsolved"][0]["reasons"][0]["code"] == "gpu-dropped-by-driver"
    text = call(command, status=3).stdout
    assert text.startswith("1 lock serves 7 nodes; classes of hosts: 3")
    assert "5 of them could have torch 2.15.0" in text
    assert "torch 2.15.0 on 5 nodes: Python 3.12, linux-x86_64, driver >= 580.65.06, H100" in text
    assert "no lock for g0:" in text


def test_profiles_are_written_and_locked(call, documents, tmp_path, monkeypatch):
    command = f"{SOLVE} {documents} --json --locks 2 --write-profiles {tmp_path}"
    document = call(command, status=3).document
    path = tmp_path / "pyproject.toml"
    table = read_data(path)["tool"]["gpuenv"]
    assert document["profiles"] == {"path": str(path), "names": list(table["profiles"])}
    assert table["profiles"]["h100"] == TABLES["profile"]
    before = path.read_bytes()
    assert call(command, status=3).document["profiles"]["names"] == []
    assert path.read_bytes() == before
    monkeypatch.chdir(tmp_path)
    locked = call("lock --offline --json").document["profiles"]
    groups = document["plans"][1]["groups"]
    assert sorted(
        pin.wheel.version.partition("+")[0]
        for one in locked
        for pin in api.read_lock(one["path"]).pins
        if pin.wheel.name == "torch"
    ) == sorted(group["versions"]["torch"] for group in groups)
    for gpu, driver in (("H100", "580.65.06"), ("V100", "550.54.14")):
        lock = api.fitting_lock(api.project_state(), described(gpu, driver)).lock
        assert lock.needs.python == (3, 12)


@each("arguments message", TABLES["bad_usage"])
def test_bad_usage(call, documents, tmp_path, arguments, message):
    (tmp_path / "other").mkdir()
    text = '[tool.gpuenv]\nframeworks = ["jax"]\n'
    (tmp_path / "other" / "pyproject.toml").write_text(text)
    flags = [argument.format(dir=tmp_path) for argument in arguments]
    command = f"{SOLVE} {documents}"
    call(command, *flags, status=2).says_in_one_line(message)
    assert not (tmp_path / "pyproject.toml").exists()
    assert (tmp_path / "other" / "pyproject.toml").read_text() == text
