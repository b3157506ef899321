"""The compatibility data and the rules, on small values made by hand: each branch and boundary."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli_w

import gpuenv
from gpuenv.compat import (
    conda_parts,
    conda_records,
    evaluate,
    extensions,
    rules,
    user_rows,
    variants,
)
from gpuenv.compat import data as matrix
from gpuenv.compat.architectures import (
    common_code,
    driver_branch,
    parse_target,
    ptx_runs,
    reaches_floor,
    sass_runs,
    show_code,
)
from gpuenv.compat.catalog import Catalog, pick, platform_of
from gpuenv.compat.data import within
from gpuenv.compat.extensions import BuiltFor
from gpuenv.compat.parts import CudaLibrary, Package, Parts, known_builds, parts_of_pins
from gpuenv.compat.rows import Builds, Releases, decode, read_framework, read_toml
from gpuenv.errors import DataError
from gpuenv.model import (
    Code,
    Framework,
    Gpu,
    Host,
    Library,
    Needs,
    Python,
    Way,
    WheelVariant,
)
from gpuenv.render import plans

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


# ---- targets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "parsed"),
    [
        ("86", ((8, 6), "")),
        ("90a", ((9, 0), "a")),
        ("100f", ((10, 0), "f")),
        ("101", ((11, 0), "")),
        ("101a", ((11, 0), "a")),
        ("121", ((12, 1), "")),
        ("9", None),
        ("1000", None),
        ("90b", None),
        ("a", None),
        ("", None),
    ],
)
def test_a_target(target: str, parsed: object) -> None:
    if parsed is None:
        with pytest.raises(ValueError, match="is not a target"):
            parse_target(target)
    else:
        assert parse_target(target) == parsed


@pytest.mark.parametrize(
    ("target", "capability", "sass", "ptx"),
    [
        ("80", (8, 0), True, True),
        ("80", (8, 6), True, True),
        ("86", (8, 0), False, False),
        ("80", (9, 0), False, True),
        ("90", (8, 9), False, False),
        ("90a", (9, 0), True, True),
        ("100a", (10, 3), False, False),
        ("100f", (10, 0), True, True),
        ("100f", (10, 3), True, True),
        ("103f", (10, 0), False, False),
        ("100f", (12, 0), False, False),
        ("101", (11, 0), True, True),
        ("110", (10, 1), True, True),
        ("101a", (10, 1), True, True),
        # Jetsons run the code for their own capability only.
        ("80", (8, 7), False, True),
        ("87", (8, 7), True, True),
        ("87", (8, 9), False, True),
        ("53", (5, 3), True, True),
        ("52", (5, 3), False, True),
        ("60", (6, 2), False, True),
        ("70", (7, 2), False, True),
        ("72", (7, 5), False, True),
    ],
)
def test_the_devices_of_a_target(
    target: str, capability: tuple[int, int], sass: bool, ptx: bool
) -> None:
    assert sass_runs(target, capability) is sass
    assert ptx_runs(target, capability) is ptx


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (code_of("80 90", "90"), "sm_80 sm_90 compute_90"),
        (code_of("", ""), "none"),
        (code_of("80", None), "sm_80, PTX unknown"),
        (code_of("", None), "none, PTX unknown"),
        (code_of(None, "90"), "unknown architectures"),
    ],
)
def test_code_is_shown(code: Code, text: str) -> None:
    assert show_code(code) == text


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        ("80 90", "90", "90"),
        ("90", "90a", "90a"),
        ("100f", "100", "100f"),
        ("100f", "100a", "100a"),
        ("80", "90f", "90f"),
        ("90a", "90f", "90a"),
        ("80", None, None),
        ("", "80", ""),
    ],
)
def test_the_ptx_that_two_libraries_have_in_common(
    first: str, second: str | None, common: str | None
) -> None:
    for codes in ([first, second], [second, first]):
        made = common_code([code_of("", ptx) for ptx in codes], [])
        assert made.ptx == (None if common is None else tuple(common.split()))


@pytest.mark.parametrize(
    ("codes", "made_by"),
    [
        ([("90", (12, 8)), ("80", (12, 4))], (12, 8)),
        ([("90", (12, 4)), ("80", (12, 8))], (12, 8)),
        ([("90", (12, 8)), ("", None)], (12, 8)),
        ([("", None), ("90", (12, 8))], (12, 8)),
        ([("90", (12, 8)), ("80", None)], None),
        ([("", (13, 0)), ("90", (12, 8))], (12, 8)),
        ([("", None), ("", None)], None),
    ],
)
def test_the_newest_toolkit_that_made_ptx(
    codes: Sequence[tuple[str, tuple[int, int] | None]], made_by: tuple[int, int] | None
) -> None:
    assert common_code([code_of("", ptx, cuda) for ptx, cuda in codes], []).made_by == made_by


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        ("80 90", "80 86", "80"),
        ("80 90", "86 90", "86 90"),
        ("80", "86", "86"),
        ("90", "90a", "90"),
        ("80", "90", ""),
        ("80", "", ""),
        ("70 80", "80 90", "80"),
        ("80", None, None),
    ],
)
def test_the_sass_that_two_libraries_have_in_common(
    first: str, second: str | None, common: str | None
) -> None:
    devices = [(7, 0), (8, 0), (8, 6), (9, 0)]
    for codes in ([first, second], [second, first]):
        made = common_code([code_of(sass) for sass in codes], devices)
        assert made.sass == (None if common is None else tuple(common.split()))


@pytest.mark.parametrize(
    ("release", "branch"),
    [("418.39", 418), ("449.9", 449), ("450.1", 450), ("454.99", 450), ("580.65.06", 580)],
)
def test_the_branch_of_a_driver(release: str, branch: int) -> None:
    assert driver_branch(release) == branch


def test_the_evidence_of_common_code_is_that_of_the_weakest() -> None:
    scanned = code_of("80", evidence="scanned", source="a")
    documented = code_of("80", evidence="documented", source="b")
    assert common_code([scanned, scanned.replace(source="")], []).evidence == "scanned"
    both = common_code([scanned, documented, scanned], [])
    assert (both.evidence, both.source) == ("documented", "a; b")
    assert common_code([scanned], []) is scanned
    nothing = common_code([], [(9, 0)])
    assert (nothing.sass, nothing.ptx, nothing.evidence) == ((), (), "documented")


@pytest.mark.parametrize(
    ("driver_cuda", "cuda", "reached"),
    [
        ((12, 6), (12, 8), True),
        ((12, 6), (13, 0), False),
        ((13, 0), (12, 6), True),
        (None, (13, 0), True),
        ((12, 6), None, True),
    ],
)
@pytest.mark.parametrize("jetson", [(5, 3), (6, 2), (7, 2), (8, 7), (11, 0)])
def test_of_the_driver_of_a_jetson_only_the_cuda_counts(
    jetson: tuple[int, int],
    driver_cuda: tuple[int, int] | None,
    cuda: tuple[int, int] | None,
    reached: bool,
) -> None:
    device = host(jetson, driver="540.4.0", driver_cuda=driver_cuda)
    assert reaches_floor(device, "999.0", cuda) is reached
    assert reaches_floor(device.replace(gpus=(H100.gpus[0], *device.gpus)), "999", cuda) is reached


def test_the_driver_of_other_gpus_reaches_the_floor_by_its_release() -> None:
    assert reaches_floor(H100, "570.86.10", None)
    assert not reaches_floor(H100, "570.86.11", None)
    assert not reaches_floor(H100.replace(driver=None), "1.0", (12, 8))


# ---- rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sass", "capability", "answer"),
    [
        ("80 90", (8, 0), "sass"),
        ("80 90", (7, 0), None),
        ("80 90", (8, 9), "sass"),
        ("80 120", (10, 0), "unknown"),
        ("100 120", (11, 0), "unknown"),
        ("86", (8, 7), "unknown"),
        ("", (8, 0), None),
    ],
)
def test_unknown_ptx_serves_devices_since_the_oldest_sass(
    sass: str, capability: tuple[int, int], answer: str | None
) -> None:
    assert rules.serves(code_of(sass, None), capability, (13, 0)) == answer


def test_unknown_ptx_begins_at_the_oldest_sass() -> None:
    """A target of one device alone is not its SASS, but code of that age."""
    assert rules.serves(code_of("87", None), (8, 9), (13, 0)) == "unknown"
    assert rules.serves(code_of("101a", None), (11, 0), (13, 0)) == "sass"
    assert rules.serves(code_of("103a", None), (10, 0), (13, 0)) is None


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
    found = rules.device_reasons("x", older, host(capability).gpus, driver_cuda)
    assert [(reason.code, reason.have) for reason in found] == [(code, have)] * (code is not None)


def test_one_jetson_among_the_gpus_needs_its_wheels() -> None:
    assert rules.needs_jetson_wheels(host((9, 0), (8, 7)).gpus)
    assert not rules.needs_jetson_wheels(host((9, 0), (11, 0), None).gpus)
    reason = rules.cpu_build_reason("x", code_of(""), host((9, 0), (8, 7)).gpus)
    assert "JetPack" in reason.need
    assert "JetPack" not in rules.cpu_build_reason("x", code_of(""), H100.gpus).need


def test_each_gpu_is_compared_with_the_branches() -> None:
    """A GPU that no branch dropped does not hide the others."""
    last, first = (
        {(7, 0): (580, "a"), (6, 1): (580, "b")},
        {(12, 0): (570, "c"), (9, 0): (450, "d")},
    )
    many = host((9, 0), None, (7, 0), (8, 0), (6, 1), driver="595.10")
    found = rules.branch_reasons(many, last, 600)
    assert [(reason.code, reason.subject, reason.source) for reason in found] == [
        ("gpu-dropped-by-driver", "GPU 2", "a"),
        ("gpu-dropped-by-driver", "GPU 4", "b"),
    ]
    assert rules.branch_reasons(many.replace(driver="580.10"), last, 600) == ()
    mixed = host((7, 0), (8, 0), (6, 1), driver="581.10")
    assert len(rules.branch_reasons(mixed, {**last, (7, 0): (585, "a")}, 600)) == 0
    mixed = mixed.replace(driver="590.10")
    found = rules.branch_reasons(mixed, {(7, 0): (595, "a"), (6, 1): (580, "b")}, 600)
    assert [reason.subject for reason in found] == ["GPU 2"]
    late = rules.branch_reasons(host((8, 0), driver="605.1"), last, 600)
    assert [reason.code for reason in late] == ["driver-branch-unknown"]
    assert rules.branch_reasons(host((8, 0), driver="600.1"), last, 600) == ()
    assert rules.branch_reasons(host(driver="605.1"), last, 600) == ()
    many = host((8, 0), None, (9, 0), (12, 0), driver="560.1")
    found = rules.first_branch_reasons(many, first)
    assert [(reason.subject, reason.source) for reason in found] == [("GPU 3", "c")]
    assert rules.first_branch_reasons(many.replace(driver="570.1"), first) == ()
    assert rules.first_branch_reasons(many.replace(driver=None), first) == ()


@pytest.mark.parametrize(
    ("driver", "driver_cuda", "floor", "codes"),
    [
        ("570.86.10", (12, 8), ("570.26", "s"), []),
        ("560.28.03", (12, 6), ("570.26", "s"), [("driver-floor", "s")]),
        (None, (11, 8), ("570.26", "s"), [("driver-cuda", "s")]),
        (None, (11, 8), None, [("driver-cuda", "")]),
        (None, (12, 0), ("570.26", "s"), []),
        (None, None, ("570.26", "s"), []),
        ("560.28.03", (11, 8), None, [("driver-cuda", "")]),
        ("560.28.03", (12, 6), None, [("driver-floor-unknown", "")]),
        ("560.28.03", (12, 8), None, []),
        ("560.28.03", None, None, [("driver-floor-unknown", "")]),
    ],
)
def test_a_toolkit_and_a_driver(
    driver: str | None,
    driver_cuda: tuple[int, int] | None,
    floor: tuple[str, str] | None,
    codes: list[tuple[str, str]],
) -> None:
    device = host((9, 0), driver=driver, driver_cuda=driver_cuda)
    found = rules.driver_reasons("x", (12, 8), device, floor)
    assert [(reason.code, reason.source) for reason in found] == codes


@pytest.mark.parametrize(
    ("cuda", "codes"),
    [
        ((12, 3), ["driver-cuda"]),
        ((12, 4), []),
        ((12, 8), []),
        ((13, 0), ["driver-cuda"]),
        ((13, 2), ["driver-cuda"]),
        (None, ["driver-cuda-unknown", "driver-cuda-unknown"]),
    ],
)
def test_the_bounds_of_a_variant(cuda: tuple[int, int] | None, codes: list[str]) -> None:
    bounds = ((12, 6), (12, 4)), ((12, 9), (13, 0))
    found = rules.cuda_bound_reasons("x", *bounds, cuda)
    assert [reason.code for reason in found] == codes
    assert rules.cuda_bound_reasons("x", None, None, cuda) == ()


@pytest.mark.parametrize(
    ("actual", "codes", "says"),
    [
        ({"release": "2.8", "cuda_major": 12, "cxx11_abi": True}, [], ""),
        ({"release": "2.7", "cuda_major": 12}, ["extension-release"], ""),
        ({"release": "2.8", "cuda_major": 13}, ["extension-cuda"], "for CUDA 13"),
        ({"release": "2.8", "cuda_major": 0}, ["extension-cuda"], "a CPU build"),
        ({"release": "2.8", "cuda_major": 12, "cxx11_abi": False}, ["extension-abi"], ""),
        ({"release": "2.8"}, [], ""),
    ],
)
def test_an_extension_and_its_torch(actual: Mapping[str, Any], codes: list[str], says: str) -> None:
    built_for = BuiltFor(release="2.8", cuda_major=12, cxx11_abi=True)
    found = rules.extension_reasons("x", built_for, "torch 2", BuiltFor(**actual))
    assert [reason.code for reason in found] == codes
    assert all(says in reason.have and reason.have.startswith("torch 2") for reason in found)
    assert rules.extension_reasons("x", BuiltFor(), "torch 2", BuiltFor(**actual)) == ()


# ---- releases that are known to be bad -----------------------------------------------------------


@pytest.mark.parametrize(
    ("severities", "worst"),
    [
        (["avoid", "broken"], "broken 1"),
        (["broken", "avoid"], "broken 0"),
        (["avoid", "avoid"], "avoid 0"),
        (["broken", "broken"], "broken 0"),
    ],
)
def test_the_worst_verdict_counts(severities: list[str], worst: str, tmp_path: Path) -> None:
    rows = [
        (["lib"], ">=1.0", severity, f"{severity} {number}", "s", [])
        for number, severity in enumerate(severities)
    ]
    made = small_data(tmp_path, bad=rows)
    verdict = made.bad("lib", "1.0")
    assert verdict is not None and verdict[1] == worst
    assert made.bad("lib", "0.9") is None
    assert made.bad("other", "1.0") is None


def test_a_verdict_on_some_devices_counts_on_these(tmp_path: Path) -> None:
    on_some = (["lib"], "1.0", "broken", "x", "s", [(9, 0), (8, 0)])
    everywhere = (["lib"], "1.0", "avoid", "y", "s", [])
    made = small_data(tmp_path, bad=[on_some, everywhere])
    assert made.bad("lib", "1.0", [(9, 0)]) == ("broken", "x", "s")
    assert made.bad("lib", "1.0", [(8, 0), (7, 0)]) == ("broken", "x", "s")
    assert made.bad("lib", "1.0", [(7, 0)]) == made.bad("lib", "1.0") == ("avoid", "y", "s")


def test_the_sides_of_a_bad_pair(tmp_path: Path) -> None:
    pair = ("p", (["a1", "a2"], "1.0"), (["b1"], "<2"), True, "broken", "t", "s")
    made = small_data(tmp_path, bad_pairs=[pair])
    assert made.bad_pairs("a2", "1.0") == [("p", "a", True, "t", "s", "broken")]
    assert made.bad_pairs("b1", "1.9") == [("p", "b", True, "t", "s", "broken")]
    assert made.bad_pairs("b1", "2.0") == made.bad_pairs("c", "1.0") == []


@pytest.mark.parametrize(
    ("version", "versions", "inside"),
    [
        ("9.10.0.56", "9.10.0.*", True),
        ("9.10.0", "9.10.0.*", True),
        ("9.10.01", "9.10.0.*", False),
        ("1.0", "1.0", True),
        ("1.0.0", "1.0", True),
        ("1.0.0", "==1.0", True),
        ("1.0", "<=1.0", True),
        ("1.0", "<1.0", False),
        ("1.0", ">1.0", False),
        ("1.0.1", ">1.0,<1.1", True),
        ("1.1", ">=1.0,<1.1", False),
        ("1.0rc1", ">=1.0", True),
        ("1.0.0.0", ">=1.0,<=1.0", True),
        ("0", "==0.0", True),
        ("1.0+cu128", "==1", True),
    ],
)
def test_a_version_is_within_a_range(version: str, versions: str, inside: bool) -> None:
    assert within(version, versions) is inside


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


def codes_by_fact(facts: evaluate.Facts) -> dict[str, list[str]]:
    return {fact: [reason.code for reason in reasons] for fact, reasons in facts.items()}


def test_the_reasons_against_a_library_by_host_fact() -> None:
    old = H100.replace(driver="450.80.02", driver_cuda=(11, 0))
    cases: list[tuple[Library | None, Host, dict[str, list[str]]]] = [
        (library(), H100, {"__sm": []}),
        (library(code=code_of("80")), H100, {"__sm": ["no-code-for-device"]}),
        (library(cuda=(12, 8)), H100, {"__sm": [], "__driver": []}),
        (library(cuda=(12, 8)), old, {"__sm": [], "__driver": ["driver-floor"]}),
        (library(), host(), {}),
        (None, H100, {"__data": ["library-unknown"]}),
        (None, host((8, 7)), {"__sm": ["jetson-wheel"]}),
    ]
    for made, device, expected in cases:
        assert codes_by_fact(evaluate.library_reasons("x", made, device, DATA)) == expected


def test_the_code_of_a_file_is_compared_with_each_gpu() -> None:
    code = code_of("80 90", "90", (12, 9), source="s")
    many = H100.replace(gpus=host((9, 0), (7, 0), (8, 7), (7, 0), None, (12, 0)).gpus)
    found = evaluate.code_reasons("lib.so", code, many)
    assert [(reason.code, reason.subject) for reason in found] == [
        ("no-code-for-device", "lib.so"),
        ("jetson-wheel", "lib.so"),
        ("device-unknown", "lib.so"),
        ("ptx-needs-newer-driver", "lib.so"),
    ]
    assert "7.0 (GPU 1)" in found[0].need and found[0].source.endswith("; s")
    newer = many.replace(driver_cuda=(12, 9), gpus=many.gpus[-1:])
    assert evaluate.code_reasons("lib.so", code, newer) == ()
    assert evaluate.code_reasons("lib.so", code, H100) == ()
    assert evaluate.code_reasons("lib.so", code, host()) == ()


def test_of_libraries_for_several_cudas_one_must_run() -> None:
    choices = (((12, 4), code_of("80")), ((12, 8), code_of("70")), ((13, 0), code_of("75")))
    made = library(by_cuda=choices, cuda_major=0)
    every = evaluate.library_reasons("x", made, H100, DATA)
    (reason,) = every["__sm"]
    assert "sm_75" in reason.have  # that of the newest CUDA
    one = library(by_cuda=(((12, 4), code_of("90")), ((13, 0), code_of("75"))), cuda_major=0)
    assert not any(evaluate.library_reasons("x", one, H100, DATA).values())


def test_a_reason_against_a_bad_release_names_it() -> None:
    bad = next(
        (name, release.version)
        for name in DATA.libraries()
        for release in DATA.releases(name, PLATFORM)
        if release.bad is not None
    )
    (reason,) = evaluate.known_bad_reasons(*bad, H100, DATA)
    assert reason.subject == " ".join(bad) and reason.code.startswith("known-")
    (reason,) = evaluate.known_bad_reasons(*bad, H100, DATA, "the library")
    assert reason.subject == "the library"


def test_what_the_code_of_a_plan_needs_of_devices() -> None:
    codes = [code_of("80 90", "90", (12, 8)), code_of("90")]
    needs = evaluate.needs_of_gpus(Needs(), [(12, 4), (12, 8)], codes, H100, DATA)
    assert needs.cuda == (12, 8) and needs.compute_capabilities == ((9, 0),)
    floor = DATA.driver_floor((12, 8), "linux")
    assert floor is not None and needs.driver == floor[0]
    newer = host((10, 0), driver="580.65.06", driver_cuda=(13, 0))
    needs = evaluate.needs_of_gpus(Needs(), [(12, 8)], codes[:1], newer, DATA)
    assert needs.driver == "580.65.06"  # it compiles the PTX
    assert {(8, 0), (8, 6), (9, 0), (10, 0), (12, 0)} <= {*needs.compute_capabilities}


def environment(*libraries: Library) -> Parts:
    parts = tuple(
        CudaLibrary(
            package=Package(name=one.name, version=one.version, distribution=one.name),
            library=one,
        )
        for one in libraries
    )
    packages = tuple(part.package for part in parts)
    return Parts(packages=packages, builds=(), libraries=parts)


def test_without_a_driver_an_environment_needs_the_newest_floor() -> None:
    device = H100.replace(driver=None, driver_cuda=None)
    eleven, twelve = (DATA.driver_floor((major, 0), "linux") for major in (11, 12))
    assert eleven is not None and twelve is not None
    both = environment(library(name="a", cuda_major=11), library(name="b", cuda_major=12))
    (reason,) = evaluate.environment_reasons(both, device, DATA)
    assert reason.code == "driver-unknown" and twelve[0] in reason.need
    (reason,) = evaluate.environment_reasons(environment(library(cuda_major=11)), device, DATA)
    assert eleven[0] in reason.need
    nothing = environment(library(cuda_major=0))
    assert evaluate.environment_reasons(nothing, device, DATA) == ()


def test_without_a_framework_the_libraries_need_a_driver() -> None:
    old = H100.replace(driver="450.80.02", driver_cuda=(11, 0))
    parts = environment(library(name="a", cuda_major=12), library(name="b", cuda_major=0))
    found = evaluate.environment_findings(parts, old, DATA)
    floors = [one.packages for one in found if one.reason.code == "driver-floor"]
    assert floors == [("a",)]


def test_every_extension_of_an_environment_is_compared_with_torch() -> None:
    """A library that is no extension does not hide the next one."""
    pins = [("torch", "2.15.0"), ("nvidia-cublas", "13.1.0.3"), ("bitsandbytes", "0.45.5")]
    found = evaluate.pin_reasons(pins, H100.replace(driver="580.65.06", driver_cuda=(13, 0)), DATA)
    assert "extension-cuda" in {reason.code for reason in found}


CUDNN, CUBLAS = ("nvidia-cudnn-cu12", "9.8.0.87"), ("nvidia-cublas-cu12", "12.9.0.13")
TWO = H100.replace(gpus=host((9, 0), (9, 0)).gpus, driver="580.65.06", driver_cuda=(13, 0))


@pytest.mark.parametrize(
    ("pins", "device", "packages"),
    [
        ([CUDNN, CUBLAS], TWO, [("nvidia-cudnn-cu12", "nvidia-cublas-cu12")]),
        ([CUBLAS, CUDNN], TWO, [("nvidia-cudnn-cu12", "nvidia-cublas-cu12")]),
        ([CUDNN], TWO, []),
        ([CUBLAS], TWO, []),
        ([CUDNN, CUBLAS], H100, []),
        ([CUDNN, CUBLAS], host(), []),
        ([("nvidia-cudnn-cu12", "9.10.2.21"), CUBLAS], TWO, []),
    ],
)
def test_a_bad_pair_needs_both_members_and_the_gpus_that_it_counts_on(
    pins: list[tuple[str, str]], device: Host, packages: list[tuple[str, str]]
) -> None:
    parts = parts_of_pins(pins, PLATFORM, DATA)
    found = evaluate.environment_findings(parts, device, DATA)
    assert [one.packages for one in found if one.reason.code == "bad-pair"] == packages


def with_torch(torch: str, *others: tuple[str, str]) -> list[evaluate.Finding]:
    parts = parts_of_pins([("torch", torch), *others], PLATFORM, DATA)
    return list(evaluate.environment_findings(parts, TWO, DATA))


@pytest.mark.parametrize(
    ("torch", "local", "codes"),
    [
        ("2.8.0+cu128", "cu12torch2.8cxx11abiTRUE", []),
        ("2.8.0+cu126", "cu12torch2.8cxx11abiTRUE", []),
        ("2.8.0+cu128", "cu13torch2.8cxx11abiTRUE", ["extension-cuda"]),
        ("2.8.0+cu128", "cu12torch2.7cxx11abiTRUE", ["extension-release"]),
        ("2.8.0+cu128", "cu12torch2.8cxx11abiFALSE", ["extension-abi"]),
        ("2.8.0+cpu", "cu12torch2.8cxx11abiTRUE", ["extension-cuda"]),
        ("2.8.99", "cu13torch2.8cxx11abiFALSE", []),  # the data does not know this torch
        ("2.8.99", "cu12torch2.7", ["extension-release"]),
    ],
)
def test_an_extension_beside_a_torch(torch: str, local: str, codes: list[str]) -> None:
    extension = ("flash-attn", f"2.8.3+{local}")
    for order in ((extension, ("numpy", "2.0")), (("numpy", "2.0"), extension)):
        found = [one for one in with_torch(torch, *order) if "extension" in one.reason.code]
        assert [one.reason.code for one in found] == codes
        assert all(one.packages == ("flash-attn", "torch") for one in found)
        assert all(one.reason.subject == f"flash-attn 2.8.3+{local}" for one in found)


@pytest.mark.parametrize(
    ("torch", "others", "expected"),
    [
        ("2.8.0+cu128", ["nvidia-cudnn-cu12 9.10.2.21"], []),
        ("2.8.0+cu128", ["nvidia-cudnn-cu12 8.9.7.29"], [("cudnn-version", "nvidia-cudnn-cu12")]),
        ("2.8.0+cu128", ["nvidia-cudnn-cu13 9.12.0.46"], [("cuda-major", "nvidia-cudnn-cu13")]),
        ("2.8.0+cu128", [], [("cudnn-unknown", "torch")]),
        ("2.8.0+cpu", [], []),
        ("2.8.99", [], []),
        (
            "2.8.0+cu128",
            ["nvidia-cudnn-cu13 9.12.0.46", "nvidia-cudnn-cu12 9.10.2.21"],
            [],
        ),
    ],
)
def test_the_cudnn_beside_a_torch(
    torch: str, others: list[str], expected: list[tuple[str, str]]
) -> None:
    pins = [(name, version) for name, version in map(str.split, others)]
    codes = ("cudnn-version", "cuda-major", "cudnn-unknown")
    found = [one for one in with_torch(torch, *pins) if one.reason.code in codes]
    assert [(one.reason.code, one.packages[0]) for one in found] == expected
    assert all(one.packages[-1] == "torch" for one in found)


def test_where_a_missing_cudnn_is_a_doubt() -> None:
    """Wheels for Windows contain cuDNN, and a host without a GPU does not load it."""
    for device, platform, codes in (
        (TWO, PLATFORM, ["cudnn-unknown"]),
        (TWO.replace(os="windows"), "win-amd64", []),
        (host(), PLATFORM, []),
    ):
        parts = parts_of_pins([("torch", "2.8.0+cu128")], platform, DATA)
        found = evaluate.environment_findings(parts, device, DATA)
        assert [one.reason.code for one in found if "cudnn" in one.reason.code] == codes


@pytest.mark.parametrize(
    ("torch", "vision", "codes"),
    [
        ("2.8.0+cu128", "0.23.0+cu128", []),
        ("2.8.0+cu128", "0.23.0+cu126", ["cuda-variant"]),
        ("2.8.0+cu128", "0.23.0+cpu", ["cuda-variant"]),
        ("2.8.0+cpu", "0.23.0+cpu", []),
        ("2.8.99", "0.23.0+cpu", []),
        ("2.8.0+cu128", "0.99.0", []),
    ],
)
def test_a_companion_beside_a_torch(torch: str, vision: str, codes: list[str]) -> None:
    found = [
        one
        for one in with_torch(torch, ("torchvision", vision))
        if one.reason.code == "cuda-variant"
    ]
    assert [one.reason.code for one in found] == codes
    assert all(one.packages == ("torchvision",) for one in found)


def test_a_cuda_build_without_a_gpu_runs_on_the_cpu() -> None:
    pins = [("torch", "2.8.0+cu128"), ("torchvision", "0.23.0+cu128"), ("jax", "0.8.0")]
    found = evaluate.environment_findings(parts_of_pins(pins, PLATFORM, DATA), host(), DATA)
    unused = [one for one in found if one.reason.code == "gpu-unused"]
    assert [one.packages for one in unused] == [("torch",)]
    assert unused[0].reason.source.strip()


def test_two_distributions_that_own_a_folder() -> None:
    pins = [("nvidia-cudnn-cu13", "9.12.0.46"), ("nvidia-cudnn-cu12", "9.10.2.21"), ("a", "1")]
    found = evaluate.environment_findings(parts_of_pins(pins, PLATFORM, DATA), host(), DATA)
    owners = [one for one in found if one.reason.code == "two-owners"]
    assert [one.packages for one in owners] == [("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")]
    assert owners[0].reason.subject == "nvidia/cudnn"


@pytest.mark.parametrize(
    ("code", "gpus", "tier"),
    [
        (code_of("80 90"), [(9, 0), (8, 0)], 0),
        (code_of("80", "80", (12, 0)), [(9, 0)], 1),
        (code_of("80", "80", (12, 0)), [(8, 0), (9, 0)], 1),
        (code_of("80", "80", (12, 0)), [(9, 0), (8, 0)], 1),
        (code_of("80", "80", (13, 0)), [(9, 0)], 2),
        (code_of("80"), [(8, 0), (9, 0)], 2),
        (code_of("80", "80", (12, 0)), [(9, 0), (7, 0)], 2),
        (code_of(None), [(9, 0)], 2),
        (code_of("80"), [], 0),
    ],
)
def test_how_well_a_build_serves_the_devices(
    code: Code, gpus: list[tuple[int, int]], tier: int
) -> None:
    device = host(*gpus, driver_cuda=(12, 8))
    assert evaluate.device_tier(code, device) == tier
    runs = [evaluate.serves(code, capability) for capability in gpus]
    assert all(runs) or tier == 2


def test_libraries_without_a_row_of_their_toolkit_need_the_first_one_of_their_major() -> None:
    old = host((8, 0), driver="450.80.02", driver_cuda=(11, 0))
    for made, codes in (
        (library(code=code_of("80")), ["driver-floor"]),
        (library(code=code_of("80"), cuda_major=0), []),
        (library(code=code_of("80"), cuda=(11, 0)), []),
        (None, ["library-unknown"]),
    ):
        facts = evaluate.requested_library_reasons("x", made, old, DATA)
        assert [reason.code for reasons in facts.values() for reason in reasons] == codes


# ---- variant wheels ------------------------------------------------------------------------------


def test_the_oldest_bound_of_a_variant_needs_a_driver() -> None:
    bounds = ("nvidia", "cuda_version_lower_bound", ("12.8", "11.8"))
    variant = WheelVariant(name="x", label="cu", properties=(bounds,))
    eleven = DATA.driver_floor((11, 8), "linux")
    assert eleven is not None
    device = H100.replace(driver="450.80.01", driver_cuda=(12, 8))
    found = evaluate.variant_reasons("x", variant, {}, device, DATA)
    assert any(eleven[0] in reason.need for reason in found)


@pytest.mark.parametrize(
    ("sass", "ptx", "missing"),
    [
        ("80", "90", ""),
        ("90", "90", "sm_80"),
        ("80", "", "compute_90"),
        (None, None, "sm_80 compute_90"),
        ("80", None, "compute_90"),
    ],
)
def test_what_the_properties_claim_and_the_libraries_lack(
    sass: str | None, ptx: str | None, missing: str
) -> None:
    claims = ("nvidia", "sm_arch", ("80_real", "90_virtual"))
    code = code_of(sass, ptx)
    variant = WheelVariant(name="x", label="cu", properties=(claims,), code=code)
    found = evaluate.claim_reasons("x", variant)
    assert [reason.need.partition(",")[0] for reason in found] == [missing] * bool(missing)


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


def test_the_tables_of_gpus_for_other_programs() -> None:
    tables = DATA.gpu_tables()
    assert set(tables) == {"names", "keys", "platforms", "ambiguous", "noise_words", "noise"}
    columns = DATA.capabilities()
    assert [name for name, _ in tables["names"]] == list(DATA.gpu_names())
    for name, column in tables["names"]:
        assert columns[column] == DATA.compute_capability(name)
    assert {columns[column] for column in tables["keys"].values()} == set(columns)
    platforms = {
        DATA.gpu_platform(Gpu(name=name, compute_capability=DATA.compute_capability(name)))
        for name, _ in tables["names"]
    }
    assert {*tables["platforms"].values()} == platforms - {None}
    assert all(DATA.compute_capability(name) is None for name in tables["ambiguous"])
    assert "geforce" in tables["noise_words"] and re.fullmatch(tables["noise"], "80gb")


NOISY = [
    "NVIDIA H100", "GeForce H100", "Tesla H100", "GRID H100", "HGX H100", "H100 GPU",
    "H100 (nvgpu)", "H100 Laptop", "H100 Mobile", "H100 Max", "H100 Q", "H100 MaxQ",
    "H100 with Design", "H100 Generation", "H100 Edition", "H100 Workstation", "H100 Server",
    "H100 Active", "H100 Passive", "H100 LHR", "H100 80 GB", "H100 1 TB", "H100 PCIe", "H100 FHHL",
    "H100-DGXS", "H100 CNX", "H100 SXM", "H100 NVL", "H100 Superchip", "Grace H100", "Hopper H100",
    "H100 Developer Kit", "H100 80GB", "H100 80G", "H100 1TB", "H100 HBM3", "H100 HBM3e",
    "H100 GDDR6", "H100 GDDR6X", "H100 SXM5", "H100 NVL72", "H100-40C", "H100-8Q", "H100-2B",
    "H100-16A",
]  # fmt: skip


@pytest.mark.parametrize("name", NOISY)
def test_what_says_nothing_about_the_capability_is_left_out(name: str) -> None:
    assert DATA.compute_capability(name) == (9, 0)
    assert "H100" in DATA.close_names(name)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("H100", ("H100", (9, 0))),
        ("h100", ("H100", (9, 0))),
        ("rtx4090", ("RTX 4090", (8, 9))),
        ("RTX  4090", ("RTX 4090", (8, 9))),
        ("NVIDIA H100 80GB HBM3", ("NVIDIA H100 80GB HBM3", (9, 0))),
        ("4090", ("4090", (8, 9))),
        ("RTX 6000", None),
        ("nonsense", None),
    ],
)
def test_a_known_gpu_has_the_spelling_of_the_data(text: str, known: object) -> None:
    assert DATA.known_gpu(text) == known


@pytest.mark.parametrize("name", ["H100 New", "H100 40D", "H100 GDDR", "H100X5", "H100 SXMX"])
def test_another_word_is_another_gpu(name: str) -> None:
    assert DATA.compute_capability(name) is None


def test_close_names_of_one_gpu_and_of_several() -> None:
    assert DATA.close_names("RTX 4090") == ["RTX 4090"]
    several = DATA.close_names("RTX 6000")
    assert len(several) > 1 and all(re.search(r" \(sm_\d+\)$", name) for name in several)
    targets = [name.rpartition("_")[2].rstrip(")") for name in several]
    assert targets == sorted(targets, key=int)
    assert len(DATA.close_names("RTX 40990", count=2)) == 2
    assert len(DATA.close_names("RTX 40990")) == 3
    assert DATA.close_names("") == []


def small_data(folder: Path, **changes: object) -> matrix.CompatibilityData:
    tables = json.loads((ROOT / "matrix_data" / "tables.json").read_text())
    (folder / "tables.json").write_text(json.dumps({**tables, "frameworks": {}, **changes}))
    return matrix.load(str(folder))


def test_a_number_means_a_gpu_if_its_families_agree(tmp_path: Path) -> None:
    gpus = {"gtx1": [5, 0], "rtx1": [8, 0], "gtx2": [6, 0], "rtx3": [7, 5], "gtx4": [6, 1]}
    made = small_data(tmp_path, gpus={**gpus, "rtx4": [6, 1], "quadro5": [5, 2]})
    expected = {"1": None, "2": (6, 0), "3": (7, 5), "4": (6, 1), "6": None}
    found = {number: made.compute_capability(number) for number in expected}
    assert found == expected
    assert made.compute_capability("x") is None
    assert made.frameworks() == () and made.libraries() == []


def test_two_gpus_that_share_a_name_are_told_apart(tmp_path: Path) -> None:
    gpus = {"rtxa1": [8, 6], "rtxa1ada": [8, 9], "rtxb": [8, 6], "rtxbmobile": [8, 6]}
    names = ["RTX A1", "RTX A1 Ada", "RTX B", "RTX B Two"]
    made = small_data(tmp_path, gpus={**gpus, "rtxbtwo": [8, 6]}, gpu_names=names)
    assert made.close_names("RTX A1") == ["RTX A1 (sm_86)", "RTX A1 Ada (sm_89)"]
    assert made.close_names("rtxb") == ["RTX B"]


def test_the_steps_of_drivers(tmp_path: Path) -> None:
    branches = [[450, "11.0"], [455, "11.1"], [460, "11.1"], [465, "11.3"], [470, "11.2"]]
    floors = [[11, "455.23", "456.38", "s"], [12, "465.10", "", "s"]]
    made = small_data(tmp_path, branches=branches, floors=floors)
    assert made.driver_steps("linux") == ["450.00", "455.23", "465.10"]
    assert made.driver_steps("windows") == ["450.00", "456.38", "465.00"]
    assert made.driver_floor((11, 8), "windows") == ("456.38", "s")
    assert made.driver_floor((12, 8), "windows") is None
    assert made.driver_floor((13, 0), "linux") is None
    assert made.driver_cuda("449.1") is None and made.driver_cuda("475.1") is None
    assert made.driver_cuda("457.1") == (11, 1) and made.driver_cuda("470.1") == (11, 2)


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
        ('{"date": "", "rows": {}}', "has format None, this gpuenv reads 1"),
        ("[]", "cannot be read: Expected `object`, got `array`"),
        ('{"format": 1, "date": ""}', "cannot be read: Object missing required field `rows`"),
        ('{"format": 1, "rows": {}}', "cannot be read: Object missing required field `date`"),
        ('{"format": 1, "date": 7, "rows": {}}', "cannot be read: Expected `str`, got `int`"),
        ('{"format": 1, "date": "", "rows": []}', "cannot be read: Expected `object`"),
        ("{", "cannot be read"),
    ],
)
def test_damage_in_the_rows_of_the_user(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(content)
    with pytest.raises(DataError, match=re.escape(f"{path} {message}")) as raised:
        user_rows.read_user_rows(str(path))
    assert "gpuenv matrix update" in raised.value.hint


def test_the_rows_of_the_user_are_written_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / "more" / "rows.json")
    assert user_rows.read_user_rows(path) == user_rows.NO_ROWS
    rows: dict[str, list[dict[str, Any]]] = {"a": [{"version": "1"}, {}], "b": [{}]}
    made = user_rows.UserRows(format=1, date="2026-01-02", rows=rows)
    user_rows.write_user_rows(path, made)
    read = user_rows.read_user_rows(path)
    assert (read, read.count()) == (made, 3)


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"GPUENV_DATA_DIR": "/own", "XDG_DATA_HOME": "/xdg"}, "/own/rows.json"),
        ({"GPUENV_DATA_DIR": "own"}, "own/rows.json"),
        ({"XDG_DATA_HOME": "/xdg"}, "/xdg/gpuenv/rows.json"),
        ({"XDG_DATA_HOME": "xdg"}, "~/.local/share/gpuenv/rows.json"),
        ({}, "~/.local/share/gpuenv/rows.json"),
    ],
)
def test_the_place_of_the_rows_of_the_user(
    environ: Mapping[str, str], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "GPUENV_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert user_rows.user_file() == str(Path(path).expanduser().absolute())


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
        ({"companions": "y"}, "Expected `array`, got `str` - at `$.companions`"),
        ({"indexes": [1]}, "Expected `str`, got `int` - at `$.indexes"),
        ({"way": []}, "it has no way"),
        ({"way": [{"variant": "a", "requires": ["x"], "carriers": []}, 1]}, "Expected `object`"),
        ({"way": [{"requires": ["x"], "carriers": []}]}, "missing required field `variant`"),
        ({"way": [{"variant": "a", "requires": [], "carriers": []}]}, "one that requires nothing"),
    ],
)
def test_damage_in_the_description_of_a_framework(
    changes: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    content = {key: value for key, value in {**FRAMEWORK, **changes}.items() if value is not None}
    (tmp_path / "x.toml").write_text(tomli_w.dumps(content))
    with pytest.raises(DataError, match=re.escape(message)) as raised:
        read_framework(str(tmp_path / "x.toml"))
    assert "x.toml cannot be read: " in str(raised.value)


def test_the_description_of_a_framework(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(tomli_w.dumps({**FRAMEWORK, "since": "1.0"}))
    every = Way(variant="*", requires=("x",), carriers=("x",))
    assert read_framework(str(tmp_path / "x.toml")) == Framework(**FRAMEWORK, ways=(every,))


def releases(folder: Path, *rows: Mapping[str, Any], **content: object) -> Releases:
    base = {"version": "1.0", "platform": PLATFORM, "sass": ["90"], "ptx": []}
    made = [{**base, "evidence": "documented", "source": "s", **row} for row in rows]
    path = folder / "lib.json"
    path.write_text(json.dumps({"cuda_major": 12, "releases": made, **content}))
    return Releases(str(path), "lib", lambda name, version: None)


def test_the_cuda_of_a_release(tmp_path: Path) -> None:
    def found(**content: object) -> Library:
        made = releases(tmp_path, {"cuda": "13.1"}, **content).find("1.0", PLATFORM)
        assert made is not None
        return made

    assert (found().cuda_major, found().cuda) == (12, (13, 1))
    assert found(cuda_major=None).cuda_major == 13
    made = releases(tmp_path, {}, cuda_major=None).find("1.0", PLATFORM)
    assert made is not None and (made.cuda_major, made.cuda) == (0, None)
    with pytest.raises(DataError, match=r"Expected `int \| null`, got `str` - at `\$.cuda_major`"):
        releases(tmp_path, {}, cuda_major="12")


def test_the_libraries_of_a_release_for_several_cudas(tmp_path: Path) -> None:
    by_cuda = [{"cuda": "12.4", "sass": ["80"], "ptx": []}, {"cuda": "13.0", "sass": [], "ptx": []}]
    url = "https://files.example/lib"
    made = releases(tmp_path, {"by_cuda": by_cuda, "url": url}).find("1.0", PLATFORM)
    assert made is not None and made.url == url and url in made.code.source
    assert [(cuda, code.sass) for cuda, code in made.by_cuda] == [
        ((12, 4), ("80",)),
        ((13, 0), ()),
    ]


def test_a_release_or_the_newest_older_one(tmp_path: Path) -> None:
    made = releases(
        tmp_path,
        {"version": "1.2"},
        {"version": "1.10"},
        {"version": "1.5", "platform": "win-amd64"},
    )

    def version(asked: str, platform: str = PLATFORM) -> str | None:
        found = made.upto(asked, platform)
        return found.version if found else None

    assert [version(asked) for asked in ("1.2", "1.9", "1.10", "2.0", "1.1")] == [
        "1.2",
        "1.2",
        "1.10",
        "1.10",
        None,
    ]
    assert version("1.9", "win-amd64") == "1.5" and version("1.9", "linux-aarch64") is None
    assert made.reaches("1.2") and made.reaches("1.3") and not made.reaches("1.1")
    assert [one.version for one in made.all()] == ["1.2", "1.10", "1.5"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"sass": "90"}, "Expected `array | null`, got `str` - at `$.releases[0].sass`"),
        ({"sass": [90]}, "Expected `str`, got `int` - at `$.releases[0].sass"),
        ({"ptx": ["x"]}, "at `$.releases[0].ptx"),
        ({"cuda": "twelve"}, "at `$.releases[0].cuda`"),
        ({"made_by": "x"}, "at `$.releases[0].made_by`"),
        ({"some": ["80", 1]}, "at `$.releases[0].some"),
        ({"evidence": "guessed"}, "Invalid enum value 'guessed'"),
        ({"evidence": "scanned"}, "what was scanned names its file and its sha256"),
        ({"evidence": "scanned", "file": "f"}, "what was scanned names its file"),
        ({"source": ""}, "at `$.releases[0].source`"),
        ({"url": 1}, "at `$.releases[0].url`"),
    ],
)
def test_damage_in_a_release(row: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        releases(tmp_path, row).find("1.0", PLATFORM)


def builds(folder: Path, text: str) -> Builds:
    (folder / "x.json").write_text(text)
    way = Way(variant="*", requires=("x",), carriers=("x",))
    made = Framework(**FRAMEWORK, companions=(), indexes=(), packages=(), ways=(way,))
    return Builds(str(folder / "x.json"), made)


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


def in_lines(*rows: Mapping[str, Any], **content: object) -> str:
    """Return a file with one row on each line, as scripts write it."""
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    head = json.dumps({"companions": [], **content}, indent=1).removesuffix("\n}")
    return f'{head},\n "builds": [\n  {lines}\n ]\n}}\n'


def test_rows_in_lines_and_in_another_layout_are_the_same(tmp_path: Path) -> None:
    rows = [BUILD, {**BUILD, "local": "1.0+cu126", "variant": "cu126", "cuda": "12.6"}]
    documents = (
        in_lines(*rows),
        json.dumps({"companions": [], "builds": rows}),
        json.dumps({"companions": [], "builds": rows}, indent=1) + "\n",
        in_lines(*rows).replace('"cuda"', '\n"cuda"'),
    )
    for text in documents:
        made = builds(tmp_path, text)
        found = made.all("x", PLATFORM)
        assert [build.cuda for build in found] == [(12, 8), (12, 6)]
        assert made.all("x", "win-amd64") == [] and made.all("x", PLATFORM, above="1.0") == []
        assert len(made.all("x", PLATFORM, above="0.9")) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (in_lines(BUILD, BUILD), f"two builds are named 1.0+cu128 on {PLATFORM}"),
        (in_lines({**BUILD, "platform": 7}), "at `$.builds[0].platform`"),
        (in_lines(BUILD, companions=7), "at `$.companions`"),
        (in_lines(BUILD, companions=[7]), "at `$.companions[0]`"),
        (in_lines(BUILD, companions=[{"name": "y"}]), "a companion cannot be read"),
        (in_lines(BUILD, companions=[{"name": "y", "version": "1"}]), "a companion cannot be read"),
        (in_lines(BUILD).replace("{\n", "{,\n", 1), "cannot be read"),
        (in_lines(BUILD).replace('"cuda": "12.8"', '"cuda": twelve'), "cannot be read"),
        ("[]", "Expected `object`, got `array`"),
        ('{"builds": 7, "companions": []}', "at `$.builds`"),
        ('{"builds": [7], "companions": []}', "at `$.builds[0]`"),
    ],
)
def test_damage_in_a_file_of_builds(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        builds(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "none.json", "is missing"),
        (tmp_path, "cannot be read"),
        (tmp_path / "list.json", "cannot be read: Expected `object`"),
        (tmp_path / "text.json", "cannot be read"),
    ):
        (tmp_path / "list.json").write_text("[]")
        (tmp_path / "text.json").write_text("text")
        with pytest.raises(DataError, match=re.escape(f"{path} {message}")):
            decode(str(path), dict)
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(DataError, match=re.escape(f"{path} cannot be read")):
            read_toml(str(path))


TOML_BUILD = """[[build]]
version = "1.0"
platform = "linux-x86_64"
variant = "cpu"
sass = []
ptx = []
evidence = "documented"
source = "s"
"""


@pytest.mark.parametrize(
    ("text", "builds_of_x"),
    [
        (TOML_BUILD, ["1.0"]),
        ('[[way]]\nvariant = "*"\n' + TOML_BUILD, ["1.0"]),
        # A framework whose variants are distributions of their own has no builds.
        ('[[way]]\nvariant = "cuda"\n[[way]]\nvariant = "cpu"\n', []),
        ('[[way]]\nvariant = "cuda"\n', []),
        ('[[way]]\nvariant = "*"\n', None),
        ("", None),
    ],
)
def test_the_builds_of_a_framework_with_few_of_them(
    text: str, builds_of_x: list[str] | None, tmp_path: Path
) -> None:
    (tmp_path / "x.toml").write_text(text)
    way = Way(variant="*", requires=("x",), carriers=("x",))
    framework = Framework(**FRAMEWORK, companions=(), indexes=(), packages=(), ways=(way,))
    path = str(tmp_path / "x.json")
    if builds_of_x is None:
        with pytest.raises(DataError, match=re.escape(f"{path} is missing")) as raised:
            Builds(path, framework)
        assert "[[build]]" in raised.value.hint
        return
    found = Builds(path, framework).all("x", PLATFORM)
    assert [build.local for build in found] == builds_of_x
    assert all((build.index, build.variant) == ("default", "cpu") for build in found)


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "on_path", "variant", "indexes"),
    [
        ("torch", "framework", True, "cu132", ("default",)),
        ("jax", "framework", True, "cuda13", ("default",)),
        ("nvidia-cudnn-cu12", "library", True, "cu12", ("default",)),
        ("jaxlib", "library", False, "any", ("default",)),
        ("bitsandbytes", "library", False, "cu128", ("default",)),
    ],
)
def test_an_entry_of_the_catalog(
    name: str, kind: str, on_path: bool, variant: str, indexes: tuple[str, ...]
) -> None:
    entry = gpuenv.matrix_catalog().entry(name, PLATFORM)
    assert (entry.kind, entry.on_path) == (kind, on_path)
    found = {one.variant: one for one in entry.releases[0].variants}
    assert set(indexes) <= set(found[variant].indexes)


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


def test_each_way_of_a_framework_has_a_variant_on_its_platforms() -> None:
    """The ways after a way for other platforms are listed, too."""
    catalog = gpuenv.matrix_catalog()
    for platform, expected in (("win-amd64", {"cpu"}), (PLATFORM, {"cuda13", "cuda12", "cpu"})):
        variants_of_jax = catalog.entry("jax", platform).releases[0].variants
        assert {one.variant for one in variants_of_jax} == expected


def test_an_installed_way_of_a_platform_counts() -> None:
    pins = [("jax", "0.8.0"), ("jaxlib", "0.8.0")]
    (build,) = [
        part for part in parts_of_pins(pins, "win-amd64", DATA).builds if part.framework == "jax"
    ]
    assert build.build is None or build.build.variant == "cpu"


WAYS = [
    {"variant": "cuda", "requires": ["beta[cuda]"], "carriers": ["beta-code", "beta-more"]},
    {"variant": "cpu", "requires": ["beta"]},
]
BETA_ROW = {"version": "2.0", "platform": PLATFORM, "sass": ["90"], "ptx": []}


@pytest.fixture
def two_frameworks(tmp_path: Path) -> matrix.CompatibilityData:
    """Data with alpha, whose versions name its builds, and with beta, which has two ways."""
    described = {}
    for name, more in {"alpha": {"companions": ["gamma"]}, "beta": {"way": WAYS}}.items():
        fields = {**FRAMEWORK, "name": name, "distribution": name, **more}
        (tmp_path / "described.toml").write_text(tomli_w.dumps(fields))
        described[name] = msgspec.to_builtins(read_framework(str(tmp_path / "described.toml")))
    for folder, files in {
        "frameworks": {"alpha.toml": "", "beta.toml": ""},
        "libraries": {
            "beta-code.json": [BETA_ROW, {**BETA_ROW, "version": "1.0", "sass": ["80"]}],
            "beta-more.json": [{**BETA_ROW, "sass": ["80", "90"]}],
        },
    }.items():
        (tmp_path / folder).mkdir()
        for file, rows in files.items():
            made = [{**row, "evidence": "documented", "source": "s"} for row in rows]  # type: ignore[dict-item]
            content = json.dumps({"cuda_major": 12, "releases": made}) if rows else ""
            (tmp_path / folder / file).write_text(content)
    gamma = {"name": "gamma", "version": "3.0", "alpha": ["0.9", "1.0"]}
    rows = (BUILD, {**BUILD, "local": "1.0+cpu", "variant": "cpu", "cuda": None, "sass": []})
    content = in_lines(*rows, companions=[gamma])
    (tmp_path / "frameworks" / "alpha.json").write_text(content)
    return small_data(tmp_path, frameworks=described)


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        # A framework whose versions name its builds does not hide the next one.
        ("alpha 1.0+cu128, beta 2.0", {"alpha 1.0+cu128": (12, 8), "beta 2.0 (cpu)": None}),
        (
            "Alpha 1.0+cu128, beta 2.0, beta_code 2.0, beta-more 2.0",
            {"alpha 1.0+cu128": (12, 8), "beta 2.0 (cuda)": (12, 0)},
        ),
        ("beta 2.0, beta-code 2.0", {"beta 2.0 (cpu)": None}),
        ("beta-code 2.0, beta-more 2.0", {}),
    ],
)
def test_the_builds_among_pins(
    two_frameworks: matrix.CompatibilityData,
    pins: str,
    expected: Mapping[str, tuple[int, int] | None],
) -> None:
    pairs = [(name, version) for name, version in map(str.split, pins.split(", "))]
    found = parts_of_pins(pairs, PLATFORM, two_frameworks).builds
    assert {one.subject: one.build and one.build.cuda for one in found} == expected
    assert all(one.on_path for one in found)
    known = known_builds(pairs, PLATFORM, two_frameworks)
    assert [build.cuda for build in known] == list(expected.values())


@pytest.mark.parametrize(
    ("name", "kind", "members", "variants"),
    [
        ("alpha", "framework", ("alpha",), ["1.0 cu128", "1.0 cpu"]),
        # A companion without rows of its own has the builds of its framework.
        ("gamma", "library", ("gamma",), ["3.0 cpu", "3.0 cu128"]),
        # Without an index, the releases of a framework are those of its carriers.
        ("beta", "framework", ("beta",), ["2.0 cuda"]),
        ("Beta_Code", "library", ("beta-code",), ["2.0 cu12", "1.0 cu12"]),
    ],
)
def test_an_entry_without_an_index(
    two_frameworks: matrix.CompatibilityData,
    name: str,
    kind: str,
    members: tuple[str, ...],
    variants: list[str],
) -> None:
    made = Catalog(two_frameworks, lambda name: ())
    entry = made.entry(name, PLATFORM)
    assert (entry.kind, entry.distributions) == (kind, members)
    found = [
        f"{release.version} {one.variant}" for release in entry.releases for one in release.variants
    ]
    assert found == variants
    assert made.entry(name, "win-amd64").releases == ()
    assert made.names() == ["alpha", "beta", "beta-code", "beta-more", "gamma"]
    assert [entry.name for entry in made.entries(PLATFORM)] == made.names()


@pytest.mark.parametrize(
    ("version", "platform", "cuda", "sass", "says"),
    [
        ("2.0", PLATFORM, (12, 0), ("90",), "s"),
        ("2.5", PLATFORM, (12, 0), ("90",), "s"),
        ("1.5", PLATFORM, None, None, ""),  # a carrier has no row for so old a release
        (
            "2.0",
            "win-amd64",
            (12, 0),
            None,
            "no row of beta-code and beta-more 2.0 on win-amd64",
        ),
        ("1.0", "win-amd64", None, None, ""),
    ],
)
def test_a_release_of_a_framework_has_what_its_carriers_have(  # noqa: PLR0917  a case
    two_frameworks: matrix.CompatibilityData,
    version: str,
    platform: str,
    cuda: tuple[int, int] | None,
    sass: tuple[str, ...] | None,
    says: str,
) -> None:
    framework = two_frameworks.framework("beta")
    assert framework is not None
    assert (framework.companions, framework.indexes, framework.packages) == ((), (), ())
    with_code, cpu = framework.ways
    build = two_frameworks.variant(framework, with_code, version, platform)
    if cuda is None:
        assert build is None
    else:
        assert build is not None
        assert (build.cuda, build.code.sass, build.code.source) == (cuda, sass, says)
        one = with_code.replace(variant="one", carriers=("beta-code",))
        alone = two_frameworks.variant(framework, one, version, platform)
        assert alone is not None and alone.cuda == cuda
    without = two_frameworks.variant(framework, cpu, version, platform)
    assert without is not None and without.cuda is None and without.code.sass == ()


@pytest.mark.parametrize(
    ("versions", "asked", "found"),
    [
        (["0.12.0.1", "0.12.0", "0.11"], "0.12", "0.12.0"),
        (["0.12.0.1", "0.11"], "0.12", "0.12.0.1"),
        (["0.12.1", "0.12.0"], "0.12", "0.12.0"),
        (["0.12.1", "0.12.0"], "0", "0.12.1"),
        (["0.120"], "0.12", None),
    ],
)
def test_a_version_that_is_meant(versions: list[str], asked: str, found: str | None) -> None:
    assert pick(versions, asked) == found


@pytest.mark.parametrize(
    ("filename", "platform"),
    [
        ("x-1-py3-none-manylinux_2_28_x86_64.whl", "linux-x86_64"),
        ("x-1-py3-none-manylinux_2_28_aarch64.whl", "linux-aarch64"),
        ("x-1-py3-none-win_amd64.whl", "win-amd64"),
        ("x-1-py3-none-any.whl", ""),
    ],
)
def test_the_platform_of_a_file(filename: str, platform: str) -> None:
    assert platform_of(filename) == platform


# ---- conda records -------------------------------------------------------------------------------


def conda_record(**fields: object) -> dict[str, Any]:
    base = {"name": "pytorch", "version": "2.8.0", "build": "h1_0", "build_number": 0}
    return {**base, "subdir": "linux-64", "channel": "https://x.example/conda-forge", **fields}


@pytest.mark.parametrize(
    ("fields", "cuda"),
    [
        ({"build": "py3.9_cuda11.7_cudnn8.5.0_0"}, (11, 7)),
        ({"build": "cuda129_py312_h1_0"}, (12, 9)),
        ({"build": "cpu_py312_h1_0"}, None),
        ({"build": "h1_0", "depends": ["cuda-version >=12.8,<13"]}, (12, 8)),
        ({"build": "h1_0", "depends": ["libgcc", "cuda-version >=12,<13", "x"]}, (12, 0)),
        ({"build": "h1_0", "depends": ["libgcc"]}, None),
        ({"build": "h1_0", "depends": None}, None),
        ({"build": "h1_0"}, None),
    ],
)
def test_the_cuda_of_a_record(fields: Mapping[str, Any], cuda: tuple[int, int] | None) -> None:
    record = conda_record(**fields)
    found, glob = conda_records.cuda_of(record)
    assert found == cuda
    assert glob.strip("*") in record["build"] and glob


@pytest.mark.parametrize(
    ("depends", "python"),
    [
        (["python_abi 3.12.* *_cp312"], (3, 12)),
        (["python >=3.11,<3.12.0a0"], (3, 11)),
        (["python >=3.9"], None),
        (["libgcc", "python_abi 3.13.* *_cp313"], (3, 13)),
        (None, None),
    ],
)
def test_the_python_of_a_record(depends: list[str] | None, python: tuple[int, int] | None) -> None:
    assert conda_records.python_of(conda_record(depends=depends)) == python


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://x.example/conda-forge", "conda-forge"),
        ("https://x.example/conda-forge/", "conda-forge"),
        ("https://x.example/conda-forge/label/dev", "conda-forge"),
        ("conda-forge/label/main", "conda-forge"),
        ("pytorch", "pytorch"),
        ("", ""),
    ],
)
def test_the_name_of_a_channel(url: str, name: str) -> None:
    assert conda_records.channel_name(url) == name


@pytest.mark.parametrize(("number", "described"), [(None, True), (0, True), (1, False)])
def test_a_row_may_be_of_one_number_of_a_build(number: int | None, described: bool) -> None:
    row = {"subdirs": ["linux-64"], "versions": ">=2.8", "cuda": ">=12", "builds": "0"}
    record = conda_record(build_number=number)
    if number is None:
        del record["build_number"]
    assert conda_records.describes(row, record, (12, 8)) is described
    assert not conda_records.describes({**row, "subdirs": []}, record, (12, 8))
    assert not conda_records.describes({**row, "versions": "<2"}, record, (12, 8))
    assert not conda_records.describes(row, record, (11, 8))


def test_the_newest_of_records() -> None:
    made = [
        conda_record(version="2.7.0", build_number=9),
        conda_record(build="a", url="https://a"),
        conda_record(build="b", url="https://a"),
        conda_record(build="b", url="https://b"),
        conda_record(build_number=1),
    ]
    found = conda_records.newest(made)
    assert found == [made[4], made[1], made[2], made[3], made[0]]


def test_a_conda_package_has_the_facts_of_the_wheel_of_its_release() -> None:
    release = DATA.releases("nvidia-cudnn-cu12", PLATFORM)[-1]
    record = conda_record(name="cudnn", version=release.version)
    assert conda_parts.library_of(record, (12, 8), PLATFORM, DATA) == release
    assert conda_parts.library_of(record, None, PLATFORM, DATA) is None
    for changes in ({"name": "numpy"}, {"version": "0.1"}):
        assert conda_parts.library_of({**record, **changes}, (12, 8), PLATFORM, DATA) is None


@pytest.mark.parametrize(
    ("records", "cuda"),
    [
        ([], None),
        (["cudatoolkit 11.8.0"], (11, 8)),
        (["cudatoolkit 11.8.0", "cuda-version 12.4"], (12, 4)),
        (["pytorch-cuda 12.1", "cudatoolkit 11.8.0"], (11, 8)),
        (["numpy 1.0", "pytorch-cuda 12.1"], (12, 1)),
    ],
)
def test_the_cuda_of_a_closure(records: list[str], cuda: tuple[int, int] | None) -> None:
    rows = [dict(zip(("name", "version"), text.split(), strict=True)) for text in records]
    made = [conda_record(**row) for row in rows]
    assert conda_parts.cuda_of_records(made) == cuda


VIRTUAL = {"__cuda": ("12.8", "0"), "__archspec": ("1", "x86_64_v3"), "__glibc": ("2.35", "0")}


@pytest.mark.parametrize(
    ("depends", "constrains", "found"),
    [
        (["__glibc >=2.17,<3.0.a0", "libgcc >=12"], ["__cuda >=12"], []),
        (["__glibc >=2.36"], [], [("__glibc >=2.36", "2.35 0")]),
        (["__win"], [], [("__win", "not there")]),
        (["libgcc >=12", "__win"], [], [("__win", "not there")]),
        (["__glibc >=2.17", "__win"], [], [("__win", "not there")]),
        ([], ["__win"], []),
        ([], ["__cuda >=13"], [("__cuda >=13", "12.8")]),
        (["__archspec 1 x86_64_v4"], [], [("__archspec 1 x86_64_v4", "1 x86_64_v3")]),
        (["__archspec 1 x86_64_v*"], [], []),
        (["__archspec * x86_64_v4"], [], [("__archspec x86_64_v4", "1 x86_64_v3")]),
        (
            ["__win", "__glibc >=3", "__cuda"],
            ["__osx", "__cuda <12"],
            [("__win", "not there"), ("__glibc >=3", "2.35 0"), ("__cuda <12", "12.8")],
        ),
        (None, None, []),
    ],
)
def test_the_virtual_packages_that_a_record_asks_for(
    depends: list[str] | None, constrains: list[str] | None, found: list[tuple[str, str]]
) -> None:
    record = conda_record(depends=depends, constrains=constrains)
    reasons = conda_parts.virtual_reasons(record, VIRTUAL)
    assert [(reason.need, reason.have) for reason in reasons] == found
    for reason in reasons:
        assert (reason.code, reason.subject) == ("virtual-package", "pytorch 2.8.0")


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("libcublas", "nvidia-cublas-cu12"),
        ("cudnn", "nvidia-cudnn-cu12"),
        ("numpy", None),
        ("libpng", None),
        ("cublas", None),
    ],
)
def test_the_reasons_against_a_record(name: str, distribution: str | None) -> None:
    assert conda_parts.wheel_distribution(name, (12, 8), DATA) == distribution
    assert conda_parts.wheel_distribution(name, None, DATA) is None
    record = conda_record(name=name, version="0.0.1")
    found = conda_parts.library_reasons(record, (12, 8), H100, DATA)
    assert [reason.code for reason in found] == ["library-unknown"] * (distribution is not None)
    assert conda_parts.library_reasons(record, (12, 8), host(), DATA) == ()


@pytest.mark.parametrize(
    ("version", "code"), [("9.10.0.56", "known-broken"), ("9.20.0.48", "known-avoid")]
)
def test_a_release_that_is_known_to_be_bad_counts_as_a_record(version: str, code: str) -> None:
    record = conda_record(name="cudnn", version=version)
    for device in (H100, host()):  # also where no GPU is described
        found = conda_parts.library_reasons(record, (12, 8), device, DATA)
        assert [(reason.code, reason.subject) for reason in found] == [(code, f"cudnn {version}")]


CODE_ROW = {
    "carrier": "pytorch",
    "channel": "conda-forge",
    "subdirs": ["linux-64"],
    "versions": ">=2.8",
    "cuda": ">=12",
    "sass": ["80", "90"],
    "ptx": ["90"],
    "source": "a recipe",
}
ON_PYTORCH = {**CODE_ROW, "channel": "pytorch", "sass": ["70"], "ptx": [], "made_by": "11.8"}
DOTTED = "py3.12_cuda12.4_cudnn9.1.0_0"


@pytest.fixture
def carriers(tmp_path: Path) -> conda_records.Carriers:
    """Carriers of two frameworks: pytorch has its own code, and jax has its code in jaxlib."""
    rows = [("torch", "pytorch", "pytorch"), ("jax", "jax", "jaxlib")]
    keys = ("framework", "package", "carrier")
    document = {
        "carriers": [dict(zip(keys, row, strict=True)) for row in rows],
        "distributions": [{"package": "pytorch", "distribution": "torch"}],
        "code": [
            {**CODE_ROW, "carrier": "jaxlib"},
            ON_PYTORCH,
            {**CODE_ROW, "subdirs": []},
            CODE_ROW,
            {**CODE_ROW, "sass": ["75"]},
        ],
    }
    (tmp_path / "conda").mkdir()
    (tmp_path / "conda" / "carriers.json").write_text(json.dumps(document))
    return conda_records.Carriers(str(tmp_path))


def test_the_packages_that_hold_a_framework(
    carriers: conda_records.Carriers, tmp_path: Path
) -> None:
    assert carriers.packages == {"torch": "pytorch", "jax": "jax"}
    assert carriers.carriers == {"torch": "pytorch", "jax": "jaxlib"}
    assert carriers.distributions == {"pytorch": "torch"}
    names = ("pytorch", "jax", "jaxlib", "torch", "numpy")
    assert [carriers.framework_of(name) for name in names] == ["torch", "jax", "jax", None, None]
    path = tmp_path / "conda" / "carriers.json"
    for text in ("{", "{}", '{"carriers": [{}]}', '{"carriers": 1}'):
        path.write_text(text)
        with pytest.raises(DataError, match=re.escape(f"{path}: ")):
            conda_records.Carriers(str(tmp_path))
    path.unlink()
    with pytest.raises(DataError, match=re.escape(f"{path}: ")):
        conda_records.Carriers(str(tmp_path))


@pytest.mark.parametrize(
    ("fields", "cuda", "sass", "made_by"),
    [
        ({}, (12, 8), ("80", "90"), (12, 8)),
        ({"channel": "https://mirror.example/main"}, (12, 8), ("80", "90"), (12, 8)),
        ({"channel": "https://x.example/pytorch"}, (12, 8), None, None),
        ({"channel": "https://x.example/pytorch", "build": DOTTED}, (12, 4), ("70",), (11, 8)),
        ({"channel": "https://mirror.example/main", "build": DOTTED}, (12, 4), ("70",), (11, 8)),
        ({"build": DOTTED}, (12, 4), None, None),
        ({"version": "2.7.1"}, (12, 8), None, None),
        ({}, (11, 8), None, None),
        ({"subdir": "win-64"}, (12, 8), None, None),
        ({"name": "numpy"}, (12, 8), None, None),
    ],
)
def test_the_device_code_of_a_conda_build(
    carriers: conda_records.Carriers,
    fields: Mapping[str, Any],
    cuda: tuple[int, int],
    sass: tuple[str, ...] | None,
    made_by: tuple[int, int] | None,
) -> None:
    record = conda_record(**fields)
    code = carriers.code(record, cuda)
    assert (code.sass, code.made_by) == (sass, made_by)
    release = f"{record['name']} {record['version']} for CUDA {cuda[0]}.{cuda[1]}"
    assert code.source == ("a recipe" if sass else f"no row of {release}")
    without = carriers.code(record, None)
    assert (without.sass, without.ptx) == ((), ()) and "CPU build" in without.source


@pytest.mark.parametrize(
    ("fields", "cudnn", "bundled"),
    [
        ({"depends": ["libgcc", "cudnn >=9.1,<10"]}, "9.1", False),
        ({"depends": ["libcudnn >=9.2"], "build": DOTTED}, "9.2", False),
        ({"build": DOTTED}, "9.1.0", True),
        ({"depends": None}, None, False),
    ],
)
def test_the_cudnn_of_a_conda_build(
    fields: Mapping[str, Any], cudnn: str | None, bundled: bool
) -> None:
    assert conda_records.cudnn_of(conda_record(**fields)) == (cudnn, bundled)


@pytest.mark.parametrize(
    ("depends", "constrains", "least", "toolkit"),
    [
        (["libgcc", "__cuda >=12.4"], [], "12.4", None),
        ([], ["__glibc", "__cuda >=11"], "11", None),
        (["__cuda"], ["__cuda >=12"], "", None),
        (["libgcc", "cuda-version >=12.6,<13"], [], None, (12, 6)),
        (["cuda-version", "cudatoolkit >=11"], [], None, (11, 0)),
        (None, None, None, None),
    ],
)
def test_the_cuda_that_a_record_depends_on(
    depends: list[str] | None,
    constrains: list[str] | None,
    least: str | None,
    toolkit: tuple[int, int] | None,
) -> None:
    record = conda_record(depends=depends, constrains=constrains)
    assert conda_records.least_cuda(record) == least
    assert conda_records.cuda_dependency(record) == toolkit


def test_the_toolkit_that_a_record_stands_for() -> None:
    cases = {"cuda-version": (12, 8), "cudatoolkit": (12, 8), "pytorch-cuda": (12, 8), "x": None}
    for name, cuda in cases.items():
        assert conda_records.toolkit_of(conda_record(name=name, version="12.8.1")) == cuda
    assert conda_records.toolkit_of(conda_record(name="cuda-version", version="x")) is None


CUDA_BUILD = {"build": "cuda128_py312_h1_0"}
CPU_BUILD = {"build": "cpu_py312_h1_0"}
PASCAL = host((6, 1), driver="570.86.10", driver_cuda=(12, 8))


@pytest.mark.parametrize(
    ("fields", "device", "codes"),
    [
        (CUDA_BUILD, H100, []),
        (CUDA_BUILD, host(), ["cuda-build"]),
        (CPU_BUILD, host(), []),
        (CPU_BUILD, H100, ["cpu-build"]),
        (CUDA_BUILD, PASCAL, ["no-code-for-device"]),
        (CUDA_BUILD, host((8, 0), driver="450.80.02", driver_cuda=(11, 0)), ["driver-floor"]),
        # The driver is newer than the data: a doubt about the data, not about the build.
        (CUDA_BUILD, H100.replace(driver="999.1", driver_cuda=None), []),
        (
            CUDA_BUILD,
            PASCAL.replace(driver="590.1"),
            ["gpu-dropped-by-driver", "no-code-for-device"],
        ),
        (CPU_BUILD, PASCAL.replace(driver="590.1"), ["cpu-build"]),
        ({**CUDA_BUILD, "version": "2.0"}, H100, ["code-unknown"]),
    ],
)
def test_the_reasons_against_a_conda_build(
    carriers: conda_records.Carriers, fields: Mapping[str, Any], device: Host, codes: list[str]
) -> None:
    row = carriers.row(conda_record(**fields), "torch")
    found = conda_parts.row_reasons(row, device, DATA)
    assert [reason.code for reason in found] == codes
    lock = conda_parts.lock_reasons([conda_record(**fields)], device, DATA, carriers)
    # The author of a lock may have wanted a CPU build.
    expected = {*codes} - {"cpu-build"}
    own = {reason.code for reason in lock} - {"driver-branch-unknown"}
    assert own - {"cudnn-unknown", "gpu-unused"} == expected


def test_the_parts_of_conda_records(carriers: conda_records.Carriers) -> None:
    records = [
        conda_record(**CUDA_BUILD, depends=["cudnn >=9.1"]),
        conda_record(name="cuda-version", version="12.8"),
        conda_record(name="jax", version="0.8.0"),
        conda_record(name="jaxlib", version="0.8.0", **CPU_BUILD),
        conda_record(name="cudnn", version="9.10.2.21"),
        conda_record(name="libcublas", version="12.8.4.1", depends=["cuda-version >=12.8"]),
        conda_record(name="numpy", version="2.0"),
        conda_record(name="torch-scatter", version="2.1", build="py312_torch_2.8.0_cu128"),
    ]
    parts = conda_parts.parts_of_records(records, PLATFORM, DATA, carriers)
    assert [package.name for package in parts.packages] == [row["name"] for row in records]
    distributions = {one.name: one.distribution for one in parts.packages if one.distribution}
    assert distributions == {"cudnn": "nvidia-cudnn-cu12", "libcublas": "nvidia-cublas-cu12"}
    assert [(one.package.name, one.cuda) for one in parts.toolkits] == [("cuda-version", (12, 8))]
    builds = {one.package: (one.subject, one.build and one.build.cuda) for one in parts.builds}
    assert builds == {
        "pytorch": ("pytorch 2.8.0 (cuda128)", (12, 8)),
        "jaxlib": ("jaxlib 0.8.0 (cpu)", None),
    }
    pytorch, jaxlib = (one.build for one in parts.builds)
    assert pytorch is not None and (pytorch.cudnn, pytorch.variant) == ("9.1", "cuda128")
    assert jaxlib is not None and jaxlib.code.source == conda_parts.RECORD_SOURCE
    assert [one.package.name for one in parts.libraries] == ["cudnn", "libcublas"]
    assert parts.packages[-1].built_for == BuiltFor(release="2.8", cuda_major=12)
    assert all(package.built_for is None for package in parts.packages[:-1])


@pytest.mark.parametrize(
    ("keep", "replaced"), [((), "cudnn"), (("cudnn",), "pytorch"), (("cudnn", "pytorch"), "cudnn")]
)
def test_the_package_of_a_closure_that_is_replaced(
    carriers: conda_records.Carriers, keep: tuple[str, ...], replaced: str
) -> None:
    """A package that the user named is kept if another one can be replaced."""
    records = [
        conda_record(**CUDA_BUILD, depends=["cudnn >=9.10"]),
        conda_record(name="cuda-version", version="12.8", depends=["__win"]),
        conda_record(name="cudnn", version="8.9.7.29"),
    ]
    found = conda_parts.closure_reasons(
        records, H100, DATA, carriers, virtual=[("__cuda", "12.8", "0")], keep=keep
    )
    codes = {name: [reason.code for reason in reasons] for name, reasons in found.items()}
    assert codes["cuda-version"] == ["virtual-package"]
    assert "cudnn-version" in codes[replaced]
    assert sum("cudnn-version" in one for one in codes.values()) == 1


def test_a_closure_leaves_out_what_was_decided_before(carriers: conda_records.Carriers) -> None:
    records = [conda_record(**CPU_BUILD), conda_record(name="jaxlib", **CUDA_BUILD)]
    device = H100.replace(driver=None, driver_cuda=None)
    for one in (device, host()):
        found = conda_parts.closure_reasons(records, one, DATA, carriers, virtual=[])
        codes = {reason.code for reasons in found.values() for reason in reasons}
        assert not codes & {"cpu-build", "gpu-unused", "driver-unknown"}


@pytest.mark.parametrize(
    ("name", "version", "device", "codes"),
    [
        ("cuda-version", "12.8", H100, []),
        ("cuda-version", "13.0", H100, ["driver-floor"]),
        ("cuda-version", "13.0", host(), []),
        ("numpy", "13.0", H100, []),
    ],
)
def test_a_toolkit_of_conda_needs_a_driver(
    name: str, version: str, device: Host, codes: list[str]
) -> None:
    record = conda_record(name=name, version=version)
    found = conda_parts.toolkit_reasons(record, device, DATA)
    assert [reason.code for reason in found] == codes
    assert all(reason.subject == f"{name} {version}" for reason in found)


# ---- what variants and extensions name -----------------------------------------------------------


UPPER = "cuda_version_upper_bound"


@pytest.mark.parametrize(
    ("features", "lower", "upper", "sass", "ptx", "unreadable"),
    [
        ({"sm_arch": ("90_real", "80_real", "90_virtual")}, None, None, "80 90", "90", ()),
        ({"cuda_version_lower_bound": ("12.8", "12")}, ((12, 0), (12, 8)), None, None, "", ()),
        ({"cuda_version_upper_bound": ("13.0",)}, None, ((13, 0),), None, "", ()),
        ({"sm_arch": ("90", "x_real")}, None, None, None, "", ("sm_arch 90 or x_real",)),
        ({"sm_arch": ("90", "80_real")}, None, None, "80", "", ()),
        ({"cuda_version_upper_bound": ("x",)}, None, None, None, "", (f"{UPPER} x",)),
        ({"color": ("12.8",)}, None, None, None, "", ("color 12.8",)),
    ],
)  # fmt: skip
def test_what_a_variant_says_about_the_gpu(  # noqa: PLR0917  a case
    features: Mapping[str, tuple[str, ...]],
    lower: object,
    upper: object,
    sass: str | None,
    ptx: str,
    unreadable: tuple[str, ...],
) -> None:
    rows = tuple(("nvidia", feature, values) for feature, values in features.items())
    other = ("x86_64", "level", ("v3",))
    claims = variants.nvidia_claims(WheelVariant(name="x", label="l", properties=(*rows, other)))
    assert claims is not None
    assert (claims.lower, claims.upper, claims.unreadable) == (lower, upper, unreadable)
    if sass is None:
        assert claims.code is None
    else:
        assert claims.code is not None and claims.code.made_by is None
        assert (claims.code.sass, claims.code.ptx) == (tuple(sass.split()), tuple(ptx.split()))
    assert variants.nvidia_claims(WheelVariant(name="x", label="l", properties=(other,))) is None


def test_the_oldest_bound_stands_for_the_toolkit_of_the_ptx() -> None:
    rows = (
        ("nvidia", "cuda_version_lower_bound", ("12.8", "12.4")),
        ("nvidia", "sm_arch", ("90_virtual",)),
    )
    claims = variants.nvidia_claims(WheelVariant(name="x", label="l", properties=rows))
    assert claims is not None and claims.code is not None
    assert claims.code.made_by == (12, 4) and "variant l" in claims.code.source


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
    ("namespace", "feature", "machine", "cpu", "suitable"),
    [
        ("x86_64", "level", "x86_64", "", "v4 v3 v2 v1"),
        ("x86_64", "level", "x86_64", "sse3", "v1"),
        ("x86_64", "level", "aarch64", "", ""),
        ("aarch64", "version", "aarch64", "", "8a 9a"),
        ("aarch64", "version", "aarch64", "sve", "8a"),
        ("x86_64", "aes", "x86_64", "", "on"),
        ("x86_64", "aes", "x86_64", "aes", "on"),
        ("x86_64", "aes", "x86_64", "sse3", ""),
        ("x86_64", "aes", "aarch64", "aes", ""),
    ],
)
def test_the_values_that_suit_a_cpu(
    namespace: str, feature: str, machine: str, cpu: str, suitable: str
) -> None:
    values = {"level": ["v1", "v3", "v2", "v4", "v9"], "version": ["8a", "9a"]}
    device = host().replace(machine=machine, cpu=tuple(cpu.split()))
    found = variants.suitable_values(namespace, feature, values.get(feature, ["on", "off"]), device)
    assert found == tuple(suitable.split())
    for value in ("v1", "v3", "8a", "9a"):
        always = (namespace, value) in {("x86_64", "v1"), ("aarch64", "8a")}
        assert variants.is_cpu_known(namespace, value, device) is (always or bool(cpu))


def test_the_values_that_the_provider_of_nvidia_supports() -> None:
    values = ["90_real", "89_real", "86_real", "80_real", "80_virtual", "86_virtual", "75_real"]
    found = variants.provider_sm_values(values, (8, 6))
    assert found == ("86_real", "80_real", "80_virtual")


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
