"""Commands about a conda prefix: its backend, paths with two owners, and locks that differ."""

import json
import venv

import pytest

import conda_channel
import gpuenv
from conda_prefixes import HOST
from gpuenv import api
from gpuenv.errors import InputError
from gpuenv.lock import conda_formats
from hosts import host
from small_wheels import make_wheel, write_record
from tables import data_file, each, read_data

pytestmark = pytest.mark.usefixtures("own_conda_caches")


@pytest.fixture
def prefix(tmp_path):
    """A conda environment with nothing in it."""
    (tmp_path / "conda" / "conda-meta").mkdir(parents=True)
    (tmp_path / "conda" / "conda-meta" / "history").write_text("")
    return tmp_path / "conda"


def put_wheel(prefix, name, version):
    (site,) = [*prefix.glob("lib/python3*")] or [prefix / "lib" / "python3.12"]
    write_record(site / "site-packages", name, version, texts={"INSTALLER": "pip\n"})


def put_package(prefix, package, **more):
    """Put the record of a package such as "cudnn 9.10.2.21 hbcb9cd8_0" into a prefix."""
    row = {**conda_channel.row_of(package), **more}
    name = f"{row['name']}-{row['version']}-{row['build']}.json"
    (prefix / "conda-meta" / name).write_text(json.dumps(row))


# ---- --backend auto ------------------------------------------------------------------------------

TABLES = data_file("tables/conda_prefixes.json")


@pytest.fixture(params=TABLES["places"])
def place(request, prefix, tmp_path, monkeypatch):
    """The backend that is meant where the parameter says what is active."""
    active, backend = TABLES["places"][request.param]
    venv = tmp_path / "venv"
    venv.mkdir()
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n")
    for name, variable, path in (
        ("conda", "CONDA_PREFIX", prefix),
        ("removed", "CONDA_PREFIX", tmp_path / "removed"),
        ("venv", "VIRTUAL_ENV", venv),
        ("gone", "VIRTUAL_ENV", tmp_path / "gone"),
    ):
        if name in active:
            monkeypatch.setenv(variable, str(path))
    monkeypatch.chdir(tmp_path)
    yield backend


AUTO = f"--backend auto --framework torch --offline --python 3.13 {HOST}"


def test_auto_is_the_backend_of_what_is_active(place, channel, tmp_path, call):
    call(f"solve {AUTO} --channel {channel}")
    assert (tmp_path / "conda-explicit.txt").exists() == (place == "conda")
    assert (tmp_path / "pylock.toml").exists() == (place == "pip")


def test_without_the_flag_it_is_pip_in_a_conda_environment_too(prefix, tmp_path, monkeypatch, call):
    monkeypatch.setenv("CONDA_PREFIX", str(prefix))
    monkeypatch.chdir(tmp_path)
    call(f"solve --framework torch --offline --python 3.12 {HOST}")
    assert (tmp_path / "pylock.toml").exists() and not (tmp_path / "conda-explicit.txt").exists()


# ---- two owners ----------------------------------------------------------------------------------


def owners(done):
    """The warnings of a solve about two owners, by their codes."""
    rows = done.document["warnings"]
    return {row["code"]: row["have"] for row in rows if row["code"].startswith("two-")}


@pytest.fixture
def solved(prefix, tmp_path, monkeypatch, call):
    """solved(flags): a solve with the prefix active."""
    monkeypatch.setenv("CONDA_PREFIX", str(prefix))
    return lambda flags: call(f"solve torch {HOST} -o {tmp_path}/pylock.toml {flags}")


WHEELS = "--offline --python 3.12"


