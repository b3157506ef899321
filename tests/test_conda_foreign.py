"""Locks of conda environments by other tools, and those of profiles in a repository."""

import json
import shlex
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

import conda_prefixes
from conda_prefixes import HOST, packages_in
from gpuenv import api
from gpuenv.cli import main
from gpuenv.errors import InputError
from gpuenv.install import conda_prefix
from gpuenv.requirements import conda_projects
from index_server import make_wheel
from tables import DATA, ROOT, data_file, each

CONDA = ["python 3.12.1", "openssl 3.0.7", "requests 2.32.0"]


pytestmark = pytest.mark.usefixtures("one_rattler")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    from hashlib import sha256

    filename, data = make_wheel("leaf-kit", "1.0", ())
    path = tmp_path_factory.mktemp("wheels") / filename
    path.write_bytes(data)
    return {"url": path.as_uri(), "sha256": sha256(data).hexdigest()}


def conda_lock(conda_rows, wheel):
    packages = []
    for platform in ("linux-64", "osx-arm64"):
        for name in CONDA:
            row = conda_rows[name]
            hashes = {"sha256": row["sha256"], "md5": row["md5"]}
            packages.append({**row, "manager": "conda", "platform": platform, "hash": hashes})
            packages[-1] |= {"dependencies": {}}
        pip = {"name": "leaf_kit", "version": "1.0", "manager": "pip", "platform": platform}
        pip |= {"url": wheel["url"], "hash": {"sha256": wheel["sha256"]}, "dependencies": {}}
        packages.append(pip)
    return yaml.safe_dump({"version": 1, "metadata": {"platforms": []}, "package": packages})


def pixi_lock(conda_rows, wheel):
    urls = [conda_rows[name]["url"] for name in CONDA]
    used = [*({"conda": url} for url in urls), {"pypi": wheel["url"]}]
    packages = []
    for row in conda_rows.values():
        hashes = {"sha256": row["sha256"]}
        packages.append({"conda": row["url"], **hashes, "depends": row["depends"]})
    leaf = {"name": "leaf-kit", "version": "1.0", "sha256": wheel["sha256"]}
    packages.append({"pypi": wheel["url"], **leaf})
    environment = {"channels": [], "packages": {"linux-64": used, "osx-arm64": used[:1]}}
    document = {"version": 6, "environments": {"default": environment}, "packages": packages}
    return yaml.safe_dump(document, sort_keys=False)


FORMS = {"conda-lock": conda_lock, "pixi 6": pixi_lock}


@each("form", [*FORMS])
def test_a_lock_of_another_tool_is_installed_with_its_wheels(
    form, conda_rows, wheel, tmp_path, call
):
    """It is recognized by its content, not by its name."""
    path, target = tmp_path / "environment", tmp_path / "prefix"
    path.write_text(FORMS[form](conda_rows, wheel))
    command = ["sync", str(path), "--target", str(target), *HOST.split(), "--no-verify"]
    call(*command)
    assert packages_in(target) == set(CONDA)
    (installed,) = conda_prefix.wheels_in(str(target))
    assert (installed.name, installed.version) == ("leaf-kit", "1.0")
    lock = api.read_lock(str(path))
    assert conda_prefix.conda_check(str(target), lock).status == "pass"
    assert conda_prefix.wheels_check(str(target), lock.wheels).status == "pass"


@each("version", [4, 5, 6, 7])
def test_a_pixi_lock_of_each_version_is_read(version):
    """They were written by py-rattler 0.5.0, 0.6.3, 0.15.0 and 0.28.0, from one environment."""
    lock = api.read_lock(str(DATA / "pixi_locks" / f"{version}.lock"))
    files = [(pin.wheel.url.rpartition("/")[2], pin.wheel.sha256) for pin in lock.pins]
    conda = ("openssl-3.0.7-h0_0.conda", "a" * 64), ("python_abi-3.12-5_cp312.conda", "b" * 64)
    assert sorted(files) == [*conda]
    depends = {pin.wheel.name: pin.wheel.metadata["depends"] for pin in lock.pins}
    assert depends == {"openssl": ("ca-certificates",), "python_abi": ()}
    (leaf,) = lock.wheels.pins
    assert (leaf.wheel.name, leaf.wheel.version, leaf.wheel.sha256) == ("leaf-kit", "1.0", "c" * 64)


# what is changed in the text -> what the refusal says
DAMAGES = {
    "no sha256 of a wheel": ("wheel", "has no sha256 of its file"),
    "a source distribution": ("sdist", "is no wheel"),
    "another platform": ("platform", "is for osx-64, win-64, not for linux-64"),
    "another version": ("version", "version 9"),
}


