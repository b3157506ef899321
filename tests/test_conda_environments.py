"""Installations into existing conda environments remove only what the user asked to remove."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import conda_prefixes
from conda_prefixes import (
    CASES,
    DATA,
    HOST,
    REPAIRS,
    SOLVES,
    Rows,
    change_record,
    contents,
    make_lock,
    packages_in,
)
from gpuenv import api
from gpuenv.cli import main
from gpuenv.index import urls
from gpuenv.install import conda_history, conda_prefix
from gpuenv.lock import conda_formats
from gpuenv.resolve.conda import solvers
from script_modules import load_script
from tables import cases, data_file

conda_users = load_script("prove.conda_users")

pytestmark = pytest.mark.usefixtures("one_rattler")


MakePrefix = Callable[[Path, dict[str, Any]], None]


@pytest.fixture(scope="module")
def make_prefix(conda_rows: Rows) -> MakePrefix:
    """Return make_prefix(target, case), which makes an environment as another tool leaves it."""

    def make(target: Path, case: dict[str, Any]) -> None:
        records = [conda_rows[name] for name in case["installed"]]
        with solvers.RattlerSolver((), ("linux-64", "noarch")) as solver:
            solver.install(str(target), records, "linux-64")
        conda_prefixes.describe(target, case, conda_rows)

    return make


def requests_in(target: Path) -> dict[str, str]:
    return conda_history.requested_specs(str(target), conda_prefix.read_packages(str(target)))


Prepare = Callable[[dict[str, Any]], Path]


@pytest.fixture
def prepare(make_prefix: MakePrefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Return prepare(case), which makes the environment of a case, its .condarc and variables."""

    def make(case: dict[str, Any]) -> Path:
        target = tmp_path / "prefix"
        make_prefix(target, case)
        for name, value in case.get("environment", {}).items():
            monkeypatch.setenv(name, value)
        if "condarc" in case:
            (tmp_path / "my.condarc").write_text(case["condarc"])
            monkeypatch.setenv("CONDARC", str(tmp_path / "my.condarc"))
        return target

    return make


