"""`gpuenv lock` gives the profiles of a project one version of each framework, or says why not."""

from gpuenv.lock import pylock
from tables import cases, data_file
from test_cli import contents, run

CASES = data_file("shared_versions.toml")["case"]


def pyproject(case):
    text = f"[tool.gpuenv]\npython = '3.12'\n{case['table']}\n"
    for name, profile in case["profiles"].items():
        text += f"[tool.gpuenv.profiles.{name}]\n{profile}\n"
        if "none" not in profile and "driver" not in profile:
            text += "driver = '580.65.06'\n"
    return text


def locked_versions(folder):
    """{framework: {profile: version}} of the locks."""
    versions = {}
    for path in sorted(folder.glob("pylock.*.toml")):
        for choice in pylock.read(str(path)).choices:
            profile = path.name.split(".")[1]
            versions.setdefault(choice.framework, {})[profile] = choice.version.partition("+")[0]
    return versions


@cases(CASES)
def test_lock(case, folder):
    (folder / "pyproject.toml").write_text(pyproject(case))
    for step in case["steps"]:
        before = contents(folder)
        words = step["run"].split()
        if "--check" not in words:
            words.append("--offline")
        done = run([*words, "--json"], folder)
        if step.get("unchanged") or "--check" in words:
            assert contents(folder) == before
        else:
            check_step(step, folder, done.document["frameworks"])
        run(words, folder)


def check_step(step, folder, report):
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
