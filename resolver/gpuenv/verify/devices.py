"""Checks of each device, by the probe "convolution".

The device itself, a cuDNN handle, and the convolutions.

A fault of the host (driver, fabric, permissions, another user's memory) is reported by the check
"device", never as a fault of the environment: it fails that check if something is broken, and
leaves it unknown if it passes by itself. Numbers of the driver's results: cuda.h, CUresult.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..model import Check, Gpu, Host, Mark, gpu_label, show_pair
from ..probes._common import cudnn_text
from ..probes.answers import ConvolutionAnswer, ConvolutionRun, Fault
from ..probes.convolution import NEED
from . import loader
from .cudnn_log import Logged, log_text, run_logged
from .loader import Place
from .runner import Outcome, RunProbe

TIGHT = 4 << 30  # bytes: with less free memory, concurrent children would run out of it
MIB = 1 << 20
_UNAVAILABLE, _NO_DEVICE, _INVALID_DEVICE, _OUT_OF_MEMORY = 46, 100, 101, 2
_EXCLUSIVE, _PROHIBITED = {1, 3}, 2  # CUcomputemode
# CUresult -> meaning and fix. {libcuda} is the path of the library that was loaded.
_HOST_RESULTS = {
    34: (
        "{libcuda} is the toolkit's stub and not the driver's library: take its folder "
        "off LD_LIBRARY_PATH"
    ),
    214: (
        "the device has an ECC error that cannot be corrected: reset it or reboot "
        "(nvidia-smi -q -d ECC)"
    ),
    220: (
        "NVLink has an error that cannot be corrected: see the kernel log (Xid) and reset"
        " the device"
    ),
    304: (
        "the operating system refused a call: see the rights on /dev/nvidia* and the "
        "limits (ulimit)"
    ),
    800: "the operation is not permitted: this user or container has no right to the device",
    802: (
        "the system is not ready: on NVSwitch machines the fabric manager "
        "(nvidia-fabricmanager, of the driver's own release) must run and have finished; "
        "see nvidia-smi -q, Fabric"
    ),
    803: (
        "{libcuda} and the loaded kernel module are of different releases: reboot, or "
        "reload the module; in a container take the image's own libcuda away"
    ),
    804: (
        "{libcuda} is a forward-compatibility library (cuda-compat), which this GPU or "
        "driver does not support: take its folder off the loader's path, or update the "
        "driver"
    ),
    805: "the MPS control daemon cannot be reached: start it, or unset CUDA_MPS_PIPE_DIRECTORY",
    806: "the MPS server broke the connection: restart it",
    807: "the MPS server is not ready for new clients: try again",
    808: "the MPS server has as many clients as it takes: try again",
    809: "the MPS server has as many connections as it takes: try again",
    999: (
        "unknown to the driver itself; often /dev/nvidia-uvm is missing (nvidia-modprobe "
        "-u), or a container lost its devices (restart it); see the kernel log (Xid)"
    ),
}
_USERS = "nvidia-smi lists the processes that use it"
_PASSING_RESULTS = {807, 808, 809}  # another try may succeed
# Problems of the detection that are no fault of the host: there is no device, or it is hidden on
# purpose.
_ABSENT = (
    "no-gpu",
    "driver-not-installed",
    "driver-libraries-missing",
    "devices-hidden",
    "nvml-binding-missing",
)
# Problems that hide some devices or make them doubtful while others are visible.
_DOUBTFUL = (
    "gpu-lost",
    "gpu-reset-required",
    "visible-device-missing",
    "device-order",
    "mig-no-instance",
    "no-permission",
    "nvml-unknown-error",
    "libcuda-missing",
)


# ---- the host -----------------------------------------------------------------------------------


def needs_turns(host: Host) -> bool:
    """Return whether children must run one after another.

    They must if a device allows one process only, or has little memory.
    """
    return any(
        (gpu.compute_mode or "").startswith("exclusive")
        or (gpu.memory_free is not None and gpu.memory_free < TIGHT)
        for gpu in host.gpus
    )


def is_broken(host: Host) -> bool:
    """Return whether the detection met a fault. No device, or hidden devices, are none."""
    return any(problem.code not in _ABSENT for problem in host.problems)


def to_try(host: Host) -> tuple[Gpu, ...]:
    """Return the devices of a host; if a fault keeps them from being listed, an unknown one."""
    if not host.gpus and is_broken(host):
        return (Gpu(name="", compute_capability=None, index=0),)
    return host.gpus


def host_checks(host: Host, checks: Sequence[Check]) -> list[Check]:
    """Return what the detection says about the host if no device, or not every device, is visible.

    Args:
        checks: those so far. They may have proved a device that the detection did not find.
    """
    if host.gpus:
        hidden = "the visible devices were checked"
        return [
            Check("device", problem.code, "unknown", f"{problem.detail}; {hidden}; {problem.hint}")
            for problem in host.problems
            if problem.code in _DOUBTFUL
        ]
    problems = [f"{problem.detail} ({problem.code})" for problem in host.problems]
    text = "; ".join(problems) or "no GPU is visible"
    if any(check.name == "cudnn convolution" for check in checks):
        evidence = f"one device was checked; whether there are others is not known: {text}"
        return [Check("device", "", "unknown", evidence)]
    hints = [problem.hint for problem in host.problems if problem.code not in _ABSENT]
    hint = next(filter(None, hints), "")
    evidence = f"nothing ran on a GPU: {text}"
    if hint:
        evidence += f"; {hint}"
    return [Check("device", "", "fail" if is_broken(host) else "unknown", evidence)]


# ---- all devices --------------------------------------------------------------------------------


def all_checks(outcomes: Sequence[Logged], max_device: int | None, place: Place) -> list[Check]:
    """Return the checks of every device, and that of cuDNN's own limit.

    Args:
        max_device: cudnnGetMaxDeviceVersion.
    """
    checks: list[Check] = []
    passed = []
    for ordinal, ((outcome, lines), gpu) in enumerate(zip(outcomes, place.gpus, strict=True)):
        of_device = _device_checks(outcome, lines, gpu_label(place.gpus, ordinal), gpu, place)
        last = of_device[-1]
        passed.append(last.name == "cudnn convolution" and last.status == "pass")
        checks += of_device
    if outcomes and max_device is not None and place.host.gpus:
        checks.append(_capability_check(max_device, place.host, passed))
    return checks


def _capability_check(number: int, host: Host, passed: Sequence[bool]) -> Check:
    """Compare cudnnGetMaxDeviceVersion (1210 is 12.1) with the devices.

    The function names the newest device that the release was made for. A newer device of the same
    major version may run its code, so only a newer major version is a failure, and a correct
    convolution is a pass.

    Args:
        passed: for each device, whether the convolution was correct.
    """
    limit = (number // 100, number % 100 // 10)
    evidence, status = f"cuDNN is for devices up to {show_pair(limit)}", "pass"
    newer = []
    for ordinal, gpu in enumerate(host.gpus):
        if gpu.compute_capability is not None and gpu.compute_capability > limit:
            newer.append((ordinal, gpu.name, gpu.compute_capability))
    devices = ", ".join(
        f"{gpu_label(host.gpus, ordinal)} {name} is {show_pair(pair)}"
        for ordinal, name, pair in newer
    )
    if not newer:
        evidence += f" (cudnnGetMaxDeviceVersion {number})"
    elif all(ordinal < len(passed) and passed[ordinal] for ordinal, _, _ in newer):
        evidence += f"; {devices}, and its convolutions were right"
    else:
        evidence += f", and {devices}"
        status = "fail" if max(pair for _, _, pair in newer)[0] > limit[0] else "unknown"
    return Check("cudnn", "device version", status, evidence)


# ---- one device ---------------------------------------------------------------------------------


def _device_checks(
    outcome: Outcome, lines: tuple[str, ...], label: str, gpu: Gpu, place: Place
) -> list[Check]:
    """Return the checks of one device.

    "device" is a context and enough memory. Only if it passes follow "cudnn handle" and "cudnn
    convolution".

    Args:
        lines: the reasons of cuDNN's log if there was a second run.
        label: "GPU 0".
    """
    if outcome.answer is None:
        return [_no_answer(outcome, f"{label} {gpu.name}".rstrip(), lines)]
    answer: ConvolutionAnswer = outcome.answer
    subject = f"{label} {answer.get('device', {}).get('name') or gpu.name}".rstrip()
    fault = answer["fault"]
    if fault is not None:
        # A cuDNN without memory may also report NOT_INITIALIZED or INTERNAL_ERROR.
        short = fault["kind"] == "memory" or answer.get("free", NEED) < NEED // 4
        if "version" not in answer or _is_host_result(fault) or short:
            return _host_fault_checks(outcome, fault, subject, gpu, place)
    context = _context_check(answer, subject)
    if fault is not None and answer.get("handles", 0) == 0:
        evidence = _fault_text(fault) + log_text(lines)
        marks = _marks(fault)
        return [context, Check("cudnn handle", subject, "fail", evidence, outcome.seconds, marks)]
    evidence = f"cudnnCreate succeeded, {answer['handles']} handles"
    handle = Check("cudnn handle", subject, "pass", evidence)
    return [context, handle, _convolution_check(answer, subject, lines, place)]


def run_convolution(run_probe: RunProbe, folder: str, ordinal: int, *, verbose: bool) -> Logged:
    """Run the probe "convolution" on a device. `folder` is that of the environment's cuDNN."""
    options = {"folder": folder, "device": {"ordinal": ordinal}}
    run = partial(run_probe, "convolution", options)
    return run_logged(run, folder, _log_may_tell_more, verbose=verbose)


