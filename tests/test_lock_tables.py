"""What other tools read and write, from locks made by hand: each key, each kind of file."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from gpuenv.errors import InputError, TamperedError
from gpuenv.lock import (
    conda_formats,
    conda_projects,
    host_fit,
    pylock,
    sbom,
    tool_projects,
    tool_settings,
)
from gpuenv.lock.tree import Tree
from gpuenv.model import (
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


def test_the_settings_of_uv_and_pip_for_a_plan() -> None:
    plan = plan_of(wheel("app"), wheel("base"), wheel("torch", PYTORCH))
    made = tool_settings.settings("uv", GPU_HOST, plan)
    assert dict(made.variables)["UV_TORCH_BACKEND"] == "cu128"
    assert made.constraints == ("app==1.0", "base==1.0", "torch==1.0")
    made = tool_settings.settings("pip", GPU_HOST, plan)
    assert dict(made.variables) == {"PIP_EXTRA_INDEX_URL": PYTORCH}


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


BILLED = lock_of().replace(
    pins=(
        Pin(wheel=wheel("torch", PYTORCH).replace(version="2.8.0+cu128"), dependencies=("numpy",)),
        Pin(wheel=wheel("numpy").replace(url="file:///home/me/numpy.whl", sha256=None)),
    )
)


@pytest.mark.parametrize("lock", [LOCK, BILLED, conda_lock("python", "cudnn", wheels=BILLED)])
def test_the_bills_of_materials(lock: Lock, tmp_path: Path) -> None:
    count = len(lock.pins) + len(lock.wheels.pins if lock.wheels else ())
    text = sbom.lock_text("cyclonedx", lock)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert text == sbom.lock_text("cyclonedx", lock) and len(bill["components"]) == count
    path = tmp_path / "lock.spdx.json"
    path.write_text(sbom.lock_text("spdx", lock))
    assert validate_full_spdx_document(parse_file(str(path))) == []
    assert len(json.loads(path.read_text())["packages"]) == count + 1
    assert "/home/me" not in text + path.read_text()


def test_a_bill_names_hashes_and_dependencies() -> None:
    bill = json.loads(sbom.lock_text("cyclonedx", BILLED))
    torch, numpy = bill["components"]
    file_name = "torch-1.0-py3-none-any.whl"
    assert torch["purl"] == f"pkg:pypi/torch@2.8.0%2Bcu128?file_name={file_name}"
    assert torch["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert "hashes" not in numpy and "externalReferences" not in numpy
    depends = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert depends[torch["purl"]] == [numpy["purl"]] and depends[numpy["purl"]] == []


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
    assert text.startswith("version: 1\nmetadata:\n")
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
    assert set(metadata["custom_metadata"]) == {"created_by", "gpuenv"}
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


# ---- pylock.toml ---------------------------------------------------------------------------------

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


# ---- whether a lock fits a host ------------------------------------------------------------------

FLOOR = {"driver": "570.26", "cuda": (12, 8), "compute_capabilities": ((8, 0), (9, 0))}


@pytest.mark.parametrize(
    ("needs", "host", "codes"),
    [
        ({"platform": "linux-x86_64", "python": (3, 12), "glibc": (2, 35)}, HOST, []),
        ({"platform": "linux-aarch64"}, HOST, ["platform"]),
        ({"python": (3, 11)}, HOST, ["python"]),
        ({"glibc": (2, 36)}, HOST, ["glibc"]),
        ({"glibc": (2, 34)}, HOST.replace(glibc=None), ["glibc-unknown"]),
        (FLOOR, GPU_HOST.replace(driver="570.26"), []),
        (FLOOR, GPU_HOST.replace(driver="570.25"), ["driver-floor"]),
        (FLOOR, GPU_HOST.replace(driver=None, driver_cuda=None), ["driver-unknown"]),
        (FLOOR, GPU_HOST.replace(driver=None, driver_cuda=(11, 8)), ["driver-cuda"]),
        (FLOOR, HOST, ["no-gpu", "driver-unknown"]),
        (FLOOR, GPU_HOST.replace(gpus=(CARD.replace(compute_capability=(7, 0)),)), ["device"]),
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
