"""gpuenv inside conda: with a real conda if there is one, and with stand-ins for its modules."""

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from conda_stand_in import BROKEN, SITE, TORCH
from gpuenv.conda_plugin import checks, error_hints, packages, transaction
from gpuenv.prefix import conda_packages
from processes import run_program
from small_wheels import write_files, write_record
from tables import ROOT, data_file, each
from test_cli import contents

CASES = data_file("conda_plugin.json")
STRICT = {"CONDA_PLUGINS_GPUENV_VERIFY": "strict"}


# ---- with a real conda ---------------------------------------------------------------------------


@pytest.fixture
def prefix(conda, request):
    """An environment with a pytorch that loads."""
    return conda.create(request.node.name.partition("[")[0], "pytorch=2.12.0")


@pytest.fixture
def solvable(conda, tmp_path):
    """Variables of a host whose driver supports CUDA 12.8, with the channel of solvable builds."""
    text = (conda.folder / "condarc").read_text()
    (tmp_path / "condarc").write_text(text.replace("/channel'", "/solvable'"))
    driver = {"CONDA_OVERRIDE_CUDA": "12.8", "CONDA_OVERRIDE_CUDA_ARCH": "9.0"}
    return {"CONDARC": str(tmp_path / "condarc"), **driver}


def test_conda_names_the_plugin(conda):
    assert "conda-gpuenv: gpuenv 0.1.0" in conda.run("info --system").stdout
    listed = conda.run("plugins list", status=None)
    if "invalid choice: 'plugins'" in listed.stderr:
        return  # conda until 26.7.1 has no such command
    rows = [line.split(maxsplit=3) for line in listed.stdout.splitlines()]
    (row,) = [row for row in rows if row[:1] == ["gpuenv"]]
    hooks = {"error_hints", "health_checks", "post_transaction_actions", "settings", "subcommands"}
    assert row[2] == "active" and set(row[3].split(", ")) == hooks


def test_no_virtual_package_is_added(conda):
    bare = conda.run("info --json", CONDA_NO_PLUGINS="true").document
    assert conda.run("info --json").document["virtual_pkgs"] == bare["virtual_pkgs"]


def test_the_subcommand_is_gpuenv(conda, tmp_path):
    lock = tmp_path / "pylock.toml"
    host = "--gpu H100 --driver 550.54.14 --python 3.12 --platform linux-x86_64 --glibc 2.28"
    document = conda.run(f"gpuenv solve --framework torch {host} -o {lock} --json").document
    assert document["frameworks"]["torch"]["cuda"].startswith("12.")
    assert lock.is_file()


def test_the_subcommand_ends_as_gpuenv_does(conda, prefix):
    solve = "gpuenv solve --framework nosuch --gpu H100 --driver 550.54.14"
    assert conda.run(solve, status=2).stderr.startswith("gpuenv: ")
    code = "import sys; sys.exit(len(sys.argv))"
    conda.run(f"gpuenv run --target {prefix} -- python -c '{code}' -- --json", status=3)


def test_a_transaction_is_followed_by_the_check(conda):
    done = conda.run("create --yes --name checked pytorch=2.12.0")
    assert f"gpuenv: {conda.folder}/envs/checked: " in done.stderr
    assert " passed, 0 failed, " in done.stderr


def test_other_packages_are_not_checked(conda, prefix):
    assert "gpuenv" not in conda.run(f"install --yes --prefix {prefix} cowsay", **STRICT).stderr


NOT_LOADED = "libcudnn.so.9: cannot open shared object file"


def test_a_failed_check_is_a_warning(conda, prefix):
    done = conda.run(f"install --yes --json --prefix {prefix} pytorch=2.13.0")
    assert done.document["success"] is True
    assert "FAIL torch" in done.stderr and NOT_LOADED in done.stderr
    assert (prefix / TORCH).read_text() == BROKEN