def test_a_conda_solve_names_the_wheels_of_the_prefix(solved, prefix, channel):
    asked = f"--backend conda --channel {channel}"
    assert owners(solved(f"{asked} --json")) == {}
    for wheel in TABLES["wheels"]:
        put_wheel(prefix, *wheel.split())
    done = solved(f"{asked} --json")
    other = [row for row in done.document["warnings"] if row["code"] == "extension-release"]
    assert [(row["need"], row["have"]) for row in other] == [("torch 2.5", "torch 2.8.0")]
    assert owners(done) == TABLES["wheels_beside"]
    lines = [line for line in solved(asked).stdout.splitlines() if line.startswith("warning: ")]
    assert len([line for line in lines if "of conda and" in line and "of a wheel" in line]) == 3


def test_a_pip_solve_names_the_packages_of_the_prefix(solved, prefix, tmp_path):
    assert owners(solved(f"{WHEELS} --json")) == {}
    put_package(prefix, "cudnn 9.10.2.21 hbcb9cd8_0")
    put_package(prefix, "libcublas 12.9.1.4 h9ab20c4_0")
    put_package(prefix, "pytorch 2.8.0 cuda129_mkl_py312_h0_0")
    found = owners(solved(f"{WHEELS} --json"))
    assert set(found) == {"two-cudnn", "two-libraries", "two-frameworks"}
    assert "cudnn 9.10.2.21 of conda and nvidia-cudnn-cu1" in found["two-cudnn"]
    assert "of a wheel" in found["two-cudnn"]
    assert "pytorch 2.8.0 of conda and torch 2." in found["two-frameworks"]
    text = "warning: cuDNN needs one cuDNN in a prefix; found cudnn 9.10.2.21 of conda"
    assert text in solved(WHEELS).stdout
    assert "two-cudnn" not in (tmp_path / "pylock.toml").read_text()


# ---- a lock against its prefix -------------------------------------------------------------------


def checks(done):
    return {f"{one['name']} {one['subject']}".strip(): one for one in done.document["checks"]}


@each("case", data_file("tables/conda_rules.json"))
def test_verify_and_doctor_find_the_same(case, prefix, tmp_path, monkeypatch, call):
    """Also in an environment without Python, which can have no wheels."""
    for text in case["packages"]:
        put_package(prefix, text, channel="conda-forge")
    if "wheels" in case:
        venv.create(prefix, symlinks=True)
    for text in case.get("wheels", ()):
        put_wheel(prefix, *text.split())
    (tmp_path / "condarc").write_text(case.get("condarc", ""))
    monkeypatch.setenv("CONDARC", str(tmp_path / "condarc"))
    for variable, value in case.get("env", {}).items():
        monkeypatch.setenv(f"CONDA_OVERRIDE_{variable}", value)
    done = call(f"verify --json --target {prefix}", status=case.get("status"))
    verdicts = call(f"doctor --json --target {prefix}", status=done.returncode)
    if case.get("status"):
        return
    found, verdicts = checks(done), verdicts.document["verdicts"]
    for check, expected in case["checks"].items():
        assert found.get(check, {}).get("status") == expected, found
    assert done.returncode == any(row["status"] == "fail" for row in found.values())
    assert bool(verdicts) == done.returncode
    if "cause" in case:
        assert (verdicts[0]["cause"] if verdicts else None) == case["cause"], verdicts
    call(f"run --target {prefix} --json true")


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links")
    make_wheel(folder, "leaf-kit", "1.0", requires=("numpy",))
    return folder


@each("form", sorted(conda_formats.FORMATS))
def test_install_solves_locks_installs_and_verifies(form, channel, links, tmp_path, call):
    path, target = tmp_path / conda_formats.FORMATS[form], tmp_path / "prefix"
    asked = f"--backend conda --framework torch --channel {channel} --format {form} {HOST}"
    pip = f"--pip leaf-kit --find-links {links} --offline"
    found = checks(call(f"install {asked} {pip} -o {path} --target {target} --json"))
    assert found["versions conda"]["status"] == found["versions wheels"]["status"] == "pass"
    assert found["host"]["status"] == "pass" and "owners" in found
    verify = f"verify {path} --target {target} --no-device"
    # Device code was compared with the GPU that the flags of the installation described.
    assert set(found) - {"device code"} == set(checks(call(f"{verify} --json")))
    (tmp_path / conda_formats.wheel_lock_name(str(path))).unlink()
    call(verify, status=2)