def _log_may_tell_more(outcome: Outcome) -> bool:
    """Return whether cuDNN failed, or the child crashed in it."""
    if outcome.answer is None:
        return outcome.ended == "crash" and "cudnn" in outcome.step
    answer: ConvolutionAnswer = outcome.answer
    fault = answer["fault"]
    return fault is not None and "version" in answer and not _is_host_result(fault)


def _no_answer(outcome: Outcome, subject: str, lines: tuple[str, ...]) -> Check:
    """Judge a child that hung, crashed or was not started.

    Its last step tells the driver's fault from cuDNN's.
    """
    name, status, evidence = "device", "unknown", outcome.failure
    if outcome.ended == "failed":
        evidence = f"the check itself failed: {outcome.failure}"
    elif "cudnn" in outcome.step:
        name, status, evidence = "cudnn convolution", "fail", outcome.failure + log_text(lines)
    elif outcome.ended != "late":
        cause = "the driver's library ended the process"
        if outcome.ended == "hang":
            cause = "the driver hangs"
        status, evidence = "fail", f"{cause}: {outcome.failure}; see the kernel log (Xid)"
    return Check(name, subject, status, evidence, seconds=outcome.seconds)


def _context_check(answer: ConvolutionAnswer, subject: str) -> Check:
    device, seconds = answer["device"], round(answer["context_s"], 3)
    capability = ".".join(map(str, device["capability"]))
    memory = f"{device['free'] // MIB} of {device['total'] // MIB} MiB free"
    evidence = f"compute capability {capability}, context in {seconds:.2f} s, {memory}"
    return Check("device", subject, "pass", evidence, seconds=seconds)


