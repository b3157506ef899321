"""A local channel of real records: its packages are small stand-ins with the real metadata."""

import asyncio
import io
import json
import os
import sys
import tarfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from conda_package_streaming.create import conda_builder

RECORDS = Path(__file__).parent / "data" / "conda_records.json"
INDEXED = (
    "name",
    "version",
    "build",
    "build_number",
    "subdir",
    "depends",
    "constrains",
    "track_features",
)
WHEN = 1_700_000_000  # of every file: the same channel has the same bytes


def records():
    """The records of the channel."""
    return json.loads(RECORDS.read_text())["records"]


@contextmanager
def own_caches(folders):
    """Caches of their own for rattler and gpuenv, and no environment that is active."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATTLER_CACHE_DIR", str(folders.mktemp("rattler")))
        patch.setenv("GPUENV_CACHE_DIR", str(folders.mktemp("cache")))
        for name in [
            name for name in os.environ if name.startswith("CONDA_") or name == "VIRTUAL_ENV"
        ]:
            patch.delenv(name)
        yield


def make(folder, rows=None):
    """Writes the channel into a folder and returns its URL."""
    for subdir in ("linux-64", "noarch"):
        (folder / subdir).mkdir(parents=True, exist_ok=True)
    for row in records() if rows is None else rows:
        package(folder / row["subdir"], row, files_of(row))
    index(folder)
    return folder.as_uri()


def index(folder):
    """repodata.json, also as zstd and as shards, from what the packages say of themselves."""
    from rattler.index import index_fs

    asyncio.run(index_fs(folder, force=True))


def files_of(row):
    """What a stand-in installs: of Python this interpreter, of others a file with its name."""
    if row.get("noarch") == "python":
        return {f"site-packages/{row['name']}.py": (row["version"].encode(), None)}
    if row["name"] != "python":
        return {f"share/stand-ins/{row['name']}": (row["version"].encode(), None)}
    base = os.path.realpath(sys._base_executable)
    home, version = os.path.dirname(base), sys.version.split()[0]
    config = f"home = {home}\ninclude-system-site-packages = false\nversion = {version}\n"
    short = ".".join(map(str, sys.version_info[:2]))
    return {
        "pyvenv.cfg": (config.encode(), None),
        "bin/python": (None, base),
        f"lib/python{short}/site-packages/stand_in.py": (b"NAME = 'a stand-in'\n", None),
    }


def package(folder, row, files):
    """One .conda file."""
    about = {key: row[key] for key in INDEXED if key in row}
    if row["subdir"] == "noarch":
        about["noarch"] = row.get("noarch", "generic")
    paths = [_path(name, content, link) for name, (content, link) in sorted(files.items())]
    info = {
        "info/index.json": json.dumps({**about, "timestamp": WHEN * 1000}).encode(),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}).encode(),
        "info/files": "".join(f"{name}\n" for name in sorted(files)).encode(),
    }
    stem = f"{row['name']}-{row['version']}-{row['build']}"
    with conda_builder(stem, folder) as archive:
        for name, (content, link) in [
            *sorted(files.items()),
            *((name, (data, None)) for name, data in info.items()),
        ]:
            member = tarfile.TarInfo(name)
            member.mtime, member.mode = WHEN, 0o755
            if link is not None:
                member.type, member.linkname = tarfile.SYMTYPE, link
            member.size = len(content or b"")
            archive.addfile(member, io.BytesIO(content or b""))
    return folder / f"{stem}.conda"


def _path(name, content, link):
    from hashlib import sha256

    kind = "hardlink" if link is None else "softlink"
    found = {"_path": name, "path_type": kind, "size_in_bytes": len(content or b"")}
    return {**found, "sha256": sha256(content or b"").hexdigest()}
