"""`gpuenv run` removes what shadows an environment's libraries; all else stays."""

import csv
import os
import signal
import sys

import pytest

from gpuenv import loader_env
from gpuenv.render.changes import shadow_lines
from processes import run_program
from tables import cases, data_file, each, on_linux
from test_cli import run_process as run
from test_verification import CLEAN, CUDNN, file_name, install, member_file, place, site_of

TABLES = data_file("tables/run.json")

CASES = data_file("run.toml")["case"]
pytestmark = on_linux


def own(site, paths):
    """A distribution that owns these files."""
    for path in paths:
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).touch()
    info = site / "stand_in-1.0.dist-info"
    info.mkdir(exist_ok=True)
    with (info / "RECORD").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [*([path, "sha256=x", 0] for path in paths), ["a.py", "", ""]]
        )


@cases(CASES)
def test_loader_variables(case, tmp_path):
    prefix = tmp_path / "env"
    site = prefix / "lib" / "python3.12" / "site-packages"
    own(site, case["owns"])
    places = {"env": str(site)}
    for name, files in case.get("folders", {}).items():
        places[name] = str(tmp_path / name)
        for file in files:
            is_link = file.startswith("@")
            path = tmp_path / name / (file.rpartition("/")[2] if is_link else file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(site / file[1:]) if is_link else path.touch()
    given_ = {"LD_LIBRARY_PATH": case.get("path"), "LD_PRELOAD": case.get("preload")}
    env = {name: text.format(**places) for name, text in given_.items() if text is not None}
    changed, shadows = loader_env.loader_variables(
        env, str(prefix), loader_env.libraries(str(prefix))
    )
    after = {name: value for name, value in (env | changed).items() if value is not None}
    assert after.get("LD_LIBRARY_PATH", "") == case.get("want_path", "").format(**places)
    assert after.get("LD_PRELOAD", "") == case.get("want_preload", "").format(**places)
    lines = shadow_lines(shadows, str(prefix))
    for line, texts in zip(lines, case.get("says", []), strict=True):
        for text in texts:
            assert text.format(**places) in line


def test_libraries_of_a_conda_environment(tmp_path):
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcudnn.so.9").touch()
    assert loader_env.libraries(str(tmp_path)) == {
        "libcudnn.so.9": str(tmp_path / "lib" / "libcudnn.so.9")
    }
    assert loader_env.activated({"VIRTUAL_ENV": "/x", "PATH": "/a"}, str(tmp_path)) == {
        "PATH": f"{tmp_path}/bin:/a",
        "CONDA_PREFIX": str(tmp_path),
        "VIRTUAL_ENV": None,
    }


# ---- real processes ------------------------------------------------------------------------------


@pytest.fixture
def shadowed(env, native, tmp_path):
    """A folder with a member of another cuDNN, which shadows that of the environment."""
    install(site_of(env), native, [])
    place(member_file(native, "graph", 91400), tmp_path / "other" / file_name("graph", 91400))
    return tmp_path / "other"


def test_the_loader_takes_the_environments_libraries(env, shadowed, tmp_path):
    """cuDNN's members open one another by name: `run` drops an LD_LIBRARY_PATH that would win."""
    main = site_of(env) / CUDNN / file_name("", 92000)
    code = f"import ctypes; print(ctypes.CDLL('{main}').cudnnGetVersion())"
    variables = {"LD_LIBRARY_PATH": f"{shadowed}:/no/such", "GPUENV_NO_MEMO": "1"}
    plain = run_program([env / "bin" / "python", "-c", code], env=CLEAN | variables)
    assert plain.stdout == "91400\n"
    done = run(["run", "--target", env, "--", "python", "-c", code], tmp_path, **variables)
    assert done.stdout == "92000\n"
    assert done.stderr.splitlines() == [
        f"gpuenv: LD_LIBRARY_PATH: removed {shadowed}: "
        f"its {file_name('graph', 91400)} shadows the one in {env}"
    ]


def test_what_is_taken_out_is_what_a_verification_fails_for(env, shadowed, tmp_path):
    variables = {"LD_LIBRARY_PATH": str(shadowed)}
    verify = "verify --no-device --target env --json"
    checks = run(verify, tmp_path, status=1, **variables).document["checks"]
    wrong = {f"{one['name']} {one['subject']}" for one in checks if one["status"] == "fail"}
    assert "loader variables" in wrong
    run(f"run --target env -- {sys.executable} -m gpuenv {verify}", tmp_path, **variables)


def test_the_command_runs_in_the_environment_with_its_own_status(env, tmp_path):
    said = "sys.prefix, os.environ['VIRTUAL_ENV'], os.environ.get('PYTHONHOME')"
    code = f"import os, sys; print({said}); sys.exit(7)"
    command = ["run", "--target", "env", "--", "python", "-c", code]
    done = run(command, tmp_path, PYTHONHOME=sys.base_prefix, status=7)
    assert done.stderr == ""
    assert done.stdout == f"{env} {env} None\n"


def test_the_environment_that_is_meant_without_naming_it(env, tmp_path):
    command = "run -- sh -c 'echo $VIRTUAL_ENV'"
    assert run(command, tmp_path, VIRTUAL_ENV=str(env)).stdout == f"{env}\n"
    on_path = f"{env / 'bin'}:{os.environ['PATH']}"
    assert run(command, tmp_path, PATH=on_path).stdout == f"{env}\n"
    env.rename(tmp_path / ".venv")
    assert run(command, tmp_path).stdout == f"{tmp_path / '.venv'}\n"


def test_the_flags_end_at_the_command(env, tmp_path):
    done = run("run --target env echo -- --json --target x", tmp_path)
    assert done.stdout == "-- --json --target x\n"
    (tmp_path / "x.py").write_text("import sys; print(sys.prefix, sys.argv[1:])")
    done = run("run --target env python x.py --flag", tmp_path)
    assert done.stdout == f"{env} ['--flag']\n"


def test_signals_reach_the_command_as_they_reach_any(env, tmp_path):
    """No process stands between, and SIGPIPE ends the command as it does elsewhere."""
    run("run --target env -- sh -c 'kill -TERM $$'", tmp_path, status=-signal.SIGTERM)
    run("run --target env -- sh -c 'kill -PIPE $$'", tmp_path, status=-signal.SIGPIPE)


@each("arguments status says", TABLES["mistakes"])
def test_mistakes(arguments, status, says, env, tmp_path):
    (tmp_path / "empty").mkdir()
    done = run(arguments, tmp_path, status=status)
    done.says_in_one_line(says)


def test_json_says_what_would_be_and_runs_nothing(env, tmp_path):
    own(site_of(env), ["nvidia/cudnn/lib/libcudnn.so.9"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "libcudnn.so.9").touch()
    variables = {"LD_LIBRARY_PATH": str(tmp_path / "other")}
    done = run("run --json --target env -- touch made", tmp_path, **variables)
    document = done.document
    assert done.stderr == "" and not (tmp_path / "made").exists()
    assert document["command"] == ["touch", "made"]
    assert document["set"]["VIRTUAL_ENV"] == str(env)
    assert document["unset"] == ["LD_LIBRARY_PATH"]
    assert document["shadows"] == [
        {"variable": "LD_LIBRARY_PATH", "entry": variables["LD_LIBRARY_PATH"],
         "libraries": ["libcudnn.so.9"], "kept": False}
    ]  # fmt: skip
