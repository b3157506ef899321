"""Settings and project tables that make other tools take the builds that gpuenv takes."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fatbin_maker import binary
from gpuenv.cli import main
from index_server import IndexServer
from tables import HERE, cases, data_file
from variant_maker import NVIDIA_PROVIDER, make_release, make_variant

CASES = data_file("tool_settings.toml")["case"]
TARGET = ("--python", HERE, "--platform", "linux-x86_64", "--glibc", "2.35")
PROVIDERS = {"nvidia": NVIDIA_PROVIDER}
UV = [sys.executable, "-m", "uv"]


def nvidia(bound: str, *architectures: str) -> dict[str, dict[str, list[str]]]:
    return {"nvidia": {"cuda_version_lower_bound": [bound], "sm_arch": [*architectures]}}


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose links/ has the wheels."""
    folder = tmp_path_factory.mktemp("tools")
    links = folder / "links"
    links.mkdir()
    same = {
        "cu126": nvidia("12.6", "70_real", "90_real"),
        "cu128": nvidia("12.8", "90_real"),
        "null": {},
    }
    make_release(links, "same", "1.0", same, providers=PROVIDERS)
    make_release(
        links,
        "ptx",
        "1.0",
        {"only_ptx": nvidia("12.0", "80_virtual"), "null": {}},
        providers=PROVIDERS,
    )
    files = {"cu128": {"liar.fatbin": binary([{"sass": "80"}])}}
    make_release(links, "liar", "1.0", same, providers=PROVIDERS, files=files)
    for version in ("1.0", "2.0"):
        filename, data = make_variant("plain", version, "")
        (links / filename).write_bytes(data)
    return folder


