"""Run programs that fail for known reasons on a real GPU, and let doctor read what they print.

    python scripts/prove_doctor.py --environment EXE --date 2026-11-21 --record DIR [--only NAMES]
    python scripts/prove_doctor.py --read DIR

The programs are in tests/data/device_failures/programs.toml. The first form needs the device: it
runs each program with the environment's interpreter, or with that of a changed copy, and writes
its output and doctor's answer with the environment at hand to --record. The second form reads the
kept logs as on another machine. Both compare the answers with the expected ones. No setting of a
GPU is changed.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from prove_environment import copied, replaced

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = os.path.join(HERE, "tests", "data", "device_failures", "programs.toml")
SYSTEM_LIBRARIES = "/lib/x86_64-linux-gnu"
TIMEOUT = 120.0  # seconds for one program
STUBS = "/usr/local/cuda*/lib64/stubs/libcuda.so"
# What names one device or one machine.
PRIVATE = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{8}:[0-9a-f]{2}:[0-9a-f]{2}\.0\b")

Row = dict[str, Any]


def main() -> int:
    """Run or read the programs; return 1 if an answer is not an expected one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", metavar="EXE")
    parser.add_argument("--date")
    parser.add_argument("--record", metavar="DIR")
    parser.add_argument("--only", default="")
    parser.add_argument("--read", metavar="DIR")
    arguments = parser.parse_args()
    with open(PROGRAMS, "rb") as file:
        programs = tomllib.load(file)["program"]
    if arguments.only:
        programs = [row for row in programs if row["name"] in arguments.only.split(",")]
    if arguments.read:
        return _read_all(programs, arguments.read)
    return _run_all(programs, arguments.environment, arguments.date, arguments.record)


# ---- on the device -------------------------------------------------------------------------------


def _run_all(programs: Sequence[Row], python: str, date: str, folder: str) -> int:
    os.makedirs(folder, exist_ok=True)
    rows: dict[str, Row] = {}
    wrong = 0
    for program in programs:
        row = _run(program, python, folder)
        rows[program["name"]] = row
        is_right = row["here"] in program["here"]
        wrong += not is_right
        print(f"{'ok   ' if is_right else 'WRONG'} {program['name']}: {row['here']}", flush=True)
    host = json.loads(_gpuenv("detect", "--json").stdout)
    gpus = [gpu["name"] for gpu in host["gpus"]]
    record = {"date": date, "gpus": gpus, "driver": host["driver"], "programs": rows}
    with open(os.path.join(folder, "record.json"), "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.write("\n")
    print(f"{len(programs) - wrong} of {len(programs)} answers are as expected")
    return int(wrong > 0)


def _run(program: Row, python: str, folder: str) -> Row:
    with tempfile.TemporaryDirectory() as work:
        if "change" in program or "install" in program:
            python = copied(python, work, "environment")
            _change(program.get("change", ()), python)
        _compile(program, work)
        _install(program, python, work)
        variables = {**os.environ, **_variables(program, work)}
        with _beside(program, python, work):
            # The file of the program has the name that a user's has: it is in the traceback.
            path = os.path.join(work, "train.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program["run"])
            done = subprocess.run(
                [python, "train.py"], cwd=work, env=variables, timeout=TIMEOUT, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            )  # fmt: skip
        text = PRIVATE.sub("...", done.stdout).replace(work, "/home/user/job")
        log = os.path.join(folder, program["name"] + ".log")
        with open(log, "w", encoding="utf-8") as file:
            file.write(text)
        flags = ["--python", python]
        document = _doctor(log, flags, {**os.environ, **_variables(program, work)})
        row = {
            "exit": done.returncode,
            "here": answer(document),
            "verdicts": document["verdicts"][:1],
        }
        if "install" in program:
            row["verify"] = _failed_checks(python)
    return row


def _failed_checks(python: str) -> list[Row]:
    """Return the checks that an environment does not pass, without any log."""
    document = json.loads(_gpuenv("verify", "--python", python, "--json").stdout)
    return [check for check in document["checks"] if check["status"] == "fail"]


def _change(changes: Sequence[Mapping[str, str]], python: str) -> None:
    """Remove files of a copied environment, or put the system's releases in their place."""
    prefix = os.path.dirname(os.path.dirname(python))
    [nvidia] = glob.glob(os.path.join(prefix, "lib", "python*", "site-packages", "nvidia"))
    for change in changes:
        ((action, name),) = change.items()
        [path] = glob.glob(os.path.join(nvidia, name))
        source = None
        if action == "system":
            source = os.path.join(SYSTEM_LIBRARIES, os.path.basename(name))
        replaced(path, source)
        kept = f"{path}.kept"
        os.unlink(kept)


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


def _variables(program: Row, work: str) -> dict[str, str]:
    """Return the program's variables, with folders in place of WORK, SYSTEM and STUBS."""
    variables = dict(program.get("variables", {}))
    for name, value in variables.items():
        if value == "WORK":
            variables[name] = work
        elif value == "SYSTEM":
            variables[name] = _link_folder(work, glob.glob(f"{SYSTEM_LIBRARIES}/libcudnn*.so.9*"))
        elif value == "STUBS":
            variables[name] = _link_folder(work, glob.glob(STUBS)[:1], "libcuda.so.1")
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
        said = answer(_doctor(log, ["--elsewhere"], os.environ))
        is_right = said in program["elsewhere"]
        wrong += not is_right
        print(f"{'ok   ' if is_right else 'WRONG'} {program['name']}: {said}")
    print(f"{len(programs) - wrong} of {len(programs)} answers are as expected")
    return int(wrong > 0)


def answer(document: Mapping[str, Any]) -> str:
    """Return the first answer: a cause, "outside: AREA", "not settled" or "no failure"."""
    if document.get("outside"):
        return f"outside: {document['outside']['area']}"
    if document["abstained"]:
        return "not settled"
    if document["verdicts"]:
        return str(document["verdicts"][0]["cause"])
    return "no failure"


def _doctor(log: str, flags: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    done = _gpuenv("doctor", log, "--json", *flags, variables=variables)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _gpuenv(
    *words: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([os.path.join(HERE, "resolver"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "gpuenv", *words],
        env={**(variables or os.environ), "PYTHONPATH": path},
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
