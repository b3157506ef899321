"""`gpuenv matrix list` and `show`: each case of data/matrix_show.json is one release."""

import pytest

import gpuenv
from gpuenv import api
from gpuenv.compat.catalog import pick
from gpuenv.requirements.target import version_key
from tables import data_file, each

TABLES = data_file("tables/matrix_show.json")

CASES = data_file("matrix_show.json")
CONTRACT = {"variant", "cuda", "cudnn", "sass", "ptx", "requires_python", "source"}


@pytest.fixture
def ask(call):
    return lambda *words: call("matrix", *words, "--json").document


@each("case", CASES, ids=["-".join([*case["args"], case["platform"]]) for case in CASES])
def test_show(case, ask):
    shown = ask("show", *case["args"], "--platform", case["platform"])
    assert set(shown) == {"name", "version", "variants"}
    assert shown["version"] == case["version"]
    found = {one["variant"]: one for one in shown["variants"]}
    assert "first" not in case or shown["variants"][0]["variant"] == case["first"]
    assert not case.get("only") or set(found) == set(case["variants"])
    for name, facts in case["variants"].items():
        variant = found[name]
        assert (
            set(variant) >= CONTRACT
            and variant["source"]
            and variant["platform"] == case["platform"]
        )
        for fact, value in facts.items():
            if fact == "has":
                assert {*value} <= {*variant["sass"]}
            elif fact == "lacks":
                assert not {*value} & {*variant["sass"]}
            elif fact == "bad":
                assert variant["known_bad"]["severity"] == value
            else:
                assert variant[fact] == value


def test_what_is_known_is_listed_and_can_be_shown(ask):
    listed = ask("list", "--platform", "linux-x86_64")
    assert {one["name"] for one in listed["frameworks"]} == {*api.compatibility_data().frameworks()}
    assert {"nvidia-cudnn-cu12", "torchvision"} <= {one["name"] for one in listed["libraries"]}
    for one in [*listed["frameworks"], *listed["libraries"]]:
        shown = ask("show", one["name"], "--platform", "linux-x86_64")
        versions = [release["version"] for release in shown["versions"]]
        assert len(versions) == one["releases"]
        assert versions == sorted(versions, key=version_key, reverse=True)
        if versions:
            newest = ask("show", one["name"], versions[0], "--platform", "linux-x86_64")
            assert newest["variants"] == shown["versions"][0]["variants"]
            assert [variant["variant"] for variant in newest["variants"]] == one["variants"]


@each("args", TABLES["people_get_a_table"])
def test_people_get_a_table(args, call):
    lines = call("matrix", *args, "--platform", "linux-x86_64").stdout.splitlines()
    assert any("cu12" in line for line in lines) and not any(line.endswith(" ") for line in lines)
    if args[-1] == "2.15":
        assert "sha256" in lines[-1] or any("source: " in line for line in lines)
        assert any("75 80 86 90 100 120" in line and ">=3.11" in line for line in lines)


@each("name version platform hint", TABLES["an_unknown_release_is_told_with_those_near_it"])
def test_an_unknown_release_is_told_with_those_near_it(name, version, platform, hint):
    with pytest.raises(
        gpuenv.InputError, match=f"known .*{name} {version} on {platform}"
    ) as raised:
        gpuenv.matrix_catalog().release(name, version, platform)
    assert raised.value.hint.startswith(hint)


@each(
    "name hint",
    [("torchvisoin", "did you mean torchvision or "), ("zzz", "`gpuenv matrix list` names all")],
)
def test_an_unknown_name_is_told_with_those_like_it(name, hint):
    with pytest.raises(gpuenv.InputError, match=f"nothing is known about {name}") as raised:
        gpuenv.matrix_catalog().entry(name, "linux-x86_64")
    assert raised.value.hint.startswith(hint)


@each("asked version", TABLES["numbers"])
def test_a_version_means_the_newest_that_begins_with_its_numbers(asked, version):
    assert pick(["9.1.0.70", "9.10.2.21", "9.1.1.17", "9.9.0.52"], asked) == version
