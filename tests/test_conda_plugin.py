"""gpuenv inside conda: with a real conda if there is one, and with stand-ins for its modules."""

import json
import os
import re
import shlex
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from conda_stand_in import BROKEN, SITE, contents, real_conda
from gpuenv.conda_plugin import checks, error_hints, packages, transaction
from gpuenv.install import conda_prefix
from processes import run_program
from tables import ROOT, data_file, each

CASES = data_file("conda_plugin.json")
STRICT = {"CONDA_PLUGINS_GPUENV_VERIFY": "strict"}


# ---- with a real conda ---------------------------------------------------------------------------


@pytest.fixture(scope="session")
def conda(tmp_path_factory):
    return real_conda(tmp_path_factory.mktemp("conda"))


@pytest.fixture
def prefix(conda, request):
    """An environment with a pytorch that loads."""
    return conda.create(request.node.name.partition("[")[0], ["pytorch=2.12.0"])


def test_conda_names_the_plugin(conda):
    assert "conda-gpuenv: gpuenv 0.1.0" in conda.run("info", "--system").stdout
    listed = conda.run("plugins", "list")
    if "invalid choice: 'plugins'" in listed.stderr:
        return  # conda until 26.7.1 has no such command
    rows = [line.split(maxsplit=3) for line in listed.stdout.splitlines()]
    (row,) = [row for row in rows if row[:1] == ["gpuenv"]]
    hooks = {"error_hints", "health_checks", "post_transaction_actions", "settings", "subcommands"}
    assert row[2] == "active" and set(row[3].split(", ")) == hooks


def test_no_virtual_package_is_added(conda):
    bare = json.loads(conda.run("info", "--json", CONDA_NO_PLUGINS="true").stdout)
    have = json.loads(conda.run("info", "--json").stdout)
    assert have["virtual_pkgs"] == bare["virtual_pkgs"]


def test_the_subcommand_is_gpuenv(conda, tmp_path):
    lock = tmp_path / "pylock.toml"
    host = [
        "--gpu",
        "H100",
        "--driver",
        "550.54.14",
        "--python",
        "3.12",
        "--platform",
        "linux-x86_64",
    ]
    solve = [
        "gpuenv",
        "solve",
        "--framework",
        "torch",
        *host,
        "--glibc",
        "2.28",
        "-o",
        str(lock),
        "--json",
    ]
    done = conda.run(*solve)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["frameworks"]["torch"]["cuda"].startswith("12.")
    assert lock.is_file()


