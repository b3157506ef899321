"""Existing environments and a real conda: its solver and its transaction, without py-rattler."""

import json
from pathlib import Path

import pytest

from conda_prefixes import CASES, SOLVES, expected_packages
from gpuenv.requirements import conda_versions
from tables import cases

# Runs cases in conda's own interpreter: makes the prefix, installs, and writes what came of it.
RUN = """
import contextlib, io, json, os, sys
from pathlib import Path
sys.path.append(sys.argv[2])
import conda_prefixes
from gpuenv.cli import main
from gpuenv.install import conda, conda_history
from gpuenv.prefix import conda_packages
from gpuenv.resolve.conda import solvers

job = json.load(open(sys.argv[1]))
rows, answers = job["rows"], {}
for number, case in enumerate(job["cases"]):
    folder = Path(job["folder"], str(number))
    folder.mkdir(parents=True)
    target, lock = folder / "prefix", folder / "explicit.txt"
    conda.run_transaction(str(target), [rows[name] for name in case["installed"]])
    conda_prefixes.describe(target, case, rows)
    os.environ.update(case.get("environment", {}))
    if "condarc" in case:
        (folder / "my.yml").write_text(
            case["condarc"] if "channels" in case["condarc"] else job["condarc"] + case["condarc"]
        )
        os.environ["CONDARC"] = str(folder / "my.yml")
    if "lock" in case:
        conda_prefixes.make_lock(lock, case["lock"], rows)
        command = ["sync", str(lock)]
    else:
        command = ["install", "--backend", "conda", "--channel", job["channel"], *case["install"]]
        command += ["-o", str(folder / "lock.txt")]
    command += ["--target", str(target), *conda_prefixes.HOST.split(), "--no-verify"]
    files, output = conda_prefixes.contents(target), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = main([*command, *(["--exact"] if case.get("exact") else [])])
    after = conda_prefixes.contents(target)
    answers[case["name"]] = {
        "status": status,
        "output": output.getvalue(),
        "packages": sorted(conda_prefixes.packages_in(target)),
        "files": sorted(after),
        "unchanged": after == files,
        "history": (target / "conda-meta" / "history").read_text(),
        "requests": conda_history.requested_specs(str(target), conda_packages(str(target))),
    }
    for name in case.get("environment", {}):
        del os.environ[name]
    os.environ["CONDARC"] = job["CONDARC"]
print(json.dumps(answers))
"""
ALL = [*CASES, *SOLVES]


@pytest.fixture(scope="module")
def answers(conda, conda_rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    job = {
        "rows": conda_rows,
        "cases": ALL,
        "channel": conda_rows["openssl 3.0.7"]["channel"],
        "folder": str(folder),
        "CONDARC": conda.env["CONDARC"],
        "condarc": Path(conda.env["CONDARC"]).read_text(),
    }
    (folder / "job.json").write_text(json.dumps(job))
    tests = str(Path(__file__).parent)
    done = conda.python_runs(RUN, str(folder / "job.json"), tests)
    return json.loads(done.stdout.splitlines()[-1])


@cases(ALL)
def test_conda_itself_installs_into_an_environment(case, answers):
    answer, status = answers[case["name"]], case.get("status", 0)
    assert answer["status"] == status, answer["output"]
    if "lock" in case:  # each solver has its own words for a refusal
        assert not [
            text
            for text in (said.replace("my.condarc", "my.yml") for said in case.get("says", ()))
            if text not in answer["output"]
        ]
    assert set(answer["packages"]) == expected_packages(case)
    assert set(case.get("files", ())) <= set(answer["files"])
    if status:
        assert answer["unchanged"]
    # One revision made the environment, and at most one more is of the installation. If conda
    # installs the same build again, it writes one without packages, and gpuenv one that has them.
    assert answer["history"].count("==> ") <= (3 if case.get("unhashed") else 2)
    for name, spec in case.get("specs", {}).items():  # conda has its own spelling of a spec
        assert conda_versions.split(answer["requests"][name]) == conda_versions.split(spec)
