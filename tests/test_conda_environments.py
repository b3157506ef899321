"""Installations into existing conda environments remove only what the user asked to remove."""

import os
import re

import pytest

import conda_prefixes
from conda_prefixes import (
    CASES,
    DATA,
    HOST,
    REPAIRS,
    SOLVES,
    change_record,
    contents,
    make_lock,
    packages_in,
)
from gpuenv import api
from gpuenv.index import urls
from gpuenv.install import conda_history, conda_prefix
from gpuenv.lock import conda_formats
from gpuenv.resolve.conda import solvers
from processes import run_program
from script_modules import tool
from tables import cases, data_file, each

pytestmark = pytest.mark.usefixtures("one_rattler")


@pytest.fixture(scope="module")
def make_prefix(conda_rows):
    """Return make_prefix(target, case), which makes an environment as another tool leaves it."""

    def make(target, case):
        records = [conda_rows[name] for name in case["installed"]]
        with solvers.RattlerSolver((), ("linux-64", "noarch")) as solver:
            solver.install(str(target), records, "linux-64")
        conda_prefixes.describe(target, case, conda_rows)

    return make


def requests_in(target):
    return conda_history.requested_specs(str(target), conda_prefix.read_packages(str(target)))


@pytest.fixture
def prepare(make_prefix, tmp_path, monkeypatch):
    """Return prepare(case), which makes the environment of a case, its .condarc and variables."""

    def make(case):
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
def test_a_solve_into_an_environment(case, conda_rows, prepare, tmp_path, call):
    target = prepare(case)
    channel = conda_rows["openssl 3.0.7"]["channel"]
    command = f"install --backend conda --channel {channel} -o {tmp_path}/lock.txt"
    install(call, case, target, command, *case["install"])
    specs = requests_in(target)
    assert case.get("specs", {}).items() <= specs.items()


@cases(CASES)
def test_an_installation_into_an_environment(case, conda_rows, prepare, tmp_path, call):
    target, lock = prepare(case), tmp_path / "explicit.txt"
    make_lock(lock, case["lock"], conda_rows)
    install(call, case, target, f"sync {lock}")


@cases(REPAIRS)
def test_a_repair(case, conda_rows, make_prefix, tmp_path, call):
    target, lock = tmp_path / "prefix", tmp_path / "lock.txt"
    make_prefix(target, case)
    before, files = requests_in(target), contents(target)
    channel, status = conda_rows["openssl 3.0.7"]["channel"], case.get("status", 0)
    done = call(f"solve --repair {target} --channel {channel} -o {lock} {HOST}", status=status)
    assert [text for text in case.get("says", ()) if text not in done.output] == []
    assert contents(target) == files
    if status == 0:
        install(call, case, target, f"sync {lock} --yes")
        assert requests_in(target) == before


def install(call, case, target, command, *words):
    """Run a command on the prefix of a case, and compare what is there before and after."""
    before, files = packages_in(target), contents(target)
    assert before == set(case["installed"])
    more = "--exact" if case.get("exact") else ""
    command += f" --target {target} {HOST} --no-verify {more}"
    output = call(command, *words, status=case.get("status", 0)).output
    assert [text for text in case.get("says", ()) if text not in output] == []
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


def test_records_are_complete(conda_rows, tmp_path, call):
    """An @EXPLICIT file has no dependencies: the packages themselves have them."""
    lock, target = tmp_path / "explicit.txt", tmp_path / "prefix"
    names = ["python 3.12.1", "openssl 3.0.7", "strict 1.0", "requests 2.32.0"]
    make_lock(lock, names, conda_rows)
    call(f"sync {lock} --target {target} {HOST} --no-verify")
    records = conda_prefix.read_packages(str(target))
    assert records["python"]["depends"] == DATA["packages"]["python 3.12.1"]
    assert records["strict"]["constrains"] == DATA["constrains"]["strict 1.0"]
    assert records["requests"]["noarch"] == "python"
    make_lock(lock, ["openssl 1.1.1"], conda_rows)
    call(f"sync {lock} --target {target} {HOST} --no-verify", status=1)


def test_an_environment_that_cannot_be_written_to(
    conda_rows, make_prefix, tmp_path, call, monkeypatch
):
    lock, target = tmp_path / "explicit.txt", tmp_path / "prefix"
    make_prefix(target, ADDITION)
    make_lock(lock, ADDITION["lock"], conda_rows)
    before = contents(target)
    (target / "conda-meta").chmod(0o555)
    if os.geteuid() == 0:  # root may write everywhere
        monkeypatch.setattr("os.access", lambda *_: False)
    done = call(f"sync {lock} --target {target} {HOST} --no-verify", status=2)
    (target / "conda-meta").chmod(0o755)
    (line,) = done.stderr.splitlines()
    assert f"--target {target}: cannot be written to" in line
    assert contents(target) == before


# ---- the question --------------------------------------------------------------------------------

ADDITION = {"installed": ["curl 8.9.0", "openssl 3.0.7"], "lock": ["libcudnn 9.11.0"]}
# name -> (the prefix and the lock, flags, what the user types, exit status, whether gpuenv asks)
ANSWERS = data_file("tables/conda_environments.json")["answers"]


