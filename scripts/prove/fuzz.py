"""Change inputs at random: wheels, pages, cache, snapshot, locks, hosts, pyproject.toml, logs.

    python scripts/tools.py prove fuzz [--count 2000] [--kind NAME ...] [--record FILE]

Each example changes one input of a good run and runs the command again. A fault is an exit status
that the contract does not have, a traceback, or a run over SLOW seconds; and a run that succeeds
with other packages or files than those of the good run, although a hash names them. hypothesis
makes the examples, reduces the one that it reports, and tries it again in the next run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import tomllib
import zipfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forked
from common import ROOT
from gpuenv.__main__ import main as entry_point
from gpuenv.compat import data as compat_data
from index_server import IndexServer

STATUSES = (0, 1, 2, 3, 4)  # exit statuses of the contract; 1: a lock does not fit
SLOW = 60.0  # seconds, on a busy machine
PIECES = (
    b"\0", b"\xff\xfe", b"[", b"]", b"{", b"}", b'"', b"'", b"=", b",", b";", b":", b"\n", b"\r\n",
    b" ", b"../", b"/etc/passwd", b"file:///", b"http://127.0.0.1:1/", b"${HOME}", b"$(id)",
    b"--index-url", b"-r x", b"9" * 30, b"9" * 5000, b"-1", b"1e400", b"null", b"true", b"NaN",
    b"\xe2\x80\xae", b"\x1b[2J", b"[" * 3000, b"a." * 300, b"()" * 50, b"%00", b"%2e%2e/", b"==",
    b">=1,<0", b"!=*", b"@", b"#sha256=", b"0" * 64, b"f" * 64, b"<a href=x>", b"</", b"&#0;",
    b"yanked", b"url", b"sha256", b"3.99", b"sm_0", b"\x1b[1;31m", b"undefined symbol: ",
    b"lib" * 50, b"a.b" * 60, b"A" * 100_000,
)  # fmt: skip
PROJECT = b"""[project]
name = "demo"
version = "1"
dependencies = ["alpha>=1"]
[tool.gpuenv]
frameworks = ["torch>=2.9"]
requirements = ["alpha"]
find-links = ["../links"]
python = "3.12"
[tool.gpuenv.profiles.h100]
gpu = "H100"
driver = "580.65.06"
[tool.gpuenv.profiles.ci]
gpu = "none"
"""
# A change: where (a share of the length), how many bytes are replaced, by what.
CHANGE = st.tuples(
    st.floats(0, 1),
    st.sampled_from((0, 1, 2, 8, 64, 1 << 30)),
    st.one_of(st.sampled_from((b"", *PIECES)), st.binary(max_size=8)),
)


class Kind(NamedTuple):
    """A kind of input: the files of which one is changed, and the command that reads it."""

    files: list[Path]
    words: list[str]
    inner: str = ""  # what is changed in a file that is an archive
    hashes: bool = False  # the lock must have the hashes of the files of the index


class Inputs:
    """Valid inputs in a folder, and runs with one changed input."""

    def __init__(self, folder: Path, server: IndexServer) -> None:
        self.folder, self.server = folder, server
        self.work, self.links, self.data = (folder / x for x in ("work", "links", "matrix_data"))
        self.work.mkdir()
        self.links.mkdir()
        requires = ["beta>=1", "gamma; python_version>'3.0'"]
        server.add("alpha", "1.0", requires, requires_python=">=3.8")
        server.add("alpha", "2.0", ["beta>=1; os_name=='posix'"])
        server.add("beta", "1.5", padding=5000)
        server.add("gamma", "1!3.0.post1")
        for files in server.projects.values():
            for file in files:
                (self.links / file.filename).write_bytes(file.data)
        shutil.copytree(compat_data.data_folder(), self.data)
        host = ["--gpu", "H100", "--driver", "580.65.06", "--python", "3.12"]
        index = ["--index-url", server.url, "--gpu", "none"]
        links = ["--no-index", "--find-links", str(self.links), "--gpu", "none"]
        sync = ["sync", "pylock.toml", "--target", "env"]
        for words in (["solve", "alpha", *index], ["detect", "-o", "host.json", *host]):
            done = self.gpuenv(words)
            if done.returncode:
                raise RuntimeError(f"gpuenv {words[0]} fails without a change: {done.stderr}")
        (self.work / "pyproject.toml").write_bytes(PROJECT)
        cases = tomllib.loads((ROOT / "tests/data/doctor/cases.toml").read_text("utf-8"))["case"]
        (self.work / "train.log").write_text("\n".join(case["log"] for case in cases[::40]))
        self.good = {path: path.read_bytes() for path in self.work.iterdir()}
        wheels = sorted(self.links.iterdir())
        snapshot = [path for path in sorted(self.data.glob("snapshot/**/*")) if path.is_file()]
        self.kinds = {
            "wheel": Kind(wheels, ["solve", "alpha", *links], hashes=True),
            "metadata": Kind(wheels, ["solve", "alpha", *links], "METADATA", hashes=True),
            "page": Kind([], ["solve", "alpha", *index, "--refresh"]),
            "cache": Kind(
                [path for path in sorted(folder.glob("cache/**/*")) if path.is_file()],
                ["solve", "alpha", *index, "--offline"],
                hashes=True,
            ),
            "snapshot": Kind(snapshot, ["solve", "torch", *host, "--offline"]),
            "lock": Kind([self.work / "pylock.toml"], [*sync, "--dry-run", "--json", *index]),
            "host": Kind([self.work / "host.json"], ["solve", "torch", "--host", "host.json"]),
            "pyproject": Kind([self.work / "pyproject.toml"], ["lock", "--offline"]),
            "project": Kind([self.work / "pyproject.toml"], ["solve", "--project", ".", *links]),
            "install": Kind(wheels, [*sync, "--no-verify", *links]),
            "log": Kind([self.work / "train.log"], ["doctor", "train.log", "--elsewhere"]),
        }

    def gpuenv(self, words: list[str]) -> CompletedProcess[str]:
        """Run a command with the copy of the data, in a fork of this process."""

        def run() -> None:
            compat_data.data_folder = lambda: str(self.data)
            entry_point()

        caches = {"GPUENV_CACHE_DIR": str(self.folder / "cache")}
        caches["UV_CACHE_DIR"] = str(self.folder / "uv")
        variables = {**os.environ, **caches, "GPUENV_CONFIG_FILE": ""}
        return forked.run(run, ["gpuenv", *words], self.work, variables)

    def faults(
        self, name: str, number: int, changes: list[tuple[float, int, bytes]]
    ) -> Iterator[str]:
        """Run the command of a kind with one changed file. Yield what is wrong then."""
        kind = self.kinds[name]
        shutil.rmtree(self.work)
        self.work.mkdir()
        for good, content in self.good.items():
            good.write_bytes(content)
        begin = time.monotonic()
        if name == "page":
            project = ("alpha", "beta", "gamma")[number % 3]
            self.server.style = ("json", "html")[number % 2]
            kind_of_page, page = self.server._page(project, self.server.projects[project])
            self.server.raw[f"/simple/{project}/"] = kind_of_page, changed(page, changes)
            done = self.gpuenv(kind.words)
            self.server.raw.clear()
            path, before, data = Path(), b"", b""
        else:
            path = kind.files[number % len(kind.files)]
            before, data = path.read_bytes(), changed_inside(path, kind.inner, changes)
            path.write_bytes(data)
            done = self.gpuenv(kind.words)
            path.write_bytes(before)
        if done.returncode not in STATUSES or "Traceback" in done.stderr:
            yield f"exit status {done.returncode}: {done.stderr[-1000:]}"
        if time.monotonic() - begin > SLOW:
            yield f"{time.monotonic() - begin:.0f} seconds"
        if name == "install":
            # These wheels are in the lock.
            is_other = data != before and path.name.startswith(("alpha-2", "beta"))
            succeeded = done.returncode == 0
            if (succeeded and is_other) or succeeded != (self.work / "env").exists():
                yield "a changed wheel is installed, or a failed sync leaves an environment"
        if done.returncode:
            return
        if kind.hashes:
            files = [file.data for files in self.server.projects.values() for file in files]
            known = {hashlib.sha256(content).hexdigest() for content in (*files, data)}
            if not hashes_of(self.work / "pylock.toml") <= known:
                yield "the lock has a hash of no file"
        if name == "lock":
            rows = [(row["name"], row["after"]) for row in json.loads(done.stdout)["add"]]
            if sorted(rows) != [("alpha", "2.0"), ("beta", "1.5")]:
                yield f"the plan is {rows}"


def changed(data: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    """Return data with some changes."""
    for share, length, new in changes:
        start = int(share * len(data))
        data = data[:start] + new + data[start + length :]
    return data


def changed_inside(path: Path, inner: str, changes: list[tuple[float, int, bytes]]) -> bytes:
    """Return a file with changes, or an archive in which the members called `inner` have them."""
    if not inner:
        return changed(path.read_bytes(), changes)
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(file, "w") as new:
            for name in old.namelist():
                content = old.read(name)
                new.writestr(name, changed(content, changes) if name.endswith(inner) else content)
        file.seek(0)
        return file.read()


def hashes_of(lock: Path) -> set[str]:
    """Return the sha256 of each wheel of a lock."""
    packages = tomllib.loads(lock.read_text())["packages"]
    files = [file for package in packages for file in package.get("wheels", ())]
    return {file["hashes"]["sha256"] for file in files}


ARGUMENTS = {
    "--count": {"type": int, "default": 2000},
    "--kind": {"nargs": "+"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Try examples of each kind in turn until one has a fault."""
    counts: Counter[str] = Counter()
    found = []
    with tempfile.TemporaryDirectory() as folder, IndexServer() as server:
        inputs = Inputs(Path(folder), server)
        for name in arguments.kind or inputs.kinds:

            @settings(
                max_examples=arguments.count // len(arguments.kind or inputs.kinds),
                deadline=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(number=st.integers(0, 100), changes=st.lists(CHANGE, min_size=1, max_size=4))
            def try_examples(name: str, number: int, changes: list[Any]) -> None:
                counts[name] += 1
                if faults := list(inputs.faults(name, number, changes)):
                    raise AssertionError(*faults)

            try:
                try_examples(name)
            except AssertionError as error:
                found.append(f"{name}: {error} {' '.join(error.__notes__)}")
            print(name, counts[name], flush=True)
    return {"examples": counts, "faults": found}, found
