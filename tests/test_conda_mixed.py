"""Wheels in a conda environment: solved and locked beside its packages, installed second."""

import os
import tomllib

import pytest

import gpuenv
import test_cli
from gpuenv import api
from gpuenv.cli import main
from gpuenv.errors import DeclinedError, HostMismatchError, InputError, InstallError, TamperedError
from gpuenv.install import conda, conda_prefix
from gpuenv.lock import conda_formats
from gpuenv.render.changes import changes_lines
from index_server import make_wheel
from tables import data_file, each

TABLES = data_file("tables/conda_mixed.json")

HOST = "--gpu H100 --driver 570.86.10 --glibc 2.35 --platform linux-x86_64"
H100 = gpuenv.describe(
    gpus=["H100"], driver="570.86.10", python="3.13", platform="linux-x86_64", glibc="2.35"
)
WHEELS = TABLES["wheels"]


def sync_both(lock, wheels, target, *, exact=False):
    """Install a conda lock and that of its wheels."""
    api.sync(lock.replace(conda=True, wheels=wheels), str(target), host=H100, exact=exact)


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links")
    for name, version, requires in WHEELS:
        filename, data = make_wheel(name, version, requires)
        (folder / filename).write_bytes(data)
    return folder


pytestmark = pytest.mark.usefixtures("one_rattler")


@pytest.fixture
def solved(channel, links, tmp_path):
    def solve(*pip, form="conda-explicit", more=()):
        path = tmp_path / conda_formats.FORMATS[form]
        command = [
            "solve",
            "--framework",
            "torch",
            "--backend",
            "conda",
            "--channel",
            channel,
            "--format",
            form,
        ]
        command += ["--offline", *HOST.split(), "-o", str(path), *more]
        command += ["--find-links", str(links)] if pip else []
        return main([*command, *(flag for one in pip for flag in ("--pip", one))]), path

    return solve


def packages(path):
    document = tomllib.loads((path.parent / conda_formats.wheel_lock_name(str(path))).read_text())
    return {one["name"]: one["version"] for one in document["packages"]}


# ---- what is solved ------------------------------------------------------------------------------

GOOD = TABLES["good"]


@each("asked want", GOOD)
def test_wheels_are_solved_beside_what_conda_brings(asked, want, solved):
    status, path = solved(*asked)
    assert status == 0 and packages(path) == want
    lock = gpuenv.read_lock(str(path.parent / "pylock.conda-explicit.toml"))
    assert (
        list(lock.requirements) == asked
        and lock.needs.python == conda_formats.read(str(path)).needs.python
    )
    assert all(set(pin.dependencies) <= set(want) for pin in lock.pins)


BAD = TABLES["bad"]


@each("asked says", BAD)
def test_a_refusal_names_what_conda_brings(asked, says, solved, capsys):
    status, path = solved(*asked)
    said = capsys.readouterr().err
    assert status == 3 and not path.exists()
    assert not [text for text in says if text not in said], said


def test_without_python_there_are_no_wheels(channel, tmp_path, call):
    command = [
        "solve",
        "--backend",
        "conda",
        "--channel",
        channel,
        "cuda-version=12.8",
        "--pip",
        "numpy",
        *HOST.split(),
    ]
    done = call(*command, "-o", str(tmp_path / "x.txt"), status=2)
    assert "no Python in the environment" in done.stderr
    assert not list(tmp_path.iterdir())


# ---- the two locks -------------------------------------------------------------------------------


@each("form", sorted(conda_formats.FORMATS))
def test_one_command_installs_both(form, solved, tmp_path):
    texts = []
    for _ in range(2):
        status, path = solved("trainer", form=form)
        assert status == 0
        texts.append(
            (path.read_bytes(), (tmp_path / conda_formats.wheel_lock_name(str(path))).read_bytes())
        )
    assert texts[0] == texts[1]
    target, cache = tmp_path / "prefix", os.environ["GPUENV_CACHE_DIR"]
    command = ["sync", str(path), "--target", str(target), *HOST.split(), "--json"]
    for _ in range(2):
        done = test_cli.run(command, tmp_path, GPUENV_CACHE_DIR=cache)
        checks = {f"{one['name']} {one['subject']}": one for one in done.document["checks"]}
        assert checks["versions conda"]["status"] == "pass", done.output
        assert checks["versions wheels"]["evidence"] == "2 wheels as locked"
        (site,) = (target / "lib").glob("python3*/site-packages")
        have = {one.name for one in site.glob("*.dist-info")}
        assert have == {"trainer-1.0.dist-info", "leaf_kit-1.0.dist-info"}
    second = gpuenv.read_lock(str(tmp_path / conda_formats.wheel_lock_name(str(path))))
    (site / "leaf_kit-1.0.dist-info").rename(site / "leaf_kit-2.0.dist-info")
    check = conda_prefix.wheels_check(str(target), second)
    assert check.status == "fail" and "leaf-kit is 2.0, not 1.0" in check.evidence


@pytest.fixture
def both(solved, tmp_path):
    assert solved("leaf-kit")[0] == 0
    return tmp_path / "conda-explicit.txt", tmp_path / "pylock.conda-explicit.toml"


