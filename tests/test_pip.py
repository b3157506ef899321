"""`gpuenv pip install` keeps what works; real installs by uv and pip over a loopback index."""

import json
import shlex
import venv

import pytest

from gpuenv.distributions import Distribution
from gpuenv.install import inplace_install
from gpuenv.model import Host, Python
from gpuenv.requirements.overrides import Overrides
from gpuenv.requirements.target import TargetEnvironment
from small_wheels import installed, write_files, write_record
from tables import cases, data_file, each
from test_cli import contents, run
from test_verification import site_of

DATA = data_file("pip.json")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    venv.create(folder / "env", symlinks=True)
    return folder


def put(folder, installed):
    """Distributions without files."""
    for name, (version, *more) in installed.items():
        requires = more[0] if more and more[0] != "direct" else ()
        direct = '{"url": "file:///x", "dir_info": {"editable": true}}'
        texts = {"direct_url.json": direct} if "direct" in more else {}
        write_record(site_of(folder / "env"), name, version, requires=requires, texts=texts)


def present(folder):
    return installed(folder / "env")


@pytest.fixture
def pip(folder):
    """pip(text): run `gpuenv pip install` for the environment of the folder, which is active."""

    def command(text, *, active=True, status=0):
        variables = {"VIRTUAL_ENV": str(folder / "env")} if active else {}
        return run(f"pip install {text}", folder, status=status, **variables)

    return command


def steps(done):
    document = done.document
    found = {one["name"]: [one["was"], one["version"]] for one in document["installed"]}
    return found | {one["name"]: [one["version"], None] for one in document["removed"]}


@cases(DATA["cases"])
def test_what_would_be_done(case, folder, server, pip):
    for name, releases in case["index"].items():
        for version, requires in releases.items():
            server.add(name, version, requires)
    put(folder, case.get("installed", {}))
    write_files(folder, case.get("files", {}))
    before = present(folder)
    words = f"--dry-run --json -i {server.url} {shlex.join(case['args'])}"
    done = pip(words, status=case.get("status", 0))
    if done.returncode == 0:
        assert steps(done) == case["steps"]
        assert (done.document["dry_run"], done.stderr) == (True, "")
    for text in case.get("says", []):
        assert text in done.stderr
    assert present(folder) == before


@each("case", DATA["mistakes"], ids=[" ".join(case["args"]) for case in DATA["mistakes"]])
def test_mistakes(case, folder, pip):
    done = pip(shlex.join(case["args"]), status=case["status"])
    done.says_in_one_line(*case["says"])
    assert present(folder) == {}


@cases(DATA["gpu"])
def test_frameworks_by_the_rules(case, folder, pip):
    """From the embedded snapshot: nothing is asked over the network, nothing is installed."""
    put(folder, case.get("installed", {}))
    words = f"--dry-run --json --offline --default-index-only {shlex.join(case['args'])}"
    done = pip(words, status=case.get("status", 0))
    for text in case.get("says", []):
        assert text in done.stderr
    if done.returncode:
        return
    document, found = done.document, steps(done)
    assert document["frameworks"].items() >= case["frameworks"].items()
    for name, (old, new) in case.get("steps", {}).items():
        assert found[name][0] == old
        assert new is None or found[name][1] == new
    assert not set(case.get("stays", ())) & set(found)
    assert [one["name"] for one in document["removed"]] == case.get("removed", [])


# ---- real installs -------------------------------------------------------------------------------


@each("installer", ["uv", "pip"])
def test_it_is_installed_and_verified_and_all_else_stays(installer, folder, server, pip):
    server.add("mine", "1.0")
    server.add("alpha", "1.0", ["beta>=1"])
    server.add("alpha", "2.0", ["beta>=1"])
    server.add("beta", "1.0")
    flags = f"-i {server.url} --installer {installer}"
    first = pip(f"alpha<2 mine {flags}")
    assert "install alpha 1.0" in first.stdout
    assert "\nverified: " in first.stdout
    assert present(folder) == {"alpha": "1.0", "beta": "1.0", "mine": "1.0"}
    server.add("beta", "2.0")
    second = pip(f"-U alpha --json {flags}")
    assert steps(second) == {"alpha": ["1.0", "2.0"]}
    assert second.document["verify"]["ok"] is True
    assert present(folder) == {"alpha": "2.0", "beta": "1.0", "mine": "1.0"}
    third = pip(f"alpha -q --no-verify {flags}")
    assert (third.stdout, third.stderr) == ("", "")


def test_an_environment_that_is_not_verified_stays(folder, server, pip):
    """A file of an installed package is missing. --no-verify installs all the same."""
    server.add("alpha", "1.0")
    put(folder, {"old": ["1.0"]})
    with (site_of(folder / "env") / "old-1.0.dist-info" / "RECORD").open("a") as record:
        record.write(f"old.py,sha256={'A' * 43},5\n")
    before = contents(folder)
    done = pip(f"alpha -i {server.url}", status=1)
    assert "NOT verified" in done.stdout and "is as it was" in done.stderr
    assert contents(folder) == before
    pip(f"alpha -i {server.url} --no-verify")
    assert present(folder) == {"alpha": "1.0", "old": "1.0"}


def test_files_of_a_folder_and_no_index(folder, server, pip):
    wheel = server.add("alpha", "1.0")
    (folder / "wheels").mkdir()
    (folder / "wheels" / wheel.filename).write_bytes(wheel.data)
    done = pip("--no-index -f wheels alpha --no-verify")
    assert present(folder) == {"alpha": "1.0"}
    done = pip("--no-index -f wheels beta", status=None)
    assert done.returncode in (3, 4), done.stdout
    assert "beta" in done.stderr
    assert server.asked == []


def test_an_environment_by_its_interpreter_or_the_one_that_stands_here(folder, server, pip):
    server.add("alpha", "1.0")
    words = f"alpha -i {server.url} --dry-run --json"
    pip(words, active=False, status=2)
    done = pip(f"{words} --python env/bin/python", active=False)
    assert done.document["target"] == str(folder / "env")
    (folder / "env").rename(folder / ".venv")
    assert pip(words, active=False).document["target"] == str(folder / ".venv")


def test_an_interpreter_of_a_system_that_manages_its_packages(tmp_path):
    python = tmp_path / "python"
    answer = {"prefix": "/usr", "managed": "/usr/lib/EXTERNALLY-MANAGED", "path": []}
    python.write_text(f"#!/bin/sh\necho 'gpuenv-probe: {json.dumps(answer)}'\n")
    python.chmod(0o755)
    (tmp_path / "work").mkdir()
    done = run(f"pip install alpha --python {python}", tmp_path / "work", status=2)
    assert "EXTERNALLY-MANAGED" in done.stderr


def test_metadata_that_is_no_requirement_is_passed_over():
    environment = TargetEnvironment(Host(python=Python(version=(3, 12))))
    have = {"a": Distribution(name="a", version="1.0", requires=("b (>=1)", "???", "c<2"))}
    limits = inplace_install.constraints_of_installed(have, environment, (), Overrides(()))
    assert [text for text, _ in limits] == ["b>=1", "c<2"]
