"""The test suite's own tools for processes: the check for what is left behind, and forks."""

import os
import signal
import subprocess
import sys

import forked
import processes
from tables import each, on_linux

pytestmark = on_linux


def test_a_child_that_is_left_behind_is_named_and_ended():
    before = processes.running()
    with subprocess.Popen(["sleep", "77"]) as child:
        (line,) = processes.left_over(before, 0.1)
        assert line == f"{child.pid}: sleep 77"
        assert processes.running() == before


def program():
    print("said", *sys.argv[1:], os.getcwd(), os.environ["NAME"])
    print("told", file=sys.stderr)
    subprocess.run(["echo", "by a child"], check=True)
    if sys.argv[1] == "raise":
        raise ValueError("why")
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGTERM)
    sys.exit(int(sys.argv[1]))


@each("word status", [("0", 0), ("3", 3), ("raise", 1), ("kill", -signal.SIGTERM)])
def test_a_fork_ends_as_a_process_ends(word, status, tmp_path):
    done = forked.run(program, ["program", word], tmp_path, {**os.environ, "NAME": "value"})
    assert done.returncode == status
    assert "NAME" not in os.environ
    assert done.stderr.startswith("told\n")
    assert ("ValueError: why" in done.stderr) == (word == "raise")
    if word != "kill":
        assert sorted(done.stdout.splitlines()) == ["by a child", f"said {word} {tmp_path} value"]
