"""A version that was locked does not go back, unless the output says why.

GPUENV_SEQUENCES=200 runs more sequences than the tests do.
"""

import hashlib
import json
import os
import random
import re
import shutil

import pytest
from packaging.version import Version

from gpuenv.index import multi_index
from gpuenv.index.default_index import DefaultIndex
from gpuenv.index.snapshot import Snapshot
from index_server import IndexServer
from tables import HERE, each, read_data
from test_cli import run

PROJECT = f"""[project]
name = "demo"
version = "1"
dependencies = ["alpha"]

[tool.gpuenv]
python = "{HERE}"

[tool.gpuenv.profiles.cpu]
gpu = "none"
"""
DATE = "index data of 2026-11-21 (--refresh asks the indexes)"
SHIPPED, OTHERS = ("alpha", "beta", "gamma"), ("delta",)
SEQUENCES, STEPS = int(os.environ.get("GPUENV_SEQUENCES", "5")), 20


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The default index, which moves on; the snapshot has its first releases of two packages."""
    with IndexServer() as server:
        for name in (*SHIPPED, *OTHERS):
            server.add(name, "1.0")
        server.add("alpha", "1.1")
        folder = tmp_path / "snapshot"
        for name in SHIPPED:
            write_package(folder, name, server.projects[name])
        index = {"date": "2026-11-21", "version": "2026-11-21+a"}
        packages = {f"default/{name}": {} for name in SHIPPED}
        (folder / "index.json").write_text(json.dumps({**index, "packages": packages}))
        default = DefaultIndex(url=server.url, file_store=server.base, builtin=True)
        snapshot = Snapshot(str(folder), server.base, default_index=server.url)
        monkeypatch.setattr(multi_index, "default_index", lambda: default)
        monkeypatch.setattr(multi_index, "_open_snapshot", lambda *_: snapshot)
        (tmp_path / "project").mkdir()
        (tmp_path / "project/pyproject.toml").write_text(PROJECT)
        yield server


def write_package(folder, name, files):
    rows = []
    for number, file in enumerate(files):
        sha256 = hashlib.sha256(file.data).hexdigest()
        rows.append([number, file.filename, "files", sha256, len(file.data), None, None, None, 0])
    versions = [file.filename.split("-")[1] for file in files]
    package = {"name": name, "index": "default", "versions": versions, "requires_python": []}
    (folder / "default").mkdir(parents=True, exist_ok=True)
    content = {**package, "metadata": [[]], "files": {"py3-none-any": rows}}
    (folder / f"default/{name}.json").write_text(json.dumps(content))


def gpuenv(words, folder):
    done = run(words, folder, status=None)
    said = done.output
    assert done.returncode in (0, 3, 4) or "does not name it" in said, said
    return said


def locked(folder):
    path = folder / "pylock.cpu.toml"
    packages = read_data(path)["packages"] if path.exists() else ()
    return {package["name"]: package["version"] for package in packages}


def move(server, chance, names):
    """Upload a release that may require a range of another package, or yank the newest one."""
    name, other = chance.sample(names, 2)
    files = server.projects[name]
    if len(files) > 2 and chance.random() < 0.2:
        files[-1] = files[-1]._replace(yanked="broken")
    else:
        needs = [f"{other}<{chance.choice(('1.1', '1.2', '2'))}"] if chance.random() < 0.3 else []
        server.add(name, f"1.{len(files)}", needs)


COMMANDS = (
    "lock", "lock --upgrade", "lock --upgrade --offline", "lock --refresh", "outdated",
    "lock --upgrade --refresh", "lock --upgrade --refresh", "lock --upgrade alpha",
    "add {} --no-sync", "add {} --no-sync --refresh", "remove {} --no-sync",
    "move", "move", "move", "clean",
)  # fmt: skip


@each("seed", range(SEQUENCES))
def test_no_version_goes_back_in_silence(server, tmp_path, seed):
    chance = random.Random(seed)  # noqa: S311
    folder, names = tmp_path / "project", (*SHIPPED, *OTHERS)
    gpuenv("lock", folder)
    seen = locked(folder)
    for _ in range(STEPS):
        command = chance.choice(COMMANDS).format(chance.choice(names))
        if command == "move":
            move(server, chance, names)
            continue
        if command == "clean":
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
            continue
        if command == "remove alpha --no-sync":  # a project has something
            continue
        before = locked(folder)
        said = gpuenv(command, folder)
        for name, version in locked(folder).items():
            was = before.get(name)
            if was is None:  # a package that was not there comes as the data has it
                older = name in seen and Version(version) < Version(seen[name])
                assert not older or DATE in said or "not the newest" in said, (command, said)
            elif Version(version) < Version(was):
                assert f"{name} {was} -> {version}, back: " in said, (command, said)
                assert "available:" not in said, (command, said)  # it is on the index
        for name, was, new in re.findall(r"^ *(\w+) +(1\.\d+) +(1\.\d+) .*$", said, re.MULTILINE):
            line = next(line for line in said.splitlines() if line.split()[:3] == [name, was, new])
            is_newest = line.endswith("the newest that is allowed")
            assert Version(new) > Version(was) or not is_newest, (command, said)
        seen |= locked(folder)


def test_what_an_index_showed_is_remembered(server, tmp_path):
    folder = tmp_path / "project"
    assert DATE in gpuenv("lock", folder)
    assert locked(folder) == {"alpha": "1.1"}
    server.add("alpha", "1.2")
    said = gpuenv("lock --upgrade --refresh", folder)
    assert "alpha 1.1 -> 1.2" in said and DATE not in said
    shutil.rmtree(tmp_path / "cache")
    for command in ("lock --upgrade", "lock", "outdated"):
        assert DATE in gpuenv(command, folder)
    assert "a new solve gives the same 1 package" in gpuenv("outdated", folder)
    assert locked(folder) == {"alpha": "1.2"}
    server.projects["alpha"][-1] = server.projects["alpha"][-1]._replace(yanked="broken")
    assert "1.1               1.2: it is yanked" in gpuenv("outdated --refresh", folder)
    said = gpuenv("lock --refresh", folder)
    assert "alpha 1.2 -> 1.1, back: alpha 1.2: it is yanked" in said
    server.add("delta", "1.1", ["alpha<1.1"])
    said = gpuenv("add delta --no-sync", folder)
    assert "alpha 1.1 -> 1.0, back: delta 1.1 needs alpha<1.1" in said
