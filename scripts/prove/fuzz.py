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
import zipfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import forked
from common import read_toml
from gpuenv.__main__ import main as entry_point
from gpuenv.compat import data as compat_data
from index_server import IndexServer

STATUSES = (0, 1, 2, 3, 4)  # exit statuses of the contract; 1: a lock does not fit
SLOW = 60.0  # seconds, on a busy machine
DATA = read_toml("tests/data/fuzz.toml")
PIECES = [*DATA["pieces"], *(piece * count for piece, count in DATA["repeated"])]
# A change: where (a share of the length), how many bytes are replaced, by what.
CHANGE = st.tuples(
    st.floats(0, 1),
    st.sampled_from((0, 1, 2, 8, 64, 1 << 30)),
    st.one_of(
        st.sampled_from([piece.encode("latin-1") for piece in PIECES]), st.binary(max_size=8)
    ),
)


class Inputs:
    """Valid inputs in a folder, and runs with one changed input."""

    def __init__(self, folder: Path, server: IndexServer) -> None:
        self.folder, self.server = folder, server
        self.work, self.data = folder / "work", folder / "matrix_data"
        self.work.mkdir()
        (folder / "links").mkdir()
        requires = ["beta>=1", "gamma; python_version>'3.0'"]
        server.add("alpha", "1.0", requires, requires_python=">=3.8")
        server.add("alpha", "2.0", ["beta>=1; os_name=='posix'"])
        server.add("beta", "1.5", padding=5000)
        server.add("gamma", "1!3.0.post1")
        for files in server.projects.values():
            for file in files:
                (folder / "links" / file.filename).write_bytes(file.data)
        # The pages of the index, as JSON and as HTML.
        self.types = {}
        (folder / "pages").mkdir()
        for server.style in ("html", "json"):
            for name in server.projects:
                kind, page = server.answer(f"/simple/{name}/")
                path = folder / "pages" / f"{name}.{server.style}"
                path.write_bytes(page)
                self.types[path] = kind
        shutil.copytree(compat_data.data_folder(), self.data)
        self.flags = {
            "HOST": "--gpu H100 --driver 580.65.06 --python 3.12",
            "INDEX": f"--index-url {server.url} --gpu none",
            "LINKS": f"--no-index --find-links {folder}/links --gpu none",
        }
        for line in ("solve alpha INDEX", "detect -o host.json HOST"):
            done = self.gpuenv(line)
            if done.returncode:
                raise RuntimeError(f"gpuenv {line} fails without a change: {done.stderr}")
        (self.work / "pyproject.toml").write_text(DATA["project"])
        cases = read_toml("tests/data/doctor/cases.toml")["case"]
        (self.work / "train.log").write_text("\n".join(case["log"] for case in cases[::40]))
        self.good = {path: path.read_bytes() for path in self.work.iterdir()}
        self.files = {
            name: [path for path in sorted(folder.glob(kind["files"])) if path.is_file()]
            for name, kind in DATA["kind"].items()
        }

    def gpuenv(self, line: str) -> CompletedProcess[str]:
        """Run a command with the copy of the data, in a fork of this process."""
        for name, flags in self.flags.items():
            line = line.replace(name, flags)

        def run() -> None:
            compat_data.data_folder = lambda: str(self.data)
            entry_point()

        caches = {"GPUENV_CACHE_DIR": str(self.folder / "cache")}
        caches["UV_CACHE_DIR"] = str(self.folder / "uv")
        variables = {**os.environ, **caches, "GPUENV_CONFIG_FILE": ""}
        return forked.run(run, ["gpuenv", *line.split()], self.work, variables)

    def faults(
        self, name: str, number: int, changes: list[tuple[float, int, bytes]]
    ) -> Iterator[str]:
        """Run the command of a kind with one changed file. Yield what is wrong then."""
        kind = DATA["kind"][name]
        shutil.rmtree(self.work)
        self.work.mkdir()
        for good, content in self.good.items():
            good.write_bytes(content)
        path = self.files[name][number % len(self.files[name])]
        before, data = path.read_bytes(), changed_inside(path, kind.get("inside"), changes)
        path.write_bytes(data)
        if path in self.types:
            self.server.raw = {f"/simple/{path.stem}/": (self.types[path], data)}
        begin = time.monotonic()
        done = self.gpuenv(kind["run"])
        seconds = time.monotonic() - begin
        path.write_bytes(before)
        self.server.raw = {}
        if done.returncode not in STATUSES or "Traceback" in done.stderr:
            yield f"exit status {done.returncode}: {done.stderr[-1000:]}"
        if seconds > SLOW:
            yield f"{seconds:.0f} seconds"
        if name == "install":
            # These wheels are in the lock.
            is_other = data != before and path.name.startswith(("alpha-2", "beta"))
            succeeded = done.returncode == 0
            if (succeeded and is_other) or succeeded != (self.work / "env").exists():
                yield "a changed wheel is installed, or a failed sync leaves an environment"
        if done.returncode:
            return
        if "hashes" in kind:
            files = [data, *(wheel.read_bytes() for wheel in self.files["wheel"])]
            known = {hashlib.sha256(file).hexdigest() for file in files}
            packages = read_toml(self.work / "pylock.toml")["packages"]
            wheels = [wheel for package in packages for wheel in package.get("wheels", ())]
            if not {wheel["hashes"]["sha256"] for wheel in wheels} <= known:
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


def changed_inside(path: Path, inner: str | None, changes: list[tuple[float, int, bytes]]) -> bytes:
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


ARGUMENTS = {
    "--count": {"type": int, "default": 2000},
    "--kind": {"nargs": "+", "choices": DATA["kind"]},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Try examples of each kind in turn until one has a fault."""
    counts: Counter[str] = Counter()
    found = []
    with tempfile.TemporaryDirectory() as folder, IndexServer() as server:
        inputs = Inputs(Path(folder), server)
        for name in arguments.kind or DATA["kind"]:

            @settings(
                max_examples=arguments.count // len(arguments.kind or DATA["kind"]),
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