# ---- faults of the host -------------------------------------------------------------------------


def _is_host_result(fault: Fault) -> bool:
    return fault["kind"] == "driver" and fault["status"] in _HOST_RESULTS


def _host_fault_checks(
    outcome: Outcome, fault: Fault, subject: str, gpu: Gpu, place: Place
) -> list[Check]:
    """Return the checks of a device with a fault that is not the environment's."""
    answer: ConvolutionAnswer = outcome.answer
    text, marks = _fault_text(fault), _marks(fault)
    result, mode = fault["status"], answer.get("device", {}).get("mode")
    status = "fail"
    if fault["kind"] in ("memory", "cudnn"):
        # Whatever call ran out of memory. CUDA reports what is free; NVML does if there is not
        # enough for a context.
        free = answer.get("free", answer.get("device", {}).get("free", gpu.memory_free))
        amount = "too little memory for a context" if free is None else f"{free // MIB} MiB free"
        cause = f" ({text})" if fault["call"] else ""
        need = f"the check needs {NEED // MIB} MiB ({_USERS})"
        status, evidence = "unknown", f"{amount}{cause}, {need}; nothing was proved on it"
        marks = (("memory", "", ""), *marks)
    elif fault["kind"] == "library" and "driver" in answer and "context_s" in answer:
        # There is a context, so the library that cannot be opened is libcudnn, not libcuda.
        evidence = f"{fault['call']}: {fault['said']}"
        handle = Check("cudnn handle", subject, "fail", evidence, marks=marks)
        return [_context_check(answer, subject), handle]
    elif fault["kind"] == "library":
        fix = "install it, or start the container with its libraries"
        evidence = f"the driver cannot be used: {text}; {fix}"
        marks = (("no-driver", "", ""),)
    elif result == _UNAVAILABLE and mode == _PROHIBITED:
        evidence = f"{text}: the device is in compute mode prohibited (nvidia-smi -c DEFAULT)"
    elif result == _UNAVAILABLE:
        reason = "it is busy"
        if mode in _EXCLUSIVE:
            reason = "it is in exclusive mode and another process has it"
        status = "unknown"
        evidence = f"{text}: {reason} ({_USERS}); nothing was proved on it"
    elif result in _HOST_RESULTS:
        status = "unknown" if result in _PASSING_RESULTS else "fail"
        libcuda = answer["driver"].get("path", "libcuda.so.1")
        evidence = f"{text}: {_HOST_RESULTS[result].format(libcuda=libcuda)}"
    elif result == _NO_DEVICE:
        value = place.origins.env.get("CUDA_VISIBLE_DEVICES")
        evidence = f"{text}: CUDA_VISIBLE_DEVICES={value} names no device that exists"
        if value is None:
            evidence = (
                f"{text}: CUDA shows no device, and NVML names {len(place.host.gpus)}: "
                "check that /dev/nvidia* exist and that this user may open them"
            )
    elif result == _INVALID_DEVICE:
        shown = answer["driver"].get("count")
        named = f"and NVML names {len(place.host.gpus)}"
        evidence = f"{text}: CUDA shows {shown} devices to this process, {named}"
    else:
        evidence = f"{text}: the driver gives no working context; see the kernel log (Xid)"
    return [Check("device", subject, status, evidence, seconds=outcome.seconds, marks=marks)]


