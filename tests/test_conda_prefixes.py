"""Commands about a conda prefix: its backend, paths with two owners, and locks that differ."""

import json
import os
import tomllib
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpuenv
import test_cli
from gpuenv import api
from gpuenv.cli import main
from gpuenv.errors import InputError
from gpuenv.lock import conda_formats
from gpuenv.model import Pin, Wheel
from index_server import make_wheel
from tables import data_file

HOST = ("--gpu", "H100", "--driver", "570.86.10", "--glibc", "2.35", "--platform", "linux-x86_64")


pytestmark = pytest.mark.usefixtures("own_conda_caches")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A conda environment with nothing in it."""
    (tmp_path / "conda" / "conda-meta").mkdir(parents=True)
    (tmp_path / "conda" / "conda-meta" / "history").write_text("")
    return tmp_path / "conda"


def put_wheel(
    prefix: Path, name: str, version: str, installer: str | None = "pip", metadata: bool = False
) -> None:
    (site,) = [*prefix.glob("lib/python3*")] or [prefix / "lib" / "python3.12"]
    info = site / "site-packages" / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    if installer:
        (info / "INSTALLER").write_text(f"{installer}\n")
    if metadata:
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\n")


def put_package(prefix: Path, name: str, version: str, build: str = "h0_0", **more: Any) -> None:
    record = {"name": name, "version": version, "build": build, **more}
    (prefix / "conda-meta" / f"{name}-{version}-{build}.json").write_text(json.dumps(record))


RULES: dict[str, Any] = data_file("tables/conda_rules.json")
Capture = pytest.CaptureFixture[str]


# ---- --backend auto ------------------------------------------------------------------------------

PLACES = data_file("tables/conda_prefixes.json")["places"]


@pytest.fixture(params=PLACES)
def place(
    request: pytest.FixtureRequest, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
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


AUTO = ("--backend", "auto", "--framework", "torch", "--offline", "--python", "3.13", *HOST)


def test_auto_is_the_backend_of_what_is_active(place: str, channel: str, tmp_path: Path) -> None:
    assert main(["solve", *AUTO, "--channel", channel]) == 0
    assert (tmp_path / "conda-explicit.txt").exists() == (place == "conda")
    assert (tmp_path / "pylock.toml").exists() == (place == "pip")


def test_without_the_flag_it_is_pip_in_a_conda_environment_too(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDA_PREFIX", str(prefix))
    monkeypatch.chdir(tmp_path)
    assert main(["solve", "--framework", "torch", "--offline", "--python", "3.12", *HOST]) == 0
    assert (tmp_path / "pylock.toml").exists() and not (tmp_path / "conda-explicit.txt").exists()


# ---- two owners ----------------------------------------------------------------------------------


def warnings(document: str) -> dict[str, dict[str, str]]:
    return {
        one["code"]: one
        for one in json.loads(document)["warnings"]
        if one["code"].startswith("two-")
    }


@pytest.fixture
def solved(
    channel: str,
    prefix: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """The output of a solve with the prefix active."""

    def solve(*more: str) -> str:
        monkeypatch.setenv("CONDA_PREFIX", str(prefix))
        name = "conda.txt" if "conda" in more else "pylock.toml"
        conda = ("--channel", channel) if "conda" in more else ("--offline", "--python", "3.12")
        assert (
            main(
                ["solve", "--framework", "torch", *HOST, "-o", str(tmp_path / name), *conda, *more]
            )
            == 0
        )
        return capsys.readouterr().out

    return solve


def test_a_conda_solve_names_the_wheels_of_the_prefix(
    solved: Callable[..., str], prefix: Path
) -> None:
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


def test_a_pip_solve_names_the_packages_of_the_prefix(
    solved: Callable[..., str], prefix: Path, tmp_path: Path
) -> None:
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


def run(*words: str) -> tuple[int, dict[str, Any], str]:
    """(exit status, document, stderr) of a command."""
    cache = os.environ["GPUENV_CACHE_DIR"]
    done = test_cli.run([*words, "--json"], Path.cwd(), GPUENV_CACHE_DIR=cache)
    return done.returncode, json.loads(done.stdout), done.stderr


def checks(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{one['name']} {one['subject']}".strip(): one for one in document["checks"]}


@pytest.mark.parametrize("name", RULES)
def test_verify_and_doctor_find_the_same(
    name: str, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Also in an environment without Python, which can have no wheels."""
    case = RULES[name]
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
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("links")
    filename, data = make_wheel("leaf-kit", "1.0", ("numpy",))
    (folder / filename).write_bytes(data)
    return folder


