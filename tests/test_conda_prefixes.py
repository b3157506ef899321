"""Commands about a conda prefix: its backend, paths with two owners, and locks that differ."""

import json
import os
import tomllib
import venv
from pathlib import Path

import pytest

import gpuenv
import test_cli
from gpuenv import api
from gpuenv.cli import main
from gpuenv.errors import InputError
from gpuenv.lock import conda_formats
from gpuenv.model import Pin, Wheel
from index_server import make_wheel
from tables import data_file, each

HOST = "--gpu H100 --driver 570.86.10 --glibc 2.35 --platform linux-x86_64"


pytestmark = pytest.mark.usefixtures("own_conda_caches")


@pytest.fixture
def prefix(tmp_path):
    """A conda environment with nothing in it."""
    (tmp_path / "conda" / "conda-meta").mkdir(parents=True)
    (tmp_path / "conda" / "conda-meta" / "history").write_text("")
    return tmp_path / "conda"


def put_wheel(prefix, name, version, installer="pip", metadata=False):
    (site,) = [*prefix.glob("lib/python3*")] or [prefix / "lib" / "python3.12"]
    info = site / "site-packages" / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    if installer:
        (info / "INSTALLER").write_text(f"{installer}\n")
    if metadata:
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\n")


def put_package(prefix, name, version, build="h0_0", **more):
    record = {"name": name, "version": version, "build": build, **more}
    (prefix / "conda-meta" / f"{name}-{version}-{build}.json").write_text(json.dumps(record))


RULES = data_file("tables/conda_rules.json")


# ---- --backend auto ------------------------------------------------------------------------------

PLACES = data_file("tables/conda_prefixes.json")["places"]


@pytest.fixture(params=PLACES)
def place(request, prefix, tmp_path, monkeypatch):
    """The backend that is meant where the parameter says what is active."""
    active, backend = PLACES[request.param]
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


def warnings(document):
    return {
        one["code"]: one
        for one in json.loads(document)["warnings"]
        if one["code"].startswith("two-")
    }


@pytest.fixture
def solved(channel, prefix, tmp_path, monkeypatch, capsys):
    """The output of a solve with the prefix active."""

    def solve(*more):
        monkeypatch.setenv("CONDA_PREFIX", str(prefix))
        name = "conda.txt" if "conda" in more else "pylock.toml"
        conda = ("--channel", channel) if "conda" in more else ("--offline", "--python", "3.12")
        assert (
            main(
                [
                    "solve",
                    "--framework",
                    "torch",
                    *HOST.split(),
                    "-o",
                    str(tmp_path / name),
                    *conda,
                    *more,
                ]
            )
            == 0
        )
        return capsys.readouterr().out

    return solve


def test_a_conda_solve_names_the_wheels_of_the_prefix(solved, prefix):
    assert warnings(solved("--backend", "conda", "--json")) == {}
    put_wheel(prefix, "nvidia_cudnn_cu12", "9.5.1.17")
    put_wheel(prefix, "nvidia_cublas_cu12", "12.4.5.8")
    put_wheel(prefix, "torch", "2.6.0")
    put_wheel(prefix, "numpy", "2.0.0")
    put_wheel(prefix, "flash_attn", "2.7.4+cu12torch2.5")
    output = solved("--backend", "conda", "--json")
    other = [row for row in json.loads(output)["warnings"] if row["code"] == "extension-release"]
    assert [(row["need"], row["have"]) for row in other] == [
        ("torch 2.5, for which it was built", "torch 2.8.0")
    ]
    found = warnings(output)
    assert set(found) == {"two-cudnn", "two-libraries", "two-frameworks"}
    cudnn = found["two-cudnn"]
    assert cudnn["subject"] == "cuDNN"
    assert "cudnn 9.11.0.98 of conda and nvidia-cudnn-cu12 9.5.1.17 of a wheel" in cudnn["have"]
    assert (
        "libcublas 12.9.1.4 of conda and nvidia-cublas-cu12 12.4.5.8 of a wheel"
        in found["two-libraries"]["have"]
    )
    assert "pytorch 2.8.0 of conda and torch 2.6.0 of a wheel" in found["two-frameworks"]["have"]
    assert not [one for one in found.values() if "numpy" in one["have"]]
    lines = [
        line for line in solved("--backend", "conda").splitlines() if line.startswith("warning: ")
    ]
    assert len([line for line in lines if "of conda and" in line and "of a wheel" in line]) == 3


