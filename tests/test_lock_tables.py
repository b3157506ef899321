"""What other tools read and write, from locks made by hand: each key, each kind of file."""

import hashlib
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import yaml

from gpuenv.errors import InexpressibleError, InputError, Reason, TamperedError
from gpuenv.lock import (
    conda_foreign,
    conda_formats,
    conda_projects,
    grammar,
    host_fit,
    pylock,
    tool_projects,
    tool_settings,
)
from gpuenv.lock.tree import Tree
from gpuenv.model import (
    Choice,
    Code,
    Gpu,
    Host,
    Lock,
    Needs,
    Pin,
    Plan,
    Python,
    Request,
    Wheel,
    WheelVariant,
)
from gpuenv.serialize import canonical_json
from variant_maker import metadata

HOST = Host(python=Python(version=(3, 12)), glibc=(2, 35))
CARD = Gpu(name="NVIDIA H100", compute_capability=(9, 0))
GPU_HOST = HOST.replace(gpus=(CARD,), driver="570.86.10", driver_cuda=(12, 8))
MAIN = "https://packages.example/simple"
PYTORCH = "https://download.pytorch.org/whl/cu128"


def wheel(name: str, index: str = MAIN, url: str = "") -> Wheel:
    filename = f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
    url = url or f"https://files.example/{filename}"
    return Wheel(name=name, version="1.0", filename=filename, url=url, sha256="a" * 64, index=index)


def lock_of(*wheels: Wheel, **changes: object) -> Lock:
    pins = tuple(Pin(wheel=one) for one in wheels)
    needs = Needs(python=(3, 12), platform="linux-x86_64")
    lock = Lock(pins=pins, needs=needs, choices=(), host=HOST, frameworks=("app",))
    return lock.replace(**changes)


def plan_of(*wheels: Wheel) -> Plan:
    return Plan(request=Request(), host=HOST, pins=lock_of(*wheels).pins, needs=Needs(), choices=())


LOCK = lock_of(
    wheel("app"),
    wheel("base"),
    wheel("helper"),
    wheel("torch", PYTORCH),
    wheel("named", "url", "https://files.example/named-1.0-py3-none-any.whl"),
    wheel("found", "", "file:///links/found-1.0-py3-none-any.whl"),
)
NAME = "pytorch-cu128"  # of the index beside the one that has most packages
NAMED = "https://files.example/named-1.0-py3-none-any.whl"
FOUND = "file:///links/found-1.0-py3-none-any.whl"


def tables(tool: str, lock: Lock = LOCK) -> Any:
    return tomllib.loads(tool_projects.project_tables(tool, lock))


# ---- projects of wheels --------------------------------------------------------------------------


def test_the_tables_of_uv() -> None:
    document = tables("uv")
    assert document["dependency-groups"] == {"gpuenv": ["found", "named", "torch"]}
    uv = document["tool"]["uv"]
    assert uv["constraint-dependencies"] == [f"{pin.wheel.name}==1.0" for pin in LOCK.pins]
    (marker,) = uv["environments"]
    assert "3.12" in marker
    assert uv["index"] == [{"name": NAME, "url": PYTORCH, "explicit": True}]
    assert uv["sources"] == {
        "torch": {"index": NAME},
        "named": {"url": NAMED},
        "found": {"path": "/links/found-1.0-py3-none-any.whl"},
    }


def test_the_tables_of_uv_name_no_index_and_no_group_without_need() -> None:
    document = tables("uv", lock_of(wheel("app"), wheel("base")))
    assert set(document) == {"tool"}
    assert set(document["tool"]["uv"]) == {"constraint-dependencies", "environments"}


def test_uv_reads_the_source_of_a_package_that_the_user_named() -> None:
    document = tables("uv", lock_of(wheel("base"), wheel("app", "url"), requirements=("base",)))
    assert set(document) == {"tool"}
    document = tables("uv", lock_of(wheel("base"), wheel("tool", "url"), requirements=("tool>1",)))
    assert set(document) == {"tool"}


def test_the_tables_of_pixi() -> None:
    document = tables("pixi")
    (platform,) = document["workspace"]["platforms"]
    assert platform == {"name": "gpuenv", "platform": "linux-64", "glibc": "2.35"}
    assert document["environments"] == {"gpuenv": ["gpuenv"]}
    assert document["feature"]["gpuenv"] == {
        "platforms": ["gpuenv"],
        "dependencies": {"python": "3.12.*"},
        "pypi-dependencies": {
            "app": {"version": "==1.0"},
            "base": {"version": "==1.0"},
            "helper": {"version": "==1.0"},
            "torch": {"version": "==1.0", "index": PYTORCH},
            "named": {"url": NAMED},
            "found": {"url": FOUND},
        },
    }


def test_the_tables_of_poetry() -> None:
    assert tables("poetry")["tool"] == {
        "poetry": {
            "dependencies": {"python": "~3.12"},
            "group": {
                "gpuenv": {
                    "dependencies": {
                        "app": "1.0",
                        "base": "1.0",
                        "helper": "1.0",
                        "torch": {"version": "1.0", "source": NAME},
                        "named": {"url": NAMED},
                        "found": {"url": FOUND},
                    }
                }
            },
            "source": [{"name": NAME, "url": PYTORCH, "priority": "explicit"}],
        }
    }
    assert "source" not in tables("poetry", lock_of(wheel("app")))["tool"]["poetry"]


def test_the_tables_of_pdm() -> None:
    overrides = dict.fromkeys(("app", "base", "helper", "torch"), "==1.0")
    assert tables("pdm")["tool"] == {
        "pdm": {
            "resolution": {"overrides": {**overrides, "named": NAMED, "found": FOUND}},
            "source": [{"name": NAME, "url": PYTORCH, "include_packages": ["torch"]}],
        }
    }
    assert set(tables("pdm", lock_of(wheel("app")))["tool"]["pdm"]) == {"resolution"}


@pytest.mark.parametrize(
    ("urls", "names"),
    [
        (["https://a.example/cu126", "https://b.example/cu126"], ["a-cu126", "b-cu126"]),
        (
            ["https://a.x.example/cu128", "https://b.x.example/cu128", "https://x.example/cu128"],
            ["x-cu128", "x-cu128-2", "x-cu128-3"],
        ),
        (["https://mirror/a/b/"], ["mirror-b"]),
        (["https://x.y.z/a"], ["y-a"]),
    ],
)
def test_the_names_of_indexes(urls: list[str], names: list[str]) -> None:
    others = [wheel(f"other{number}", url) for number, url in enumerate(urls)]
    lock = lock_of(wheel("app"), wheel("base"), *others)
    index = tables("uv", lock)["tool"]["uv"]["index"]
    assert [(row["url"], row["name"]) for row in index] == list(zip(urls, names, strict=True))


# ---- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (HOST, {"platform": "linux-64", "glibc": "2.35"}),
        (HOST.replace(machine="aarch64"), {"platform": "linux-aarch64", "glibc": "2.35"}),
        (HOST.replace(os="windows", glibc=None), {"platform": "win-64"}),
        (
            GPU_HOST,
            {
                "platform": "linux-64",
                "cuda": {"driver": "12.8", "arch": "9.0"},
                "glibc": "2.35",
            },
        ),
        (
            GPU_HOST.replace(driver=None, driver_cuda=None),
            {"platform": "linux-64", "glibc": "2.35"},
        ),
    ],
)
def test_the_platform_of_a_host_for_pixi(host: Host, expected: Mapping[str, Any]) -> None:
    made = tomllib.loads(tool_settings.settings("pixi", host, None).table)
    assert made["workspace"]["platforms"] == [{"name": "gpuenv", **expected}]


