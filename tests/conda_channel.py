"""A local channel of real records: its packages are small stand-ins with the real metadata.

A real conda's Python imports it too, which has no pytest.
"""

import asyncio
import hashlib
import io
import json
import os
import sys
import tarfile
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from unittest import mock

from conda_package_streaming.create import conda_builder

SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
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
PLAIN_BUILD = "h0_0"
WHEN = 1_700_000_000  # of every file: the same channel has the same bytes


def records():
    """The records of the channel."""
    return json.loads(RECORDS.read_text())["records"]


@contextmanager
def own_caches(folders):
    """Caches of their own for rattler and gpuenv, and no environment that is active."""
    with mock.patch.dict(os.environ):
        for name in [*os.environ]:
            if name.startswith("CONDA_") or name == "VIRTUAL_ENV":
                del os.environ[name]
        os.environ["RATTLER_CACHE_DIR"] = str(folders.mktemp("rattler"))
        os.environ["GPUENV_CACHE_DIR"] = str(folders.mktemp("cache"))
        yield


def make(folder, rows=None):
    """Writes the channel into a folder and returns its URL."""
    for subdir in ("linux-64", "noarch"):
        (folder / subdir).mkdir(parents=True, exist_ok=True)
    for row in records() if rows is None else rows:
        package(folder / row["subdir"], row)
    index(folder)
    return folder.as_uri()


def index(folder):
    """repodata.json, also as zstd and as shards, from what the packages say of themselves."""
    from rattler.index import index_fs

    asyncio.run(index_fs(folder, force=True))


def row_of(package, depends=(), **more):
    """Return the record of a package such as "cudnn 9.14.0.64 hbcb9cd8_0"; h0_0 is left out."""
    name, version, build = [*package.split(), PLAIN_BUILD][:3]
    number = int(build.rpartition("_")[2])
    row = {"name": name, "version": version, "build": build, "build_number": number}
    return {**row, "depends": depends, "subdir": "linux-64", **more}


def files_of(row):
    """What a stand-in installs: of Python this interpreter, of others a file with its name.

    A file is a text, or a link that is written "-> TARGET". A row may name other files.
    """
    if "files" in row:
        return row["files"]
    if row.get("noarch") == "python":
        return {f"site-packages/{row['name']}.py": row["version"]}
    if row["name"] != "python":
        return {f"share/stand-ins/{row['name']}": row["version"]}
    base = os.path.realpath(sys._base_executable)
    home, version = os.path.dirname(base), sys.version.split()[0]
    config = f"home = {home}\ninclude-system-site-packages = false\nversion = {version}\n"
    return {
        "pyvenv.cfg": config,
        "bin/python": f"-> {base}",
        f"{SITE}/stand_in.py": "NAME = 'a stand-in'\n",
    }


def package(folder, row):
    """Write one .conda file."""
    about = {key: row[key] for key in INDEXED if key in row}
    if row["subdir"] == "noarch":
        about["noarch"] = row.get("noarch", "generic")
    files = sorted(files_of(row).items())
    info = {
        "info/index.json": json.dumps({**about, "timestamp": WHEN * 1000}),
        "info/paths.json": json.dumps({"paths": [*starmap(_path, files)], "paths_version": 1}),
        "info/files": "".join(f"{name}\n" for name, _ in files),
    }
    with conda_builder(f"{row['name']}-{row['version']}-{row['build']}", folder) as archive:
        for name, text in [*files, *info.items()]:
            data, link = _content(text)
            member = tarfile.TarInfo(name)
            member.mtime, member.mode, member.size = WHEN, 0o755, len(data)
            if link:
                member.type, member.linkname = tarfile.SYMTYPE, link
            archive.addfile(member, io.BytesIO(data))


def _content(text):
    """Return the bytes of a file and "", or no bytes and where a link leads."""
    link = text.removeprefix("-> ") if text.startswith("-> ") else ""
    return b"" if link else text.encode(), link


def _path(name, text):
    data, link = _content(text)
    kind = "softlink" if link else "hardlink"
    found = {"_path": name, "path_type": kind, "size_in_bytes": len(data)}
    return {**found, "sha256": hashlib.sha256(data).hexdigest()}
