"""What other tools read and write, from locks made by hand: each key, each kind of file."""

import json
import tomllib

import msgspec
import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from gpuenv.errors import InputError
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
from gpuenv.model import Gpu, Host, Lock, Needs, Pin, Plan, Python, Request, Wheel, WheelVariant
from gpuenv.serialize import host_from_plain, to_plain
from tables import data_file, each, read_data

EXPORTED = data_file("exported_projects.toml")
HOST = Host(python=Python(version=(3, 12)), glibc=(2, 35))
CARD = Gpu(name="NVIDIA H100", compute_capability=(9, 0))
GPU_HOST = HOST.replace(gpus=(CARD,), driver="570.86.10", driver_cuda=(12, 8))
MAIN = "https://packages.example/simple"
PYTORCH = "https://download.pytorch.org/whl/cu128"


def wheel(name, index=MAIN, url=""):
    filename = f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
    url = url or f"https://files.example/{filename}"
    return Wheel(name=name, version="1.0", filename=filename, url=url, sha256="a" * 64, index=index)


def lock_of(*wheels, **changes):
    pins = tuple(Pin(wheel=one) for one in wheels)
    needs = Needs(python=(3, 12), platform="linux-x86_64")
    lock = Lock(pins=pins, needs=needs, choices=(), host=HOST, frameworks=("app",))
    return lock.replace(**changes)


def plan_of(*wheels):
    return Plan(request=Request(), host=HOST, pins=lock_of(*wheels).pins, needs=Needs(), choices=())


LOCK = lock_of(
    wheel("app"),
    wheel("base"),
    wheel("helper"),
    wheel("torch", PYTORCH),
    wheel("named", "url", "https://files.example/named-1.0-py3-none-any.whl"),
    wheel("found", "", "file:///links/found-1.0-py3-none-any.whl"),
)
NAMED = "https://files.example/named-1.0-py3-none-any.whl"
FOUND = "file:///links/found-1.0-py3-none-any.whl"


def tables(tool, lock=LOCK):
    return tomllib.loads(tool_projects.project_tables(tool, lock))


# ---- projects of wheels --------------------------------------------------------------------------


@each("tool", [*EXPORTED["wheels"]])
def test_the_tables_of_a_tool(tool):
    """Of packages from two indexes, from a URL and from a folder."""
    assert tables(tool) == EXPORTED["wheels"][tool]


def test_a_project_of_one_index_names_none():
    assert "source" not in tables("poetry", lock_of(wheel("app")))["tool"]["poetry"]
    assert set(tables("pdm", lock_of(wheel("app")))["tool"]["pdm"]) == {"resolution"}


def test_the_settings_of_uv_and_pip_for_a_plan():
    plan = plan_of(wheel("app"), wheel("base"), wheel("torch", PYTORCH))
    made = tool_settings.settings("uv", GPU_HOST, plan)
    assert dict(made.variables)["UV_TORCH_BACKEND"] == "cu128"
    assert made.constraints == ("app==1.0", "base==1.0", "torch==1.0")
    made = tool_settings.settings("pip", GPU_HOST, plan)
    assert dict(made.variables) == {"PIP_EXTRA_INDEX_URL": PYTORCH}


# ---- locks of conda packages ---------------------------------------------------------------------

CHANNEL = "https://conda.example/conda-forge"


def conda_pin(name, version="1.0", **record):
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


def conda_lock(*names, wheels=None, **changes):
    pins = tuple(map(conda_pin, names))
    lock = lock_of().replace(pins=pins, conda=True, wheels=wheels, host=GPU_HOST)
    return lock.replace(**changes)


BILLED = lock_of().replace(
    pins=(
        Pin(wheel=wheel("torch", PYTORCH).replace(version="2.8.0+cu128"), dependencies=("numpy",)),
        Pin(wheel=wheel("numpy").replace(url="file:///home/me/numpy.whl", sha256=None)),
    )
)


@each("lock", [LOCK, BILLED, conda_lock("python", "cudnn", wheels=BILLED)])
def test_the_bills_of_materials(lock, tmp_path):
    count = len(lock.pins) + len(lock.wheels.pins if lock.wheels else ())
    text = sbom.lock_text("cyclonedx", lock)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert text == sbom.lock_text("cyclonedx", lock) and len(bill["components"]) == count
    # A second, which only this test takes.
    from spdx_tools.spdx.parser.parse_anything import parse_file
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    path = tmp_path / "lock.spdx.json"
    path.write_text(sbom.lock_text("spdx", lock))
    assert validate_full_spdx_document(parse_file(str(path))) == []
    assert len(read_data(path)["packages"]) == count + 1
    assert "/home/me" not in text + path.read_text()


def test_a_bill_names_hashes_and_dependencies():
    bill = json.loads(sbom.lock_text("cyclonedx", BILLED))
    torch, numpy = bill["components"]
    file_name = "torch-1.0-py3-none-any.whl"
    assert torch["purl"] == f"pkg:pypi/torch@2.8.0%2Bcu128?file_name={file_name}"
    assert torch["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert "hashes" not in numpy and "externalReferences" not in numpy
    depends = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert depends[torch["purl"]] == [numpy["purl"]] and depends[numpy["purl"]] == []


@each("tool", [*EXPORTED["conda"]])
def test_the_project_files_of_conda_packages(tool):
    text = conda_projects.project_text(tool, conda_lock("python", "cudnn"))
    document = tomllib.loads(text) if tool == "pixi" else yaml.safe_load(text)
    assert document == EXPORTED["conda"][tool]


def test_a_conda_lock_has_what_the_format_asks_for():
    depends = ("cuda-version >=12", "libgcc")
    pin = conda_pin("cudnn", "9.1", depends=depends, md5="b" * 32)
    lock = conda_lock(inputs=(("channels", (CHANNEL,)),)).replace(pins=(pin, conda_pin("python")))
    document = yaml.safe_load(conda_formats.dumps(lock, "conda-lock"))
    assert [*document["metadata"].pop("content_hash")] == ["linux-64"]
    assert {*document["metadata"].pop("custom_metadata")} == {"created_by", "gpuenv"}
    assert document == EXPORTED["conda-lock"]


@each(
    "lock_plan source",
    [(pylock.lock, "index"), (lambda plan: conda_formats.lock(plan, (CHANNEL,)), "channel")],
    ids=["pylock", "conda"],
)
def test_a_file_without_a_sha256_is_not_locked(lock_plan, source):
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


def test_requirements_of_another_index_are_named_by_url():
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
        pylock.requirements_text(
            lock.replace(variants=(WheelVariant(name="torch", label="cu128"),))
        )
    assert "--format pylock" in raised.value.hint


# ---- whether a lock fits a host ------------------------------------------------------------------


@each("needs has_gpu changes codes", data_file("tables/lock_tables.json")["needs"])
def test_the_needs_that_a_host_does_not_meet(needs, has_gpu, changes, codes):
    host = host_from_plain({**to_plain(GPU_HOST if has_gpu else HOST), **changes})
    found = host_fit.fit(LOCK.replace(needs=msgspec.convert(needs, Needs)), host)
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


def tree_of(**changes):
    pins = tuple(
        Pin(wheel=wheel(name), dependencies=names) for name, names in sorted(REQUIRES.items())
    )
    return Tree(lock_of().replace(pins=pins, **changes))


def test_the_tree_of_a_lock():
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
