"""Resolve the same universes with gpuenv, pip and uv; record whether the pins are the same.

    python scripts/tools.py prove resolvers [--cases N] [--made N] [--record FILE]

The universes are those of tests/data/resolution, whose pins the tests compare with gpuenv's, and
universes made by chance, which pip resolves. Each is served by a loopback index. Where a tool
differs, the case says why under "pip" or "uv"; it must differ then. pip has no target, so cases
with a target are for uv only. The exit status is 1 if a tool differs from what is expected.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from packaging.version import Version
from uv import find_uv_bin

from common import write_record
from gpuenv.errors import NoSolutionError
from index_server import IndexServer
from test_resolution import CASES, FOLDER, packages_at, solved, versions
from test_resolution_laws import faults
from universe import rows, serve

Case = dict[str, Any]
Pins = dict[str, str] | None  # None: no solution

# pip resolves all cases in one process: starting it takes longer than what it does.
DRIVER = """
import json, sys
from pip._internal.cli.main import main
for job in json.load(open(sys.argv[1])):
    try:
        status = main(job["arguments"])
    except SystemExit as end:
        status = end.code
    print(json.dumps({"id": job["id"], "status": status}), file=sys.stderr)
"""
PIP = (
    "install --isolated --dry-run --ignore-installed --no-cache-dir --quiet --quiet --quiet "
    "--disable-pip-version-check --no-input"
)
UV = (
    "pip compile --no-header --no-annotate --no-cache --no-config --quiet --no-strip-markers "
    "--no-strip-extras --no-python-downloads --resolution highest"
)
UV_PLATFORMS = {
    "linux-x86_64": "x86_64-manylinux_{}",
    "linux-aarch64": "aarch64-manylinux_{}",
    "win-amd64": "x86_64-pc-windows-msvc",
}
RANGES = ["", "", ">=1.1", "<2", "==1.0", "!=2.0", "~=1.0", ">=2,<4", "==2.*", ">2", "<=1.1",
          ">=1.0", ">=2"]  # fmt: skip


def digest_of_cases() -> str:
    """Return a digest of the files of tests/data/resolution."""
    files = b"".join(path.read_bytes() for path in sorted(FOLDER.glob("*.json")))
    return hashlib.sha256(files).hexdigest()


def put(case: Case, server: IndexServer, folder: Path) -> list[str]:
    """Write the requirements and constraints of a case. Return -r FILE -c FILE."""
    base = f"{server.base}/files/"
    made = [row.made() for row in rows(packages_at(case, base))] if "hashes" in case else []
    digests = {file.filename: hashlib.sha256(file.data).hexdigest() for file in made}
    lines = []
    for text in case["requires"]:
        name = text.partition("=")[0]
        hashes = [f"--hash=sha256:{digests[one]}" for one in case.get("hashes", {}).get(name, ())]
        lines.append(" ".join([text.replace("{base}", base), *hashes]))
    folder.mkdir(parents=True)
    (folder / "r.txt").write_text("\n".join(lines))
    constraints = [text.replace("{base}", base) for text in case.get("constraints", ())]
    (folder / "c.txt").write_text("\n".join(constraints))
    return ["-r", str(folder / "r.txt"), "-c", str(folder / "c.txt")]


def ask_pip(cases: Sequence[Case], servers: Sequence[IndexServer], root: Path) -> dict[str, Pins]:
    """Return the pins of each case, by its id."""
    jobs = []
    for number, (case, server) in enumerate(zip(cases, servers, strict=True)):
        folder = root / str(number)
        arguments = [*PIP.split(), "--index-url", server.url, *put(case, server, folder)]
        arguments += ["--report", str(folder / "report.json")]
        for name in case.get("no_build", ()):
            arguments += ["--only-binary", name]
        arguments += ["--pre"] if case.get("pre") else []
        jobs.append({"id": case["id"], "arguments": arguments})
    (root / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, "-W", "ignore", "-c", DRIVER, str(root / "jobs.json")]
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    ended = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"id"')]
    if [row["id"] for row in ended] != [case["id"] for case in cases]:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Pins] = {}
    for number, row in enumerate(ended):
        report = root / str(number) / "report.json"
        if (row["status"] == 0) != report.exists():
            raise RuntimeError(f"{row['id']}: pip ends with {row['status']}")
        found[row["id"]] = pins_of_report(report) if report.exists() else None
    return found


def pins_of_report(report: Path) -> dict[str, str]:
    """Return the pins of a report of pip."""
    packages = [row["metadata"] for row in json.loads(report.read_text())["install"]]
    names = [row["name"].lower().replace(".", "-").replace("_", "-") for row in packages]
    return dict(zip(names, [row["version"] for row in packages], strict=True))


def pins_of_uv(case: Case, server: IndexServer, folder: Path) -> Pins:
    """Return the pins of `uv pip compile`."""
    target = case.get("target", {})
    arguments = [*UV.split(), "--python", sys.executable, "--index-url", server.url]
    arguments += put(case, server, folder)[1:]
    if target:
        platform = UV_PLATFORMS[target.get("platform", "linux-x86_64")]
        glibc = target.get("glibc", "2.28").replace(".", "_")
        arguments += ["--python-version", target["python"]]
        arguments += ["--python-platform", platform.format(glibc)]
    for name in case.get("no_build", ()):
        arguments += ["--only-binary", name]
    arguments += ["--prerelease", "allow" if case.get("pre") else "if-necessary-or-explicit"]
    command = [find_uv_bin(), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    lines = [line.partition(" ;")[0].strip() for line in done.stdout.splitlines()]
    pins = dict(line.split("==") for line in lines if line[:1].isalnum() and "==" in line)
    for line in lines:
        name, _, url = line.partition(" @ ")
        if url:
            pins[name] = url.rpartition("/")[2].split("-")[1].removesuffix(".tar.gz")
    return {name.partition("[")[0]: version for name, version in pins.items()}


def ask_uv(cases: Sequence[Case], servers: Sequence[IndexServer], root: Path) -> dict[str, Pins]:
    """Return the pins of each case, by its id."""
    pairs = enumerate(zip(cases, servers, strict=True))
    return {case["id"]: pins_of_uv(case, one, root / str(number)) for number, (case, one) in pairs}


def compare_cases(cases: Sequence[Case], tool: str, root: Path) -> list[str]:
    """Return the cases for which a tool gives other pins than it should."""
    with ExitStack() as stack:
        servers: dict[str, IndexServer] = {}  # one for each universe
        for case in cases:
            key = json.dumps(case["packages"])
            if key not in servers:
                servers[key] = stack.enter_context(IndexServer())
                serve(servers[key], packages_at(case, f"{servers[key].base}/files/"))
        chosen = [servers[json.dumps(case["packages"])] for case in cases]
        pins = (ask_pip if tool == "pip" else ask_uv)(cases, chosen, root / tool)
    return [
        case["id"] for case in cases if (pins[case["id"]] == case.get("pins")) == (tool in case)
    ]


def made(random: Random) -> Case:
    """A universe and a request. No release asks for its own package: pip goes in circles there."""
    names = "abcdef"[: random.randint(3, 6)]

    def need(others: Sequence[str]) -> str:
        extra = random.choice(["", "", "", "", "[x]"])
        return random.choice(others) + extra + random.choice(RANGES)

    def release(name: str) -> dict[str, Any]:
        others = [other for other in names if other != name]
        count = random.choice([0, 0, 1, 1, 2, 3])
        requires = [need(others) + random.choice(["", "", ' ; extra == "x"']) for _ in range(count)]
        return {"requires": requires} | ({"yanked": True} if random.random() < 0.08 else {})

    def releases(name: str) -> Mapping[str, Any]:
        some = random.sample(["1.0", "1.1", "2.0", "2.1a1", "3.0"], random.randint(1, 5))
        return {version: release(name) for version in sorted(some)}

    packages = {name: releases(name) for name in names}
    requires = sorted({need(names) for _ in range(random.randint(1, 3))})
    return {"packages": packages, "requires": requires}


def own_pins(case: Case) -> Pins:
    """Return the pins of gpuenv."""
    try:
        return versions(solved(case))
    except NoSolutionError:
        return None


def is_worse(case: Case, theirs: Pins, own: Pins) -> bool:
    """Whether other pins than pip's are wrong.

    Which of two packages gives way is told by the order of the choices, which no rule fixes: one
    package must be newer than pip's. pip takes some pre-releases that nobody asked for.
    """
    if own is None:
        return theirs is not None and not any(
            Version(text).is_prerelease for text in theirs.values()
        )
    if theirs is None or faults(case["packages"], own, case["requires"], []):
        return True
    return not any(Version(own[name]) > Version(theirs[name]) for name in {*own} & {*theirs})


def compare_made(cases: Sequence[Case], root: Path) -> dict[str, int]:
    """Count the made universes that pip resolves otherwise, and where gpuenv's pins are worse."""
    with ExitStack() as stack:
        servers = [stack.enter_context(IndexServer()) for _ in cases]
        for case, server in zip(cases, servers, strict=True):
            serve(server, case["packages"])
        by_pip = ask_pip(cases, servers, root)
    found = [(case, by_pip[case["id"]], own_pins(case)) for case in cases]
    other = [row for row in found if row[1] != row[2]]
    return {
        "universes": len(cases),
        "with a solution": sum(own is not None for _, _, own in found),
        "other pins": len(other),
        "worse pins": sum(is_worse(*row) for row in other),
    }


