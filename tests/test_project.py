"""[tool.gpuenv] in a repository: init, lock, --check, sync, locks of other tools, hooks."""

import os
import re
import shutil
import sys
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuenv
from gpuenv import api
from gpuenv.detect.host import write_host
from gpuenv.errors import TamperedError
from gpuenv.lock import pylock
from gpuenv.lock.host_fit import fit
from gpuenv.project.profiles import host_of
from index_server import IndexServer
from processes import program, run_program
from small_wheels import replace_in, write_files
from tables import HERE, ROOT, cases, data_file, each, read_data
from test_cli import contents, run

CASES = data_file("project.toml")
REPO = """\
[project]
name = "demo"
version = "1"

[tool.gpuenv]
frameworks = ["torch"]
requirements = []
python = "3.12"

[tool.gpuenv.profiles.v100]
gpu = "V100"
driver = "550.54.14"

[tool.gpuenv.profiles.h100]
gpu = "H100"
driver = "580.65.06"
separate-versions = true

[tool.gpuenv.profiles.ci]
gpu = "none"
"""
LOCKS = {"pylock.v100.toml", "pylock.h100.toml", "pylock.ci.toml"}


def unescaped(text):
    return text.encode().decode("unicode_escape")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUENV_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def folder(folder, monkeypatch):
    """The working folder of a command."""
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """A repository with its three locks."""
    folder = tmp_path_factory.mktemp("locked") / "repo"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(REPO)
    run("lock --offline", folder, HTTPS_PROXY="http://127.0.0.1:9")
    return folder


@pytest.fixture
def repo(locked, folder):
    """A repository with its three locks, in which commands run."""
    shutil.copytree(locked, folder, dirs_exist_ok=True)
    return folder


def pins(path):
    return gpuenv.read_lock(str(path)).versions


# ---- the table -----------------------------------------------------------------------------------


@cases(CASES["wrong"])
def test_a_wrong_table_is_one_line(case, folder, call):
    right = 'frameworks = ["torch"]\npython = "3.12"\n'
    table = unescaped(case.get("table", ""))
    more = "" if "profiles" in table else '\n[tool.gpuenv.profiles.cpu]\ngpu = "none"\n'
    whole = unescaped(case.get("whole", "")) or right + table + more
    text = unescaped(case.get("file", "")) or f"[tool.gpuenv]\n{whole}"
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    before = contents(folder)
    for command in ("lock", "lock --check"):
        call(command, status=2).says_in_one_line(*case["says"])
    assert contents(folder) == before


def test_dependencies_of_the_project_are_locked_with_it(folder, call):
    text = REPO.replace('version = "1"', 'version = "1"\ndependencies = ["torch>=2.5", "pillow"]')
    more = 'requirements = ["filelock"]\nproject-dependencies = true\ngroups = ["more"]'
    text = text.replace("requirements = []", more)
    text = text.replace('gpu = "none"', 'gpu = "none"\ngroups = ["dev"]')
    (folder / "pyproject.toml").write_text(
        text + '[dependency-groups]\ndev = ["packaging"]\nmore = ["rich"]\n'
    )
    lock = folder / "pylock.ci.toml"
    call("lock ci --offline")
    assert {"torch", "pillow", "packaging", "filelock"} <= {*pins(lock)} and "rich" not in pins(
        lock
    )
    assert len(gpuenv.read_lock(str(lock)).choices) == 1
    replace_in(folder / "pyproject.toml", '"pillow"]', '"pillow<99"]')
    done = call("lock --check ci", status=1)
    assert "requirements: pillow<99 was added, pillow was removed" in done.stdout


# ---- lock ----------------------------------------------------------------------------------------