@each("name", [*ANSWERS])
def test_a_terminal_is_asked_before_packages_change(name, conda_rows, prepare, call, monkeypatch):
    case, flags, answer, status, asks = ANSWERS[name]
    target = prepare(case)
    lock = target.with_name("explicit.txt")
    make_lock(lock, case["lock"], conda_rows)
    before = contents(target)
    controller, terminal = os.openpty()
    os.write(controller, answer.encode())
    command = ["sync", str(lock), "--target", str(target), *HOST.split(), "--no-verify", *flags]
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        done = call(*command, status=status)
    os.close(controller)
    assert ("Proceed? [y/N]" in done.stderr) is asks
    assert "to add" in (done.stderr if "--json" in flags else done.stdout)
    assert (contents(target) == before) is (status != 0)


# ---- the history ---------------------------------------------------------------------------------


def history_of(target):
    """Return the lines of the history, without the times."""
    text = (target / "conda-meta" / "history").read_text()
    return re.sub(r"==> \d{4}-\d\d-\d\d \d\d:\d\d:\d\d <==", "==>", text).splitlines()


def test_the_history_has_what_was_requested(conda_rows, make_prefix, tmp_path, call):
    target, lock = tmp_path / "prefix", tmp_path / "lock.txt"
    make_prefix(target, {"installed": ["openssl 3.0.7", "strict 1.0"], "history": ["strict"]})
    before = history_of(target)
    channel = conda_rows["openssl 3.0.7"]["channel"]
    more = ["--target", str(target), *HOST.split(), "--no-verify"]
    command = ["install", "--backend", "conda", "--channel", channel, "-o", str(lock), *more]
    call(*command, "openssl>=3.5")
    first = [
        "==>",
        "# cmd: gpuenv sync",
        f"-{channel}/linux-64::openssl-3.0.7-h0_0",
        f"+{channel}/linux-64::openssl-3.5.0-h0_0",
        "# update specs: ['openssl >=3.5']",
    ]
    assert history_of(target) == [*before, *first]
    call(f"sync {lock}", *more)
    assert history_of(target) == [*before, *first]
    call(f"sync {lock}", *more, "--exact")
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


@each("url", [*SECRETS])
def test_a_url_without_its_credentials(url):
    assert urls.without_credentials(url) == SECRETS[url]


@each("form", [*conda_formats.FORMATS])
def test_a_token_of_an_installed_package_does_not_reach_a_lock(
    form, conda_rows, make_prefix, tmp_path, call
):
    target, path = tmp_path / "prefix", tmp_path / conda_formats.FORMATS[form]
    make_prefix(target, {"installed": ["openssl 3.0.7"]})
    channel = "https://ann:my-secret@conda.example/t/my-secret/mine"
    url = f"{channel}/linux-64/openssl-3.0.7-h0_0.conda"
    change_record(target / "conda-meta", "openssl", url=url, channel=channel)
    (target / "conda-meta" / "history").write_text("")
    command = ["install", "--backend", "conda", "--channel", conda_rows["openssl 3.0.7"]["channel"]]
    command += [
        "openssl",
        "libcudnn",
        "--target",
        str(target),
        *HOST.split(),
        "--no-verify",
        "--yes",
    ]
    call(*command, "-o", str(path), "--format", form)
    text = path.read_text() + (target / "conda-meta" / "history").read_text()
    assert "https://conda.example/mine/linux-64" in text and "my-secret" not in text
    assert {pin.wheel.name for pin in api.read_lock(str(path)).pins} == {"openssl", "libcudnn"}


# ---- back to the state before --------------------------------------------------------------------


def test_a_rollback_returns_to_the_packages_before(conda_rows, prepare, call):
    target = prepare({"installed": ["openssl 3.0.7", "curl 8.9.0"], "history": ["openssl=3.0"]})
    lock, back = target.with_name("lock.txt"), ["rollback", "--target", str(target)]
    assert "keeps no earlier state" in call(*back, status=2).stderr
    command = ["install", "--backend", "conda", "--channel", conda_rows["openssl 3.0.7"]["channel"]]
    command += ["openssl>=3.5", "libcudnn", "-o", str(lock), "--target", str(target)]
    call(*command, *HOST.split(), "--no-verify")
    before, after = {"openssl 3.0.7", "curl 8.9.0"}, packages_in(target)
    installed = api.read_lock(str(lock))
    assert api.recorded_lock(str(target)) == installed
    states = ((before, "openssl=3.0", None), (after, "openssl >=3.5", installed))
    for packages, openssl, recorded in states:
        call(*back)
        assert packages_in(target) == packages
        assert requests_in(target)["openssl"] == openssl
        assert api.recorded_lock(str(target)) == recorded
    assert ("libcudnn" in requests_in(target)) is True
    (target / "conda-meta" / "curl-8.9.0-h0_0.json").unlink()
    assert "changed since the last gpuenv sync: curl-8.9.0-h0_0" in call(*back, status=2).stderr


@each("record", [{"url": None}, {"sha256": None}])
def test_a_rollback_needs_the_file_of_each_package(record, conda_rows, prepare, call):
    target = prepare({"installed": ["openssl 3.0.7"]})
    change_record(target / "conda-meta", "openssl", **record)
    before = conda_history.read_state(str(target))
    (target / "conda-meta" / "openssl-3.0.7-h0_0.json").unlink()
    conda_history.remember_state(str(target), before)
    done = call(f"rollback --target {target}", status=2)
    assert "openssl cannot be installed again" in done.stderr


# ---- environments as users make them -------------------------------------------------------------


@each("name", ["beside wheels and files", "the middle of a line"])
def test_no_step_loses_what_it_does_not_name(name):
    """Some of the environments of data/conda_users.toml. The record has all of them."""
    steps = run_program(tool("prove", "conda", "--only", name)).stdout
    assert "'install': 0" in steps and "'rollback': 0" in steps
