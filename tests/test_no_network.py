"""No index or no network: --no-index, and GPU stack requests that the snapshot answers."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from gpuenv.lock import pylock
from index_server import IndexServer
from tables import data_file, each
from test_cli import contents, run

TABLES = data_file("tables/no_network.json")

# Nothing listens on port 9, so every request fails at once.
NO_NETWORK = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
CPU = "--gpu none --python 3.12 --platform linux-x86_64"


@each("question status", TABLES["the_snapshot_answers_without_a_network"])
def test_the_snapshot_answers_without_a_network(question: str, status: int, tmp_path: Path) -> None:
    """All of the GPU stack, but for old releases of numpy, which the snapshot leaves out."""
    folder = tmp_path / "work"
    folder.mkdir()
    words = ["solve", *question.split(), "--python", "3.12", "--json"]
    without = run(words, folder, **NO_NETWORK)
    assert without.returncode == status, without.stderr
    if status == 4:
        return
    offline = run([*words, "--offline"], folder, **NO_NETWORK)
    assert offline.returncode == status
    assert answer(without.stdout) == answer(offline.stdout)


def answer(text: str) -> dict[str, Any]:
    """The document without what says that an index did not answer."""
    document: dict[str, Any] = json.loads(text)
    for key in ("reasons", "warnings"):
        rows = document.get(key, [])
        document[key] = [row for row in rows if row["code"] != "index-unknown"]
    assert document["reasons"] or "lock" in document
    return document


# ---- --no-index ----------------------------------------------------------------------------------

PROJECT = """
[tool.gpuenv]
requirements = ["alpha"]
python = "3.12"
no-index = true
find-links = ["wheels"]
[tool.gpuenv.profiles.ci]
gpu = "none"
"""


@pytest.fixture
def folder(tmp_path: Path, server: IndexServer) -> Path:
    """A folder `wheels` with alpha 1.0; the index has alpha 2.0 and beta."""
    folder = tmp_path / "work"
    (folder / "wheels").mkdir(parents=True)
    wheel = server.add("alpha", "1.0")
    (folder / "wheels" / wheel.filename).write_bytes(wheel.data)
    server.add("alpha", "2.0")
    server.add("beta", "1.0")
    (folder / "r.txt").write_text("--no-index\n--find-links wheels\nalpha\n")
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder


@pytest.mark.parametrize(
    ("command", "variables", "lock"),
    [
        (f"solve alpha --no-index --find-links wheels --index-url URL {CPU}", {}, "pylock.toml"),
        (f"solve alpha --no-index --find-links wheels {CPU}", {}, "pylock.toml"),
        (f"solve alpha --find-links wheels {CPU}", {"GPUENV_NO_INDEX": "1"}, "pylock.toml"),
        (f"solve -r r.txt --extra-index-url URL {CPU}", {}, "pylock.toml"),
        ("lock", {}, "pylock.ci.toml"),
    ],
)
def test_only_the_folders_are_used(
    command: str, variables: dict[str, str], lock: str, folder: Path, server: IndexServer
) -> None:
    words = shlex.split(command.replace("URL", server.url))
    done = run(words, folder, **NO_NETWORK, **variables)
    assert done.returncode == 0, done.stderr
    pins = pylock.read(str(folder / lock)).pins
    assert [(pin.wheel.name, pin.wheel.version) for pin in pins] == [("alpha", "1.0")]
    assert server.asked == []


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        (f"solve alpha --no-index {CPU}", 2, "--no-index: without --find-links"),
        (f"explain alpha --no-index {CPU}", 2, "--no-index: without --find-links"),
        (f"solve beta --no-index --find-links wheels {CPU}", 3, "beta"),
        (f"solve torch --no-index --find-links wheels {CPU}", 3, "torch"),
    ],
)
def test_nothing_else_is_found(
    command: str, status: int, message: str, folder: Path, server: IndexServer
) -> None:
    before = contents(folder)
    done = run(shlex.split(command), folder, **NO_NETWORK)
    assert (done.returncode, message in done.stderr + done.stdout) == (status, True), done.stderr
    assert contents(folder) == before
    if status == 2:
        assert len(done.stderr.splitlines()) == 1
    assert server.asked == []


def test_a_profile_without_find_links_is_refused(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(PROJECT.replace('find-links = ["wheels"]\n', ""))
    done = run(["lock"], folder)
    assert done.returncode == 2
    assert "tool.gpuenv.no-index needs find-links" in done.stderr
