"""`gpuenv download`, bundles, `sync --find-links --no-index`: environments without a network."""

import fcntl
import hashlib
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from gpuenv.install import environment_files
from gpuenv.model import Python
from processes import run_program
from small_wheels import make_lock, make_wheel, write_lock
from tables import each

CPU = "--gpu none --no-verify"
DOWNLOAD = "download pylock.toml -d wheels"
BUNDLE = "download pylock.toml --bundle env.pyz"
SYNC = f"sync pylock.toml --target env --no-index {CPU}"


@pytest.fixture
def typed(call, server, tmp_path, monkeypatch):
    """typed(text): run a command in `tmp_path`, with the server unless it uses no index."""
    monkeypatch.chdir(tmp_path)
    index = ("--extra-index-url", server.url)
    return lambda text, status=0: call(text, *index * ("--no-index" not in text), status=status)


@pytest.fixture
def locked(tmp_path, server):
    """locked(*names): write pylock.toml, of wheels on the server, and return the lock."""

    def lock(*names, size=5000):
        (tmp_path / "source").mkdir(exist_ok=True)
        wheels = []
        for name in names:
            files = {f"{name}_data": "x" * size}
            wheel = make_wheel(tmp_path / "source", name, "1.0", files=files)
            data = (tmp_path / "source" / wheel.filename).read_bytes()
            server.add_file(name, wheel.filename, data)
            url = f"{server.base}/files/{wheel.filename}"
            wheels.append(wheel.replace(url=url, index=server.url, size=len(data)))
        write_lock(tmp_path / "pylock.toml", make_lock(*wheels))
        return make_lock(*wheels)

    return lock


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_without_a_network(tmp_path, server, locked, typed):
    """With uv; `test_a_bundle_needs_only_python` does the same with pip."""
    locked("alpha", "beta")
    typed(DOWNLOAD)
    assert names_in(tmp_path / "wheels") == [
        "alpha-1.0-py3-none-any.whl", "beta-1.0-py3-none-any.whl"
    ]  # fmt: skip
    asked = len(server.asked)
    typed(f"{SYNC} --installer uv --find-links wheels")
    assert len(server.asked) == asked
    packages = environment_files.read_packages(str(tmp_path / "env"))
    assert [package.name for package in packages] == ["alpha", "beta"]
    assert not list((tmp_path / "env").rglob("direct_url.json"))


