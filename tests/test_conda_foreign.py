"""Locks of conda environments by other tools, and those of profiles in a repository."""

import json
import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

import conda_prefixes
from conda_prefixes import HOST, packages_in
from gpuenv import api
from gpuenv.errors import InputError
from gpuenv.install import conda_prefix
from gpuenv.prefix import conda_packages
from gpuenv.requirements import conda_projects
from small_wheels import make_wheel
from tables import DATA, ROOT, data_file, each

TABLES = data_file("conda_foreign.toml")
CONDA = ["python 3.12.1", "openssl 3.0.7", "requests 2.32.0"]


pytestmark = pytest.mark.usefixtures("one_rattler")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The URL and the sha256 of a wheel."""
    made = make_wheel(tmp_path_factory.mktemp("wheels"), "leaf-kit", "1.0")
    return {"url": made.url, "sha256": made.sha256}


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
    call(f"sync {path} --target {target} {HOST} --no-verify")
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


@each("form old new says", TABLES["damages"])
def test_what_cannot_be_used_is_said(form, old, new, says, conda_rows, wheel, tmp_path):
    """The other platform is not for this host either."""
    document = FORMS[form](conda_rows, wheel).replace("osx-arm64", "osx-64")
    old = old.replace("SHA256", wheel["sha256"])
    assert old in document
    path = tmp_path / "lock.yml"
    path.write_text(document.replace(old, new))
    with pytest.raises(InputError) as caught:
        api.read_lock(str(path))
    assert says in caught.value.message


@each("damaged", [False, True])
def test_an_explicit_lock_with_md5_is_compared_with_the_channel(
    damaged, conda_rows, tmp_path, call
):
    path, target = tmp_path / "explicit.txt", tmp_path / "prefix"
    row = conda_rows["openssl 3.0.7"]
    md5 = "0" * 32 if damaged else row["md5"]
    path.write_text(f"@EXPLICIT\n{row['url']}#{md5}\n")
    sync = f"sync {path} --target {target} {HOST} --no-verify"
    if damaged:
        output = call(sync, status=2).stderr
        assert f"md5 {md5} in the lock, {row['md5']} in the channel" in output
        assert not target.exists()
        return
    call(sync)
    record = conda_packages(str(target))["openssl"]
    assert record["sha256"] == row["sha256"]
    for named in (path, ""):  # the lock, and what was recorded of it
        done = call(f"verify {named} --target {target} --no-device --json", status=None)
        (check,) = [check for check in done.document["checks"] if check["name"] == "versions"]
        assert check["status"] == "pass"


def test_an_explicit_lock_with_an_md5_that_no_channel_has(conda_rows, tmp_path):
    path = tmp_path / "explicit.txt"
    url = conda_rows["openssl 3.0.7"]["url"].replace("3.0.7", "3.0.8")
    path.write_text(f"@EXPLICIT\n{url}#{'0' * 32}\n")
    target = str(tmp_path / "prefix")
    with pytest.raises(InputError, match="the channel gives no sha256"):
        api.sync(api.read_lock(str(path)), target, host=api.describe(gpus=["H100"]))


# ---- environment.yml, construct.yaml, pixi.toml --------------------------------------------------


@pytest.fixture
def solve(call):
    """solve(path, words): solve for a conda-lock.yml at this path."""
    command = f"solve --backend conda --format conda-lock {HOST}"
    return lambda path, words, status=0: call(f"{command} -o {path} {words}", status=status)


@pytest.fixture
def lock(channel_url, solve, tmp_path):
    path = tmp_path / "conda-lock.yml"
    solve(path, f"--channel {channel_url} requests")
    return path


@pytest.fixture
def exported(call, tmp_path):
    """exported(lock, tool): the text that is written for a tool."""

    def export(lock, tool):
        call(f"export {lock} --to {tool} -o {tmp_path}/{tool}")
        return (tmp_path / tool).read_text()

    return export


def test_an_environment_file_solves_to_the_same_packages(
    lock, tmp_path, channel_url, solve, exported
):
    text = exported(lock, "conda")
    document = yaml.safe_load(text)
    assert "requests=2.32.0=h0_0" in document["dependencies"]
    assert document["channels"] == [channel_url]
    path = tmp_path / "environment.yml"
    path.write_text(text)
    solve(tmp_path / "again.yml", f"-r {path}")
    again, first = api.read_lock(str(tmp_path / "again.yml")), api.read_lock(str(lock))
    assert [pin.wheel.url for pin in again.pins] == [pin.wheel.url for pin in first.pins]


def test_wheels_beside_conda_packages_are_exported(conda_rows, wheel, tmp_path, call, exported):
    path = tmp_path / "pixi.lock"
    path.write_text(pixi_lock(conda_rows, wheel))
    dependencies = yaml.safe_load(exported(path, "conda"))["dependencies"]
    assert dependencies[-2:] == ["pip", {"pip": ["leaf-kit==1.0"]}]
    document = exported(path, "pixi")
    assert tomllib.loads(document)["pypi-dependencies"] == {"leaf-kit": "==1.0"}
    done = call(f"export {path} --to constructor", status=3)
    assert "constructor installs no wheels, and leaf-kit is one" in done.stderr
    done = call(f"export {path} --to uv", status=2)
    assert "uv takes wheels, and the lock has conda packages" in done.stderr


def test_a_pixi_workspace_is_read(tmp_path):
    """The default environment has its features, and the tables of the platform."""
    path = tmp_path / "pixi.toml"
    path.write_text(TABLES["pixi"])
    project = conda_projects.read_project_file(str(path), "linux-x86_64")
    specs = ("requests >=2.3,<3 h0*", "numpy", "CHANNEL::curl 8.9.0", "openssl 3.*")
    assert (project.channels, project.specs) == (("CHANNEL",), specs)
    assert project.wheels.requirements == (
        "leaf-kit[a,b]>=1",
        f"demo @ {tmp_path}/.#editable",
        "tool @ git+https://code.example/tool@v1#subdirectory=python",
        'part @ https://files.example/part-1.0-py3-none-any.whl ; python_version > "3"',
        "torch==2.9.0",
    )
    assert project.wheels.package_indexes == ("torch=https://wheels.example/cu128",)
    assert project.wheels.extra_index_urls == ("https://wheels.example/simple",)
    assert "zlib" in conda_projects.read_project_file(str(path), "win-amd64").specs
    text = TABLES["pixi"].replace('["more"]', '{ features = ["other"], no-default-feature = true }')
    path.write_text(text)
    assert conda_projects.read_project_file(str(path), "linux-x86_64").specs == ("libcudnn",)


def test_a_pixi_workspace_is_solved_explained_and_compared_with_its_lock(
    lock, conda_rows, wheel, tmp_path, call, channel_url, solve, exported
):
    path, again = tmp_path / "pixi.toml", tmp_path / "again.yml"
    path.write_text(exported(lock, "pixi"))
    solve(again, f"-r {path}")
    urls = [pin.wheel.url for pin in api.read_lock(str(lock)).pins]
    assert [pin.wheel.url for pin in api.read_lock(str(again)).pins] == urls
    call(f"explain {path} {HOST}")
    channel = json.dumps(channel_url)
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


@each("name text says", TABLES["bad_projects"])
def test_a_project_file_that_cannot_be_used(name, text, says, solve, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    (line,) = solve(tmp_path / "lock.yml", f"-r {path}", status=2).stderr.splitlines()
    assert says in line and not (tmp_path / "lock.yml").exists()


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


def test_profiles_of_wheels_and_of_conda_stand_side_by_side(
    conda_rows, wheel, tmp_path, call, monkeypatch, channel_url
):
    monkeypatch.chdir(tmp_path)
    project, own = tmp_path / "pyproject.toml", tmp_path / "packages.conda-lock.yml"
    text = TABLES["project"].replace("CHANNEL", channel_url)
    files = str(Path(urlsplit(wheel["url"]).path).parent)
    project.write_text(text.replace("FILES", files))
    done = call("lock")
    lock = api.read_lock(str(own))
    assert {"requests", "numpy", "python"} <= lock.versions.keys()
    assert [*lock.wheels.versions] == ["leaf-kit"]
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
    call(f"sync --target {target} --no-verify --gpu none")
    assert "numpy 1.26.4" in packages_in(target)
    (installed,) = conda_prefix.wheels_in(str(target))
    assert installed.name == "leaf-kit"


# ---- docs/conda.md -------------------------------------------------------------------------------

# Arguments that are added to those of the command.
MORE = {
    "solve": f"--channel CHANNEL {HOST}",
    "install": f"--channel CHANNEL {HOST} --no-verify --yes",
    "sync": f"{HOST} --no-verify --yes",
    "verify": "--no-device",
    "export": "",
    "explain": HOST,
}


def test_the_commands_of_the_documentation(channel_url, tmp_path, call, monkeypatch):
    """The commands of docs/conda.md run in its order, in one folder, with a local channel."""
    monkeypatch.chdir(tmp_path)
    make_wheel(tmp_path, "trl", "1.0")
    environment = {"channels": [channel_url], "dependencies": ["requests", {"pip": ["trl"]}]}
    (tmp_path / "environment.yml").write_text(json.dumps(environment))
    text = (ROOT / "docs" / "conda.md").read_text()
    commands = re.findall(r"^    gpuenv ((?:[^#\n]|(?<! )#)+)", text, re.MULTILINE)
    names = {command.split()[0] for command in commands}
    assert len(commands) >= 12 and names == MORE.keys()
    for command in commands:
        more = MORE[command.split()[0]].replace("CHANNEL", channel_url)
        if "--pip" in command or "-r environment.yml" in command:
            more += f" --find-links {tmp_path} --no-index"
        # The channel has no cuda-version 12.8.
        typed = command.replace("PREFIX", "env").replace("12.8", "12.9")
        call(f"{typed} {more}")
