"""`gpuenv run` removes what shadows an environment's libraries; all else stays."""

import csv
import json
import os
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from gpuenv import loader_env
from gpuenv.render.changes import shadow_lines
from tables import cases, data_file, each
from test_cli import run_process as run
from test_verification import CLEAN, CUDNN, file_name, install, member_file, place, site_of

TABLES = data_file("tables/run.json")

CASES = data_file("run.toml")["case"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loader is glibc's")


@pytest.fixture
def cache(native: Path) -> Path:
    return native


@pytest.fixture
def env_folder(tmp_path: Path) -> Path:
    target = tmp_path / "env"
    venv.create(target, symlinks=True)
    return target


def own(site: Path, paths: list[str]) -> None:
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
def test_loader_variables(case: dict[str, Any], tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    site = prefix / "lib" / "python3.12" / "site-packages"
    own(site, case["owns"])
    places = {"env": str(site)}
    for name, files in case.get("folders", {}).items():
        places[name] = str(tmp_path / name)
        for file in files:
            path = (
                tmp_path / name / file.rpartition("/")[2]
                if file.startswith("@")
                else tmp_path / name / file
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(site / file[1:]) if file.startswith("@") else path.touch()
    given_ = {"LD_LIBRARY_PATH": case.get("path"), "LD_PRELOAD": case.get("preload")}
    env = {name: text.format(**places) for name, text in given_.items() if text is not None}
    changed, shadows = loader_env.loader_variables(
        env, str(prefix), loader_env.libraries(str(prefix))
    )
    after = {name: value for name, value in (env | changed).items() if value is not None}
    assert after.get("LD_LIBRARY_PATH", "") == case.get("want_path", "").format(**places)
    assert after.get("LD_PRELOAD", "") == case.get("want_preload", "").format(**places)
    lines = shadow_lines(shadows, str(prefix))
    assert len(lines) == len(case.get("says", []))
    for line, texts in zip(lines, case.get("says", []), strict=True):
        for text in texts:
            assert text.format(**places) in line


def test_libraries_of_a_conda_environment(tmp_path: Path) -> None:
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


def test_the_loader_takes_the_environments_libraries(
    env_folder: Path, cache: Path, tmp_path: Path
) -> None:
    """cuDNN's members open one another by name: `run` drops an LD_LIBRARY_PATH that would win."""
    install(site_of(env_folder), cache, [])
    place(member_file(cache, "graph", 91400), tmp_path / "other" / file_name("graph", 91400))
    main = site_of(env_folder) / CUDNN / file_name("", 92000)
    command = [
        "python",
        "-c",
        f"import ctypes; print(ctypes.CDLL({str(main)!r}).cudnnGetVersion())",
    ]
    env = {"LD_LIBRARY_PATH": f"{tmp_path / 'other'}:/no/such", "GPUENV_NO_MEMO": "1"}
    plain = subprocess.run(
        [str(env_folder / "bin" / "python"), *command[1:]],
        env=CLEAN | env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert plain.stdout == "91400\n"
    done = run(["run", "--target", str(env_folder), "--", *command], tmp_path, **env)
    assert (done.returncode, done.stdout) == (0, "92000\n"), done.stderr
    assert done.stderr.splitlines() == [
        f"gpuenv: LD_LIBRARY_PATH: removed {tmp_path / 'other'}: "
        f"its {file_name('graph', 91400)} shadows the one in {env_folder}"
    ]


def test_what_is_taken_out_is_what_a_verification_fails_for(
    env_folder: Path, cache: Path, tmp_path: Path
) -> None:
    install(site_of(env_folder), cache, [])
    place(member_file(cache, "graph", 91400), tmp_path / "other" / file_name("graph", 91400))
    variables = {"LD_LIBRARY_PATH": str(tmp_path / "other")}
    verify = ["verify", "--no-device", "--target", "env", "--json"]
    plain = run(verify, tmp_path, **variables)
    wrong = {
        f"{one['name']} {one['subject']}"
        for one in json.loads(plain.stdout)["checks"]
        if one["status"] == "fail"
    }
    assert (plain.returncode, "loader variables" in wrong) == (1, True)
    done = run(
        ["run", "--target", "env", "--", sys.executable, "-m", "gpuenv", *verify],
        tmp_path,
        **variables,
    )
    assert done.returncode == 0, done.stdout


def test_the_command_runs_in_the_environment_with_its_own_status(
    env_folder: Path, tmp_path: Path
) -> None:
    said = "sys.prefix, os.environ['VIRTUAL_ENV'], os.environ.get('PYTHONHOME')"
    code = f"import os, sys; print({said}); sys.exit(7)"
    done = run(
        ["run", "--target", "env", "--", "python", "-c", code], tmp_path, PYTHONHOME=sys.base_prefix
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == f"{env_folder} {env_folder} None\n"


def test_the_environment_that_is_meant_without_naming_it(env_folder: Path, tmp_path: Path) -> None:
    command = ["run", "--", "sh", "-c", "echo $VIRTUAL_ENV"]
    assert run(command, tmp_path, VIRTUAL_ENV=str(env_folder)).stdout == f"{env_folder}\n"
    on_path = f"{env_folder / 'bin'}:{os.environ['PATH']}"
    assert run(command, tmp_path, PATH=on_path).stdout == f"{env_folder}\n"
    env_folder.rename(tmp_path / ".venv")
    assert run(command, tmp_path).stdout == f"{tmp_path / '.venv'}\n"


def test_what_follows_the_dashes_is_the_commands(env_folder: Path, tmp_path: Path) -> None:
    done = run("run --target env -- echo -- --json -x", tmp_path)
    assert (done.returncode, done.stdout) == (0, "-- --json -x\n")


def test_the_flags_end_at_the_command(env_folder: Path, tmp_path: Path) -> None:
    done = run("run --target env echo -- --json --target x", tmp_path)
    assert (done.returncode, done.stdout) == (0, "-- --json --target x\n")
    (tmp_path / "x.py").write_text("import sys; print(sys.prefix, sys.argv[1:])")
    done = run("run --target env python x.py --flag", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{env_folder} ['--flag']\n")


def test_signals_reach_the_command_as_they_reach_any(env_folder: Path, tmp_path: Path) -> None:
    """No process stands between, and SIGPIPE ends the command as it does elsewhere."""
    done = run(["run", "--target", "env", "--", "sh", "-c", "kill -TERM $$"], tmp_path)
    assert done.returncode == -signal.SIGTERM
    done = run(["run", "--target", "env", "--", "sh", "-c", "kill -PIPE $$"], tmp_path)
    assert done.returncode == -signal.SIGPIPE


@each("arguments status says", TABLES["mistakes"])
def test_mistakes(
    arguments: list[str], status: int, says: str, env_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    done = run(arguments, tmp_path)
    assert (done.returncode, done.stdout) == (status, "")
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_json_says_what_would_be_and_runs_nothing(env_folder: Path, tmp_path: Path) -> None:
    own(site_of(env_folder), ["nvidia/cudnn/lib/libcudnn.so.9"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "libcudnn.so.9").touch()
    variables = {"LD_LIBRARY_PATH": str(tmp_path / "other")}
    done = run("run --json --target env -- touch made", tmp_path, **variables)
    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "made").exists()
    assert document["command"] == ["touch", "made"]
    assert document["set"]["VIRTUAL_ENV"] == str(env_folder)
    assert document["unset"] == ["LD_LIBRARY_PATH"]
    assert document["shadows"] == [
        {"variable": "LD_LIBRARY_PATH", "entry": variables["LD_LIBRARY_PATH"],
         "libraries": ["libcudnn.so.9"], "kept": False}
    ]  # fmt: skip
