"""`gpuenv matrix update`: new releases of a local index, and solves with their rows."""

import hashlib
import json
from pathlib import Path

import pytest

from fatbin_maker import binary, library
from gpuenv.api.data import compatibility_data
from gpuenv.index import metadata as index_metadata
from index_server import IndexServer
from tables import each, on_x86_64, read_data

pytestmark = on_x86_64
HOST = "--gpu H100 --driver 580.65.06 --python 3.12 --glibc 2.39"
TAG = "cp312-cp312-manylinux_2_28_x86_64"


@pytest.fixture(scope="module")
def cuda_library(tmp_path_factory):
    """A library with code for sm_80 and sm_90, and 400 kB that do not compress."""
    images = [{"sass": "80"}, {"sass": "90"}, {"ptx": "90", "language": "8.7"}]
    noise = hashlib.shake_128(b"noise").digest(400_000)
    sections = {".nv_fatbin": binary(images), ".rodata": noise}
    return library(tmp_path_factory.mktemp("made") / "libtorch_cuda.so", sections)


def add_torch(server, version, content):
    files = {
        "torch/version.py": b"cuda: Optional[str] = '12.9'\n",
        "torch/lib/libtorch_cuda.so": content + version.encode(),
    }
    server.add("torch", version, files=files, tag=TAG)


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUENV_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("GPUENV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpuenv.index.http.BACK_OFF", 0.0)
    compatibility_data.cache_clear()
    yield tmp_path / "data" / "rows.json"
    compatibility_data.cache_clear()


@pytest.fixture
def server(cuda_library):
    with IndexServer() as made:
        add_torch(made, "98.0", cuda_library)
        yield made


@pytest.fixture
def update(call, server):
    """update(more, status): what `matrix update torch` prints."""

    def command(more="", status=0):
        words = f"matrix update torch --index-url {server.url} --platform linux-x86_64 {more}"
        text = call(words, status=status).stdout
        compatibility_data.cache_clear()
        return text

    return command


def packages():
    lines = Path("pylock.toml").read_text().splitlines()
    return [line for line in lines if line.startswith(("name =", "version ="))]


def test_a_new_release_is_scanned_and_used(server, folders, call, update):
    solve = f"solve torch --gpu H100 {HOST}"
    call(f"{solve} --offline")
    before = packages()
    # A doubt costs no newer release of what the user named.
    text = call(f"{solve} --index-url {server.url}").stdout
    assert "`gpuenv matrix update torch` scans what is new" in text
    assert "scanned torch 98.0: sm_80 sm_90 compute_90" in update()
    content = read_data(folders)
    (row,) = content["rows"]["torch"]
    assert (row["variant"], row["cuda"], row["sass"]) == ("cu129", "12.9", ["80", "90"])
    assert row["sha256"] == hashlib.sha256(server.projects["torch"][0].data).hexdigest()
    text = call(f"{solve} --index-url {server.url}").stdout
    assert "torch 98.0: known by the rows of `gpuenv matrix update` only" in text
    lock = Path("pylock.toml").read_text()
    assert 'version = "98.0"' in lock and "1 rows of matrix update of" in lock
    # Without the index the answer is the one before.
    Path("pylock.toml").unlink()
    call(f"{solve} --offline")
    assert packages() == before


def test_code_that_does_not_fit_is_refused(server, call, update):
    update()
    done = call(f"solve torch --gpu T4 {HOST} --index-url {server.url}", status=3)
    assert "code for compute capability 7.5" in done.stderr.replace("\n      ", " ")


@each("ranges", [True, False])
def test_a_damaged_download_is_refused(ranges, server, folders, update, monkeypatch):
    server.ranges = ranges
    monkeypatch.setattr(index_metadata, "WHEEL_BLOCK", 20_000)
    name = server.projects["torch"][0].filename
    server.faults = {f"/files/{name}": ["", *["tampered"] * 200]}
    assert f"not read: {name}" in update(status=1)
    assert not folders.exists()
    server.faults = {}
    update()
    assert folders.exists()


def test_an_interrupted_update_continues(server, folders, cuda_library, update, monkeypatch):
    add_torch(server, "99.0", cuda_library)
    second = server.projects["torch"][1].filename
    server.faults = {f"/files/{second}": ["500", "always"]}
    update(status=1)
    assert [row["version"] for row in read_data(folders)["rows"]["torch"]] == ["98.0"]
    server.faults, server.asked = {}, []
    update()
    assert {path for path in server.paths() if path.startswith("/files/")} == {f"/files/{second}"}
    rows = read_data(folders)["rows"]["torch"]
    assert [row["version"] for row in rows] == ["98.0", "99.0"]
    server.asked = []
    assert "the data knows every release on the index" in update()


def test_verify_data_finds_another_file(folders, update):
    update()
    assert "all agree with the files" in update("--verify-data")
    content = read_data(folders)
    content["rows"]["torch"][0]["sass"] = ["75"]
    folders.write_text(json.dumps(content))
    text = update("--verify-data", status=1)
    assert "no longer so: torch 98.0: sass ['75'] -> ['80', '90']" in text


@each("content", ["", "[]", '{"format": 2, "date": "2026-01-01", "rows": {}}'], ids=str)
def test_damaged_rows_are_one_line(content, folders, call):
    folders.parent.mkdir()
    folders.write_text(content)
    error = call("matrix list", status=2).stderr
    assert str(folders) in error and "Traceback" not in error
    folders.unlink()
    folders.mkdir()  # it cannot be read, which says nothing about its content
    assert "make it readable" in call("matrix list", status=2).stderr


def test_an_unknown_distribution_is_bad_input(call):
    done = call("matrix update nothing", status=2)
    assert "the data does not have this distribution" in done.stderr