@each("name", [*DAMAGES])
@each("form", ["conda-lock", "pixi 6"])
def test_what_cannot_be_used_is_said(form, name, conda_rows, wheel, tmp_path):
    kind, text = DAMAGES[name]
    document = FORMS[form](conda_rows, wheel)
    replaced = {
        "wheel": (f"sha256: {wheel['sha256']}", "sha256: null"),
        "sdist": (wheel["url"], wheel["url"].replace(".whl", ".tar.gz")),
        "platform": (
            "linux-64:\n" if form == "pixi 6" else "platform: linux-64",
            "platform: win-64",
        ),
        "version": ("version: 1\n" if form == "conda-lock" else "version: 6\n", "version: 9\n"),
    }[kind]
    if kind == "platform" and form == "pixi 6":
        replaced = ("linux-64:\n", "win-64:\n")
    document = document.replace(*replaced).replace("osx-arm64", "osx-64")
    path = tmp_path / "lock.yml"
    path.write_text(document)
    with pytest.raises(InputError) as caught:
        api.read_lock(str(path))
    assert text in caught.value.message


@each("damaged", [False, True])
def test_an_explicit_lock_with_md5_is_compared_with_the_channel(
    damaged, conda_rows, tmp_path, capsys
):
    path, target = tmp_path / "explicit.txt", tmp_path / "prefix"
    row = conda_rows["openssl 3.0.7"]
    md5 = "0" * 32 if damaged else row["md5"]
    path.write_text(f"@EXPLICIT\n{row['url']}#{md5}\n")
    status = main(["sync", str(path), "--target", str(target), *HOST.split(), "--no-verify"])
    output = capsys.readouterr().err
    if damaged:
        assert status == 2 and f"md5 {md5} in the lock, {row['md5']} in the channel" in output
        assert not target.exists()
        return
    assert status == 0, output
    record = conda_prefix.read_packages(str(target))["openssl"]
    assert record["sha256"] == row["sha256"]
    for named in ([str(path)], []):  # the lock, and what was recorded of it
        command = ["verify", *named, "--target", str(target), "--no-device", "--json"]
        assert main(command) in (0, 1)
        checks = json.loads(capsys.readouterr().out)["checks"]
        (check,) = [check for check in checks if check["name"] == "versions"]
        assert check["status"] == "pass"


def test_an_explicit_lock_with_an_md5_that_no_channel_has(conda_rows, tmp_path):
    path = tmp_path / "explicit.txt"
    url = conda_rows["openssl 3.0.7"]["url"].replace("3.0.7", "3.0.8")
    path.write_text(f"@EXPLICIT\n{url}#{'0' * 32}\n")
    target = str(tmp_path / "prefix")
    with pytest.raises(InputError, match="the channel gives no sha256"):
        api.sync(api.read_lock(str(path)), target, host=api.describe(gpus=["H100"]))


# ---- environment.yml, construct.yaml, pixi.toml --------------------------------------------------


def solve(conda_rows, path, *arguments):
    command = [
        "solve",
        "--backend",
        "conda",
        "--format",
        "conda-lock",
        "-o",
        str(path),
        *HOST.split(),
    ]
    return main([*command, *arguments])