def test_the_subcommand_ends_as_gpuenv_does(conda, prefix):
    done = conda.run(
        "gpuenv", "solve", "--framework", "nosuch", "--gpu", "H100", "--driver", "550.54.14"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("gpuenv: ")
    code = "import sys; sys.exit(len(sys.argv))"
    done = conda.run(
        "gpuenv", "run", "--target", str(prefix), "--", "python", "-c", code, "--", "--json"
    )
    assert done.returncode == 3, done.stderr


def test_a_transaction_is_followed_by_the_check(conda):
    done = conda.run("create", "--yes", "--name", "checked", "pytorch=2.12.0")
    assert done.returncode == 0, done.stderr
    assert f"gpuenv: {conda.folder}/envs/checked: " in done.stderr
    assert " passed, 0 failed, " in done.stderr


def test_other_packages_are_not_checked(conda, prefix):
    done = conda.run("install", "--yes", "--prefix", str(prefix), "cowsay", **STRICT)
    assert done.returncode == 0
    assert "gpuenv" not in done.stderr


def test_a_failed_check_is_a_warning(conda, prefix):
    done = conda.run("install", "--yes", "--json", "--prefix", str(prefix), "pytorch=2.13.0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["success"] is True
    assert (
        "FAIL torch" in done.stderr
        and "libcudnn.so.9: cannot open shared object file" in done.stderr
    )
    assert (prefix / SITE / "torch" / "__init__.py").read_text() == BROKEN


def test_strict_rolls_the_transaction_back(conda, prefix):
    before = contents(prefix)
    done = conda.run(
        "install", "--yes", "--prefix", str(prefix), "pytorch=2.13.0", "cowsay", **STRICT
    )
    assert done.returncode == 1
    assert (
        "FAIL torch" in done.stderr
        and "libcudnn.so.9: cannot open shared object file" in done.stderr
    )
    assert "conda gpuenv explain" in done.stderr
    assert contents(prefix) == before
    assert "share/cowsay" not in before
    done = conda.run(
        "install", "--yes", "--prefix", str(prefix), "cowsay", "cudnn=9.10.2.21", **STRICT
    )
    assert done.returncode == 0, done.stderr
    assert contents(prefix)["share/cudnn"][2] == b"9.10.2"


def test_strict_leaves_no_new_environment(conda):
    done = conda.run("create", "--yes", "--name", "refused", "pytorch=2.13.0", **STRICT)
    assert done.returncode == 1
    assert not list((conda.folder / "envs" / "refused").rglob("*torch*"))


def test_strict_refuses_a_cuda_that_the_driver_does_not_run(conda):
    override = {**STRICT, "CONDA_OVERRIDE_CUDA": "12.8"}
    done = conda.run("create", "--yes", "--name", "thirteen", "cuda-version=13.0", **override)
    assert done.returncode == 1
    assert "needs a driver for CUDA 13; has a driver for CUDA 12.8" in done.stderr
    assert (
        conda.run("create", "--yes", "--name", "twelve", "cuda-version=12.9", **override).returncode
        == 0
    )


def test_the_setting_of_the_settings_file(conda, prefix):
    rows = conda.run("config", "--show").stdout
    assert "gpuenv_verify: warn" in rows
    condarc = conda.folder / "strict.yml"
    condarc.write_text(
        (conda.folder / "condarc").read_text() + "plugins:\n  gpuenv_verify: strict\n"
    )
    done = conda.run(
        "install", "--yes", "--prefix", str(prefix), "pytorch=2.13.0", CONDARC=str(condarc)
    )
    assert done.returncode == 1
    condarc.write_text(
        (conda.folder / "condarc").read_text() + "plugins:\n  gpuenv_verify: strcit\n"
    )
    done = conda.run(
        "install", "--yes", "--prefix", str(prefix), "pytorch=2.13.0", CONDARC=str(condarc)
    )
    assert done.returncode == 0
    assert "'strcit': taken as warn" in done.stderr


def test_doctor_shows_the_health_check(conda, prefix):
    assert "gpuenv: Prove that" in conda.run("doctor", "--list").stdout
    done = conda.run("doctor", "--prefix", str(prefix), "gpuenv")
    assert done.returncode == 0
    assert " passed, 0 failed, " in done.stdout
    wheel = prefix / SITE / "nvidia_cudnn_cu12-9.1.0.70.dist-info"
    wheel.mkdir()
    (wheel / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: nvidia-cudnn-cu12\nVersion: 9.1.0.70\n"
    )
    done = conda.run("doctor", "--prefix", str(prefix), "gpuenv")
    assert "FAIL owners cuDNN" in done.stdout
    assert "cudnn 9.14.0.64 of conda and nvidia-cudnn-cu12 9.1.0.70 of a wheel" in done.stdout


def test_doctor_says_where_nothing_is_to_be_checked(conda):
    empty = conda.create("empty", ["cowsay"])
    assert (
        "no CUDA, cuDNN or framework"
        in conda.run("doctor", "--prefix", str(empty), "gpuenv").stdout
    )


def test_doctor_changes_nothing_unasked(conda, prefix):
    conda.break_torch(prefix)
    before = contents(prefix)
    for arguments in (["--fix"], ["--fix", "--dry-run"], []):
        done = conda.run("doctor", "--prefix", str(prefix), *arguments, "gpuenv", typed="no\n")
        assert "FAIL torch" in done.stdout
        assert contents(prefix) == before


def test_doctor_installs_what_fits_once_the_user_agrees(conda):
    if conda.lacks("libmambapy", "conda_libmamba_solver") and conda.lacks("pycosat"):
        pytest.skip("conda's Python has neither libmambapy nor pycosat to solve with")
    condarc = conda.folder / "solvable.yml"
    text = (conda.folder / "condarc").read_text()
    condarc.write_text(text.replace("/channel'", "/solvable'"))
    env = {
        "CONDARC": str(condarc),
        "CONDA_OVERRIDE_CUDA": "12.8",
        "CONDA_OVERRIDE_CUDA_ARCH": "9.0",
    }
    done = conda.run("create", "--yes", "--name", "fixed", "pytorch", **env)
    assert "FAIL rules cuda-version 13.0" in done.stderr
    prefix = conda.folder / "envs" / "fixed"
    before = contents(prefix)
    done = conda.run(
        "doctor", "--name", "fixed", "--fix", "gpuenv", "--dry-run", typed="y\n", **env
    )
    assert "-> 2.7.1" in done.stdout and contents(prefix) == before
    done = conda.run("doctor", "--name", "fixed", "--fix", "gpuenv", typed="y\n", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    have = {name: row["version"] for name, row in conda_prefix.read_packages(str(prefix)).items()}
    assert (have["pytorch"], have["cuda-version"], have["cudnn"]) == ("2.7.1", "12.9", "9.10.2.21")
    assert " passed, 0 failed, " in conda.run("doctor", "--name", "fixed", "gpuenv", **env).stdout


def test_a_fix_does_not_break_what_the_user_asked_for(conda):
    condarc = conda.folder / "asked.yml"
    condarc.write_text((conda.folder / "condarc").read_text().replace("/channel'", "/solvable'"))
    env = {
        "CONDARC": str(condarc),
        "CONDA_OVERRIDE_CUDA": "12.8",
        "CONDA_OVERRIDE_CUDA_ARCH": "9.0",
    }
    off = {"CONDA_PLUGINS_GPUENV_VERIFY": "off", **env}
    conda.run("create", "--yes", "--name", "asked", "pytorch=2.9.1", **off)
    before = contents(conda.folder / "envs" / "asked")
    done = conda.run("doctor", "--name", "asked", "--fix", "gpuenv", typed="y\n", **env)
    assert "no builds fit this host and the environment; nothing was changed" in done.stdout
    assert done.returncode == 1 and contents(conda.folder / "envs" / "asked") == before


def test_an_error_of_condas_gets_a_hint(conda):
    done = conda.run("create", "--yes", "--name", "none", "pytorch=99")
    assert done.returncode == 1
    assert "conda gpuenv explain torch" in done.stdout + done.stderr
    done = conda.run("create", "--yes", "--name", "none", "cowsay=99")
    assert "gpuenv" not in done.stdout + done.stderr


# Commands of docs/conda-plugin.md that need the network.
NOT_RUN = ("conda run -n base python -m pip install gpuenv",)


def documented_commands():
    """Return the commands of conda in the blocks of the page, without comments."""
    text = (ROOT / "docs" / "conda-plugin.md").read_text()
    lines = [line[4:].partition("#")[0].strip() for line in text.splitlines() if line[:4] == "    "]
    commands = [line for line in lines if re.match(r"([A-Z_]+=\w+ )?conda ", line)]
    return [line.replace("...", "cudnn") for line in commands]


def test_the_commands_of_the_documentation(conda, tmp_path):
    condarc = tmp_path / "condarc"
    text = (conda.folder / "condarc").read_text()
    condarc.write_text(text.replace("/channel'", "/solvable'"))
    env = {
        "CONDARC": str(condarc),
        "HOME": str(tmp_path),  # conda config writes there
        "CONDA_OVERRIDE_CUDA": "12.8",
        "CONDA_OVERRIDE_CUDA_ARCH": "9.0",
    }
    made = conda.run("create", "--yes", "--name", "documented", "pytorch=2.7.1", **env)
    assert made.returncode == 0, made.stderr
    commands = [line for line in documented_commands() if line not in NOT_RUN]
    assert len(commands) >= 5
    for line in commands:
        words = shlex.split(line)
        variables = dict(word.split("=", 1) for word in words[: words.index("conda")])
        words = words[words.index("conda") + 1 :]
        if words[0] in ("install", "doctor"):
            words[1:1] = ["--name", "documented", *(["--yes"] if words[0] == "install" else [])]
        done = conda.run(*words, typed="y\n", **env, **variables)
        assert done.returncode == 0, (line, done.stdout, done.stderr)


@pytest.fixture
def broken(conda, tmp_path):
    """A copy of the plugin's folder that may be broken."""
    yield Path(shutil.copytree(conda.plugins, tmp_path / "plugins"))


BREAKS = data_file("tables/conda_plugin.json")["breaks"]


@each("kind", [*BREAKS])
def test_a_broken_gpuenv_leaves_conda_working(conda, kind, broken):
    name, text = BREAKS[kind]
    path = broken / name
    if text is None:
        path.rename(path.with_name("gone"))
    else:
        path.write_text(text)
    env = {**STRICT, "PYTHONPATH": str(broken)}
    assert conda.run("info", **env).returncode == 0
    for arguments in (
        ["create", "--yes", "pytorch=2.12.0"],
        ["install", "--yes", "cudnn=9.10.2.21"],
    ):
        done = conda.run(*arguments, "--name", f"broken-{kind}", **env)
        assert done.returncode == 0, done.stdout + done.stderr
        # conda says once or twice that a plugin could not be imported.
        assert len({line for line in done.stderr.splitlines() if "gpuenv" in line}) == 1, (
            done.stderr
        )
    done = conda.run("doctor", "--name", f"broken-{kind}", **env)
    assert done.returncode == 0
    assert "Environment Health Report" in done.stdout
    assert conda.run("list", "--name", f"broken-{kind}", **env).returncode == 0


# ---- everywhere ----------------------------------------------------------------------------------

TYPES = """
class Row:
    def __init__(self, **fields):
        self.__dict__.update(fields)

class CondaSubcommand(Row): pass
class CondaSetting(Row): pass
class CondaPostTransactionAction(Row): pass
class CondaHealthCheck(Row): pass
class CondaErrorHint(Row): pass
"""
ACTIONS = """
class Action:
    def __init__(self, target_prefix, link_precs=(), unlink_precs=()):
        self.target_prefix = target_prefix
        self.link_precs, self.unlink_precs = link_precs, unlink_precs
"""
CONTEXT = """
import os
from types import SimpleNamespace
context = SimpleNamespace(subdir="linux-64", _native_subdir=lambda: "linux-64")
context.channels = ("conda-forge",)
context.plugins = SimpleNamespace(gpuenv_verify=os.environ.get("MODE", "warn"))
"""
ERRORS = """
class CondaError(Exception): pass
class CondaVerificationError(CondaError): pass
class CondaSignalInterrupt(CondaError): pass
"""
HOOKS = "def hookimpl(function):\n    function.marked = True\n    return function\n"
STAND_IN = {
    "__init__.py": "",
    "plugins/__init__.py": HOOKS,
    "plugins/types.py": TYPES,
    "core/__init__.py": "",
    "core/path_actions.py": ACTIONS,
    "base/__init__.py": "",
    "base/context.py": CONTEXT,
    "base/constants.py": 'OK_MARK, X_MARK = "v", "x"\n',
    "common/__init__.py": "",
    "common/configuration.py": (
        "def PrimitiveParameter(default, element_type): return default, element_type\n"
    ),
    "exceptions.py": ERRORS,
}
HOOK_NAMES = [
    "conda_subcommands",
    "conda_settings",
    "conda_post_transaction_actions",
    "conda_health_checks",
]
CHECKS = "from gpuenv.conda_plugin import checks\n"
TRANSACTION = """
from types import SimpleNamespace
linked = [SimpleNamespace(name="cudnn")]
action = plugin.conda_post_transaction_actions()[0].action(sys.argv[1], linked)
print(action.verify())
action.execute()
action.cleanup()
"""
FAILED = {
    "name": "torch",
    "subject": "import",
    "status": "fail",
    "evidence": "ImportError",
    "seconds": 0.1,
}


@pytest.fixture
def stand_in(tmp_path):
    """A folder with modules of conda's names that do as much as the plugin asks of them."""
    for name, text in STAND_IN.items():
        path = tmp_path / "stand-in" / "conda" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "stand-in"


def child(code, *paths, arguments=(), status=0, **env):
    """Run code that has the plugin as `plugin` and finds conda in the given folders."""
    found = os.pathsep.join(map(str, [*paths, ROOT / "resolver"]))
    return run_program(
        [
            sys.executable,
            "-c",
            f"import sys\nimport gpuenv_conda_plugin as plugin\n{code}",
            *arguments,
        ],
        env={**os.environ, "PYTHONPATH": found, **env},
        status=status,
    )


# text of gpuenv/__init__.py -> what the hooks that import gpuenv say
UNUSABLE = {
    "raise SystemExit(3)\n": "SystemExit: 3",
    "import nosuchmodule\n": "ModuleNotFoundError: No module named 'nosuchmodule'",
    "def (\n": "SyntaxError:",
}


@each("text", [*UNUSABLE])
def test_a_gpuenv_that_cannot_be_imported_is_one_line(text, stand_in, tmp_path):
    (tmp_path / "broken" / "gpuenv").mkdir(parents=True)
    (tmp_path / "broken" / "gpuenv" / "__init__.py").write_text(text)
    code = (
        "print(plugin.conda_post_transaction_actions(), plugin.conda_error_hints(ValueError()))\n"
        "print(len(plugin.conda_subcommands() + plugin.conda_settings()))\n"
        "print(plugin.conda_subcommands()[0].action(['solve']), plugin._fix('', None, None),\n"
        "      plugin._report_health('', False))\n"
    )
    done = child(code, stand_in, tmp_path / "broken")
    assert (done.returncode, done.stdout) == (0, "[] []\n2\n1 1 None\n")
    first, _, *commands = done.stderr.splitlines()
    assert len(commands) == 3 and all(line.startswith("gpuenv: ") for line in commands)
    assert f"gpuenv: left out: {UNUSABLE[text]}" in first


def test_the_checks_end_in_time(tmp_path, monkeypatch):
    """A gpuenv that hangs is ended at the limit of all checks together."""
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr("gpuenv.conda_plugin.checks.command", lambda arguments: slow)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("")
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="gpuenv verify did not end within"):
        checks.examine(str(tmp_path), 1.0)
    assert time.monotonic() - begin < 5.0


def test_the_plugin_can_be_imported_without_conda():
    done = child("print(plugin.conda_subcommands(), plugin.conda_error_hints(ValueError('cudnn')))")
    assert done.returncode == 0
    assert done.stdout == "[] []\n"


def test_what_conda_is_offered(stand_in):
    code = (
        f"for name in {HOOK_NAMES}:\n"
        " for one in getattr(plugin, name)():\n  print(type(one).__name__, one.name)"
    )
    done = child(code, stand_in)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "CondaSubcommand gpuenv",
        "CondaSetting gpuenv_verify",
        "CondaPostTransactionAction gpuenv",
        "CondaHealthCheck gpuenv",
    ]
    hooks = child(
        "print(*[one for one in vars(plugin) if one.startswith('conda_')])", stand_in
    ).stdout.split()
    assert sorted(hooks) == sorted([*HOOK_NAMES, "conda_error_hints"])
    assert (
        child(f"print(all(getattr(plugin, name).marked for name in {hooks}))", stand_in).stdout
        == "True\n"
    )


STOPS = [
    ("raise OSError(12, 'no memory')", "warn", "not checked: OSError: [Errno 12] no memory", 0),
    ("raise OSError(12, 'no memory')", "strict", "not checked: OSError: [Errno 12] no memory", 0),
    ("return [{}]", "strict", "not checked: KeyError: 'status'", 0),
    (f"return [{FAILED}]", "off", None, 0),
    (f"return [{FAILED}]", "warn", "PREFIX: 0 checks passed, 1 failed, 0 unknown", 0),
    (
        f"return [{FAILED}]",
        "strict",
        "CondaVerificationError: gpuenv: PREFIX: 0 checks passed, 1 failed",
        1,
    ),
    (
        f"return [{FAILED | {'status': 'unknown'}}]",
        "strict",
        "PREFIX: 0 checks passed, 0 failed, 1 unknown",
        0,
    ),
    (
        "import conda.exceptions as e; raise e.CondaSignalInterrupt('ended')",
        "warn",
        "CondaSignalInterrupt",
        1,
    ),
]


@each("body mode says status", STOPS)
def test_only_a_failure_that_was_asked_for_stops_conda(
    body, mode, says, status, stand_in, tmp_path
):
    examine = f"def examine(prefix, timeout):\n    {body}\nchecks.examine = examine\n"
    code = f"{CHECKS}{examine}{TRANSACTION}"
    done = child(code, stand_in, arguments=(str(tmp_path),), status=status, MODE=mode)
    assert done.stdout == "None\n"
    assert (says or "").replace("PREFIX", str(tmp_path)) in done.stderr
    told = 0 if says is None else 1 if "0 failed" in says or "not checked" in says else 2
    assert status == 1 or len(done.stderr.splitlines()) == told


@each("later left", [("os.unlink(path)", b"==> 1 <==\n"), ("open(path, 'w').close()", b"")])
def test_a_history_that_a_rollback_loses_is_written_again(later, left, stand_in, tmp_path):
    history = tmp_path / "conda-meta" / "history"
    history.parent.mkdir()
    history.write_bytes(b"==> 1 <==\n")
    ends = f"import os; path = sys.argv[2]\ntry: action.execute()\nexcept Exception: {later}"
    rolled = TRANSACTION.replace("action.execute()", ends).replace("action.cleanup()", "")
    code = f"{CHECKS}checks.examine = lambda *both: [{FAILED}]\n{rolled}"
    done = child(code, stand_in, arguments=(str(tmp_path), str(history)), MODE="strict")
    assert (done.returncode, done.stderr) == (0, "")
    assert history.read_bytes() == left


def test_an_environment_without_python_is_read_by_its_records(tmp_path, monkeypatch):
    (tmp_path / "conda-meta").mkdir()
    for name in ("history", "odd.json"):
        (tmp_path / "conda-meta" / name).touch()
    record = {"name": "cuda-version", "version": "13.0", "build": "h1_3", "subdir": "noarch"}
    (tmp_path / "conda-meta" / "cuda-version-13.0-h1_3.json").write_text(json.dumps(record))
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "12.8")
    assert packages.watched_in(str(tmp_path)) == {"cuda-version"}
    rows = checks.examine(str(tmp_path), 60)
    found = [(one["name"], one["subject"], one["status"]) for one in rows]
    assert ("rules", "cuda-version 13.0", "fail") in found


