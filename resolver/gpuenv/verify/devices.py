"""Checks of each device, from the probe `convolution`: the device itself, a cuDNN handle, and the convolutions.

What is the host's fault (driver, fabric, permissions, another user's memory) is said of the device and never of the
environment: it fails the check "device" where it is broken, and leaves it unknown where it passes by itself. Numbers of
the driver's results: cuda.h, CUresult.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..model import Check, Gpu, Host, Mark, Value
from . import loader
from .cudnn_log import told
from .runner import Outcome

NEED = 256 << 20  # bytes that must be free: cuDNN's kernels and workspaces take up to 200 MB
TIGHT = 4 << 30  # with less free memory than this the children would starve one another
MIB = 1 << 20
_UNAVAILABLE, _NO_DEVICE, _INVALID_DEVICE, _OUT_OF_MEMORY = 46, 100, 101, 2
_EXCLUSIVE, _PROHIBITED = {1, 3}, 2  # CUcomputemode
# CUresult -> (status of the check, what it means and what to do). {libcuda} is the path of the one that was loaded.
_HOST = {
    34: ("fail", "{libcuda} is the toolkit's stub and not the driver's library: take its folder off LD_LIBRARY_PATH"),
    214: ("fail", "the device has an ECC error that cannot be corrected: reset it or reboot (nvidia-smi -q -d ECC)"),
    220: ("fail", "NVLink has an error that cannot be corrected: see the kernel log (Xid) and reset the device"),
    304: ("fail", "the operating system refused a call: see the rights on /dev/nvidia* and the limits (ulimit)"),
    800: ("fail", "the operation is not permitted: this user or container has no right to the device"),
    802: ("fail", "the system is not ready: on NVSwitch machines the fabric manager (nvidia-fabricmanager, of the "
          "driver's own release) must run and have finished; see nvidia-smi -q, Fabric"),
    803: ("fail", "{libcuda} and the loaded kernel module are of different releases: reboot, or reload the module; in "
          "a container take the image's own libcuda away"),
    804: ("fail", "{libcuda} is a forward-compatibility library (cuda-compat), which this GPU or driver does not "
          "support: take its folder off the loader's path, or update the driver"),
    805: ("fail", "the MPS control daemon cannot be reached: start it, or unset CUDA_MPS_PIPE_DIRECTORY"),
    806: ("fail", "the MPS server broke the connection: restart it"),
    807: ("unknown", "the MPS server is not ready for new clients: try again"),
    808: ("unknown", "the MPS server has as many clients as it takes: try again"),
    809: ("unknown", "the MPS server has as many connections as it takes: try again"),
    999: ("fail", "unknown to the driver itself; often /dev/nvidia-uvm is missing (nvidia-modprobe -u), or a container "
          "lost its devices (restart it); see the kernel log (Xid)"),
}  # fmt: skip
# Problems of the detection that say nothing against the host: there is no device, or it is hidden on purpose.
_ABSENT = ("no-gpu", "driver-not-installed", "driver-libraries-missing", "devices-hidden", "nvml-binding-missing")
# Problems that leave devices out or make them doubtful while others are visible.
_DOUBTFUL = ("gpu-lost", "gpu-reset-required", "visible-device-missing", "device-order", "mig-no-instance",
             "no-permission", "nvml-unknown-error", "libcuda-missing")  # fmt: skip


class Place(Value):
    """Where the children ran: the host as it was detected, their variables, and the folder of the cuDNN."""

    host: Host
    env: Mapping[str, str]
    folder: str


def one_by_one(host: Host) -> bool:
    """Whether the children must take turns: a device that takes one process only, or has little memory free."""
    return any(
        (gpu.compute_mode or "").startswith("exclusive") or (gpu.memory_free is not None and gpu.memory_free < TIGHT)
        for gpu in host.gpus
    )


def is_broken(host: Host) -> bool:
    """Whether the detection met a fault, rather than no device or hidden ones."""
    return any(one.code not in _ABSENT for one in host.problems)


def all_checks(
    outcomes: Sequence[tuple[Outcome, tuple[str, ...]]], gpus: Sequence[Gpu], most: int | None, place: Place
) -> list[Check]:
    """The checks of every device, then cuDNN's own limit (`most`: cudnnGetMaxDeviceVersion) against them."""
    checks: list[Check] = []
    passed = []
    for ordinal, ((outcome, lines), gpu) in enumerate(zip(outcomes, gpus, strict=True)):
        found = device_checks(outcome, lines, f"GPU {ordinal}", gpu, place)
        passed.append(found[-1].name == "cudnn convolution" and found[-1].status == "pass")
        checks += found
    limit = capability_check(most, place.host, passed) if outcomes else None
    return [*checks, limit] if limit is not None else checks


