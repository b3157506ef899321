"""A made-up framework: one data file and one probe, added to a copy of gpuenv, are enough."""

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
    left_out = shutil.ignore_patterns("__pycache__", "scans")
    shutil.copytree(ROOT / "resolver" / "gpuenv", folder / "gpuenv", ignore=left_out)
    data = folder / "gpuenv" / "matrix_data"
    shutil.copytree(ROOT / "matrix_data", data, ignore=left_out)
    return folder


def add(site, data):
    (site / "gpuenv" / "matrix_data" / "frameworks" / "madeup.toml").write_text(data)
    (site / "gpuenv" / "probes" / "madeup.py").write_text(PROBE)
    list(compile_matrix.compiled(site / "gpuenv" / "matrix_data"))


@pytest.fixture
def gpuenv(site, folder):
    """gpuenv(text): run a command of this gpuenv in the folder."""
    dropped = ("VIRTUAL_ENV", "CONDA_PREFIX")
    env = {key: value for key, value in os.environ.items() if key not in dropped}
    env |= {"PYTHONPATH": str(site), "GPUENV_CACHE_DIR": str(folder.parent / "cache")}

    def command(text, status=0):
        words = f"{sys.executable} -m gpuenv {text}"
        return run_program(words, cwd=folder, env=env, status=status)

    return command


def test_builds_of_a_made_up_framework(site, gpuenv, tmp_path):
    for version in ("1.0", "2.0"):
        text = f"__version__ = {version!r}\nERROR = 1e-9\n"
        make_wheel(tmp_path, "madeup", version, files={"madeup.py": text})
    before = gpuenv("solve --framework madeup --gpu none", status=2)
    assert "no framework has that name" in before.stderr
    add(site, DATA)
    solve = f"solve --framework madeup --find-links {tmp_path} --offline --python {HERE} --json"
    solve += " --platform linux-x86_64 -o pylock.gpu.toml"
    for host, version in {
        "--gpu H100 --driver 580.65.06": "2.0",
        "--gpu V100 --driver 550.54.14": "1.0",
        "--gpu H100 --driver 550.54.14": None,
    }.items():
        document = gpuenv(f"{solve} {host}", status=0 if version else 3).document
        assert not version or document["frameworks"]["madeup"]["version"] == version


def test_a_made_up_framework_is_locked_installed_and_verified(site, gpuenv, folder, tmp_path):
    text = "__version__ = '1.0'\nERROR = 1e-9\n"
    requires = ["helper ; extra == 'fast'"]
    make_wheel(tmp_path, "madeup", "1.0", requires, files={"madeup.py": text})
    make_wheel(tmp_path, "helper", "3.0")
    add(site, WAYS)
    links = f"--find-links {tmp_path}"
    gpuenv(f"solve --framework madeup {links} --offline --gpu none --python {HERE}")
    text = (folder / "pylock.toml").read_text()
    assert 'name = "madeup"' in text and 'name = "helper"' not in text and 'variant = "cpu"' in text
    gpuenv(f"sync pylock.toml --target env --no-verify {links}")
    verify = "verify pylock.toml --target env --no-device --json"
    answer = gpuenv(verify).document
    assert answer["ok"], answer
    assert any("made-up convolution" in check["evidence"] for check in answer["checks"])
    module = next((folder / "env").rglob("madeup.py"))
    module.write_text(module.read_text().replace("1e-9", "0.5"))
    broken = gpuenv(verify, status=1).document
    assert "madeup" in {check["name"] for check in broken["checks"] if check["status"] == "fail"}


def test_a_damaged_data_file_is_named(site):
    add(site, DATA)
    path = site / "gpuenv" / "matrix_data" / "frameworks" / "madeup.toml"
    path.write_text(DATA.replace('probe = "madeup"', ""))
    done = run_program(tool("data", "compile", str(path.parent.parent)), status=2)
    assert re.match(r"error: .*madeup.toml cannot be read: .*`probe`.*\n$", done.stderr)
