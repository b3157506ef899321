"""Test gpuenv with conda environments, by py-rattler and by real condas.

    python scripts/tools.py prove conda environments [--conda EXE ...] [--record FILE]
    python scripts/tools.py prove conda solves --records FILE ... [--conda EXE ...] [--record FILE]
    python scripts/tools.py prove conda scenarios --conda EXE ... [--record FILE]

`environments` runs the environments of tests/data/conda_users.toml through install, sync, repair
and rollback, by py-rattler and by each conda, and in a conda also through `conda doctor --fix` and
through a transaction that the strict check refuses. No step may remove or change
anything that its output does not name.

`scenarios` runs what users do (tests/data/conda_scenarios.toml) in each conda, by each solver that
it has. The settings name the solver. Tests run those by py-rattler that need no conda.

`solves` solves 20 sets of packages for 20 hosts with gpuenv, with rattler alone and with each conda
alone, on a channel of recorded repodata (a list of records). tests/raw_facts.py, which shares no
code with gpuenv, decides what is right: each build must run on every device, and no newer build
that runs may have a closure. `tools.py bench conda` measures the times.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import conda_channel
import conda_prefixes
import conda_scenarios
import conda_stand_in
import raw_facts
from common import ROOT
from gpuenv import api
from gpuenv.api.conda import solve_with
from gpuenv.compat.conda_records import Record, Virtual
from gpuenv.errors import NoSolutionError, Reason
from gpuenv.model import Host, Request
from gpuenv.requirements import conda_versions
from gpuenv.resolve.conda import solvers, virtual_packages
from gpuenv.resolve.conda.solvers import RefusedError, Solver
from prove import conda_users

TESTS = ROOT / "tests"


Answers = dict[str, dict[str, Any]]
CODE = json.loads((ROOT / "matrix_data" / "conda" / "carriers.json").read_text())["code"]


# ---- solves --------------------------------------------------------------------------------------

SOLVES = tomllib.loads((TESTS / "data" / "conda_solves.toml").read_text(encoding="utf-8"))
HOSTS: list[tuple[list[str], str]] = SOLVES["hosts"]
SETS: list[list[str]] = SOLVES["sets"]
CARRIERS = {"pytorch": "pytorch", "cupy": "cupy", "onnxruntime": "onnxruntime"}
CARRIERS |= {"tensorflow": "tensorflow-base", "jax": "jaxlib", "jaxlib": "jaxlib"}


class Oracle:
    """Decides from raw facts alone what a host can run."""

    def __init__(self, host: Host, rows: Sequence[Record]) -> None:
        self.capabilities = [gpu.compute_capability for gpu in host.gpus]
        self.driver = host.driver
        self.rows = rows

    def is_served(self) -> bool:
        """Return whether the driver supports every device (R7, R9)."""
        driver = self.driver or ""
        return not any(
            raw_facts.dropped(capability, driver) or raw_facts.too_new(capability, driver)
            for capability in self.capabilities
        )

    def runs(self, record: Record) -> bool | None:
        """Return whether a record can run; None if its device code is not known."""
        name, cuda = record["name"], cuda_of(record)
        if name == "cuda-version":
            cuda = raw_facts.pair(record["version"])
        if not self.capabilities:
            return name not in CARRIERS.values() or cuda is None
        if cuda is None:
            # A CPU build, or a package such as cuDNN, which is of no use to a GPU without a driver.
            return name not in CARRIERS.values() and self.is_served()
        if not self.is_served() or str(cuda[0]) not in raw_facts.majors_of(self.driver):
            return False
        if name in CARRIERS.values():
            return self._code_runs(code_of(record, cuda))
        return True

    def _code_runs(self, row: Mapping[str, Any] | None) -> bool | None:
        if row is None or row["sass"] is None:
            return None
        return all(self._serves(row, capability) for capability in self.capabilities)

    def _serves(self, row: Mapping[str, Any], capability: tuple[int, int]) -> bool:
        if any(raw_facts.sass_runs(target, capability) for target in row["sass"]):
            return True
        made_by = row.get("made_by") or row["cuda"].partition(",")[0].removeprefix(">=")
        reached = any(raw_facts.ptx_reaches(target, capability) for target in row["ptx"] or ())
        return reached and raw_facts.driver_cuda(self.driver) >= raw_facts.pair(made_by)

    def wrong_cudnn(self, records: Sequence[Record]) -> list[str]:
        """Return the cuDNN of a closure that a device cannot use."""
        majors = [cuda_of(row) for row in records if row["name"] in CARRIERS.values()]
        majors += [raw_facts.pair(r["version"]) for r in records if r["name"] == "cuda-version"]
        wrong = []
        for record in records:
            if record["name"] not in ("cudnn", "libcudnn"):
                continue
            for major in {pair[0] for pair in majors if pair}:
                wheel, version = f"nvidia-cudnn-cu{major}", record["version"]
                wrong += [
                    f"{record['name']} {version}"
                    for capability in self.capabilities
                    if raw_facts.serves(wheel, version, capability, (major, 0)) is None
                ]
        return wrong


def cuda_of(record: Record) -> tuple[int, int] | None:
    """Return the CUDA version that the build string or the cuda-version dependency names."""
    match = re.search(r"cuda_?(\d{2})\.?(\d)", record["build"])
    if match is None:
        needs = " ".join(spec for spec in record["depends"] if spec.startswith("cuda-version "))
        match = re.search(r"(\d{2})(?:\.(\d+))?", needs)
    return (int(match.group(1)), int(match.group(2) or 0)) if match else None


def code_of(record: Record, cuda: tuple[int, int]) -> Mapping[str, Any] | None:
    """Return the row of the data with the device code of a record."""
    text = ".".join(map(str, cuda))
    for row in CODE:
        if row["carrier"] != record["name"] or row["channel"] != "conda-forge":
            continue
        if record["subdir"] not in row["subdirs"]:
            continue
        builds = str(row.get("builds") or "")
        number = str(record["build_number"])
        of_build = conda_versions.contains(builds, number) if builds else True
        in_range = conda_versions.contains(row["versions"], record["version"])
        if in_range and of_build and conda_versions.contains(row["cuda"], text):
            return row  # type: ignore[no-any-return]
    return None


def judge(
    oracle: Oracle, specs: Sequence[str], records: Sequence[Record] | None, solver: Solver,
    virtual: Sequence[Virtual],
) -> str:  # fmt: skip
    """Return "right", or what is wrong with a closure; None is a refusal."""
    chosen = {record["name"]: record for record in records or ()}
    if records is not None:
        wrong = [f"{row['name']} {row['version']} {row['build']}" for row in records
                 if oracle.runs(row) is False]  # fmt: skip
        wrong += oracle.wrong_cudnn(records)
        if wrong:
            return f"does not run: {', '.join(sorted(set(wrong)))}"
    for better in better_builds(oracle, specs, chosen):
        closure = closed(oracle, specs, better, solver, virtual)
        if closure is not None:
            return f"passed over: {better['name']} {better['version']} {better['build']}"
    return "right"


def better_builds(
    oracle: Oracle, specs: Sequence[str], chosen: Mapping[str, Record]
) -> list[Record]:
    """Return builds of the first package that run and are newer than the chosen one."""
    package = conda_versions.name_of(specs[0])
    name = CARRIERS.get(package, package)
    rows = [row for row in oracle.rows if row["name"] == name and oracle.runs(row)]
    if len(specs) > 1 and specs[1] in CARRIERS:
        # The two share a CUDA major: only a better build for the major of the other one counts.
        other = [row for row in oracle.rows if row["name"] == CARRIERS[specs[1]]]
        majors = {cuda_of(row)[0] for row in other if oracle.runs(row) and cuda_of(row)}
        rows = [row for row in rows if not cuda_of(row) or cuda_of(row)[0] in majors]
    if name in chosen:
        have = order_of(chosen[name])
        rows = [row for row in rows if order_of(row) > have]
    newest: dict[object, Record] = {order_of(row): row for row in rows}
    return [newest[key] for key in sorted(newest, reverse=True)]


def order_of(record: Record) -> tuple[Any, Any]:
    """Return the sort key of a build: the version, then the CUDA version."""
    return conda_versions.version(record["version"]), cuda_of(record) or (0, 0)


def closed(
    oracle: Oracle, specs: Sequence[str], build: Record, solver: Solver,
    virtual: Sequence[Virtual],
) -> Sequence[Record] | None:  # fmt: skip
    """Return a closure of a build that runs on the host; None if there is none."""
    exact = f"{build['name']} =={build['version']} {build['build']}"
    limits: list[str] = []
    for _ in range(30):
        try:
            records = solver.solve([*specs, exact], limits, virtual)
        except RefusedError:
            return None
        wrong = [f"{r['name']} !={r['version']}" for r in records if oracle.runs(r) is False]
        wrong += [" !=".join(text.split()) for text in oracle.wrong_cudnn(records)]
        if not wrong:
            return records
        limits += [text.replace(" !=", "!=").replace("!=", " !=") for text in set(wrong)]
    return None


def read_rows(path: Path) -> list[Record]:
    """Return the records of a file: a list of them, or a repodata.json."""
    document = json.loads(path.read_text())
    if isinstance(document, list):
        return document
    return [*document["packages"].values(), *document["packages.conda"].values()]


def make_repodata(folder: Path, paths: Sequence[Path]) -> list[Record]:
    """Write the repodata of a channel from recorded records and those of the tests."""
    rows = [row for path in paths for row in read_rows(path)] + conda_channel.records()
    text = conda_channel.RECORDS.with_name("conda_carriers.json").read_text()
    rows += json.loads(text)["records"]
    by_file: dict[tuple[str, str], Record] = {}
    for row in rows:
        if row["subdir"] in ("linux-64", "noarch"):
            file = f"{row['name']}-{row['version']}-{row['build']}.conda"
            blank = {"md5": None, "sha256": "0" * 64, "size": 1, "build_number": 0}
            features = " ".join(row.get("track_features") or ())
            by_file[row["subdir"], file] = {**blank, **row, "track_features": features}
    for subdir in ("linux-64", "noarch"):
        packages = {file: row for (where, file), row in by_file.items() if where == subdir}
        about = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": packages}
        (folder / subdir).mkdir(parents=True)
        (folder / subdir / "repodata.json").write_text(json.dumps(about))
    return list(by_file.values())


def host_of(gpus: Sequence[str], driver: str) -> Host:
    """Return a host of the table."""
    return api.describe(
        gpus=gpus, driver=driver or None, python="3.12", platform="linux-x86_64", glibc="2.35"
    )


def prove_solves(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the record of all solves."""
    channel = folder / "channel"
    rows = make_repodata(channel, arguments.records)
    solver = solvers.RattlerSolver([channel.as_uri()], ["linux-64", "noarch"])
    theirs = {}
    for executable in arguments.conda:
        name, closures = conda_closures(executable, folder, channel.as_uri())
        theirs[name] = closures
    counts = {name: Counter() for name in ("gpuenv", "rattler", *theirs)}
    wrong, codes = [], Counter()
    with solver:
        for number, (gpus, driver) in enumerate(HOSTS):
            host = host_of(gpus, driver)
            oracle, virtual = Oracle(host, rows), virtual_packages.of_host(host)
            for place, specs in enumerate(SETS):
                closure, reasons = gpuenv_closure(solver, specs, host)
                verdict = judge(oracle, specs, closure, solver, virtual)
                if closure is None:
                    codes.update({reason.code for reason in reasons})
                    if not reasons:
                        verdict = "refused without a reason"
                counts["gpuenv"][kind_of(verdict, closure)] += 1
                if verdict != "right":
                    wrong.append(f"{'+'.join(gpus)} {driver}: {', '.join(specs)}: {verdict}")
                alone = rattler_closure(solver, specs, virtual)
                verdict = judge(oracle, specs, alone, solver, virtual)
                counts["rattler"][kind_of(verdict, alone)] += 1
                for name, closures in theirs.items():
                    other = closures[number][place]
                    verdict = judge(oracle, specs, other, solver, virtual)
                    counts[name][kind_of(verdict, other)] += 1
            print(gpus, driver, {name: dict(count) for name, count in counts.items()}, flush=True)
    return {
        "records": len(rows),
        "solves": len(HOSTS) * len(SETS),
        "answers": {name: dict(count) for name, count in counts.items()},
        "codes of refusals": dict(codes),
        "lost": wrong,
    }


