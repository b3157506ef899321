"""Locks that an attacker wrote, with a digest that fits: refused in one line, nothing is changed.

tests/data/hostile_locks.toml has the cases: which field of a package gets which text.
"""

import json
from pathlib import Path

import pytest
import tomli_w
import yaml

from gpuenv.lock import conda_formats, pylock
from small_wheels import make_lock, make_wheel, write_lock
from tables import cases, data_file

DATA = Path(__file__).parents[1] / "data"
CASES = data_file("hostile_locks.toml")
PYLOCK = data_file("locks/format-1.toml")
CONDA = (DATA / "locks" / "format-1-conda-lock.yml").read_text()


def put(table, field, text):
    *folders, last = field.split(".")
    for folder in folders:
        table = table[int(folder)] if isinstance(table, list) else table[folder]
    table[last] = text


@pytest.fixture
def refusal(call):
    """refusal(path): the one line that sync prints; nothing is written beside the lock."""

    def sync(path):
        target = path.parent / "env"
        (line,) = call(
            f"sync {path} --target {target} --installer uv", status=2
        ).output.splitlines()
        assert list(path.parent.iterdir()) == [path]
        return line

    return sync


@cases(CASES["pylock"])
def test_a_hostile_pylock(case, tmp_path, refusal):
    document = json.loads(json.dumps(PYLOCK))
    put(document["packages"][0], case["field"], case["text"])
    document["tool"]["gpuenv"]["content"] = pylock.content(document)
    path = tmp_path / "pylock.toml"
    path.write_text(tomli_w.dumps(document))
    line = refusal(path)
    assert case["says"] in line and line.isprintable()


@cases(CASES["conda"])
def test_a_hostile_conda_lock(case, tmp_path, refusal):
    document = yaml.safe_load(CONDA)
    put(document["package"][0], case["field"], case["text"])
    path = tmp_path / "conda-lock.yml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(conda_formats.InputError) as error:
        conda_formats.read(str(path))
    assert case["says"] in str(error.value) and str(error.value).isprintable()
    refusal(path)


@cases(CASES["wheel"])
def test_a_hostile_wheel_beside_conda_packages(case, tmp_path, refusal):
    wheel = CASES["alpha"]
    document = yaml.safe_load(CONDA)
    document["package"].append({**wheel, case["field"]: case["text"]})
    path = tmp_path / "conda-lock.yml"
    path.write_text(yaml.safe_dump(document))
    assert case["says"] in refusal(path)


@cases(CASES["place"])
def test_a_file_at_a_place_that_nobody_named(case, tmp_path, call):
    wheel = make_wheel(tmp_path, "alpha", "1.0")
    url = case["url"].replace("{folder}", str(tmp_path))
    path = write_lock(tmp_path / "pylock.toml", make_lock(wheel.replace(url=url)))
    before = sorted(tmp_path.iterdir())
    named = [word.replace("{folder}", str(tmp_path)) for word in case["named"]]
    sync = f"sync {path} --target {tmp_path}/env --gpu none --dry-run"
    error = call(sync, *named, status=2 if case["refused"] else 0).stderr
    assert ("is of no index that you named" in error) == case["refused"]
    if case["refused"]:
        call(f"download {path} -d {tmp_path}/files", *named, status=2)
    assert sorted(tmp_path.iterdir()) == before