def test_a_project_for_pixi_names_no_compute_capability() -> None:
    text = tool_settings.pixi_platform(GPU_HOST, with_capability=False)
    (platform,) = tomllib.loads(text)["workspace"]["platforms"]
    assert platform["cuda"] == "12.8"


def test_the_overrides_of_conda() -> None:
    made = tool_settings.settings("conda", GPU_HOST, None)
    assert dict(made.variables) == {
        "CONDA_OVERRIDE_GLIBC": "2.35",
        "CONDA_OVERRIDE_CUDA": "12.8",
        "CONDA_OVERRIDE_CUDA_ARCH": "9.0",
    }
    made = tool_settings.settings("conda", HOST.replace(glibc=None), None)
    assert dict(made.variables) == {"CONDA_OVERRIDE_CUDA": "", "CONDA_OVERRIDE_CUDA_ARCH": ""}
    with pytest.raises(InputError, match="conda needs the CUDA version of the driver"):
        tool_settings.settings("conda", GPU_HOST.replace(driver_cuda=None), None)


def test_the_settings_of_uv_and_pip_for_a_plan() -> None:
    plan = plan_of(wheel("app"), wheel("base"), wheel("torch", PYTORCH))
    made = tool_settings.settings("uv", GPU_HOST, plan)
    assert dict(made.variables) == {
        "UV_CUDA_DRIVER_VERSION": "570.86.10",
        "UV_TORCH_BACKEND": "cu128",
    }
    assert made.constraints == ("app==1.0", "base==1.0", "torch==1.0")
    assert made.constraints_variable == "UV_CONSTRAINT"
    assert tool_settings.settings("uv", HOST, plan_of(wheel("torch"))).variables == ()
    made = tool_settings.settings("pip", GPU_HOST, plan)
    assert dict(made.variables) == {"PIP_EXTRA_INDEX_URL": PYTORCH}
    assert made.constraints_variable == "PIP_CONSTRAINT"
    files = plan_of(wheel("app"), wheel("found", ""), wheel("named", "url"))
    assert tool_settings.settings("pip", GPU_HOST, files).variables == ()
    with pytest.raises(InputError, match="pip has no settings"):
        tool_settings.settings("pip", GPU_HOST, None)


# ---- locks of conda packages ---------------------------------------------------------------------

CHANNEL = "https://conda.example/conda-forge"


def conda_pin(name: str, version: str = "1.0", **record: object) -> Pin:
    metadata = {"build": "h1_3", "build_number": 3, "subdir": "linux-64", "depends": ()}
    filename = f"{name}-{version}-h1_3.conda"
    made = Wheel(
        name=name,
        version=version,
        filename=filename,
        url=f"{CHANNEL}/linux-64/{filename}",
        sha256="a" * 64,
        index=CHANNEL,
        metadata={**metadata, **record},
    )
    return Pin(wheel=made)


def conda_lock(*names: str, wheels: Lock | None = None, **changes: object) -> Lock:
    pins = tuple(map(conda_pin, names))
    lock = lock_of().replace(pins=pins, conda=True, wheels=wheels, host=GPU_HOST)
    return lock.replace(**changes)


def test_the_project_files_of_conda_packages() -> None:
    lock = conda_lock("python", "cudnn")
    assert yaml.safe_load(conda_projects.project_text("conda", lock)) == {
        "channels": [CHANNEL],
        "dependencies": ["python=1.0=h1_3", "cudnn=1.0=h1_3"],
    }
    assert yaml.safe_load(conda_projects.project_text("constructor", lock)) == {
        "name": "gpuenv",
        "version": "1.0",
        "channels": [CHANNEL],
        "specs": ["python 1.0 h1_3", "cudnn 1.0 h1_3"],
    }
    document = tomllib.loads(conda_projects.project_text("pixi", lock))
    (platform,) = document["workspace"].pop("platforms")
    assert platform["cuda"] == "12.8"
    assert document == {
        "workspace": {"channels": [CHANNEL], "name": "gpuenv"},
        "dependencies": {
            "python": {"version": "==1.0", "build": "h1_3"},
            "cudnn": {"version": "==1.0", "build": "h1_3"},
        },
    }


@pytest.mark.parametrize(
    ("packages", "before"),
    [
        (("python",), ["python=1.0=h1_3", "pip"]),
        (("python", "pip"), ["python=1.0=h1_3", "pip=1.0=h1_3"]),
    ],
)
def test_project_files_with_wheels_beside_conda_packages(
    packages: tuple[str, ...], before: list[str]
) -> None:
    lock = conda_lock(*packages, wheels=lock_of(wheel("leaf")))
    environment = yaml.safe_load(conda_projects.project_text("conda", lock))
    assert environment["dependencies"] == [*before, {"pip": ["leaf==1.0"]}]
    document = tomllib.loads(conda_projects.project_text("pixi", lock))
    assert document["pypi-dependencies"] == {"leaf": "==1.0"}
    with pytest.raises(InexpressibleError, match="and leaf is one"):
        conda_projects.project_text("constructor", lock)


def test_the_channels_of_a_request_come_first_and_have_no_password() -> None:
    asked = ("https://user:secret@conda.example/t/abc/main", CHANNEL)
    lock = conda_lock("python", inputs=(("channels", asked),))
    first, second = conda_projects.channels_of(lock)
    assert second == CHANNEL and "secret" not in first and "abc" not in first


def test_a_conda_lock_has_what_the_format_asks_for() -> None:
    depends = ("cuda-version >=12", "libgcc")
    pin = conda_pin("cudnn", "9.1", depends=depends, md5="b" * 32)
    lock = conda_lock(inputs=(("channels", (CHANNEL,)),)).replace(pins=(pin, conda_pin("python")))
    text = conda_formats.dumps(lock, "conda-lock")
    for line in ("version: 1", "metadata:", "    url: ", '      cuda-version: ">=12"'):
        assert f"\n{line}" in f"\n{text}"  # texts are quoted, and keys are not
    document = yaml.safe_load(text)
    metadata = document["metadata"]
    assert document["version"] == 1
    assert set(metadata) == {
        "content_hash",
        "channels",
        "platforms",
        "sources",
        "custom_metadata",
    }
    assert metadata["channels"] == [{"url": CHANNEL, "used_env_vars": []}]
    assert metadata["platforms"] == ["linux-64"] == list(metadata["content_hash"])
    assert metadata["sources"] == []
    assert set(metadata["custom_metadata"]) == {"gpuenv"}
    assert document["package"][0] == {
        "name": "cudnn",
        "version": "9.1",
        "manager": "conda",
        "platform": "linux-64",
        "dependencies": {"cuda-version": ">=12", "libgcc": ""},
        "url": pin.wheel.url,
        "hash": {"md5": "b" * 32, "sha256": "a" * 64},
        "category": "main",
        "optional": False,
    }
    assert document["package"][1]["hash"] == {"sha256": "a" * 64}


