"""R1 and R2 for the scanned releases of companions: vllm, xformers, bitsandbytes."""

import pytest

import gpuenv
from gpuenv.api.data import compatibility_data
from gpuenv.compat.evaluate import pin_reasons
from gpuenv.errors import NoSolutionError
from gpuenv.model import IndexOptions, Request
from hosts import host
from small_wheels import make_wheel
from tables import each

PLATFORM = "linux-x86_64"
COMPANIONS = ("bitsandbytes", "ctranslate2", "sgl-kernel", "sglang-kernel", "vllm", "xformers")


def newest(name):
    releases = compatibility_data().releases(name, PLATFORM)
    return [release.version for release in releases if not release.url][-1]


@each("name", COMPANIONS)
def test_every_row_is_scanned_and_has_code(name):
    data = compatibility_data()
    assert data.is_extension(name) and not data.covers(name)
    releases = data.releases(name, PLATFORM)
    assert releases
    for release in releases:
        if release.url:  # a build that is on no index
            continue
        assert release.code.evidence == "scanned" and release.code.sass, release.version
        assert "sha256" in release.code.source


@each("name", COMPANIONS)
def test_an_environment_is_judged_by_its_own_code(name):
    pins = [(name, newest(name))]
    served = pin_reasons(pins, host("H100", "580.65.06"), compatibility_data())
    assert [reason for reason in served if reason.subject.startswith(name)] == []
    refused = pin_reasons(pins, host("K80", "470.57.02"), compatibility_data())
    assert {"no-code-for-device"} <= {reason.code for reason in refused}


def test_no_plan_has_an_extension_without_code_for_the_device(tmp_path):
    for version in (newest("xformers"), "99.0b1"):  # nobody asks for the pre-release
        make_wheel(tmp_path, "xformers", version)
    options = IndexOptions(find_links=(str(tmp_path),), no_index=True)
    request = Request(requirements=("xformers",))
    plan = gpuenv.solve(request, host("A100", "580.65.06"), options)
    assert [*plan.versions] == ["xformers"]
    with pytest.raises(NoSolutionError) as refused:
        gpuenv.solve(request, host("V100", "580.65.06"), options, changes=False)
    (reason,) = refused.value.explanation.reasons
    assert (reason.code, reason.subject) == ("no-code-for-device", f"xformers {newest('xformers')}")


def test_an_extension_takes_torch_for_its_cuda(tmp_path):
    for name, version in (
        ("torch", "2.15.0"),
        ("torch", "2.9.1+cu126"),
        ("bitsandbytes", "0.45.5"),
    ):
        make_wheel(tmp_path, name, version)
    options = IndexOptions(find_links=(str(tmp_path),), no_index=True)
    request = Request(requirements=("torch", "bitsandbytes"))
    plan = gpuenv.solve(request, host("H100", "580.65.06"), options)
    assert plan.versions == {"torch": "2.9.1+cu126", "bitsandbytes": "0.45.5"}
    assert plan.needs.cuda == (12, 6)