def test_sync_offline(tmp_path, server, locked, typed, monkeypatch, installer):
    """It takes the cache of uv and the files of --find-links, and names what is in neither."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    locked("alpha")
    sync = f"sync pylock.toml --installer {installer} {CPU}"

    def offline(target, flags="", status=0):
        asked = len(server.asked)
        done = typed(f"{sync} --target {target} --offline {flags}", status=status)
        assert len(server.asked) == asked
        assert (tmp_path / target).exists() == (status == 0)
        return done

    error = offline("env1", status=4).stderr
    assert "alpha 1.0" in error and "--find-links" in error
    offline("env2", "--find-links source")
    typed(f"{sync} --target env3")
    done = offline("env4", status=0 if installer == "uv" else 4)
    assert installer == "uv" or "alpha-1.0-py3-none-any.whl of alpha 1.0 is in no" in done.stderr


def test_a_file_that_is_missing(tmp_path, server, locked, typed):
    locked("alpha")
    (line,) = typed(SYNC, status=2).stderr.splitlines()
    assert "alpha 1.0 is in no --find-links folder" in line
    assert f"{server.base}/files/alpha-1.0" in line
    assert server.asked == [] and not (tmp_path / "env").exists()


def test_a_download_continues(tmp_path, server, locked, typed):
    """The server closes the connection in the middle, more often than a download tries again."""
    locked("alpha", size=5_000_000)
    server.faults["/files/alpha"] = ["cut"] * 3
    typed(DOWNLOAD, status=4)
    (partial,) = (tmp_path / "wheels").iterdir()
    had = partial.stat().st_size
    assert had > 2_000_000
    typed(DOWNLOAD)
    _, headers = server.asked[-1]
    assert headers["range"] == f"bytes={had}-"
    (file,) = (tmp_path / "wheels").iterdir()
    expected = (tmp_path / "source" / file.name).read_bytes()
    assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(expected).digest()


@each("ranges", [True, False])
def test_a_partial_file_of_another_content(tmp_path, server, locked, typed, ranges):
    """With ranges its hash is wrong once; without them the whole file is downloaded again."""
    server.ranges = ranges
    wheel = locked("alpha").pins[0].wheel
    (tmp_path / "wheels").mkdir()
    name = f".{wheel.filename}.{(wheel.sha256 or '')[:16]}.part"
    (tmp_path / "wheels" / name).write_bytes(b"junk")
    typed(DOWNLOAD, status=(4 if ranges else 0))
    typed(DOWNLOAD)
    assert names_in(tmp_path / "wheels") == [wheel.filename]


def test_files_with_another_hash(tmp_path, server, locked, typed):
    locked("alpha")
    server.faults["/files/alpha"] = ["tampered"]
    assert "wrong hash" in typed(DOWNLOAD, status=4).stderr
    assert names_in(tmp_path / "wheels") == []
    other = tmp_path / "wheels" / "alpha-1.0-py3-none-any.whl"
    other.write_text("of another lock")
    typed(DOWNLOAD, status=2)
    assert other.read_text() == "of another lock"


def test_a_file_name_that_leads_elsewhere(tmp_path, server, locked, typed):
    wheel = locked("alpha").pins[0].wheel
    url = f"{server.base}/files/..%2f..%2f{wheel.filename}"
    for filename in (wheel.filename, f"../../{wheel.filename}"):
        lock = make_lock(wheel.replace(url=url, filename=filename))
        write_lock(tmp_path / "pylock.toml", lock)
        typed(DOWNLOAD, status=2)
    assert server.asked == [] and names_in(tmp_path) == ["pylock.toml", "source"]


# ---- bundles ------------------------------------------------------------------------------------


def test_a_bundle_needs_only_python(tmp_path, locked, typed):
    """Without packages of the system, programs on PATH and, where that is allowed, a network."""
    locked("alpha", "beta")
    said = typed(BUNDLE).stdout
    assert hashlib.sha256((tmp_path / "env.pyz").read_bytes()).hexdigest() in said
    image = tmp_path / "image"
    image.mkdir()
    (tmp_path / "env.pyz").rename(image / "env.pyz")
    isolate = [shutil.which("unshare") or "false", "--map-root-user", "--net"]
    if subprocess.run([*isolate, "true"], capture_output=True, check=False).returncode:
        isolate = []
    python = [str(getattr(sys, "_base_executable", sys.executable)), "-I", "-S"]
    words = ["env.pyz", "--target", "env", "--gpu", "none", "--json"]
    variables = {"PATH": "/nothing", "HOME": str(image), "TMPDIR": str(tmp_path / "wheels")}
    (tmp_path / "wheels").mkdir()
    kill_when_unpacked([*isolate, *python, *words], image, variables)
    running = tmp_path / "wheels" / "gpuenv-bundle-of-another-run"
    running.mkdir()
    number = os.open(running, os.O_RDONLY)
    fcntl.flock(number, fcntl.LOCK_EX)
    assert run_program([*isolate, *python, *words], cwd=image, env=variables).document["ok"]
    packages = environment_files.read_packages(str(image / "env"))
    assert [package.name for package in packages] == ["alpha", "beta"]
    assert not list((image / "env").rglob("direct_url.json"))
    assert names_in(image) == ["env", "env.pyz"] and names_in(tmp_path / "wheels") == [running.name]
    os.close(number)


def test_a_bundle_for_another_python(tmp_path, locked, typed, monkeypatch):
    """It has the compiled modules for that Python, which pip gets from its own index."""
    lock = locked("alpha")
    lock = lock.replace(host=lock.host.replace(python=Python(version=(3, 99))))
    write_lock(tmp_path / "pylock.toml", lock)
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    assert "which pip cannot download" in typed(BUNDLE, status=2).stderr
    version = importlib.metadata.version("msgspec")
    module = "msgspec/_core.cpython-399-x86_64-linux-gnu.so"
    files = {module: "for 3.99", "msgspec/__init__.py": "from . import _core"}
    wheel = make_wheel(links, "msgspec", version, files=files)
    name = f"msgspec-{version}-cp399-cp399-manylinux_2_17_x86_64.whl"
    (links / wheel.filename).rename(links / name)
    typed(BUNDLE)
    with zipfile.ZipFile(tmp_path / "env.pyz") as archive:
        compiled = [name for name in archive.namelist() if name.endswith(".so")]
        assert compiled == [f"program/{module}"]
        assert archive.read(f"program/{module}") == b"for 3.99"
    done = run_program(f"{sys.executable} -I -S env.pyz --target env", cwd=tmp_path, status=1)
    assert "msgspec" in done.stderr
    assert "start the bundle with the Python that its lock is for" in done.stderr


def kill_when_unpacked(command, folder, variables):
    """Kill a bundle as soon as it has unpacked gpuenv. The unpacked folder stays."""
    with subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.DEVNULL) as child:
        while not list(Path(variables["TMPDIR"]).glob("gpuenv-bundle-*/program/gpuenv")):
            assert child.poll() is None
            time.sleep(0.005)
        child.kill()
    assert names_in(Path(variables["TMPDIR"]))


def table(*row):
    """A zip archive with a table of wheels."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("wheels.json", json.dumps({"alpha-1.0-py3-none-any.whl": row}))
    return buffer.getvalue()


DAMAGED = {
    "a text": b"alpha",
    "an archive without a table": table()[-22:],
    "a table of another form": table("x"),
    "a wheel in front of the file": table(-1, 5),
    "a wheel behind the file": table(0, 10**30),
    "a deep table": table().replace(b"[]", b"[" * 2),
}


@each("data", DAMAGED)
def test_a_file_that_is_no_bundle(data, tmp_path, locked, typed):
    locked("alpha")
    (tmp_path / "env.pyz").write_bytes(data)
    (line,) = typed(f"{SYNC} --find-links env.pyz", status=2).stderr.splitlines()
    assert "is neither a folder nor a complete bundle" in line
    assert not (tmp_path / "env").exists()


def test_writing_a_bundle(tmp_path, server, locked, typed):
    """A run that failed leaves what it has downloaded, and the next one uses and removes it."""
    locked("alpha", "beta")
    before = names_in(tmp_path)
    typed("download pylock.toml", status=2)
    assert names_in(tmp_path) == before
    server.faults["/files/beta"] = ["tampered"]
    typed(BUNDLE, status=4)
    assert names_in(tmp_path) == [".env.pyz.gpuenv", *before]
    typed(BUNDLE)
    asked = [place for place, _ in server.asked]
    assert sum("alpha" in place for place in asked) == 1
    assert names_in(tmp_path) == sorted([*before, "env.pyz"])
    data = (tmp_path / "env.pyz").read_bytes()
    typed(BUNDLE)
    assert (tmp_path / "env.pyz").read_bytes() == data
    other = data.replace(b"version = '1.0'", b"version = '6.6'", 1)
    (tmp_path / "env.pyz").write_bytes(other)
    done = typed(f"{SYNC} --find-links env.pyz", status=4)
    assert "alpha 1.0" in done.stderr
    assert not (tmp_path / "env").exists()
