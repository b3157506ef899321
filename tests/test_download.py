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

from gpuenv.cli import main
from gpuenv.install import environment_files
from gpuenv.model import Python
from processes import run_program
from small_wheels import make_lock, make_wheel, write_lock
from tables import each

CPU = ["--gpu", "none", "--no-verify"]


def remote(tmp_path, server, *names, size=5000):
    """A lock of wheels on the server."""
    (tmp_path / "source").mkdir(exist_ok=True)
    wheels = []
    for name in names:
        wheel = make_wheel(tmp_path / "source", name, "1.0", files={f"{name}_data": "x" * size})
        data = (tmp_path / "source" / wheel.filename).read_bytes()
        server.add_file(name, wheel.filename, data)
        url = f"{server.base}/files/{wheel.filename}"
        wheels.append(wheel.replace(url=url, index=server.url, size=len(data)))
    return make_lock(*wheels)


def download(tmp_path, lock, server):
    command = ["download", str(lock), "-d", str(tmp_path / "wheels")]
    return main([*command, "--extra-index-url", server.url])


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_without_a_network(tmp_path, server, call):
    """With uv; `test_a_bundle_needs_only_python` does the same with pip."""
    lock = write_lock(tmp_path / "pylock.toml", remote(tmp_path, server, "alpha", "beta"))
    assert download(tmp_path, lock, server) == 0
    assert names_in(tmp_path / "wheels") == [
        "alpha-1.0-py3-none-any.whl", "beta-1.0-py3-none-any.whl"
    ]  # fmt: skip
    asked = len(server.asked)
    command = ["sync", str(lock), "--target", str(tmp_path / "env"), "--installer", "uv"]
    offline = ["--find-links", str(tmp_path / "wheels"), "--no-index"]
    call(*command, *offline, *CPU)
    assert len(server.asked) == asked
    packages = environment_files.read_packages(str(tmp_path / "env"))
    assert [package.name for package in packages] == ["alpha", "beta"]
    assert not list((tmp_path / "env").rglob("direct_url.json"))