def test_each_profile_gets_the_build_of_its_host(locked):
    assert {path.name for path in locked.glob("pylock.*")} == LOCKS
    locks = {name: gpuenv.read_lock(str(locked / name)) for name in LOCKS}
    project = gpuenv.read_project(str(locked))
    for profile in project.profiles:
        lock = locks[profile.filename]
        host = host_of(profile, api.compatibility_data())
        assert fit(lock, host) == ()
        doubts = gpuenv.reasons_against([*lock.versions.items()], host)
        assert all(reason.code.endswith("-unknown") for reason in doubts)
    assert (7, 0) in locks["pylock.v100.toml"].needs.compute_capabilities
    assert (9, 0) in locks["pylock.h100.toml"].needs.compute_capabilities
    assert locks["pylock.ci.toml"].needs.driver is None
    assert not any(pin.wheel.name.startswith("nvidia-") for pin in locks["pylock.ci.toml"].pins)


def test_locking_again_changes_no_byte_and_says_so(repo, call):
    before = contents(repo)
    times = {name: (repo / name).stat().st_mtime_ns for name in LOCKS}
    done = call("lock --offline")
    for profile, line in zip(("v100", "h100", "ci"), done.stdout.splitlines()[:-1], strict=True):
        assert line.startswith(f"pylock.{profile}.toml: unchanged")
    assert contents(repo) == before
    assert times == {name: (repo / name).stat().st_mtime_ns for name in LOCKS}


def test_a_failing_profile_is_named_and_nothing_is_written(repo, call):
    replace_in(repo / "pyproject.toml", 'frameworks = ["torch"]', 'frameworks = ["torch>=2.14"]')
    before = contents(repo)
    for profiles in ("", "h100 v100"):
        done = call(f"lock --offline {profiles}", status=3)
        assert done.stdout == ""
        assert done.stderr.startswith("gpuenv: profile v100: no environment for ")
        assert "need code for compute capability 7.0 (V100)" in done.stderr
        assert contents(repo) == before
    call("lock --offline h100")


INDEXED = """\
[tool.gpuenv]
requirements = ["alpha"]
python = "{python}"
index-url = "{url}"

[tool.gpuenv.profiles.ci]
gpu = "none"
"""


@pytest.fixture
def indexed(folder, server):
    """A repository that locks from an index on loopback."""
    server.add("alpha", "1.0", ["beta"])
    server.add("beta", "1.0")
    server.add("gamma", "1.0", ["beta"])
    (folder / "pyproject.toml").write_text(INDEXED.format(python=HERE, url=server.url))
    return folder, server


def test_what_holds_is_kept_until_it_is_upgraded(indexed, call):
    folder, server = indexed
    lock = folder / "pylock.ci.toml"
    call("lock")
    server.add("alpha", "2.0", ["beta"])
    server.add("beta", "2.0")
    replace_in(folder / "pyproject.toml", '["alpha"]', '["alpha", "gamma"]')
    done = call("lock --refresh")
    assert pins(lock) == {"alpha": "1.0", "beta": "1.0", "gamma": "1.0"}
    assert done.stdout.splitlines()[:2] == [f"{lock.name}: 1 of 3 packages change", "  + gamma 1.0"]
    done = call("lock --refresh --upgrade alpha")
    assert pins(lock) == {"alpha": "2.0", "beta": "1.0", "gamma": "1.0"}
    assert "  alpha 1.0 -> 2.0" in done.stdout.splitlines()
    replace_in(
        folder / "pyproject.toml", '"gamma"', '"gamma", "beta>1"'
    )  # a pin that no longer holds moves by itself
    call("lock --refresh")
    assert pins(lock) == {"alpha": "2.0", "beta": "2.0", "gamma": "1.0"}
    server.add("alpha", "3.0", [])
    server.add("gamma", "2.0", [])
    replace_in(folder / "pyproject.toml", ', "beta>1"', "")
    done = call("lock ci --refresh --upgrade")
    assert pins(lock) == {"alpha": "3.0", "gamma": "2.0"}
    assert "  - beta 2.0" in done.stdout.splitlines()


