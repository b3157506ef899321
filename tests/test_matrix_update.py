"""`gpuenv matrix update`: new releases of a local index, and solves with their rows."""

import hashlib
import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from fatbin_maker import binary, library
from gpuenv.api.data import compatibility_data
from gpuenv.cli import main
from gpuenv.index import metadata as index_metadata
from gpuenv.render.plans import age_lines
from index_server import IndexServer
from tables import data_file, each

TABLES = data_file("tables/matrix_update.json")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="gcc for x86_64"
)
HOST = ("--gpu", "H100", "--driver", "580.65.06", "--python", "3.12", "--glibc", "2.39")
TARGET = (*HOST, "--platform", "linux-x86_64")
TAG = "cp312-cp312-manylinux_2_28_x86_64"


@pytest.fixture(scope="module")
def cuda_library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library with code for sm_80 and sm_90, and 400 kB that do not compress."""
    images = [{"sass": "80"}, {"sass": "90"}, {"ptx": "90", "language": "8.7"}]
    noise = hashlib.shake_128(b"noise").digest(400_000)
    sections = {".nv_fatbin": binary(images), ".rodata": noise}
    return library(tmp_path_factory.mktemp("made") / "libtorch_cuda.so", sections)


def torch_wheel(version: str, content: bytes) -> tuple[str, bytes]:
    stem = f"torch-{version}"
    files = {
        "torch/version.py": b"cuda: Optional[str] = '12.9'\n",
        "torch/lib/libtorch_cuda.so": content + version.encode(),
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.4\nName: torch\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nTag: {TAG}\n",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
    return f"{stem}-{TAG}.whl", buffer.getvalue()


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("GPUENV_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("GPUENV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpuenv.index.http.BACK_OFF", 0.0)
    compatibility_data.cache_clear()
    yield tmp_path / "data" / "rows.json"
    compatibility_data.cache_clear()


@pytest.fixture
def server(cuda_library: bytes) -> Iterator[IndexServer]:
    with IndexServer() as made:
        made.add_file("torch", *torch_wheel("98.0", cuda_library))
        yield made


def update(server: IndexServer, *more: str) -> int:
    status = main(["matrix", "update", "torch", "--index-url", server.url, *TARGET[-2:], *more])
    compatibility_data.cache_clear()
    return status


def solve(*arguments: str) -> tuple[int, dict[str, Any]]:
    output = Path("pylock.toml")
    output.unlink(missing_ok=True)
    status = main(["solve", "torch", *TARGET, *arguments, "-o", str(output)])
    return status, {"lock": output.read_text() if output.exists() else ""}


def test_a_new_release_is_scanned_and_used(
    server: IndexServer, folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offline, before = solve("--offline")
    capsys.readouterr()
    status, _ = solve("--index-url", server.url)
    assert status == 0  # a doubt costs no newer release of what the user named
    assert "`gpuenv matrix update torch` scans what is new" in capsys.readouterr().out
    assert update(server) == 0
    assert "scanned torch 98.0: sm_80 sm_90 compute_90" in capsys.readouterr().out
    content = json.loads(folders.read_text())
    (row,) = content["rows"]["torch"]
    assert (row["variant"], row["cuda"], row["sass"]) == ("cu129", "12.9", ["80", "90"])
    assert row["sha256"] == hashlib.sha256(server.projects["torch"][0].data).hexdigest()
    status, after = solve("--index-url", server.url)
    out = capsys.readouterr().out
    assert status == 0 and 'version = "98.0"' in after["lock"]
    assert "1 rows of matrix update of" in after["lock"]
    assert "torch 98.0: known by the rows of `gpuenv matrix update` only" in out
    # Without the index the answer is the one before.
    again, offline_lock = solve("--offline")
    assert (again, offline) == (0, 0)
    assert packages(offline_lock["lock"]) == packages(before["lock"])


def packages(lock: str) -> list[str]:
    return [line for line in lock.splitlines() if line.startswith(("name =", "version ="))]


def test_code_that_does_not_fit_is_refused(
    server: IndexServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert update(server) == 0
    arguments = ["solve", "torch", "--gpu", "T4", *TARGET[2:], "--index-url", server.url]
    assert main([*arguments, "-o", "pylock.toml"]) == 3
    assert "code for compute capability 7.5" in capsys.readouterr().err.replace("\n      ", " ")


@pytest.mark.parametrize("ranges", [True, False])
def test_a_damaged_download_is_refused(
    ranges: bool,
    server: IndexServer,
    folders: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.ranges = ranges
    monkeypatch.setattr(index_metadata, "WHEEL_BLOCK", 20_000)
    name = server.projects["torch"][0].filename
    server.faults = {f"/files/{name}": ["", *["tampered"] * 200]}
    assert update(server) == 1
    assert f"not read: {name}" in capsys.readouterr().out
    assert not folders.exists()
    server.faults = {}
    assert update(server) == 0 and folders.exists()


def test_an_interrupted_update_continues(
    server: IndexServer,
    folders: Path,
    cuda_library: bytes,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.add_file("torch", *torch_wheel("99.0", cuda_library))
    second = server.projects["torch"][1].filename
    server.faults = {f"/files/{second}": ["500", "always"]}
    assert update(server) == 1
    assert [row["version"] for row in json.loads(folders.read_text())["rows"]["torch"]] == ["98.0"]
    server.faults, server.asked = {}, []
    assert update(server) == 0
    assert {path for path in server.paths() if path.startswith("/files/")} == {f"/files/{second}"}
    rows = json.loads(folders.read_text())["rows"]["torch"]
    assert [row["version"] for row in rows] == ["98.0", "99.0"]
    server.asked = []
    capsys.readouterr()
    assert update(server) == 0
    assert "the data knows every release on the index" in capsys.readouterr().out


def test_verify_data_finds_another_file(
    server: IndexServer, folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert update(server) == 0
    assert update(server, "--verify-data") == 0
    assert "all agree with the files" in capsys.readouterr().out
    content = json.loads(folders.read_text())
    content["rows"]["torch"][0]["sass"] = ["75"]
    folders.write_text(json.dumps(content))
    assert update(server, "--verify-data") == 1
    assert "no longer so: torch 98.0: sass ['75'] -> ['80', '90']" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content", ["", "[]", '{"format": 2, "date": "2026-01-01", "rows": {}}'], ids=str
)
def test_damaged_rows_are_one_line(
    content: str, folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders.parent.mkdir()
    folders.write_text(content)
    assert main(["matrix", "list"]) == 2
    error = capsys.readouterr().err
    assert str(folders) in error and "Traceback" not in error
    folders.unlink()
    folders.mkdir()  # it cannot be read, which says nothing about its content
    assert main(["matrix", "list"]) == 2
    assert "make it readable" in capsys.readouterr().err


def test_an_unknown_distribution_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "update", "nothing"]) == 2
    assert "the data does not have this distribution" in capsys.readouterr().err


@each("dates lines", TABLES["old_data_is_told_in_one_line"])
def test_old_data_is_told_in_one_line(dates: tuple[str, str], lines: int) -> None:
    assert len(age_lines(dates, date(2026, 4, 1))) == lines