@each("installer", ["uv", "pip"])
def test_sync_offline(tmp_path, server, call, monkeypatch, installer):
    """It takes the cache of uv and the files of --find-links, and names what is in neither."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    lock = write_lock(tmp_path / "pylock.toml", remote(tmp_path, server, "alpha"))
    named = ["--extra-index-url", server.url, "--installer", installer, *CPU]

    def offline(target, *words, status=0):
        asked = len(server.asked)
        command = ["sync", lock, "--target", tmp_path / target, "--offline", *named, *words]
        done = call(*command, status=status)
        assert len(server.asked) == asked
        assert (tmp_path / target).exists() == (status == 0)
        return done

    error = offline("env1", status=4).stderr
    assert "alpha 1.0" in error and "--find-links" in error
    offline("env2", "--find-links", tmp_path / "source")
    call("sync", lock, "--target", tmp_path / "env3", *named)
    done = offline("env4", status=0 if installer == "uv" else 4)
    assert installer == "uv" or "alpha-1.0-py3-none-any.whl of alpha 1.0 is in no" in done.stderr


def test_a_file_that_is_missing(tmp_path, server, call):
    lock = write_lock(tmp_path / "pylock.toml", remote(tmp_path, server, "alpha"))
    command = ["sync", str(lock), "--target", str(tmp_path / "env"), "--no-index", *CPU]
    (line,) = call(*command, "--extra-index-url", server.url, status=2).stderr.splitlines()
    assert "alpha 1.0 is in no --find-links folder" in line
    assert f"{server.base}/files/alpha-1.0" in line
    assert server.asked == [] and not (tmp_path / "env").exists()


def test_a_download_continues(tmp_path, server):
    """The server closes the connection in the middle, more often than a download tries again."""
    lock = write_lock(tmp_path / "pylock.toml", remote(tmp_path, server, "alpha", size=5_000_000))
    server.faults["/files/alpha"] = ["cut"] * 3
    assert download(tmp_path, lock, server) == 4
    (partial,) = (tmp_path / "wheels").iterdir()
    had = partial.stat().st_size
    assert had > 2_000_000
    assert download(tmp_path, lock, server) == 0
    _, headers = server.asked[-1]
    assert headers["range"] == f"bytes={had}-"
    (file,) = (tmp_path / "wheels").iterdir()
    expected = (tmp_path / "source" / file.name).read_bytes()
    assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(expected).digest()


@each("ranges", [True, False])
def test_a_partial_file_of_another_content(tmp_path, server, *, ranges):
    """With ranges its hash is wrong once; without them the whole file is downloaded again."""
    server.ranges = ranges
    lock = remote(tmp_path, server, "alpha")
    wheel = lock.pins[0].wheel
    path = write_lock(tmp_path / "pylock.toml", lock)
    (tmp_path / "wheels").mkdir()
    name = f".{wheel.filename}.{(wheel.sha256 or '')[:16]}.part"
    (tmp_path / "wheels" / name).write_bytes(b"junk")
    assert download(tmp_path, path, server) == (4 if ranges else 0)
    assert download(tmp_path, path, server) == 0
    assert names_in(tmp_path / "wheels") == [wheel.filename]


def test_files_with_another_hash(tmp_path, server, capsys):
    lock = write_lock(tmp_path / "pylock.toml", remote(tmp_path, server, "alpha"))
    server.faults["/files/alpha"] = ["tampered"]
    assert download(tmp_path, lock, server) == 4
    assert "wrong hash" in capsys.readouterr().err
    assert names_in(tmp_path / "wheels") == []
    other = tmp_path / "wheels" / "alpha-1.0-py3-none-any.whl"
    other.write_text("of another lock")
    assert download(tmp_path, lock, server) == 2
    assert other.read_text() == "of another lock"


def test_a_file_name_that_leads_elsewhere(tmp_path, server):
    wheel = remote(tmp_path, server, "alpha").pins[0].wheel
    url = f"{server.base}/files/..%2f..%2f{wheel.filename}"
    for filename in (wheel.filename, f"../../{wheel.filename}"):
        lock = make_lock(wheel.replace(url=url, filename=filename))
        path = write_lock(tmp_path / "pylock.toml", lock)
        assert download(tmp_path, path, server) == 2
    assert server.asked == [] and names_in(tmp_path) == ["pylock.toml", "source"]


# ---- bundles ------------------------------------------------------------------------------------


def bundle(tmp_path, lock, server):
    command = ["download", str(lock), "--bundle", str(tmp_path / "env.pyz")]
    return main([*command, "--extra-index-url", server.url])


def test_a_bundle_needs_only_python(tmp_path, server, capsys):
    """Without packages of the system, programs on PATH and, where that is allowed, a network."""
    lock = write_lock(tmp_path / "pylock.toml", remote(tmp_path, server, "alpha", "beta"))
    assert bundle(tmp_path, lock, server) == 0
    data = (tmp_path / "env.pyz").read_bytes()
    assert hashlib.sha256(data).hexdigest() in capsys.readouterr().out
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


def test_a_bundle_for_another_python(tmp_path, server, capsys, monkeypatch):
    """It has the compiled modules for that Python, which pip gets from its own index."""
    lock = remote(tmp_path, server, "alpha")
    python = Python(version=(3, 99))
    lock = lock.replace(host=lock.host.replace(python=python))
    path = write_lock(tmp_path / "pylock.toml", lock)
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    assert bundle(tmp_path, path, server) == 2
    assert "which pip cannot download" in capsys.readouterr().err
    version = importlib.metadata.version("msgspec")
    module = "msgspec/_core.cpython-399-x86_64-linux-gnu.so"
    files = {module: "for 3.99", "msgspec/__init__.py": "from . import _core"}
    wheel = make_wheel(links, "msgspec", version, files=files)
    name = f"msgspec-{version}-cp399-cp399-manylinux_2_17_x86_64.whl"
    (links / wheel.filename).rename(links / name)
    assert bundle(tmp_path, path, server) == 0
    with zipfile.ZipFile(tmp_path / "env.pyz") as archive:
        compiled = [name for name in archive.namelist() if name.endswith(".so")]
        assert compiled == [f"program/{module}"]
        assert archive.read(f"program/{module}") == b"for 3.99"
    command = [sys.executable, "-I", "-S", str(tmp_path / "env.pyz"), "--target", "env"]
    done = run_program(command, cwd=tmp_path, status=1)
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
def test_a_file_that_is_no_bundle(data, tmp_path, server, call):
    lock = write_lock(tmp_path / "pylock.toml", remote(tmp_path, server, "alpha"))
    (tmp_path / "env.pyz").write_bytes(data)
    command = ["sync", str(lock), "--target", str(tmp_path / "env"), "--no-index", *CPU]
    done = call(*command, "--find-links", str(tmp_path / "env.pyz"), status=2)
    (line,) = done.stderr.splitlines()
    assert "is neither a folder nor a complete bundle" in line
    assert not (tmp_path / "env").exists()


def test_writing_a_bundle(tmp_path, server, call):
    """A run that failed leaves what it has downloaded, and the next one uses and removes it."""
    lock = remote(tmp_path, server, "alpha", "beta")
    path = write_lock(tmp_path / "pylock.toml", lock)
    before = names_in(tmp_path)
    call(f"download {path}", status=2)
    assert names_in(tmp_path) == before
    server.faults["/files/beta"] = ["tampered"]
    assert bundle(tmp_path, path, server) == 4
    assert names_in(tmp_path) == [".env.pyz.gpuenv", *before]
    assert bundle(tmp_path, path, server) == 0
    asked = [place for place, _ in server.asked]
    assert sum("alpha" in place for place in asked) == 1
    assert names_in(tmp_path) == sorted([*before, "env.pyz"])
    data = (tmp_path / "env.pyz").read_bytes()
    assert bundle(tmp_path, path, server) == 0
    assert (tmp_path / "env.pyz").read_bytes() == data
    other = data.replace(b"version = '1.0'", b"version = '6.6'", 1)
    (tmp_path / "env.pyz").write_bytes(other)
    command = ["sync", str(path), "--target", str(tmp_path / "env"), "--no-index", *CPU]
    done = call(*command, "--find-links", str(tmp_path / "env.pyz"), status=4)
    assert "alpha 1.0" in done.stderr
    assert not (tmp_path / "env").exists()