@pytest.mark.parametrize(
    ("lock_plan", "source"),
    [
        (pylock.lock, "index"),
        (lambda plan: conda_formats.lock(plan, (CHANNEL,)), "channel"),
    ],
    ids=["pylock", "conda"],
)
def test_a_file_without_a_sha256_is_not_locked(
    lock_plan: Callable[[Plan], Lock], source: str
) -> None:
    """Without the hash, an installer cannot check that the file is the locked one."""
    plan = plan_of(wheel("app"), wheel("base"), wheel("helper"))
    assert [pin.wheel.sha256 for pin in lock_plan(plan).pins] == ["a" * 64] * 3
    for place, pin in enumerate(plan.pins):
        unknown = pin.replace(wheel=pin.wheel.replace(sha256=None))
        pins = (*plan.pins[:place], unknown, *plan.pins[place + 1 :])
        message = f"{pin.wheel.filename}: its {source} gives no sha256, and a lock needs one"
        with pytest.raises(InputError, match=message):
            lock_plan(plan.replace(pins=pins))


# ---- locks of other tools ------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    system, name = request.param
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr("platform.machine", lambda: name)


@pytest.mark.parametrize(
    ("machine", "subdir"),
    [
        (("linux", "x86_64"), "linux-64"),
        (("linux", "aarch64"), "linux-aarch64"),
        (("win32", "AMD64"), "win-64"),
        (("darwin", "arm64"), "osx-arm64"),
        (("darwin", "x86_64"), "osx-64"),
        (("linux", "riscv64"), "linux-riscv64"),
        (("freebsd14", "x86_64"), "freebsd14-64"),
    ],
    indirect=["machine"],
)
def test_the_platform_of_this_machine_is_read(machine: None, subdir: str) -> None:
    assert conda_foreign.chosen_subdir(["other-64", subdir], "x") == subdir
    assert conda_foreign.chosen_subdir(["other-64"], "x") == "other-64"
    with pytest.raises(InputError, match=f"is for a-64, b-64, not for {subdir}"):
        conda_foreign.chosen_subdir(["a-64", "b-64"], "x")
    with pytest.raises(InputError, match="is for no platform"):
        conda_foreign.chosen_subdir([], "x")


def test_a_lock_of_files_needs_the_python_that_it_has() -> None:
    pins = (conda_pin("python", "3.11.7"), conda_pin("cudnn"))
    lock = conda_foreign.without_needs(pins)
    assert (lock.host.python.version, lock.needs, lock.wheels) == ((3, 11), Needs(), None)
    lock = conda_foreign.without_needs(pins, [wheel("leaf")])
    assert lock.needs == Needs(python=(3, 11)) and lock.wheels is not None
    assert lock.wheels.needs == lock.needs
    assert [pin.wheel.name for pin in lock.wheels.pins] == ["leaf"]
    assert conda_foreign.without_needs((conda_pin("cudnn"),)).host.python.version == (0, 0)


def test_the_packages_of_one_platform() -> None:
    rows = [
        {"name": "a", "platform": "linux-64"},
        {"name": "b", "platform": "linux-64"},
        {"name": "c"},
    ]
    assert [row["name"] for row in conda_foreign.of_platform(rows, "x")] == ["a", "b"]
    assert [row["name"] for row in conda_foreign.of_platform(rows[2:], "x")] == ["c"]
    assert list(conda_foreign.of_platform([], "x")) == []


@pytest.mark.parametrize(
    ("text", "conda", "pixi"),
    [
        ("version: 1\nmetadata: {}\npackage: []\n", True, False),
        ("version: 6\nenvironments: {}\npackages: []\n", False, True),
        ("version: 6\nenvironments: {}\n", False, False),
        ("metadata: {}\npackage: []\n", False, False),
        ("version: 1\npackage: []\n", False, False),
        ("environments: {}\npackages: []\n", False, False),
        ("version: 6\npackages: []\n", False, False),
        ("version: 1\nx:\n  metadata: {}\n  package: []\n", False, False),
    ],
)
def test_a_lock_is_recognized_by_its_keys(text: str, conda: bool, pixi: bool) -> None:
    assert (conda_foreign.is_conda_lock(text), conda_foreign.is_pixi_lock(text)) == (conda, pixi)


def pixi_document(version: int, conda: Mapping[str, Any], pypi: Mapping[str, Any]) -> Any:
    used = [{"conda": f"{CHANNEL}/a.conda"}, {"pypi": NAMED}]
    unused = {**conda, "conda": f"{CHANNEL}/b.conda", "url": f"{CHANNEL}/b.conda"}
    return {
        "version": version,
        "environments": {"default": {"packages": {"linux-64": used}}},
        "packages": [unused, dict(conda), dict(pypi)],
    }


LEAF = {"name": "Named", "version": "1.0", "sha256": "a" * 64}
PIXI = {
    4: ({"kind": "conda", "url": f"{CHANNEL}/a.conda"}, {"kind": "pypi", "url": NAMED, **LEAF}),
    5: ({"kind": "conda", "url": f"{CHANNEL}/a.conda"}, {"kind": "pypi", "url": NAMED, **LEAF}),
    6: ({"conda": f"{CHANNEL}/a.conda"}, {"pypi": NAMED, **LEAF}),
}


@pytest.mark.parametrize("version", PIXI)
def test_the_files_of_a_pixi_lock(version: int) -> None:
    packages, wheels = conda_foreign.pixi_files(pixi_document(version, *PIXI[version]), "x")
    assert [row["url"] for row in packages] == [f"{CHANNEL}/a.conda"]
    assert [(one.name, one.version, one.url) for one in wheels] == [("named", "1.0", NAMED)]


@pytest.mark.parametrize("version", [3, 7])
def test_another_version_of_a_pixi_lock_is_refused(version: int) -> None:
    with pytest.raises(InputError, match=f"version {version}; 4, 5, 6 are read"):
        conda_foreign.pixi_files(pixi_document(version, *PIXI[6]), "x")


