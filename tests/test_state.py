"""Which environment and which lock a command uses, and what becomes of them, as users type it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuenv.install.transaction import Transaction
from small_wheels import make_wheel
from tables import data_file, each, read_data
from test_cli import run, run_process

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PROJECT = f"""
[project]
name = "demo"
version = "1"
dependencies = ["alpha"]
requires-python = ">=3.9"

[tool.gpuenv]
python = "{PYTHON}"
no-index = true
find-links = ["links"]

[tool.gpuenv.profiles.cpu]
gpu = "none"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of wheels. No environment is active, and gpuenv's own is first on PATH."""
    (tmp_path / "links").mkdir()
    for name in ("alpha", "beta", "gamma"):
        make_wheel(tmp_path / "links", name, "1.0")
    make_wheel(tmp_path / "links", "alpha", "2.0")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    own = str(Path(sys.prefix, "bin"))
    monkeypatch.setenv("PATH", os.pathsep.join([own, *os.get_exec_path()]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gpuenv(text, status=0):
    """Return what a command prints."""
    done = run(text, Path.cwd(), status=status, PATH=os.environ["PATH"])
    return done.output


def installed(folder):
    infos = folder.glob("lib/python3*/site-packages/*.dist-info")
    return sorted(info.name.removesuffix(".dist-info") for info in infos)


def install(words, status=0):
    return gpuenv(f"install {words} --gpu none --no-index --find-links links", status)


def test_a_gpu_host_takes_the_lock_of_its_profile_although_nothing_in_it_uses_the_gpu(
    folder,
):
    profile = '[tool.gpuenv.profiles.h100]\ngpu = "H100"\ndriver = "580.65.06"\n'
    (folder / "pyproject.toml").write_text(PROJECT + profile)
    gpuenv("lock")
    said = gpuenv("sync --dry-run --gpu H100 --driver 580.65.06")
    assert "pylock.h100.toml fits this host" in said and "pylock.cpu.toml" not in said


def test_the_environment_of_gpuenv_itself_is_never_meant(folder):
    for command in ("verify", "run true", "pip install alpha --dry-run"):
        assert "gpuenv's own does not count" in gpuenv(command, 2)
    install("alpha")
    assert "environment: .venv" in gpuenv("verify --no-device")
    assert str(folder / ".venv") in gpuenv("run python -c 'import sys;print(sys.prefix)'")


def test_an_installation_adds_to_an_environment(folder):
    """What it was made for keeps its version; what others installed stays; --exact removes."""
    install("alpha==1.0 --target env")
    python = str(folder / "env/bin/python")
    beta = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index"]
    subprocess.run([*beta, "--find-links", "links", "beta"], check=True)
    install("gamma --target env")
    assert installed(folder / "env") == ["alpha-1.0", "beta-1.0", "gamma-1.0"]
    assert "alpha 1.0" in gpuenv("tree pylock.toml")
    install("alpha>1 --target env")
    assert installed(folder / "env") == ["alpha-2.0", "beta-1.0", "gamma-1.0"]
    assert "in place of another lock" in install("gamma --target other")
    install("gamma --target env --exact --yes")
    assert installed(folder / "env") == ["gamma-1.0"]


def test_a_link_to_an_environment_stays_a_link(folder):
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    install("alpha==1.0 --target link/")
    install("alpha>1 --target link")
    assert (folder / "link").is_symlink() and installed(folder / "real") == ["alpha-2.0"]


def test_a_stale_lock_is_refused(folder):
    """The dependencies of [project] are locked; `--frozen` takes an old lock."""
    project = folder / "pyproject.toml"
    project.write_text(PROJECT)
    gpuenv("lock")
    gpuenv("sync")
    assert installed(folder / ".venv") == ["alpha-2.0"]
    assert "alpha 2.0" in gpuenv("tree") and "asked for" in gpuenv("why alpha")
    project.write_text(PROJECT.replace('["alpha"]', '["alpha", "beta"]'))
    for command in ("sync", "run true", "sync -q"):
        said = gpuenv(command, 1)
        assert "pylock.cpu.toml is stale" in said and "run gpuenv lock cpu" in said
    gpuenv("run --frozen true")
    gpuenv("sync --frozen")
    gpuenv("lock")
    assert "add     beta 1.0" in gpuenv("run true")
    assert installed(folder / ".venv") == ["alpha-2.0", "beta-1.0"]
    assert gpuenv("run true").splitlines() == ["environment: .venv"]


def test_the_loop_of_a_project_has_one_command_for_each_step(folder):
    """add and remove change the project, its locks and the environment, or nothing."""
    assert "gpuenv install FRAMEWORK" in gpuenv("")
    for command in ("add alpha", "remove alpha", "lock"):
        assert "has no pyproject.toml; gpuenv init writes a first one" in gpuenv(command, 2)
    gpuenv("init --gpu none")
    assert "next         gpuenv add NAME" in gpuenv("status")
    assert "tool.gpuenv.profiles.cpu asks for nothing; gpuenv add NAME" in gpuenv("lock", 2)
    project = folder / "pyproject.toml"
    project.write_text(PROJECT)
    assert "pylock.cpu.toml: missing" in gpuenv("status")
    for word in ("--frozen", "--locked"):
        assert "it is missing" in gpuenv(f"sync {word}", 1)
    assert "pylock.cpu.toml: new" in gpuenv("run true") and installed(folder / ".venv")
    assert "verifying what changed (2 packages)" in gpuenv("add beta gamma==1.0")
    assert "alpha 2.0\nbeta 1.0\ngamma 1.0\n3 packages" in gpuenv("tree --invert")
    assert 'dependencies = ["alpha", "beta", "gamma==1.0"]' in project.read_text()
    assert gpuenv("list").split("\n")[:3] == ["alpha 2.0", "beta 1.0", "gamma 1.0"]
    assert json.loads(run("remove beta --json", folder).stdout)["checks"]
    assert installed(folder / ".venv") == ["alpha-2.0", "gamma-1.0"]
    before = project.read_bytes()
    assert "delta: not found" in gpuenv("add delta", 3)
    assert project.read_bytes() == before
    said = gpuenv("status")
    assert ".venv: has its lock" in said and "next         gpuenv run COMMAND" in said
    gpuenv("remove gamma --no-sync")
    assert ".venv: does not have the lock of the project" in gpuenv("status")


def test_offline_holds_for_the_lock_and_for_what_is_installed(folder, server, monkeypatch):
    """`run` makes a missing lock and installs it, `add` does both again."""
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "uv-cache"))
    server.add("alpha", "1.0")
    project = folder / "pyproject.toml"
    url = f'index-url = "{server.url}"'
    project.write_text(PROJECT.replace("no-index = true", url).replace('["links"]', "[]"))
    for command in ("run --offline true", "sync --offline", "lock --offline"):
        assert "--offline is on" in gpuenv(command, 4)
    assert not server.asked
    gpuenv("lock")
    asked = len(server.asked)
    for command in ("run --offline true", "sync --offline", "add alpha --offline"):
        assert "alpha 1.0" in gpuenv(command, 4)
    assert len(server.asked) == asked and not (folder / ".venv").exists()
    gpuenv("run true")
    asked = len(server.asked)
    gpuenv("sync --offline --target other")
    assert len(server.asked) == asked and installed(folder / "other") == ["alpha-1.0"]


