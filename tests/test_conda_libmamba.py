"""gpuenv in a conda whose solver is libmamba; skipped, with the reason, without such a conda."""

from pathlib import Path

import pytest

from conda_prefixes import HOST
from tables import DATA, cases, data_file, each
from test_cli import contents

CASES = data_file("conda.toml")["case"]
SOLVE = f"gpuenv solve --backend conda {HOST}"
# Solve each case in conda's own interpreter, and record libmamba's answers.
SOLVES = """
import json, sys, tomllib
import conda_libmamba_solver.solver as plugin, libmambapy, libmambapy.bindings as bindings
import gpuenv
from gpuenv import api
from gpuenv.resolve.conda import planning, solvers
from gpuenv.errors import NoSolutionError
from gpuenv.model import CondaOptions, Request

answers = []

class Noted(plugin.LibsolvSolver):
    def solve(self, database, request):
        found = super().solve(database, request)
        answers.append(type(found).__name__)
        return found

plugin.LibsolvSolver = Noted
solver = solvers.open_solver([sys.argv[1]], ["linux-64", "noarch"])
about = {"name": solver.name, "version": libmambapy.__version__}
about |= {"file": bindings.__file__, "base": str(Noted.__base__)}

def one(case):
    where = {"python": "3.12", "platform": "linux-x86_64", "glibc": case.get("glibc", "2.35")}
    host = gpuenv.describe(gpus=case["gpu"], driver=case.get("driver"), **where)
    frameworks, texts = tuple(case.get("framework", ())), tuple(case.get("requirements", ()))
    options = CondaOptions(keep_python=case.get("keep_python", False))
    request = Request(frameworks=frameworks, requirements=texts, conda=options)
    try:
        plan = planning.plan(request, host, api.compatibility_data(), solver)
    except NoSolutionError as error:
        explanation = error.explanation
        codes = [reason.code for reason in explanation.reasons]
        return {"codes": codes, "changes": [change.change for change in explanation.changes]}
    return {
        "choices": [
            f"{row.framework} {row.version} {row.variant} {row.cudnn or '-'}"
            for row in plan.choices
        ],
        "pins": plan.versions,
        "floor": plan.needs.driver,
        "skipped": [
            f"{row.name} {row.version}: {reason.code}"
            for row in plan.skipped
            for reason in row.reasons
        ],
    }

found = {}
for case in tomllib.load(open(sys.argv[2], "rb"))["case"]:
    answers.clear()
    found[case["name"]] = {**one(case), "answers": list(answers)}
json.dump({"about": about, "cases": found}, sys.stdout)
"""


# ---- with a real libmamba ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def libmamba(conda):
    """A conda that can solve with libmamba."""
    lacking = conda.lacks("libmambapy", "conda_libmamba_solver")
    if lacking:
        pytest.skip(f"the conda at hand cannot solve with libmamba, it lacks {', '.join(lacking)}")
    return conda


@pytest.fixture(scope="module")
def solved(libmamba, channel):
    """All cases of conda.toml, solved by libmamba."""
    done = libmamba.python_runs(SOLVES, channel, str(DATA / "conda.toml"))
    assert "Solving environment" not in done.output
    return done.document


def test_the_solver_is_libmamba(libmamba, solved):
    about = libmamba.run("info --json").document
    assert "solver/libmamba" in about["user_agent"].split()
    assert solved["about"]["name"] == "libmamba"
    assert solved["about"]["version"].startswith("2.")
    assert Path(solved["about"]["file"]).suffix == ".so"
    assert "libmambapy.bindings.solver.libsolv.Solver" in solved["about"]["base"]


@cases(CASES)
def test_libmamba_comes_to_what_the_cases_say(case, solved):
    found = solved["cases"][case["name"]]
    if "codes" in case:
        assert set(case["codes"]) <= set(found["codes"])
        assert found["changes"] == ([case["change"]] if "change" in case else [])
        return
    assert found["answers"][-1] == "Solution"
    assert found["choices"] == case.get("want", [])
    assert case.get("packages", {}).items() <= found["pins"].items()
    assert "python" not in case or found["pins"]["python"].startswith(case["python"] + ".")
    assert found["floor"] == case.get("floor", found["floor"])
    assert set(case.get("skipped", ())) <= set(found["skipped"])


def test_libmamba_takes_a_cuda_that_the_driver_does_not_run_and_gpuenv_does_not(
    libmamba, channel, tmp_path
):
    """cuda-version 13.0 `constrains: __cuda >=13`, and nothing depends on __cuda."""
    create = "create --dry-run --json --name thirteen --override-channels --channel"
    done = libmamba.run(f"{create} {channel} cuda-version=13.0", CONDA_OVERRIDE_CUDA="12.8")
    linked = [f"{one['name']} {one['version']}" for one in done.document["actions"]["LINK"]]
    assert linked == ["cuda-version 13.0"]
    lock = tmp_path / "conda-explicit.txt"
    done = libmamba.run(f"{SOLVE} cuda-version=13.0 --channel {channel} -o {lock}", status=3)
    assert not lock.exists()
    assert (
        "cuda-version 13.0 needs driver 580.65.06 or newer for CUDA 13.0; "
        "this host has driver 570.86.10" in done.stderr
    )


def test_a_lock_of_libmambas_closure_is_installed(libmamba, channel, tmp_path):
    lock, prefix = tmp_path / "conda-explicit.txt", tmp_path / "env"
    done = libmamba.run(f"{SOLVE} pytorch=2.8 --channel {channel} -o {lock}")
    assert "Collecting package metadata" not in done.output
    (_, _, row, *_) = done.stdout.splitlines()
    assert row.split()[:5] == ["torch", "2.8.0", "cuda129", "12.9", "9.11.0.98"]
    off = {"CONDA_PLUGINS_GPUENV_VERIFY": "off"}
    libmamba.run(f"create --yes --prefix {prefix} --file {lock}", **off)
    assert contents(prefix)["share/stand-ins/cudnn"] == b"9.11.0.98"


@each("asked where status says", data_file("tables/conda_libmamba.json")["errors"])
def test_an_error_of_condas_is_one_line(asked, where, status, says, libmamba, channel, tmp_path):
    command = f"{SOLVE} {asked} --channel {where or channel} -o {tmp_path}/lock"
    (line,) = libmamba.run(command, status=status).stderr.splitlines()
    assert line.startswith(f"gpuenv: {says}")
