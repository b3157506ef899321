"""Run programs that fail for known reasons, most on a GPU, and let doctor and verify judge them.

    tools.py prove device --environment EXE [--cases FILE ...] [--only NAME ...] [--parts DIR]
        [--jobs N] [--logs DIR] [--record FILE]

The programs are in tests/data/device_failures; programs.toml says what their keys mean. The file
verify.toml has environments, healthy ones and broken ones, of `gpuenv verify`; those of
tests/data/companion_environments need the default index, 12 GB and no GPU. EXE is the
interpreter of an environment with the frameworks, and DIR what some programs need and the host
lacks. --logs keeps what the programs print, and doctor's answers. No setting of a GPU is changed.
It needs root: each program has a mount namespace.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import GPUENV, ROOT, own_code, read_toml, run_gpuenv

CASES = ROOT / "tests" / "data" / "device_failures"
TIMEOUT = 600.0  # seconds for one program
# What names one device of one machine: its UUID and its place on the bus.
PRIVATE = re.compile(
    r"(?i)\b(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{8}:[0-9a-f]{2}:[0-9a-f]{2}\.0\b"
)

Row = dict[str, Any]


def answer(document: Mapping[str, Any]) -> str:
    """Return doctor's first answer: a cause, "outside: AREA", "not settled" or "no failure"."""
    if document.get("outside"):
        return f"outside: {document['outside']['area']}"
    if document["abstained"]:
        return "not settled"
    if document["verdicts"]:
        return str(document["verdicts"][0]["cause"])
    return "no failure"


def document_in(output: str) -> dict[str, Any]:
    """Return the JSON document of an output that may have lines before and after it."""
    document: dict[str, Any] = json.JSONDecoder().raw_decode(output, output.index("{"))[0]
    return document


