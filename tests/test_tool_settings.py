"""Settings and project tables that make other tools take the builds that gpuenv takes."""

import os
import sys
import tomllib
from pathlib import Path

import pytest

from fatbin_maker import binary
from index_server import IndexServer, fill_two_indexes
from processes import run_program
from tables import HERE, cases, data_file, each, read_data
from variant_maker import NVIDIA_PROVIDER, make_release, write_variant

CASES = data_file("tool_settings.toml")["case"]
TARGET = f"--python {HERE} --platform linux-x86_64 --glibc 2.35"
PROVIDERS = {"nvidia": NVIDIA_PROVIDER}
UV = f"{sys.executable} -m uv"


def nvidia(bound, *architectures):
    return {"nvidia": {"cuda_version_lower_bound": [bound], "sm_arch": [*architectures]}}


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory):
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
        write_variant(links, "plain", version, "")
    return folder


@pytest.fixture
def folder(module_folder, monkeypatch):
    """The working folder of the commands."""
    monkeypatch.chdir(module_folder)
    return module_folder


def flags(case):
    words = [f"--gpu '{name}'" for name in case["gpu"]]
    words += [f"--driver {case['driver']}"] if "driver" in case else []
    packages = case.get("packages", [])
    words += ["--no-index --find-links links"] if packages else []
    words += ["-o constraints.txt"] if packages and case.get("output", True) else []
    return " ".join([*packages, *words, TARGET])


@cases(CASES)
def test_settings_of_a_tool(case, folder, call):
    (folder / "constraints.txt").unlink(missing_ok=True)
    command = f"env --for {case['tool']} {flags(case)}"
    document = call(f"{command} --json", status=case.get("status", 0)).document
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
    lines = call(command).stdout.splitlines()
    exported = [line.removeprefix("export ") for line in lines if line.startswith("export ")]
    assert len(exported) == len(case.get("variables", {}))


@each(
    "gpu driver label",
    data_file("tables/tool_settings.json")["variants"],
)
def test_uv_takes_the_variant_that_gpuenv_takes(folder, gpu, driver, label, call):
    case = {"gpu": [gpu], "driver": driver, "packages": ["same"]}
    variables = call(f"env --for uv {flags(case)} --json").document["variables"]
    target = folder / f"uv-{gpu}-{driver}"
    install = "pip install --quiet --no-cache --no-index --find-links links same --target"
    command = f"{UV} {install} {target} --python {sys.executable}"
    run_program(command, env={**os.environ, **variables})
    assert (target / "same.py").read_text() == f"label = '{label}'\n"


# ---- projects ------------------------------------------------------------------------------------


@pytest.fixture
def lock(folder, server, call):
    """A lock with packages of two indexes; the URL of the default one."""
    with IndexServer() as other:
        indexes = fill_two_indexes(server, other)
        call(f"solve app base!=1.5 --gpu none {TARGET} -o pylock.toml", *indexes)
        yield server.url


def test_uv_locks_what_was_exported(folder, lock, call):
    call("export --to uv -o tables.toml")
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
    run_program(f"{UV} lock --quiet", cwd=project, env=environment)
    document = read_data(project / "uv.lock")
    versions = {package["name"]: package["version"] for package in document["package"]}
    assert versions == {"p": "1", "app": "1.0", "accel": "1.0+cu126", "base": "1.0"}


@each("installer", [["pip", "install", "--no-cache-dir"], ["uv", "pip", "sync", "--no-cache"]])
def test_pip_and_uv_install_the_exported_requirements(folder, lock, call, tmp_path, installer):
    """With all hashes, and the package of the other index by its URL."""
    requirements = tmp_path / "requirements.txt"
    call("export --to requirements -o", requirements)
    assert requirements.read_text() == call("export --to requirements").stdout
    target = tmp_path / "target"
    options = ["--require-hashes", "--quiet", "--index-url", lock, "--target", str(target)]
    files = [str(requirements)] if "uv" in installer else ["-r", str(requirements)]
    run_program([sys.executable, "-m", *installer, *options, *files])
    installed = {path.name.removesuffix(".dist-info") for path in target.glob("*.dist-info")}
    assert installed == {"app-1.0", "accel-1.0+cu126", "base-1.0"}


@each("tool", ["uv", "pixi", "poetry", "pdm"])
def test_no_tool_locks_a_variant_wheel(folder, tool, call):
    case = {"gpu": ["H100"], "driver": "570.86.10"}
    path = "pylock.variant.toml"
    if not (folder / path).exists():
        call(f"solve same {flags(case)} --no-index --find-links links -o {path}")
    done = call(f"export --to {tool} {path} -o none.toml", status=3)
    assert f"{tool} locks no variant wheel, and same is one" in done.stderr
    assert not (folder / "none.toml").exists()
