"""Checks of a framework by the answer of its probe: its import, its convolutions, its libraries."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence

from ..loader_env import is_driver_library
from ..model import Check, Gpu, Lock, gpu_label, show_pair
from ..probes._common import cudnn_text
from ..probes.answers import FrameworkAnswer, Run
from ..requirements.versions import public
from . import loader
from .linkage import base_stem, family
from .loader import Place
from .runner import Outcome

SHOWN = 4  # libraries in the evidence of a check

# Texts of CUDA, cuDNN and XLA for a fault of the device or the host at this moment, whatever is
# installed.
_HOST_FAULT = re.compile(
    r"out of memory|OUT_OF_MEMORY|RESOURCE_EXHAUSTED|cudaErrorMemoryAllocation|ALLOC_FAILED|"
    r"busy or unavailable|DevicesUnavailable|DEVICE_UNAVAILABLE|"
    r"system not (yet )?initialized|SystemNotReady|SYSTEM_NOT_READY|"
    r"uncorrectable|EccUncorrectable|ECC_UNCORRECTABLE|"
    r"system has unsupported display driver|SYSTEM_DRIVER_MISMATCH|SystemDriverMismatch|"
    r"MpsConnectionFailed|MPS_CONNECTION_FAILED|GPU is lost|operation not permitted",
    re.IGNORECASE,
)


def framework_checks(name: str, outcome: Outcome, gpus: Sequence[Gpu], place: Place) -> list[Check]:
    """Return the checks of one framework.

    `gpus` are those that it should use; (): none is touched.
    """
    if outcome.answer is None:
        # A child that was not started, or that the kernel killed, says nothing about the
        # environment.
        undecided = outcome.ended == "late" or outcome.failure.startswith("killed by SIGKILL")
        status = "unknown" if undecided else "fail"
        return [Check(name, "import", status, outcome.failure, seconds=outcome.seconds)]
    answer: FrameworkAnswer = outcome.answer
    summary = _build_text(name, answer)
    wrong = [answer["cudnn_failure"]] if "cudnn_failure" in answer else []
    if "numpy_failure" in answer:
        wrong.append(
            f"no Tensor.numpy() with numpy {place.survey.versions.get('numpy', '')}: "
            f"{answer['numpy_failure']}"
        )
    if place.lock is not None:
        wrong += _differences(name, answer, place.lock, place.expected_cudnn)
    status = "fail" if wrong else "pass"
    evidence = f"{summary}: {'; '.join(wrong)}" if wrong else summary
    checks = [Check(name, "import", status, evidence, seconds=outcome.seconds)]
    if "cpu" in answer:
        checks.append(_run_check(name, "CPU", [answer["cpu"]]))
    if gpus:
        checks += _device_checks(name, answer, gpus, place.lock)
    return [*checks, _library_check(name, answer.get("mapped", ()), place)]


# ---- libraries ----------------------------------------------------------------------------------


def _library_check(name: str, mapped: Sequence[str], place: Place) -> Check:
    """Check where all mapped libraries came from.

    A foreign library that the environment has, too, is a fault. One that the environment lacks is a
    fault only in an environment that was made from a lock, whose packages bring everything; another
    environment may be meant to use the system's.
    """
    survey, origins = place.survey, place.origins
    prefixes = (survey.interpreter["prefix"], survey.interpreter["platlib"])
    # Real paths: an environment may have links into a package cache, or see the system's packages.
    owned = {os.path.realpath(path) for path in survey.libraries}
    for path in filter(loader.is_driver_stub, mapped):
        evidence = f"{path}, from {origins.of(path, mapped)}, is a stub of the driver's library"
        return Check(name, "libraries", "fail", f"{evidence}: programs are only linked with it")
    of_system = {family(file) for files in place.system.values() for file in files}
    own = [path for path in mapped if family(os.path.basename(path)) not in of_system]
    foreign = [
        loader.Foreign(path, origins.of(path, own))
        for path in own
        if not is_driver_library(os.path.basename(path))
        and not _inside(path, prefixes)
        and os.path.realpath(path) not in owned
    ]
    stems = {base_stem(os.path.basename(path)) for path in survey.libraries}
    wrong = foreign
    if place.lock is None:
        wrong = [file for file in foreign if base_stem(os.path.basename(file.what)) in stems]
    if wrong:
        evidence = f"not the environment's: {'; '.join(map(str, wrong[:SHOWN]))}"
        return Check(name, "libraries", "fail", evidence)
    if foreign:
        texts = "; ".join(map(str, foreign[:SHOWN]))
        evidence = f"the environment has none of its own: {texts}"
        return Check(name, "libraries", "unknown", evidence)
    if not mapped:
        return Check(name, "libraries", "pass", "no CUDA library is mapped")
    owner = "the environment's"
    if own != list(mapped):
        owner += ", or of the system as intended"
    counts = Counter(_source(path, prefixes) for path in mapped)
    sources = ", ".join(f"{count} {source}" for source, count in counts.items())
    return Check(name, "libraries", "pass", f"all {owner}: {sources}")


def _inside(path: str, prefixes: Sequence[str]) -> list[str]:
    """Return the folders of an environment that a file is in."""
    return [prefix for prefix in prefixes if loader.is_inside(path, prefix)]


def _source(path: str, prefixes: Sequence[str]) -> str:
    """Return the folder that a library came from, and whether it is the driver's."""
    folder, file_name = os.path.split(path)
    if is_driver_library(file_name):
        return f"of the driver in {folder}"
    inside = _inside(path, prefixes)
    return f"from {os.path.relpath(folder, inside[-1]) if inside else folder}"


