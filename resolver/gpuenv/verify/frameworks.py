"""What a framework's probe answered, as checks: its import, its convolutions, the libraries that it mapped."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from ..model import Check, Lock, show_pair
from . import loader
from .runner import Outcome

SHOWN = 4  # libraries in a check's evidence

# What a device or its host lacks at the moment, whatever is installed: texts of CUDA's, cuDNN's and XLA's.
_NOT_ITS_FAULT = re.compile(
    r"out of memory|OUT_OF_MEMORY|RESOURCE_EXHAUSTED|cudaErrorMemoryAllocation|ALLOC_FAILED|busy or unavailable|"
    r"DevicesUnavailable|DEVICE_UNAVAILABLE|system not (yet )?initialized|SystemNotReady|SYSTEM_NOT_READY|"
    r"uncorrectable|EccUncorrectable|ECC_UNCORRECTABLE|system has unsupported display driver|SYSTEM_DRIVER_MISMATCH|"
    r"SystemDriverMismatch|MpsConnectionFailed|MPS_CONNECTION_FAILED|GPU is lost|operation not permitted",
    re.IGNORECASE,
)


def framework_checks(
    name: str, outcome: Outcome, *, lock: Lock | None, survey: dict[str, Any], visible: int, origins: loader.Origins
) -> list[Check]:
    """The checks of one framework; `visible` GPUs are there for it (0: none is touched)."""
    answer = outcome.answer
    if answer is None:
        # A child that never started, or that the kernel killed, says nothing of the environment.
        open_ = outcome.ended == "late" or outcome.failure.startswith("killed by SIGKILL")
        return [_check(name, "import", "unknown" if open_ else "fail", outcome.failure, outcome.seconds)]
    checks = [_import_check(name, answer, lock, outcome.seconds)]
    if "cpu" in answer:
        checks.append(_run_check(name, "CPU", [answer["cpu"]]))
    if visible:
        checks += _device_checks(name, answer, visible, asked=lock is not None)
    return [*checks, _library_check(name, answer.get("mapped", ()), lock, survey, origins)]


def _library_check(
    name: str, mapped: Sequence[str], lock: Lock | None, survey: dict[str, Any], origins: loader.Origins
) -> Check:
    """Where everything that is mapped came from.

    A foreign library of which the environment has its own is a fault. One that it does not have at all is a fault in
    an environment made from a lock, whose packages bring everything; any other may be meant to use the system's.
    """
    prefixes = (survey["interpreter"]["prefix"], survey["interpreter"]["platlib"])
    paths = [path for path, _ in survey["libraries"]]
    foreign = loader.strangers(mapped, prefixes, {os.path.realpath(path) for path in paths}, origins)
    stems = {_stem(path) for path in paths}
    wrong = [told for told in foreign if lock is not None or _stem(told.partition(", from ")[0]) in stems]
    if wrong:
        return _check(name, "libraries", "fail", f"not the environment's: {'; '.join(wrong[:SHOWN])}")
    if foreign:
        evidence = f"the environment has none of its own: {'; '.join(foreign[:SHOWN])}"
        return _check(name, "libraries", "unknown", evidence)
    if not mapped:
        return _check(name, "libraries", "pass", "no library of CUDA's is mapped")
    return _check(name, "libraries", "pass", f"all the environment's: {loader.whereabouts(mapped, prefixes)}")


def _stem(path: str) -> str:
    """libcudart of /usr/lib/libcudart.so.13."""
    return os.path.basename(path).partition(".so")[0]


def _import_check(name: str, answer: dict[str, Any], lock: Lock | None, seconds: float) -> Check:
    parts = [f"{name} {answer['version']}"]
    if answer.get("cuda"):
        parts.append(f"CUDA {answer['cuda']}")
    elif "cuda" in answer and "aside" not in answer:
        parts.append("a build for the CPU")
    if answer.get("cudnn"):
        parts.append(f"cuDNN {loader.release_text(int(answer['cudnn']))}")
    wrong = [str(answer[key]) for key in ("cudnn_failure",) if key in answer]
    choice = next((one for one in lock.choices if one.framework == name), None) if lock is not None else None
    if choice is not None and answer["version"].partition("+")[0] != choice.version:
        wrong.append(f"the lock says {choice.version}")
    if choice is not None and "cuda" in answer and not _same_cuda(answer["cuda"], choice.cuda):
        wrong.append(f"the lock says {'CUDA ' + show_pair(choice.cuda) if choice.cuda else 'no CUDA'}")
    pinned = pinned_cudnn(lock, {}) if lock is not None else None
    if pinned is not None and answer.get("cudnn") and not loader.is_release(int(answer["cudnn"]), pinned):
        wrong.append(f"the lock says cuDNN {pinned}")
    if wrong:
        return _check(name, "import", "fail", f"{', '.join(parts)}: {'; '.join(wrong)}", seconds)
    return _check(name, "import", "pass", ", ".join(parts), seconds)


def _same_cuda(text: str | None, want: tuple[int, int] | None) -> bool:
    """Whether "13.0" or "13" is (13, 0), and None is None. Some frameworks know of the major version only."""
    if want is None or not text:
        return want is None and not text
    have = [int(part) for part in re.findall("[0-9]+", text)[:2]]
    return have == list(want)[: len(have)]


def _device_checks(name: str, answer: dict[str, Any], visible: int, *, asked: bool) -> list[Check]:
    """`asked`: a lock says what should be there, and the import check has compared it."""
    if "aside" in answer:
        return [_check(name, "GPU", "unknown", f"not tried on a GPU: {answer['aside']}")]
    if "device_failure" in answer:
        return [_check(name, "GPU", _blame(answer["device_failure"]), answer["device_failure"])]
    if "devices" not in answer:
        return [_check(name, "GPU", "unknown", "only imported: there is no probe for it")]
    if answer.get("cuda", "") is None:
        # Whether it should be one, the lock says; without one the metadata may not show what it is.
        evidence = "a build for the CPU: nothing of it ran on a GPU"
        return [] if asked else [_check(name, "GPU", "unknown", evidence)]
    devices = answer["devices"]
    engines = None if "without_cudnn" in answer else loader.engines(answer.get("mapped", ()))
    checks = []
    for device in devices:
        subject = f"GPU {device['index']} {device.get('name', '')}".rstrip()
        if "failure" in device:
            checks.append(_check(name, f"convolution {subject}", _blame(device["failure"]), device["failure"]))
        else:
            checks.append(_run_check(name, subject, device["runs"], engines, answer.get("without_cudnn", "")))
    if len(devices) < visible:
        evidence = f"{name} sees {len(devices)} of {visible} devices"
        checks.append(_check(name, "GPU", "fail", evidence))
    return checks


def _blame(failure: str) -> str:
    """The status of a failure on a device: what the device or the host lacks is not the environment's fault."""
    return "unknown" if _NOT_ITS_FAULT.search(failure) else "fail"


