"""What a framework's probe answered, as checks: its import, its convolutions, the libraries that it mapped."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..model import Check, Lock, show_pair
from . import loader
from .children import Outcome


def framework_checks(
    name: str, outcome: Outcome, *, lock: Lock | None, survey: dict[str, Any], visible: int, origins: loader.Origins
) -> list[Check]:
    """The checks of one framework; `visible` GPUs are there for it (0: none is touched)."""
    answer = outcome.answer
    if answer is None:
        return [_check(name, "import", "fail", outcome.failure, outcome.seconds)]
    checks = [_import_check(name, answer, lock, outcome.seconds)]
    if "cpu" in answer:
        checks.append(_run_check(name, "CPU", [answer["cpu"]]))
    if visible:
        checks += _device_checks(name, answer, visible)
    mapped = answer.get("mapped", ())
    prefixes = (survey["interpreter"]["prefix"], survey["interpreter"]["platlib"])
    owned = {os.path.realpath(path) for path, _ in survey["libraries"]}
    foreign = loader.strangers(mapped, prefixes, owned, origins)
    if foreign:
        checks.append(_check(name, "libraries", "fail", f"not the environment's: {'; '.join(foreign[:4])}"))
    else:
        evidence = loader.whereabouts(mapped, prefixes)
        checks.append(_check(name, "libraries", "pass", f"all the environment's: {evidence}"))
    return checks


def _import_check(name: str, answer: dict[str, Any], lock: Lock | None, seconds: float) -> Check:
    parts = [f"{name} {answer['version']}"]
    if answer.get("cuda"):
        parts.append(f"CUDA {answer['cuda']}")
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
    """Whether "13.0" is (13, 0), and None is None."""
    have = tuple(int(part) for part in text.split(".")[:2]) if text else None
    return have == want


def _device_checks(name: str, answer: dict[str, Any], visible: int) -> list[Check]:
    if "device_failure" in answer:
        return [_check(name, "GPU", "fail", answer["device_failure"])]
    if answer.get("cuda", "") is None:
        return []  # a build for the CPU: whether it should be one, the lock says, and the import check with it
    devices = answer.get("devices", [])
    engines = loader.engines(answer.get("mapped", ()))
    checks = []
    for device in devices:
        subject = f"GPU {device['index']} {device.get('name', '')}".rstrip()
        if "failure" in device:
            checks.append(_check(name, subject, "fail", device["failure"]))
        else:
            checks.append(_run_check(name, subject, device["runs"], engines))
    if len(devices) < visible:
        evidence = f"{name} sees {len(devices)} of {visible} devices"
        checks.append(_check(name, "GPU", "fail", evidence))
    return checks


def _run_check(name: str, subject: str, runs: Sequence[dict[str, Any]], engines: str | None = None) -> Check:
    """Convolutions on one device. NaN is no error that is small enough.

    `engines` are those of cuDNN that are mapped after them; with "" it is not known what computed them.
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
    return _check(name, f"convolution {subject}", status, "; ".join(told), seconds)


def _check(name: str, subject: str, status: str, evidence: str, seconds: float = 0.0) -> Check:
    return Check(name=name, subject=subject, status=status, evidence=evidence, seconds=round(seconds, 3))


def pinned_cudnn(lock: Lock | None, survey: dict[str, Any]) -> str | None:
    """The cuDNN version that should be there: the lock's, or that of the installed distribution."""
    if lock is not None:
        pins = [(pin.wheel.name, pin.wheel.version) for pin in lock.pins]
    else:
        pins = [(row["name"], row["version"]) for row in survey["distributions"]]
    return next((version for name, version in pins if name.startswith("nvidia-cudnn-cu")), None)