def kind_of(verdict: str, closure: object) -> str:
    """Return the kind of an answer, for the counts."""
    kind = "refused" if closure is None else "solved"
    return f"{kind}, {verdict.partition(':')[0]}"


def gpuenv_closure(
    solver: Solver, specs: Sequence[str], host: Host
) -> tuple[list[Record] | None, Sequence[Reason]]:
    """Return gpuenv's closure, or None and the reasons of its refusal."""
    try:
        plan = solve_with(solver, Request(requirements=tuple(specs)), host, changes=False)
    except NoSolutionError as error:
        return None, error.explanation.reasons
    return [
        {"name": pin.wheel.name, "version": pin.wheel.version, **pin.wheel.metadata}
        for pin in plan.pins
    ], ()


def rattler_closure(
    solver: Solver, specs: Sequence[str], virtual: Sequence[Virtual]
) -> Sequence[Record] | None:
    """Return the closure of rattler alone; None if it refuses."""
    try:
        return solver.solve(specs, [], virtual)
    except RefusedError:
        return None


CONDA_ALONE = """
import json, sys
from gpuenv.resolve.conda import solvers
job = json.load(open(sys.argv[1]))
solver = solvers.open_solver([job["channel"]], ["linux-64", "noarch"])
answers = []
for virtual in job["hosts"]:
    answers.append([])
    for specs in job["sets"]:
        try:
            answers[-1].append(solver.solve(specs, [], [tuple(one) for one in virtual]))
        except solvers.RefusedError:
            answers[-1].append(None)
json.dump(answers, open(sys.argv[2], "w"))
"""


