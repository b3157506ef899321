"""`gpuenv verify --hook`: one line, an end in time, no process left; the docs/hooks examples."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuenv.lock import pylock
from gpuenv.model import Check, Gpu, Host, Python
from gpuenv.render.checks import LONGEST, hook_line
from processes import program, run_program
from small_wheels import make_lock, make_wheel
from tables import ROOT, cases, data_file, each, on_linux
from test_cli import run_process as run
from test_verification import CLEAN, hang_is_reached, running_with, wait_until

HOOKS = ROOT / "docs" / "hooks"
DATA = data_file("hook.json")
pytestmark = on_linux


@pytest.fixture
def env(folder):
    venv.create(folder / "env", symlinks=True)
    return folder / "env"


def host(gpus):
    return Host(
        python=Python(version=(3, 12)),
        gpus=tuple(Gpu(name=name, compute_capability=None) for name in gpus),
    )


# ---- the line ------------------------------------------------------------------------------------


@cases(DATA["lines"])
def test_lines(case):
    keys = ("name", "subject", "status", "evidence")
    checks = [Check(**dict(zip(keys, row, strict=True))) for row in case["checks"]]
    assert (
        hook_line(checks, host(case.get("gpus", [])), 3.14, device=case.get("device", True))
        == case["line"]
    )


@given(
    st.lists(st.tuples(st.sampled_from(["pass", "fail", "unknown"]), st.text()), max_size=4),
    st.integers(0, 3000),
)
def test_whatever_was_seen_is_one_printable_line(found, more):
    checks = [
        Check(name="a", subject="b", status=status, evidence=text + "x" * more)
        for status, text in found
    ]
    line = hook_line(checks, host([]), 1.0, device=True)
    assert line.isprintable()
    assert len(line) <= LONGEST
    failed = sum(status == "fail" for status, _ in found)
    if failed > 1:
        assert line.endswith(f"(and {failed - 1} more)")


# ---- real processes ------------------------------------------------------------------------------


@each("case", DATA["mistakes"], ids=[" ".join(case["args"]) for case in DATA["mistakes"]])
def test_mistakes(case, env, folder):
    done = run(["verify", "--hook", *case["args"]], folder, status=2)
    done.says_in_one_line(*case["says"])
    assert sorted(os.listdir(folder)) == ["env"]


def test_a_library_that_hangs_is_over_at_the_limit(hanging_env, folder):
    _, variables = hanging_env
    verify = "verify --hook --no-device --target env --timeout 2"
    done = run(verify, folder, MARKER=variables["MARKER"], status=1)
    assert done.stderr == ""
    assert re.match(r"gpuenv: fail: .*libcudnn_heuristic", done.stdout)
    assert running_with(variables["MARKER"]) == []


# A shell may have started the tests with the signals ignored, which children inherit.
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from gpuenv.__main__ import main
main()
"""


@contextmanager
def started(hanging_env, *flags):
    """A verification that has begun and hangs, and the marker of its processes."""
    env, variables = hanging_env
    variables["PYTHONPATH"], pipe = str(ROOT / "resolver"), subprocess.PIPE
    command = [sys.executable, "-c", START, "verify", "--no-device", "--target", env, *flags]
    options = {"env": variables, "stdout": pipe, "stderr": pipe, "text": True}
    with subprocess.Popen(command, **options) as process:
        assert wait_until(lambda: hang_is_reached(variables["MARKER"]))
        yield process, variables["MARKER"]
        process.kill()


@pytest.fixture
def hanging(hanging_env):
    with started(hanging_env, "--hook", "--timeout", "500") as both:
        yield both


@each("number status", [(signal.SIGTERM, -15), (signal.SIGHUP, -1), (signal.SIGINT, 130)])
def test_signals_end_all_of_it(number, status, hanging):
    process, marker = hanging
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (status, "")
    assert wait_until(lambda: running_with(marker) == [])


def test_the_working_process_is_killed(hanging):
    """By the kernel, for its memory: that is said, and nobody waits for the limit."""
    process, marker = hanging
    (worker,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(worker), signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "")
    assert (
        out == "gpuenv: fail: verification: no result, ended by signal 9; it was at: the checks\n"
    )
    # The probes, which nobody is left to end; one may still be starting another.
    assert wait_until(lambda: not [kill(int(probe)) for probe in running_with(marker)])


def kill(number):
    with suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)


def test_a_plain_verification_that_is_terminated_leaves_nothing(hanging_env):
    with started(hanging_env) as (process, marker):
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert wait_until(lambda: running_with(marker) == [])


# ---- the examples --------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path):
    """A folder that plays /: gpuenv in /opt/gpuenv, a lock in /app, and no environment yet."""
    (tmp_path / "opt" / "gpuenv" / "bin").mkdir(parents=True)
    run_gpuenv = f'exec {sys.executable} -m gpuenv "$@"'
    program(tmp_path / "opt" / "gpuenv" / "bin" / "gpuenv", run_gpuenv)
    (tmp_path / "app").mkdir()
    wheel = make_wheel(tmp_path, "train", "1.0", files={"train.py": "print('trained')\n"})
    lock = make_lock(wheel)
    lock = lock.replace(host=lock.host.replace(gpus=host(["H100"]).gpus))
    pylock.write_texts({str(tmp_path / "app" / "pylock.toml"): pylock.dumps(lock)})
    return tmp_path


@pytest.fixture
def image(machine):
    """The machine after the steps of the Dockerfile."""
    for line in steps("Dockerfile", r"^RUN (.+)$"):
        shell(line, machine)
    return machine


