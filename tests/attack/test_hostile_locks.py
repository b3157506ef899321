"""Locks that an attacker wrote, with a digest that fits: refused in one line, nothing is changed.

tests/data/hostile_locks.toml has the cases: which field of a package gets which text.
"""

import json
from pathlib import Path

import pytest
import tomli_w
import yaml

from gpuenv.cli import main
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


def refusal(path, capsys):
    """The one line that sync prints; the folder holds nothing but the lock afterwards."""
    target = path.parent / "env"
    status = main(["sync", str(path), "--target", str(target), "--installer", "uv"])
    lines = capsys.readouterr().err.splitlines()
    assert (status, len(lines)) == (2, 1), lines
    assert list(path.parent.iterdir()) == [path]
    return lines[0]


@cases(CASES["pylock"])
def test_a_hostile_pylock(case, tmp_path, capsys):
    document = json.loads(json.dumps(PYLOCK))
    put(document["packages"][0], case["field"], case["text"])
    document["tool"]["gpuenv"]["content"] = pylock.content(document)
    path = tmp_path / "pylock.toml"
    path.write_text(tomli_w.dumps(document))
    line = refusal(path, capsys)
    assert case["says"] in line and line.isprintable()


@cases(CASES["conda"])
def test_a_hostile_conda_lock(case, tmp_path, capsys):
    document = yaml.safe_load(CONDA)
    put(document["package"][0], case["field"], case["text"])
    path = tmp_path / "conda-lock.yml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(conda_formats.InputError) as error:
        conda_formats.read(str(path))
    assert case["says"] in str(error.value) and str(error.value).isprintable()
    refusal(path, capsys)


@cases(CASES["wheel"])
def test_a_hostile_wheel_beside_conda_packages(case, tmp_path, capsys):
    wheel = {
        "name": "alpha",
        "version": "1.0",
        "manager": "pip",
        "platform": "linux-64",
        "url": "https://index.example/files/alpha-1.0-py3-none-any.whl",
        "hash": {"sha256": "0" * 64},
    }
    document = yaml.safe_load(CONDA)
    document["package"].append({**wheel, case["field"]: case["text"]})
    path = tmp_path / "conda-lock.yml"
    path.write_text(yaml.safe_dump(document))
    assert case["says"] in refusal(path, capsys)


@cases(CASES["place"])
def test_a_file_at_a_place_that_nobody_named(case, tmp_path, capsys):
    wheel = make_wheel(tmp_path, "alpha", "1.0")
    url = case["url"].replace("{folder}", str(tmp_path))
    path = write_lock(tmp_path / "pylock.toml", make_lock(wheel.replace(url=url)))
    before = sorted(tmp_path.iterdir())
    named = [word.replace("{folder}", str(tmp_path)) for word in case["named"]]
    sync = ["sync", str(path), "--target", str(tmp_path / "env"), "--gpu", "none", "--dry-run"]
    status = main([*sync, *named])
    error = capsys.readouterr().err
    assert status == (2 if case["refused"] else 0), error
    assert ("is of no index that you named" in error) == case["refused"]
    if case["refused"]:
        assert main(["download", str(path), "-d", str(tmp_path / "files"), *named]) == 2
    assert sorted(tmp_path.iterdir()) == before
