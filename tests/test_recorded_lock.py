"""The lock that a sync records in an environment, and that `gpuenv verify` compares it with."""

import json
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from gpuenv import api
from gpuenv.install import environment_files, wheels
from gpuenv.interpreters import find_uv
from processes import run_program
from small_wheels import make_lock, make_wheel, write_lock
from tables import each, read_data

CPU = "--gpu none --no-verify --installer uv"


@pytest.fixture
def env(tmp_path):
    return tmp_path / "env"


@pytest.fixture
def locks(tmp_path):
    """Locks of one package with its releases, and of two packages."""
    (tmp_path / "links").mkdir()
    made = {name: make_wheel(tmp_path / "links", "alpha", name) for name in ("1.0", "2.0")}
    beta = make_wheel(tmp_path / "links", "beta", "1.0")
    found = {name: [wheel] for name, wheel in made.items()} | {"both": [made["1.0"], beta]}
    return {
        name: write_lock(tmp_path / f"pylock.{name.replace('.', '-')}.toml", make_lock(*pins))
        for name, pins in found.items()
    }


@pytest.fixture
def sync(call):
    def command(env, lock, flags=""):
        call(f"sync {lock} --target {env} --find-links {lock.parent}/links {CPU} {flags}")

    return command


@pytest.fixture
def verify(call):
    """verify(flags): the exit status, and (status, evidence) of the check against a lock."""

    def command(flags=""):
        done = call(f"verify --no-device --json {flags}", status=None)
        checks = done.document["checks"]
        named = {check["name"]: (check["status"], check["evidence"]) for check in checks}
        return done.returncode, named.get("versions")

    return command


def uv_pip(env, *arguments):
    run_program([find_uv() or "", "pip", *arguments, "--python", env, "--quiet"])


def test_the_recorded_lock_is_verified_and_not_that_of_the_working_folder(env, locks, sync, verify):
    sync(env, locks["1.0"])
    assert api.recorded_lock(str(env)) == api.read_lock(str(locks["1.0"]))
    Path("pylock.toml").write_bytes(locks["2.0"].read_bytes())
    for place in (f"--target {env}", f"--python {env}/bin/python"):
        status, named = verify(place)
        assert (status, named[0]) == (0, "pass")
    assert verify(f"{locks['2.0']} --target {env}")[0] == 1


def test_a_lock_of_the_working_folder_counts_where_none_is_recorded(
    locks, monkeypatch, sync, verify
):
    monkeypatch.setenv("VIRTUAL_ENV", str(Path("env").absolute()))
    sync(Path("env"), locks["1.0"])
    assert verify()[1][0] == "pass"  # the recorded lock
    Path("pylock.toml").write_bytes(locks["2.0"].read_bytes())
    assert verify()[1][0] == "pass"
    (Path("env") / environment_files.FILE).unlink()
    status, named = verify()
    assert (status, named[0]) == (1, "fail") and "2.0" in named[1]


@each("local status", [("cu12torch2.6cxx11abiFALSE uv", 0), ("pt26cu124 pip", 0), ("cu126 uv", 1)])
def test_a_file_name_adds_a_build_of_torch_to_the_version(local, status, env, locks, sync, verify):
    """METADATA of flash-attn's wheels has no local version; that of a framework has one."""
    local, installer = local.split()
    made = make_wheel(locks["1.0"].parent / "links", "gamma", "1.0")
    path = Path(unquote(made.url.removeprefix("file://")))
    path = path.rename(path.with_name(f"gamma-1.0+{local}-py3-none-any.whl"))
    version = f"1.0+{local.lower()}"
    wheel = made.replace(version=version, filename=path.name, url=path.as_uri())
    lock = write_lock(locks["1.0"].with_name("pylock.gamma.toml"), make_lock(wheel))
    sync(env, lock, f"--installer {installer}")
    sync(env, lock)
    assert verify(f"--target {env}")[0] == status


@each("change", ["another release", "a missing package"])
def test_a_later_change_fails(change, env, locks, sync, verify, call):
    sync(env, locks["both"])
    if change == "another release":
        (wheel,) = (locks["2.0"].parent / "links").glob("alpha-2.0-*.whl")
        uv_pip(env, "install", str(wheel))
    else:
        uv_pip(env, "uninstall", "beta")
    status, named = verify(f"--target {env}")
    assert (status, named[0]) == (1, "fail")
    call(f"verify --no-device --hook --target {env}", status=1)
    call(f"sync --target {env} --find-links {env.parent}/links {CPU}")


def test_environments_without_a_recorded_lock(env, locks, sync, verify):
    """Of an older gpuenv, of another tool, and with a record that is no JSON."""
    sync(env, locks["1.0"])
    record = env / environment_files.FILE
    fields = read_data(record)
    del fields["lock"]
    for text in (json.dumps(fields), "", None):
        record.unlink(missing_ok=True)
        if text is not None:
            record.write_text(text)
        assert api.recorded_lock(str(env)) is None
        assert verify(f"--target {env}") == (0, None)


def test_an_edited_record_is_refused(env, locks, call, sync):
    sync(env, locks["1.0"])
    record = env / environment_files.FILE
    record.write_text(record.read_text().replace('version = \\"1.0\\"', 'version = \\"2.0\\"'))
    (line,) = call(f"verify --no-device --target {env}", status=2).stderr.splitlines()[:1]
    assert f"{record}: was edited after it was locked" in line


def test_each_sync_records_its_lock_and_a_rollback_returns_to_the_one_before(
    env, locks, sync, verify, call
):
    def recorded():
        return api.recorded_lock(str(env))

    sync(env, locks["both"])
    both = recorded()
    sync(env, locks["2.0"])
    assert recorded() == api.read_lock(str(locks["2.0"]))
    call(f"rollback --target {env}")
    assert recorded() == both
    # Nothing is installed, but the environment holds another lock now.
    before = (env / environment_files.FILE).stat()
    sync(env, locks["1.0"], "--inexact")
    assert recorded() == api.read_lock(str(locks["1.0"]))
    # The files of packages are compared with the time of the record.
    assert (env / environment_files.FILE).stat().st_mtime_ns == before.st_mtime_ns
    record = (env / environment_files.FILE).stat()
    sync(env, locks["1.0"], "--inexact")
    assert (env / environment_files.FILE).stat() == record
    assert verify(f"--target {env}")[0] == 0


@each("in_place", [False, True])
def test_gpuenv_pip_leaves_no_lock_that_the_environment_does_not_hold(
    in_place, env, locks, monkeypatch, sync, verify, call
):
    sync(env, locks["1.0"])
    monkeypatch.setattr(wheels, "can_be_replaced", lambda _: not in_place)
    links = locks["1.0"].parent / "links"
    command = f"pip install --python {env} --no-index --find-links {links}"
    call(f"{command} alpha==1.0")  # changes nothing
    assert api.recorded_lock(str(env)) is not None
    call(f"{command} alpha==2.0")
    assert api.recorded_lock(str(env)) is None
    assert verify(f"--target {env}") == (0, None)


def test_a_bundle_records_the_lock(tmp_path, locks, call):
    lock, bundle, env = locks["1.0"], tmp_path / "env.pyz", tmp_path / "env"
    call(f"download {lock} --find-links {lock.parent}/links --bundle {bundle}")
    shutil.rmtree(lock.parent / "links")
    run_program(f"{sys.executable} {bundle} --target {env} --gpu none --no-verify")
    assert api.recorded_lock(str(env)) == api.read_lock(str(lock))