def shell(line, machine, *, status=0, **environment):
    """Run a line or a command of an example; /app and /opt are folders of the made-up machine."""
    words = [line] if isinstance(line, str) else line
    words = [re.sub(r"(?<![\w.])/(app|opt)/", rf"{machine}/\1/", word) for word in words]
    dropped = ("VIRTUAL_ENV", "CONDA_PREFIX")
    env = {key: value for key, value in CLEAN.items() if key not in dropped}
    env |= {
        "PYTHONPATH": str(ROOT / "resolver"),
        "GPUENV_CACHE_DIR": str(machine / "cache"),
        "GPUENV_FIND_LINKS": str(machine),  # where the lock has its files
        **environment,
    }
    command = ["sh", "-c", *words] if isinstance(line, str) else words
    return run_program(command, cwd=machine / "app", env=env, status=status)


def steps(name, pattern):
    found = re.findall(pattern, (HOOKS / name).read_text(), re.MULTILINE)
    assert found
    # What installs gpuenv itself needs an index that has it.
    assert [line for line in found if "pip install" in line] == found[:1]
    return found[1:]


@each("name pattern", [("Dockerfile", r"^RUN (.+)$"), ("ci.yml", r"^ +- run: (.+)$")])
def test_the_steps_of_an_image_and_of_a_job(name, pattern, machine):
    for line in steps(name, pattern):
        done = shell(line, machine)
    assert re.fullmatch(r"gpuenv: ok: no GPU used, \d+ checks, \d+\.\d s\n", done.stdout)
    assert list(machine.rglob("env/bin/python"))


def test_the_steps_of_the_action(machine):
    inputs = yaml.safe_load((HOOKS / "action.yml").read_text())["inputs"]
    variables = {name.upper(): str(row["default"]) for name, row in inputs.items()}
    variables["PATH"] = f"{machine}/opt/gpuenv/bin:/usr/bin:/bin"
    for line in steps("action.yml", r"^ +run: (.+)$"):
        done = shell(line, machine, **variables)
    assert re.fullmatch(r"gpuenv: ok: no GPU used, \d+ checks, \d+\.\d s\n", done.stdout)


def test_the_steps_of_the_template_for_gitlab(machine):
    """Run the job in a repository whose lock is for the CPU."""
    project = "[tool.gpuenv]\nrequirements = ['train']\npython = '{}.{}'\n"
    project += "find-links = ['..']\nno-index = true\n"
    project += "[tool.gpuenv.profiles.cpu]\ngpu = 'none'\n"
    (machine / "app" / "pyproject.toml").write_text(project.format(*sys.version_info[:2]))
    variables = {"PATH": f"{machine}/opt/gpuenv/bin:/usr/bin:/bin", "LOCK": "pylock.cpu.toml"}
    variables |= {"GPU": "none", "DRIVER": "580.65.06"}
    for line in ["gpuenv lock", *steps("gitlab-ci.yml", r"^    - (.+)$")]:
        shell(line, machine, **variables)
    assert (machine / "app" / "env" / "bin" / "python").exists()


def test_the_entry_point_of_an_image(image):
    text = (HOOKS / "start.sh").read_text()
    start = image / "app" / "start.sh"
    start.write_text(re.sub(r"(?<![\w.])/(app|opt)/", rf"{image}/\1/", text))
    dockerfile = (HOOKS / "Dockerfile").read_text()
    entry = json.loads(re.findall(r"^ENTRYPOINT (.+)$", dockerfile, re.MULTILINE)[0])
    command = json.loads(re.findall(r"^CMD (.+)$", dockerfile, re.MULTILINE)[0])
    done = shell([*entry, *command], image)
    assert re.fullmatch(r"gpuenv: (ok|unknown): .*\ntrained\n", done.stdout)
    (image / "app" / "env" / "bin" / "python").unlink()
    done = shell([*entry, *command], image, status=None)
    assert done.returncode != 0
    assert "trained" not in done.stdout


def test_the_containers_of_a_pod(image):
    text = (HOOKS / "pod.yaml").read_text()
    init, main = (
        json.loads(one) for one in re.findall(r"^ +command: (\[.+\])$", text, re.MULTILINE)
    )
    done = shell(init, image, CUDA_VISIBLE_DEVICES="", status=1)
    # This image has no GPU, or none that is visible: strictly, nothing was proved.
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
    assert "nothing ran on a GPU" in done.stdout
    assert shell(main, image).stdout == "trained\n"


def test_the_task_prolog(image):
    script = image / "task-prolog.sh"
    shutil.copy(HOOKS / "task-prolog.sh", script)
    script.write_text(re.sub(r"(?<![\w.])/opt/", f"{image}/opt/", script.read_text()))
    assert os.access(HOOKS / "task-prolog.sh", os.X_OK)
    target = {"GPUENV_TARGET": str(image / "app" / "env"), "CUDA_VISIBLE_DEVICES": ""}
    done = shell([str(script)], image, **target, status=1)
    assert done.stderr == ""
    assert re.fullmatch(r"print gpuenv: unknown: device: nothing ran on a GPU.*\n", done.stdout)
    done = shell([str(script)], image, GPUENV_TARGET="/no/where", status=2)
    assert done.stderr == ""
    assert re.fullmatch(r"print gpuenv: /no/where: does not exist; .*\n", done.stdout)
    for skipped in ({}, {**target, "SLURM_LOCALID": "1"}):
        done = shell([str(script)], image, **skipped)
        assert (done.stdout, done.stderr) == ("", "")
