"""A sync completes an environment, or leaves the old one as it was; rollback returns to it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import processes
from gpuenv import api
from gpuenv.errors import InputError, InstallError, NotVerifiedError
from gpuenv.install import environment_files, transaction, wheels
from gpuenv.interpreters import find_uv
from processes import run_program
from small_wheels import make_lock, make_wheel, write_lock
from test_cli import contents

SITE = f"lib/python{'.'.join(map(str, sys.version_info[:2]))}/site-packages"
CPU = "--gpu none"


@pytest.fixture
def first(tmp_path):
    return make_lock(
        make_wheel(tmp_path, "alpha", "1.0", script="alpha"), make_wheel(tmp_path, "beta", "1.0")
    )


@pytest.fixture
def second(tmp_path, first):
    beta = first.pins[1].wheel
    return make_lock(make_wheel(tmp_path, "alpha", "2.0", script="alpha"), beta)


@pytest.fixture
def env(tmp_path):
    """Where the environment will be."""
    return tmp_path / "env"


def sync(lock, target, installer="uv", **options):
    return wheels.sync(lock, str(target), installer=installer, **options)


def versions(env):
    packages = environment_files.read_packages(str(env))
    return {package.name: package.version for package in packages}


def output(program):
    return run_program([program]).stdout.strip()


def left_beside(env):
    beside = env.parent / f".{env.name}.gpuenv"
    return sorted(os.listdir(beside)) if beside.exists() else []


# ---- what is at the target ----------------------------------------------------------------------


def test_scripts_have_the_path_of_the_target(tmp_path, first, installer):
    env = tmp_path / "it's an env"
    sync(first, env, installer=installer)
    assert output(env / "bin" / "alpha") == f"1.0 {env}"
    activated = f'. "{env}/bin/activate"; echo "$VIRTUAL_ENV"; command -v alpha'
    lines = run_program(["sh", "-c", activated])
    assert lines.stdout.split("\n")[:2] == [str(env), f"{env}/bin/alpha"]
    texts = [data for data in contents(env).values() if isinstance(data, bytes)]
    assert not any(b".gpuenv/" in data for data in texts)
    for package in environment_files.read_packages(str(env)):
        record = (env / package.info / "RECORD").read_text()
        for path in package.files:
            assert (env / path).exists(), record
    assert left_beside(env) == []


def test_no_direct_url_and_a_freeze_with_versions(env, first, installer):
    python = sync(first, env, installer=installer)
    assert not list(env.rglob("direct_url.json"))
    command = [find_uv() or "", "pip", "freeze", "--python", python]
    assert run_program(command).stdout.split() == ["alpha==1.0", "beta==1.0"]


def test_settings_of_the_user_stay(env, first, second):
    sync(first, env)
    (env / "pip.conf").write_text("[global]\n")
    (env / "bin" / "mine").symlink_to("python")
    (env / SITE / "sitecustomize.py").write_text("import os\n")
    (env / SITE / "remains").mkdir()
    (env / SITE / "remains" / "half.py").write_text("of an interrupted installation\n")
    kernel = env / "share" / "jupyter" / "kernels" / "mine" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("{}")
    sync(second, env)
    found = contents(env)
    assert {"pip.conf", "bin/mine", f"{SITE}/sitecustomize.py"} <= found.keys()
    assert str(kernel.relative_to(env)) in found
    assert f"{SITE}/remains/half.py" not in found


def test_every_change_of_a_package_counts(env, first):
    """A change of the size, of the time or of the RECORD is sufficient."""
    sync(first, env)
    module, record = env / SITE / "beta.py", env / SITE / "beta-1.0.dist-info" / "RECORD"
    data, rows, early = module.read_bytes(), record.read_bytes(), 10**9
    changes = [
        (module, data[::-1], None),
        (module, data + b"# longer", early),
        (record, rows.replace(b"beta.py,sha256=", b"beta.py,sha256=0"), early),
        (module, None, None),
    ]
    for path, new, nanoseconds in changes:
        status, old = path.stat(), path.read_bytes()
        path.unlink()  # it can be a link to the cache of uv
        if new is not None:
            path.write_bytes(new)
        if nanoseconds is not None:
            os.utime(path, ns=(nanoseconds, nanoseconds))
        again = wheels.changes(first, str(env)).again
        assert [change.name for change in again] == ["beta"], new
        path.write_bytes(old)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert wheels.changes(first, str(env)).again == ()


def test_nothing_to_do_writes_nothing(env, first):
    said = []
    sync(first, env)
    before = contents(env)
    sync(first, env, progress=said.append)
    assert contents(env) == before and left_beside(env) == []
    assert "already" in said[-1]


def test_an_environment_that_was_moved(tmp_path, env, first):
    moved = tmp_path / "env-2"
    sync(first, env)
    env.rename(moved)
    sync(first, moved)
    assert output(moved / "bin" / "alpha") == f"1.0 {moved}"
    assert f"'{moved}'" in (moved / "bin" / "activate").read_text()


# ---- failures -----------------------------------------------------------------------------------


def test_a_failed_download_keeps_the_old_environment(tmp_path, env, first, second, installer):
    sync(first, env, installer=installer)
    before = contents(env)
    gone = second.pins[0].wheel
    (tmp_path / gone.filename).unlink()
    # beta is not in the lock any more: it would be removed first
    with pytest.raises(InstallError) as error:
        sync(make_lock(gone), env, installer=installer)
    assert "alpha 2.0" in error.value.message and gone.url in error.value.message
    assert contents(env) == before and left_beside(env) == []


def test_an_environment_that_does_not_work_is_not_used(env, first, second):
    proved = []

    def prove(python):
        proved.append(python)
        return False

    with pytest.raises(NotVerifiedError):
        sync(first, env, prove=prove)
    assert not env.exists() and left_beside(env) == []
    sync(first, env)
    before = contents(env)
    with pytest.raises(NotVerifiedError):
        sync(second, env, prove=prove)
    assert contents(env) == before
    assert not any(python.startswith(str(env)) for python in proved)


def test_a_failed_install_keeps_the_old_lock(tmp_path, first, second):
    env, lock, written = str(tmp_path / "env"), tmp_path / "pylock.toml", []

    def install(new, *, works):
        paths = {"path": str(lock), "written": lambda paths: written.append(tuple(paths))}
        api.install(new, env, host=new.host, installer="uv", prove=lambda _: works, **paths)

    install(first, works=True)
    before = lock.read_bytes()
    with pytest.raises(NotVerifiedError):
        install(second, works=False)
    assert lock.read_bytes() == before and written == [(str(lock),)]
    install(second, works=True)
    assert lock.read_bytes() != before and versions(tmp_path / "env")["alpha"] == "2.0"


def test_the_evidence_names_the_target(tmp_path, env, first, call):
    lock = write_lock(tmp_path / "pylock.toml", first)
    document = call(f"sync {lock} --target {env} --json {CPU} --find-links {tmp_path}").document
    evidence = " ".join(check["evidence"] for check in document["checks"])
    assert str(env) in evidence and ".gpuenv" not in evidence


def test_targets_that_cannot_be_replaced(tmp_path, first):
    with pytest.raises(InputError, match="mount point"):
        wheels.sync(first, "/proc")
    with pytest.raises(InputError):
        wheels.sync(first, "/")


# ---- the two ways of replacing, and what an interrupted run leaves -------------------------------


@pytest.fixture(params=["exchange", "renames"])
def switching(request, monkeypatch):
    """How folders are exchanged. A file system such as NFS cannot do it by one call."""
    if request.param == "renames":
        monkeypatch.setattr(transaction, "_exchange", lambda first, second: False)
    return str(request.param)


def test_rollback(env, first, second, switching):
    sync(first, env)
    with pytest.raises(InputError, match="no environment before"):
        api.rollback(str(env))
    old = contents(env)
    sync(second, env)
    new = contents(env)
    assert old != new
    api.rollback(str(env))
    assert contents(env) == old
    api.rollback(str(env))
    assert contents(env) == new and left_beside(env) == ["previous"]


class _Killed(BaseException):
    """Ends a run where it is, without its own cleanup."""


def test_every_step_of_a_replacement_can_be_the_last(tmp_path, switching, monkeypatch):
    """After each rename: the next run finds the whole old environment or the whole new one."""
    target, seen = tmp_path / "env", set()
    (target / "bin").mkdir(parents=True)
    (target / "bin" / "which").write_text("0")
    for last in range(5):
        before = contents(target)
        with monkeypatch.context() as patch, pytest.raises(_Killed):
            stop_after(last, patch)
            patch.setattr(transaction, "remove", lambda path: None)
            with transaction.change(str(target), wait=0, report=print) as run:
                stage = Path(run.stage)
                (stage / "bin").mkdir(parents=True)
                (stage / "bin" / "which").write_text(str(last + 1))
                build = environment_files.Build(token=run.token, path="", packages={})
                environment_files.write_build(str(stage), build)
                after = contents(stage)
                run.commit()
        with transaction.change(str(target), wait=0, report=print):
            pass
        assert contents(target) in (before, after)
        seen.add("old" if contents(target) == before else "new")
        assert set(left_beside(target)) <= {"previous"}
    assert seen == {"old", "new"}


def stop_after(count, patch):
    """Let the renames of a commit end the run after `count` of them."""
    done = 0

    def counted(call):
        def stopping(*paths):
            nonlocal done
            if done == count:
                raise _Killed
            done += 1
            return call(*paths)

        return stopping

    def stopping_commit(self):
        patch.setattr(transaction.os, "rename", counted(os.rename))
        patch.setattr(transaction, "_exchange", counted(transaction._exchange))
        commit(self)
        raise _Killed

    commit = transaction.Transaction.commit
    patch.setattr(transaction.Transaction, "commit", stopping_commit)


def test_the_installer_ends_with_gpuenv(tmp_path, env, first, installer):
    """gpuenv alone is killed while the installer waits for a file that never comes."""
    wheel = first.pins[0].wheel
    (tmp_path / wheel.filename).unlink()
    os.mkfifo(tmp_path / wheel.filename)
    lock = write_lock(tmp_path / "pylock.toml", first)
    before = processes.running()
    command = f"{sys.executable} -m gpuenv sync {lock} --target {env} {CPU}"
    command += f" --find-links {tmp_path} --installer {installer}"
    child = subprocess.Popen(command.split(), stdout=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 60
    while not list(env.parent.glob(".env.gpuenv/work/*")) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.3)
    child.kill()
    child.wait()
    assert processes.left_over(before, 5) == []
    assert not env.exists()
    with transaction.change(str(env), wait=0, report=print):
        pass
    assert left_beside(env) == []


def test_remains_are_removed(tmp_path, env, first):
    sync(first, env)
    beside = tmp_path / ".env.gpuenv"
    for name in ("new-1", "trash-2", "work"):
        (beside / name / "deep").mkdir(parents=True)
        (beside / name / "deep" / "file").write_text("x")
    (beside / "claim-4").write_text("{}")
    sync(first, env)
    assert not beside.exists()


# ---- what is added, changed and removed ----------------------------------------------------------


def test_what_a_sync_changes(tmp_path, env, first, second):
    seen = []
    gamma = make_wheel(tmp_path, "gamma", "1.0")
    sync(first, env)
    wheels.add(make_lock(gamma), wheels.interpreter_of(str(env)), installer="uv")
    alpha, delta = second.pins[0].wheel, make_wheel(tmp_path, "delta", "1.0")
    target = make_lock(alpha, delta)
    sync(target, env, exact=False, approve=seen.append)
    assert versions(env) == {"alpha": "2.0", "beta": "1.0", "gamma": "1.0", "delta": "1.0"}
    sync(target, env, approve=seen.append)
    assert versions(env) == {"alpha": "2.0", "delta": "1.0"}
    names = [
        [[change.name for change in getattr(one, kind)] for kind in ("add", "change", "remove")]
        for one in seen
    ]
    assert names == [[["delta"], ["alpha"], []], [[], [], ["beta", "gamma"]]]
    assert seen[1].confirm == ("beta", "gamma")


def test_a_lock_of_changes_keeps_all_else(tmp_path, env, first):
    gamma = make_lock(make_wheel(tmp_path, "gamma", "1.0"))
    sync(first, env)
    sync(gamma, env, remove=["beta"])
    assert versions(env) == {"alpha": "1.0", "gamma": "1.0"}
    found = wheels.changes(first, str(env))
    assert ([change.name for change in found.add], found.again) == (["beta"], ())
    assert [change.name for change in found.remove] == ["gamma"]


def test_exact_removes_what_gpuenv_did_not_install(env, first, second):
    """From an environment of the user, only with --exact."""
    seen = []
    sync(first, env)
    (env / environment_files.FILE).unlink()
    alpha = make_lock(second.pins[0].wheel)
    sync(alpha, env, approve=seen.append)
    assert versions(env) == {"alpha": "2.0", "beta": "1.0"} and not seen[0].remove
    sync(alpha, env, exact=True, approve=seen.append)
    assert versions(env) == {"alpha": "2.0"} and seen[1].confirm == ("beta",)


def test_a_dry_run(tmp_path, env, first, second, call):
    lock = write_lock(tmp_path / "pylock.toml", first)
    command = f"sync {lock} --target {env} --dry-run --json {CPU} --find-links {tmp_path}"
    document = call(command).document
    assert [row["name"] for row in document["add"]] == ["alpha", "beta"] and not env.exists()
    sync(first, env)
    before = contents(tmp_path)
    write_lock(lock, second)
    document = call(command).document
    assert document["change"] == [{"name": "alpha", "before": "1.0", "after": "2.0"}]
    lock.write_bytes(before["pylock.toml"])
    assert contents(tmp_path) == before
    call(f"rollback --target {env}", status=2)
