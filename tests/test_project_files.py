"""What the files of a project say is honored, or named: commands as users type them.

A case has an index of small wheels, the files of the project, and a command. The result is the
pins of the lock, or what the command says.
"""

import platform
import subprocess
import sys
import tomllib

from index_server import BACKEND, BUILD_SYSTEM
from small_wheels import make_wheel, write_files
from tables import HERE, cases, data_file, read_data
from test_cli import run

NAMES = '[*archive.namelist(), f"{stem}.dist-info/RECORD"]'
RECORD = f'"".join(f"{{one}},,\\n" for one in {NAMES})'
BUILDS = BACKEND.replace('RECORD", "")', f'RECORD", {RECORD})') + "build_editable = build_wheel\n"
BUILDS += "__import__('os').makedirs('made.egg-info', exist_ok=True)\n"
CASES = data_file("project_files.toml")


def put(folder, releases):
    folder.mkdir()
    for name, versions in releases.items():
        for version, requires in versions.items():
            make_wheel(folder, name, version, requires)


def put_trees(folder, trees):
    """Write projects that only a build tells of; those in a folder "repo" are a repository."""
    for path, requires in trees.items():
        tree = folder / path
        tree.mkdir(parents=True)
        (tree / "pyproject.toml").write_text(BUILD_SYSTEM)
        (tree / "backend.py").write_text(BUILDS)
        (tree / "setup.cfg").write_text(f"[metadata]\nname = {tree.name}\n")
        lines = ["Metadata-Version: 2.1", f"Name: {tree.name}", "Version: 1.5"]
        lines += [f"Requires-Dist: {text}" for text in requires]
        (tree / "PKG-INFO").write_text("\n".join([*lines, "", ""]))
    if (folder / "repo").exists():
        name = ("-c", "user.name=x", "-c", "user.email=x@a.test")
        for command in (
            ("init", "-q"),
            ("add", "-A"),
            (*name, "commit", "-qm", "x"),
            ("tag", "v1"),
        ):
            subprocess.run(["git", "-C", folder / "repo", *command], check=True)


def pin_of(row):
    """A package of a lock: its release, or the source tree with its place."""
    if "directory" in row:
        editable = " editable" * row["directory"].get("editable", False)
        return f"{row['name']} {row['directory']['path']}{editable}"
    if "vcs" in row:
        vcs = row["vcs"]
        assert len(vcs["commit-id"]) == 40
        return f"{row['name']} {vcs['requested-revision']} {vcs.get('subdirectory', '')}".strip()
    return f"{row['name']} {row['version']}"