def conda_closures(
    executable: str, folder: Path, channel: str
) -> tuple[str, list[list[list[Record] | None]]]:
    """Return the name of a conda and its solver, and its closures alone by host and set."""
    own = Path(tempfile.mkdtemp(dir=folder))
    conda = conda_stand_in.Conda(executable, own)
    hosts = [virtual_packages.of_host(host_of(*host)) for host in HOSTS]
    job, answer = own / "job.json", own / "answer.json"
    job.write_text(json.dumps({"channel": channel, "hosts": hosts, "sets": SETS}))
    done = conda.python_runs(CONDA_ALONE, str(job), str(answer), timeout=3000)
    if done.returncode:
        raise SystemExit(done.stderr)
    return f"conda {conda.info['conda_version']}, {conda.solver}", json.loads(answer.read_text())


# ---- environments --------------------------------------------------------------------------------


def make_job(folder: Path) -> dict[str, Any]:
    """Make the channels, and return what the trials need."""
    channels = []
    for table in ("packages", "elsewhere"):
        rows = [conda_prefixes.row_of(package) for package in conda_prefixes.DATA[table]]
        channels.append(folder / table)
        conda_channel.make(channels[-1], rows)
    return {
        "rows": conda_prefixes.rows_of(channels),
        "cases": conda_users.USERS,
        "channel": channels[0].as_uri(),
        "condarc": "",
        "CONDARC": "",
    }