def test_a_pip_solve_names_the_packages_of_the_prefix(solved, prefix, tmp_path):
    assert warnings(solved("--json")) == {}
    put_package(prefix, "cudnn", "9.10.2.21", "hbcb9cd8_0")
    put_package(prefix, "libcublas", "12.9.1.4", "h9ab20c4_0")
    put_package(prefix, "pytorch", "2.8.0", "cuda129_mkl_py312_h0_0")
    found = warnings(solved("--json"))
    assert set(found) == {"two-cudnn", "two-libraries", "two-frameworks"}
    assert "cudnn 9.10.2.21 of conda and nvidia-cudnn-cu1" in found["two-cudnn"]["have"]
    assert "of a wheel" in found["two-cudnn"]["have"]
    assert "pytorch 2.8.0 of conda and torch 2." in found["two-frameworks"]["have"]
    assert "warning: cuDNN needs one cuDNN in a prefix; found cudnn 9.10.2.21 of conda" in solved()
    assert "two-cudnn" not in (tmp_path / "pylock.toml").read_text()


# ---- a lock against its prefix -------------------------------------------------------------------


def run(*words):
    """(exit status, document, stderr) of a command."""
    cache = os.environ["GPUENV_CACHE_DIR"]
    done = test_cli.run([*words, "--json"], Path.cwd(), status=None, GPUENV_CACHE_DIR=cache)
    return done.returncode, done.document, done.stderr


def checks(document):
    return {f"{one['name']} {one['subject']}".strip(): one for one in document["checks"]}


@each("case", RULES)
def test_verify_and_doctor_find_the_same(case, prefix, tmp_path, monkeypatch, capsys):
    """Also in an environment without Python, which can have no wheels."""
    for text in case["packages"]:
        put_package(prefix, *text.split(), subdir="linux-64", channel="conda-forge")
    if "wheels" in case:
        venv.create(prefix, symlinks=True)
    for text in case.get("wheels", ()):
        put_wheel(prefix, *text.split(), metadata=True)
    (tmp_path / "condarc").write_text(case.get("condarc", ""))
    monkeypatch.setenv("CONDARC", str(tmp_path / "condarc"))
    for variable, value in case.get("env", {}).items():
        monkeypatch.setenv(f"CONDA_OVERRIDE_{variable}", value)
    status = main(["verify", "--json", "--target", str(prefix)])
    document = capsys.readouterr().out
    assert main(["doctor", "--json", "--target", str(prefix)]) == status
    if case.get("status"):
        assert status == case["status"]
        return
    found = checks(json.loads(document))
    for check, expected in case["checks"].items():
        assert found.get(check, {}).get("status") == expected, found
    assert status == any(row["status"] == "fail" for row in found.values())
    verdicts = json.loads(capsys.readouterr().out)["verdicts"]
    assert bool(verdicts) == status
    if "cause" in case:
        assert (verdicts[0]["cause"] if verdicts else None) == case["cause"], verdicts
    assert main(["run", "--target", str(prefix), "--json", "true"]) == 0


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links")
    filename, data = make_wheel("leaf-kit", "1.0", ("numpy",))
    (folder / filename).write_bytes(data)
    return folder


@each("form", sorted(conda_formats.FORMATS))
def test_install_solves_locks_installs_and_verifies(form, channel, links, tmp_path):
    path, target = tmp_path / conda_formats.FORMATS[form], tmp_path / "prefix"
    asked = f"--backend conda --framework torch --channel {channel} --format {form} {HOST}"
    pip = f"--pip leaf-kit --find-links {links} --offline"
    status, document, err = run(
        "install", *asked.split(), *pip.split(), "-o", str(path), "--target", str(target)
    )
    found = checks(document)
    assert (
        status == 0
        and found["versions conda"]["status"] == found["versions wheels"]["status"] == "pass"
    ), err
    assert found["host"]["status"] == "pass" and "owners" in found
    status, document, err = run("verify", str(path), "--target", str(target), "--no-device")
    # Device code was compared with the GPU that the flags of the installation described.
    assert status == 0 and set(found) - {"device code"} == set(checks(document)), err
    (tmp_path / conda_formats.wheel_lock_name(str(path))).unlink()
    assert run("verify", str(path), "--target", str(target), "--no-device")[0] == 2


def test_a_target_that_cannot_be_used_leaves_no_lock(channel, tmp_path):
    target, path = tmp_path / "mine", tmp_path / "lock.txt"
    target.mkdir()
    (target / "thesis.txt").write_text("mine")
    asked = f"--backend conda --framework torch --channel {channel} {HOST}"
    status, document, _ = run("install", *asked.split(), "-o", str(path), "--target", str(target))
    assert (
        status == 2 and "no conda environment" in document["error"]["message"] and not path.exists()
    )


