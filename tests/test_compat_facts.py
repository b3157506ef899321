"""The compatibility data: names of GPUs and of extensions, features of CPUs, damaged files."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from gpuenv.compat import data as matrix
from gpuenv.compat import (
    evaluate,
    extensions,
    rules,
    user_rows,
    variants,
)
from gpuenv.compat.catalog import Catalog
from gpuenv.compat.rows import Builds, BuildsFile, Releases, decode
from gpuenv.errors import DataError
from gpuenv.model import (
    Code,
    Framework,
    Gpu,
    Host,
    Library,
    Python,
    Way,
)
from gpuenv.render import plans
from script_modules import load_script

compile_matrix = load_script("compile_matrix")
ROOT = Path(__file__).parents[1]
DATA = matrix.load()
PLATFORM = "linux-x86_64"


def host(*capabilities: tuple[int, int] | None, **fields: object) -> Host:
    gpus = tuple(
        Gpu(name=f"GPU {number}", compute_capability=capability)
        for number, capability in enumerate(capabilities)
    )
    return Host(python=Python(version=(3, 12)), gpus=gpus, **fields)


H100 = host((9, 0), driver="570.86.10", driver_cuda=(12, 8))


def code_of(
    sass: str | None, ptx: str | None = "", made_by: tuple[int, int] | None = None, **more: object
) -> Code:
    return Code(
        sass=None if sass is None else tuple(sass.split()),
        ptx=None if ptx is None else tuple(ptx.split()),
        made_by=made_by,
        **more,
    )


# ---- rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "driver_cuda", "made_by", "answer", "code", "have"),
    [
        ((7, 5), (13, 0), (12, 8), "unknown", "code-unknown", "unknown architectures"),
        ((8, 0), (13, 0), (12, 8), "ptx", None, None),
        ((8, 0), (12, 4), (12, 8), None, "ptx-needs-newer-driver", "a driver for CUDA 12.4"),
        ((8, 0), (13, 0), None, "unknown", "code-unknown", "compute_80"),
    ],
)
def test_an_older_release_is_unknown_only_below_the_oldest_target(  # noqa: PLR0917  a case
    capability: tuple[int, int],
    driver_cuda: tuple[int, int],
    made_by: tuple[int, int] | None,
    answer: str | None,
    code: str | None,
    have: str | None,
) -> None:
    older = code_of("", "80", made_by, unknown_below=(8, 0))
    assert rules.serves(older, capability, driver_cuda) == answer
    found = rules.device_reasons("x", older, host(capability, driver_cuda=driver_cuda))
    assert [(reason.code, reason.have) for reason in found] == [(code, have)] * (code is not None)


# ---- releases that are known to be bad -----------------------------------------------------------


# ---- one release on a host -----------------------------------------------------------------------


def library(**fields: object) -> Library:
    base = {
        "name": "lib",
        "version": "1.0",
        "platform": PLATFORM,
        "cuda_major": 12,
        "code": code_of("90"),
    }
    return Library(**{**base, **fields})


def test_of_libraries_for_several_cudas_one_must_run() -> None:
    choices = (((12, 4), code_of("80")), ((12, 8), code_of("70")), ((13, 0), code_of("75")))
    made = library(by_cuda=choices, cuda_major=0)
    every = evaluate.library_reasons("x", made, H100, DATA)
    (reason,) = every["__sm"]
    assert "sm_75" in reason.have  # that of the newest CUDA
    one = library(by_cuda=(((12, 4), code_of("90")), ((13, 0), code_of("75"))), cuda_major=0)
    assert not any(evaluate.library_reasons("x", one, H100, DATA).values())


# ---- variant wheels ------------------------------------------------------------------------------


CPUS = json.loads((Path(__file__).parent / "data" / "cpu_features.json").read_text())
# Names of Linux (cpufeatures.h) that the CPU families of archspec do not have.
ONLY_LINUX = {"cppc", "ibrs_enhanced"}


@pytest.mark.parametrize("namespace", ["x86_64", "aarch64"])
def test_the_features_of_variants_are_names_of_cpu_features(namespace: str) -> None:
    first, *names = variants.FEATURES[namespace]
    cpu = host().replace(machine=namespace, cpu=(*CPUS[namespace], *ONLY_LINUX))
    assert first == {"x86_64": "level", "aarch64": "version"}[namespace]
    without = [
        name
        for name in names
        if variants.suitable_values(namespace, name, ["on", "off"], cpu) != ("on",)
    ]
    assert without == [] and {*names} <= variants.CPU_FEATURES


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_a_cpu_of_a_level_has_its_features(level: str) -> None:
    """The lists of archspec leave out SSE3, which the psABI has in v2."""
    features = {*CPUS["levels"][level], "sse3"}
    names = sorted(CPUS["levels"])
    reached = tuple(reversed(["v1", *names[: names.index(level) + 1]]))
    cpu = host().replace(machine="x86_64", cpu=tuple(sorted(features)))
    found = variants.suitable_values("x86_64", "level", ["v1", "v2", "v3", "v4", "v5"], cpu)
    assert found == reached
    for name in features - {"mmx", "sse", "sse2"}:
        less = cpu.replace(cpu=tuple(features - {name}))
        assert len(variants.suitable_values("x86_64", "level", reached, less)) < len(reached)


# ---- GPUs and drivers ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["H100 New", "H100 40D", "H100 GDDR", "H100X5", "H100 SXMX"])
def test_another_word_is_another_gpu(name: str) -> None:
    assert DATA.compute_capability(name) is None


def small_data(folder: Path, **changes: object) -> matrix.CompatibilityData:
    tables = json.loads((ROOT / "matrix_data" / "tables.json").read_text())
    (folder / "tables.json").write_text(json.dumps({**tables, "frameworks": {}, **changes}))
    return matrix.load(str(folder))


def test_two_gpus_that_share_a_name_are_told_apart(tmp_path: Path) -> None:
    gpus = {"rtxa1": [8, 6], "rtxa1ada": [8, 9], "rtxb": [8, 6], "rtxbmobile": [8, 6]}
    names = ["RTX A1", "RTX A1 Ada", "RTX B", "RTX B Two"]
    made = small_data(tmp_path, gpus={**gpus, "rtxbtwo": [8, 6]}, gpu_names=names)
    assert made.close_names("RTX A1") == ["RTX A1 (sm_86)", "RTX A1 Ada (sm_89)"]
    assert made.close_names("rtxb") == ["RTX B"]


# ---- files of the data ---------------------------------------------------------------------------

# schema, date of the data, whether it is used, the message
SKEWS = [
    (matrix.SCHEMA, DATA.version.partition(".")[0], False, ""),
    (matrix.SCHEMA, "2099-01-02", True, ""),
    (matrix.SCHEMA, "2020-01-02", False, ""),
    (matrix.SCHEMA + 1, "2099-01-02", False, "needs a newer gpuenv"),
    (matrix.SCHEMA - 1, "2099-01-02", False, "is for an older gpuenv"),
]


def test_an_installed_gpuenv_has_its_data_in_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "__file__", str(tmp_path / "lib" / "gpuenv" / "compat" / "data.py"))
    assert matrix.data_folder() == str(tmp_path / "matrix_data")  # a checkout
    installed = tmp_path / "lib" / "gpuenv" / "matrix_data"
    installed.mkdir(parents=True)
    assert matrix.data_folder() == str(installed)


@pytest.mark.parametrize("skew", SKEWS)
def test_newer_data_of_the_same_schema_is_used(
    skew: tuple[int, str, bool, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, day, used, said = skew
    folder = tmp_path / "gpuenv_matrix"
    folder.mkdir()
    version = day.replace("-", ".")
    (folder / "__init__.py").write_text(f'__version__ = "{version}"\nSCHEMA = {schema}\n')
    tables = (ROOT / "matrix_data" / "tables.json").read_text()
    (folder / "tables.json").write_text(re.sub(r"\d{4}-\d\d-\d\d", day, tables, count=1))
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        chosen, lines = matrix.data_folder(), plans.package_lines(matrix.unread_package())
    finally:
        sys.modules.pop("gpuenv_matrix", None)
    assert chosen == (str(folder) if used else str(ROOT / "matrix_data"))
    assert len(lines) == (1 if said else 0)
    assert said in "".join(lines)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": 2, "date": "", "rows": {}}', "has format 2, this gpuenv reads 1"),
        ('{"format": 1, "date": ""}', "cannot be read: Object missing required field `rows`"),
        ("{", "cannot be read"),
    ],
)
def test_damage_in_the_rows_of_the_user(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(content)
    with pytest.raises(DataError, match=re.escape(f"{path} {message}")) as raised:
        user_rows.read_user_rows(str(path))
    assert "gpuenv matrix update" in raised.value.hint


FRAMEWORK = {
    "name": "x",
    "distribution": "x",
    "import_name": "x",
    "probe": "x",
    "source": "s",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probe": 7}, "Expected `str`, got `int` - at `$.probe`"),
        ({"distribution": None}, "missing required field `distribution`"),
        ({"way": []}, "it has no way"),
        ({"way": [{"variant": "a", "requires": [], "carriers": []}]}, "one that requires nothing"),
    ],
)
def test_damage_in_the_description_of_a_framework(
    changes: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    content = {key: value for key, value in {**FRAMEWORK, **changes}.items() if value is not None}
    (tmp_path / "x.toml").write_text(tomli_w.dumps(content))
    with pytest.raises(DataError, match=re.escape(message)) as raised:
        compile_matrix.read_framework(tmp_path / "x.toml")
    assert "x.toml cannot be read: " in str(raised.value)


def releases(folder: Path, *rows: Mapping[str, Any], **content: object) -> Releases:
    base = {"version": "1.0", "platform": PLATFORM, "sass": ["90"], "ptx": []}
    made = [{**base, "evidence": "documented", "source": "s", **row} for row in rows]
    path = folder / "lib.json"
    path.write_text(json.dumps({"cuda_major": 12, "releases": made, **content}))
    return Releases(str(path), "lib")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"sass": "90"}, "Expected `array | null`, got `str` - at `$.releases[0].sass`"),
        ({"cuda": "twelve"}, "at `$.releases[0].cuda`"),
        ({"evidence": "guessed"}, "Invalid enum value 'guessed'"),
    ],
)
def test_damage_in_a_release(row: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        releases(tmp_path, row).find("1.0", PLATFORM)


def builds(folder: Path, text: str) -> Builds:
    (folder / "x.json").write_text(text)
    way = Way(variant="*", requires=("x",), carriers=("x",))
    made = Framework(**FRAMEWORK, companions=(), indexes=(), packages=(), ways=(way,))
    return Builds(made, decode(str(folder / "x.json"), BuildsFile))


BUILD = {
    "local": "1.0+cu128",
    "platform": PLATFORM,
    "version": "1.0",
    "variant": "cu128",
    "index": "default",
    "cuda": "12.8",
    "sass": ["90"],
    "ptx": [],
    "evidence": "documented",
    "source": "s",
}


def file_of(*rows: Mapping[str, Any], **content: object) -> str:
    return json.dumps({"companions": [], **content, "builds": rows})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (file_of(BUILD, companions=7), "at `$.companions`"),
        (file_of(BUILD).replace('"cuda": "12.8"', '"cuda": twelve'), "cannot be read"),
    ],
)
def test_damage_in_a_file_of_builds(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        builds(tmp_path, text)


# ---- names ---------------------------------------------------------------------------------------


def test_a_companion_has_the_code_that_was_read_from_its_own_file() -> None:
    """A build of the default index is that file, even if another index has the build, too."""
    entry = Catalog(DATA, lambda name: ()).entry("torchaudio", PLATFORM)
    found = 0
    for release in entry.releases:
        default = [one for one in release.variants if one.indexes[0] == "default"]
        for variant in default:
            own = DATA.library("torchaudio", variant.version, PLATFORM)
            if own is not None and len(variant.indexes) > 1:
                found += 1
                assert variant.code == own.code
        assert len({one.version for one in default}) == len(default)
    assert found


# ---- conda records -------------------------------------------------------------------------------


# ---- what variants and extensions name -----------------------------------------------------------


@pytest.mark.parametrize(
    ("feature", "values", "device", "suitable"),
    [
        ("sm_arch", "80_real 90_virtual 90_real 100_real", H100, "90_real 90_virtual"),
        ("sm_arch", "80_virtual 75_virtual", H100, "80_virtual 75_virtual"),
        ("sm_arch", "80_real 90_real", host((8, 0), (9, 0)), "90_real 80_real"),
        ("sm_arch", "80_real 90", host(None), "80_real"),
        ("sm_arch", "80_real", host(), ""),
        ("cuda_version_lower_bound", "12.4 12.8 13.0 x", H100, "12.8 12.4"),
        ("cuda_version_upper_bound", "12.4 12.8 13.0", H100, "13.0"),
        ("cuda_version_lower_bound", "12.4 13.0", host((9, 0)), "13.0 12.4"),
        ("color", "12.4", H100, ""),
    ],
)
def test_the_values_that_suit_a_gpu(feature: str, values: str, device: Host, suitable: str) -> None:
    found = variants.suitable_values("nvidia", feature, values.split(), device)
    assert found == tuple(suitable.split())


@pytest.mark.parametrize(
    ("version", "names_cuda", "expected"),
    [
        ("2.8.3+cu12torch2.8cxx11abiTRUE", True, ("2.8", 12, True)),
        ("2.8.3+cu12torch2.8cxx11abiFALSE", False, ("2.8", 12, False)),
        ("2.1.2+pt28cu128", False, ("2.8", 12, None)),
        ("2.1.2+pt210cu130", False, ("2.10", 13, None)),
        ("0.21.0+torch280cu128", False, ("2.8", 12, None)),
        ("0.21.0+torch2100cu128", False, ("2.10", 12, None)),
        ("0.21.0+torch2.10.0", False, ("2.10", None, None)),
        ("1.0+cu128", True, ("", 12, None)),
        ("1.0+cu128", False, None),
        ("1.0+pt2", False, None),
        ("1.0+local", True, None),
        ("1.0", True, None),
    ],
)
def test_what_the_name_of_an_extension_says(
    version: str, names_cuda: bool, expected: tuple[str, int | None, bool | None] | None
) -> None:
    found = extensions.of_version(version, names_cuda=names_cuda)
    fields = found and (found.release, found.cuda_major, found.cxx11_abi)
    assert fields == expected


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        ("py312_torch_2.4.0_cu121", ("2.4", 12, None)),
        ("py310_cu121_pyt241", ("2.4", 12, None)),
        ("py310_pytorch_2.10_cuda130", ("2.10", 13, None)),
        ("cuda128_py312_h1_0", None),
        ("script_0", None),
    ],
)
def test_what_the_build_of_an_extension_says(build: str, expected: object) -> None:
    found = extensions.of_build_string(build)
    assert (found and (found.release, found.cuda_major, found.cxx11_abi)) == expected