def test_strict_rolls_the_transaction_back(conda, prefix):
    before, install = contents(prefix), f"install --yes --prefix {prefix}"
    done = conda.run(f"{install} pytorch=2.13.0 cowsay", status=1, **STRICT)
    assert "FAIL torch" in done.stderr and NOT_LOADED in done.stderr
    assert "conda gpuenv explain" in done.stderr
    assert contents(prefix) == before
    assert "share/stand-ins/cowsay" not in before
    conda.run(f"{install} cowsay cudnn=9.10.2.21", **STRICT)
    assert contents(prefix)["share/stand-ins/cudnn"] == b"9.10.2.21"


def test_strict_leaves_no_new_environment(conda):
    conda.run("create --yes --name refused pytorch=2.13.0", status=1, **STRICT)
    assert not list((conda.folder / "envs" / "refused").rglob("*torch*"))


def test_strict_refuses_a_cuda_that_the_driver_does_not_run(conda):
    override = {**STRICT, "CONDA_OVERRIDE_CUDA": "12.8"}
    done = conda.run("create --yes --name thirteen cuda-version=13.0", status=1, **override)
    assert "needs a driver for CUDA 13; has a driver for CUDA 12.8" in done.stderr
    conda.run("create --yes --name twelve cuda-version=12.9", **override)


def test_the_setting_of_the_settings_file(conda, prefix, tmp_path):
    assert "gpuenv_verify: warn" in conda.run("config --show").stdout
    condarc, text = tmp_path / "condarc", (conda.folder / "condarc").read_text()
    install = f"install --yes --prefix {prefix} pytorch=2.13.0"
    condarc.write_text(f"{text}plugins:\n  gpuenv_verify: strict\n")
    conda.run(install, status=1, CONDARC=str(condarc))
    condarc.write_text(f"{text}plugins:\n  gpuenv_verify: strcit\n")
    assert "'strcit': taken as warn" in conda.run(install, CONDARC=str(condarc)).stderr


def test_doctor_shows_the_health_check(conda, prefix):
    assert "gpuenv: Prove that" in conda.run("doctor --list").stdout
    doctor = f"doctor --prefix {prefix} gpuenv"
    assert " passed, 0 failed, " in conda.run(doctor).stdout
    write_record(prefix / SITE, "nvidia-cudnn-cu12", "9.1.0.70")
    done = conda.run(doctor, status=None)
    assert "FAIL owners cuDNN" in done.stdout
    assert "cudnn 9.14.0.64 of conda and nvidia-cudnn-cu12 9.1.0.70 of a wheel" in done.stdout


def test_doctor_says_where_nothing_is_to_be_checked(conda):
    done = conda.run(f"doctor --prefix {conda.create('empty', 'cowsay')} gpuenv", status=None)
    assert "no CUDA, cuDNN or framework" in done.stdout


def test_doctor_changes_nothing_unasked(conda, prefix):
    conda.break_torch(prefix)
    before = contents(prefix)
    for flags in ("--fix", "--fix --dry-run", ""):
        done = conda.run(f"doctor --prefix {prefix} {flags} gpuenv", typed="no\n", status=None)
        assert "FAIL torch" in done.stdout
        assert contents(prefix) == before


def test_doctor_installs_what_fits_once_the_user_agrees(conda, solvable):
    if conda.lacks("libmambapy", "conda_libmamba_solver") and conda.lacks("pycosat"):
        pytest.skip("conda's Python has neither libmambapy nor pycosat to solve with")
    done = conda.run("create --yes --name fixed pytorch", status=None, **solvable)
    assert "FAIL rules cuda-version 13.0" in done.stderr
    prefix = conda.folder / "envs" / "fixed"
    before, doctor = contents(prefix), "doctor --name fixed --fix gpuenv"
    done = conda.run(f"{doctor} --dry-run", typed="y\n", status=None, **solvable)
    assert "-> 2.7.1" in done.stdout and contents(prefix) == before
    conda.run(doctor, typed="y\n", **solvable)
    have = {name: row["version"] for name, row in conda_packages(str(prefix)).items()}
    assert (have["pytorch"], have["cuda-version"], have["cudnn"]) == ("2.7.1", "12.9", "9.10.2.21")
    checked = conda.run("doctor --name fixed gpuenv", status=None, **solvable)
    assert " passed, 0 failed, " in checked.stdout


