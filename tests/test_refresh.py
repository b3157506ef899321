"""The maintainers' round: missing releases are scanned, become rows and are compared."""

import json
import os
import shutil
from pathlib import Path

import pytest

from fatbin_maker import binary, library
from gpuenv.index.snapshot import Snapshot
from index_server import IndexServer
from processes import run_program
from script_modules import tool
from tables import ROOT, on_x86_64, read_data
from test_cli import contents

pytestmark = on_x86_64

SPARK = """
name = "spark"
distribution = "spark"
import_name = "spark"
probe = "spark"
source = "made up"

[[way]]
variant = "cuda12"
requires = ["spark[cuda12]"]
carriers = ["spark-cuda12"]

[[scan]]
distributions = ["spark-cuda12"]
platform = "linux-x86_64"
since = "1.0"
cuda = ["spark/version.py", "cuda"]
"""
SCOPE = """
interpreters = ["py3"]

[[scan]]
distributions = ["nvidia-cudnn-cu12"]
platform = "linux-x86_64"
since = "9"
path = true
"""
CUDNN = "nvidia-cudnn-cu12>=9.8"
DOCUMENTED = {
    "version": "9.8.0.87", "platform": "linux-x86_64", "sass": ["50"], "ptx": [], "made_by": None,
    "evidence": "documented", "source": "a page that is wrong",
}  # fmt: skip


def add(server, folder, name, version, targets, *requires):
    """Add a wheel with one library of three fat binaries, all with the same targets."""
    content = b"".join(binary([{"sass": target} for target in targets.split()]) for _ in range(3))
    built = library(folder / f"{name}.so", {".nv_fatbin": content})
    files = {"spark/version.py": "cuda = '12.8'\n", "spark/libspark.so": built}
    server.add(name, version, requires, files=files, tag="py3-none-manylinux_2_28_x86_64")


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "matrix_data"
    for name in ("frameworks", "libraries"):
        (folder / name).mkdir(parents=True)
    for name in (
        "drivers",
        "toolkits",
        "gpus",
        "libraries",
        "companions",
        "families",
        "indexes",
        "matrix",
    ):
        shutil.copy(ROOT / "matrix_data" / f"{name}.toml", folder)
    shutil.copy(ROOT / "matrix_data" / "tables.json", folder)
    (folder / "frameworks" / "spark.toml").write_text(SPARK)
    (folder / "scans.toml").write_text(SCOPE)
    rows = {
        "distribution": "nvidia-cudnn-cu12",
        "cuda_major": 12,
        "path": True,
        "releases": [DOCUMENTED],
    }
    (folder / "libraries" / "nvidia-cudnn-cu12.json").write_text(json.dumps(rows))
    return folder


@pytest.fixture
def server(tmp_path):
    with IndexServer("html", metadata=None) as server:
        add(server, tmp_path, "spark-cuda12", "1.0", "75 90", CUDNN)
        add(server, tmp_path, "nvidia-cudnn-cu12", "9.8.0.87", "50 75 90")
        yield server


def run(name, data, server, *flags, status=0):
    command = tool("data", name, "--folder", str(data))
    environment = {**os.environ, "PIP_INDEX_URL": server.url}
    environment["GPUENV_CACHE_DIR"] = str(data.parent / "cache")
    return run_program([*command, *flags], env=environment, status=status)


def test_what_is_new_becomes_rows_and_changed_rows_are_shown(data, server):
    before = contents(data)
    dry = run("refresh", data, server, "--dry-run")
    assert sorted(dry.stdout.splitlines()) == [
        "to scan: nvidia_cudnn_cu12-9.8.0.87-py3-none-manylinux_2_28_x86_64.whl",
        "to scan: spark_cuda12-1.0-py3-none-manylinux_2_28_x86_64.whl",
    ]
    assert contents(data) == before
    lines = run("refresh", data, server, "--date", "2030-01-02").stdout.splitlines()
    rows = {"spark-cuda12": ["75", "90"], "nvidia-cudnn-cu12": ["50", "75", "90"]}
    for name, targets in rows.items():
        (row,) = read_data(data / "libraries" / f"{name}.json")["releases"]
        assert (row["sass"], row["evidence"]) == (targets, "scanned")
        assert f"+  {json.dumps(row)}" in lines
    assert [line for line in lines if line.startswith("-{") and '"documented"' in line]
    assert lines[-1] == "2 scanned, 0 contradictions"
    tables = read_data(data / "tables.json")
    assert tables["version"].startswith("2030-01-02.") and tables["path"] == [
        "nvidia-cudnn-cu12",
        "spark-cuda12",
    ]
    after = contents(data)
    assert run("refresh", data, server).stdout.splitlines() == ["0 scanned, 0 contradictions"]
    assert contents(data) == after


def test_the_snapshot_has_what_a_framework_can_need(data, server):
    (data / "frameworks" / "spark.toml").write_text(f'since = "1.0"\n{SPARK}')
    (data / "frameworks" / "torch.json").write_text('{"builds": []}')
    (data / "pytorch_index.json").write_text('{"wheels": [], "companions": [], "pins": []}')
    for version in ("0.9", "1.0", "1.1"):
        requires = ["spark-cuda12 ; extra == 'cuda12'", "other ; sys_platform == 'darwin'"]
        server.add("spark", version, requires)
    server.add("nvidia-cudnn-cu12", "9.9.0.1", tag="cp27-cp27m-manylinux1_x86_64")
    run("snapshot", data, server, "--date", "2030-01-02")
    snapshot = Snapshot(str(data / "snapshot"), "https://files.example")
    names = ("nvidia-cudnn-cu12", "spark", "spark-cuda12")
    held = {name: [wheel.version for wheel in snapshot.files(name)] for name in names}
    assert held == {
        "nvidia-cudnn-cu12": ["9.8.0.87"],
        "spark": ["1.1", "1.0"],
        "spark-cuda12": ["1.0"],
    }
    assert snapshot.date == "2030-01-02" and not snapshot.has("other")
    (wheel,) = snapshot.files("spark-cuda12")
    assert wheel.size and wheel.sha256
    metadata = snapshot.metadata(wheel)
    assert metadata and [str(need) for need in metadata.dependencies] == [CUDNN]
    before = contents(data)
    run("snapshot", data, server, "--date", "2030-01-02")
    assert contents(data) == before


def test_an_index_that_does_not_answer_is_an_error_in_one_line(data: Path) -> None:
    before = contents(data)
    with IndexServer("html", metadata=None) as server:
        pass
    done = run("refresh", data, server, status=2)
    assert done.stderr.startswith("error: index ") and done.stderr.count("\n") == 1, done.stderr
    assert contents(data) == before
