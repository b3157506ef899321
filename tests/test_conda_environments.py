"""Installations into existing conda environments remove only what the user asked to remove."""

import os
import re
import shlex

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
    expected_packages,
    make_lock,
    packages_in,
)
from gpuenv import api
from gpuenv.index import urls
from gpuenv.install import conda_history, conda_prefix
from gpuenv.lock import conda_formats
from gpuenv.prefix import conda_packages
from gpuenv.resolve.conda import solvers
from processes import run_program
from script_modules import tool
from tables import cases, data_file, each

pytestmark = pytest.mark.usefixtures("one_rattler")


def requests_in(target):
    return conda_history.requested_specs(str(target), conda_packages(str(target)))


@pytest.fixture
def prepare(conda_rows, tmp_path, monkeypatch):
    """prepare(case): make its environment as another tool leaves it, its .condarc and variables."""

    def make(case):
        target = tmp_path / "prefix"
        records = [conda_rows[name] for name in case["installed"]]
        with solvers.RattlerSolver((), ("linux-64", "noarch")) as solver:
            solver.install(str(target), records, "linux-64")
        conda_prefixes.describe(target, case, conda_rows)
        for name, value in case.get("environment", {}).items():
            monkeypatch.setenv(name, value)
        if "condarc" in case:
            (tmp_path / "my.condarc").write_text(case["condarc"])
            monkeypatch.setenv("CONDARC", str(tmp_path / "my.condarc"))
        return target

    return make


@pytest.fixture
def locked(conda_rows, tmp_path):
    """locked(packages): write an explicit lock of them, and return its path."""

    def lock(packages):
        make_lock(tmp_path / "explicit.txt", packages, conda_rows)
        return tmp_path / "explicit.txt"

    return lock


@pytest.fixture
def typed(call, tmp_path):
    """typed(text): run a command about the prefix of a test."""
    flags = f"--target {tmp_path}/prefix {HOST} --no-verify"
    return lambda text, status=0: call(f"{text} {flags}", status=status)


@pytest.fixture
def asked(channel_url, tmp_path):
    """The command that solves and installs packages, which follow it."""
    return f"install --backend conda --channel {channel_url} -o {tmp_path}/lock.txt"


@cases(SOLVES)
def test_a_solve_into_an_environment(case, prepare, asked, typed):
    target = prepare(case)
    install(typed, case, target, f"{asked} {shlex.join(case['install'])}")
    assert case.get("specs", {}).items() <= requests_in(target).items()


@cases(CASES)
def test_an_installation_into_an_environment(case, prepare, locked, typed):
    install(typed, case, prepare(case), f"sync {locked(case['lock'])}")


@cases(REPAIRS)
def test_a_repair(case, channel_url, prepare, tmp_path, call, typed):
    target, lock, status = prepare(case), tmp_path / "lock.txt", case.get("status", 0)
    before, files = requests_in(target), contents(target)
    done = call(f"solve --repair {target} --channel {channel_url} -o {lock} {HOST}", status=status)
    assert [text for text in case.get("says", ()) if text not in done.output] == []
    assert contents(target) == files
    if status == 0:
        install(typed, case, target, f"sync {lock} --yes")
        assert requests_in(target) == before


def install(typed, case, target, command):
    """Run a command on the prefix of a case, and compare what is there before and after."""
    before, files = packages_in(target), contents(target)
    assert before == set(case["installed"])
    more = "--exact" if case.get("exact") else ""
    output = typed(f"{command} {more}", status=case.get("status", 0)).output
    assert [text for text in case.get("says", ()) if text not in output] == []
    if "wheels-after" in case:
        names = [distribution.name for distribution in conda_prefix.wheels_in(str(target))]
        assert names == case["wheels-after"]
    assert packages_in(target) == expected_packages(case)
    assert not [name for name in case.get("files", ()) if not (target / name).exists()]
    if case.get("status", 0):
        assert contents(target) == files
    else:
        moved = {"python", "requests", *case.get("unhashed", ())}
        names = {package.split()[0] for package in before & packages_in(target)} - moved
        stand_ins = [f"share/stand-ins/{name}" for name in names]
        assert not [name for name in stand_ins if contents(target).get(name) != files[name]]


def test_records_are_complete(locked, tmp_path, typed):
    """An @EXPLICIT file has no dependencies: the packages themselves have them."""
    names = ["python 3.12.1", "openssl 3.0.7", "strict 1.0", "requests 2.32.0"]
    typed(f"sync {locked(names)}")
    records = conda_packages(str(tmp_path / "prefix"))
    assert records["python"]["depends"] == DATA["packages"]["python 3.12.1"]
    assert records["strict"]["constrains"] == DATA["constrains"]["strict 1.0"]
    assert records["requests"]["noarch"] == "python"
    typed(f"sync {locked(['openssl 1.1.1'])}", status=1)


