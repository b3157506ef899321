"""The rules of builds: one for the CPU, one for another GPU, and what the name of a release says of a build."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..compat.architectures import sass_runs
from .catalog import capability_of, compilers, releases_before
from .facts import Case, Finding
from .model import Fact
from .status_codes import pair

HALF = (7, 0)  # the first capability whose GPUs compute in half precision as fast as CTranslate2 and others want it
MINOR = (11, 0)  # from that CUDA on a driver serves later minor versions of its own major version
# GPUs before the tables' first: Fermi and the first Kepler.
_EARLY = re.compile(r"(?i)(?:GTX? ?[456]\d\d|GT ?7[0-4]\d|Quadro (?:\d00|\d000|K\d{3,4})|Tesla [CM]20\d\d)M?\b")


def for_cpu(case: Case) -> Iterator[Finding]:
    """A build for the CPU, which is a fault where it was not meant; it shows, too, where a program takes the CPU."""
    built = [each for each in case.every("cuda-built") if each.from_log]
    gpus = case.every("gpu")
    took = case.symptom("took-cpu") if gpus else []
    unmeant = case.symptom("cuda-unavailable", "cuda-asked") or took
    for each in built:
        known = unmeant or (case.every("gpu", "driver", "toolkit") if each.subject == "jax" else [])
        if each.value == "none" and known:
            yield "cpu_only_build", "likely", [each, known[0]]
    if took and not any(each.value != "none" for each in built):
        served = [one for one in gpus if (_capability(one.value) or (0, 0)) >= HALF]
        if served and not case.every("driver"):
            # Every GPU since Volta has half precision, and CPUs have not.
            refused = any("float16" in each.text for each in took)
            yield "cpu_only_build", "likely" if refused else "possible", [took[0], served[0]]


def against_host(case: Case) -> Iterator[Finding]:
    """A build's CUDA against the driver's newest one, and against the GPUs that its compiler knows."""
    built = {pair(each.value): each for each in case.every("cuda-built") if each.from_log and each.value != "none"}
    built.pop((), None)
    failed = case.faults() or case.symptom("cuda-unavailable", "took-cpu")
    if not built or not failed:
        return
    first, last = min(built), max(built)
    for each in case.every("driver-cuda"):
        newest = pair(each.value)
        if each.from_log and newest and (first[0] > newest[0] or newest < first < MINOR):
            sure = "likely" if case.symptom("cuda-unavailable") else "possible"
            yield "driver_too_old", sure, [built[first], each]
            break
    known = _range_of(last)
    for each in case.every("gpu"):
        capability = _capability(each.value)
        if known and capability and capability[0] > known[1][0]:  # a later minor version is served
            yield "gpu_too_new_for_build", "likely", [each, built[last]]
            break


def _range_of(cuda: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The first and the last compute capability that a CUDA release's compiler serves, None where it is not known."""
    ranges = [(least, most) for since, least, most in compilers() if cuda >= since]
    return ranges[-1] if ranges else None


def architectures(case: Case) -> Iterator[Finding]:
    """A build without code for the GPU: is the GPU newer or older than what it serves?"""
    yield from _out_of_range(case)
    failed = case.test("architecture", "fail")
    missing = case.every("architecture-missing") + ([failed] if failed else [])
    if not missing:
        return
    known = {one.value: one for one in case.every("architectures")}
    served = [pair(each) for one in known.values() for each in one.value.split()]
    told = [(pair(one.value), one) for one in case.every("capability")]
    devices = [((numbers[0], numbers[1]), one) for numbers, one in told if len(numbers) > 1]
    devices += [(capability, one) for one in case.every("gpu") if (capability := _capability(one.value))]
    targets = {each.replace(".", "") for one in known.values() for each in one.value.split()}
    # One that the build has code for is not what it is about.
    devices = [one for one in devices if not any(sass_runs(target, one[0]) for target in targets)]
    device = next(iter(devices), None)
    sure = "proved" if failed or len(missing) > 1 or served else "likely"
    facts = missing[:2] + ([device[1]] if device else []) + list(known.values())[:1]
    if device is None:
        yield "gpu_too_new_for_build", "possible", facts  # builds drop an architecture more rarely than GPUs appear
        yield "gpu_too_old_for_build", "possible", facts
    elif not served and (found := _beyond_compiler(case, device[0])):
        yield found[0], sure, [*facts, found[1]]
    elif device[0] > max(served, default=(7, 5)):
        yield "gpu_too_new_for_build", sure, facts
    else:
        yield "gpu_too_old_for_build", sure, facts


def _capability(name: str) -> tuple[int, int] | None:
    """The compute capability of a GPU by its name: of the tables, or of the time before them."""
    found = capability_of(name)
    if found is None and "GTX" in name.upper():
        found = capability_of(re.sub("(?i)GTX", "RTX", name))  # people mix them up
    return found or ((3, 0) if _EARLY.search(name) else None)


def _beyond_compiler(case: Case, device: tuple[int, ...]) -> tuple[str, Fact] | None:
    """Whether the CUDA release that is named does not serve a GPU, and in which direction."""
    told = case.first("toolkit")
    known = _range_of(pair(told.value)) if told else None
    if told is None or known is None:
        return None
    if device > known[1]:
        return "gpu_too_new_for_build", told
    return ("gpu_too_old_for_build", told) if device < known[0] else None


def releases(case: Case) -> Iterator[Finding]:
    """What the release of a framework says by itself: of its CUDA, of Windows, and of a GPU that came after it."""
    unseen = case.symptom("cuda-unavailable")
    of = _versions(case)
    if unseen and "tensorflow" in of:
        version, told = of["tensorflow"]
        windows, toolkit = case.first("os", "windows"), case.first("toolkit")
        built = next((cuda for before, cuda in releases_before("tensorflow") if version < before), None)
        if version >= (2, 11) and windows and not case.first("wsl", "yes"):
            yield "cpu_only_build", "likely", [told, windows, unseen[0]]
        elif built and toolkit and pair(toolkit.value)[: len(built)] != built:
            yield "cuda_major_mismatch", "likely", [told, toolkit, unseen[0]]
    failed = [one for one in case.every("status") if one.subject in ("cudnn", "cublas", "cusolver", "cufft")]
    failed += case.symptom("launch", "cudnn-start", "cudnn-call")
    if failed and not case.every("out-of-memory", "architecture-missing"):
        devices = [(_capability(one.value), one) for one in case.every("gpu")]
        for name, (version, told) in of.items():
            most = next((most for before, most in releases_before("newest", name) if version < before), None)
            late = [one for capability, one in devices if most and capability and capability > most]
            if late:
                yield "gpu_too_new_for_build", "likely", [failed[0], told, late[0]]


def _versions(case: Case) -> dict[str, tuple[tuple[int, ...], Fact]]:
    """The latest release of each framework that is named."""
    found: dict[str, tuple[tuple[int, ...], Fact]] = {}
    for each in case.every("version"):
        version = pair(each.value)
        if each.subject not in found or found[each.subject][0] < version:
            found[each.subject] = (version, each)
    return found


def _out_of_range(case: Case) -> Iterator[Finding]:
    """A GPU outside of the range that a build states; a later minor version is served by code for an earlier one."""
    for each in case.every("architecture-range"):
        device, least, most = (pair(one) for one in each.value.split(" "))
        if device < least:
            yield "gpu_too_old_for_build", "proved", [each]
        elif device[:1] > most[:1]:
            yield "gpu_too_new_for_build", "proved", [each]
