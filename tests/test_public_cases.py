"""Commands from public bug reports: what they answer and lock, with recorded pages of the index."""

import hashlib
import json
import os
import shlex
import shutil
import sys
from collections import defaultdict

import pytest

import forked
from gpuenv import cli
from gpuenv.index import default_index
from gpuenv.index.snapshot import Snapshot
from index_server import JSON_TYPE, IndexServer, make_sdist
from tables import ROOT, each, read_data

DATA = ROOT / "matrix_data"
FOLDER = ROOT / "tests" / "data" / "public_cases"
CASES = read_data(FOLDER / "cases.toml")["case"]
INDEX = read_data(FOLDER / "index.json")


def _marked(case):
    marks = pytest.mark.xfail(strict=True, reason=case["area"]) if "area" in case else ()
    return pytest.param(case, marks=marks, id=f"{case['id']}: {case['run']}")


@pytest.fixture(scope="module")
def index():
    """The default index: the packages of the snapshot, and those of index.json."""
    with IndexServer() as server, pytest.MonkeyPatch.context() as patch:
        snapshot = Snapshot(str(DATA / "snapshot"), server.base, default_index=server.url)
        pages = defaultdict(list)
        for path in (DATA / "snapshot" / "default").iterdir():
            for one in snapshot.files(path.stem):
                if one.index == server.url:
                    row = _row(one.filename, one.url, one.sha256, one.requires_python)
                    pages[one.name].append(row)
        for name, files in INDEX.items():
            pages[name] += [_recorded(server, name, **file) for file in files]
        for name, rows in pages.items():
            page = {"meta": {"api-version": "1.1"}, "name": name, "files": rows}
            server.raw[f"/simple/{name}/"] = (JSON_TYPE, json.dumps(page).encode())
        patch.setattr(default_index, "builtin_index", lambda: (server.url, server.base))
        yield server


def _recorded(server, name, filename, requires=(), **row):
    """The row of a page for a file of index.json. A source distribution needs torch to build."""
    path, version = f"/files/{filename}", filename.removesuffix(".tar.gz").split("-")[1]
    if filename.endswith(".whl"):
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        data = "\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires), ""]).encode()
        server.raw[f"{path}.metadata"] = ("text/plain", data)
        described = {"core-metadata": {"sha256": hashlib.sha256(data).hexdigest()}}
    else:
        backend = "import torch\n"
        data = make_sdist(name, version, dynamic=["Requires-Dist"], backend=backend)[1]
        server.raw[path] = ("application/octet-stream", data)
        described = {}
        row["sha256"] = hashlib.sha256(data).hexdigest()
    return _row(filename, server.base + path, row["sha256"], row.get("requires_python")) | described


def _row(filename, url, sha256, python):
    hashes = {"sha256": sha256}
    return {"filename": filename, "url": url, "hashes": hashes, "requires-python": python}


@each("case", [*map(_marked, CASES)])
def test_a_public_case(case, index, tmp_path):
    for name in case.get("files", ()):
        shutil.copy(FOLDER / name, tmp_path)
    environment = {key: os.environ[key] for key in ("HOME", "GPUENV_CACHE_DIR")}
    closed = "http://127.0.0.1:9"  # no other index is reached
    environment |= {"HTTP_PROXY": closed, "HTTPS_PROXY": closed, "NO_PROXY": "127.0.0.1"}
    environment |= {
        "PATH": str(tmp_path),
        "NO_COLOR": "1",
        "COLUMNS": "1000",
        "GPUENV_NO_MEMO": "1",
    }
    words = shlex.split(case["run"].replace("{folder}", str(tmp_path)))
    if "locks" in case:
        words += ["-o", "pylock.toml"]
    done = forked.run(lambda: sys.exit(cli.main(words)), ["gpuenv", *words], tmp_path, environment)
    said = done.text
    assert done.returncode == case.get("status", 0), said
    for text in case.get("says", ()):
        assert text in said, said
    for text in case.get("never", ()):
        assert text not in said, said
    if "locks" in case:
        lock = read_data(tmp_path / "pylock.toml")["packages"]
        locked = {one["name"]: one["version"].partition("+")[0] for one in lock}
        assert {name: locked.get(name, "-") for name in case["locks"]} == case["locks"]