def with_rattler(job: dict[str, Any], folder: Path) -> Answers:
    """Run the environments by py-rattler in this interpreter."""
    with solvers.RattlerSolver((), ("linux-64", "noarch")) as solver:
        install = partial(solver.install, subdir="linux-64")
        return conda_users.run_all({**job, "folder": str(folder)}, install)


def with_conda(job: dict[str, Any], folder: Path, conda: conda_stand_in.Conda) -> Answers:
    """Run the environments by a conda, its doctor and its transactions."""
    settings = Path(conda.env["CONDARC"])
    text = settings.read_text().replace(f"file://{conda.folder}/channel", job["channel"])
    settings.write_text(text)
    job = {**job, "folder": str(folder), "condarc": text, "CONDARC": str(settings)}
    (folder / "job.json").write_text(json.dumps(job))
    conda.env["PYTHONPATH"] += f"{os.pathsep}{TESTS}{os.pathsep}{ROOT / 'scripts'}"
    code = "import sys; from prove import conda_users; conda_users.run_job(sys.argv[1])"
    done = conda.python_runs(code, str(folder / "job.json"), timeout=3000)
    if done.returncode:
        raise SystemExit(done.stderr)
    answers: Answers = json.loads(done.stdout.splitlines()[-1])
    for number, case in enumerate(job["cases"]):
        target = folder / str(number) / case.get("path", "prefix")
        answers[case["name"]] |= conda_steps(conda, target)
    return answers


