"""scripts/check_matrix.py: a consistent folder, and one damage per case of matrix_audit.json."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuenv.compat import data as matrix
from gpuenv.errors import DataError
from gpuenv.model import Wheel
from script_modules import load_script

FOLDER = Path(__file__).parent.parent / "matrix_data"
CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "matrix_audit.json").read_text()
)
SCRIPT = load_script("check_matrix")
compile_matrix = load_script("compile_matrix")
PLATFORM = "linux-x86_64"
FLINT = """name = "flint"
distribution = "flint"
import_name = "flint"
probe = "flint"
source = "made up"
[[scan]]
distributions = ["flint"]
platform = "linux-x86_64"
since = "1.0"
files = ["flint/libflint.so"]
"""
SPARK = """name = "spark"
distribution = "spark"
import_name = "spark"
probe = "spark"
source = "made up"
[[way]]
variant = "cuda12"
requires = ["spark[cuda12]"]
carriers = ["spark-cuda12"]
[[way]]
variant = "cpu"
requires = ["spark"]
"""
SCOPE = """[[scan]]
distributions = ["nvidia-cudnn-cu12", "spark-cuda12"]
platform = "linux-x86_64"
since = "2"
lines = true
"""


def file_of(name: str, version: str) -> str:
    return f"{name.replace('-', '_')}-{version}-py3-none-manylinux_2_28_x86_64.whl"


def row(
    name: str, version: str, sass: Sequence[str], ptx: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    return {
        "version": version, "platform": PLATFORM, "sass": [*sass], "ptx": [*ptx],
        "evidence": "scanned",
        "source": "made up", "file": file_of(name, version), "sha256": "ab", **more,
    }  # fmt: skip


def record(name: str, made: dict[str, Any]) -> dict[str, Any]:
    def library(path: str, sass: dict[str, int], ptx: list[list[Any]]) -> dict[str, Any]:
        return {"paths": [path], "sass": sass, "ptx": ptx, "binaries": 3}

    whole = library(
        f"{name}/lib{name}.so",
        dict.fromkeys(made["sass"], 3),
        [[one, "8.7", 3] for one in made["ptx"]],
    )
    empty = {**library(f"{name}/_c.so", {}, []), "binaries": 0}
    return {
        "name": name, "version": made["version"], "file": made["file"], "sha256": made["sha256"],
        "libraries": [whole, empty],
    }  # fmt: skip


def put(path: Path, data: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Two frameworks with complete data and the real tables. `wheels.json` replaces the index."""
    folder = tmp_path / "matrix_data"
    folder.mkdir()
    for name in ("tables.json", "drivers.toml", "toolkits.toml", "gpus.toml", "libraries.toml"):
        shutil.copy(FOLDER / name, folder / name)
    (folder / "frameworks").mkdir()
    (folder / "frameworks" / "flint.toml").write_text(FLINT)
    (folder / "frameworks" / "spark.toml").write_text(SPARK)
    tables = json.loads((folder / "tables.json").read_text())
    tables["frameworks"] = {
        path.stem: msgspec.to_builtins(compile_matrix.read_framework(path))
        for path in sorted((folder / "frameworks").iterdir())
    }
    put(folder / "tables.json", tables)
    (folder / "scans.toml").write_text(SCOPE)
    facts: dict[str, Any] = {"cuda": "12.8", "cudnn": "9.8.0.87", "made_by": "12.8"}
    build = {"local": "1.0", "variant": "cu128", "index": "default", **facts}
    flint = row("flint", "1.0", ["75", "90"], ["90"], **build)
    other = {"local": "1.0+cu128", "index": "https://flint.example/cu128", "evidence": "documented"}
    cpu = {
        **other,
        "local": "1.0+cpu",
        "variant": "cpu",
        "cuda": None,
        "cudnn": None,
        "sass": [],
        "ptx": [],
    }
    put(folder / "frameworks" / "flint.json", {
        "distribution": "flint", "companions": [], "builds": [flint, flint | other, flint | cpu],
    })  # fmt: skip
    rows = {
        "nvidia-cudnn-cu12": row("nvidia-cudnn-cu12", "9.8.0.87", ["50", "75", "90"]),
        "spark-cuda12": row(
            "spark-cuda12", "2.0", ["75", "90"], ["90"], **facts | {"cudnn": "9.8"}
        ),
    }
    for name, one in rows.items():
        put(
            folder / "libraries" / f"{name}.json",
            {"distribution": name, "cuda_major": 12, "releases": [one]},
        )
    wheels = {}
    for name, one in {"flint": flint, **rows}.items():
        put(folder / "scans" / f"{name}.json", {"distribution": name, "scans": [record(name, one)]})
        wheel = {
            "version": one["version"],
            "filename": one["file"],
            "sha256": one["sha256"],
            "index": "default",
        }
        # Out of scope: another index or platform, an older release of the line, a pre-release.
        old = {
            **wheel,
            "version": "2.0rc1" if name.startswith("spark") else "0.9",
            "filename": "old-" + one["file"],
        }
        arm = {**wheel, "version": "8.0", "filename": one["file"].replace("x86_64", "aarch64")}
        elsewhere = {**wheel, "version": "8.1", "index": "https://flint.example/cu128"}
        wheels[name] = [wheel, old, arm, elsewhere]
    put(folder / "wheels.json", wheels)
    put_conda(folder)
    return folder