def pin(name, version, build, sha256):
    kept = {"build": build, "build_number": 0, "subdir": "linux-64", "depends": (), "md5": None}
    url = f"https://example.org/linux-64/{name}-{version}-{build}.conda"
    return Pin(
        wheel=Wheel(
            name=name,
            version=version,
            filename=url.rpartition("/")[2],
            url=url,
            sha256=sha256,
            index="https://example.org",
            metadata=kept,
        )
    )


@pytest.fixture
def lock(tmp_path):
    """An explicit file of conda's own, of two packages."""
    pins = [pin("zlib", "1.3", "h1_0", "a" * 64), pin("xz", "5.6", "h2_1", "b" * 64)]
    lines = ["@EXPLICIT", *(f"{one.wheel.url}#sha256:{one.wheel.sha256}" for one in pins)]
    (tmp_path / "explicit.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "explicit.txt"


AGAINST = data_file("tables/conda_prefixes.json")["against"]


@each("changed status evidence", AGAINST)
def test_a_prefix_has_the_builds_of_its_lock(changed, status, evidence, lock, prefix):
    put_package(prefix, "zlib", "1.3", "h1_0", sha256="a" * 64)
    put_package(
        prefix, **{"name": "xz", "version": "5.6", "build": "h2_1", "sha256": "b" * 64, **changed}
    )
    code, document, err = run("verify", str(lock), "--target", str(prefix), "--no-device")
    check = checks(document)["versions conda"]
    assert (check["status"], code) == (status, int(status == "fail")), err
    assert evidence in check["evidence"]


def test_the_prefix_of_an_interpreter_is_verified(lock, prefix):
    put_package(prefix, "zlib", "1.3", "h1_0", sha256="a" * 64)
    put_package(prefix, "xz", "5.6", "h2_1", sha256="b" * 64)
    code, document, _ = run(
        "verify", str(lock), "--python", str(prefix / "bin" / "python"), "--no-device"
    )
    assert code == 0 and checks(document)["versions conda"]["status"] == "pass"


def test_a_lock_that_does_not_fit_the_host_fails_its_verification(prefix, tmp_path):
    """The rules apply to another tool's lock, too: the driver does not support this CUDA 13."""
    made = pin("cuda-version", "13.0", "h0_3", "d" * 64)
    (tmp_path / "explicit.txt").write_text(
        f"@EXPLICIT\n{made.wheel.url}#sha256:{made.wheel.sha256}\n"
    )
    read = api.read_lock(str(tmp_path / "explicit.txt"))
    host = gpuenv.describe(
        gpus=["H100"], driver="570.86.10", python="3.12", platform="linux-x86_64", glibc="2.35"
    )
    found = {f"{one.name} {one.subject}": one for one in api.verify(read, str(prefix), host)}
    assert (
        found["host driver-floor"].status == "fail"
        and "570.86.10" in found["host driver-floor"].evidence
    )
    newer = gpuenv.describe(
        gpus=["H100"], driver="580.65.06", python="3.12", platform="linux-x86_64", glibc="2.35"
    )
    assert api.verify(read, str(prefix), newer)[0].status == "pass"


# ---- the wheels' lock alone ----------------------------------------------------------------------


def test_the_lock_of_the_wheels_alone_is_refused(channel, links, tmp_path, call):
    """The wheels' lock alone would make an environment without the conda packages."""
    path, target = tmp_path / "conda-lock.yml", tmp_path / "env"
    asked = f"--backend conda --framework torch --channel {channel} --format conda-lock {HOST}"
    pip = f"--pip leaf-kit --find-links {links} --offline"
    call(f"solve {asked} {pip} -o {path}")
    beside = tmp_path / "pylock.conda-lock.toml"
    assert tomllib.loads(beside.read_text())["tool"]["gpuenv"]["inputs"] == {
        "conda-lock": "conda-lock.yml"
    }
    sync = f"sync {beside} --target {target} --find-links {links}"
    (line,) = call(f"{sync} {HOST}", status=2).stderr.splitlines()
    assert (
        "belong to conda-lock.yml" in line
        and "gpuenv sync conda-lock.yml" in line
        and not target.exists()
    )
    with pytest.raises(InputError, match="belong to"):
        gpuenv.sync(gpuenv.read_lock(str(beside)), str(target), host=gpuenv.detect())
