"""Environments of another Python than gpuenv's: pyenv's, uv's and downloaded ones."""

import hashlib
import io
import json
import platform
import sys
import tarfile
from pathlib import Path

import pytest

from gpuenv import api, interpreters
from gpuenv.interpreters import find_uv
from index_server import make_wheel
from test_cli import run

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHER = "3.13" if HERE != "3.13" else "3.14"
PREFIX = Path(sys.base_prefix)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-ins are shell scripts")


def stand_in(folder: Path, release: str) -> Path:
    """An interpreter that answers with a release, and otherwise is the one of the tests."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    base = PREFIX / "bin" / f"python{HERE}"
    answer = f'case "$*" in *Py_GIL_DISABLED*) echo {release}; exit;; esac\n'
    python.write_text(f'#!/bin/sh\n{answer}exec {base} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a wheel and its lock for another Python."""
    work = tmp_path / "work"
    (work / "wheels").mkdir(parents=True)
    name, data = make_wheel("alpha", "1.0")
    (work / "wheels" / name).write_bytes(data)
    solve = ["solve", "alpha", "--gpu", "none", "--python", OTHER]
    done = run([*solve, "--no-index", "--find-links", "wheels"], work)
    assert done.returncode == 0, done.stderr
    return work


def sync(folder: Path, *flags: str, **environment: str) -> tuple[int, str]:
    """Sync with pip: uv asks an interpreter more than a stand-in answers."""
    command = ["sync", "--target", "env", "--gpu", "none", "--no-verify", "--installer", "pip"]
    command += ["--find-links", "wheels"]
    empty = str(folder / "empty")
    variables = {"PYENV_ROOT": empty, "UV_PYTHON_INSTALL_DIR": empty, "PATH": "/usr/bin:/bin"}
    done = run([*command, *flags], folder, **variables | environment)
    return done.returncode, done.stderr


@pytest.mark.parametrize("flags", [[], ["--python", OTHER]], ids=["lock", "flag"])
def test_sync_makes_an_environment_of_the_locks_python(folder: Path, flags: list[str]) -> None:
    minor = OTHER.partition(".")[2]
    versions = folder / "pyenv" / "versions"
    stand_in(versions / f"{OTHER}.4", f"3 {minor} 0")
    newest = stand_in(versions / f"{OTHER}.12", f"3 {minor} 0")
    stand_in(versions / f"{OTHER}.14t", f"3 {minor} 1")
    stand_in(versions / "3.9.18", "3 9 0")
    (versions / "miniconda3-latest").mkdir()
    status, errors = sync(folder, *flags, PYENV_ROOT=str(folder / "pyenv"))
    assert (status, errors) == (0, "")
    site = folder / "env" / "lib" / f"python{HERE}" / "site-packages"  # the stand-in is not OTHER
    assert (site / "alpha-1.0.dist-info").is_dir()
    assert newest.exists()
    found = interpreters._managed_by_pyenv
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYENV_ROOT", str(folder / "pyenv"))
        assert [Path(path).parts[-3] for path in found(OTHER)] == [f"{OTHER}.12", f"{OTHER}.4"]
        assert [Path(path).parts[-3] for path in found(f"{OTHER}t")] == [f"{OTHER}.14t"]


@pytest.mark.parametrize(
    ("flags", "status", "says"),
    [
        (["--python", "3.9"], 1, f"the lock needs Python {OTHER}; this host has Python 3.9"),
        (["--python", sys.executable], 1, "leave --python out, or make another lock"),
        ([], 2, f"no Python {OTHER} was found, which the lock is for; name one: --python EXE"),
        (["--python-downloads"], 4, f"uv cannot download Python {OTHER}: No download found"),
    ],
)
def test_mistakes(folder: Path, flags: list[str], status: int, says: str) -> None:
    (folder / "downloads.json").write_text("{}")
    downloads = str(folder / "downloads.json")
    cache = str(folder.parent / "uv")
    done = sync(folder, *flags, UV_PYTHON_DOWNLOADS_JSON_URL=downloads, UV_CACHE_DIR=cache)
    assert done[0] == status, done[1]
    assert says in done[1] and len(done[1].splitlines()) == (1 if status != 1 else 2)
    assert not (folder / "env").exists()


def test_uv_downloads_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive is one of python-build-standalone's form, with this Python in it."""
    config = f"lib/python{HERE}/_sysconfigdata__linux_{platform.machine()}-linux-gnu.py"
    header = "# system configuration generated and used by the sysconfig module\n"
    members = {
        f"bin/python{HERE}": f'#!/bin/sh\nexec {PREFIX}/bin/python{HERE} "$@"\n',
        config: f"{header}build_time_vars = {{}}\n",
    }
    archive = tmp_path / "python.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for name, text in members.items():
            member = tarfile.TarInfo(f"python/{name}")
            member.size, member.mode = len(text), 0o755
            file.addfile(member, io.BytesIO(text.encode()))
    major, minor = map(int, HERE.split("."))
    row = {
        "name": "cpython",
        "arch": {"family": platform.machine(), "variant": None},
        "os": "linux",
        "libc": "gnu",
        "major": major,
        "minor": minor,
        "patch": 99,
        "prerelease": "",
        "url": archive.as_uri(),
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "variant": None,
        "build": "20260101",
    }
    key = f"cpython-{HERE}.99-linux-{platform.machine()}-gnu"
    (tmp_path / "downloads.json").write_text(json.dumps({key: row}))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", str(tmp_path / "downloads.json"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "managed"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    assert interpreters._managed_by_uv(HERE, find_uv() or "") is None
    python = interpreters.download(HERE, find_uv())
    assert (tmp_path / "managed" / key / "bin" / f"python{HERE}").is_file()
    assert interpreters._release_of(python) == (major, minor, False)


def test_an_interpreter_that_is_here_is_not_downloaded(folder: Path, tmp_path: Path) -> None:
    locked = api.read_lock(str(folder / "pylock.toml"))
    own = locked.replace(
        needs=locked.needs.replace(python=tuple(sys.version_info[:2])),
        host=locked.host.replace(python=api.detect(python=HERE).python),
    )
    assert api.downloaded_python(own, str(tmp_path / "new"), HERE) == sys.executable
    assert api.downloaded_python(own, str(tmp_path / "new"), "/usr/bin/x") == "/usr/bin/x"
