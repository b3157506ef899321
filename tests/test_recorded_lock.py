"""The lock that a sync records in an environment, and that `gpuenv verify` compares it with."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from gpuenv import api
from gpuenv.cli import main
from gpuenv.install import environment_files, wheels
from gpuenv.interpreters import find_uv
from gpuenv.model import Lock
from small_wheels import make_lock, make_wheel, write_lock

CPU = ("--gpu", "none", "--no-verify", "--installer", "uv")


@pytest.fixture
def env(tmp_path: Path) -> Path:
    return tmp_path / "env"


@pytest.fixture
def locks(tmp_path: Path) -> dict[str, Path]:
    """Locks of one package with its releases, and of two packages."""
    (tmp_path / "links").mkdir()
    made = {name: make_wheel(tmp_path / "links", "alpha", name) for name in ("1.0", "2.0")}
    beta = make_wheel(tmp_path / "links", "beta", "1.0")
    found = {name: [wheel] for name, wheel in made.items()} | {"both": [made["1.0"], beta]}
    return {
        name: write_lock(tmp_path / f"pylock.{name.replace('.', '-')}.toml", make_lock(*pins))
        for name, pins in found.items()
    }


def sync(env: Path, lock: Path, *flags: str) -> None:
    links = str(lock.parent / "links")
    assert main(["sync", str(lock), "--target", str(env), "--find-links", links, *CPU, *flags]) == 0


def verify(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    """Return {check: (status, evidence)} of `gpuenv verify`; "status" is the exit status."""
    capsys.readouterr()
    status = main(["verify", "--no-device", "--json", *flags])
    checks = json.loads(capsys.readouterr().out)["checks"]
    found = {check["name"]: (check["status"], check["evidence"]) for check in checks}
    return {"status": status, "named": found.get("versions")}


def uv_pip(env: Path, *arguments: str) -> None:
    command = [find_uv() or "", "pip", *arguments, "--python", str(env)]
    subprocess.run([*command, "--quiet"], check=True)


def test_the_recorded_lock_is_verified_and_not_that_of_the_working_folder(
    env: Path, locks: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    sync(env, locks["1.0"])
    assert api.recorded_lock(str(env)) == api.read_lock(str(locks["1.0"]))
    Path("pylock.toml").write_bytes(locks["2.0"].read_bytes())
    for place in (("--target", str(env)), ("--python", str(env / "bin" / "python"))):
        seen = verify(capsys, *place)
        assert (seen["status"], seen["named"][0]) == (0, "pass"), seen
    assert verify(capsys, str(locks["2.0"]), "--target", str(env))["status"] == 1


def test_a_lock_of_the_working_folder_counts_where_none_is_recorded(
    locks: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(Path("env").absolute()))
    sync(Path("env"), locks["1.0"])
    assert verify(capsys)["named"][0] == "pass"  # the recorded lock
    Path("pylock.toml").write_bytes(locks["2.0"].read_bytes())
    assert verify(capsys)["named"][0] == "pass"
    (Path("env") / environment_files.FILE).unlink()
    seen = verify(capsys)
    assert (seen["status"], seen["named"][0]) == (1, "fail") and "2.0" in seen["named"][1]


@pytest.mark.parametrize(
    ("local", "status"),
    [("cu12torch2.6cxx11abiFALSE uv", 0), ("pt26cu124 pip", 0), ("cu126 uv", 1)],
)
def test_a_file_name_adds_a_build_of_torch_to_the_version(
    local: str, status: int, env: Path, locks: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """METADATA of flash-attn's wheels has no local version; that of a framework has one."""
    local, installer = local.split()
    made = make_wheel(locks["1.0"].parent / "links", "gamma", "1.0")
    path = Path(unquote(made.url.removeprefix("file://")))
    path = path.rename(path.with_name(f"gamma-1.0+{local}-py3-none-any.whl"))
    version = f"1.0+{local.lower()}"
    wheel = made.replace(version=version, filename=path.name, url=path.as_uri())
    lock = write_lock(locks["1.0"].with_name("pylock.gamma.toml"), make_lock(wheel))
    sync(env, lock, "--installer", installer)
    sync(env, lock)
    assert verify(capsys, "--target", str(env))["status"] == status