def test_a_changed_or_missing_file_beside_is_found(both, capsys):
    path, beside = both
    lock, target = conda_formats.read(str(path)), path.parent / "prefix"
    assert conda_formats.wheel_lock_path(str(path), lock) == str(beside)
    beside.write_text(beside.read_text() + "# mine\n")
    with pytest.raises(TamperedError, match="is not the file"):
        conda_formats.wheel_lock_path(str(path), lock)
    assert main(["sync", str(path), "--target", str(target), *HOST.split()]) != 0
    beside.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        conda_formats.wheel_lock_path(str(path), lock)
    assert main(["sync", str(path), "--target", str(target), *HOST.split()]) == 2
    assert "pylock.conda-explicit.toml" in capsys.readouterr().err and not target.exists()
    with pytest.raises(InputError, match="pip packages beside it"):
        sync_both(lock, None, target)
    elsewhere = lock.replace(inputs=(("pip", ("../" + beside.name, "0" * 64)),))
    with pytest.raises(InputError, match="not a file beside it"):
        conda_formats.wheel_lock_path(str(path), elsewhere)


def test_a_conda_lock_whose_word_on_the_wheels_was_edited_is_found(both):
    path, beside = both
    text = path.read_text()
    assert f"# Its pip packages are in {beside.name} beside it." in text
    digest = conda_formats.wheel_lock_of(conda_formats.read(str(path)))
    path.write_text(text.replace(digest[1], "0" * 64))
    with pytest.raises(TamperedError):
        conda_formats.read(str(path))


# exact -> the wheels after each of three installations
EARLIER_WHEELS = {
    False: [["leaf_kit", "trainer"], ["aio_kit", "leaf_kit", "remote", "trainer"]],
    True: [["leaf_kit", "trainer"], ["aio_kit", "leaf_kit", "remote"]],
}


@each("exact", [*EARLIER_WHEELS])
def test_the_wheels_of_an_earlier_lock(exact, solved, tmp_path):
    target, found = tmp_path / "prefix", []
    for asked in (["trainer"], ["leaf-kit", "remote"], []):
        _, path = solved(*asked)
        lock = conda_formats.read(str(path))
        beside = conda_formats.wheel_lock_path(str(path), lock)
        second = None if beside is None else gpuenv.read_lock(beside)
        sync_both(lock, second, target, exact=exact)
        recorded = api.recorded_lock(str(target))
        assert recorded.pins == lock.pins
        assert (recorded.wheels and recorded.wheels.pins) == (second and second.pins)
        assert second is None or conda_prefix.wheels_check(str(target), second).status == "pass"
        found.append(
            sorted(one.name.partition("-")[0] for one in (target / "lib").rglob("*.dist-info"))
        )
    first, both = EARLIER_WHEELS[exact]
    assert found == [first, both, [] if exact else both]
    assert (target / "conda-meta" / "gpuenv-wheels").exists() is not exact


def test_wheels_of_the_user_are_in_the_plan(both, tmp_path):
    lock, target = api.read_lock(str(both[0])), tmp_path / "prefix"
    conda.install(lock.pins, str(target), ())
    site = target / "lib" / "python3.12" / "site-packages"
    for name in ("leaf_kit-0.9", "trainer-1.0", "mine-1.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (target / "conda-meta" / "gpuenv-wheels").write_text("3.13\ntrainer\n")
    seen = []

    def decline(changes):
        seen.append(changes)
        raise DeclinedError("no")

    with pytest.raises(DeclinedError):
        api.sync(lock, str(target), host=H100, approve=decline, exact=True)
    (changes,) = seen
    assert changes_lines(changes) == [
        f"{target}: 0 to add, 1 to change, 1 to remove",
        "  change  leaf-kit 0.9 (wheel) -> 1.0",
        "  remove  trainer 1.0 (wheel)",
    ]
    assert (site / "trainer-1.0.dist-info").exists()


def test_a_wheel_does_not_overwrite_a_conda_package_that_stays(both, tmp_path):
    lock, target = api.read_lock(str(both[0])), tmp_path / "prefix"
    conda.install(lock.pins, str(target), ())
    info = target / "lib" / "python3.12" / "site-packages" / "leaf_kit-0.9.dist-info"
    info.mkdir(parents=True)
    (info / "INSTALLER").write_text("conda\n")
    with pytest.raises(HostMismatchError) as caught:
        api.sync(lock, str(target), host=H100)
    (reason,) = caught.value.reasons
    assert (reason.code, reason.subject) == ("two-distributions", "leaf-kit 0.9 of conda")
    assert reason.have == "the wheel leaf-kit 1.0 in the lock"


def test_wheels_that_cannot_be_installed_leave_no_prefix(both):
    path, beside = both
    lock, second, target = (
        conda_formats.read(str(path)),
        gpuenv.read_lock(str(beside)),
        path.parent / "prefix",
    )
    wrong = second.replace(
        pins=tuple(one.replace(wheel=one.wheel.replace(sha256="0" * 64)) for one in second.pins)
    )
    with pytest.raises(InstallError, match="wrong hash"):
        sync_both(lock, wrong, target)
    assert not target.exists()
    conda.install(lock.pins, str(target), ())
    with pytest.raises(InstallError, match="wrong hash"):
        sync_both(lock, wrong, target)
    assert conda_prefix.read_packages(str(target))