@pytest.fixture
def folder(module_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of the commands."""
    monkeypatch.chdir(module_folder)
    return module_folder


def flags(case: dict[str, Any]) -> list[str]:
    gpus = [flag for name in case["gpu"] for flag in ("--gpu", name)]
    driver = ["--driver", case["driver"]] if "driver" in case else []
    packages = case.get("packages", [])
    source = ["--no-index", "--find-links", "links"] if packages else []
    if packages and case.get("output", True):
        source += ["-o", "constraints.txt"]
    return [*packages, *gpus, *driver, *TARGET, *source]


@cases(CASES)
def test_settings_of_a_tool(
    case: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "constraints.txt").unlink(missing_ok=True)
    arguments = ["env", "--for", case["tool"], *flags(case)]
    assert main([*arguments, "--json"]) == case.get("status", 0)
    document = json.loads(capsys.readouterr().out)
    if "says" in case:
        error = document["error"]
        assert case["says"] in f"{error['message']}; {error['hint']}"
        assert not (folder / "constraints.txt").exists()
        return
    path = folder / "constraints.txt"
    if not case.get("output", True):  # without -o the file lies in the cache
        (name,) = (name for name, value in case["variables"].items() if value == "CACHE")
        path = Path(document["variables"][name])
        assert path.is_absolute() and not (folder / "constraints.txt").exists()
        document["variables"][name] = "CACHE"
    assert document["variables"] == case.get("variables", {})
    assert tomllib.loads(document["table"]) == case.get("table", {})
    if "constraints" in case:
        assert path.read_text().splitlines() == case["constraints"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    exported = [line.removeprefix("export ") for line in lines if line.startswith("export ")]
    assert len(exported) == len(case.get("variables", {}))


@pytest.mark.parametrize(
    ("gpu", "driver", "label"),
    [
        ("H100", "570.86.10", "cu128"),
        ("V100", "570.86.10", "cu126"),
        ("H100", "560.28.03", "cu126"),
    ],
)
def test_uv_takes_the_variant_that_gpuenv_takes(
    folder: Path, gpu: str, driver: str, label: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case = {"gpu": [gpu], "driver": driver, "packages": ["same"]}
    assert main(["env", "--for", "uv", *flags(case), "--json"]) == 0
    variables = json.loads(capsys.readouterr().out)["variables"]
    target = folder / f"uv-{gpu}-{driver}"
    command = [
        *UV,
        "pip",
        "install",
        "--quiet",
        "--no-cache",
        "--no-index",
        "--find-links",
        "links",
    ]
    subprocess.run(
        [*command, "--python", sys.executable, "--target", str(target), "same"],
        env={**os.environ, **variables},
        check=True,
    )
    assert (target / "same.py").read_text() == f"label = '{label}'\n"


# ---- projects ------------------------------------------------------------------------------------


@pytest.fixture
def lock(folder: Path) -> Iterator[str]:
    """A lock with packages of two indexes."""
    with IndexServer() as default, IndexServer() as other:
        default.add("app", "1.0", ["accel", "base<2"])
        for version in ("1.0", "1.5", "2.0"):
            default.add("base", version)
        default.add("accel", "9.0")
        other.add("accel", "1.0+cu126")
        other.add("accel", "0.9+cu126")
        indexes = ("--index-url", default.url, "--extra-index-url", other.url)
        host = ("--gpu", "none", *TARGET)
        assert main(["solve", "app", "base!=1.5", *indexes, *host, "-o", "pylock.toml"]) == 0
        yield default.url


def test_uv_locks_what_was_exported(folder: Path, lock: str) -> None:
    assert main(["export", "--to", "uv", "-o", "tables.toml"]) == 0
    tables = (folder / "tables.toml").read_text()
    assert "explicit = true" in tables
    project = folder / "project"
    project.mkdir()
    head = '[project]\nname = "p"\nversion = "1"\ndependencies = ["app"]\n'
    head += f'requires-python = "=={HERE}.*"\n'
    (project / "pyproject.toml").write_text(f"{head}\n{tables}")
    environment = {**os.environ, "UV_DEFAULT_INDEX": lock, "UV_PYTHON": sys.executable}
    environment |= {"UV_NO_CACHE": "1", "UV_PYTHON_DOWNLOADS": "never"}
    for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"):
        environment.pop(name, None)
    subprocess.run([*UV, "lock", "--quiet"], cwd=project, env=environment, check=True)
    document = tomllib.loads((project / "uv.lock").read_text())
    versions = {package["name"]: package["version"] for package in document["package"]}
    assert versions == {"p": "1", "app": "1.0", "accel": "1.0+cu126", "base": "1.0"}


def test_tables_for_other_tools(
    folder: Path, lock: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = {}
    for tool in ("pixi", "poetry", "pdm"):
        capsys.readouterr()
        assert main(["export", "--to", tool]) == 0
        tables[tool] = tomllib.loads(capsys.readouterr().out)
    packages = tables["pixi"]["feature"]["gpuenv"]["pypi-dependencies"]
    assert packages["base"] == {"version": "==1.0"}
    assert packages["accel"]["version"] == "==1.0+cu126" and "index" in packages["accel"]
    assert tables["pixi"]["environments"] == {"gpuenv": ["gpuenv"]}
    poetry = tables["poetry"]["tool"]["poetry"]
    (source,) = poetry["source"]
    packages = poetry["group"]["gpuenv"]["dependencies"]
    assert packages["accel"] == {"version": "1.0+cu126", "source": source["name"]}
    assert source["priority"] == "explicit" and packages["base"] == "1.0"
    pdm = tables["pdm"]["tool"]["pdm"]
    assert pdm["resolution"]["overrides"] == {
        "app": "==1.0",
        "accel": "==1.0+cu126",
        "base": "==1.0",
    }
    assert pdm["source"][0]["include_packages"] == ["accel"]


@pytest.mark.parametrize("tool", ["uv", "pixi", "poetry", "pdm"])
def test_no_tool_locks_a_variant_wheel(
    folder: Path, tool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case = {"gpu": ["H100"], "driver": "570.86.10"}
    source = ("--no-index", "--find-links", "links")
    path = "pylock.variant.toml"
    if not (folder / path).exists():
        assert main(["solve", "same", *flags(case), *source, "-o", path]) == 0
    assert main(["export", "--to", tool, path, "-o", "none.toml"]) == 3
    assert f"{tool} locks no variant wheel, and same is one" in capsys.readouterr().err
    assert not (folder / "none.toml").exists()