@pytest.mark.parametrize("change", ["another release", "a missing package"])
def test_a_later_change_fails(
    change: str, env: Path, locks: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    sync(env, locks["both"])
    if change == "another release":
        (wheel,) = (locks["2.0"].parent / "links").glob("alpha-2.0-*.whl")
        uv_pip(env, "install", str(wheel))
    else:
        uv_pip(env, "uninstall", "beta")
    seen = verify(capsys, "--target", str(env))
    assert (seen["status"], seen["named"][0]) == (1, "fail"), seen
    assert main(["verify", "--no-device", "--hook", "--target", str(env)]) == 1


def test_environments_without_a_recorded_lock(
    env: Path, locks: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an older gpuenv, of another tool, and with a record that is no JSON."""
    sync(env, locks["1.0"])
    record = env / environment_files.FILE
    fields = json.loads(record.read_text())
    del fields["lock"]
    for text in (json.dumps(fields), "", None):
        record.unlink(missing_ok=True)
        if text is not None:
            record.write_text(text)
        assert api.recorded_lock(str(env)) is None
        assert verify(capsys, "--target", str(env)) == {"status": 0, "named": None}


def test_an_edited_record_is_refused(
    env: Path, locks: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    sync(env, locks["1.0"])
    record = env / environment_files.FILE
    record.write_text(record.read_text().replace('version = \\"1.0\\"', 'version = \\"2.0\\"'))
    capsys.readouterr()
    assert main(["verify", "--no-device", "--target", str(env)]) == 2
    (line,) = capsys.readouterr().err.splitlines()[:1]
    assert f"{record}: was edited after it was locked" in line


def test_each_sync_records_its_lock_and_a_rollback_returns_to_the_one_before(
    env: Path, locks: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def recorded() -> Lock | None:
        return api.recorded_lock(str(env))

    sync(env, locks["both"])
    both = recorded()
    sync(env, locks["2.0"])
    assert recorded() == api.read_lock(str(locks["2.0"]))
    assert main(["rollback", "--target", str(env)]) == 0
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
    assert verify(capsys, "--target", str(env))["status"] == 0


@pytest.mark.parametrize("in_place", [False, True])
def test_gpuenv_pip_leaves_no_lock_that_the_environment_does_not_hold(
    in_place: bool,
    env: Path,
    locks: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sync(env, locks["1.0"])
    monkeypatch.setattr(wheels, "can_be_replaced", lambda _: not in_place)
    links = ("--no-index", "--find-links", str(locks["1.0"].parent / "links"))
    command = ["pip", "install", "--python", str(env), *links]
    assert main([*command, "alpha==1.0"]) == 0  # changes nothing
    assert api.recorded_lock(str(env)) is not None
    assert main([*command, "alpha==2.0"]) == 0
    assert api.recorded_lock(str(env)) is None
    assert verify(capsys, "--target", str(env)) == {"status": 0, "named": None}


def test_a_bundle_records_the_lock(tmp_path: Path, locks: dict[str, Path]) -> None:
    lock, bundle, env = locks["1.0"], tmp_path / "env.pyz", tmp_path / "env"
    links = ("--find-links", str(lock.parent / "links"))
    assert main(["download", str(lock), *links, "--bundle", str(bundle)]) == 0
    shutil.rmtree(lock.parent / "links")
    flags = ["--target", str(env), "--gpu", "none", "--no-verify"]
    subprocess.run([sys.executable, str(bundle), *flags], check=True)
    assert api.recorded_lock(str(env)) == api.read_lock(str(lock))
