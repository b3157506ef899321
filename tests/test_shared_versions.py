"""`gpuenv lock` gives the profiles of a project one version of each framework, or says why not."""

import json
from pathlib import Path
from typing import Any

from gpuenv.lock import pylock
from tables import cases, data_file
from test_cli import contents, run

CASES: list[dict[str, Any]] = data_file("shared_versions.toml")["case"]


def pyproject(case: dict[str, Any]) -> str:
    text = f"[tool.gpuenv]\npython = '3.12'\n{case['table']}\n"
    for name, profile in case["profiles"].items():
        text += f"[tool.gpuenv.profiles.{name}]\n{profile}\n"
        if "none" not in profile and "driver" not in profile:
            text += "driver = '580.65.06'\n"
    return text


def locked_versions(folder: Path) -> dict[str, dict[str, str]]:
    """{framework: {profile: version}} of the locks."""
    versions: dict[str, dict[str, str]] = {}
    for path in sorted(folder.glob("pylock.*.toml")):
        for choice in pylock.read(str(path)).choices:
            profile = path.name.split(".")[1]
            versions.setdefault(choice.framework, {})[profile] = choice.version.partition("+")[0]
    return versions


@cases(CASES)
def test_lock(case: dict[str, Any], folder: Path) -> None:
    (folder / "pyproject.toml").write_text(pyproject(case))
    for step in case["steps"]:
        before = contents(folder)
        words = step["run"].split()
        if "--check" not in words:
            words.append("--offline")
        done = run([*words, "--json"], folder)
        assert done.returncode == 0, done.stderr + done.stdout
        if step.get("unchanged") or "--check" in words:
            assert contents(folder) == before
        else:
            check_step(step, folder, json.loads(done.stdout)["frameworks"])
        lines = run(words, folder)
        assert lines.returncode == 0, lines.stderr


def check_step(step: dict[str, Any], folder: Path, report: list[dict[str, Any]]) -> None:
    versions = locked_versions(folder)
    if "versions" in step:
        assert versions == {"torch": step["versions"]}
    for framework in step.get("shared", ()):
        assert len(set(versions[framework].values())) == 1
        return
    for key in ("alone", "separate"):
        found = {row["framework"]: row[key] for row in report if row[key]}
        assert found == step.get(key, {}), key
    against = set()
    for row in report:
        assert row["versions"] == versions[row["framework"]]
        for one in row["against"]:
            codes = {reason["code"] for reason in one["reasons"]}
            against |= {f"{one['profile']} {one['version']} {code}" for code in codes}
    assert set(step.get("against", ())) <= against