def test_names_that_are_nowhere_are_refused(indexed, call):
    folder, _ = indexed
    call("lock")
    before = contents(folder)
    for flags, said in CASES["nowhere"].items():
        call(f"lock {flags}", status=2).says_in_one_line(said)
    assert contents(folder) == before


def test_pins_of_an_edited_lock_are_not_kept(indexed, call):
    folder, server = indexed
    call("lock")
    replace_in(folder / "pylock.ci.toml", 'created-by = "gpuenv"', 'created-by = "me"')
    server.add("alpha", "2.0")
    done = call("lock --refresh")
    assert "pylock.ci.toml: was edited after it was locked: its pins are not kept" in done.stderr
    assert pins(folder / "pylock.ci.toml") == {"alpha": "2.0"}


# ---- check ---------------------------------------------------------------------------------------


def test_fresh_locks(repo, call):
    before = contents(repo)
    done = call("lock --check")
    assert done.stderr == ""
    for profile, line in zip(("v100", "h100", "ci"), done.stdout.splitlines(), strict=True):
        assert line.startswith(f"pylock.{profile}.toml is fresh")
    document = call("lock --check --json").document
    assert document["ok"] is True and document["files"] == []
    assert [one["status"] for one in document["profiles"]] == ["fresh"] * 3
    assert contents(repo) == before


@cases(CASES["stale"])
def test_a_stale_lock_says_what_changed(case, repo, call):
    text = (repo / "pyproject.toml").read_text()
    assert text.count(case["old"]) == 1
    (repo / "pyproject.toml").write_text(text.replace(case["old"], unescaped(case["new"])))
    done = call("lock --check", status=1)
    assert done.stderr == ""
    assert case["says"] in done.stdout.splitlines()
    document = call("lock --check h100 --json", status=1).document
    assert (document["ok"], document["profiles"][0]["status"]) == (False, "stale")


@cases(CASES["edited"])
def test_an_edited_lock_is_found_and_not_installed(case, repo, call):
    path = repo / "pylock.h100.toml"
    text, count = re.subn(case["old"], case["new"], path.read_text(), count=1)
    assert count == 1
    path.write_text(text)
    done = call("lock --check", status=1)
    assert done.stderr == ""
    assert "pylock.h100.toml was edited after it was locked" in done.stdout
    assert case.get("says", "") in done.stdout
    assert done.stdout.count("is fresh") == 2
    before = contents(repo)
    done = call(f"sync {path.name} --target env --gpu H100 --driver 580.65.06", status=2)
    done.says_in_one_line("pylock.h100.toml: was edited after it was locked")
    assert contents(repo) == before
    on_a_host = f"lock --check {path.name} --gpu H100 --driver 580.65.06 --python 3.12"
    assert call(on_a_host, status=None).returncode in (1, 2)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_edit_of_a_value_goes_unseen(locked, data):
    import tomli_w

    document = read_data(locked / "pylock.h100.toml")
    node = document
    while True:
        key = data.draw(
            st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node)))
        )
        if not isinstance(node[key], (dict, list)) or not node[key]:
            break
        node = node[key]
    if data.draw(st.booleans()):
        del node[key]
    else:
        node[key] = data.draw(
            st.text() | st.integers(0, 9) | st.booleans() | st.lists(st.text(), max_size=2)
        )
    text = tomli_w.dumps(document)
    if tomllib.loads(text) == read_data(locked / "pylock.h100.toml"):
        return  # the value that was there
    if (node, key) == (document.get("tool", {}).get("gpuenv"), "content") and key not in node:
        return  # as locks were before there was a digest
    with pytest.raises(gpuenv.InputError) as refusal:
        pylock.loads(text, "pylock.toml")
    assert "\n" not in refusal.value.message
    gone = (
        "content" not in document.get("tool", {}).get("gpuenv", {})
        or document["tool"]["gpuenv"].get("format") != 1
    )
    assert isinstance(refusal.value, TamperedError) or gone