def test_an_environment_of_another_python_stays_and_is_named(folder):
    project = folder / "pyproject.toml"
    project.write_text(PROJECT)
    gpuenv("lock")
    gpuenv("sync")
    other = f"3.{sys.version_info.minor - 1}"
    assert "python in [tool.gpuenv], then gpuenv lock" in gpuenv(f"sync --python {other}", 1)
    project.write_text(PROJECT.replace(f'python = "{PYTHON}"', f'python = "{other}"'))
    gpuenv("lock")
    for command in ("sync", "run true"):
        said = gpuenv(command, 2)
        assert f"is for Python {PYTHON}, and the lock is for Python {other}" in said
        assert f"make it again: rm -r {folder / '.venv'}" in said
    assert ".venv: does not have the lock of the project" in gpuenv("status")
    assert installed(folder / ".venv") == ["alpha-2.0"]


@each(
    "command status said",
    data_file("tables/state.json")["changes"],
)
def test_a_change_is_made_whole_or_not_at_all(folder, monkeypatch, request, command, status, said):
    """It is made if an interrupt comes after the environment was replaced."""

    def state():
        paths = [folder / "pyproject.toml", *folder.glob("pylock.*.toml")]
        return {path: path.read_bytes() for path in paths}, installed(folder / ".venv")

    def interrupted(transaction):
        if is_late:
            commit(transaction)
        raise KeyboardInterrupt

    for name in ("gamma", "clash"):
        make_wheel(folder / "links", name, "1.0", files={"shared/lib.so": name})
    (folder / "pyproject.toml").write_text(PROJECT)
    gpuenv("add gamma")
    before, commit = state(), Transaction.commit
    is_late = "late" in request.node.name
    with monkeypatch.context() as patch:
        if status == 130:
            patch.setattr(Transaction, "commit", interrupted)
        assert said in gpuenv(command, status)
    assert (state() != before) == is_late
    gpuenv("lock --check")
    assert "0 to add, 0 to change, 0 to remove" in gpuenv("sync --dry-run")