def conda_steps(conda: conda_stand_in.Conda, target: Path) -> Answers:
    """Let conda repair an environment, and refuse an installation into it."""
    steps = {}
    driver = {"CONDA_OVERRIDE_CUDA": "12.8", "CONDA_OVERRIDE_CUDA_ARCH": "9.0"}
    strict = {**driver, "CONDA_PLUGINS_GPUENV_VERIFY": "strict"}
    commands = {
        "doctor": (["doctor", "--prefix", str(target), "--fix", "gpuenv"], driver),
        "strict": (["install", "--yes", "--prefix", str(target), "cuda-version=13.0"], strict),
    }
    for step, (command, variables) in commands.items():
        before = conda_users.State(target)
        done = conda.run(*command, typed="y\n", **variables)
        output = done.stdout + done.stderr
        after = conda_users.State(target)
        # If the check refuses nothing, what changed is the work of conda.
        is_own = step == "strict" and done.returncode == 0
        losses = conda_users.lost(before, after, done.returncode, output, set())
        last = output.splitlines()[-1:]
        lost = [] if is_own else losses
        steps[step] = {"status": done.returncode, "lost": lost, "output": last}
    return steps


def prove_environments(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the record of all engines."""
    job = make_job(folder)
    engines = {}
    for executable in arguments.conda:
        own = folder / f"conda-{len(engines)}"
        (own / "cases").mkdir(parents=True)
        conda = conda_stand_in.Conda(executable, own)
        name = f"conda {conda.info['conda_version']}, {conda.solver}"
        engines[name] = with_conda(job, own / "cases", conda)
    own = folder / "py-rattler"
    own.mkdir()
    engines["py-rattler"] = with_rattler(job, own)
    return {
        "environments": len(job["cases"]),
        "engines": {name: summary(answers) for name, answers in engines.items()},
        "lost": [
            f"{engine}: {environment}: {step}: {'; '.join(answer['lost'])}"
            for engine, answers in engines.items()
            for environment, steps in answers.items()
            for step, answer in steps.items()
            if answer["lost"]
        ],
    }


def prove_scenarios(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the record of all scenarios; what is not right counts as lost."""
    channels = conda_scenarios.make_channels(folder)
    right: dict[str, int] = {}
    lost = []
    for executable in arguments.conda:
        own = folder / f"conda-{len(right)}"
        own.mkdir()
        conda = conda_stand_in.Conda(executable, own)
        run = partial(run_in_conda, conda)
        for solver in conda.solvers():
            engine, wrong = f"conda {conda.info['conda_version']}, {solver}", []
            for number, scenario in enumerate(conda_scenarios.SCENARIOS):
                place = own / f"{solver}-{number}"
                place.mkdir()
                text = conda_scenarios.play(scenario, place, channels, run, solver)
                if text:
                    wrong.append(f"{engine}: {scenario['name']}: {text}")
            right[engine] = len(conda_scenarios.SCENARIOS) - len(wrong)
            lost += wrong
    return {"scenarios": len(conda_scenarios.SCENARIOS), "right": right, "lost": lost}


def run_in_conda(
    conda: conda_stand_in.Conda, words: list[str], folder: Path, env: Mapping[str, str]
) -> tuple[int, str]:
    """Run `conda gpuenv` with these words; its status and all that it printed."""
    done = subprocess.run(
        [conda.executable, "gpuenv", *words],
        cwd=folder,
        env={**conda.env, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def summary(answers: Answers) -> dict[str, dict[str, int]]:
    """Return {environment: {step: exit status}}."""
    return {
        environment: {step: answer["status"] for step, answer in steps.items()}
        for environment, steps in answers.items()
    }


PROOFS = {
    "environments": prove_environments,
    "solves": prove_solves,
    "scenarios": prove_scenarios,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the proof, the condas and the records."""
    parser.add_argument("proof", choices=[*PROOFS])
    parser.add_argument("--records", metavar="FILE", type=Path, nargs="+", help="recorded records")
    parser.add_argument("--conda", action="append", default=[], metavar="EXE")


def prove(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run a proof. What was lost is a fault."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["GPUENV_CACHE_DIR"] = str(Path(name) / "cache")
        os.environ["RATTLER_CACHE_DIR"] = str(Path(name) / "rattler")
        record = PROOFS[arguments.proof](arguments, Path(name))
    return record, record["lost"]