def compare(cases: int, number_made: int) -> dict[str, Any]:
    """Compare with pip and uv.

    Args:
        cases: How many cases of tests/data/resolution each tool resolves; 0: all.
        number_made: How many universes are made by chance.
    """
    of_tool = {"pip": [case for case in CASES if "target" not in case], "uv": CASES}
    if cases:  # some of each file, whose cases stand together
        of_tool = {tool: some[:: len(some) // cases] for tool, some in of_tool.items()}
    random = Random(20)  # noqa: S311  no secret
    universes = [{"id": str(number), **made(random)} for number in range(number_made)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        differences = {tool: compare_cases(some, tool, root) for tool, some in of_tool.items()}
        return {
            "versions": {name: version(name) for name in ("pip", "uv")},
            "digest of the cases": digest_of_cases(),
            "cases": {tool: len(some) for tool, some in of_tool.items()},
            "differences": differences,
            "made by chance": compare_made(universes, root / "made"),
        }


def main(words: list[str]) -> int:
    """Compare, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=0, help="compare as many cases; 0: all")
    parser.add_argument("--made", type=int, default=200, help="make as many universes")
    parser.add_argument("--record")
    options = parser.parse_args(words)
    result = compare(options.cases, options.made)
    write_record(result, options.record)
    return int(any(result["differences"].values()) or result["made by chance"]["worse pins"] > 0)
