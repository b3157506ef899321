"""Change inputs at random: wheels, pages, cache entries, snapshot, locks, hosts, pyproject.

    python scripts/tools.py prove fuzz-inputs [--count N] [--seed N] [--record FILE]

Each mutation changes one input of a good run and runs the command again. A crash is an exit status
that the contract does not have, a traceback, or a run over SLOW seconds. A wrong install is a run
that succeeds with other packages or files than those of the good run, although a hash or a digest
names them. Mutation NUMBER is always the same, except in the cache, whose entries contain the
port of the index. `--only NUMBER` runs one mutation and prints it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path

import forked
from common import write_record
from gpuenv.__main__ import main as entry_point
from gpuenv.compat import data as compat_data
from index_server import IndexServer

KINDS = ("wheel", "page", "cache", "snapshot", "lock", "host", "pyproject", "install")
STATUSES = (0, 1, 2, 3, 4)  # exit statuses of the contract; 1: a lock does not fit
SLOW = 60.0  # seconds, on a busy machine
PIECES = (
    b"", b"\0", b"\xff\xfe", b"[", b"]", b"{", b"}", b'"', b"'", b"=", b",", b";", b":", b"\n",
    b"\r\n",
    b" ", b"../", b"/etc/passwd", b"file:///", b"http://127.0.0.1:1/", b"${HOME}", b"$(id)",
    b"--index-url",
    b"-r x", b"9" * 30, b"9" * 5000, b"-1", b"1e400", b"null", b"true", b"NaN", b"\xe2\x80\xae",
    b"\x1b[2J",
    b"[" * 3000, b"a." * 300, b"()" * 50, b"%00", b"%2e%2e/", b"==", b">=1,<0", b"!=*", b"@",
    b"#sha256=",
    b"0" * 64, b"f" * 64, b"<a href=x>", b"</", b"&#0;", b"yanked", b"url", b"sha256", b"3.99",
    b"sm_0",
)  # fmt: skip


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return data with one to four changes."""
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        start = source.randrange(len(data) + 1)
        end = min(len(data), start + source.choice((0, 1, 1, 2, 8, 64)))
        change = source.randrange(5)
        if change == 0:
            data = data[:start] + source.choice(PIECES) + data[end:]
        elif change == 1:
            data = data[:start] + data[end:]
        elif change == 2:
            data = data[:start] + data[start:end] * source.choice((2, 3, 50)) + data[end:]
        elif change == 3:
            data = data[:start] + source.randbytes(end - start) + data[end:]
        elif source.random() < 0.2:
            data = data[:start]
        elif start < end:
            flipped = data[start] ^ (1 << source.randrange(8))
            data = data[:start] + bytes([flipped]) + data[start + 1 :]
    return data