def put_conda(folder: Path) -> None:
    """Write one framework of conda-forge: its rows, one of its builds, and what its recipe says."""
    targets: dict[str, Any] = {"sass": ["75", "90"], "ptx": ["90"], "source": "made up"}
    code = {"carrier": "flint", "channel": "conda-forge", "subdirs": ["linux-64"], **targets}
    put(folder / "conda" / "carriers.json", {
        "carriers": [{"framework": "flint", "package": "flint", "carrier": "flint"}],
        "distributions": [],
        "code": [{**code, "versions": ">=1.0,<1.1", "cuda": ">=12.0,<13"}],
    })  # fmt: skip
    recipe = {"package": "flint", "subdirs": ["linux-64"], **targets}
    companion = {**recipe, "package": "steel"}
    build = {"version": "1.0", "cuda": "12.8", "number": 0, "commit": "abc"}
    recipes = [{**recipe, "builds": [build]}, {**companion, "builds": [build]}]
    put(folder / "conda" / "recipes.json", {"recipes": recipes})
    record = {"name": "flint", "version": "1.0", "subdir": "linux-64", "cuda": "12.8", **targets}
    put(
        folder / "scans" / "conda" / "flint.json", {"rows": [{**record, "file": "flint-1.0.conda"}]}
    )


def audit(folder: Path) -> Any:
    wheels = json.loads((folder / "wheels.json").read_text())

    def of(name: str) -> list[Wheel]:
        return [Wheel(name=name, url="", **one) for one in wheels.get(name, ())]

    return SCRIPT.check(matrix.load(str(folder)), of)


def damage(folder: Path, case: dict[str, Any]) -> None:
    if "edit" in case:
        name, old, new = case["edit"]
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))
    for name, path, value in case["set"]:
        target = folder / (f"{name}.json" if name == "wheels" else name)
        data = json.loads(target.read_text())
        inner = data
        for key in path[:-1]:
            inner = inner[key]
        if path[-1] == "+":
            inner.append(value)
        else:
            inner[path[-1]] = value
        target.write_text(json.dumps(data))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_each_damage_is_found_and_nothing_else(case: dict[str, Any], made: Path) -> None:
    damage(made, case)
    if "error" in case["finds"]:
        with pytest.raises(DataError, match=case["finds"]["error"]):
            audit(made)
        return
    found = audit(made)
    for kind in ("contradictions", "narrowed", "unsourced", "unscanned", "unlisted"):
        texts, expected = getattr(found, kind), case["finds"].get(kind, [])
        assert [text for text in texts if not any(one in text for one in expected)] == []
        assert [one for one in expected if not any(one in text for text in texts)] == []


def test_what_is_there_is_counted(made: Path) -> None:
    found = audit(made)
    assert dict(found.counts) == {"scanned": 3, "documented": 2, "unknown": 0}
    assert dict(found.records) == {"flint": 1, "nvidia-cudnn-cu12": 1, "spark-cuda12": 1}


def test_without_the_scans_only_the_rows_are_checked(made: Path) -> None:
    shutil.rmtree(made / "scans")
    found = audit(made)
    assert (found.contradictions, found.records, found.unscanned, found.unlisted) == (
        (),
        (),
        (),
        (),
    )


@pytest.mark.parametrize(
    "expected",
    [
        ([], 0, "the data is consistent"),
        (
            [["scans/flint.json", ["scans", 0, "sha256"], "00"]],
            1,
            "flint 1.0 on linux-x86_64 has another sha256",
        ),
        (
            [["libraries/spark-cuda12.json", ["releases", 0, "source"], ""]],
            1,
            "rows without a source: 1",
        ),
    ],
)
def test_the_command_says_so_by_its_exit_status(
    made: Path,
    expected: tuple[Any, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes, status, says = expected
    damage(made, {"set": changes})
    (made / "snapshot").symlink_to(FOLDER / "snapshot")
    assert SCRIPT.main([str(made)]) == status
    assert says in capsys.readouterr().out
    assert SCRIPT.main([str(made), "--json"]) == status
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is (status == 0)
    assert set(document["counts"]) == {"scanned", "documented", "unknown"}


def test_a_damaged_record_is_named(made: Path) -> None:
    put(made / "scans" / "flint.json", {"scans": [{"version": "1.0"}]})
    with pytest.raises(DataError, match=r"flint\.json: scans is not a list of records"):
        audit(made)


@pytest.mark.parametrize("name", ["torch", "torchvision", "torchaudio"])
def test_hashes_of_lock_files_are_compared_with_the_snapshot(made: Path, name: str) -> None:
    file = f"{name}-1.0%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl"
    rows = [{"file": f"cpu/{file}", "sha256": "ab", "sources": ["first/lock", "second/lock"]}]
    put(made / "pytorch_index.json", {"wheels": rows})
    wheels = json.loads((made / "wheels.json").read_text())
    listed = {"version": "1.0+cpu", "filename": file, "sha256": "ab"}
    other = {**listed, "sha256": "00", "index": "default"}
    for sha256, found in (("ab", ()), ("cd", (f"{file} has another sha256 in the snapshot",))):
        wheels[name] = [{**listed, "sha256": sha256, "index": "https://x.example/cpu"}, other]
        put(made / "wheels.json", wheels)
        texts = audit(made).contradictions
        assert len(texts) == len(found)
        for text, part in zip(texts, found, strict=True):
            assert part in text and text.endswith("than in first/lock")