def host_checks(host: Host, checks: Sequence[Check]) -> list[Check]:
    """What the detection says of the host where no device is visible, or not all are.

    `checks` are those so far: a device that the detection did not see may have been proved all the same.
    """
    if host.gpus:
        return [
            _check("device", one.code, "unknown", f"{one.detail}; the visible devices were checked; {one.hint}")
            for one in host.problems
            if one.code in _DOUBTFUL
        ]
    problem = "; ".join(f"{one.code}: {one.detail}" for one in host.problems) or "no GPU is visible"
    hint = next((f"; {one.hint}" for one in host.problems if one.hint and one.code not in _ABSENT), "")
    if any(one.name == "cudnn convolution" for one in checks):
        return [
            _check("device", "", "unknown", f"one device was checked, and which others are there is open: {problem}")
        ]
    status = "fail" if is_broken(host) else "unknown"
    return [_check("device", "", status, f"nothing ran on a GPU: {problem}{hint}")]


def device_checks(outcome: Outcome, lines: tuple[str, ...], label: str, gpu: Gpu, place: Place) -> list[Check]:
    """The checks of one device ("GPU 0"); `lines` are the reasons of cuDNN's log if there was a second run.

    "device": a context and enough memory. Only with it "cudnn handle" and "cudnn convolution".
    """
    answer = outcome.answer if outcome.answer is not None else {}
    device = answer.get("device") or {}
    subject = f"{label} {device.get('name') or gpu.name}".rstrip()
    if outcome.answer is None:
        return _no_answer(outcome, subject, lines)
    fault = answer["fault"]
    if fault is not None and ("version" not in answer or _of_host(fault) or _starved(answer)):
        if fault["kind"] == "library" and "driver" in answer and "context_s" in answer:  # libcudnn, not libcuda
            return [
                _device(answer, subject),
                _check("cudnn handle", subject, "fail", f"{fault['call']}: {fault['said']}", marks=_marks(fault)),
            ]
        status, evidence = _host_fault(answer, gpu, place)
        return [_check("device", subject, status, evidence, outcome.seconds, marks=_host_marks(fault))]
    checks = [_device(answer, subject)]
    if fault is not None and answer.get("handles", 0) == 0:
        evidence = _fault_text(fault) + told(lines)
        return [*checks, _check("cudnn handle", subject, "fail", evidence, outcome.seconds, marks=_marks(fault))]
    checks.append(_check("cudnn handle", subject, "pass", f"cudnnCreate succeeded, {answer['handles']} handles"))
    return [*checks, _convolution(answer, subject, lines, place)]


def again_wanted(outcome: Outcome) -> bool:
    """Whether cuDNN's log may tell more: it failed, or the child crashed in it; not what is the host's fault."""
    if outcome.answer is None:
        return outcome.ended == "crash" and "cudnn" in outcome.step
    fault = outcome.answer["fault"]
    return fault is not None and "version" in outcome.answer and not _of_host(fault)


def _device(answer: dict[str, Any], subject: str) -> Check:
    device = answer["device"]
    evidence = (
        f"compute capability {'.'.join(map(str, device['capability']))}, context in {answer['context_s']:.2f} s, "
        f"{device['free'] // MIB} of {device['total'] // MIB} MiB free"
    )
    return _check("device", subject, "pass", evidence, answer["context_s"])


