"""Rules R9 and R10 as commands that a user types: tests/data/command_rules.toml."""

import shlex

from gpuenv.lock import pylock
from small_wheels import make_wheel
from tables import cases, data_file

TABLE = data_file("command_rules.toml")
CASES = TABLE["case"]
FIXED = "--python 3.12 --glibc 2.39 --offline -o pylock.toml"


def arguments(case, folder):
    """The arguments of `gpuenv solve`; the wheels of the case are written into the folder."""
    found = [*shlex.split(case["args"]), *shlex.split(FIXED)]
    for name, version, *requires in case.get("wheels", ()):
        make_wheel(folder, name, version, requires, tag="cp312-cp312-linux_x86_64")
    if "wheels" in case:
        found += ["--find-links", str(folder)]
    return found


@cases(CASES)
def test_commands(case, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    args = arguments(case, tmp_path)
    text = call("solve", *args, status=case["status"]).text
    assert [say for say in case.get("says", ()) if say not in text] == []
    lock_path = tmp_path / "pylock.toml"
    assert lock_path.exists() == (case["status"] == 0)
    if case["status"] == 0:
        lock = pylock.read(str(lock_path))
        pins = lock.versions
        assert lock.needs.platform == case["platform"]
        assert pins == pins | case.get("pins", {})
    if case["status"] == 2:
        assert text.startswith("gpuenv: ")
        return
    document = call("solve", *args, "--json", status=case["status"]).document
    if case["status"] == 3:
        assert document["reasons"][0]["code"] == case.get("first", document["reasons"][0]["code"])
        offered = [change["change"] for change in document["smallest_changes"]]
        assert [change for change in case.get("changes", ()) if change not in offered] == []
