"""A framework's name means the framework everywhere: command lines and the builds they give."""

import shlex

import pytest

from gpuenv.compat import data
from gpuenv.lock import pylock
from small_wheels import make_wheel, write_files
from tables import data_file, each
from test_cli import contents, run

CASES = data_file("framework_names.toml")["case"]
FACTS = "--python 3.12 --platform linux-x86_64 --glibc 2.39 --offline"
HOSTS = {"host": f"--gpu H100 --driver 580.65.06 {FACTS}", "none": f"--gpu none {FACTS}"}


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links")
    for name, version, requires in data_file("tables/framework_names.json")["wheels"]:
        make_wheel(folder, name, version, requires)
    (folder / "direct").mkdir()
    make_wheel(folder / "direct", "jax", "9.0")
    return folder


@each("case", CASES, ids=lambda case: case.get("name", case["run"])[:80])
def test_command_line(case, links, folder):
    write_files(folder, case.get("files", {}))
    command = case["run"].format(links=links, **HOSTS)
    done = run(command, folder, status=case.get("status", 0))
    text = done.text
    assert case.get("message", "") in text
    if done.returncode:
        assert set(contents(folder)) == set(case.get("files", {}))
        return
    if not case["run"].startswith("explain"):
        check_lock(case, folder / case.get("lock", "pylock.toml"), text)


def check_lock(case, path, text):
    lock = pylock.read(str(path))
    assert {choice.framework: choice.variant for choice in lock.choices} == case["frameworks"]
    pins = lock.versions
    for name, version in case.get("packages", {}).items():
        assert pins[name] == version
    assert not set(pins) & set(case.get("absent", ()))
    expected = case.get("warnings", [])
    assert text.count("warning:") == len(expected)
    kept = [reason.code for reason in lock.warnings]
    assert kept == [code for code in expected if code != "extra-unknown"]


@each("host", [*HOSTS])
@each("name", data.load().frameworks())
def test_a_requirement_is_the_framework(name, host, tmp_path):
    """`solve X` gives what `solve --framework X` gives, but for the request in the lock."""
    results = []
    for number, words in enumerate(([name], ["--framework", name])):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = run(["solve", *words, *shlex.split(HOSTS[host])], folder, status=None)
        lock = None
        if done.returncode == 0:
            lock = pylock.read(str(folder / "pylock.toml"))
            lock = lock.replace(frameworks=(), requirements=(), digest="")
        results.append((done.returncode, done.stdout, done.stderr, lock))
    assert results[0] == results[1]


@each(
    "name meant",
    data_file("tables/framework_names.json")["slips"],
)
def test_a_slip_is_solved_with_a_warning(name, meant, folder):
    """A stranger's package has the name; one that is well known for itself gets no warning."""
    make_wheel(folder, name.replace("-", "_"), "1.0")
    command = f"solve {name} --gpu none --no-index --find-links {folder} --dry-run"
    done = run(command, folder, status=None)
    line = f"warning: {name} is a package of its own; did you mean {meant}?\n"
    assert done.stderr == line if meant else "did you mean" not in done.stderr