def _no_answer(outcome: Outcome, subject: str, lines: tuple[str, ...]) -> list[Check]:
    """A child that hung, crashed or was never started: by the step it was at, the driver's affair or cuDNN's."""
    evidence, seconds = outcome.failure, outcome.seconds
    if outcome.ended == "late":
        return [_check("device", subject, "unknown", evidence, seconds)]
    if outcome.ended == "failed":
        return [_check("device", subject, "unknown", f"the check itself failed: {evidence}", seconds)]
    if "cudnn" in outcome.step:
        return [_check("cudnn convolution", subject, "fail", evidence + told(lines), seconds)]
    what = "the driver hangs" if outcome.ended == "hang" else "the driver's library ended the process"
    return [_check("device", subject, "fail", f"{what}: {evidence}; see the kernel log (Xid)", seconds)]


def _of_host(fault: dict[str, Any]) -> bool:
    return bool(fault["kind"] == "driver" and fault["status"] in _HOST)


def _starved(answer: dict[str, Any]) -> bool:
    """Whether memory is what failed; cuDNN says CUDNN_STATUS_NOT_INITIALIZED or INTERNAL_ERROR of that, too."""
    return bool(answer["fault"]["kind"] == "memory" or answer.get("free", NEED) < answer["need"] // 4)


def _host_fault(answer: dict[str, Any], gpu: Gpu, place: Place) -> tuple[str, str]:
    """(status, evidence) of a fault that is not the environment's."""
    fault, device = answer["fault"], answer.get("device") or {}
    status, said, seen = fault["status"], _fault_text(fault), len(place.host.gpus)
    if fault["kind"] in ("memory", "cudnn"):
        return "unknown", _memory_text(answer, gpu)
    if fault["kind"] == "library":
        return "fail", f"the driver cannot be used: {said}; install it, or start the container with its libraries"
    if status == _UNAVAILABLE:
        return _unavailable(answer, device.get("mode"))
    if status in _HOST:
        kind, words = _HOST[status]
        words = words.format(libcuda=answer["driver"].get("path", "libcuda.so.1"))
    elif status == _NO_DEVICE:
        kind, words = "fail", _no_device(place)
    elif status == _INVALID_DEVICE:
        kind = "fail"
        words = f"CUDA shows {answer['driver'].get('count')} devices to this process, and NVML names {seen}"
    else:
        kind, words = "fail", "the driver gives no working context; see the kernel log (Xid)"
    return kind, f"{said}: {words}"


def _unavailable(answer: dict[str, Any], mode: int | None) -> tuple[str, str]:
    said = _fault_text(answer["fault"])
    if mode == _PROHIBITED:
        return "fail", f"{said}: the device is in compute mode prohibited (nvidia-smi -c DEFAULT)"
    why = "it is in exclusive mode and another process has it" if mode in _EXCLUSIVE else "it is busy"
    return "unknown", f"{said}: {why}{_users(answer)}; nothing was proved on it"


def _no_device(place: Place) -> str:
    value = place.env.get("CUDA_VISIBLE_DEVICES")
    if value is not None:
        return f"CUDA_VISIBLE_DEVICES={value} names no device that is there"
    seen = len(place.host.gpus)
    return f"CUDA shows no device, and NVML names {seen}: are /dev/nvidia* there, with rights for this user?"


def _memory_text(answer: dict[str, Any], gpu: Gpu) -> str:
    """What is free by CUDA, or by NVML where there is not enough for a context, and what the check needs."""
    device, fault = answer.get("device") or {}, answer["fault"]
    free = answer.get("free", device.get("free", gpu.memory_free))
    amount = "too little memory for a context" if free is None else f"{free // MIB} MiB free"
    said = f" ({_fault_text(fault)})" if fault["call"] else ""
    return f"{amount}{said}, the check needs {answer['need'] // MIB} MiB{_users(answer)}; nothing was proved on it"


def _users(answer: dict[str, Any]) -> str:
    users: Sequence[str] = answer.get("users", ())
    return f"; used by {', '.join(users[:4])}" if users else ""


def _fault_text(fault: dict[str, Any]) -> str:
    if fault["status"] is None:
        return f"{fault['call']}: {fault['said']}".removeprefix(": ")
    said = f" ({fault['said']})" if fault["said"] else ""
    after = f"; after it {fault['after']}" if fault.get("after") else ""
    return f"{fault['call']} gave {fault['status']} {fault['name']}".rstrip() + said + after


def _convolution(answer: dict[str, Any], subject: str, lines: tuple[str, ...], place: Place) -> Check:
    """The runs on all streams; NaN is no error that is small enough, and a foreign library no proof."""
    fault, runs = answer["fault"], answer["runs"]
    parts = [_run_text(one) for one in runs if one["wrong"]]
    marks = _marks(fault) if fault is not None else ()
    if fault is not None:
        parts.append(_fault_text(fault) + told(lines))
    origins = loader.Origins(place.env)
    foreign = loader.foreign_cudnn(answer["mapped"], place.folder, origins)
    parts += [f"computed with {one}" for one in foreign]
    marks += tuple(("foreign", one.partition(", from ")[0], "") for one in foreign)
    if parts:
        return _check("cudnn convolution", subject, "fail", "; ".join(parts), marks=marks)
    kinds = dict.fromkeys(one["what"].partition(" ")[0] for one in runs)
    told_kinds = []
    for kind in kinds:
        of_kind = [one for one in runs if one["what"].startswith(f"{kind} ")]
        worst = max(one["error"] for one in of_kind)
        told_kinds.append(f"{kind} error {worst:.1e} <= {of_kind[0]['tolerance']:.0e}")
    parts = [", ".join(told_kinds), f"on {answer['handles']} streams", *answer["left"]]
    engines = loader.engines(answer["mapped"])
    parts.append(f"by cuDNN {loader.release_text(answer['version'])}" + (f" ({engines})" if engines else ""))
    return _check("cudnn convolution", subject, "pass", "; ".join(parts), answer["check_s"])


def _run_text(run: dict[str, Any]) -> str:
    return f"{run['what']}: {run['wrong']} of {run['values']} values are wrong ({run['first']})"


def capability_check(number: int | None, host: Host, passed: Sequence[bool]) -> Check | None:
    """cudnnGetMaxDeviceVersion (1210 is 12.1) against the devices; `passed` tells where the convolution was right.

    The function names the newest device that the release was made for. A newer device of the same major version may
    run its code, so that only a newer major version is against it, and a right result is for it.
    """
    if number is None or not host.gpus:
        return None
    most = (number // 100, number % 100 // 10)
    text = f"cuDNN is for devices up to {most[0]}.{most[1]}"
    newer = [
        (index, gpu)
        for index, gpu in enumerate(host.gpus)
        if gpu.compute_capability is not None and gpu.compute_capability > most
    ]
    if not newer:
        return _check("cudnn", "device version", "pass", f"{text} (cudnnGetMaxDeviceVersion {number})")
    which = ", ".join(
        f"GPU {index} {gpu.name} is {'.'.join(map(str, gpu.compute_capability or ()))}" for index, gpu in newer
    )
    if all(index < len(passed) and passed[index] for index, _ in newer):
        return _check("cudnn", "device version", "pass", f"{text}; {which}, and its convolutions were right")
    older = any(gpu.compute_capability and gpu.compute_capability[0] > most[0] for _, gpu in newer)
    return _check("cudnn", "device version", "fail" if older else "unknown", f"{text}, and {which}")


def _host_marks(fault: dict[str, Any]) -> tuple[Mark, ...]:
    """Of a fault that is the host's: memory, whatever call ran out of it, or the driver's library or result."""
    if fault["kind"] in ("memory", "cudnn"):
        return (("memory", "", ""), *_marks(fault))
    return (("no-driver", "", ""),) if fault["kind"] == "library" else _marks(fault)


def _marks(fault: dict[str, Any]) -> tuple[Mark, ...]:
    """The call that failed: its result, and the status by name."""
    if fault["status"] is None:
        return ()
    marks: tuple[Mark, ...] = (("result", fault["call"], str(fault["status"])),)
    owner = "cudnn" if fault["kind"] == "cudnn" else "cuda"
    return (*marks, ("status", owner, fault["name"])) if fault["name"] else marks


def _check(
    name: str, subject: str, status: str, evidence: str, seconds: float = 0.0, *, marks: tuple[Mark, ...] = ()
) -> Check:
    return Check(name=name, subject=subject, status=status, evidence=evidence, seconds=round(seconds, 3), marks=marks)