@pytest.mark.parametrize(
    ("version", "url", "message"),
    [
        ("one", NAMED, "'one' is no version"),
        ("1.0", NAMED.replace("https", "ftp"), "has the scheme 'ftp'"),
        ("1.0", NAMED.replace(".whl", ".tar.gz"), "named-1.0-py3-none-any.tar.gz is no wheel"),
        ("1.0", "https://x/", "package Named: https://x/ is no wheel"),
    ],
)
def test_a_wheel_of_another_tool_is_checked(version: str, url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conda_foreign.wheel("Named", version, url, "a" * 64)


@pytest.mark.parametrize(
    ("url", "filename"),
    [
        (f"{NAMED}#sha256=ab", "named-1.0-py3-none-any.whl"),
        ("https://x/named-1.0%2Bcpu-py3-none-any.whl", "named-1.0+cpu-py3-none-any.whl"),
    ],
)
def test_the_file_name_of_a_wheel_is_read_from_its_url(url: str, filename: str) -> None:
    assert conda_foreign.wheel("Named", "1.0", url, "a" * 64).filename == filename


CONDA_FILE = f"{CHANNEL}/linux-64/cudnn-9.1-h1_3.conda"
PYTHON_FILE = f"{CHANNEL}/linux-64/python-3.11.7-0.tar.bz2"
HASHES = {"sha256": "a" * 64, "md5": "b" * 32}


def pixi_text(conda: Mapping[str, Any]) -> str:
    used = [{"conda": CONDA_FILE}, {"pypi": NAMED}]
    document = {
        "version": 6,
        "environments": {"default": {"packages": {"linux-64": used}}},
        "packages": [{"conda": CONDA_FILE, **conda}, {"pypi": NAMED, **LEAF}],
    }
    return yaml.safe_dump(document, sort_keys=False)


@pytest.mark.parametrize("more", [{"depends": ["libgcc >=12", "x"]}, {"depends": None}, {}])
def test_a_pixi_lock_has_what_a_solver_asks_for(more: Mapping[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "pixi.lock"
    path.write_text(pixi_text({**HASHES, **more}))
    lock = conda_formats.read(str(path))
    (pin,) = lock.pins
    assert (pin.wheel.name, pin.wheel.version, pin.wheel.sha256) == ("cudnn", "9.1", "a" * 64)
    assert (pin.wheel.url, pin.wheel.index) == (CONDA_FILE, CHANNEL)
    assert pin.wheel.metadata == {
        "build": "h1_3",
        "build_number": 3,
        "subdir": "linux-64",
        "depends": tuple(more.get("depends") or ()),
        "md5": "b" * 32,
    }
    assert lock.wheels is not None and [one.wheel.name for one in lock.wheels.pins] == ["named"]
    path.write_text(pixi_text({**more, "md5": "b" * 32}))
    with pytest.raises(InputError, match=r"cudnn-9.1-h1_3\.conda has no sha256"):
        conda_formats.read(str(path))


def conda_lock_text(*packages: Mapping[str, Any], metadata: object = None) -> str:
    document = {"version": 1, "metadata": {} if metadata is None else metadata}
    return yaml.safe_dump({**document, "package": list(packages)}, sort_keys=False)


CONDA_PACKAGE = {
    "name": "cudnn",
    "version": "9.1",
    "manager": "conda",
    "platform": "linux-64",
    "dependencies": {"libgcc": ">=12", "x": None, "y": ""},
    "url": CONDA_FILE,
    "hash": HASHES,
}
PIP_PACKAGE = {
    **CONDA_PACKAGE,
    "name": "Named",
    "version": 1.0,
    "manager": "pip",
    "url": NAMED,
    "dependencies": {},
}


def test_a_conda_lock_has_the_packages_of_both_managers(tmp_path: Path) -> None:
    path = tmp_path / "conda-lock.yml"
    python = {**CONDA_PACKAGE, "name": "python", "url": PYTHON_FILE, "dependencies": None}
    path.write_text(conda_lock_text(CONDA_PACKAGE, PIP_PACKAGE, python))
    lock = conda_formats.read(str(path))
    assert [pin.wheel.name for pin in lock.pins] == ["cudnn", "python"]
    cudnn, interpreter = (pin.wheel.metadata for pin in lock.pins)
    assert cudnn["depends"] == ("libgcc >=12", "x", "y") and cudnn["md5"] == "b" * 32
    assert interpreter["depends"] == () and interpreter["build"] == "0"
    assert lock.host.python.version == (3, 11) and lock.wheels is not None
    (named,) = lock.wheels.pins
    assert (named.wheel.name, named.wheel.version, named.wheel.url) == ("named", "1.0", NAMED)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hash": {"md5": "b" * 32}}, "not a conda-lock.yml of version 1: 'sha256'"),
        ({"hash": {"sha256": None}}, "package cudnn has no sha256 of its file"),
        ({"url": f"{CHANNEL}/linux-64/cudnn.conda"}, "'cudnn.conda' is not NAME-VERSION-BUILD"),
        ({"url": f"{CHANNEL}/linux-64/-x-9.1-0.conda"}, "is not the name of a conda package"),
        ({"manager": "pip"}, "package cudnn: cudnn-9.1-h1_3.conda is no wheel"),
    ],
)
def test_a_package_of_a_conda_lock_that_cannot_be_used(
    change: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "conda-lock.yml"
    path.write_text(conda_lock_text({**CONDA_PACKAGE, **change}))
    with pytest.raises(InputError) as raised:
        conda_formats.read(str(path))
    assert message in raised.value.message


OWN = {"channels": (CHANNEL,), "name": "gpu", "extras": ("a", "b")}


@pytest.mark.parametrize("form", conda_formats.FORMATS)
def test_a_conda_lock_of_gpuenv_is_read_again(form: str, tmp_path: Path) -> None:
    inputs = (*OWN.items(), ("pip", ("pylock.x.toml", "c" * 64)))
    pins = (conda_pin("cudnn", depends=("libgcc",), md5="b" * 32), conda_pin("python", "3.12"))
    lock = conda_lock(inputs=inputs).replace(pins=pins)
    path = tmp_path / conda_formats.FORMATS[form]
    text = conda_formats.dumps(lock, form)
    path.write_text(text)
    read = conda_formats.read(str(path))
    assert dict(read.inputs) == dict(inputs)
    assert (read.needs, read.host, read.frameworks) == (lock.needs, lock.host, lock.frameworks)
    assert [pin.wheel.url for pin in read.pins] == [pin.wheel.url for pin in pins]
    assert conda_formats.wheel_lock_of(read) == ("pylock.x.toml", "c" * 64)
    assert ("# Its pip packages are in pylock.x.toml beside it." in text) is (
        form == "conda-explicit"
    )
    path.write_text(text.replace("a" * 64, "d" * 64))
    with pytest.raises(TamperedError, match="its files are not those that were locked"):
        conda_formats.read(str(path))
    key = '"content' if form == "conda-explicit" else '\\"content'
    assert key in text
    path.write_text(text.replace(key, f"{key}s"))
    with pytest.raises(InputError, match="what gpuenv wrote into it is damaged: 'content'"):
        conda_formats.read(str(path))


def test_a_comment_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "spec.txt"
    path.write_text("# x\n# gpuenv: {\n@EXPLICIT\n")
    with pytest.raises(InputError, match=r"spec\.txt, line 2: Expecting"):
        conda_formats.read(str(path))
    path.write_text(f"@EXPLICIT\n{CHANNEL}/linux-64/-x-1-0.conda#{'a' * 64}\n")
    with pytest.raises(InputError, match=r"spec\.txt, line 2: package '-x' is not the name"):
        conda_formats.read(str(path))


def test_the_lock_of_the_wheels_is_the_one_that_was_written(tmp_path: Path) -> None:
    path, beside = str(tmp_path / "conda-lock.yml"), tmp_path / "pylock.conda-lock.toml"
    assert conda_formats.wheel_lock_path(path, conda_lock("python")) is None
    beside.write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()

    def lock(name: str = beside.name, sha256: str = digest) -> Lock:
        return conda_lock("python", inputs=(("pip", (name, sha256)),))

    assert conda_formats.wheel_lock_path(path, lock()) == str(beside)
    with pytest.raises(TamperedError, match=r"is not the file that .*conda-lock\.yml was locked"):
        conda_formats.wheel_lock_path(path, lock(sha256="0" * 64))
    for name in ("../pylock.conda-lock.toml", "/etc/passwd", "more/pylock.toml"):
        with pytest.raises(InputError, match="which is not a file beside it"):
            conda_formats.wheel_lock_path(path, lock(name))
    with pytest.raises(InputError, match=r"pylock\.none\.toml: cannot be read, and") as raised:
        conda_formats.wheel_lock_path(path, lock("pylock.none.toml"))
    assert "copy both" in raised.value.hint
    assert conda_formats.conda_lock_of(lock_of(inputs=(("conda-lock", "x.yml"),))) == "x.yml"
    assert conda_formats.conda_lock_of(lock_of()) is None


# ---- texts of locks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"index": ""}, ""),
        ({"url": "http://x/a-1.0-py3-none-any.whl"}, ""),
        ({"url": "file:///x/a-1.0-py3-none-any.whl"}, ""),
        ({"url": "https://x/a-1.0-py3-none-any-label.whl"}, ""),
        ({"name": "A"}, "^package 'A' is not the normalized name"),
        ({"name": 7}, "^package 7 is not the normalized name"),
        ({"version": "one"}, "^package a: 'one' is no version"),
        ({"version": None}, "^package a: None is no version"),
        ({"filename": "-r a.whl"}, "^package a: '-r a.whl' is no file name"),
        ({"filename": None}, "^package a: None is no file name"),
        ({"url": "https://x/a b"}, "^package a: 'https://x/a b' is no URL"),
        ({"url": "https://x/a%20-1.0-py3-none-any.whl"}, "its file is a-1.0-py3-none-any.whl"),
        ({"url": None}, "is no URL"),
        ({"url": "https://[x/a-1.0-py3-none-any.whl"}, "is no URL"),
        ({"url": "ftp://x/a-1.0-py3-none-any.whl"}, "has the scheme 'ftp'"),
        ({"url": "https://x/b-1.0-py3-none-any.whl"}, "its file is"),
        ({"index": "https://x/a b"}, "^package a: the index 'https://x/a b' is no URL"),
    ],
)
def test_the_texts_of_a_file_of_the_package_index(changes: dict[str, Any], says: str) -> None:
    good = {
        "name": "a",
        "version": "1.0",
        "filename": "a-1.0-py3-none-any.whl",
        "url": "https://x/a-1.0-py3-none-any.whl",
        "sha256": None,
        "index": MAIN,
    }
    made = Wheel(**{**good, **changes})
    if not says:
        grammar.check_wheel(made)
        return
    with pytest.raises(ValueError, match=says):
        grammar.check_wheel(made)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"name": "-x"}, "^package '-x' is not the name of a conda package"),
        ({"version": "1 0"}, "^package _libgcc_mutex: version '1 0' is no version of conda"),
        ({"url": "https://x/other.conda"}, "its file is"),
    ],
)
def test_the_texts_of_a_file_of_a_channel(changes: dict[str, Any], says: str) -> None:
    made = conda_pin("_libgcc_mutex", "0.1+a!b").wheel.replace(**changes)
    if not says:
        grammar.check_conda_package(made.replace(filename="x.conda", url="https://x/x.conda"))
        return
    with pytest.raises(ValueError, match=says):
        grammar.check_conda_package(made)


