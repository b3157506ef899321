"""Run programs that fail for known reasons on a real GPU, and let doctor read what they print.

    tools.py prove doctor --environment EXE --date 2026-11-21 --record DIR [--only NAMES]
        [--parts DIR] [--jobs N] [--seconds S]
    python scripts/tools.py prove doctor --read DIR

The programs are in tests/data/device_failures/programs.toml. The first form needs the device: it
runs each program with the environment's interpreter, or with that of a changed copy, and writes
its output and doctor's answers with the environment at hand to --record. Programs run beside each
other, except those that need the GPU's memory or time for themselves; no program starts later than
--seconds after the start. --parts has the files that a program names as its `parts`. The second
form reads the kept logs as on another machine. Both compare the answers with the expected ones. No
setting of a GPU is changed: `shell` lines that mount do so in a namespace of their own.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from common import ROOT
from prove.environment import copied, packages

HERE = str(ROOT)
PROGRAMS = os.path.join(HERE, "tests", "data", "device_failures", "programs.toml")
SYSTEM_LIBRARIES = "/lib/x86_64-linux-gnu"
TIMEOUT = 120.0  # seconds for one program
STUBS = "/usr/local/cuda*/lib64/stubs/libcuda.so"
# What names one device or one machine.
PRIVATE = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{8}:[0-9a-f]{2}:[0-9a-f]{2}\.0\b")
# Hide the libraries of CUDA that the system has, in a mount namespace.
HIDDEN = """
[ -d ../system ] || cp -al /usr/lib/x86_64-linux-gnu ../system || true
for name in cudnn cublas nvrtc nvJitLink cusparse; do rm -f ../system/lib$name*; done
mount --bind ../system /usr/lib/x86_64-linux-gnu
for folder in /usr/local/cuda*/targets/*/lib; do mount -t tmpfs tmpfs "$folder" || true; done"""
LISTING = """
import importlib.metadata as metadata, sys
print("Python", sys.version, sys.prefix)
for package in sorted(metadata.distributions(), key=lambda package: package.name.lower()):
    print(package.name, package.version)
"""

Row = dict[str, Any]


def main(words: list[str]) -> int:
    """Run or read the programs; return 1 if an answer is not an expected one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", metavar="EXE")
    parser.add_argument("--date")
    parser.add_argument("--record", metavar="DIR")
    parser.add_argument("--programs", metavar="FILE", nargs="+", default=[PROGRAMS])
    parser.add_argument("--only", default="")
    parser.add_argument("--parts", metavar="DIR", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--read", metavar="DIR")
    arguments = parser.parse_args(words)
    programs = []
    for path in arguments.programs:
        with open(path, "rb") as file:
            programs += tomllib.load(file)["program"]
    if arguments.only:
        programs = [row for row in programs if row["name"] in arguments.only.split(",")]
    if arguments.read:
        return _read_all(programs, arguments.read)
    return _run_all(programs, arguments)


# ---- on the device -------------------------------------------------------------------------------


def _run_all(programs: Sequence[Row], arguments: argparse.Namespace) -> int:
    folder = arguments.record
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "environment.txt"), "w", encoding="utf-8") as file:
        file.write(_listing(arguments.environment))
    rows: dict[str, Row] = {}
    end = time.monotonic() + arguments.seconds

    def prove(program: Row) -> None:
        name = program["name"]
        missing = [part for part in program.get("parts", ()) if not _parts(arguments.parts, part)]
        if missing or time.monotonic() > end:
            print(f"left out {name}: {', '.join(missing) or 'no time is left'}", flush=True)
            return
        started = time.monotonic()
        try:
            row = _run(program, arguments.environment, folder, arguments.parts)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"left out {name}: {error}", flush=True)
            return
        rows[name] = row
        result = "ok   " if row["here"] in program["here"] else "WRONG"
        seconds = time.monotonic() - started
        print(f"{result} {name}: {row['here']} ({seconds:.0f} s)", flush=True)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(prove, [program for program in programs if not _is_alone(program)]))
    for program in filter(_is_alone, programs):
        prove(program)
    host = json.loads(_gpuenv("detect", "--json").stdout)
    gpus = [gpu["name"] for gpu in host["gpus"]]
    rows = {
        program["name"]: rows[program["name"]] for program in programs if program["name"] in rows
    }
    record = {"date": arguments.date, "gpus": gpus, "driver": host["driver"], "programs": rows}
    with open(os.path.join(folder, "record.json"), "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.write("\n")
    right = sum(
        row["name"] in rows and rows[row["name"]]["here"] in row["here"] for row in programs
    )
    print(f"{right} of {len(programs)} answers are as expected")
    return int(right < len(programs))


def _is_alone(program: Row) -> bool:
    return "beside" in program or "alone" in program


def _listing(python: str) -> str:
    """Return what the environment and the machine have."""
    commands = ([python, "-c", LISTING], ["nvcc", "--version"], ["nvidia-smi"], ["ldconfig", "-p"])
    texts = []
    for command in commands:
        if shutil.which(command[0]) is None:
            continue
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        texts.append(f"$ {command[0]}\n{PRIVATE.sub('...', done.stdout)}{done.stderr}")
    return "\n".join(texts)


def _run(program: Row, python: str, folder: str, parts: str) -> Row:
    with tempfile.TemporaryDirectory() as place:
        shown = {place: "/home/user"}
        if parts:
            shown[os.path.abspath(parts)] = "/home/user/parts"
        if "change" in program or "install" in program:
            python = copied(python, place, "environment")
            for change in program.get("change", ()):
                _change(change, packages(python), parts)
        work = os.path.join(place, "job")
        os.mkdir(work)
        # The file of the program has the name that a user's has: it is in the traceback.
        for name, text in {**program.get("files", {}), "train.py": program["run"]}.items():
            path = os.path.join(work, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        _compile(program, work)
        _install(program, python, work)
        variables = {**os.environ, **_variables(program, work, parts)}
        variables.pop("PYTHONPATH", None)
        with _beside(program, python, work):
            done = subprocess.run(
                _in_shell(program, [python, "train.py"]), cwd=work, env=variables, check=False,
                timeout=TIMEOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace",
            )  # fmt: skip
        log = os.path.join(folder, program["name"] + ".log")
        for text in (done.stdout, _published(done.stdout, shown)):
            with open(log, "w", encoding="utf-8") as file:
                file.write(text)
            if text is done.stdout:
                document = _doctor(program, log, ["--python", python], variables, work)
        with open(log.removesuffix("log") + "json", "w", encoding="utf-8") as file:
            file.write(_published(json.dumps(document, indent=1), shown))
        row = {
            "exit": done.returncode,
            "here": answer(document),
            "verdicts": document.get("verdicts", [])[:1],
        }
        if "install" in program:
            row["verify"] = _failed_checks(python)
    published: Row = json.loads(_published(json.dumps(row), shown))
    return published


def _published(text: str, shown: Mapping[str, str]) -> str:
    """Return a text without private words. `shown` has what it calls a folder of this machine."""
    text = PRIVATE.sub("...", text)
    for folder, name in shown.items():
        text = text.replace(folder, name)
    return text


def _in_shell(program: Row, command: Sequence[str]) -> list[str]:
    """Return a command that first runs the shell lines of a program."""
    lines = program.get("shell", HIDDEN if "hidden" in program else "")
    if not lines:
        return list(command)
    shell = ["sh", "-ec", f'{lines}\nexec "$@"', "sh", *command]
    return ["unshare", "--mount", *shell] if "mount" in lines else shell


def _failed_checks(python: str) -> list[Row]:
    """Return the checks that an environment does not pass, without any log."""
    document = json.loads(_gpuenv("verify", "--python", python, "--json").stdout)
    return [check for check in document["checks"] if check["status"] == "fail"]


def _change(change: Mapping[str, str], site: str, parts: str) -> None:
    """Plant one fault in a copied environment, whose files are links that must not be written."""
    action, name = next(iter(change.items()))
    if action == "wheel":
        with zipfile.ZipFile(_parts(parts, name)[0]) as wheel:
            wheel.extractall(site)
        return
    paths = glob.glob(os.path.join(site, "nvidia", name))
    if not paths:
        raise FileNotFoundError(f"the environment has no {name}")
    for path in paths:
        content = None
        if action == "system":
            content = _content(os.path.join(SYSTEM_LIBRARIES, os.path.basename(name)))
        elif action == "truncate":
            content = _content(path)[: os.path.getsize(path) // 2]
        elif action == "edit":
            content = _content(path).replace(change["old"].encode(), change["new"].encode())
        elif action == "patch":
            at = int(change["at"])
            content = _content(path)
            content = content[:at] + bytes([int(change["byte"])]) + content[at + 1 :]
        elif action == "copy":
            shutil.copytree(path, os.path.join(site, "nvidia", change["to"]))
            continue
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
        if action == "link":
            os.symlink(change["to"], path)
        elif content is not None:
            with open(path, "wb") as file:
                file.write(content)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _parts(folder: str, name: str) -> list[str]:
    return glob.glob(os.path.abspath(os.path.join(folder, name)))


def _compile(program: Row, work: str) -> None:
    if "source" not in program:
        return
    path = os.path.join(work, "source.cu")
    with open(path, "w", encoding="utf-8") as file:
        file.write(program["source"])
    subprocess.run(["nvcc", *program["compile"], "source.cu"], cwd=work, check=True)


def _install(program: Row, python: str, work: str) -> None:
    """Put the compiled file into a package of the environment, with a RECORD as pip writes it."""
    if "install" not in program:
        return
    prefix = os.path.dirname(os.path.dirname(python))
    [site] = glob.glob(os.path.join(prefix, "lib", "python*", "site-packages"))
    metadata = "Metadata-Version: 2.1\nName: fastops\nVersion: 1.0\n"
    files = {"fastops-1.0.dist-info/METADATA": metadata.encode()}
    with open(os.path.join(work, program["install"]), "rb") as file:
        files[f"fastops/{program['install']}"] = file.read()
    record = "".join(f"{name},,\n" for name in [*files, "fastops-1.0.dist-info/RECORD"])
    files["fastops-1.0.dist-info/RECORD"] = record.encode()
    for name, content in files.items():
        path = os.path.join(site, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def _variables(program: Row, work: str, parts: str) -> dict[str, str]:
    """Return the program's variables, with folders in place of WORK, PARTS, SYSTEM and STUBS."""
    variables = dict(program.get("variables", {}))
    for name, value in variables.items():
        if value == "SYSTEM":
            variables[name] = _link_folder(work, glob.glob(f"{SYSTEM_LIBRARIES}/libcudnn*.so.9*"))
        elif value == "STUBS":
            variables[name] = _link_folder(work, glob.glob(STUBS)[:1], "libcuda.so.1")
        else:
            filled = value.replace("WORK", work).replace("PARTS", os.path.abspath(parts))
            variables[name] = filled
    return variables


def _link_folder(work: str, paths: Sequence[str], name: str = "") -> str:
    folder = os.path.join(work, "libraries")
    os.makedirs(folder, exist_ok=True)
    for path in paths:
        link = os.path.join(folder, name or os.path.basename(path))
        if not os.path.lexists(link):
            os.symlink(path, link)
    return folder


@contextmanager
def _beside(program: Row, python: str, work: str) -> Iterator[None]:
    """Run the second program of a row meanwhile. It prints a line when it is ready."""
    if "beside" not in program:
        yield
        return
    command = [python, "-c", program["beside"]]
    with subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is not None:
                process.stdout.readline()
            yield
        finally:
            process.kill()


# ---- doctor --------------------------------------------------------------------------------------


def _read_all(programs: Sequence[Row], folder: str) -> int:
    wrong = 0
    for program in programs:
        log = os.path.join(folder, program["name"] + ".log")
        if not os.path.exists(log):
            print(f"no log of {program['name']}")
            continue
        said = answer(_doctor({}, log, ["--elsewhere"], os.environ, folder))
        is_right = said in program["elsewhere"]
        wrong += not is_right
        print(f"{'ok   ' if is_right else 'WRONG'} {program['name']}: {said}")
    print(f"{len(programs) - wrong} of {len(programs)} answers are as expected")
    return int(wrong > 0)


def answer(document: Mapping[str, Any]) -> str:
    """Return the first answer: a cause, "outside: AREA", "not settled" or "no failure"."""
    if "error" in document:
        return f"no answer: {document['error']}"
    if document.get("outside"):
        return f"outside: {document['outside']['area']}"
    if document["abstained"]:
        return "not settled"
    if document["verdicts"]:
        return str(document["verdicts"][0]["cause"])
    return "no failure"


def _doctor(
    program: Row, log: str, flags: Sequence[str], variables: Mapping[str, str], work: str
) -> dict[str, Any]:
    words = ["doctor", os.path.abspath(log), "--json", "--timeout", "60", *flags]
    done = _gpuenv(*words, program=program, variables=variables, work=work)
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"error": done.stderr[-2000:]}
    return document


def _gpuenv(
    *words: str,
    program: Row | None = None,
    variables: Mapping[str, str] = os.environ,
    work: str | None = None,
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([os.path.join(HERE, "resolver"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        _in_shell(program or {}, [sys.executable, "-P", "-m", "gpuenv", *words]), cwd=work,
        env={**variables, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
