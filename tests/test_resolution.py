"""General resolution, replayed: small made universes, and what pip's rules make of them."""

import json
import platform
import sys

import pytest

from gpuenv.compat import data
from gpuenv.errors import InputError, NoSolutionError
from gpuenv.model import Host, Python, Request
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve import solver
from gpuenv.resolve.solver import solve
from hosts import host
from script_modules import load_script
from tables import ROOT, data_file, each, read_data
from universe import BASE, Universe

TABLES = data_file("tables/resolution.json")

FOLDER = ROOT / "tests" / "data" / "resolution"
DATA = data.load()
HOST = Host(glibc=(2, 28), python=Python(version=(3, 12), full_version="3.12.4"))


def every_case():
    """Every case, with the packages of its universe in it."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        content = read_data(path)
        packages = content["universes"]
        found += [
            {**case, "id": f"{path.stem}: {case['name']}", "packages": packages[case["in"]]}
            for case in content["cases"]
        ]
    return found


CASES = every_case()


def host_of(case):
    """The target of a case; this interpreter on this machine where it names none."""
    if "target" not in case:
        libc = tuple(int(part) for part in platform.libc_ver()[1].split(".")[:2])
        python = Python(
            version=sys.version_info[:2], full_version=".".join(map(str, sys.version_info[:3]))
        )
        return Host(machine=platform.machine(), glibc=(libc[0], libc[1]), python=python)
    target = case["target"]
    numbers = target["python"].removesuffix("t").split(".")
    full = target["python"] if len(numbers) == 3 else None
    glibc = [int(part) for part in target.get("glibc", "2.28").split(".")]
    system, _, machine = target.get("platform", "linux-x86_64").partition("-")
    return Host(
        os="windows" if system == "win" else system,
        machine=machine.replace("amd64", "x86_64"),
        glibc=None if system == "win" else (glibc[0], glibc[1]),
        python=Python(
            version=(int(numbers[0]), int(numbers[1])),
            full_version=full,
            free_threaded=target["python"].endswith("t"),
        ),
    )


def request_of(case, universe, base=BASE):
    digests = {
        wheel.filename: wheel.sha256 for name in case["packages"] for wheel in universe.files(name)
    }
    hashes = {
        name: tuple(str(digests[one]) for one in files)
        for name, files in case.get("hashes", {}).items()
    }
    return Request(
        requirements=tuple(text.replace("{base}", base) for text in case["requires"]),
        constraints=tuple(text.replace("{base}", base) for text in case.get("constraints", ())),
        pre=case.get("pre", False),
        no_build=tuple(case.get("no_build", ())),
        no_binary=tuple(case.get("no_binary", ())),
        hashes=tuple(hashes.items()),
        require_hashes=bool(hashes),
    )


def packages_at(case, base):
    """The packages of a case whose URLs are below `base`."""
    return json.loads(json.dumps(case["packages"]).replace("{base}", base))


def solved(case):
    universe = Universe(packages_at(case, BASE))
    return solver.solve(
        request_of(case, universe), host_of(case), DATA, universe, TargetEnvironment, changes=False
    )


@each("case", CASES, ids=[case["id"] for case in CASES])
def test_cases(case):
    if "mistake" in case:
        with pytest.raises(InputError, match=case["mistake"]):
            solved(case)
        return
    if "conflict" in case:
        with pytest.raises(NoSolutionError) as refusal:
            solved(case)
        reasons = refusal.value.explanation.reasons
        told = "\n".join(f"{one.subject} needs {one.need}; have {one.have}" for one in reasons)
        assert [name for name in case["conflict"] if name not in told] == [], told
        assert set(case["codes"]) <= {reason.code for reason in reasons}, told
        assert all(reason.need and reason.have and reason.subject for reason in reasons)
        return
    plan = solved(case)
    assert plan.versions == case["pins"]
    files = {pin.wheel.name: pin.wheel.filename for pin in plan.pins}
    assert {name: files[name] for name in case.get("files", {})} == case.get("files", {})
    assert [f"{one.code} {one.subject}: {one.need}" for one in plan.warnings] == case.get(
        "warnings", []
    )


@each("requirements conflicts", TABLES["all_conflicting_pairs_of_a_short_request_are_named"])
def test_all_conflicting_pairs_of_a_short_request_are_named(requirements, conflicts):
    """Of a longer request it is the first group that was found."""
    names = [f"p{number}" for number in range(requirements)]
    packages = {name: {"1.0": {}} for name in names}
    packages |= {name: {"1.0": {}, "2.0": {}} for name in ("c", "d")}
    needs = {"p0": "c==1.0", "p1": "c==2.0", "p2": "d==1.0", "p3": "d==2.0"}
    packages |= {name: {"1.0": {"requires": [need]}} for name, need in needs.items()}
    with pytest.raises(NoSolutionError) as refusal:
        solved({"packages": packages, "requires": names, "target": {"python": "3.12"}})
    reasons = refusal.value.explanation.reasons
    assert [one.subject for one in reasons] == [f"{name} 1.0" for name in conflicts]


@each("pins choices", TABLES["frameworks_that_are_dependencies_are_choices"])
def test_frameworks_that_are_dependencies_are_choices(pins, choices):
    packages = {"app": {"1.0": {"requires": pins}}}
    for pin in pins:
        name, version = pin.split("==")
        packages[name] = {version: {}}
    plan = solved({"packages": packages, "requires": ["app"], "target": {"python": "3.12"}})
    assert [f"{one.framework} {one.version} {one.variant}" for one in plan.choices] == choices


def test_there_are_enough_of_them():
    """A case that is lost on the way is noticed."""
    assert len(CASES) >= 300
    assert len({case["id"] for case in CASES}) == len(CASES)


def test_pip_and_uv_resolve_the_same():
    """A sample; the record is of all cases as they are now."""
    script = load_script("prove.resolvers")
    record = read_data(ROOT / "docs" / "records" / "resolvers.json")
    for result in (record, script.compare(6)):
        assert result["digest of the cases"] == script.digest_of_cases()
        assert result["differences"] == {"pip": [], "uv": []}


EDITED = data_file("suggestions.toml")
NO_GPU = host("none")


@each("case", EDITED["edit"], ids=lambda case: str(case["request"]))
def test_the_smallest_edits_of_a_request(case):
    request = Request(**{field: tuple(texts) for field, texts in case["request"].items()})
    with pytest.raises(NoSolutionError) as refusal:
        solve(request, NO_GPU, DATA, Universe(EDITED["packages"]), TargetEnvironment)
    found = [[one.change, one.gives] for one in refusal.value.explanation.changes]
    assert found == case["changes"]