@pytest.mark.parametrize("sha256", ["a" * 64, "0123456789abcdef" * 4])
def test_a_sha256(sha256: str) -> None:
    assert grammar.check_sha256("x", sha256) == sha256


@pytest.mark.parametrize("sha256", [None, "", "a" * 63, "a" * 65, "A" * 64, 7, "g" * 64])
def test_no_sha256(sha256: object) -> None:
    with pytest.raises(ValueError, match="package x has no sha256"):
        grammar.check_sha256("x", sha256)


# ---- pylock.toml ---------------------------------------------------------------------------------

SDIST = Wheel(
    name="source",
    version="1.0",
    filename="source-1.0.tar.gz",
    url="https://files.example/source-1.0.tar.gz",
    sha256="b" * 64,
    size=7,
    index=MAIN,
)
VARIANTS = (
    WheelVariant(
        name="torch",
        label="cu128",
        properties=(("nvidia", "sm_arch", ("80_real", "90_real")), ("x86_64", "level", ("v3",))),
        code=Code(
            sass=("80",),
            ptx=("90",),
            some=("70",),
            made_by=(12, 8),
            source="torch.whl",
            evidence="scanned",
        ),
    ),
    WheelVariant(name="app", label="a", code=Code(sass=None, source="s", evidence="scanned")),
    WheelVariant(name="base", label="b", code=Code(sass=(), ptx=(), source="", evidence="scanned")),
    WheelVariant(name="helper", label="null"),
)


def packages_of(lock: Lock) -> dict[str, Any]:
    document = tomllib.loads(pylock.dumps(lock))
    return {package["name"]: package for package in document["packages"]}


def test_the_packages_of_a_pylock() -> None:
    identity = '{"kind":"GitHub","repository":"a/b"}'
    pins = (
        Pin(wheel=wheel("app"), dependencies=("base", "torch"), publishers=(identity,)),
        *LOCK.pins[1:],
        Pin(wheel=SDIST),
    )
    lock = LOCK.replace(pins=pins, digest="d", data="1")
    file = "app-1.0-py3-none-any.whl"
    hashes = {"sha256": "a" * 64}
    found = packages_of(lock)
    assert found["app"] == {
        "name": "app",
        "version": "1.0",
        "dependencies": [{"name": "base"}, {"name": "torch"}],
        "index": MAIN,
        "wheels": [{"name": file, "url": f"https://files.example/{file}", "hashes": hashes}],
        "attestation-identities": [{"kind": "GitHub", "repository": "a/b"}],
    }
    assert found["named"] == {
        "name": "named",
        "version": "1.0",
        "archive": {"url": NAMED, "hashes": hashes},
    }
    assert found["found"] == {
        "name": "found",
        "version": "1.0",
        "wheels": [{"name": "found-1.0-py3-none-any.whl", "url": FOUND, "hashes": hashes}],
    }
    assert found["source"]["sdist"] == {
        "name": SDIST.filename,
        "url": SDIST.url,
        "size": 7,
        "hashes": {"sha256": "b" * 64},
    }
    assert pylock.loads(pylock.dumps(lock), "x") == lock
    installed = tomllib.loads(pylock.installer_text(lock))
    assert set(installed) == {"lock-version", "created-by", "packages"}
    assert [package["name"] for package in installed["packages"]] == list(found)
    for package in installed["packages"]:
        own = found[package["name"]]
        needless = {"dependencies", "attestation-identities"}
        assert package == {key: own[key] for key in own if key not in needless}


def test_the_head_of_a_pylock() -> None:
    needs = Needs(python=(3, 12), platform="linux-aarch64", driver="570.26", cuda=(12, 8))
    lock = LOCK.replace(needs=needs, digest="d", data="1", inputs=(("gpu", "H100"),))
    document = tomllib.loads(pylock.dumps(lock))
    assert list(document)[:4] == ["lock-version", "environments", "requires-python", "created-by"]
    assert (document["lock-version"], document["created-by"]) == ("1.0", "gpuenv")
    assert document["requires-python"] == "==3.12.*"
    table = document["tool"]["gpuenv"]
    assert table["format"] == 1 and "oldest-reader" not in table
    # TOML puts tables after all strings and arrays.
    texts = ["format", "frameworks", "requirements", "data", "digest", "content", "choices"]
    assert list(table) == [*texts, "inputs", "needs", "host"]
    assert table["needs"] == {
        "driver": "570.26",
        "cuda": "12.8",
        "python": "3.12",
        "platform": "linux-aarch64",
    }
    assert table["content"] == pylock.content(document)


@pytest.mark.parametrize(
    ("platform", "system", "machine"),
    [
        ("linux-x86_64", "linux", "x86_64"),
        ("linux-aarch64", "linux", "aarch64"),
        ("win-amd64", "win32", "AMD64"),
    ],
)
def test_the_one_environment_of_a_lock(platform: str, system: str, machine: str) -> None:
    marker = pylock.environment_marker(Needs(python=(3, 11), platform=platform))
    assert marker == (
        f'implementation_name == "cpython" and platform_machine == "{machine}" and '
        f'python_version == "3.11" and sys_platform == "{system}"'
    )