def test_a_target_that_cannot_be_used_leaves_no_lock(channel, tmp_path, call):
    target, path = tmp_path / "mine", tmp_path / "lock.txt"
    target.mkdir()
    (target / "thesis.txt").write_text("mine")
    asked = f"--backend conda --framework torch --channel {channel} {HOST}"
    done = call(f"install {asked} -o {path} --target {target}", status=2)
    assert "no conda environment" in done.stderr and not path.exists()


def explicit(path, *packages):
    """Write an explicit file of conda's own, of (package, sha256)."""
    lines = ["@EXPLICIT"]
    for package, sha256 in packages:
        file = f"{package.replace(' ', '-')}.conda"
        lines.append(f"https://example.org/linux-64/{file}#sha256:{sha256}")
    path.write_text("\n".join([*lines, ""]))
    return path


@pytest.fixture
def lock(tmp_path):
    packages = ("zlib 1.3 h1_0", "a" * 64), ("xz 5.6 h2_1", "b" * 64)
    return explicit(tmp_path / "explicit.txt", *packages)


@each("changed status evidence", TABLES["against"])
def test_a_prefix_has_the_builds_of_its_lock(changed, status, evidence, lock, prefix, call):
    put_package(prefix, "zlib 1.3 h1_0", sha256="a" * 64)
    put_package(prefix, "xz 5.6 h2_1", **{"sha256": "b" * 64, **changed})
    for place in (f"--target {prefix}", f"--python {prefix}/bin/python"):
        verify = f"verify {lock} {place} --no-device --json"
        check = checks(call(verify, status=int(status == "fail")))["versions conda"]
        assert check["status"] == status and evidence in check["evidence"]


def test_a_lock_that_does_not_fit_the_host_fails_its_verification(prefix, tmp_path):
    """The rules apply to another tool's lock, too: the driver does not support this CUDA 13."""
    path = explicit(tmp_path / "explicit.txt", ("cuda-version 13.0 h0_3", "d" * 64))
    read = api.read_lock(str(path))
    checks = api.verify(read, str(prefix), host("H100", "570.86.10", glibc="2.35"))
    (check,) = [one for one in checks if (one.name, one.subject) == ("host", "driver-floor")]
    assert check.status == "fail" and "570.86.10" in check.evidence
    newer = host("H100", "580.65.06", glibc="2.35")
    assert api.verify(read, str(prefix), newer)[0].status == "pass"


# ---- the wheels' lock alone ----------------------------------------------------------------------


def test_the_lock_of_the_wheels_alone_is_refused(channel, links, tmp_path, call):
    """The wheels' lock alone would make an environment without the conda packages."""
    path, target = tmp_path / "conda-lock.yml", tmp_path / "env"
    asked = f"--backend conda --framework torch --channel {channel} --format conda-lock {HOST}"
    pip = f"--pip leaf-kit --find-links {links} --offline"
    call(f"solve {asked} {pip} -o {path}")
    beside = tmp_path / "pylock.conda-lock.toml"
    assert read_data(beside)["tool"]["gpuenv"]["inputs"] == {"conda-lock": "conda-lock.yml"}
    sync = f"sync {beside} --target {target} --find-links {links}"
    (line,) = call(f"{sync} {HOST}", status=2).stderr.splitlines()
    assert (
        "belong to conda-lock.yml" in line
        and "gpuenv sync conda-lock.yml" in line
        and not target.exists()
    )
    with pytest.raises(InputError, match="belong to"):
        gpuenv.sync(gpuenv.read_lock(str(beside)), str(target), host=gpuenv.detect())