# ---- import -------------------------------------------------------------------------------------


def _build_text(name: str, answer: FrameworkAnswer) -> str:
    """Return "torch 2.13.0, CUDA 13.0, cuDNN 9.20.0", as far as it is known."""
    parts = [f"{name} {answer['version']}"]
    cudnn = answer.get("cudnn")
    if answer.get("cuda"):
        parts.append(f"CUDA {answer['cuda']}")
    elif "cuda" in answer and "aside" not in answer:
        parts.append("a CPU build")
    if cudnn:
        parts.append(f"cuDNN {cudnn_text(cudnn)}")
    return ", ".join(parts)


def _differences(
    name: str, answer: FrameworkAnswer, lock: Lock, expected_cudnn: str | None
) -> list[str]:
    """Return what the framework reports otherwise than the lock."""
    texts = []
    for choice in [choice for choice in lock.choices if choice.framework == name][:1]:
        if public(answer["version"]) != choice.version:
            texts.append(f"the lock says {choice.version}")
        is_for_cpu = choice.cuda is None and "for_cpus" in answer
        if "cuda" in answer and not is_for_cpu and not _same_cuda(answer["cuda"], choice.cuda):
            cuda = f"CUDA {show_pair(choice.cuda)}" if choice.cuda else "no CUDA"
            texts.append(f"the lock says {cuda}")
    cudnn = answer.get("cudnn")
    if expected_cudnn is not None and cudnn and not loader.is_release(cudnn, expected_cudnn):
        texts.append(f"the lock says cuDNN {expected_cudnn}")
    return texts


def _same_cuda(text: str | None, locked: tuple[int, int] | None) -> bool:
    """Return whether "13.0" or "13" is (13, 0), and None is None.

    Some frameworks know the major version only.
    """
    if locked is None or not text:
        return locked is None and not text
    version = [int(part) for part in re.findall("[0-9]+", text)[:2]]
    return version == list(locked)[: len(version)]


# ---- devices ------------------------------------------------------------------------------------


def _device_checks(
    name: str, answer: FrameworkAnswer, gpus: Sequence[Gpu], lock: Lock | None
) -> list[Check]:
    """Return the checks of the devices, or one check that says why none was tried."""
    if "aside" in answer:
        return [Check(name, "GPU", "unknown", f"not tried on a GPU: {answer['aside']}")]
    if "device_failure" in answer:
        failure = answer["device_failure"]
        return [Check(name, "GPU", failure_status(failure), failure)]
    if "devices" not in answer:
        return [Check(name, "GPU", "unknown", "only imported: it has no probe")]
    if answer.get("cuda", "") is None:
        if lock is not None:
            return []  # the import check has compared the build with the lock
        # Without a lock the metadata may not show whether a CUDA build is intended.
        return [Check(name, "GPU", "unknown", "a CPU build: nothing ran on a GPU")]
    checks = []
    for device in answer["devices"]:
        subject = f"{gpu_label(gpus, device['index'])} {device.get('name', '')}".rstrip()
        if "failure" in device:
            failure = device["failure"]
            status = failure_status(failure)
            checks.append(Check(name, f"convolution {subject}", status, failure))
        else:
            note = answer.get("without_cudnn", "")
            engines = None if note else loader.engines(answer.get("mapped", ()))
            checks.append(_run_check(name, subject, device["runs"], engines=engines, note=note))
    if len(answer["devices"]) < len(gpus):
        evidence = f"{name} sees {len(answer['devices'])} of {len(gpus)} devices"
        checks.append(Check(name, "GPU", "fail", evidence))
    return checks


def failure_status(failure: str) -> str:
    """Return the status of a failure on a device.

    A fault of the device or the host is not the environment's.
    """
    return "unknown" if _HOST_FAULT.search(failure) else "fail"


def _run_check(
    name: str, subject: str, runs: Sequence[Run], *, engines: str | None = None, note: str = ""
) -> Check:
    """Check the convolutions on one device. NaN never passes.

    Args:
        engines: the cuDNN engines that are mapped after the runs; "" if there are none, so that it
        is not known what
            computed them; None if cuDNN is not expected.
        note: more text for the evidence.
    """
    texts = []
    for run in runs:
        sign = "<=" if run["error"] <= run["tolerance"] else ">"
        times = f"first {run['first_s'] * 1e3:.1f} ms, then {run['steady_s'] * 1e3:.3f} ms"
        error = f"error {run['error']:.1e} {sign} {run['tolerance']:.0e}"
        texts.append(f"{run['what']}: {error}, {times}")
    status = "pass"
    if not runs or not all(run["error"] <= run["tolerance"] for run in runs):
        status = "fail"
    elif engines == "":
        status = "unknown"
    if engines:
        texts.append(f"by cuDNN ({engines})")
    elif engines == "":
        texts.append("no engine of cuDNN was mapped: cuDNN may not have computed it")
    if note:
        texts.append(note)
    seconds = round(sum(run["first_s"] for run in runs), 3)
    return Check(name, f"convolution {subject}", status, "; ".join(texts), seconds=seconds)
