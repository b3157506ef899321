"""The command line as users meet it: real processes, exit statuses, one line for a mistake.

A mistake writes nothing.
"""

import functools
import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path

import pytest

import checked_documents
import forked
import gpuenv
from gpuenv.__main__ import main as entry_point
from processes import run_program, words_of
from small_wheels import contents, write_files
from tables import ROOT, cases, data_file, each

CASES = data_file("cli.json")
SOLVE = "solve --framework torch --gpu H100 --driver 580.65.06 --python 3.12"


def run_process(args, folder, *, status=0, **environment):
    """Run `python -m gpuenv` as a new process, for tests that are about the process."""
    command = [sys.executable, "-m", "gpuenv", *words_of(args)]
    variables = command_environment(folder, environment)
    done = run_program(command, cwd=folder, env=variables, status=status)
    checked_documents.check(words_of(args), done.stdout)
    return done


def run(args, folder, *, status=0, **environment):
    """Run the command line in a fork of this process, which has imported gpuenv already.

    It ends with this exit status; None stands for any.
    """
    import_what_commands_use()
    command = ["gpuenv", *words_of(args)]
    done = forked.run(entry_point, command, folder, command_environment(folder, environment))
    checked_documents.check(words_of(args), done.stdout)
    return done.expect(status)


@functools.cache
def import_what_commands_use():
    """Import all of gpuenv, and what it imports when it is needed."""
    names = [module.name for module in pkgutil.walk_packages(gpuenv.__path__, "gpuenv.")]
    own = [name for name in names if not name.startswith("gpuenv.probes.")]
    for name in (*own, "requests", "tomllib", "tomli_w"):
        importlib.import_module(name)


def command_environment(folder, changes):
    dropped = ("VIRTUAL_ENV", "CONDA_PREFIX", "COLUMNS")
    base = {key: value for key, value in os.environ.items() if key not in dropped}
    root = ROOT / "resolver"
    own = str(Path(sys.executable).parent)  # of a test environment that is active
    path = [entry for entry in base.get("PATH", "").split(os.pathsep) if entry != own]
    return {
        **base,
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": str(root),
        "GPUENV_CACHE_DIR": str(folder.parent / "cache"),
        **changes,
    }


@pytest.fixture(scope="module")
def lock_text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lock") / "work"
    folder.mkdir()
    run(f"{SOLVE} --glibc 2.28", folder)
    return (folder / "pylock.toml").read_text()


@cases(CASES)
def test_mistakes(case, folder, lock_text):
    write_files(folder, case.get("files", {}))
    if "edit" in case:
        old, new = case["edit"]
        assert old in lock_text
        (folder / "pylock.toml").write_text(lock_text.replace(old, new))
    before = contents(folder)
    done = run(case["args"], folder, status=case["status"])
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert 1 <= len(lines) <= case.get("lines", 1), done.stderr
    for text in case["says"]:
        assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(folder) == before


def test_a_refusal_under_json_is_one_document(folder):
    done = run("solve --framework torch --gpu V100 --driver 595.45.04 --json", folder, status=3)
    document = json.loads(done.stdout)
    assert document["possible"] is False
    assert document["reasons"] and document["smallest_changes"]


def test_a_read_only_folder_is_refused(folder):
    if os.geteuid() == 0:
        # root may write anywhere: a file in the folder's place refuses root too
        (folder / "sub").write_text("")
        done = run(f"{SOLVE} -o sub/pylock.toml", folder, status=2)
    else:
        folder.chmod(0o555)
        done = run(SOLVE, folder, status=2)
        folder.chmod(0o755)
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "pylock.toml").exists()


def test_requirements_format_pins_hashes(folder):
    lines = run(f"{SOLVE} --format requirements", folder).stdout.splitlines()
    names = [line for line in lines if line and not line.startswith((" ", "#"))]
    hashes = [line for line in lines if line.startswith("    --hash=sha256:")]
    assert len(names) == len(hashes) > 20
    assert any(line.startswith("torch==2.15.0 ") for line in names)
    assert contents(folder) == {}


def test_detect_without_a_gpu_and_back_through_a_file(folder):
    flags = "--gpu H100 --driver 580.65.06 --python 3.12"
    run(f"detect {flags} -o host.json", folder)
    assert "torch 2.15.0" in run("solve --framework torch --host host.json", folder).stdout


@each("module", ["signal", "gpuenv", "gpuenv.model", "gpuenv.cli", "gpuenv.cli.solving"])
def test_an_interrupt_of_an_import(folder, module):
    """Ctrl-C before the command runs is one line, too."""
    code = f"""\
import signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
del sys.modules["signal"]
from gpuenv_program import main
main()
"""
    command = [sys.executable, "-c", code, *words_of(SOLVE)]
    done = run_program(command, cwd=folder, env=command_environment(folder, {}), status=130)
    assert done.output == "gpuenv: interrupted\n" and not contents(folder)


OUTPUTS = [
    "solve torch --gpu none -o",
    "solve torch --gpu none --format requirements -o",
    "install torch --gpu none -o",
    "matrix html -o",
    "report pylock.toml -o",
    "env --for pip torch -o",
    "export --to uv -o",
    "verify --bundle",
    "download --bundle",
    "fleet solve torch --from hosts --write-profiles",
]


@each("words", OUTPUTS)
def test_what_cannot_be_written_is_said_before_the_work(folder, words):
    """No case has what it reads, so that any other step would fail first."""
    run(f"{words} no/where/x", folder, status=2).says_in_one_line("no/where", "does not exist")
    done = run(f"{words} no/where/x --json", folder, status=2)
    assert "no/where" in done.document["error"]["message"]
