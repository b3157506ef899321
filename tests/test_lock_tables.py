"""What other tools read and write, from locks made by hand: each key, each kind of file."""

import sys
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from gpuenv.errors import InexpressibleError, InputError
from gpuenv.lock import (
    conda_foreign,
    conda_formats,
    conda_projects,
    grammar,
    pylock,
    tool_projects,
    tool_settings,
)
from gpuenv.model import Gpu, Host, Lock, Needs, Pin, Plan, Python, Request, Wheel

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
    document = yaml.safe_load(conda_formats.dumps(lock, "conda-lock"))
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
    """An installer could not tell whether the file is the one that was locked."""
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
    ("url", "filename"),
    [
        (f"{NAMED}#sha256=ab", "named-1.0-py3-none-any.whl"),
        ("https://x/named-1.0%2Bcpu-py3-none-any.whl", "named-1.0+cpu-py3-none-any.whl"),
    ],
)
def test_the_file_name_of_a_wheel_is_read_from_its_url(url: str, filename: str) -> None:
    assert conda_foreign.wheel("Named", "1.0", url, "a" * 64).filename == filename


# ---- texts of locks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"index": ""}, ""),
        ({"url": "http://x/a-1.0-py3-none-any.whl"}, ""),
        ({"url": "file:///x/a-1.0-py3-none-any.whl"}, ""),
        ({"url": "https://x/a-1.0-py3-none-any-label.whl"}, ""),
        ({"name": "A"}, "is not the normalized name"),
        ({"name": 7}, "is not the normalized name"),
        ({"version": "one"}, "is no version"),
        ({"filename": "-r a.whl"}, "is no file name"),
        ({"url": "https://x/a b"}, "is no URL"),
        ({"url": None}, "is no URL"),
        ({"url": "https://[x/a-1.0-py3-none-any.whl"}, "is no URL"),
        ({"url": "ftp://x/a-1.0-py3-none-any.whl"}, "has the scheme 'ftp'"),
        ({"url": "https://x/b-1.0-py3-none-any.whl"}, "its file is"),
        ({"index": "https://x/a b"}, "the index"),
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
        ({"name": "-x"}, "is not the name of a conda package"),
        ({"version": "1 0"}, "is no version of conda"),
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