def test_a_fix_does_not_break_what_the_user_asked_for(conda, solvable):
    off = {"CONDA_PLUGINS_GPUENV_VERIFY": "off", **solvable}
    conda.run("create --yes --name asked pytorch=2.9.1", **off)
    prefix = conda.folder / "envs" / "asked"
    before = contents(prefix)
    done = conda.run("doctor --name asked --fix gpuenv", typed="y\n", status=1, **solvable)
    assert "no builds fit this host and the environment; nothing was changed" in done.stdout
    assert contents(prefix) == before


def test_an_error_of_condas_gets_a_hint(conda):
    done = conda.run("create --yes --name none pytorch=99", status=1)
    assert "conda gpuenv explain torch" in done.output
    assert "gpuenv" not in conda.run("create --yes --name none cowsay=99", status=None).output


def test_the_commands_of_the_documentation(conda, solvable, tmp_path):
    """The commands of conda in the blocks of the page, but for the one that needs the network."""
    text = (ROOT / "docs" / "conda-plugin.md").read_text()
    lines = re.findall(r"^    ((?:[A-Z_]+=\w+ )?conda [^#\n]+)", text, re.MULTILINE)
    commands = [line.strip() for line in lines if "pip install" not in line]
    assert len(commands) >= 5
    env = {**solvable, "HOME": str(tmp_path)}  # conda config writes there
    conda.run("create --yes --name documented pytorch=2.7.1", **env)
    for line in commands:
        variables, words = line.split("conda ", 1)
        named = {"install": "install --yes --name documented", "doctor": "doctor --name documented"}
        verb, _, rest = words.partition(" ")
        own = dict(word.split("=", 1) for word in variables.split())
        conda.run(f"{named.get(verb, verb)} {rest}", typed="y\n", **env, **own)


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
    conda.run("info", **env)
    for command in ("create --yes pytorch=2.12.0", "install --yes cudnn=9.10.2.21"):
        done = conda.run(f"{command} --name broken-{kind}", **env)
        # conda says once or twice that a plugin could not be imported.
        said = {line for line in done.stderr.splitlines() if "gpuenv" in line}
        assert len(said) == 1, done.stderr
    done = conda.run(f"doctor --name broken-{kind}", **env)
    assert "Environment Health Report" in done.stdout
    conda.run(f"list --name broken-{kind}", **env)


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
FAILED = """
FAILED = {"name": "torch", "subject": "import", "status": "fail", "evidence": "ImportError"}
FAILED["seconds"] = 0.1
"""
CHECKS = "from gpuenv.conda_plugin import checks\n"
TRANSACTION = """
from types import SimpleNamespace
linked = [SimpleNamespace(name="cudnn")]
action = plugin.conda_post_transaction_actions()[0].action(sys.argv[1], linked)
print(action.verify())
action.execute()
action.cleanup()
"""


@pytest.fixture
def stand_in(tmp_path):
    """A folder with modules of conda's names that do as much as the plugin asks of them."""
    write_files(tmp_path / "stand-in" / "conda", STAND_IN)
    return tmp_path / "stand-in"


def child(code, *paths, arguments=(), status=0, **env):
    """Run code that has the plugin as `plugin` and finds conda in the given folders."""
    found = os.pathsep.join(map(str, [*paths, ROOT / "resolver"]))
    code = f"import sys\nimport gpuenv_conda_plugin as plugin\n{code}"
    env = {**os.environ, "PYTHONPATH": found, **env}
    return run_program([sys.executable, "-c", code, *arguments], env=env, status=status)


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
    assert done.stdout == "[] []\n2\n1 1 None\n"
    first, _, *commands = done.stderr.splitlines()
    assert len(commands) == 3 and all(line.startswith("gpuenv: ") for line in commands)
    assert f"gpuenv: left out: {UNUSABLE[text]}" in first