@each("case", CASES["modes"], ids=str)
def test_what_a_setting_means(case, stand_in):
    code = (
        "from conda.base.context import context\ncontext.plugins.gpuenv_verify = eval(sys.argv[1])"
    )
    done = child(
        f"{code}\nfrom gpuenv.conda_plugin import transaction\nprint(transaction._mode())",
        stand_in,
        arguments=(repr(case["value"]),),
    )
    assert done.stdout.strip() == case["mode"]
    assert bool(done.stderr) is case["warned"]


@each("case", CASES["hints"], ids=str)
def test_which_errors_get_a_hint(case):
    base = type("UnsatisfiableError", (Exception,), {})
    error = type(case["error"], (base if case["error"].startswith("LibMamba") else Exception,), {})(
        case["text"]
    )
    found = error_hints.hints(error)
    assert [code for _, code in found] == (["gpuenv_explain"] if case["hint"] else [])
    assert all(text.endswith(case["hint"]) for text, _ in found)


@each("case", CASES["touched"], ids=str)
def test_which_transactions_are_checked(case, tmp_path):
    (tmp_path / "conda-meta").mkdir()
    for name in case["left"]:
        (tmp_path / "conda-meta" / f"{name}-1.0-0.json").write_text(json.dumps({"name": name}))
    linked, unlinked = (
        [SimpleNamespace(name=name) for name in case[key]] for key in ("linked", "unlinked")
    )
    assert transaction.touched(linked, unlinked, str(tmp_path)) is case["touched"]
