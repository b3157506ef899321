"""A framework's name means the framework everywhere: command lines and the builds they give."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from gpuenv.compat import data
from gpuenv.lock import pylock
from index_server import make_wheel
from tables import data_file
from test_cli import contents, run

CASES: list[dict[str, Any]] = data_file("framework_names.toml")["case"]
FACTS = "--python 3.12 --platform linux-x86_64 --glibc 2.39 --offline"
HOSTS = {
    "host": f"--gpu H100 --driver 580.65.06 {FACTS}",
    "none": f"--gpu none {FACTS}",
}
WHEELS = data_file("tables/framework_names.json")["wheels"]


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("links")
    for name, version, requires in WHEELS:
        filename, content = make_wheel(name, version, requires)
        (folder / filename).write_bytes(content)
    filename, content = make_wheel("jax", "9.0")
    (folder / "direct").mkdir()
    (folder / "direct" / filename).write_bytes(content)
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.get("name", case["run"])[:80])
def test_command_line(case: dict[str, Any], links: Path, folder: Path) -> None:
    for name, text in case.get("files", {}).items():
        (folder / name).write_text(text)
    command = case["run"].format(links=links, **HOSTS)
    done = run(shlex.split(command), folder)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == case.get("status", 0), text
    assert case.get("message", "") in text
    if done.returncode:
        assert set(contents(folder)) == set(case.get("files", {}))
        return
    if not case["run"].startswith("explain"):
        check_lock(case, folder / case.get("lock", "pylock.toml"), text)


def check_lock(case: dict[str, Any], path: Path, text: str) -> None:
    lock = pylock.read(str(path))
    assert {choice.framework: choice.variant for choice in lock.choices} == case["frameworks"]
    pins = {pin.wheel.name: pin.wheel.version for pin in lock.pins}
    for name, version in case.get("packages", {}).items():
        assert pins[name] == version
    assert not set(pins) & set(case.get("absent", ()))
    expected = case.get("warnings", [])
    assert text.count("warning:") == len(expected)
    kept = [reason.code for reason in lock.warnings]
    assert kept == [code for code in expected if code != "extra-unknown"]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", data.load().frameworks())
def test_a_requirement_is_the_framework(name: str, host: str, tmp_path: Path) -> None:
    """`solve X` gives what `solve --framework X` gives, but for the request in the lock."""
    results = []
    for number, words in enumerate(([name], ["--framework", name])):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = run(["solve", *words, *shlex.split(HOSTS[host])], folder)
        lock = None
        if done.returncode == 0:
            lock = pylock.read(str(folder / "pylock.toml"))
            lock = lock.replace(frameworks=(), requirements=(), digest="")
        results.append((done.returncode, done.stdout, done.stderr, lock))
    assert results[0] == results[1]