@pytest.mark.parametrize("form", sorted(conda_formats.FORMATS))
def test_install_solves_locks_installs_and_verifies(
    form: str, channel: str, links: Path, tmp_path: Path
) -> None:
    path, target = tmp_path / conda_formats.FORMATS[form], tmp_path / "prefix"
    asked = [
        "--backend",
        "conda",
        "--framework",
        "torch",
        "--channel",
        channel,
        "--format",
        form,
        *HOST,
    ]
    pip = ["--pip", "leaf-kit", "--find-links", str(links), "--offline"]
    status, document, err = run("install", *asked, *pip, "-o", str(path), "--target", str(target))
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


def test_a_target_that_cannot_be_used_leaves_no_lock(channel: str, tmp_path: Path) -> None:
    target, path = tmp_path / "mine", tmp_path / "lock.txt"
    target.mkdir()
    (target / "thesis.txt").write_text("mine")
    asked = ["--backend", "conda", "--framework", "torch", "--channel", channel, *HOST]
    status, document, _ = run("install", *asked, "-o", str(path), "--target", str(target))
    assert (
        status == 2 and "no conda environment" in document["error"]["message"] and not path.exists()
    )


def test_what_cannot_be_installed_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags in (
        ["--format", "requirements"],
        ["--format", "requirements", "--backend", "conda"],
        ["--pip", "x"],
    ):
        assert (
            main(
                ["install", "--framework", "torch", *HOST, "--target", str(tmp_path / "x"), *flags]
            )
            == 2
        )
        assert flags[0] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def pin(name: str, version: str, build: str, sha256: str) -> Pin:
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
def lock(tmp_path: Path) -> Path:
    """An explicit file of conda's own, of two packages."""
    pins = [pin("zlib", "1.3", "h1_0", "a" * 64), pin("xz", "5.6", "h2_1", "b" * 64)]
    lines = ["@EXPLICIT", *(f"{one.wheel.url}#sha256:{one.wheel.sha256}" for one in pins)]
    (tmp_path / "explicit.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "explicit.txt"


AGAINST = data_file("tables/conda_prefixes.json")["against"]


@pytest.mark.parametrize("name", AGAINST)
def test_a_prefix_has_the_builds_of_its_lock(name: str, lock: Path, prefix: Path) -> None:
    changed, status, evidence = AGAINST[name]
    put_package(prefix, "zlib", "1.3", "h1_0", sha256="a" * 64)
    put_package(
        prefix, **{"name": "xz", "version": "5.6", "build": "h2_1", "sha256": "b" * 64, **changed}
    )
    code, document, err = run("verify", str(lock), "--target", str(prefix), "--no-device")
    check = checks(document)["versions conda"]
    assert (check["status"], code) == (status, int(status == "fail")), err
    assert evidence in check["evidence"]


def test_the_prefix_of_an_interpreter_is_verified(lock: Path, prefix: Path) -> None:
    put_package(prefix, "zlib", "1.3", "h1_0", sha256="a" * 64)
    put_package(prefix, "xz", "5.6", "h2_1", sha256="b" * 64)
    code, document, _ = run(
        "verify", str(lock), "--python", str(prefix / "bin" / "python"), "--no-device"
    )
    assert code == 0 and checks(document)["versions conda"]["status"] == "pass"


def test_a_lock_that_does_not_fit_the_host_fails_its_verification(
    prefix: Path, tmp_path: Path
) -> None:
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


def test_the_lock_of_the_wheels_alone_is_refused(
    channel: str, links: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wheels' lock alone would make an environment without the conda packages."""
    path, target = tmp_path / "conda-lock.yml", tmp_path / "env"
    asked = [
        "--backend",
        "conda",
        "--framework",
        "torch",
        "--channel",
        channel,
        "--format",
        "conda-lock",
        *HOST,
    ]
    pip = ["--pip", "leaf-kit", "--find-links", str(links), "--offline"]
    assert main(["solve", *asked, *pip, "-o", str(path)]) == 0
    beside = tmp_path / "pylock.conda-lock.toml"
    assert tomllib.loads(beside.read_text())["tool"]["gpuenv"]["inputs"] == {
        "conda-lock": "conda-lock.yml"
    }
    capsys.readouterr()
    sync = ["sync", str(beside), "--target", str(target), "--find-links", str(links)]
    assert main([*sync, *HOST]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        "belong to conda-lock.yml" in line
        and "gpuenv sync conda-lock.yml" in line
        and not target.exists()
    )
    with pytest.raises(InputError, match="belong to"):
        gpuenv.sync(gpuenv.read_lock(str(beside)), str(target), host=gpuenv.detect())