def test_missing_unreadable_and_foreign_locks_are_told_apart(repo, call):
    (repo / "pylock.v100.toml").unlink()
    done = call("lock --check", status=1)
    assert done.stdout.splitlines()[0] == "pylock.v100.toml is missing: run gpuenv lock v100"
    (repo / "pylock.v100.toml").write_text("lock-version = ")
    assert call("lock --check", status=2).stdout.startswith("pylock.v100.toml is not TOML")
    text = (repo / "pylock.h100.toml").read_text().partition("[tool.gpuenv]")[0]
    (repo / "pylock.v100.toml").write_text(text)
    assert "has no [tool.gpuenv]" in call("lock --check v100", status=2).stdout
    by_hand = "--framework torch --gpu V100 --driver 550.54.14 --python 3.12 --offline"
    call(f"solve {by_hand} -o pylock.v100.toml")
    done = call("lock --check v100", status=1)
    assert done.stdout.split(":")[0] == "pylock.v100.toml is stale"


def test_newer_data_is_a_note(repo, call):
    path = repo / "pylock.ci.toml"
    lock = gpuenv.read_lock(str(path))
    old = lock.replace(data="matrix 2020-01-01.00000000, index snapshot 2020-01-01+000000000000")
    path.write_text(pylock.dumps(old))
    assert f"  newer data: {lock.data}" in call("lock --check").stdout
    path.write_text(
        pylock.dumps(lock.replace(data="matrix 2999-01-01.0, index snapshot 2999-01-01+0"))
    )
    assert "newer data" not in call("lock --check").stdout
    done = call("lock ci --offline")
    assert (
        done.stdout.splitlines()[0].endswith("packages change")
        and "  data matrix 2999" in done.stdout
    )


# ---- locks of other tools ------------------------------------------------------------------------


def run_tool(command, folder):
    """Run a module of this Python, which succeeds."""
    own = {"UV_CACHE_DIR": str(folder / "cache"), "UV_PYTHON": sys.executable}
    return run_program(f"{sys.executable} -m {command}", cwd=folder, env={**os.environ, **own})


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Locks that pip and uv write of releases whose names and versions the data knows."""
    folder = tmp_path_factory.mktemp("foreign")
    with IndexServer(metadata="hashed") as server:
        server.add("torch", "2.15.0", ["nvidia-cudnn-cu13==9.26.0.51", "nvidia-cublas>=13"])
        server.add("nvidia-cudnn-cu13", "9.26.0.51")
        server.add("nvidia-cudnn-cu12", "9.28.0.42")
        server.add("nvidia-cublas", "13.4.1.3")
        server.add("tensorflow", "2.20.0", ["nvidia-cudnn-cu12>=9.3"])
        (folder / "in.txt").write_text("torch\ntensorflow\n")
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "demo"\nversion = "1"\nrequires-python = "=={HERE}.*"\n'
            f'dependencies = ["torch"]\n'
        )
        index, form = f"--index-url {server.url}", "--format pylock.toml -o pylock"
        uv = "uv --quiet --no-config"
        for command in (
            f"{uv} pip compile in.txt {index} {form}.uv.toml",
            f"{uv} export --default-index {server.url} {form}.export.toml",
            f"pip --isolated lock -r in.txt {index} -o pylock.pip.toml",
        ):
            run_tool(command, folder)
    return folder


@cases(CASES["foreign"])
def test_locks_of_pip_and_uv_are_judged(case, foreign, call, monkeypatch):
    monkeypatch.chdir(foreign)
    tool, codes = case["tool"], set(case["codes"])
    command = f"lock --check pylock.{tool}.toml {case['host']} --python {HERE}"
    command += " --platform linux-x86_64"
    done = call(f"{command} --json", status=1 if codes else 0)
    (document,) = done.document["files"]
    assert document["created_by"] == ("pip" if tool == "pip" else "uv")
    found = {reason["code"] for reason in document["reasons"]} - {"bad-pair", "known-avoid"}
    assert {code for code in found if not code.endswith("-unknown")} == codes
    assert document["ok"] is not bool(codes)
    text = call(command, status=None).stdout
    assert text.startswith(f"pylock.{tool}.toml ({document['created_by']}, ")
    assert ("would not work on linux-x86_64" in text) is bool(codes)


# ---- init ----------------------------------------------------------------------------------------


@cases(CASES["init"])
def test_init(case, folder, call):
    write_files(folder, case.get("files", {}))
    before = contents(folder)
    args = case.get("args") or ["--gpu", "H100", "--driver", "580.65.06"]
    done = call("init", *args, status=2 if "says" in case else 0)
    if "says" in case:
        done.says_in_one_line(*case["says"])
        assert contents(folder) == before
        return
    printed = done.stdout.splitlines()
    read = [line for line in printed if line.startswith(("imported", "left out"))]
    assert read == case.get("read", read)
    assert case.get("shows", "") in done.stdout
    after = contents(folder)
    written = after.pop("pyproject.toml")
    old = before.pop("pyproject.toml", b"")
    assert after == before
    assert written.startswith(old)
    assert (b"\r\n" in old) == (b"\r\n" in written) and b"\r\n" not in written.replace(b"\r\n", b"")
    document = tomllib.loads(written.decode())
    if "asked" in case:
        assert document["project"]["dependencies"] == case["asked"]
    table, own = document["tool"]["gpuenv"], case.get("gpuenv", {})
    assert own.items() <= table.items()
    assert set(table) <= {*own, "python", "profiles"}
    profiles = table["profiles"]
    assert list(profiles) == case["profiles"]
    expected = dict.fromkeys(profiles, case.get("gpu", {"gpu": "H100", "driver": "580.65.06"}))
    if "cpu" in profiles:
        frameworks = {"frameworks": case["cpu"]} if "cpu" in case else {}
        expected["cpu"] = {"gpu": "none", **frameworks}
    assert profiles == expected
    names = [profile.name for profile in gpuenv.read_project(str(folder)).profiles]
    assert names == case["profiles"]


FURTHER = b"""\
# a comment
[tool.gpuenv]  # another one
frameworks = ["torch", "cupy"]
python = "3.12"