def test_variants_are_written_and_read() -> None:
    lock = LOCK.replace(variants=VARIANTS, digest="d", data="1")
    text = pylock.dumps(lock)
    assert pylock.loads(text, "x") == lock
    table = tomllib.loads(text)["tool"]["gpuenv"]
    assert (table["format"], table["oldest-reader"]) == (2, "0.1.0")
    assert table["variants"] == [
        {
            "name": "torch",
            "label": "cu128",
            "properties": {
                "nvidia": {"sm_arch": ["80_real", "90_real"]},
                "x86_64": {"level": ["v3"]},
            },
            "code": {
                "sass": ["80"],
                "ptx": ["90"],
                "some": ["70"],
                "made_by": "12.8",
                "source": "torch.whl",
            },
        },
        {"name": "app", "label": "a", "properties": {}, "code": {"source": "s"}},
        {
            "name": "base",
            "label": "b",
            "properties": {},
            "code": {"sass": [], "ptx": [], "source": ""},
        },
        {"name": "helper", "label": "null", "properties": {}},
    ]


def test_the_metadata_of_variants_is_that_of_the_lock() -> None:
    """If only one of them could be edited, another wheel would be accepted."""
    properties = {"nvidia": {"sm_arch": ["80_real", "90_real"]}, "x86_64": {"level": ["v3"]}}
    document = metadata({"cu128": properties}, ["nvidia", "x86_64"])
    text = canonical_json(document)
    pin = Pin(wheel=wheel("torch").replace(filename="torch-1.0-py3-none-any-cu128.whl"))
    url = "https://files.example/torch-1.0-py3-none-any-cu128.whl"
    pins = (pin.replace(wheel=pin.wheel.replace(url=url)), Pin(wheel=wheel("zero")))
    lock = LOCK.replace(
        pins=pins, variants=VARIANTS[:1], variant_metadata=(("torch", text),), digest="d", data="1"
    )
    found = packages_of(lock)
    assert found["torch"]["variants-json"] == document and "variants-json" not in found["zero"]
    assert pylock.loads(pylock.dumps(lock), "x") == lock
    other = lock.variants[0].replace(label="cu126")
    for variants in (
        (other,),
        (other.replace(label="cu128", properties=()),),
        (lock.variants[0].replace(name="zero"),),
        (),
    ):
        edited = pylock.dumps(lock.replace(variants=variants))
        with pytest.raises(InputError, match=r"torch: variants-json differs from tool\.gpuenv\.v"):
            pylock.loads(edited, "x")
    several = pylock.dumps(lock.replace(variants=(other, *VARIANTS[1:2], *lock.variants)))
    assert len(pylock.loads(several, "x").variants) == 3


def with_packages(*packages: object, **changes: object) -> str:
    """Return the text of a lock with other packages and with the digest of its content."""
    document = tomllib.loads(pylock.dumps(LOCK.replace(digest="d", data="1")))
    document["packages"] = [*document["packages"][:1], *packages]
    document["tool"]["gpuenv"] |= changes
    document["tool"]["gpuenv"]["content"] = pylock.content(document)
    return tomli_w.dumps(document)


FILE = {
    "name": "base-1.0-py3-none-any.whl",
    "url": "https://x/base-1.0-py3-none-any.whl",
    "hashes": {"sha256": "a" * 64},
}
BASE = {"name": "base", "version": "1.0"}
SOURCE = {**FILE, "name": "base-1.0.tar.gz", "url": "https://x/base-1.0.tar.gz"}


@pytest.mark.parametrize(
    ("package", "message"),
    [
        (BASE, "Exactly one of vcs, directory, archive must be set"),
        ({**BASE, "wheels": []}, "Exactly one of vcs, directory, archive must be set"),
        ({**BASE, "directory": {"path": "x"}}, "package base has 0 files; gpuenv locks one"),
        ({"name": "base", "sdist": SOURCE}, "package base has no version"),
        ({**BASE, "wheels": [FILE, FILE]}, "package base has 2 files"),
        ({**BASE, "wheels": [FILE], "sdist": SOURCE}, "package base has 2 files"),
        ({**BASE, "wheels": [{**FILE, "hashes": {}}]}, "At least one hash must be provided"),
        ({**BASE, "wheels": [{**FILE, "hashes": {"md5": "a"}}]}, "package base has no sha256"),
        ({**BASE, "wheels": [{"hashes": FILE["hashes"]}]}, "path or url must be provided"),
        (
            {**BASE, "wheels": [{"path": FILE["name"], "hashes": FILE["hashes"]}]},
            "package base has no url of its file",
        ),
        ({**BASE, "wheels": [{**FILE, "url": 7}]}, "Unexpected type int"),
        ({**BASE, "wheels": [{**FILE, "name": "-r x"}]}, "Invalid wheel filename '-r x'"),
        ({"version": "1.0", "wheels": [FILE]}, "Missing required value"),
        (
            {**BASE, "wheels": [FILE], "dependencies": [{}]},
            "package base depends on a package without",
        ),
        ({**BASE, "wheels": 1, "variants-json": {}}, "Unexpected type int"),
        ({**BASE, "wheels": [1], "variants-json": {}}, "Unexpected type int"),
        ({**BASE, "wheels": [{"name": 1}], "variants-json": {}}, "Missing required value"),
        ({**BASE, "wheels": [FILE], "variants-json": 1}, "package base: variants-json: "),
        ({**BASE, "wheels": [FILE], "variants-json": {}}, "package base: variants-json: "),
    ],
)
def test_a_package_that_gpuenv_does_not_lock_is_refused(package: object, message: str) -> None:
    with pytest.raises(InputError, match=f"^lock.toml: (package )?.*{message}") as raised:
        pylock.loads(with_packages(package), "lock.toml")
    assert not isinstance(raised.value, TamperedError)


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ({**BASE, "wheels": [FILE]}, (FILE["name"], "")),
        ({**BASE, "wheels": [FILE], "index": MAIN}, (FILE["name"], MAIN)),
        ({**BASE, "sdist": SOURCE}, ("base-1.0.tar.gz", "")),
        ({**BASE, "archive": {**FILE, "name": ""}, "index": MAIN}, (FILE["name"], "url")),
        (
            {"name": "base", "version": "1.0+x", "wheels": [
                {**FILE, "name": "", "url": "https://x/base-1.0%2Bx-py3-none-any.whl"}]},
            ("base-1.0+x-py3-none-any.whl", ""),
        ),
    ],
)  # fmt: skip
def test_the_file_of_a_package_is_read(package: object, expected: tuple[str, str]) -> None:
    _, pin = pylock.loads(with_packages(package), "x").pins
    assert (pin.wheel.filename, pin.wheel.index) == expected