@cases(SOLVES)
def test_a_solve_into_an_environment(
    case: dict[str, Any],
    conda_rows: Rows,
    prepare: Prepare,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = prepare(case)
    channel = conda_rows["openssl 3.0.7"]["channel"]
    command = ["install", "--backend", "conda", "--channel", channel, *case["install"]]
    install(case, target, [*command, "-o", str(tmp_path / "lock.txt")], capsys)
    specs = requests_in(target)
    assert case.get("specs", {}).items() <= specs.items()


@cases(CASES)
def test_an_installation_into_an_environment(
    case: dict[str, Any],
    conda_rows: Rows,
    prepare: Prepare,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target, lock = prepare(case), tmp_path / "explicit.txt"
    make_lock(lock, case["lock"], conda_rows)
    install(case, target, ["sync", str(lock)], capsys)


@cases(REPAIRS)
def test_a_repair(
    case: dict[str, Any],
    conda_rows: Rows,
    make_prefix: MakePrefix,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target, lock = tmp_path / "prefix", tmp_path / "lock.txt"
    make_prefix(target, case)
    before, files = requests_in(target), contents(target)
    command = [
        "solve",
        "--repair",
        str(target),
        "--channel",
        conda_rows["openssl 3.0.7"]["channel"],
    ]
    status = main([*command, "-o", str(lock), *HOST])
    captured = capsys.readouterr()
    output = captured.out + captured.err
    assert status == case.get("status", 0), output
    assert not [text for text in case.get("says", ()) if text not in output], output
    assert contents(target) == files
    if status == 0:
        install(case, target, ["sync", str(lock), "--yes"], capsys)
        assert requests_in(target) == before


def install(
    case: dict[str, Any],
    target: Path,
    command: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run a command on the prefix of a case, and compare what is there before and after."""
    before, files = packages_in(target), contents(target)
    assert before == set(case["installed"])
    more = ["--exact"] if case.get("exact") else []
    status = main([*command, "--target", str(target), *HOST, "--no-verify", *more])
    captured = capsys.readouterr()
    assert status == case.get("status", 0), captured.out + captured.err
    output = captured.out + captured.err
    assert not [text for text in case.get("says", ()) if text not in output], output
    came = {text[1:] for text in case.get("after", ()) if text[0] == "+"}
    gone = {text[1:] for text in case.get("after", ()) if text[0] == "-"}
    if "wheels-after" in case:
        names = [distribution.name for distribution in conda_prefix.wheels_in(str(target))]
        assert names == case["wheels-after"]
    assert packages_in(target) == (before - gone) | came
    assert not [name for name in case.get("files", ()) if not (target / name).exists()]
    if case.get("status", 0):
        assert contents(target) == files
    else:
        moved = {"python", "requests", *case.get("unhashed", ())}
        names = {package.split()[0] for package in before - gone} - moved
        stand_ins = [f"share/stand-ins/{name}" for name in names]
        assert not [name for name in stand_ins if contents(target).get(name) != files[name]]


def test_records_are_complete(conda_rows: Rows, tmp_path: Path) -> None:
    """An @EXPLICIT file has no dependencies: the packages themselves have them."""
    lock, target = tmp_path / "explicit.txt", tmp_path / "prefix"
    names = ["python 3.12.1", "openssl 3.0.7", "strict 1.0", "requests 2.32.0"]
    make_lock(lock, names, conda_rows)
    assert main(["sync", str(lock), "--target", str(target), *HOST, "--no-verify"]) == 0
    records = conda_prefix.read_packages(str(target))
    assert records["python"]["depends"] == DATA["packages"]["python 3.12.1"]
    assert records["strict"]["constrains"] == DATA["constrains"]["strict 1.0"]
    assert records["requests"]["noarch"] == "python"
    make_lock(lock, ["openssl 1.1.1"], conda_rows)
    assert main(["sync", str(lock), "--target", str(target), *HOST, "--no-verify"]) == 1


def test_an_environment_that_cannot_be_written_to(
    conda_rows: Rows,
    make_prefix: MakePrefix,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, target = tmp_path / "explicit.txt", tmp_path / "prefix"
    make_prefix(target, ADDITION)
    make_lock(lock, ADDITION["lock"], conda_rows)
    before = contents(target)
    (target / "conda-meta").chmod(0o555)
    if os.geteuid() == 0:  # root may write everywhere
        monkeypatch.setattr("os.access", lambda *_: False)
    assert main(["sync", str(lock), "--target", str(target), *HOST, "--no-verify"]) == 2
    (target / "conda-meta").chmod(0o755)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--target {target}: cannot be written to" in line
    assert contents(target) == before


# ---- the question --------------------------------------------------------------------------------

ADDITION = {"installed": ["curl 8.9.0", "openssl 3.0.7"], "lock": ["libcudnn 9.11.0"]}
# name -> (the prefix and the lock, flags, what the user types, exit status, whether gpuenv asks)
ANSWERS = data_file("tables/conda_environments.json")["answers"]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_terminal_is_asked_before_packages_change(
    name: str,
    conda_rows: Rows,
    prepare: Prepare,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case, flags, answer, status, asks = ANSWERS[name]
    target = prepare(case)
    lock = target.with_name("explicit.txt")
    make_lock(lock, case["lock"], conda_rows)
    before = contents(target)
    controller, terminal = os.openpty()
    os.write(controller, answer.encode())
    command = ["sync", str(lock), "--target", str(target), *HOST, "--no-verify", *flags]
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert main(command) == status
    os.close(controller)
    captured = capsys.readouterr()
    assert ("Proceed? [y/N]" in captured.err) is asks
    assert "to add" in (captured.err if "--json" in flags else captured.out)
    assert (contents(target) == before) is (status != 0)


# ---- the history ---------------------------------------------------------------------------------


def history_of(target: Path) -> list[str]:
    """Return the lines of the history, without the times."""
    text = (target / "conda-meta" / "history").read_text()
    return re.sub(r"==> \d{4}-\d\d-\d\d \d\d:\d\d:\d\d <==", "==>", text).splitlines()


def test_the_history_has_what_was_requested(
    conda_rows: Rows, make_prefix: MakePrefix, tmp_path: Path
) -> None:
    target, lock = tmp_path / "prefix", tmp_path / "lock.txt"
    make_prefix(target, {"installed": ["openssl 3.0.7", "strict 1.0"], "history": ["strict"]})
    before = history_of(target)
    channel = conda_rows["openssl 3.0.7"]["channel"]
    more = ["--target", str(target), *HOST, "--no-verify"]
    command = ["install", "--backend", "conda", "--channel", channel, "-o", str(lock), *more]
    assert main([*command, "openssl>=3.5"]) == 0
    first = [
        "==>",
        "# cmd: gpuenv sync",
        f"-{channel}/linux-64::openssl-3.0.7-h0_0",
        f"+{channel}/linux-64::openssl-3.5.0-h0_0",
        "# update specs: ['openssl >=3.5']",
    ]
    assert history_of(target) == [*before, *first]
    assert main(["sync", str(lock), *more]) == 0
    assert history_of(target) == [*before, *first]
    assert main(["sync", str(lock), *more, "--exact"]) == 0
    second = ["==>", "# cmd: gpuenv sync", f"-{channel}/linux-64::strict-1.0-h0_0"]
    assert history_of(target) == [*before, *first, *second, "# remove specs: ['strict']"]
    assert requests_in(target) == {"openssl": "openssl >=3.5"}


# ---- tokens and passwords ------------------------------------------------------------------------

SECRETS = {
    "https://conda.example/t/my-secret/mine/linux-64": "https://conda.example/mine/linux-64",
    "https://ann:my-secret@conda.example/mine": "https://conda.example/mine",
    "https://conda.example/t/mine": "https://conda.example/t/mine",
    "file:///t/mine/linux-64": "file:///t/mine/linux-64",
}


@pytest.mark.parametrize("url", SECRETS)
def test_a_url_without_its_credentials(url: str) -> None:
    assert urls.without_credentials(url) == SECRETS[url]


@pytest.mark.parametrize("form", conda_formats.FORMATS)
def test_a_token_of_an_installed_package_does_not_reach_a_lock(
    form: str, conda_rows: Rows, make_prefix: MakePrefix, tmp_path: Path
) -> None:
    target, path = tmp_path / "prefix", tmp_path / conda_formats.FORMATS[form]
    make_prefix(target, {"installed": ["openssl 3.0.7"]})
    channel = "https://ann:my-secret@conda.example/t/my-secret/mine"
    url = f"{channel}/linux-64/openssl-3.0.7-h0_0.conda"
    change_record(target / "conda-meta", "openssl", url=url, channel=channel)
    (target / "conda-meta" / "history").write_text("")
    command = ["install", "--backend", "conda", "--channel", conda_rows["openssl 3.0.7"]["channel"]]
    command += ["openssl", "libcudnn", "--target", str(target), *HOST, "--no-verify", "--yes"]
    assert main([*command, "-o", str(path), "--format", form]) == 0
    text = path.read_text() + (target / "conda-meta" / "history").read_text()
    assert "https://conda.example/mine/linux-64" in text and "my-secret" not in text
    assert {pin.wheel.name for pin in api.read_lock(str(path)).pins} == {"openssl", "libcudnn"}


# ---- back to the state before --------------------------------------------------------------------


def test_a_rollback_returns_to_the_packages_before(
    conda_rows: Rows, prepare: Prepare, capsys: pytest.CaptureFixture[str]
) -> None:
    target = prepare({"installed": ["openssl 3.0.7", "curl 8.9.0"], "history": ["openssl=3.0"]})
    lock, back = target.with_name("lock.txt"), ["rollback", "--target", str(target)]
    assert main(back) == 2 and "keeps no earlier state" in capsys.readouterr().err
    command = ["install", "--backend", "conda", "--channel", conda_rows["openssl 3.0.7"]["channel"]]
    command += ["openssl>=3.5", "libcudnn", "-o", str(lock), "--target", str(target)]
    assert main([*command, *HOST, "--no-verify"]) == 0
    before, after = {"openssl 3.0.7", "curl 8.9.0"}, packages_in(target)
    installed = api.read_lock(str(lock))
    assert api.recorded_lock(str(target)) == installed
    states = ((before, "openssl=3.0", None), (after, "openssl >=3.5", installed))
    for packages, openssl, recorded in states:
        assert main(back) == 0
        assert packages_in(target) == packages
        assert requests_in(target)["openssl"] == openssl
        assert api.recorded_lock(str(target)) == recorded
    assert ("libcudnn" in requests_in(target)) is True
    (target / "conda-meta" / "curl-8.9.0-h0_0.json").unlink()
    assert main(back) == 2
    assert "changed since the last gpuenv sync: curl-8.9.0-h0_0" in capsys.readouterr().err


@pytest.mark.parametrize("record", [{"url": None}, {"sha256": None}])
def test_a_rollback_needs_the_file_of_each_package(
    record: dict[str, None],
    conda_rows: Rows,
    prepare: Prepare,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = prepare({"installed": ["openssl 3.0.7"]})
    change_record(target / "conda-meta", "openssl", **record)
    before = conda_history.read_state(str(target))
    (target / "conda-meta" / "openssl-3.0.7-h0_0.json").unlink()
    conda_history.remember_state(str(target), before)
    assert main(["rollback", "--target", str(target)]) == 2
    assert "openssl cannot be installed again" in capsys.readouterr().err


# ---- environments as users make them -------------------------------------------------------------

# Some of the cases of `tools.py prove conda`. The record has all of them.
TRIED = (
    "a build for CUDA 13 beside wheels and files",
    "a history that ends in the middle of a line",
)


@pytest.mark.parametrize("name", TRIED)
def test_no_step_loses_what_it_does_not_name(
    name: str, conda_rows: Rows, make_prefix: MakePrefix, tmp_path: Path
) -> None:
    (case,) = [case for case in conda_users.USERS if case["name"] == name]
    job = {"rows": conda_rows, "channel": conda_rows["openssl 3.0.7"]["channel"]}
    trial = conda_users.Trial(case, job, tmp_path)
    trial.prepare(lambda target, _: make_prefix(Path(target), {"installed": case["installed"]}))
    steps = trial.steps()
    assert [step["lost"] for step in steps.values()] == [[], [], [], []]
    assert (steps["install"]["status"], steps["rollback"]["status"]) == (0, 0)


def test_the_record_has_every_environment_and_solve() -> None:
    folder = Path(__file__).parent.parent / "docs" / "records"
    record = json.loads((folder / "conda-environments.json").read_text())
    names = {case["name"] for case in conda_users.USERS}
    assert len(record["engines"]) >= 3 and len(names) >= 30
    for environments in record["engines"].values():
        assert environments.keys() == names
        assert all(steps.keys() >= set(conda_users.STEPS) for steps in environments.values())
    assert record["lost"] == []
    solves = json.loads((folder / "conda-solves.json").read_text())
    answers = solves["answers"]["gpuenv"]
    assert answers.keys() == {"solved, right", "refused, right"}
    assert sum(answers.values()) == solves["solves"] == 400
    assert solves["lost"] == []

    assert {"conda 26.7.1, classic", "conda 26.7.1, rattler"} <= solves["answers"].keys()