def test_requirements_of_groups_extras_and_paths(folder):
    """Each is written where uv reads it, locked, and removed from wherever it is."""
    (folder / "pyproject.toml").write_text(f"# ours\n{PROJECT}# the end\n")
    gpuenv("add --dev beta")
    gpuenv("add --optional Fast gamma")
    (folder / "beside").mkdir()
    wheel = make_wheel(folder / "beside", "delta", "1.0")
    gpuenv(f"add ./beside/{wheel.filename}")
    document = read_data(folder / "pyproject.toml")
    assert document["project"]["dependencies"] == ["alpha", "delta"]
    assert document["project"]["optional-dependencies"] == {"Fast": ["gamma"]}
    assert document["dependency-groups"] == {"dev": ["beta"]}
    assert document["tool"]["uv"]["sources"] == {"delta": {"path": f"beside/{wheel.filename}"}}
    table = document["tool"]["gpuenv"]
    assert (table["groups"], table["extras"]) == (["dev"], ["Fast"])
    assert [*table["profiles"]] == ["cpu"]
    gpuenv("add --optional fast gamma==1.0")  # the same extra
    assert installed(folder / ".venv") == ["alpha-2.0", "beta-1.0", "delta-1.0", "gamma-1.0"]
    assert f'path = "beside/{wheel.filename}"' in (folder / "pylock.cpu.toml").read_text()
    for lock in ("cpu", "pylock.cpu.toml", ""):  # nobody names the folder again
        gpuenv(f"sync {lock}")
    gpuenv("download cpu -d files")
    assert "dependency-groups.dev does not name it" in gpuenv("remove --dev gamma", 2)
    assert "is no name of a group" in gpuenv("add --group 'a b' gamma", 2)
    gpuenv("remove beta gamma delta")
    assert installed(folder / ".venv") == ["alpha-2.0"]
    text = (folder / "pyproject.toml").read_text()
    assert "delta" not in text and "gamma" not in text and "beta" not in text
    assert text.startswith("# ours\n") and "# the end\n" in text
    gpuenv("remove alpha")  # the last one
    assert installed(folder / ".venv") == []


@each("locale", ["C", "POSIX", "de_DE.ISO-8859-1", "C.UTF-8"])
def test_paths_are_utf_8_in_every_locale(folder, locale):
    """The loop of a project in a folder with a space and an umlaut."""
    place = folder / "an \u00fcmlaut"
    place.mkdir()
    (folder / "links").rename(place / "links")
    (place / "pyproject.toml").write_text(PROJECT)
    words = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for command in ("add beta", "status", "run true", "remove beta", "rollback"):
        run_process(command, place, **words)
    assert installed(place / ".venv") == ["alpha-2.0", "beta-1.0"]
