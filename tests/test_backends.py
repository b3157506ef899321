"""Installing locks: real uv and real pip, real environments, tiny wheels on file URLs."""

import os
import signal
import subprocess
import sys
import time

import pytest

from gpuenv.errors import InstallError
from gpuenv.install import wheels
from gpuenv.lock import pylock
from small_wheels import installed, make_lock, make_wheel
from tables import ROOT


def test_a_wrong_hash_is_refused_and_nothing_is_left(tmp_path, installer):
    good = make_wheel(tmp_path, "alpha", "1.0")
    bad = good.replace(sha256="0" * 64)
    with pytest.raises(InstallError, match="wrong hash") as error:
        wheels.sync(make_lock(bad), str(tmp_path / "env"), installer=installer)
    assert "alpha-1.0-py3-none-any.whl" in error.value.message
    assert good.sha256 is not None and good.sha256 in error.value.message
    assert error.value.exit_status == 4
    assert not (tmp_path / "env").exists()


def test_nothing_is_removed_for_files_that_cannot_be_had(tmp_path, installer):
    """As `gpuenv pip install` does it, in an environment that has packages already."""
    alpha, beta = make_wheel(tmp_path, "alpha", "1.0"), make_wheel(tmp_path, "beta", "1.0")
    python = wheels.sync(make_lock(alpha), str(tmp_path / "env"), installer="uv")
    path = tmp_path / beta.filename
    hidden = path.rename(tmp_path / "hidden")
    with pytest.raises(InstallError):
        wheels.add(make_lock(beta), python, remove=["alpha"], installer=installer)
    assert installed(tmp_path / "env") == {"alpha": "1.0"}
    hidden.rename(path)
    wheels.add(make_lock(beta), python, remove=["alpha"], installer=installer)
    assert installed(tmp_path / "env") == {"beta": "1.0"}


def test_a_sync_that_is_interrupted_leaves_nothing(tmp_path, installer):
    """The installer waits for a file that never comes: a pipe in the wheel's place."""
    wheel = make_wheel(tmp_path, "alpha", "1.0")
    (tmp_path / wheel.filename).unlink()
    os.mkfifo(tmp_path / wheel.filename)
    (tmp_path / "pylock.toml").write_text(pylock.dumps(make_lock(wheel)))
    root = ROOT / "resolver"
    code = (
        "import signal, sys; from gpuenv.install import wheels; from gpuenv import read_lock\n"
        # A shell may have started the tests with the signal ignored, which children inherit.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "wheels.sync(read_lock('pylock.toml'), 'env', installer=sys.argv[1])"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, installer],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    beside = tmp_path / ".env.gpuenv"
    while not list(beside.glob("new-*/pyvenv.cfg")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    try:
        # A signal between fork and exec of the installer may be lost: press Ctrl-C again.
        while child.poll() is None and time.monotonic() < deadline + 60:
            os.killpg(child.pid, signal.SIGINT)
            time.sleep(1)
        assert child.poll() not in {None, 0}
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    assert not (tmp_path / "env").exists() and not beside.exists()
