"""A failure of a channel gives one line with its name, and nothing is written."""

import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import conda_channel
from gpuenv.cli import main
from gpuenv.errors import PackageIndexError
from gpuenv.resolve.conda import solvers
from processes import run_program

HOST = ("--gpu", "H100", "--driver", "570.86.10", "--glibc", "2.35", "--platform", "linux-x86_64")
SUBDIRS = ("linux-64", "noarch")
BAD_INPUT, INDEX_FAILED = 2, 4


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that leaves amid an answer is none of the tests' business."""


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("channel")
    conda_channel.make(folder)
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CONDA_PREFIX", raising=False)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    with Server(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def damaged(channel: Path, tmp_path: Path) -> Path:
    """A copy of the channel's repodata that the tests damage."""
    for subdir in SUBDIRS:
        (tmp_path / "mine" / subdir).mkdir(parents=True)
        for name in ("repodata.json", "repodata.json.zst"):
            shutil.copy(channel / subdir / name, tmp_path / "mine" / subdir / name)
    return tmp_path / "mine"


def said(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, str]:
    """(the exit status, the one line on stderr) of a solve; no file was written."""
    out = tmp_path / "out"
    out.mkdir()
    command = [
        "solve",
        "--backend",
        "conda",
        "--framework",
        "torch",
        "--channel",
        url,
        *HOST,
        *more,
    ]
    status = main([*command, "-o", str(out / "lock.txt")])
    captured = capsys.readouterr()
    assert not list(out.iterdir()) and not captured.out
    (line,) = captured.err.splitlines()
    assert line.startswith("gpuenv: ") and "Traceback" not in line
    return status, line


def test_a_truncated_repodata(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for subdir in SUBDIRS:
        (damaged / subdir / "repodata.json.zst").unlink()
        path = damaged / subdir / "repodata.json"
        path.write_bytes(path.read_bytes()[:5000])
    status, line = said(str(damaged), tmp_path, capsys)
    assert status == INDEX_FAILED and damaged.as_uri() in line and "repodata.json" in line


def test_a_page_in_place_of_repodata(
    served: str, damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for subdir in SUBDIRS:
        (damaged / subdir / "repodata.json.zst").unlink()
        (damaged / subdir / "repodata.json").write_text("<html>sign in</html>")
    status, line = said(f"{served}/mine", tmp_path, capsys)
    assert status == INDEX_FAILED and f"{served}/mine" in line and "repodata.json" in line


def test_a_package_without_sha256(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for subdir in SUBDIRS:
        (damaged / subdir / "repodata.json.zst").unlink()
        path = damaged / subdir / "repodata.json"
        document = json.loads(path.read_text())
        for record in (*document["packages"].values(), *document["packages.conda"].values()):
            del record["sha256"]
        path.write_text(json.dumps(document))
    status, line = said(str(damaged), tmp_path, capsys)
    assert status == BAD_INPUT and "no sha256" in line and ".conda" in line


def test_a_channel_that_is_not_there(
    served: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, line = said(f"{served}/nowhere", tmp_path, capsys)
    assert status == BAD_INPUT and f"--channel {served}/nowhere" in line and "404" in line


def test_a_folder_that_is_no_channel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    status, line = said(str(tmp_path / "mine"), tmp_path, capsys)
    assert status == BAD_INPUT and (tmp_path / "mine").as_uri() in line and "noarch" in line


def test_a_channel_that_nothing_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        socket.socket() as taken
    ):  # bound, not listening: nothing answers there, and nobody else takes the port
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mine"
        status, line = said(url, tmp_path, capsys)
    assert status == INDEX_FAILED and url in line


@pytest.mark.usefixtures("damaged")
def test_offline_without_a_cache(
    served: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, line = said(f"{served}/mine", tmp_path, capsys, "--offline")
    assert status == INDEX_FAILED and "cache" in line


def executable(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_solver_that_ends_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", executable(tmp_path / "python", "exit 3"))
    solver = solvers.RattlerSolver(["x"], ["noarch"])
    with pytest.raises(PackageIndexError, match="without an answer"):
        solver.records(["pytorch"])
    solver.close()
    with pytest.raises(PackageIndexError, match="has ended"):
        solver.records(["pytorch"])


# ---- the child process of rattler ---------------------------------------------------------------


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def ends(pid: int, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


def pid_of(solver: solvers.RattlerSolver) -> int:
    assert solver._child is not None
    return solver._child._process.pid


def test_the_child_ends_with_the_block() -> None:
    with solvers.RattlerSolver(["x"], ["noarch"]) as solver:
        pid = pid_of(solver)
        assert is_running(pid)
    assert not is_running(pid)


def test_a_child_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solvers, "END_SECONDS", 0.2)
    monkeypatch.setattr(sys, "executable", executable(tmp_path / "python", "exec sleep 600"))
    solver = solvers.RattlerSolver(["x"], ["noarch"])
    pid = pid_of(solver)
    assert is_running(pid)
    solver.close()
    assert not is_running(pid)


# Starts a solver without closing it, and ends in one of several ways. A second process holds the
# child's input open, so that its end does not end the child.
PARENT = """
import os, signal, subprocess, sys
from gpuenv.resolve.conda import solvers
solver = solvers.RattlerSolver(["x"], ["noarch"])
child = solver._child._process
print(child.pid, flush=True)
if sys.argv[1] == "input is held open":
    solver._child.send({"do": "nothing"})
    solver._child.answer()  # it watches its parent when it answers
    held = child.stdin.fileno()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    holder = subprocess.Popen(["sleep", "60"], pass_fds=[held], **quiet)
    print(holder.pid, flush=True)
if sys.argv[1] != "exit":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("ending", ["exit", "killed", "input is held open"])
def test_the_child_ends_with_its_parent(ending: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-c", PARENT, ending]
    done = run_program(command, env=env)
    child, *holders = map(int, done.stdout.split())
    assert ends(child)
    for holder in holders:  # it held the input open until now
        os.kill(holder, signal.SIGKILL)