def _run_check(
    name: str, subject: str, runs: Sequence[dict[str, Any]], engines: str | None = None, note: str = ""
) -> Check:
    """Convolutions on one device. NaN is no error that is small enough.

    `engines` are those of cuDNN that are mapped after them; with "" it is not known what computed them. With None
    nothing is said of cuDNN but the `note`.
    """
    told, good = [], bool(runs)
    for one in runs:
        right = one["error"] <= one["tolerance"]
        good = good and right
        sign = "<=" if right else ">"
        times = f"first {one['first_s'] * 1e3:.1f} ms, then {one['steady_s'] * 1e3:.3f} ms"
        told.append(f"{one['what']}: error {one['error']:.1e} {sign} {one['tolerance']:.0e}, {times}")
    seconds = sum(one["first_s"] for one in runs)
    status = "fail" if not good else "unknown" if engines == "" else "pass"
    if engines is not None:
        told.append(f"by cuDNN ({engines})" if engines else "no engine of cuDNN was mapped: it may not be its work")
    return _check(name, f"convolution {subject}", status, "; ".join([*told, note] if note else told), seconds)


def _check(name: str, subject: str, status: str, evidence: str, seconds: float = 0.0) -> Check:
    return Check(name=name, subject=subject, status=status, evidence=evidence, seconds=round(seconds, 3))


def pinned_cudnn(lock: Lock | None, survey: dict[str, Any]) -> str | None:
    """The cuDNN version that should be there: the lock's, or that of the installed distribution."""
    if lock is not None:
        pins = [(pin.wheel.name, pin.wheel.version) for pin in lock.pins]
    else:
        pins = [(row["name"], row["version"]) for row in survey["distributions"]]
    return next((version for name, version in pins if name.startswith("nvidia-cudnn-cu")), None)