class Place:
    """The folder in which one program runs, and its environment."""

    def __init__(self, program: Row, folder: str, arguments: Namespace) -> None:
        self.program, self.work = program, Path(folder, "job")
        self.python, self.code = arguments.environment, ROOT
        prefix, parts = self.python.parent.parent, str(arguments.parts.resolve())
        prepare = program.get("prepare", "")
        if "$SITE" in prepare:
            subprocess.run(["cp", "-al", prefix, f"{folder}/environment"], check=True)
            self.python = Path(folder, "environment", "bin", self.python.name)
        if "$CODE" in prepare:
            self.code = Path(folder, "code")
            for part in ("resolver", "matrix_data"):
                shutil.copytree(ROOT / part, self.code / part)
        self.shown = {parts: "PARTS", str(prefix): "ENVIRONMENT", folder: "/home/user"}
        self.variables = {
            name: value.replace("WORK", str(self.work)).replace("PARTS", parts)
            for name, value in program.get("variables", {}).items()
        }
        # The file of the program has the name that a user's has: it is in the traceback.
        files = {**program.get("files", {}), "train.py": program.get("run", "")}
        files["bin/gpuenv"] = f'#!/bin/sh\nexec {" ".join(GPUENV)} "$@"\n'
        for name, text in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (self.work / "bin/gpuenv").chmod(0o755)
        self.site = str(next(self.python.parent.parent.glob("lib/python*/site-packages")))
        variables = own_code(
            PYTHON=str(self.python),
            PARTS=parts,
            CODE=str(self.code),
            SITE=self.site,
            PATH=f"{self.work}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        )
        self.run(["sh", "-exc", prepare], check=True, **variables)

    def run(
        self, command: list[str], *, check: bool = False, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder, with exactly these variables. The output is one text."""
        return subprocess.run(
            command, cwd=self.work, env=variables, check=check, timeout=TIMEOUT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip

    def run_changed(self, *command: str, gpuenv: bool = False) -> tuple[int, str]:
        """Run a program, or a command of gpuenv, after the program's shell lines."""
        shell = f'{self.program.get("shell", "")}\nexec "$@"'
        variables = {**os.environ, **self.variables, "CASES": str(CASES)}
        variables.pop("PYTHONPATH", None)
        if gpuenv:
            variables["PYTHONPATH"] = str(self.code / "resolver")
        done = self.run(["unshare", "--mount", "sh", "-ec", shell, "sh", *command], **variables)
        return done.returncode, done.stdout

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Run the program's second program meanwhile. It prints a line when it is ready."""
        if "beside" not in self.program:
            yield
            return
        command = [str(self.python), "-c", self.program["beside"]]
        with subprocess.Popen(command, cwd=self.work, stdout=subprocess.PIPE) as process:
            try:
                if process.stdout is not None:
                    process.stdout.readline()
                yield
            finally:
                process.kill()

    def public(self, text: str) -> str:
        """Return a text without names of devices and of folders of this machine."""
        text = PRIVATE.sub("...", text)
        for folder, name in self.shown.items():
            text = text.replace(folder, name)
        return text


def judge_verification(place: Place) -> tuple[Row, bool]:
    """Verify an environment. Return the row, and whether the expected checks are not passed."""
    program = place.program
    words = program["verify"].split()
    if not {"--python", "--target"} & {*words}:
        words += ["--python", str(place.python)]
    begin = time.perf_counter()
    with place.beside():
        status, text = place.run_changed(*GPUENV, "verify", *words, "--json", gpuenv=True)
    row = {"step": program["name"], "exit": status, "environment": place.variables}
    row |= {"seconds": round(time.perf_counter() - begin, 2), "command": ["gpuenv verify", *words]}
    document = document_in(text)
    failed = [
        f"{check['name']} {check['subject']}: {check['evidence']}".replace(f"{place.site}/", "")
        for check in document["checks"]
        if check["status"] != "pass"
    ]
    is_right = status == int(bool(program["finds"]))
    for name in program["finds"]:
        is_right = is_right and any(text.startswith(name) for text in failed)
    print(f"{'ok   ' if is_right else 'WRONG'} {program['name']}: {failed}", flush=True)
    return json.loads(place.public(json.dumps({**row, "document": document}))), is_right


def judge_failure(place: Place, logs: Path) -> tuple[Row, bool]:
    """Run a program and ask doctor. Return the row, and whether the answer is right."""
    program = place.program
    log = logs / f"{program['name']}.log"
    with place.beside():
        status, output = place.run_changed(str(place.python), "train.py")
        log.write_text(output, encoding="utf-8")
        words = ["doctor", str(log.resolve()), "--python", str(place.python), "--json"]
        _, text = place.run_changed(*GPUENV, *words, "--timeout", "60", gpuenv=True)
    document = document_in(text)
    log.write_text(place.public(output), encoding="utf-8")
    text = place.public(json.dumps(document, indent=1))
    log.with_suffix(".json").write_text(text, encoding="utf-8")
    row = {"exit": status, "here": answer(document), "verdicts": json.loads(text)["verdicts"][:1]}
    is_right = row["here"] in program["here"]
    print(f"{'ok   ' if is_right else 'WRONG'} {program['name']}: {row['here']}", flush=True)
    return row, is_right


ARGUMENTS = {
    "--environment": {"metavar": "EXE", "type": Path, "required": True},
    "--cases": {"metavar": "FILE", "nargs": "+", "type": Path},
    "--only": {"metavar": "NAME", "nargs": "+"},
    "--parts": {"metavar": "DIR", "type": Path, "default": Path("parts")},
    "--jobs": {"type": int, "default": 1},
    "--logs": {"metavar": "DIR", "type": Path, "default": Path("device-logs")},
}


def prove(arguments: Namespace) -> tuple[Row, list[str]]:
    """Run the programs: beside each other, except those that need the memory of the GPU alone."""
    host = PRIVATE.sub("...", run_gpuenv("detect", "--json").stdout)
    arguments.logs.mkdir(parents=True, exist_ok=True)
    programs = []
    for path in arguments.cases or sorted(CASES.glob("*.toml")):
        programs += read_toml(path.resolve())["program"]
    programs = [row for row in programs if row["name"] in (arguments.only or row["name"])]
    steps: dict[str, Row] = {}
    answers: dict[str, Row] = {}
    faults: dict[str, str] = {}

    def run(program: Row) -> None:
        name = program["name"]
        try:
            with tempfile.TemporaryDirectory() as folder:
                place = Place(program, folder, arguments)
                if "verify" in program:
                    steps[name], is_right = judge_verification(place)
                    if not is_right:
                        faults[name] = "verify"
                if "run" in program:
                    answers[name], is_right = judge_failure(place, arguments.logs)
                    if not is_right:
                        faults[name] = f"doctor says {answers[name]['here']}"
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            faults[name] = f"{error} {getattr(error, 'stdout', '')}"
            print(f"did not run: {name}: {faults[name][-500:]}", flush=True)

    alone = [program for program in programs if "beside" in program or "alone" in program]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(run, [program for program in programs if program not in alone]))
    for program in alone:
        run(program)
    names = [program["name"] for program in programs]
    record = {
        "host": json.loads(host),
        "steps": [steps[name] for name in names if name in steps],
        "programs": {name: answers[name] for name in names if name in answers},
    }
    return record, [f"{name}: {text}" for name, text in faults.items()]
