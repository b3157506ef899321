"""Prove that source distributions of each common kind are solved, locked and installed.

    python scripts/tools.py prove builds [--kinds NAME,...] [--kills N] [--record FILE.json]

Each kind is a small project without static metadata, served on loopback; its build requirements
come from the default index. gpuenv solves and syncs it, then `pip install -r pylock.toml` and
`uv pip sync pylock.toml` install the same lock, and the module is imported each time. --kills ends
`gpuenv install` of a project at random moments, with SIGKILL, SIGTERM or SIGINT in turn; afterwards
no process of the build and no folder of it may be left, and the next run must succeed.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT, write_record
from gpuenv.interpreters import find_uv
from index_server import IndexServer

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SETUP = "from setuptools import Extension, setup\nsetup(name='demo', version='1.0', "
MODULE = "answer = 42\n"
C_MODULE = """#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "demo", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_demo(void) {
    PyObject *made = PyModule_Create(&module);
    PyModule_AddIntConstant(made, "answer", 42);
    return made;
}
"""
PROJECT = '[project]\nname = "demo"\nversion = "1.0"\ndescription = "A demo"\n'


def _system(requires: str, backend: str) -> str:
    return f'[build-system]\nrequires = [{requires}]\nbuild-backend = "{backend}"\n'


KINDS: dict[str, dict[str, str]] = {
    "setup.py alone": {"setup.py": SETUP + "py_modules=['demo'])", "demo.py": MODULE},
    "setup.py with a C extension": {
        "setup.py": SETUP + "ext_modules=[Extension('demo', ['demo.c'])])",
        "demo.c": C_MODULE,
    },
    "setuptools": {
        "pyproject.toml": _system('"setuptools>=61"', "setuptools.build_meta") + PROJECT,
        "demo.py": MODULE,
    },
    "hatchling": {
        "pyproject.toml": _system('"hatchling"', "hatchling.build") + PROJECT,
        "demo/__init__.py": MODULE,
    },
    "flit": {
        "pyproject.toml": _system('"flit_core>=3.4"', "flit_core.buildapi") + PROJECT,
        "demo.py": MODULE,
    },
    "poetry-core": {
        "pyproject.toml": _system('"poetry-core"', "poetry.core.masonry.api")
        + '[tool.poetry]\nname = "demo"\nversion = "1.0"\ndescription = ""\nauthors = []\n',
        "demo.py": MODULE,
    },
    "scikit-build-core": {
        "pyproject.toml": _system('"scikit-build-core"', "scikit_build_core.build") + PROJECT,
        "CMakeLists.txt": "cmake_minimum_required(VERSION 3.15)\nproject(demo LANGUAGES C)\n"
        "find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)\n"
        "Python_add_library(demo MODULE demo.c WITH_SOABI)\ninstall(TARGETS demo DESTINATION .)\n",
        "demo.c": C_MODULE,
    },
    "meson-python": {
        "pyproject.toml": _system('"meson-python"', "mesonpy") + PROJECT,
        "meson.build": "project('demo', 'c', version: '1.0')\n"
        "py = import('python').find_installation(pure: false)\n"
        "py.extension_module('demo', 'demo.c', install: true)\n",
        "demo.c": C_MODULE,
    },
    "maturin": {
        "pyproject.toml": _system('"maturin>=1,<2"', "maturin")
        + PROJECT
        + '[tool.maturin]\nbindings = "cffi"\nmodule-name = "demo"\npython-source = "python"\n',
        "Cargo.toml": '[package]\nname = "demo"\nversion = "1.0.0"\nedition = "2021"\n'
        '[lib]\nname = "demo"\ncrate-type = ["cdylib"]\n',
        "src/lib.rs": '#[no_mangle]\npub extern "C" fn answer() -> i32 { 42 }\n',
        "demo.h": "int answer(void);\n",
        "python/demo/__init__.py": MODULE,
        "build.rs": "fn main() {}\n",
    },
    "Cython": {
        "pyproject.toml": _system('"setuptools", "Cython"', "setuptools.build_meta"),
        "setup.py": "from Cython.Build import cythonize\n"
        + SETUP
        + "ext_modules=cythonize([Extension('demo', ['demo.pyx'])]))",
        "demo.pyx": MODULE,
    },
}


KILLED = KINDS["setup.py with a C extension"]


def archive(files: dict[str, str]) -> bytes:
    """Return demo-1.0.tar.gz with some files, and without PKG-INFO."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for name, text in files.items():
            member = tarfile.TarInfo(f"demo-1.0/{name}")
            member.size, member.mtime = len(text.encode()), 500_000_000  # a zip begins in 1980
            packed.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def run(command: list[str], folder: Path) -> tuple[int, str]:
    """Run a command; return its status and the end of its output."""
    environment = os.environ | {
        "GPUENV_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": str(ROOT / "resolver") if "gpuenv" in command else "",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, (done.stdout + done.stderr)[-2000:]


def gpuenv(*arguments: str) -> list[str]:
    """Return a command of this checkout."""
    return [sys.executable, "-m", "gpuenv", *arguments]


def prove(files: dict[str, str], folder: Path, uv: str) -> dict[str, Any]:
    """Return how each installer ended: "imported", or the end of its output."""
    row: dict[str, Any] = {}
    with IndexServer() as server:
        server.add_file("demo", "demo-1.0.tar.gz", archive(files))
        index = ["--extra-index-url", server.url]
        host = ["--gpu", "none", "--python", HERE]
        begin = time.monotonic()
        status, output = run(gpuenv("solve", "demo", *index, *host), folder)
        row["solve"] = "locked" if status == 0 else output
        row["seconds"] = round(time.monotonic() - begin, 1)
        steps = {
            "gpuenv sync": [gpuenv("sync", "pylock.toml", "--target", "gpuenv", *index, *host)],
            "pip": [
                [sys.executable, "-m", "venv", "pip"],
                ["pip/bin/python", "-m", "pip", "install", "--quiet", "--upgrade", "pip"],
                ["pip/bin/python", "-m", "pip", "install", "--no-deps", "-r", "pylock.toml"],
            ],
            "uv": [
                [uv, "venv", "--quiet", "uv"],
                [uv, "pip", "sync", "--preview-features", "pylock", "--python", "uv/bin/python",
                 "pylock.toml"],
            ],
        }  # fmt: skip
        for (name, commands), prefix in zip(steps.items(), ("gpuenv", "pip", "uv"), strict=True):
            program = "import demo; assert demo.answer in (42, None) or callable(demo.answer)"
            check = [f"{prefix}/bin/python", "-c", program]
            row[name] = "imported"
            for command in [*commands, check]:
                status, output = run(command, folder)
                if status:
                    row[name] = output
                    break
    return row


def kill(points: int, seed: int) -> dict[str, int]:
    """End installations at random moments, and count what is left."""
    source = random.Random(seed)  # noqa: S311  no secret
    names = "points", "ended before", "processes left", "folders left", "next runs that failed"
    counts = dict.fromkeys(names, 0)
    for number in range(points):
        folder = Path(tempfile.mkdtemp())
        with IndexServer() as server:
            server.add_file("demo", "demo-1.0.tar.gz", archive(KILLED))
            command = gpuenv("install", "demo", "--target", "env", "--gpu", "none")
            command += ["--python", HERE, "--extra-index-url", server.url]
            environment = os.environ | {
                "GPUENV_CACHE_DIR": str(folder / "cache"),
                "PYTHONPATH": str(ROOT / "resolver"),
                "GPUENV_KILLED": str(folder),
            }
            with subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as process:
                time.sleep(source.uniform(0.3, 5.0))
                counts["points"] += 1
                counts["ended before"] += process.poll() is not None
                process.send_signal(SIGNALS[number % len(SIGNALS)])
                process.wait(60)
            running = folder / "cache" / "builds" / "running"
            end = time.monotonic() + 10
            while time.monotonic() < end and (_processes(folder) or _any(running)):
                time.sleep(0.05)
            counts["processes left"] += bool(_processes(folder))
            counts["folders left"] += _any(running)
            counts["next runs that failed"] += bool(run(command, folder)[0])
        shutil.rmtree(folder, ignore_errors=True)
    return counts


def _any(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


def _processes(folder: Path) -> list[int]:
    """Return the processes whose arguments or working folder name a folder."""
    numbers = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
            if str(folder) in words + os.readlink(entry / "cwd"):
                numbers.append(int(entry.name))
        except OSError:  # it has ended, or it is another user's
            continue
    return numbers


def main(words: list[str]) -> int:
    """Run the proofs. Return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", metavar="FILE", type=Path)
    arguments = parser.parse_args(words)
    uv = find_uv() or sys.exit("uv is not installed")
    rows = {}
    for kind in filter(None, arguments.kinds.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            rows[kind] = prove(KINDS[kind], Path(folder), uv)
        print(kind, rows[kind], flush=True)
    kills = kill(arguments.kills, arguments.seed) if arguments.kills else {}
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{platform.python_implementation()} {platform.python_version()}",
        "kinds": rows,
        "kills": kills,
    }
    write_record(record, arguments.record)
    good = all(set(row.values()) >= {"locked", "imported"} and
               all(value in ("locked", "imported") for key, value in row.items()
                   if key != "seconds") for row in rows.values())  # fmt: skip
    left = sum(count for name, count in kills.items() if name not in ("points", "ended before"))
    return int(not good or bool(left))