def test_a_lock_that_was_edited_or_is_of_another_tool() -> None:
    text = with_packages({**BASE, "wheels": [FILE]})
    edited = text.replace('version = "1.0"', 'version = "1.1"')
    with pytest.raises(TamperedError, match="was edited after it was locked") as raised:
        pylock.loads(edited, "x")
    assert raised.value.message.startswith("x: was edited after it was locked: is not a valid")
    assert "is not consistent with package version '1.1'" in raised.value.message
    harmless = text.replace("https://x/", "https://y/")
    with pytest.raises(TamperedError) as raised:
        pylock.loads(harmless, "x")
    assert raised.value.message == "x: was edited after it was locked"
    other = text + '\n[tool.other]\nkey = "value"\n'
    assert pylock.loads(other, "x") == pylock.loads(text, "x")
    with pytest.raises(InputError, match=r"^x: is not TOML: "):
        pylock.loads("[", "x")
    with pytest.raises(InputError, match=r"^x: is not a valid lock: "):
        pylock.loads("a = 1", "x")
    with pytest.raises(InputError, match=r"^x: is not a valid lock: "):
        pylock.loads("tool = 1", "x")
    valid = 'lock-version = "1.0"\ncreated-by = "other"\npackages = []\n'
    for table in ("", "[tool]\ngpuenv = 1\n"):
        with pytest.raises(InputError, match=r"x: has no \[tool.gpuenv\]") as missing:
            pylock.loads(valid + table, "x")
        assert "gpuenv solve" in missing.value.hint
    with pytest.raises(InputError, match=r"unknown field `color` - at `tool\.gpuenv`"):
        pylock.loads(with_packages(color="red"), "x")
    with pytest.raises(InputError, match=r"x: tool\.gpuenv\.format is 'one'"):
        pylock.loads(with_packages(format="one"), "x")


def test_a_locked_host_has_what_nodes_of_a_kind_share() -> None:
    card = CARD.replace(index=3)
    python = Python(version=(3, 12), executable="/bin/python", full_version="3.12.4")
    host = GPU_HOST.replace(
        gpus=(card, card.replace(name="part", mig=True)),
        python=python,
        sources=(("driver", "nvml"),),
        cpu=("avx",),
    )
    assert pylock.host_to_lock(host) == GPU_HOST.replace(
        gpus=(CARD, CARD.replace(name="part", mig=True)), python=python.replace(executable=None)
    )


def test_a_lock_keeps_what_its_installer_has_to_know() -> None:
    codes = ["gpu-unused", "driver-unknown", "cpu-dependency", "known-avoid"]
    warnings = tuple(Reason(code=code, subject="a", need="b", have="c") for code in codes)
    labeled = wheel("torch").replace(filename="torch-1.0-py3-none-any-cu128.whl", yanked="x")
    direct = labeled.replace(name="direct", index="url")
    plan = plan_of(labeled, direct).replace(
        warnings=warnings, variants=VARIANTS[:1], variant_metadata=(("torch", "{}"),)
    )
    lock = pylock.lock(plan)
    assert [warning.code for warning in lock.warnings] == ["gpu-unused", "cpu-dependency"]
    names = [pin.wheel.filename for pin in lock.pins]
    assert names == ["torch-1.0-py3-none-any.whl", labeled.filename]
    assert lock.variant_metadata == () and lock.variants == VARIANTS[:1]
    assert lock.pins[0].wheel.yanked is None
    described = pylock.lock(plan, variants_json=True)
    assert [pin.wheel.filename for pin in described.pins] == [labeled.filename] * 2
    assert described.variant_metadata == (("torch", "{}"),)


def test_a_lock_has_what_the_plan_says() -> None:
    request = Request(
        frameworks=("torch",), requirements=("a",), constraints=("b<2",), no_build=("a",)
    )
    choice = Choice(framework="torch", version="2.9", variant="cu128", cuda=(12, 8), cudnn="9.10")
    needs = Needs(driver="570.26", python=(3, 12))
    plan = plan_of(wheel("app")).replace(
        request=request, needs=needs, choices=(choice,), data="1", digest="d", host=GPU_HOST
    )
    locks = [pylock.lock(plan), conda_formats.lock(plan, (CHANNEL,))]
    for lock in locks:
        assert (lock.frameworks, lock.requirements) == (request.frameworks, request.requirements)
        assert (lock.needs, lock.choices, lock.data) == (needs, (choice,), "1")
        assert lock.host == pylock.host_to_lock(GPU_HOST)
    wheels, conda = locks
    assert (wheels.constraints, wheels.no_build, wheels.digest) == (("b<2",), ("a",), "d")
    assert (conda.constraints, conda.no_build, conda.digest) == ((), (), "")
    assert conda.inputs == (("channels", (CHANNEL,)),) and wheels.inputs == ()


def test_requirements_of_another_index_are_named_by_url() -> None:
    lock = LOCK.replace(digest="0123456789abcdef0123")
    first, *lines = pylock.requirements_text(lock).splitlines()
    assert first == "# gpuenv 0123456789abcdef: Python 3.12, driver >= none"
    torch = "https://files.example/torch-1.0-py3-none-any.whl"
    names = ["app==1.0", "base==1.0", "helper==1.0", f"torch @ {torch}", f"named @ {NAMED}"]
    assert lines[::2] == [f"{name} \\" for name in (*names, f"found @ {FOUND}")]
    assert set(lines[1::2]) == {f"    --hash=sha256:{'a' * 64}"}
    with_driver = lock.replace(needs=lock.needs.replace(driver="570.26"))
    assert "driver >= 570.26" in pylock.requirements_text(with_driver).splitlines()[0]
    with pytest.raises(InputError, match="cannot name the variant wheel of torch") as raised:
        pylock.requirements_text(lock.replace(variants=VARIANTS))
    assert "--format pylock" in raised.value.hint


@pytest.mark.parametrize(
    ("indexes", "most_used"),
    [
        ([], ""),
        (["", "url", ""], ""),
        (["https://b", "https://a", "https://b"], "https://b"),
        (["https://b", "https://a"], "https://a"),
        (["url", "url", "", "", "https://c"], "https://c"),
    ],
)
def test_the_index_of_most_packages_is_the_default(indexes: list[str], most_used: str) -> None:
    pins = [Pin(wheel=wheel(f"p{number}", index)) for number, index in enumerate(indexes)]
    assert pylock.most_used_index(pins) == most_used


def test_where_there_can_be_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, beside = tmp_path / "a.toml", tmp_path / "b.toml"
    pylock.write_texts({str(good): "1\n", str(beside): "2\n"})
    assert (good.read_text(), beside.read_text()) == ("1\n", "2\n")
    for path, message in (
        (tmp_path / "none" / "a.toml", "the folder .*none does not exist"),
        (tmp_path, "is a folder"),
        (good / "a.toml", "does not exist"),
    ):
        with pytest.raises(InputError, match=message) as raised:
            pylock.write_texts({str(good): "3\n", str(path): "4\n"})
        assert "-o" in raised.value.hint
        assert good.read_text() == "1\n"
    monkeypatch.chdir(tmp_path)
    pylock.write_texts({"c.toml": "5\n"})
    assert (tmp_path / "c.toml").read_text() == "5\n"


# ---- settings of tools for several GPUs ----------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ([], None),
        ([(9, 0)], (9, 0)),
        ([(8, 9), (8, 0), (8, 6)], (8, 0)),
        (
            [(8, 0), (9, 0)],
            "uv knows one compute capability, and this host has GPUs of 8.0 and 9.0",
        ),
        ([(9, 0), None], "uv needs a compute capability, and that of a GPU is not known"),
        ([None], "that of a GPU is not known"),
    ],
)
def test_the_one_compute_capability_for_a_tool(
    capabilities: list[tuple[int, int] | None], expected: object
) -> None:
    gpus = tuple(CARD.replace(compute_capability=one) for one in capabilities)
    host = HOST.replace(gpus=gpus)
    if isinstance(expected, str):
        with pytest.raises(InexpressibleError, match=expected):
            tool_settings.capability_of(host, "uv")
    else:
        assert tool_settings.capability_of(host, "uv") == expected


