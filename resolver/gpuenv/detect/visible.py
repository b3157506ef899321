"""Which devices CUDA would show to a process, and in which order.

Sources: CUDA programming guide, "CUDA environment variables" (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER): the list stops
at the first entry that names no device, a UUID may be cut short while it stays unique. Reading of numbers ("1x" is 1)
and of repeated entries (no device at all): PyTorch, torch/cuda/__init__.py, _parse_visible_devices. Reading of UUIDs
(hexadecimal digits of either case, dashes aside, up to the first other character): what libcuda 580.159.04 did on an
H200, which also bore out the rest; the values are among the cases in tests/data/hosts/visible.json.

MIG: NVIDIA MIG user guide, "CUDA device enumeration": before R570 a process sees one MIG instance and nothing beside
it; from R570 on it sees one compute instance of every GPU instance, and whole GPUs too.
Only UUIDs of MIG instances are documented there. An index that stands for a GPU in MIG mode is taken to mean that
GPU's instances, which all have the GPU's compute capability.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..model import Gpu, Problem, parse_release
from .nvml import Device, Instance

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_MANY_MIG_BRANCH = 570
_NUMBER = re.compile(r"[+-]?\d+")
_UUID = re.compile(r"(?:GPU|MIG)-([0-9a-fA-F-]*)")
_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/(\d+)$")

Found = tuple[tuple[Gpu, ...], tuple[Problem, ...], tuple[tuple[str, str], ...]]


class _Choice:
    """What the entries of the variable come to. `whole` devices stand for all that CUDA makes of them."""

    def __init__(self) -> None:
        self.picks: list[tuple[Device, Instance | None]] = []
        self.problem: Problem | None = None


def select(devices: Sequence[Device], env: Mapping[str, str], driver: str | None) -> Found:
    """(visible devices in the order of their CUDA numbers, problems, sources)."""
    value = env.get(_VARIABLE)
    problems = [
        Problem(code="mig-no-instance", detail=f"GPU {device.index} is in MIG mode and has no instance",
                hint="create one (nvidia-smi mig -cgi ... -C), or turn MIG mode off")
        for device in devices if device.mig and not device.instances
    ]  # fmt: skip
    sources = []
    by_index = value is not None and not value.startswith(("GPU-", "MIG-"))
    picks: Sequence[tuple[Device, Instance | None]] = [(device, None) for device in devices]
    if value is not None and devices:
        sources.append(("visible-devices", f"{_VARIABLE}={value}"))
        choice = _by_index(value, devices) if by_index else _by_uuid(value, devices)
        picks = choice.picks
        if choice.problem:
            problems.append(choice.problem)
    if _order_unknown(devices, env):
        if not by_index or len(picks) in (0, len(devices)):
            text = "NVML (PCI order); CUDA's own numbers may differ: unlike devices, CUDA_DEVICE_ORDER not PCI_BUS_ID"
            sources.append(("device-order", text))
        else:
            detail = f"{_VARIABLE}={value} picks from unlike devices by numbers that follow CUDA's fastest-first order"
            hint = "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the devices by UUID; until then every device counts"
            problems.append(Problem(code="device-order", detail=detail, hint=hint))
            picks = [(device, None) for device in devices]
    gpus = _enumerate(picks, driver, sources)
    problems += [
        Problem(code="compute-prohibited", detail=f"GPU {gpu.index} is in compute mode prohibited",
                hint=f"nvidia-smi -i {gpu.index} -c DEFAULT")
        for gpu in gpus if gpu.compute_mode == "prohibited"
    ]  # fmt: skip
    return gpus, tuple(problems), tuple(sources)


def _by_index(value: str, devices: Sequence[Device]) -> _Choice:
    choice = _Choice()
    for entry in value.split(","):
        match = _NUMBER.match(entry.strip())
        number = int(match[0]) if match else -1
        if number < 0:
            if match or not entry.strip():
                break  # the customary ways to say "no more"
            choice.problem = _missing(entry, "is not a number, and the entries before it are")
            if not choice.picks:
                choice.problem = _missing(entry, "is neither an index nor a UUID")
            break
        if number >= len(devices):
            choice.problem = _missing(entry, f"is not below the number of devices, {len(devices)}")
            break
        if any(device.index == devices[number].index for device, _ in choice.picks):
            return _repeated(value)
        choice.picks.append((devices[number], None))
    if not choice.picks and choice.problem is None:
        detail = f"{_VARIABLE}={value!r} hides every device"
        choice.problem = Problem(code="devices-hidden", detail=detail, hint=f"unset {_VARIABLE} to use the GPU")
    return choice


def _by_uuid(value: str, devices: Sequence[Device]) -> _Choice:
    choice = _Choice()
    for entry in value.split(","):
        if not entry.startswith(("GPU-", "MIG-")):
            if entry and not _NUMBER.match(entry):
                choice.problem = _missing(entry, "is not a UUID, and the entries before it are")
            elif entry and not entry.startswith("-"):
                choice.problem = _missing(entry, "is an index, and the entries before it are UUIDs")
            break
        named = _named(entry, devices)
        if len(named) != 1:
            why = f"begins the UUIDs of {len(named)} devices" if named else "is the UUID of no device"
            choice.problem = _missing(entry, why)
            break
        if named[0] in choice.picks:
            return _repeated(value)
        choice.picks.append(named[0])
    return choice


def _named(entry: str, devices: Sequence[Device]) -> list[tuple[Device, Instance | None]]:
    """Every device whose UUID `entry` begins; before R470 instances are MIG-GPU-<uuid>/<gi>/<ci>."""
    instances = [(device, instance) for device in devices for instance in device.instances]
    old = _OLD_MIG.match(entry)
    if old:
        ids = (int(old[2]), int(old[3]))
        return [
            (device, it) for device, it in instances
            if _begins(old[1], device.gpu) and (it.gpu_instance, it.compute_instance) == ids
        ]  # fmt: skip
    if entry.startswith("GPU-"):
        return [(device, None) for device in devices if _begins(entry, device.gpu)]
    return [(device, it) for device, it in instances if _begins(entry, it.gpu)]


def _begins(entry: str, gpu: Gpu | None) -> bool:
    digits = _digits(entry)
    return bool(digits) and gpu is not None and _digits(gpu.uuid or "").startswith(digits)


def _digits(uuid: str) -> str:
    """The hexadecimal digits after GPU- or MIG-, as far as they go."""
    match = _UUID.match(uuid)
    return match[1].replace("-", "").lower()[:32] if match else ""


def _missing(entry: str, why: str) -> Problem:
    hint = "nvidia-smi -L lists the devices; the entries from this one on are not visible"
    return Problem(code="visible-device-missing", detail=f"{_VARIABLE}: {entry.strip()!r} {why}", hint=hint)


def _repeated(value: str) -> _Choice:
    choice = _Choice()
    detail = f"{_VARIABLE}={value} names a device twice, which hides every device"
    choice.problem = Problem(code="visible-devices-repeated", detail=detail, hint="name each device once")
    return choice


def _order_unknown(devices: Sequence[Device], env: Mapping[str, str]) -> bool:
    names = {device.gpu.name for device in devices if device.gpu}
    return len(names) > 1 and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _enumerate(
    picks: Sequence[tuple[Device, Instance | None]], driver: str | None, sources: list[tuple[str, str]]
) -> tuple[Gpu, ...]:
    """The CUDA devices that the picked devices make, by the rules for MIG of the driver's branch."""
    gpus: list[Gpu] = []
    seen: set[tuple[int, int | None]] = set()
    for device, only in picks:
        if device.gpu is None:
            continue
        if not device.mig:
            gpus.append(device.gpu)
            continue
        for instance in (only,) if only else device.instances:
            key = (device.index, instance.gpu_instance)
            if key not in seen:  # one compute instance of each GPU instance
                seen.add(key)
                gpus.append(instance.gpu)
    if not any(gpu.mig for gpu in gpus):
        return tuple(gpus)
    if driver is not None and parse_release(driver)[0] >= _MANY_MIG_BRANCH:
        sources.append(("mig", "one compute instance of each GPU instance (NVIDIA MIG user guide, from R570 on)"))
        return tuple(gpus)
    sources.append(("mig", "one MIG instance and nothing beside it (NVIDIA MIG user guide, before R570)"))
    return (next(gpu for gpu in gpus if gpu.mig),)