def test_the_checks_end_in_time(tmp_path, monkeypatch):
    """A gpuenv that hangs is ended at the limit of all checks together."""
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr("gpuenv.conda_plugin.checks.command", lambda arguments: slow)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("")
    monkeypatch.setattr(checks, "TIMEOUT", 1.0)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="gpuenv verify did not end within"):
        checks.examine(str(tmp_path))
    assert time.monotonic() - begin < 5.0


def test_the_plugin_can_be_imported_without_conda():
    done = child("print(plugin.conda_subcommands(), plugin.conda_error_hints(ValueError('cudnn')))")
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
    marked = (
        "one for one in vars(plugin) if one.startswith('conda_') and getattr(plugin, one).marked"
    )
    hooks = child(f"print(*[{marked}])", stand_in).stdout.split()
    assert sorted(hooks) == sorted([*HOOK_NAMES, "conda_error_hints"])


@each("body mode says status", CASES["stops"])
def test_only_a_failure_that_was_asked_for_stops_conda(
    body, mode, says, status, stand_in, tmp_path
):
    examine = f"def examine(prefix):\n    {body}\nchecks.examine = examine\n"
    code = f"{CHECKS}{FAILED}{examine}{TRANSACTION}"
    done = child(code, stand_in, arguments=(str(tmp_path),), status=status, MODE=mode)
    assert done.stdout == "None\n"
    assert says.replace("PREFIX", str(tmp_path)) in done.stderr
    told = 0 if not says else 1 if "0 failed" in says or "not checked" in says else 2
    assert status == 1 or len(done.stderr.splitlines()) == told


@each("later left", [("os.unlink(path)", b"==> 1 <==\n"), ("open(path, 'w').close()", b"")])
def test_a_history_that_a_rollback_loses_is_written_again(later, left, stand_in, tmp_path):
    history = tmp_path / "conda-meta" / "history"
    history.parent.mkdir()
    history.write_bytes(b"==> 1 <==\n")
    ends = f"import os; path = sys.argv[2]\ntry: action.execute()\nexcept Exception: {later}"
    rolled = TRANSACTION.replace("action.execute()", ends).replace("action.cleanup()", "")
    code = f"{CHECKS}{FAILED}checks.examine = lambda prefix: [FAILED]\n{rolled}"
    done = child(code, stand_in, arguments=(str(tmp_path), str(history)), MODE="strict")
    assert done.stderr == ""
    assert history.read_bytes() == left


def test_an_environment_without_python_is_read_by_its_records(tmp_path, monkeypatch):
    (tmp_path / "conda-meta").mkdir()
    for name in ("history", "odd.json"):
        (tmp_path / "conda-meta" / name).touch()
    record = {"name": "cuda-version", "version": "13.0", "build": "h1_3", "subdir": "noarch"}
    (tmp_path / "conda-meta" / "cuda-version-13.0-h1_3.json").write_text(json.dumps(record))
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "12.8")
    assert packages.watched_in(str(tmp_path)) == {"cuda-version"}
    rows = checks.examine(str(tmp_path))
    found = [(one["name"], one["subject"], one["status"]) for one in rows]
    assert ("rules", "cuda-version 13.0", "fail") in found


@each("case", CASES["modes"], ids=str)
def test_what_a_setting_means(case, stand_in):
    code = (
        f"from conda.base.context import context\ncontext.plugins.gpuenv_verify = {case['value']!r}"
    )
    code += "\nfrom gpuenv.conda_plugin import transaction\nprint(transaction._mode())"
    done = child(code, stand_in)
    assert done.stdout.strip() == case["mode"]
    assert bool(done.stderr) is case["warned"]


@each("case", CASES["hints"], ids=str)
def test_which_errors_get_a_hint(case):
    base = type("UnsatisfiableError", (Exception,), {})
    base = base if case["error"].startswith("LibMamba") else Exception
    found = error_hints.hints(type(case["error"], (base,), {})(case["text"]))
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