@pytest.fixture(scope="module")
def lock(conda_rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("lock") / "conda-lock.yml"
    assert (
        solve(conda_rows, path, "--channel", conda_rows["openssl 3.0.7"]["channel"], "requests")
        == 0
    )
    return path


def exported(lock, tool, tmp_path):
    path = tmp_path / tool
    assert main(["export", str(lock), "--to", tool, "-o", str(path)]) == 0
    return path.read_text()


def test_an_environment_file_solves_to_the_same_packages(lock, conda_rows, tmp_path):
    text = exported(lock, "conda", tmp_path)
    document = yaml.safe_load(text)
    assert "requests=2.32.0=h0_0" in document["dependencies"]
    assert document["channels"] == [conda_rows["openssl 3.0.7"]["channel"]]
    path = tmp_path / "environment.yml"
    path.write_text(text)
    assert solve(conda_rows, tmp_path / "again.yml", "-r", str(path)) == 0
    again, first = api.read_lock(str(tmp_path / "again.yml")), api.read_lock(str(lock))
    assert [pin.wheel.url for pin in again.pins] == [pin.wheel.url for pin in first.pins]


def test_wheels_beside_conda_packages_are_exported(conda_rows, wheel, tmp_path, call):
    path = tmp_path / "pixi.lock"
    path.write_text(pixi_lock(conda_rows, wheel))
    dependencies = yaml.safe_load(exported(path, "conda", tmp_path))["dependencies"]
    assert dependencies[-2:] == ["pip", {"pip": ["leaf-kit==1.0"]}]
    document = exported(path, "pixi", tmp_path)
    assert tomllib.loads(document)["pypi-dependencies"] == {"leaf-kit": "==1.0"}
    done = call(f"export {path} --to constructor", status=3)
    assert "constructor installs no wheels, and leaf-kit is one" in done.stderr
    done = call(f"export {path} --to uv", status=2)
    assert "uv takes wheels, and the lock has conda packages" in done.stderr


PIXI = """\
[workspace]
channels = ["CHANNEL"]
platforms = ["linux-64", "win-64"]

[dependencies]
requests = { version = ">=2.3, <3", build = "h0*" }
numpy = "*"

[pypi-dependencies]
leaf-kit = { version = ">=1", extras = ["a", "b"] }

[target.linux.dependencies]
curl = { version = "8.9.0", channel = "CHANNEL" }

[target.win-64.dependencies]
zlib = "*"

[feature.more.dependencies]
openssl = "3.*"

[feature.other.host-dependencies]
libcudnn = "*"

[environments]
default = ["more"]
"""


def test_a_pixi_workspace_is_read(tmp_path):
    """The default environment has its features, and the tables of the platform."""
    path = tmp_path / "pixi.toml"
    path.write_text(PIXI)
    project = conda_projects.read_project_file(str(path), "linux-x86_64")
    specs = ("requests >=2.3,<3 h0*", "numpy", "CHANNEL::curl 8.9.0", "openssl 3.*")
    assert (project.channels, project.specs) == (("CHANNEL",), specs)
    assert project.wheels == ("leaf-kit[a,b]>=1",)
    assert "zlib" in conda_projects.read_project_file(str(path), "win-amd64").specs
    text = PIXI.replace('["more"]', '{ features = ["other"], no-default-feature = true }')
    path.write_text(text)
    assert conda_projects.read_project_file(str(path), "linux-x86_64").specs == ("libcudnn",)


def test_a_pixi_workspace_is_solved_explained_and_compared_with_its_lock(
    lock, conda_rows, wheel, tmp_path, call
):
    path, again = tmp_path / "pixi.toml", tmp_path / "again.yml"
    path.write_text(exported(lock, "pixi", tmp_path))
    assert solve(conda_rows, again, "-r", str(path)) == 0
    urls = [pin.wheel.url for pin in api.read_lock(str(lock)).pins]
    assert [pin.wheel.url for pin in api.read_lock(str(again)).pins] == urls
    call(f"explain {path} {HOST}")
    channel = json.dumps(conda_rows["openssl 3.0.7"]["channel"])
    manifest = f'[workspace]\nchannels = [{channel}]\n[pypi-dependencies]\nleaf-kit = "*"\n'
    manifest += '[dependencies]\npython = "3.12.*"\ncuda-version = "CUDA"\n'
    path.write_text(manifest.replace("CUDA", "13.0"))
    done = call(f"explain {path} {HOST}", status=3)
    assert "cuda-version 13.0 needs driver 580.65.06" in done.stdout
    path.write_text(manifest.replace("CUDA", "*"))
    with pytest.raises(InputError, match=r"pixi\.lock: cannot be read"):
        api.read_lock(str(path))
    (tmp_path / "pixi.lock").write_text(pixi_lock(conda_rows, wheel))
    with pytest.raises(InputError, match="is stale: it has no cuda-version"):
        api.read_lock(str(path))
    path.write_text(manifest.replace('cuda-version = "CUDA"\n', ""))
    own = api.read_lock(str(path))
    assert own.conda and own.wheels is not None and len(own.pins) == len(CONDA)


# What a project file must not have, and what the message says.
BAD_PROJECTS = data_file("tables/conda_foreign.json")["bad_projects"]


@each("name text", [(name, text) for name, rows in BAD_PROJECTS.items() for text in rows])
def test_a_project_file_that_cannot_be_used(name, text, conda_rows, tmp_path, capsys):
    path = tmp_path / name
    path.write_text(text)
    assert solve(conda_rows, tmp_path / "lock.yml", "-r", str(path)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert BAD_PROJECTS[name][text] in line and not (tmp_path / "lock.yml").exists()


CUDA = ["python 3.12.1", "cuda-version 13.0", "pytorch 2.13.0 cuda130_py312_h0_300"]


@each("form", ["explicit", "pixi"])
def test_explain_says_whether_a_conda_lock_works(form, conda_rows, wheel, tmp_path, call):
    path = tmp_path / "lock"
    if form == "explicit":
        conda_prefixes.make_lock(path, CUDA, conda_rows)
    else:
        text = pixi_lock({**conda_rows, **dict.fromkeys(CONDA, conda_rows[CUDA[1]])}, wheel)
        path.write_text(text)
    document = call(f"explain {path} --json {HOST}", status=3).document
    assert "driver-floor" in {reason["code"] for reason in document["reasons"]}
    newer = HOST.replace("570.86.10", "580.65.06").split()
    assert "another tool" in call(f"explain {path}", *newer).stdout


# ---- profiles ------------------------------------------------------------------------------------

PROJECT = """\
[project]
name = "demo"
version = "1"

[tool.gpuenv]
frameworks = []
python = "3.12"
find-links = ["FILES"]
no-index = true

[tool.gpuenv.profiles.wheels]
requirements = ["leaf-kit"]
gpu = "none"

[tool.gpuenv.profiles.packages]
backend = "conda"
channels = ["CHANNEL"]
requirements = ["requests", "numpy>=2"]
wheels = ["leaf-kit"]
gpu = "none"
"""


def test_profiles_of_wheels_and_of_conda_stand_side_by_side(
    conda_rows, wheel, tmp_path, call, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    project, own = tmp_path / "pyproject.toml", tmp_path / "packages.conda-lock.yml"
    text = PROJECT.replace("CHANNEL", conda_rows["openssl 3.0.7"]["channel"])
    files = str(Path(urlsplit(wheel["url"]).path).parent)
    project.write_text(text.replace("FILES", files))
    done = call("lock")
    lock = api.read_lock(str(own))
    assert {"requests", "numpy", "python"} <= {pin.wheel.name for pin in lock.pins}
    assert [pin.wheel.name for pin in lock.wheels.pins] == ["leaf-kit"]
    before = own.read_bytes()
    call("lock --check")
    call("lock")
    assert own.read_bytes() == before
    project.write_text(project.read_text().replace("numpy>=2", "numpy<2"))
    done = call("lock --check", status=1)
    assert "packages.conda-lock.yml is stale: requirements were" in done.stdout
    call("lock packages")
    # An environment of conda packages takes the lock of the conda profile.
    target = tmp_path / "env"
    (target / "conda-meta").mkdir(parents=True)
    (target / "conda-meta" / "history").touch()
    command = ["sync", "--target", str(target), "--no-verify", "--gpu", "none"]
    call(*command)
    assert "numpy 1.26.4" in packages_in(target)
    (installed,) = conda_prefix.wheels_in(str(target))
    assert installed.name == "leaf-kit"


# ---- docs/conda.md -------------------------------------------------------------------------------

PAGES = ("conda.md",)
# Arguments that are added to those of the command.
MORE = {
    "solve": ("--channel", "CHANNEL", *HOST.split()),
    "install": ("--channel", "CHANNEL", *HOST.split(), "--no-verify", "--yes"),
    "sync": (*HOST.split(), "--no-verify", "--yes"),
    "verify": ("--no-device",),
    "export": (),
    "explain": HOST.split(),
}


def test_the_commands_of_the_documentation(conda_rows, tmp_path, capsys, monkeypatch):
    """The commands run in the order of the pages, in one folder, with a local channel."""
    monkeypatch.chdir(tmp_path)
    channel = conda_rows["openssl 3.0.7"]["channel"]
    filename, data = make_wheel("trl", "1.0", ())
    (tmp_path / filename).write_bytes(data)
    environment = {"channels": [channel], "dependencies": ["requests", {"pip": ["trl"]}]}
    (tmp_path / "environment.yml").write_text(json.dumps(environment))
    docs = ROOT / "docs"
    text = "\n".join((docs / page).read_text() for page in PAGES)
    lines = [line[4:] for line in text.splitlines() if line[:11] == "    gpuenv "]
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    assert len(commands) >= 12 and {command[0] for command in commands} == MORE.keys()
    statuses = []
    for command in commands:
        more = [channel if text == "CHANNEL" else text for text in MORE[command[0]]]
        if "--pip" in command or (command[-1] == "environment.yml" and "-r" in command):
            more += ["--find-links", str(tmp_path), "--no-index"]
        # The channel has no cuda-version 12.8.
        typed = [text.replace("PREFIX", "env").replace("12.8", "12.9") for text in command]
        status = main([*typed, *more])
        statuses.append((status, typed, capsys.readouterr().err if status else ""))
    assert [row for row in statuses if row[0]] == []
