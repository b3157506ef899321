"""Environments of another Python than gpuenv's: pyenv's, uv's and downloaded ones."""

import hashlib
import io
import json
import platform
import sys
import tarfile
from pathlib import Path

import pytest

from gpuenv import Python, interpreters
from processes import program
from small_wheels import make_wheel
from tables import HERE, each, on_linux
from test_cli import run

OTHER = "3.13" if HERE != "3.13" else "3.14"
PREFIX = Path(sys.base_prefix)
pytestmark = on_linux


# What an interpreter of another release answers to a script. Its options are those of this Python.
SCRIPT = """
import operator, platform, runpy, sys, sysconfig
class Version(tuple):
    major, minor, micro, releaselevel, serial = map(property, map(operator.itemgetter, range(5)))
sys.version_info = Version(({release}, "final", 0))
sys.version = sys.version.replace(platform.python_version(), "{version}")
sys.executable = sys._base_executable = "{python}"
sysconfig.get_config_vars()["Py_GIL_DISABLED"] = {free_threaded}
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def stand_in(folder, version, base=f"{PREFIX}/bin/python{HERE}"):
    """An interpreter that says that it is of another release, such as 3.13.1t."""
    (folder / "bin").mkdir(parents=True)
    python, plain = folder / "bin" / "python", version.removesuffix("t")
    code = SCRIPT.format(
        release=plain.replace(".", ", "),
        version=plain,
        python=python,
        free_threaded=int(version.endswith("t")),
    )
    (folder / "script.py").write_text(code)
    options = f'case "$1" in -*) exec {base} "$@";; esac'
    return program(python, f'{options}\nexec {base} {folder}/script.py "$@"')


@pytest.fixture
def folder(tmp_path):
    """A folder with a wheel and its lock for another Python."""
    work = tmp_path / "work"
    (work / "wheels").mkdir(parents=True)
    make_wheel(work / "wheels", "alpha", "1.0")
    solve = f"solve alpha --gpu none --python {OTHER}"
    run(f"{solve} --no-index --find-links wheels", work)
    return work


def sync(folder, *flags, status=0, **environment):
    """Sync with pip: uv asks an interpreter more than a stand-in answers."""
    command = "sync --target env --gpu none --no-verify --installer pip --find-links wheels"
    empty = str(folder / "empty")
    variables = {"PYENV_ROOT": empty, "UV_PYTHON_INSTALL_DIR": empty, "PATH": "/usr/bin:/bin"}
    words = [*command.split(), *flags]
    return run(words, folder, status=status, **variables | environment).stderr


@each("flags", [[], ["--python", OTHER]], ids=["lock", "flag"])
def test_sync_makes_an_environment_of_the_locks_python(folder, flags):
    versions = folder / "pyenv" / "versions"
    for version in (f"{OTHER}.4", f"{OTHER}.12", f"{OTHER}.14t", "3.9.18"):
        stand_in(versions / version, version)
    (versions / "miniconda3-latest").mkdir()
    assert sync(folder, *flags, PYENV_ROOT=str(folder / "pyenv")) == ""
    site = folder / "env" / "lib" / f"python{HERE}" / "site-packages"  # the stand-in is not OTHER
    assert (site / "alpha-1.0.dist-info").is_dir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYENV_ROOT", str(folder / "pyenv"))
        patch.setenv("PATH", "/usr/bin:/bin")
        major, minor = map(int, OTHER.split("."))
        for free_threaded, name in ((False, ".12"), (True, ".14t")):
            wanted = Python(version=(major, minor), free_threaded=free_threaded)
            python = interpreters.find_interpreter_of(wanted)
            assert python == str(versions / f"{OTHER}{name}" / "bin" / "python")


@each(
    "flags status says",
    [
        (["--python", "3.9"], 1, f"the lock needs Python {OTHER}; this host has Python 3.9"),
        (["--python", sys.executable], 1, "leave --python out, or make another lock"),
        ([], 2, f"no Python {OTHER} was found, which the lock is for; name one: --python EXE"),
        (["--python-downloads"], 4, f"uv cannot download Python {OTHER}: No download found"),
    ],
)
def test_mistakes(folder, flags, status, says):
    (folder / "downloads.json").write_text("{}")
    downloads = str(folder / "downloads.json")
    cache = str(folder.parent / "uv")
    variables = {"UV_PYTHON_DOWNLOADS_JSON_URL": downloads, "UV_CACHE_DIR": cache}
    said = sync(folder, *flags, status=status, **variables)
    assert says in said and len(said.splitlines()) == (1 if status != 1 else 2)
    assert not (folder / "env").exists()


def test_uv_downloads_an_interpreter(tmp_path, monkeypatch):
    """The archive is one of python-build-standalone's form, with a stand-in in it."""
    major, minor = map(int, OTHER.split("."))
    key = f"cpython-{OTHER}.99-linux-{platform.machine()}-gnu"
    managed = tmp_path / "managed" / key / "bin" / "python"
    built = stand_in(tmp_path / "built", f"{OTHER}.99").parent.parent
    text = (built / "script.py").read_text().replace(str(built), str(managed.parent.parent))
    config = f"lib/python{OTHER}/_sysconfigdata__linux_{platform.machine()}-linux-gnu.py"
    header = "# system configuration generated and used by the sysconfig module\n"
    members = {
        "bin/python": (built / "bin" / "python")
        .read_text()
        .replace(str(built), str(managed.parent.parent)),
        f"bin/python{OTHER}": "",
        "script.py": text,
        config: f"{header}build_time_vars = {{}}\n",
    }
    archive = tmp_path / "python.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for name, content in members.items():
            member = tarfile.TarInfo(f"python/{name}")
            member.size, member.mode = len(content), 0o755
            file.addfile(member, io.BytesIO(content.encode()))
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
    (tmp_path / "downloads.json").write_text(json.dumps({key: row}))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", str(tmp_path / "downloads.json"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "managed"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    wanted = Python(version=(major, minor))
    assert interpreters.find_interpreter_of(wanted) is None
    assert interpreters.download(wanted) == str(managed)