@cases(CASES["case"])
def test_solve(case, tmp_path, call, monkeypatch):
    for index, releases in {**CASES["indexes"], **case.get("indexes", {})}.items():
        put(tmp_path / index, releases)
    write_files(tmp_path, case.get("files", {}), {"{here}": str(tmp_path)})
    put_trees(tmp_path, case.get("trees", {}))
    described = f"--gpu none --python 3.12 --platform linux-x86_64 --index-url file://{tmp_path}"
    asked = case["command"].replace("{here}", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    status = 0 if "pins" in case else case.get("status", 2)
    said = call(f"solve {asked} {described}/default -o pylock.toml", status=status).stderr
    assert not [*tmp_path.rglob("made.egg-info")]
    if "pins" in case:
        lock = read_data(tmp_path / "pylock.toml")
        assert [*map(pin_of, lock["packages"])] == case["pins"]
    for text in case.get("says", ()):
        assert text in said


def test_a_profile_has_what_its_project_says_wherever_it_is_checked(tmp_path):
    """The lock has no path of this machine, and `export` names the folder as the tool does."""
    for index, releases in CASES["indexes"].items():
        put(tmp_path / index, releases)
    work = tmp_path / "work"
    put_trees(work, {"packages/mine": ["lib", "base"]})
    (work / "pyproject.toml").write_text(
        f"""[project]
name = "x"
dependencies = ["mine"]
[tool.uv]
override-dependencies = ["lib==1.0"]
[tool.uv.sources]
mine = {{workspace = true}}
[tool.uv.workspace]
members = ["packages/*"]
[tool.gpuenv]
project-dependencies = true
python = "3.12"
index-url = "file://{tmp_path}/default"
override-dependencies = ["base<2"]
[tool.gpuenv.profiles.ci]
gpu = "none"
"""
    )
    run("lock", work)
    lock = read_data(work / "pylock.ci.toml")
    pins = ["base 1.0", "lib 1.0", "mine packages/mine editable"]
    assert [*map(pin_of, lock["packages"])] == pins
    assert "mine @ ./packages/mine#editable" in lock["tool"]["gpuenv"]["requirements"]
    run(f"lock --check --project {work}", tmp_path)
    text = (work / "pyproject.toml").read_text()
    added = '[[tool.uv.index]]\nurl = "https://me:secret@a.test/simple"\n'
    (work / "pyproject.toml").write_text(text + added)
    refused = run("lock", work, status=2)
    assert "an index has credentials" in refused.stderr and "secret" not in refused.stderr
    exported = tomllib.loads(run("export pylock.ci.toml --to uv", work).stdout)
    place = {"path": str(work / "packages" / "mine"), "editable": True}
    assert exported["tool"]["uv"]["sources"]["mine"] == place


def test_source_trees_are_installed_and_only_folders_are_built_again(tmp_path):
    """A commit and an editable folder stay as they are; the lock can be moved with its folders."""
    work = tmp_path / "work"
    put_trees(work, {"fixed": [], "mine": ["fixed"]})
    put_trees(tmp_path / "other", {"repo/sub/far": []})
    (work / "r.txt").write_text(
        f"-e ./mine\nfixed @ ./fixed\nfar @ git+file://{tmp_path}/other/repo@v1#subdirectory=sub/far\n"
    )
    flags = f"--gpu none --index-url file://{work}"
    run(f"solve -r r.txt {flags}", work)
    sync = f"sync --target env --index-url file://{work} --find-links ../other/repo"
    refused = run("sync --target env", work, status=2)
    assert "far 1.5" in refused.stderr and "is of no index that you named" in refused.stderr
    assert "building an editable wheel of mine 1.5" in run(sync, work).stderr
    command = [work / "env" / "bin" / "python", "-c", "import far, fixed, mine"]
    subprocess.run(command, check=True)
    again = run(sync, work)
    assert "again   fixed 1.5" in again.stderr + again.stdout
    assert "building a wheel of far" not in again.stderr and "editable" not in again.stderr


ASKS = """
import os
from importlib.metadata import version
build_plain_wheel = build_wheel
def build_wheel(folder, config_settings=None, metadata_directory=None):
    found = config_settings, os.environ["MODE"], version("tool")
    assert found == ({"a": ["1", "2"], "b": "3"}, "fast", "1.0"), found
    return build_plain_wheel(folder)
"""


def test_sync_builds_with_what_the_project_says_and_a_backend_tells_a_profile(tmp_path):
    for index, releases in CASES["indexes"].items():
        put(tmp_path / index, releases)
    work = tmp_path / "work"
    put_trees(tmp_path, {"mine": ["lib<3"], "work": [f"mine @ file://{tmp_path}/mine"]})
    (tmp_path / "mine" / "backend.py").write_text(BUILDS + ASKS)
    (work / "pyproject.toml").write_text(
        f"""{BUILD_SYSTEM}
[project]
name = "x"
version = "1"
dynamic = ["dependencies"]
[tool.uv]
config-settings = {{a = ["1", "2"]}}
config-settings-package = {{mine = {{b = "3"}}, other = {{b = "4"}}}}
build-constraint-dependencies = ["tool<2"]
[tool.uv.extra-build-dependencies]
mine = ["tool"]
[tool.uv.extra-build-variables]
mine = {{MODE = "fast"}}
[tool.gpuenv]
project-dependencies = true
python = "{platform.python_version().rpartition(".")[0]}"
no-index = true
find-links = ["../default"]
[tool.gpuenv.profiles.ci]
gpu = "none"
glibc = "2.17"
[tool.gpuenv.profiles.two]
gpu = "none"
"""
    )
    assert run("lock", work).stderr.count("of the project") == 1
    lock = read_data(work / "pylock.ci.toml")
    assert [*map(pin_of, lock["packages"])] == ["lib 2.0", "mine ../mine"]
    sync = "sync --target env --no-index --find-links ../default --find-links ../mine"
    run(f"{sync} pylock.ci.toml", work)
    run("sync --target other --no-index", work)  # the project names ../mine
    text = (work / "pylock.ci.toml").read_text()
    for edited, problem in (
        ("config * a", "no setting of a build"),
        ("config * a=4", "was edited"),
    ):
        other = text.replace("config * a=1", edited)
        (work / "other.toml").write_text(other)
        assert problem in run(f"{sync} other.toml", work, status=2).stderr


def test_verify_accepts_what_an_override_allows(tmp_path):
    work, wheels = tmp_path / "work", tmp_path / "wheels"
    work.mkdir()
    wheels.mkdir()
    make_wheel(wheels, "app", "1.0", requires=["lib>=2"])
    make_wheel(wheels, "lib", "1.0")
    (work / "o.txt").write_text("lib==1.0\n")
    places = "--no-index --find-links ../wheels"
    run(f"solve app --override o.txt --gpu none {places}", work)
    run(f"sync pylock.toml --target env {places}", work)

    def dependencies():
        rows = run("verify --json --target env", work, status=None).document["checks"]
        return next(row["status"] for row in rows if row["name"] == "dependencies")

    assert dependencies() == "pass"
    (work / "env" / "gpuenv.json").unlink()  # nothing says any more that it is meant
    assert dependencies() == "fail"


def test_init_and_lock_take_a_project_of_poetry_1(tmp_path):
    put(tmp_path / "default", CASES["indexes"]["default"])
    work = tmp_path / "work"
    work.mkdir()
    project = work / "pyproject.toml"
    project.write_text("[tool.poetry.dependencies]\npython = '~3.12'\nlib = '^2'\n")
    run("init --gpu none", work)
    assert read_data(project)["tool"]["gpuenv"]["python"] == "3.12"
    run(f"lock --index-url file://{tmp_path}/default", work)
    lock = read_data(work / "pylock.cpu.toml")
    assert [*map(pin_of, lock["packages"])] == ["lib 2.0"]


def test_a_folder_that_is_added_is_a_source_of_the_project(tmp_path):
    """It is a dependency for uv and gpuenv alike, and the lock names it by the relative path."""
    work = tmp_path / "work"
    put_trees(tmp_path, {"mine": [], "near": []})
    (work / "links").mkdir(parents=True)
    (work / "pyproject.toml").write_text(
        f"""[project]
name = "x"
version = "1"
dependencies = []
[tool.gpuenv]
python = "{HERE}"
no-index = true
find-links = ["links"]
[tool.gpuenv.profiles.ci]
gpu = "none"
"""
    )
    run("add ../mine --editable ../near", work)
    document = read_data(work / "pyproject.toml")
    assert document["project"]["dependencies"] == ["mine", "near"]
    sources = {"mine": {"path": "../mine"}, "near": {"path": "../near", "editable": True}}
    assert document["tool"]["uv"]["sources"] == sources
    lock = read_data(work / "pylock.ci.toml")
    assert [*map(pin_of, lock["packages"])] == ["mine ../mine", "near ../near editable"]
    for command in ("sync ci", "sync pylock.ci.toml", "lock --check"):
        run(command, work)
    run(f"sync work/pylock.ci.toml --target {work / '.venv'}", tmp_path)
    run("remove near", work)
    assert "near" not in (work / "pyproject.toml").read_text()


def test_the_project_itself_is_installed_when_it_is_added(tmp_path):
    """It is built again when its files change; sync leaves an editable install of the user."""
    put(tmp_path / "links", {"lib": {"1.0": []}, "base": {"1.0": []}})
    put_trees(tmp_path, {"work": ["lib"]})
    work = tmp_path / "work"
    packages = work / ".venv" / "lib" / f"python{HERE}" / "site-packages"

    def write_project(version):
        info = f"Metadata-Version: 2.1\nName: work\nVersion: {version}\nRequires-Dist: lib\n\n"
        (work / "PKG-INFO").write_text(info)
        text = (work / "pyproject.toml").read_text()
        (work / "pyproject.toml").write_text(text.replace("1.5", version))

    asks = 'dependencies = ["base", "lib"]\n'
    project = f'[project]\nname = "work"\n{asks}version = "1.5"\n{BUILD_SYSTEM}'
    table = f'[tool.gpuenv]\npython = "{HERE}"\nno-index = true\nfind-links = ["../links"]\n'
    profile = '[tool.gpuenv.profiles.ci]\ngpu = "none"\n'
    lib = "{ path = '../links/lib-1.0-py3-none-any.whl', marker = 'python_version > \"3\"' }"
    sources = f"[tool.uv.sources]\nlib = [{lib}]\n"
    (work / "pyproject.toml").write_text(project + table + profile + sources)
    hint = "the project work is not installed; gpuenv add . installs it"
    assert hint in run("run true", work).stderr
    run("add .", work)
    document = read_data(work / "pyproject.toml")
    assert document["tool"]["gpuenv"]["requirements"] == ["work @ .#editable"]
    lock = read_data(work / "pylock.ci.toml")
    assert [*map(pin_of, lock["packages"])] == ["base 1.0", "lib 1.0", "work . editable"]
    assert hint not in run("run python -c 'import work'", work).stderr
    assert "work" not in run("export --to uv", work).stdout
    assert "wheels: 2 files downloaded" in run("download -d wheels", work).stdout
    run("sync --find-links wheels --no-index", work)
    refused = run("download --bundle work.pyz", work, status=2)
    refused.says_in_one_line("work is an editable install")
    write_project("1.6")
    run("lock --check", work)
    run("sync", work)
    assert (packages / "work-1.6.dist-info").exists()
    assert "of the lock already" in run("sync", work).stdout
    run("remove work", work)
    assert not (packages / "work-1.6.dist-info").exists()
    install = [sys.executable, "-m", "pip", "--python", str(work / ".venv"), "install", "-q"]
    flags = ["--no-index", "--no-deps", "--no-build-isolation", "-e", "."]
    subprocess.run([*install, *flags], cwd=work, check=True)
    run("remove lib", work)  # which the metadata of the installation names
    assert not [*packages.glob("lib-*")] and (packages / "work-1.6.dist-info").exists()
    run("sync --exact --yes", work)
    assert not (packages / "work-1.6.dist-info").exists()
