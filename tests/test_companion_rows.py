"""R1 and R2 for the scanned releases of companions: vllm, xformers, bitsandbytes."""

from pathlib import Path

import pytest

import gpuenv
from gpuenv.api.data import compatibility_data, matrix_catalog
from gpuenv.compat.evaluate import pin_reasons
from gpuenv.errors import NoSolutionError
from gpuenv.model import Host, IndexOptions, Request
from index_server import make_wheel

PLATFORM = "linux-x86_64"
COMPANIONS = ("bitsandbytes", "ctranslate2", "sgl-kernel", "sglang-kernel", "vllm", "xformers")


def host(gpu: str, driver: str = "580.65.06") -> Host:
    return gpuenv.describe(
        gpus=(gpu,), driver=driver, platform=PLATFORM, python="3.12", glibc="2.39"
    )


def newest(name: str) -> str:
    releases = compatibility_data().releases(name, PLATFORM)
    return [release.version for release in releases if not release.url][-1]


@pytest.mark.parametrize("name", COMPANIONS)
def test_every_row_is_scanned_and_has_code(name: str) -> None:
    data = compatibility_data()
    assert data.is_extension(name) and not data.covers(name)
    releases = data.releases(name, PLATFORM)
    assert releases
    for release in releases:
        if release.url:  # a build that is on no index
            continue
        assert release.code.evidence == "scanned" and release.code.sass, release.version
        assert "sha256" in release.code.source


@pytest.mark.parametrize("name", COMPANIONS)
def test_an_environment_is_judged_by_its_own_code(name: str) -> None:
    pins = [(name, newest(name))]
    served = pin_reasons(pins, host("H100"), compatibility_data())
    assert [reason for reason in served if reason.subject.startswith(name)] == []
    refused = pin_reasons(pins, host("K80", "470.57.02"), compatibility_data())
    assert {"no-code-for-device"} <= {reason.code for reason in refused}


def test_a_release_without_a_row_gives_no_reason() -> None:
    assert pin_reasons([("vllm", "0.1.0")], host("V100"), compatibility_data()) == ()


def test_a_row_stands_for_the_releases_of_its_line() -> None:
    data = compatibility_data()
    pair = data.library("vllm", "0.27.0", PLATFORM), data.library("vllm", "0.27.1", PLATFORM)
    assert pair[0] is not None and pair[1] is not None
    assert pair[0].code.sass == pair[1].code.sass and pair[0].cuda == pair[1].cuda
    assert (pair[0].code.evidence, pair[1].code.evidence) == ("documented", "scanned")
    older = data.library("xformers", "0.0.1", PLATFORM)
    assert older is not None and (older.cuda, older.cuda_majors()) == (None, ())
    assert older.code.unknown_below is not None
    codes = {
        reason.code for reason in pin_reasons([("vllm", "0.27.0")], host("H100", "550.54.14"), data)
    }
    assert "driver-floor" in codes


def test_no_plan_has_an_extension_without_code_for_the_device(tmp_path: Path) -> None:
    for version in (newest("xformers"), "99.0b1"):  # nobody asks for the pre-release
        filename, content = make_wheel("xformers", version)
        (tmp_path / filename).write_bytes(content)
    options = IndexOptions(find_links=(str(tmp_path),), no_index=True)
    request = Request(requirements=("xformers",))
    plan = gpuenv.solve(request, host("A100"), options)
    assert [pin.wheel.name for pin in plan.pins] == ["xformers"]
    with pytest.raises(NoSolutionError) as refused:
        gpuenv.solve(request, host("V100"), options, changes=False)
    (reason,) = refused.value.explanation.reasons
    assert (reason.code, reason.subject) == ("no-code-for-device", f"xformers {newest('xformers')}")


def test_bitsandbytes_needs_the_driver_of_one_of_its_libraries() -> None:
    reasons = pin_reasons(
        [("bitsandbytes", "0.50.2")], host("P100", "440.33.01"), compatibility_data()
    )
    assert "driver-floor" in {reason.code for reason in reasons}


def test_an_extension_takes_torch_for_its_cuda(tmp_path: Path) -> None:
    for name, version in (
        ("torch", "2.15.0"),
        ("torch", "2.9.1+cu126"),
        ("bitsandbytes", "0.45.5"),
    ):
        filename, content = make_wheel(name, version)
        (tmp_path / filename).write_bytes(content)
    options = IndexOptions(find_links=(str(tmp_path),), no_index=True)
    request = Request(requirements=("torch", "bitsandbytes"))
    plan = gpuenv.solve(request, host("H100"), options)
    versions = {pin.wheel.name: pin.wheel.version for pin in plan.pins}
    assert versions == {"torch": "2.9.1+cu126", "bitsandbytes": "0.45.5"}
    assert plan.needs.cuda == (12, 6)


def test_show_says_what_a_companion_was_built_for() -> None:
    release = matrix_catalog().release("vllm", newest("vllm"), PLATFORM)
    (variant,) = release.variants
    assert "links CUDA 1" in variant.code.source and "requires torch==" in variant.code.source
    assert variant.cuda is not None and variant.code.sass