def _fault_text(fault: Fault) -> str:
    if fault["status"] is None:
        return f"{fault['call']}: {fault['said']}".removeprefix(": ")
    text = f"{fault['call']} gave {fault['status']} {fault['name']}".rstrip()
    if fault["said"]:
        text += f" ({fault['said']})"
    if fault.get("after"):
        text += f"; after it {fault['after']}"
    return text


# ---- the convolutions ---------------------------------------------------------------------------


def _convolution_check(
    answer: ConvolutionAnswer, subject: str, lines: tuple[str, ...], place: Place
) -> Check:
    """Check the runs on all streams.

    NaN never passes, and a run with a foreign library proves nothing.
    """
    fault, runs = answer["fault"], answer["runs"]
    failures = []
    for run in runs:
        if run["wrong"]:
            wrong = f"{run['wrong']} of {run['values']} values are wrong ({run['first']})"
            failures.append(f"{run['what']}: {wrong}")
    marks: tuple[Mark, ...] = tuple(("bits", run["what"], run["sha256"]) for run in runs)
    if fault is not None:
        failures.append(_fault_text(fault) + log_text(lines))
        marks += _marks(fault)
    foreign = loader.foreign_cudnn(answer["mapped"], place.survey.cudnn_folder, place.origins)
    failures += [f"computed with {file}" for file in foreign]
    marks += loader.foreign_marks(foreign)
    if failures:
        return Check("cudnn convolution", subject, "fail", "; ".join(failures), marks=marks)
    worst: dict[str, ConvolutionRun] = {}  # by type; all values are finite
    for run in runs:
        data_type = run["what"].partition(" ")[0]
        if data_type not in worst or (run["error"] or 0) > (worst[data_type]["error"] or 0):
            worst[data_type] = run
    errors = []
    for data_type, run in worst.items():
        errors.append(f"{data_type} error {run['error'] or 0:.1e} <= {run['tolerance']:.0e}")
    engines = loader.engines(answer["mapped"])
    by = f"by cuDNN {cudnn_text(answer['version'])}"
    if engines:
        by += f" ({engines})"
    streams = f"on {answer['handles']} streams"
    evidence = "; ".join([", ".join(errors), streams, *answer["left"], by])
    seconds = round(answer["check_s"], 3)
    return Check("cudnn convolution", subject, "pass", evidence, seconds=seconds, marks=marks)


# ---- marks --------------------------------------------------------------------------------------


def _marks(fault: Fault) -> tuple[Mark, ...]:
    """Return the marks of a call that failed: its result, and the status by name."""
    if fault["status"] is None:
        return ()
    marks: list[Mark] = [("result", fault["call"], str(fault["status"]))]
    if fault["name"]:
        owner = "cudnn" if fault["kind"] == "cudnn" else "cuda"
        marks.append(("status", owner, fault["name"]))
    return tuple(marks)
