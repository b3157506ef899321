"""A failure of a channel gives one line with its name, and nothing is written."""

import json
import os
import signal
import socket
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conda_prefixes import HOST
from gpuenv.errors import PackageIndexError
from gpuenv.resolve.conda import solvers
from processes import program, run_program
from tables import each

SUBDIRS = ("linux-64", "noarch")
BAD_INPUT, INDEX_FAILED = 2, 4


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        """A client that leaves amid an answer is none of the tests' business."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CONDA_PREFIX", raising=False)


@pytest.fixture
def served(tmp_path):
    with Server(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def damage(channel, tmp_path):
    """damage(change): a copy of the channel with changed texts of repodata; returns its folder."""

    def copy(change):
        for subdir in SUBDIRS:
            (tmp_path / "mine" / subdir).mkdir(parents=True)
            text = Path(channel.removeprefix("file://"), subdir, "repodata.json").read_text()
            (tmp_path / "mine" / subdir / "repodata.json").write_text(change(text))
        return tmp_path / "mine"

    return copy


@pytest.fixture
def said(call, tmp_path):
    """said(url, status): the one line on stderr of a solve; no file was written."""
    out = tmp_path / "out"
    out.mkdir()

    def solve(url, status, more=""):
        command = f"solve --backend conda --framework torch --channel {url} {HOST}"
        done = call(f"{command} -o {out}/lock.txt {more}", status=status)
        done.says_in_one_line("gpuenv: ")
        assert not list(out.iterdir())
        return done.stderr

    return solve


def without_hashes(text):
    document = json.loads(text)
    for record in (*document["packages"].values(), *document["packages.conda"].values()):
        del record["sha256"]
    return json.dumps(document)


def test_damaged_repodata(damage, said):
    line = said(damage(lambda text: text[:5000]), INDEX_FAILED)
    assert "/mine" in line and "repodata.json" in line


def test_a_page_in_place_of_repodata(served, damage, said):
    damage(lambda text: "<html>sign in</html>")
    line = said(f"{served}/mine", INDEX_FAILED)
    assert f"{served}/mine" in line and "repodata.json" in line


def test_offline_without_a_cache(served, damage, said):
    damage(lambda text: text)
    assert "cache" in said(f"{served}/mine", INDEX_FAILED, "--offline")


def test_a_package_without_sha256(damage, said):
    line = said(damage(without_hashes), BAD_INPUT)
    assert "no sha256" in line and ".conda" in line


def test_a_channel_that_is_not_there(served, said):
    line = said(f"{served}/nowhere", BAD_INPUT)
    assert f"--channel {served}/nowhere" in line and "404" in line


def test_a_folder_that_is_no_channel(tmp_path, said):
    (tmp_path / "mine").mkdir()
    line = said(tmp_path / "mine", BAD_INPUT)
    assert (tmp_path / "mine").as_uri() in line and "noarch" in line


def test_a_channel_that_nothing_serves(said):
    with socket.socket() as taken:  # bound, not listening, so that nobody else takes the port
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mine"
        assert url in said(url, INDEX_FAILED)


def test_a_solver_that_ends_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "python", "exit 3")))
    solver = solvers.RattlerSolver(["x"], ["noarch"])
    with pytest.raises(PackageIndexError, match="without an answer"):
        solver.records(["pytorch"])
    solver.close()


# ---- the child process of rattler ---------------------------------------------------------------


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def ends(pid, seconds=20.0):
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_running(pid)


def pid_of(solver):
    return solver._child.pid


def test_the_child_ends_with_the_block():
    with solvers.RattlerSolver(["x"], ["noarch"]) as solver:
        pid = pid_of(solver)
        assert is_running(pid)
    assert not is_running(pid)


def test_a_child_that_does_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(solvers, "END_SECONDS", 0.2)
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "python", "exec sleep 600")))
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
child = solver._child
print(child.pid, flush=True)
if sys.argv[1] == "input is held open":
    solver._send({"do": "nothing"})
    child.stdout.readline()  # it watches its parent when it answers
    held = child.stdin.fileno()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    holder = subprocess.Popen(["sleep", "60"], pass_fds=[held], **quiet)
    print(holder.pid, flush=True)
if sys.argv[1] != "exit":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@each("ending", ["exit", "killed", "input is held open"])
def test_the_child_ends_with_its_parent(ending):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-c", PARENT, ending]
    child, *holders = map(int, run_program(command, env=env, status=None).stdout.split())
    assert ends(child)
    for holder in holders:  # it held the input open until now
        os.kill(holder, signal.SIGKILL)