[tool.gpuenv.profiles.v100]
gpu = "V100"
driver = "550.54.14"

[tool.other]
"""


@cases(CASES["further"])
def test_init_adds_profiles(case, folder, call):
    path = folder / "pyproject.toml"
    path.write_bytes(FURTHER)
    files = []
    for number, facts in enumerate(case.get("hosts", ())):
        files.append(f"{number}.json")
        host = gpuenv.describe(python="3.12", platform="linux-x86_64", **facts)
        write_host(host, str(folder / files[-1]))
    done = call("init --json", *case.get("args", ()), *files)
    document = done.document
    assert document["profiles"] == list(case["profiles"])
    assert document["covered"] == case.get("covered", [])
    content = path.read_bytes()
    assert content.startswith(FURTHER)
    assert (content == FURTHER) == (not case["profiles"])
    profiles = tomllib.loads(content.decode())["tool"]["gpuenv"]["profiles"]
    assert profiles.pop("v100") == {"gpu": "V100", "driver": "550.54.14"}
    assert profiles == case["profiles"]
    names = [profile.name for profile in gpuenv.read_project(str(folder)).profiles]
    assert names == ["v100", *case["profiles"]]
    if "--name" not in case.get("args", ()):  # a second time there is nothing to add
        done = call("init --json", *case.get("args", ()), *files)
        assert done.document["profiles"] == []
        assert path.read_bytes() == content


def test_init_then_lock_then_check(folder):
    (folder / "train.py").write_text("import torch\n")
    wrote = "wrote [tool.gpuenv] to pyproject.toml: torch; Python 3.12; profiles h100, cpu"
    for command, said in (
        ("init --gpu H100 --driver 580.65.06 --python 3.12", wrote),
        ("lock --offline", "pylock.h100.toml: new, "),
        ("lock --check", "pylock.cpu.toml is fresh"),
    ):
        done = run(command, folder)
        assert done.stderr == ""
        assert said in done.stdout


# ---- sync ----------------------------------------------------------------------------------------


def test_sync_says_what_fits_none(repo, call):
    (repo / "pylock.v100.toml").unlink()
    before = contents(repo)
    done = call("sync --target env --gpu H100 --driver 550.54.14 --glibc 2.35", status=1)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith(
        "gpuenv: the lock of no profile in pyproject.toml fits this host; nothing was installed"
    )
    assert lines[1:] == [
        "  pylock.h100.toml needs driver 580.65.06 or newer; this host has driver 550.54.14",
        "  pylock.ci.toml needs a host without a GPU, for which it was locked; this host has H100",
        "  pylock.v100.toml needs to be locked; it is missing",
    ]
    assert contents(repo) == before


@each("host said", CASES["fitting"])
def test_sync_takes_the_lock_that_fits(host, said, repo, call):
    (repo / "full").mkdir()
    (repo / "full" / "x").write_text("")  # a target that cannot be used: nothing is downloaded
    done = call(f"sync --target full --glibc 2.35 {host}", status=2)
    assert done.stdout.splitlines() == [said]


def test_a_locked_profile_is_installed_by_gpuenv_pip_and_uv(indexed):
    folder, lock = indexed[0], "pylock.ci.toml"
    done = run("lock", folder)
    done = run("sync --target env --no-verify --gpu none", folder)
    assert "pylock.ci.toml fits this host" in done.stdout
    assert len([*(folder / "env").rglob("alpha-1.0.dist-info")]) == 1
    pip = "pip --isolated install --dry-run --no-deps --ignore-installed --no-index"
    assert "Would install alpha-1.0 beta-1.0" in run_tool(f"{pip} -r {lock}", folder).stdout
    uv = "uv --no-config pip sync --preview-features pylock --dry-run --no-index"
    assert "Would install 2 packages" in run_tool(f"{uv} --target other {lock}", folder).stderr


# ---- pre-commit ----------------------------------------------------------------------------------


def git(folder, *args):
    who = ["-c", "user.name=x", "-c", "user.email=x@x.example", "-c", "init.defaultBranch=main"]
    run_program(["git", *who, *args], cwd=folder)


def test_hooks_run_under_pre_commit(repo, tmp_path):
    """The hooks of the checkout with another language: an environment would need the network."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert text.count("language: python\n") == text.count("- id: ") == 2
    (hooks / ".pre-commit-hooks.yaml").write_text(
        text.replace("language: python", "language: system")
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs / "gpuenv", f'exec "{sys.executable}" -m gpuenv "$@"')
    for folder in (hooks, repo):
        git(folder, "init")
        git(folder, "add", ".")
        git(folder, "commit", "-m", "x")
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "resolver"),
        "PRE_COMMIT_HOME": str(tmp_path / "pre-commit"),
        "GPUENV_CACHE_DIR": str(tmp_path / "cache"),
    }

    def hook(name, status=0):
        command = f"{sys.executable} -m pre_commit try-repo {hooks} {name} --all-files --verbose"
        return run_program(command, cwd=repo, env=environment, status=status)

    assert "pylock.h100.toml is fresh" in hook("gpuenv-lock-check").stdout
    replace_in(repo / "pyproject.toml", "requirements = []", 'requirements = ["pillow"]')
    git(repo, "add", "pyproject.toml")
    done = hook("gpuenv-lock-check", status=1)
    assert "pylock.h100.toml is stale: requirements were none, are pillow" in done.stdout
    done = hook("gpuenv-lock", status=1)
    assert "files were modified by this hook" in done.stdout
    assert "  + pillow " in done.stdout
    git(repo, "add", ".")
    hook("gpuenv-lock")
    hook("gpuenv-lock-check")
