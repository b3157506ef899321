"""No index or no network: --no-index, and GPU stack requests that the snapshot answers."""

import json

import pytest

from gpuenv.lock import pylock
from tables import data_file, each
from test_cli import contents, run

TABLES = data_file("tables/no_network.json")

# Nothing listens on port 9, so every request fails at once.
NO_NETWORK = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")


@each("question status", TABLES["the_snapshot_answers_without_a_network"])
def test_the_snapshot_answers_without_a_network(question, status, tmp_path):
    """All of the GPU stack, but for old releases of numpy, which the snapshot leaves out."""
    folder = tmp_path / "work"
    folder.mkdir()
    words = ["solve", *question.split(), "--python", "3.12", "--json"]
    without = run(words, folder, **NO_NETWORK, status=status)
    if status == 4:
        return
    offline = run([*words, "--offline"], folder, **NO_NETWORK, status=status)
    assert answer(without.stdout) == answer(offline.stdout)


def answer(text):
    """The document without what says that an index did not answer."""
    document = json.loads(text)
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
def folder(tmp_path, server):
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


@each(
    "command variables lock",
    TABLES["folders_only"],
)
def test_only_the_folders_are_used(command, variables, lock, folder, server):
    run(command.replace("URL", server.url), folder, **NO_NETWORK, **variables)
    assert pylock.read(str(folder / lock)).versions == {"alpha": "1.0"}
    assert server.asked == []


@each(
    "command status message",
    TABLES["nothing_else"],
)
def test_nothing_else_is_found(command, status, message, folder, server):
    before = contents(folder)
    done = run(command, folder, **NO_NETWORK, status=status)
    assert message in done.output
    assert contents(folder) == before
    if status == 2:
        assert len(done.stderr.splitlines()) == 1
    assert server.asked == []


def test_a_profile_without_find_links_is_refused(folder):
    (folder / "pyproject.toml").write_text(PROJECT.replace('find-links = ["wheels"]\n', ""))
    assert "tool.gpuenv.no-index needs find-links" in run("lock", folder, status=2).stderr