def test_an_environment_that_cannot_be_written_to(prepare, locked, typed, monkeypatch):
    target, lock = prepare(ADDITION), locked(ADDITION["lock"])
    before = contents(target)
    (target / "conda-meta").chmod(0o555)
    if os.geteuid() == 0:  # root may write everywhere
        monkeypatch.setattr("os.access", lambda *_: False)
    done = typed(f"sync {lock}", status=2)
    (target / "conda-meta").chmod(0o755)
    (line,) = done.stderr.splitlines()
    assert f"--target {target}: cannot be written to" in line
    assert contents(target) == before


# ---- the question --------------------------------------------------------------------------------

ADDITION = {"installed": ["curl 8.9.0", "openssl 3.0.7"], "lock": ["libcudnn 9.11.0"]}
TABLES = data_file("tables/conda_environments.json")


@each("case flags answer status asks", TABLES["answers"])
def test_a_terminal_is_asked_before_packages_change(
    case, flags, answer, status, asks, prepare, locked, typed, monkeypatch
):
    target, lock, flags = prepare(case), locked(case["lock"]), " ".join(flags)
    before = contents(target)
    controller, terminal = os.openpty()
    os.write(controller, answer.encode())
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        done = typed(f"sync {lock} {flags}", status=status)
    os.close(controller)
    assert ("Proceed? [y/N]" in done.stderr) is asks
    assert "to add" in (done.stderr if "--json" in flags else done.stdout)
    assert (contents(target) == before) is (status != 0)


# ---- the history ---------------------------------------------------------------------------------


def history_of(target):
    """Return the lines of the history, without the times."""
    text = (target / "conda-meta" / "history").read_text()
    return re.sub(r"==> \d{4}-\d\d-\d\d \d\d:\d\d:\d\d <==", "==>", text).splitlines()


def test_the_history_has_what_was_requested(channel_url, prepare, asked, tmp_path, typed):
    target = prepare({"installed": ["openssl 3.0.7", "strict 1.0"], "history": ["strict"]})
    before, sync = history_of(target), f"sync {tmp_path}/lock.txt"
    typed(f"{asked} openssl>=3.5")
    first = [
        "==>",
        "# cmd: gpuenv sync",
        f"-{channel_url}/linux-64::openssl-3.0.7-h0_0",
        f"+{channel_url}/linux-64::openssl-3.5.0-h0_0",
        "# update specs: ['openssl >=3.5']",
    ]
    assert history_of(target) == [*before, *first]
    typed(sync)
    assert history_of(target) == [*before, *first]
    typed(f"{sync} --exact")
    second = ["==>", "# cmd: gpuenv sync", f"-{channel_url}/linux-64::strict-1.0-h0_0"]
    assert history_of(target) == [*before, *first, *second, "# remove specs: ['strict']"]
    assert requests_in(target) == {"openssl": "openssl >=3.5"}


# ---- tokens and passwords ------------------------------------------------------------------------


@each("url expected", TABLES["secrets"])
def test_a_url_without_its_credentials(url, expected):
    assert urls.without_credentials(url) == expected


@each("form", [*conda_formats.FORMATS])
def test_a_token_of_an_installed_package_does_not_reach_a_lock(
    form, prepare, asked, tmp_path, typed
):
    target, path = prepare({"installed": ["openssl 3.0.7"]}), tmp_path / conda_formats.FORMATS[form]
    channel = "https://ann:my-secret@conda.example/t/my-secret/mine"
    url = f"{channel}/linux-64/openssl-3.0.7-h0_0.conda"
    change_record(target / "conda-meta", "openssl", url=url, channel=channel)
    (target / "conda-meta" / "history").write_text("")
    typed(f"{asked} openssl libcudnn --yes -o {path} --format {form}")
    text = path.read_text() + (target / "conda-meta" / "history").read_text()
    assert "https://conda.example/mine/linux-64" in text and "my-secret" not in text
    assert api.read_lock(str(path)).versions.keys() == {"openssl", "libcudnn"}


# ---- back to the state before --------------------------------------------------------------------


def test_a_rollback_returns_to_the_packages_before(prepare, asked, call, typed):
    target = prepare({"installed": ["openssl 3.0.7", "curl 8.9.0"], "history": ["openssl=3.0"]})
    lock, back = target.with_name("lock.txt"), f"rollback --target {target}"
    assert "keeps no earlier state" in call(back, status=2).stderr
    typed(f"{asked} openssl>=3.5 libcudnn")
    before, after = {"openssl 3.0.7", "curl 8.9.0"}, packages_in(target)
    installed = api.read_lock(str(lock))
    assert api.recorded_lock(str(target)) == installed
    states = ((before, "openssl=3.0", None), (after, "openssl >=3.5", installed))
    for packages, openssl, recorded in states:
        call(back)
        assert packages_in(target) == packages
        assert requests_in(target)["openssl"] == openssl
        assert api.recorded_lock(str(target)) == recorded
    assert ("libcudnn" in requests_in(target)) is True
    (target / "conda-meta" / "curl-8.9.0-h0_0.json").unlink()
    assert "changed since the last gpuenv sync: curl-8.9.0-h0_0" in call(back, status=2).stderr


@each("record", [{"url": None}, {"sha256": None}])
def test_a_rollback_needs_the_file_of_each_package(record, prepare, call):
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
