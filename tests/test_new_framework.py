"""A made-up framework: one data file and one probe, added to a copy of gpuenv, are enough."""

import json
import os
import re
import shutil
import sys

import pytest

from processes import run_program
from script_modules import load_script, tool
from small_wheels import make_wheel
from tables import HERE, ROOT

compile_matrix = load_script("data.compile")

DATA = """
name = "madeup"
distribution = "madeup"
import_name = "madeup"
probe = "madeup"
source = "a test"

[[build]]
version = "2.0"
variant = "cu130"
platform = "linux-x86_64"
cuda = "13.0"
sass = ["90"]
ptx = []
evidence = "documented"
source = "a test"

[[build]]
version = "1.0"
variant = "cu126"
platform = "linux-x86_64"
cuda = "12.6"
sass = ["70"]
ptx = []
evidence = "documented"
source = "a test"
"""

# Installed by extras, so that its variants are ways: the second shape that a data file may have.
WAYS = """
name = "madeup"
distribution = "madeup"
import_name = "madeup"
probe = "madeup"
source = "a test"

[[way]]
variant = "fast"
requires = ["madeup[fast]"]
carriers = ["nvidia-cudnn-cu12"]

[[way]]
variant = "cpu"
requires = ["madeup"]
"""

PROBE = """
import json, sys
options = json.loads(sys.argv[1])
import madeup
run = {"what": "made-up convolution", "error": madeup.ERROR, "tolerance": 1e-6,
       "first_s": 0.001, "steady_s": 0.0001}
answer = {"version": madeup.__version__, "cuda": None, "cpu": run, "mapped": []}
print("gpuenv-probe: " + json.dumps(answer))
"""


@pytest.fixture
def site(tmp_path):
    """gpuenv as it is installed: the package, with the data inside it."""
    folder = tmp_path / "site"
    shutil.copytree(
        ROOT / "resolver" / "gpuenv",
        folder / "gpuenv",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copytree(
        ROOT / "matrix_data",
        folder / "gpuenv" / "matrix_data",
        ignore=shutil.ignore_patterns("scans"),
    )
    return folder


def add(site, data):
    (site / "gpuenv" / "matrix_data" / "frameworks" / "madeup.toml").write_text(data)
    (site / "gpuenv" / "probes" / "madeup.py").write_text(PROBE)
    list(compile_matrix.compiled(site / "gpuenv" / "matrix_data"))


def gpuenv(site, folder, *args, status=0):
    folder.mkdir(exist_ok=True)
    dropped = ("VIRTUAL_ENV", "CONDA_PREFIX")
    base = {key: value for key, value in os.environ.items() if key not in dropped}
    environment = base | {"PYTHONPATH": str(site), "GPUENV_CACHE_DIR": str(folder.parent / "cache")}
    command = [sys.executable, "-m", "gpuenv", *args]
    return run_program(command, cwd=folder, env=environment, status=status)


def test_builds_of_a_made_up_framework(site, tmp_path):
    work, links = tmp_path / "work", tmp_path / "links"
    links.mkdir()
    for version, error in (("1.0", "1e-9"), ("2.0", "1e-9")):
        text = f"__version__ = {version!r}\nERROR = {error}\n"
        make_wheel(links, "madeup", version, files={"madeup.py": text})
    before = gpuenv(site, work, "solve", "--framework", "madeup", "--gpu", "none", status=2)
    assert "no framework has that name" in before.stderr
    add(site, DATA)
    flags = ["--framework", "madeup", "--find-links", str(links), "--offline", "--python", HERE]
    flags += ["--platform", "linux-x86_64", "--json"]
    chosen = {}
    for gpu, driver in (("H100", "580.65.06"), ("V100", "550.54.14"), ("H100", "550.54.14")):
        done = gpuenv(
            site,
            work,
            "solve",
            *flags,
            "--gpu",
            gpu,
            "--driver",
            driver,
            "-o",
            "pylock.gpu.toml",
            status=None,
        )
        answer = json.loads(done.stdout)
        chosen[gpu, driver] = (
            answer["frameworks"]["madeup"]["version"] if done.returncode == 0 else done.returncode
        )
    assert chosen == {
        ("H100", "580.65.06"): "2.0",
        ("V100", "550.54.14"): "1.0",
        ("H100", "550.54.14"): 3,
    }


def test_a_made_up_framework_is_locked_installed_and_verified(site, tmp_path):
    work, links = tmp_path / "work", tmp_path / "links"
    links.mkdir()
    text = "__version__ = '1.0'\nERROR = 1e-9\n"
    requires = ["helper ; extra == 'fast'"]
    make_wheel(links, "madeup", "1.0", requires=requires, files={"madeup.py": text})
    make_wheel(links, "helper", "3.0")
    add(site, WAYS)
    flags = ["--find-links", str(links), "--offline", "--gpu", "none", "--python", HERE]
    gpuenv(site, work, "solve", "--framework", "madeup", *flags)
    text = (work / "pylock.toml").read_text()
    assert 'name = "madeup"' in text and 'name = "helper"' not in text and 'variant = "cpu"' in text
    command = ["sync", "pylock.toml", "--target", "env", "--no-verify", "--find-links", str(links)]
    gpuenv(site, work, *command)
    verify = ["verify", "pylock.toml", "--target", "env", "--no-device", "--json"]
    answer = json.loads(gpuenv(site, work, *verify).stdout)
    assert answer["ok"], answer
    assert any("made-up convolution" in check["evidence"] for check in answer["checks"])
    module = next((work / "env").rglob("madeup.py"))
    module.write_text(module.read_text().replace("1e-9", "0.5"))
    broken = gpuenv(site, work, *verify, status=1)
    failed = {
        check["name"] for check in json.loads(broken.stdout)["checks"] if check["status"] == "fail"
    }
    assert "madeup" in failed


def test_a_damaged_data_file_is_named(site):
    add(site, DATA)
    path = site / "gpuenv" / "matrix_data" / "frameworks" / "madeup.toml"
    path.write_text(DATA.replace('probe = "madeup"', ""))
    done = run_program(tool("data", "compile", str(path.parent.parent)), status=2)
    assert re.match(r"error: .*madeup.toml cannot be read: .*`probe`.*\n$", done.stderr)
