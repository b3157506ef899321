"""Wheels in a conda environment: solved and locked beside its packages, installed second."""

import pytest

import gpuenv
from conda_prefixes import HOST
from gpuenv import api
from gpuenv.errors import DeclinedError, HostMismatchError, InputError, InstallError, TamperedError
from gpuenv.install import conda, conda_prefix
from gpuenv.lock import conda_formats
from gpuenv.prefix import conda_packages
from gpuenv.render.changes import changes_lines
from hosts import host
from small_wheels import make_wheel, write_record
from tables import data_file, each, read_data
from test_cli import contents

TABLES = data_file("tables/conda_mixed.json")

H100 = host("H100", "570.86.10", python="3.13", glibc="2.35")


def sync_both(lock, wheels, target, *, exact=False):
    """Install a conda lock and that of its wheels."""
    api.sync(lock.replace(conda=True, wheels=wheels), str(target), host=H100, exact=exact)


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links")
    for name, version, requires in TABLES["wheels"]:
        make_wheel(folder, name, version, requires=requires)
    return folder


pytestmark = pytest.mark.usefixtures("one_rattler")


@pytest.fixture
def solved(channel, links, tmp_path, call):
    """solved(wheels): solve for torch and these wheels; the ended command and the lock's path."""

    def solve(*wheels, form="conda-explicit", status=0):
        path = tmp_path / conda_formats.FORMATS[form]
        command = f"solve torch --backend conda --channel {channel} --format {form} --offline"
        pip = [word for wheel in wheels for word in ("--pip", wheel)]
        pip += ["--find-links", links] if pip else []
        return call(f"{command} {HOST} -o {path}", *pip, status=status), path

    return solve


def packages(path):
    document = read_data(path.parent / conda_formats.wheel_lock_name(str(path)))
    return {one["name"]: one["version"] for one in document["packages"]}


# ---- what is solved ------------------------------------------------------------------------------


@each("asked want", TABLES["good"])
def test_wheels_are_solved_beside_what_conda_brings(asked, want, solved):
    _, path = solved(*asked)
    assert packages(path) == want
    lock = gpuenv.read_lock(str(path.parent / "pylock.conda-explicit.toml"))
    assert (
        list(lock.requirements) == asked
        and lock.needs.python == conda_formats.read(str(path)).needs.python
    )
    assert all(set(pin.dependencies) <= set(want) for pin in lock.pins)


@each("asked says", TABLES["bad"])
def test_a_refusal_names_what_conda_brings(asked, says, solved):
    done, path = solved(*asked, status=3)
    assert not path.exists()
    assert not [text for text in says if text not in done.stderr], done.stderr


def test_without_python_there_are_no_wheels(channel, tmp_path, call):
    command = f"solve --backend conda --channel {channel} cuda-version=12.8 --pip numpy {HOST}"
    done = call(f"{command} -o {tmp_path}/x.txt", status=2)
    assert "no Python in the environment" in done.stderr
    assert not list(tmp_path.iterdir())


# ---- the two locks -------------------------------------------------------------------------------


@each("form", sorted(conda_formats.FORMATS))
def test_one_command_installs_both(form, solved, tmp_path, call):
    texts, trees = [], []
    for name in ("one", "two"):
        _, path = solved("trainer", form=form)
        beside, target = tmp_path / conda_formats.wheel_lock_name(str(path)), tmp_path / name
        texts.append((path.read_bytes(), beside.read_bytes()))
        for _ in range(2):  # the second time there is nothing to do
            done = call(f"sync {path} --target {target} {HOST} --json")
            checks = {f"{one['name']} {one['subject']}": one for one in done.document["checks"]}
            assert checks["versions conda"]["status"] == "pass", done.output
            assert checks["versions wheels"]["evidence"] == "2 wheels as locked"
        files = contents(target).items()
        trees.append({name for name in files if not name[0].startswith(("conda-meta", "gpuenv"))})
    (site,) = (target / "lib").glob("python3*/site-packages")
    have = {one.name for one in site.glob("*.dist-info")}
    assert have == {"trainer-1.0.dist-info", "leaf_kit-1.0.dist-info"}
    assert texts[0] == texts[1] and trees[0] == trees[1]
    second = gpuenv.read_lock(str(beside))
    (site / "leaf_kit-1.0.dist-info").rename(site / "leaf_kit-2.0.dist-info")
    write_record(site, "leaf_kit", "2.0")
    check = conda_prefix.wheels_check(str(target), second)
    assert check.status == "fail" and "leaf-kit is 2.0, not 1.0" in check.evidence


@pytest.fixture
def both(solved, tmp_path):
    solved("leaf-kit")
    return tmp_path / "conda-explicit.txt", tmp_path / "pylock.conda-explicit.toml"


def test_a_changed_or_missing_file_beside_is_found(both, call):
    path, beside = both
    lock, target = conda_formats.read(str(path)), path.parent / "prefix"
    assert conda_formats.wheel_lock_path(str(path), lock) == str(beside)
    beside.write_text(beside.read_text() + "# mine\n")
    with pytest.raises(TamperedError, match="is not the file"):
        conda_formats.wheel_lock_path(str(path), lock)
    sync = f"sync {path} --target {target} {HOST}"
    assert call(sync, status=None).returncode
    beside.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        conda_formats.wheel_lock_path(str(path), lock)
    assert "pylock.conda-explicit.toml" in call(sync, status=2).stderr and not target.exists()
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


@each("exact after", TABLES["earlier_wheels"])
def test_the_wheels_of_an_earlier_lock(exact, after, solved, tmp_path):
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
    assert found == after
    assert (target / "conda-meta" / "gpuenv-wheels").exists() is not exact


def test_wheels_of_the_user_are_in_the_plan(both, tmp_path):
    lock, target = api.read_lock(str(both[0])), tmp_path / "prefix"
    conda.install(lock.pins, str(target), ())
    site = target / "lib" / "python3.12" / "site-packages"
    for name in ("leaf_kit-0.9", "trainer-1.0", "mine-1.0"):
        write_record(site, *name.split("-"))
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
    site = target / "lib" / "python3.12" / "site-packages"
    write_record(site, "leaf_kit", "0.9", texts={"INSTALLER": "conda"})
    with pytest.raises(HostMismatchError) as caught:
        api.sync(lock, str(target), host=H100)
    (reason,) = caught.value.reasons
    assert (reason.code, reason.subject) == ("two-distributions", "leaf-kit 0.9 of conda")
    assert reason.have == "the wheel leaf-kit 1.0 in the lock"


def test_wheels_that_cannot_be_installed_leave_no_prefix(both):
    path, beside = both
    lock, second = conda_formats.read(str(path)), gpuenv.read_lock(str(beside))
    pins = [one.replace(wheel=one.wheel.replace(sha256="0" * 64)) for one in second.pins]
    wrong, target = second.replace(pins=tuple(pins)), path.parent / "prefix"
    with pytest.raises(InstallError, match="wrong hash"):
        sync_both(lock, wrong, target)
    assert not target.exists()
    conda.install(lock.pins, str(target), ())
    with pytest.raises(InstallError, match="wrong hash"):
        sync_both(lock, wrong, target)
    assert conda_packages(str(target))