class Trials:
    """Valid inputs in a folder, and runs with one changed input."""

    def __init__(self, folder: Path, server: IndexServer) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.folder, self.server = folder, server
        self.work = folder / "work"
        self.data = folder / "matrix_data"
        self.work.mkdir()
        self._fill()

    def _fill(self) -> None:
        """Make the inputs of the good runs."""
        server = self.server
        server.add(
            "alpha", "1.0", ["beta>=1", "gamma; python_version>'3.0'"], requires_python=">=3.8"
        )
        server.add("alpha", "2.0", ["beta>=1; os_name=='posix'"])
        server.add("beta", "1.5", padding=5000)
        server.add("gamma", "1!3.0.post1")
        self.links = self.folder / "links"
        self.links.mkdir()
        for files in server.projects.values():
            for file in files:
                (self.links / file.filename).write_bytes(file.data)
        paths = sorted(self.links.iterdir())
        self.digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
        shutil.copytree(compat_data.data_folder(), self.data)
        self.index = ["--index-url", server.url, "--gpu", "none"]
        self._require(["solve", "alpha", *self.index])
        self.lock = (self.work / "pylock.toml").read_bytes()
        host = ["detect", "-o", "host.json", "--gpu", "H100", "--driver", "580.65.06"]
        self._require([*host, "--python", "3.12"])
        self.host = (self.work / "host.json").read_bytes()
        self.project = (
            b'[project]\nname = "demo"\nversion = "1"\ndependencies = ["alpha>=1"]\n'
            b'[tool.gpuenv]\nframeworks = ["torch>=2.9"]\nrequirements = ["alpha"]\n'
            b'find-links = ["../links"]\npython = "3.12"\n'
            b'[tool.gpuenv.profiles.h100]\ngpu = "H100"\ndriver = "580.65.06"\n'
            b'[tool.gpuenv.profiles.ci]\ngpu = "none"\n'
        )
        self.cache = {
            path: path.read_bytes() for path in (self.folder / "cache").rglob("*") if path.is_file()
        }
        self.snapshot = sorted(
            path for path in (self.data / "snapshot").rglob("*") if path.is_file()
        )

    def _require(self, words: list[str]) -> None:
        done = self._gpuenv(words)
        if done.returncode:
            raise RuntimeError(f"gpuenv {words[0]} fails without a mutation: {done.stderr}")

    def _gpuenv(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "GPUENV_CACHE_DIR": str(self.folder / "cache"),
            "UV_CACHE_DIR": str(self.folder / "uv"),
            "GPUENV_CONFIG_FILE": "",
        }
        return forked.run(self._entry, ["gpuenv", *words], self.work, environment)

    def _entry(self) -> object:
        compat_data.data_folder = lambda: str(self.data)
        return entry_point()

    def run(self, number: int, seed: int, *, show: bool = False) -> None:
        """Run one mutation."""
        source = random.Random(f"{seed}-{number}")  # noqa: S311  no secret
        kind = KINDS[number % len(KINDS)]
        shutil.rmtree(self.work)
        self.work.mkdir()
        self.counts["mutations"] += 1
        self.counts[kind] += 1
        begin = time.monotonic()
        done, wrong = getattr(self, f"_run_{kind}")(source)
        seconds = time.monotonic() - begin
        problem = ""
        if done.returncode not in STATUSES or "Traceback" in done.stderr:
            problem = "crashes"
        elif seconds > SLOW:
            problem = "slow"
        elif wrong:
            problem = "wrong installs"
        if problem:
            self.counts[problem] += 1
            self.failures.append(f"{number} {kind}: {problem}")
        if problem or show:
            print(number, kind, problem, done.returncode, f"{seconds:.1f} s", done.stderr[-300:])

    def _with_file(
        self, path: Path, data: bytes, words: list[str]
    ) -> subprocess.CompletedProcess[str]:
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(data)
        try:
            return self._gpuenv(words)
        finally:
            if before is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(before)

    def _run_wheel(self, source: random.Random) -> tuple[subprocess.CompletedProcess[str], bool]:
        """Solve with a changed wheel in a folder. The lock must have the hash of a file there."""
        path = source.choice(sorted(self.links.iterdir()))
        data = mutate(path.read_bytes(), source)
        if source.random() < 0.5:  # a readable archive with changed metadata
            data = self._with_metadata(path, source)
        words = ["solve", "alpha", "--no-index", "--find-links", str(self.links), "--gpu", "none"]
        done = self._with_file(path, data, words)
        digests = {hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in self.links.iterdir()}
        return done, done.returncode == 0 and not self._hashes() <= digests | {
            hashlib.sha256(data).hexdigest()
        }

    def _with_metadata(self, path: Path, source: random.Random) -> bytes:
        target = self.folder / "changed.whl"
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
            for name in old.namelist():
                data = old.read(name)
                if name.endswith("METADATA"):
                    data = mutate(data, source)
                new.writestr(name, data)
        return target.read_bytes()

    def _hashes(self) -> set[str]:
        import tomllib

        document = tomllib.loads((self.work / "pylock.toml").read_text())
        files = [file for package in document["packages"] for file in package.get("wheels", ())]
        return {file["hashes"]["sha256"] for file in files}

    def _run_page(self, source: random.Random) -> tuple[subprocess.CompletedProcess[str], bool]:
        """Solve with a changed page."""
        name = source.choice(("alpha", "beta", "gamma"))
        self.server.style = source.choice(("json", "html"))
        kind, body = self.server._page(name, self.server.projects[name])
        self.server.raw[f"/simple/{name}/"] = kind, mutate(body, source)
        done = self._gpuenv(["solve", "alpha", *self.index, "--refresh"])
        del self.server.raw[f"/simple/{name}/"]
        self.server.style = "json"
        return done, False

    def _run_cache(self, source: random.Random) -> tuple[subprocess.CompletedProcess[str], bool]:
        """Solve with a damaged cache entry. The lock must have the files of the index."""
        for path, data in self.cache.items():
            path.write_bytes(data)
        path = source.choice(sorted(self.cache))
        words = ["solve", "alpha", *self.index, "--offline"]
        done = self._with_file(path, mutate(self.cache[path], source), words)
        return done, done.returncode == 0 and not self._hashes() <= self.digests

    def _run_snapshot(self, source: random.Random) -> tuple[subprocess.CompletedProcess[str], bool]:
        """Solve torch with a changed file of the snapshot."""
        path = source.choice(self.snapshot)
        words = ["solve", "torch", "--gpu", "H100", "--driver", "580.65.06", "--python", "3.12"]
        return self._with_file(
            path, mutate(path.read_bytes(), source), [*words, "--offline"]
        ), False

    def _run_lock(self, source: random.Random) -> tuple[subprocess.CompletedProcess[str], bool]:
        """Plan a sync of a changed lock. The plan must have the packages that were locked."""
        data = mutate(self.lock, source)
        command = ["sync", "pylock.toml", "--target", "env", "--dry-run", "--json", *self.index]
        done = self._with_file(self.work / "pylock.toml", data, command)
        wrong = False
        if done.returncode == 0:
            rows = [(row["name"], row["after"]) for row in json.loads(done.stdout)["add"]]
            wrong = sorted(rows) != [("alpha", "2.0"), ("beta", "1.5")]
        return done, wrong

    def _run_host(self, source: random.Random) -> tuple[subprocess.CompletedProcess[str], bool]:
        words = ["solve", "torch", "--host", "host.json", "--offline"]
        return self._with_file(self.work / "host.json", mutate(self.host, source), words), False

    def _run_pyproject(
        self, source: random.Random
    ) -> tuple[subprocess.CompletedProcess[str], bool]:
        words = source.choice(
            (["lock", "--offline"], ["lock", "--check"], ["solve", "--project", "."])
        )
        if words[0] == "solve":
            words = [*words, "--gpu", "none", "--no-index", "--find-links", str(self.links)]
        data = mutate(self.project, source)
        return self._with_file(self.work / "pyproject.toml", data, words), False

    def _run_install(self, source: random.Random) -> tuple[subprocess.CompletedProcess[str], bool]:
        """Install the valid lock from a folder with a changed wheel, which must be refused."""
        path = self.links / source.choice(
            ("alpha-2.0-py3-none-any.whl", "beta-1.5-py3-none-any.whl")
        )
        (self.work / "pylock.toml").write_bytes(self.lock)
        good = path.read_bytes()
        data = mutate(good, source)
        words = ["sync", "pylock.toml", "--target", "env", "--no-verify", "--gpu", "none"]
        words += ["--no-index", "--find-links", str(self.links)]
        done = self._with_file(path, data, words)
        installed = (self.work / "env").exists()
        return done, (data != good and done.returncode == 0) or (done.returncode != 0 and installed)


def main(words: list[str]) -> int:
    """Run the mutations. Return 1 if one crashed or installed something wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--record", metavar="FILE", type=Path)
    arguments = parser.parse_args(words)
    begin = time.monotonic()
    numbers = range(arguments.count) if arguments.only is None else [arguments.only]
    with tempfile.TemporaryDirectory() as folder, IndexServer() as server:
        trials = Trials(Path(folder), server)
        for number in numbers:
            trials.run(number, arguments.seed, show=arguments.only is not None)
            if number % 100 == 99:
                print(number + 1, f"{time.monotonic() - begin:.0f} s", flush=True)
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{platform.python_implementation()} {platform.python_version()}",
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - begin),
        "mutations": trials.counts["mutations"],
        "kinds": {kind: trials.counts[kind] for kind in KINDS},
        **{name: trials.counts[name] for name in ("crashes", "slow", "wrong installs")},
        "failures": trials.failures,
    }
    write_record(record, arguments.record)
    return int(bool(trials.failures))