FORCED = {
    "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": "12.8",
    "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": "9.0",
}
DRIVER = {"UV_CUDA_DRIVER_VERSION": "570.86.10"}
PREVIEW = {"UV_PREVIEW_FEATURES": "wheel-variants"}


@pytest.mark.parametrize(
    ("host", "variants", "labels", "expected"),
    [
        (GPU_HOST, (), [], DRIVER),
        (GPU_HOST.replace(driver=None), (), [], {}),
        (HOST.replace(driver="570.86.10"), (), [], {}),
        (GPU_HOST, VARIANTS[:1], ["cu128"], {**DRIVER, **FORCED, **PREVIEW}),
        (HOST, VARIANTS[:1], ["cu128"], PREVIEW),
        (GPU_HOST, VARIANTS[:2], ["cu128", "b"], "uv would take the variant b of app, and gpuenv"),
        (GPU_HOST, VARIANTS[:1], [""], "uv would take a wheel that is no variant of torch"),
        (GPU_HOST.replace(driver_cuda=None), VARIANTS[:1], ["cu128"], "^uv needs the CUDA version"),
        (
            GPU_HOST.replace(gpus=(CARD.replace(compute_capability=None),)),
            VARIANTS[:1],
            ["cu128"],
            "^uv needs a compute capability",
        ),
    ],
)
def test_the_settings_of_uv_for_variant_wheels(
    host: Host, variants: tuple[WheelVariant, ...], labels: list[str], expected: object
) -> None:
    plan = plan_of(wheel("torch")).replace(variants=variants)
    if isinstance(expected, str):
        with pytest.raises((InexpressibleError, InputError), match=expected):
            tool_settings.settings("uv", host, plan, labels)
        return
    assert dict(tool_settings.settings("uv", host, plan, labels).variables) == expected
    if variants:
        with pytest.raises(InexpressibleError, match="pip takes no variant wheel, and torch is"):
            tool_settings.settings("pip", host, plan)
        lock = lock_of(wheel("torch"), variants=variants)
        with pytest.raises(InexpressibleError, match="pixi locks no variant wheel, and torch is"):
            tool_projects.project_tables("pixi", lock)


def test_each_tool_has_settings_or_tables_of_its_own() -> None:
    assert tool_settings.TOOLS == ("uv", "conda", "pixi", "pip")
    plan = plan_of(wheel("app"))
    made = [tool_settings.settings(tool, GPU_HOST, plan) for tool in tool_settings.TOOLS]
    assert len(set(made)) == len(made)
    assert tool_projects.TOOLS == ("uv", "pixi", "poetry", "pdm")
    for tool in tool_projects.TOOLS:
        assert tables(tool)
        with pytest.raises(InexpressibleError, match=f"^{tool} locks no variant wheel, and torch"):
            tables(tool, LOCK.replace(variants=VARIANTS))


def test_the_settings_of_uv_without_packages() -> None:
    made = tool_settings.settings("uv", GPU_HOST, None)
    assert dict(made.variables) == {**DRIVER, **FORCED}
    assert made.constraints == () and not made.constraints_variable
    assert tool_settings.settings("uv", HOST, None).variables == ()


# ---- whether a lock fits a host ------------------------------------------------------------------

FLOOR = {"driver": "570.26", "cuda": (12, 8), "compute_capabilities": ((8, 0), (9, 0))}


@pytest.mark.parametrize(
    ("needs", "host", "codes"),
    [
        ({}, HOST, []),
        ({"platform": "linux-x86_64", "python": (3, 12), "glibc": (2, 35)}, HOST, []),
        ({"platform": "linux-aarch64"}, HOST, ["platform"]),
        ({"python": (3, 11)}, HOST, ["python"]),
        ({"glibc": (2, 36)}, HOST, ["glibc"]),
        ({"glibc": (2, 34)}, HOST, []),
        ({"glibc": (2, 34)}, HOST.replace(glibc=None), ["glibc-unknown"]),
        ({"glibc": (2, 34)}, HOST.replace(os="windows", glibc=None), []),
        (FLOOR, GPU_HOST, []),
        (FLOOR, GPU_HOST.replace(driver="570.26"), []),
        (FLOOR, GPU_HOST.replace(driver="570.25"), ["driver-floor"]),
        (FLOOR, GPU_HOST.replace(driver=None, driver_cuda=None), ["driver-unknown"]),
        (FLOOR, GPU_HOST.replace(driver=None, driver_cuda=(12, 0)), []),
        (FLOOR, GPU_HOST.replace(driver=None, driver_cuda=(11, 8)), ["driver-cuda"]),
        ({**FLOOR, "cuda": None}, GPU_HOST.replace(driver=None), ["driver-unknown"]),
        (FLOOR, GPU_HOST.replace(gpus=()), ["no-gpu"]),
        (FLOOR, HOST, ["no-gpu", "driver-unknown"]),
        (FLOOR, GPU_HOST.replace(gpus=(CARD.replace(compute_capability=(7, 0)),)), ["device"]),
        (
            FLOOR,
            GPU_HOST.replace(gpus=(CARD.replace(compute_capability=None), CARD)),
            ["device-unknown"],
        ),
        ({"compute_capabilities": ((8, 0),)}, GPU_HOST, []),  # no driver is needed: a CPU lock
    ],
)
def test_the_needs_that_a_host_does_not_meet(
    needs: dict[str, Any], host: Host, codes: list[str]
) -> None:
    lock = LOCK.replace(needs=Needs(**needs))
    found = host_fit.fit(lock, host)
    assert [reason.code for reason in found] == codes
    assert all(reason.subject == "lock" and reason.need and reason.have for reason in found)


# ---- who requires whom ---------------------------------------------------------------------------

REQUIRES = {
    "app": ("base", "helper"),
    "base": ("leaf",),
    "helper": ("base", "absent"),
    "leaf": ("app",),  # a cycle
    "loose-end": ("leaf",),
    "cupy-cuda13x": ("leaf",),
}


def tree_of(**changes: Any) -> Tree:
    pins = tuple(
        Pin(wheel=wheel(name), dependencies=names) for name, names in sorted(REQUIRES.items())
    )
    return Tree(lock_of().replace(pins=pins, **changes))


def test_the_tree_of_a_lock() -> None:
    tree = tree_of(frameworks=("cupy>=13",), requirements=("App[x]>1", "; bad", "other"))
    assert tree.asked == ("cupy-cuda13x", "app")
    assert tree.roots == ("cupy-cuda13x", "app", "loose-end")
    assert tree.dependencies("helper") == ["base"]
    assert tree.dependents("leaf") == ["base", "cupy-cuda13x", "loose-end"]
    assert tree.paths_to("Leaf") == [
        ("cupy-cuda13x", "leaf"),
        ("app", "base", "leaf"),
        ("loose-end", "leaf"),
    ]
    assert tree.paths_to("loose_end") == [("loose-end",)]
    assert tree.paths_to("helper")[1] == ("app", "helper")
    for name, hint in (
        ("lea", "did you mean leaf?"),
        ("e", "did you mean base or helper or leaf?"),
        ("zzz", "gpuenv tree lists the packages"),
    ):
        with pytest.raises(InputError, match=f"{name}: is not in the lock") as raised:
            tree.paths_to(name)
        assert raised.value.hint == hint
    beside = tree_of(wheels=lock_of(wheel("beside")), frameworks=("beside",))
    assert beside.asked == ("beside",) and "beside" in beside.pins
