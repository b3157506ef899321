"""One process at a time changes a target; files are written whole, and several of them or none."""

import json
import os
import subprocess
import sys

import pytest

from gpuenv import api, atomic_write
from gpuenv.errors import InputError, TargetBusyError
from gpuenv.install import target_lock, wheels
from gpuenv.process_identity import tag_of, this_process
from gpuenv.serialize import to_plain
from small_wheels import make_lock, make_wheel, write_lock
from tables import data_file, each

ENDED = {"pid": 2**22 + 1}  # more than the kernel's largest number of a process


def lock_of(tmp_path, **changes):
    """The lock that a process with these facts holds on the target `env`."""
    folder = tmp_path / ".env.gpuenv"
    folder.mkdir()
    holder = this_process().replace(**changes)
    (folder / "lock").write_text(json.dumps({"token": "t", **to_plain(holder)}))
    return folder / "lock"


def hold(tmp_path, wait=0.0):
    """Hold the lock for a moment, and return what was reported."""
    said = []
    folder, target = str(tmp_path / ".env.gpuenv"), str(tmp_path / "env")
    with target_lock.hold(folder, target, wait, said.append):
        assert os.path.exists(os.path.join(folder, "lock"))
    assert not os.path.exists(folder)
    return said


@each("changes is_taken", data_file("tables/target_lock.json")["holders"])
def test_whose_lock_is_taken_over(changes, is_taken, tmp_path, monkeypatch):
    here = this_process().replace(machine="m")
    monkeypatch.setattr("gpuenv.process_identity.this_process", lambda: here)
    path = lock_of(tmp_path, **changes)
    if is_taken:
        assert hold(tmp_path) == []
        return
    before = path.read_bytes()
    with pytest.raises(TargetBusyError) as error:
        hold(tmp_path)
    assert str(path) in error.value.hint and path.read_bytes() == before
    host = changes.get("host", here.host)
    assert f"process {changes.get('pid', os.getpid())} on {host}" in error.value.message


def test_what_a_killed_process_left_is_removed(tmp_path):
    path = lock_of(tmp_path, **ENDED)
    path.with_name("claim-of-a-killed-process").write_text("")
    assert hold(tmp_path) == []


def test_a_lock_of_no_known_form_is_respected(tmp_path):
    path = lock_of(tmp_path)
    path.write_text("{}")
    with pytest.raises(TargetBusyError, match="another process"):
        hold(tmp_path, wait=0.1)


COUNT = """
import sys, time
from gpuenv.install import target_lock
folder, path, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
for _ in range(rounds):
    with target_lock.hold(folder, "env", 120, lambda line: None):
        with open(path) as file:
            number = int(file.read())
        time.sleep(0.001)
        with open(path, "w") as file:
            file.write(str(number + 1))
"""


def test_processes_take_turns(tmp_path):
    """Also after one was killed that held the lock."""
    path = tmp_path / "count"
    path.write_text("0")
    lock_of(tmp_path, **ENDED)
    command = [sys.executable, "-c", COUNT, str(tmp_path / ".env.gpuenv"), str(path), "5"]
    children = [subprocess.Popen(command) for _ in range(4)]
    assert [child.wait(120) for child in children] == [0] * 4
    assert path.read_text() == "20"
    assert not (tmp_path / ".env.gpuenv").exists()


def test_syncs_into_one_new_target(tmp_path):
    lock = make_lock(make_wheel(tmp_path, "alpha", "1.0"), make_wheel(tmp_path, "beta", "1.0"))
    path = write_lock(tmp_path / "pylock.toml", lock)
    command = [sys.executable, "-m", "gpuenv", "sync", str(path), "--target", "env"]
    command += ["--find-links", str(tmp_path)]
    command += ["--gpu", "none", "--no-verify", "--installer", "uv"]
    children = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(3)
    ]
    assert [child.wait(120) for child in children] == [0] * 3
    assert wheels.changes(lock, str(tmp_path / "env")).add == ()
    assert not (tmp_path / ".env.gpuenv").exists()


def test_a_busy_target_is_one_line(tmp_path, call):
    path = lock_of(tmp_path, host="node-7")
    lock = write_lock(tmp_path / "pylock.toml", make_lock(make_wheel(tmp_path, "alpha", "1.0")))
    words = ["--target", str(tmp_path / "env"), "--gpu", "none", "--wait", "0.1"]
    words += ["--find-links", str(tmp_path)]
    line = call(f"sync {lock}", *words, status=4).stderr.splitlines()[-1]
    assert "node-7" in line and str(path) in line
    assert not (tmp_path / "env").exists()


# ---- files ---------------------------------------------------------------------------------------


def test_several_files_or_none(tmp_path):
    first, second = tmp_path / "pylock.a.toml", tmp_path / "pylock.b.toml"
    first.write_text("old")
    second.mkdir()
    lock = make_lock(make_wheel(tmp_path, "alpha", "1.0"))
    with pytest.raises(InputError):
        api.write_profile_locks({str(first): lock, str(second): lock})
    assert first.read_text() == "old"
    second.rmdir()
    paths = {str(first): lock, str(second): lock}
    assert set(api.write_profile_locks(paths).values()) == {"written"}
    assert set(api.write_profile_locks(paths).values()) == {"unchanged"}
    with pytest.raises(OSError, match="directory"):
        atomic_write.write_all({str(tmp_path / "new"): b"", str(tmp_path): b""})
    assert not (tmp_path / "new").exists()


def test_temporary_files_of_killed_processes_are_removed(tmp_path):
    path = tmp_path / "pylock.toml"
    gone = tmp_path / f".{path.name}.{tag_of(this_process().replace(**ENDED))}-1.tmp"
    running = tmp_path / f".{path.name}.{tag_of(this_process())}-1.tmp"
    other = tmp_path / f".{path.name}.0123456789ab-1-1-1.tmp"
    for leftover in (gone, running, other):
        leftover.write_text("half")
    atomic_write.write_whole(str(path), b"whole")
    assert path.read_bytes() == b"whole"
    assert sorted(tmp_path.iterdir()) == sorted([path, running, other])
