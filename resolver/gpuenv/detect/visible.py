"""Which devices CUDA shows to a process, and in which order.

Sources: CUDA programming guide, "CUDA environment variables" (CUDA_VISIBLE_DEVICES,
CUDA_DEVICE_ORDER): the list ends at the first entry that names no device, and a UUID may be
abbreviated if it stays unique. PyTorch, torch/cuda/__init__.py, _parse_visible_devices, for numbers
("1x" is 1) and for repeated entries (no device at all). libcuda 580.159.04 on an H200, for UUIDs:
hexadecimal digits of either case, without dashes, up to the first other character. That machine
also confirmed the rest; the values are among the cases in tests/data/hosts/visible.json.

MIG: NVIDIA MIG user guide, "CUDA device enumeration": before R570 a process sees one MIG instance
and no other device. From R570 on it sees one compute instance of every GPU instance, and whole GPUs
too. The guide documents only UUIDs of MIG instances. An index of a GPU in MIG mode is taken to mean
all instances of that GPU, which all have its compute capability.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..model import Gpu, Problem, Value, parse_release
from .nvml import Device, Instance

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_ALL_INSTANCES_BRANCH = 570  # from this driver branch on, a process sees several MIG instances
_NUMBER = re.compile(r"[+-]?\d+")
_UUID = re.compile(r"(?:GPU|MIG)-([0-9a-fA-F-]*)")
_UUID_PREFIXES = ("GPU-", "MIG-")
_UUID_DIGITS = 32
_MIG_UUID_BEFORE_R470 = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/(\d+)$")

Sources = tuple[tuple[str, str], ...]


class _Pick(Value):
    """A device that an entry names: one instance of it, or with None all that CUDA makes of it."""

    device: Device
    instance: Instance | None = None


class _Choice(Value):
    """The devices that the variable names, and what is wrong with it."""

    picks: tuple[_Pick, ...] = ()
    problem: Problem | None = None


def select(
    devices: Sequence[Device], env: Mapping[str, str], driver: str | None
) -> tuple[tuple[Gpu, ...], tuple[Problem, ...], Sources]:
    """Return the visible devices in the order of their CUDA numbers, problems and sources.

    Args:
        devices: all devices, in NVML's order.
        env: the environment variables of the process.
        driver: the driver release, None if unknown.
    """
    problems = _devices_without_instance(devices)
    sources = []
    picks = tuple(_Pick(device=device) for device in devices)
    value = env.get(_VARIABLE)
    by_index = value is not None and not value.startswith(_UUID_PREFIXES)
    if value is not None and devices:
        sources.append(("visible-devices", f"{_VARIABLE}={value}"))
        choice = _choose(value, devices)
        picks = choice.picks
        if choice.problem is not None:
            problems.append(choice.problem)
    if _is_order_unknown(devices, env):
        if by_index and 0 < len(picks) < len(devices):
            problems.append(_unknown_order(value or ""))
            picks = tuple(_Pick(device=device) for device in devices)
        else:
            order = (
                "NVML (PCI order); CUDA's own numbers may differ:"
                " unlike devices, CUDA_DEVICE_ORDER not PCI_BUS_ID"
            )
            sources.append(("device-order", order))
    gpus, mig_source = _apply_mig_rules(_cuda_devices(picks), driver)
    if mig_source:
        sources.append(("mig", mig_source))
    problems.extend(_prohibited_devices(gpus))
    return gpus, tuple(problems), tuple(sources)


# ---- the entries of the variable -----------------------------------------------------------------


def _choose(value: str, devices: Sequence[Device]) -> _Choice:
    """Return the devices that the variable names; its first entry tells indexes from UUIDs."""
    if value.startswith(_UUID_PREFIXES):
        return _choose_by_uuid(value, devices)
    return _choose_by_index(value, devices)


def _choose_by_index(value: str, devices: Sequence[Device]) -> _Choice:
    picks: list[_Pick] = []
    problem = None
    chosen: set[int] = set()
    for entry in value.split(","):
        match = _NUMBER.match(entry.strip())
        if match is None and entry.strip():
            problem = _missing_device(entry, "is neither an index nor a UUID")
            if picks:
                problem = _missing_device(entry, "is not a number, and the entries before it are")
            break
        if match is None or int(match[0]) < 0:
            break  # an empty entry or a negative number is the usual end of the list
        number = int(match[0])
        if number >= len(devices):
            reason = f"is not below the number of devices, {len(devices)}"
            problem = _missing_device(entry, reason)
            break
        device = devices[number]
        if device.index in chosen:
            return _repeated_device(value)
        chosen.add(device.index)
        picks.append(_Pick(device=device))
    if not picks and problem is None:
        problem = Problem(
            code="devices-hidden",
            detail=f"{_VARIABLE}={value!r} hides every device",
            hint=f"unset {_VARIABLE} to use the GPU",
        )
    return _Choice(picks=tuple(picks), problem=problem)


def _choose_by_uuid(value: str, devices: Sequence[Device]) -> _Choice:
    picks: list[_Pick] = []
    for entry in value.split(","):
        if not entry.startswith(_UUID_PREFIXES):
            return _Choice(picks=tuple(picks), problem=_not_a_uuid(entry))
        matches = _find_by_uuid(entry, devices)
        if not matches:
            problem = _missing_device(entry, "is the UUID of no device")
            return _Choice(picks=tuple(picks), problem=problem)
        if len(matches) > 1:
            problem = _missing_device(entry, f"begins the UUIDs of {len(matches)} devices")
            return _Choice(picks=tuple(picks), problem=problem)
        if matches[0] in picks:
            return _repeated_device(value)
        picks.append(matches[0])
    return _Choice(picks=tuple(picks))


def _not_a_uuid(entry: str) -> Problem | None:
    """Return what is wrong with an entry after UUIDs; None for the usual end of the list."""
    if not entry:
        return None
    if not _NUMBER.match(entry):
        return _missing_device(entry, "is not a UUID, and the entries before it are")
    if entry.startswith("-"):
        return None
    return _missing_device(entry, "is an index, and the entries before it are UUIDs")


def _find_by_uuid(entry: str, devices: Sequence[Device]) -> list[_Pick]:
    """Return every device or MIG instance whose UUID begins with an entry."""
    return [pick for pick in _all_picks(devices) if _is_named(pick, entry)]


def _all_picks(devices: Sequence[Device]) -> list[_Pick]:
    """Return all whole devices and all their MIG instances."""
    picks = []
    for device in devices:
        picks.append(_Pick(device=device))
        picks.extend(_Pick(device=device, instance=instance) for instance in device.instances)
    return picks


def _is_named(pick: _Pick, entry: str) -> bool:
    """Return whether an entry is the UUID of a device or an instance, or its beginning."""
    instance = pick.instance
    if instance is None:
        return entry.startswith("GPU-") and _has_uuid(pick.device.gpu, entry)
    before_r470 = _MIG_UUID_BEFORE_R470.match(entry)
    if before_r470:
        # MIG-GPU-<uuid>/<GPU instance>/<compute instance>
        ids = (int(before_r470[2]), int(before_r470[3]))
        if ids != (instance.gpu_instance, instance.compute_instance):
            return False
        return _has_uuid(pick.device.gpu, before_r470[1])
    return entry.startswith("MIG-") and _has_uuid(instance.gpu, entry)


def _has_uuid(gpu: Gpu | None, abbreviated: str) -> bool:
    """Return whether the UUID of a device begins with an abbreviated UUID."""
    digits = _uuid_digits(abbreviated)
    if not digits or gpu is None:
        return False
    return _uuid_digits(gpu.uuid or "").startswith(digits)


def _uuid_digits(uuid: str) -> str:
    """Return the hexadecimal digits after GPU- or MIG-, up to the first other character."""
    match = _UUID.match(uuid)
    if match is None:
        return ""
    return match[1].replace("-", "").lower()[:_UUID_DIGITS]


# ---- problems ------------------------------------------------------------------------------------


def _missing_device(entry: str, reason: str) -> Problem:
    return Problem(
        code="visible-device-missing",
        detail=f"{_VARIABLE}: {entry.strip()!r} {reason}",
        hint="nvidia-smi -L lists the devices; the entries from this one on are not visible",
    )


def _repeated_device(value: str) -> _Choice:
    problem = Problem(
        code="visible-devices-repeated",
        detail=f"{_VARIABLE}={value} names a device twice, which hides every device",
        hint="name each device once",
    )
    return _Choice(problem=problem)


def _unknown_order(value: str) -> Problem:
    return Problem(
        code="device-order",
        detail=f"{_VARIABLE}={value} selects from unlike devices by index,"
        " and the indexes follow CUDA's fastest-first order",
        hint="set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the devices by UUID;"
        " until then every device counts as visible",
    )


def _devices_without_instance(devices: Sequence[Device]) -> list[Problem]:
    problems = []
    for device in devices:
        if device.mig and not device.instances:
            problem = Problem(
                code="mig-no-instance",
                detail=f"GPU {device.index} is in MIG mode and has no instance",
                hint="create one (nvidia-smi mig -cgi ... -C), or turn MIG mode off",
            )
            problems.append(problem)
    return problems


def _prohibited_devices(gpus: Sequence[Gpu]) -> list[Problem]:
    problems = []
    for gpu in gpus:
        if gpu.compute_mode == "prohibited":
            problem = Problem(
                code="compute-prohibited",
                detail=f"GPU {gpu.index} is in compute mode prohibited",
                hint=f"nvidia-smi -i {gpu.index} -c DEFAULT",
            )
            problems.append(problem)
    return problems


# ---- CUDA's rules --------------------------------------------------------------------------------


def _is_order_unknown(devices: Sequence[Device], env: Mapping[str, str]) -> bool:
    """Return whether CUDA may number the devices in another order than NVML."""
    names = {device.gpu.name for device in devices if device.gpu}
    return len(names) > 1 and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _cuda_devices(picks: Sequence[_Pick]) -> tuple[Gpu, ...]:
    """Return the CUDA devices that the picked devices make, several MIG instances included."""
    gpus: list[Gpu] = []
    gpu_instances: set[tuple[int, int | None]] = set()
    for pick in picks:
        device = pick.device
        if device.gpu is None:
            continue
        if not device.mig:
            gpus.append(device.gpu)
            continue
        instances = device.instances
        if pick.instance is not None:
            instances = (pick.instance,)
        for instance in instances:
            key = (device.index, instance.gpu_instance)
            if key not in gpu_instances:  # one compute instance of each GPU instance
                gpu_instances.add(key)
                gpus.append(instance.gpu)
    return tuple(gpus)


def _apply_mig_rules(gpus: tuple[Gpu, ...], driver: str | None) -> tuple[tuple[Gpu, ...], str]:
    """Return the devices that the driver's branch shows, and the rule ("" without MIG)."""
    first_instance = None
    for gpu in gpus:
        if gpu.mig:
            first_instance = gpu
            break
    if first_instance is None:
        return gpus, ""
    if driver is not None and parse_release(driver)[0] >= _ALL_INSTANCES_BRANCH:
        rule = "one compute instance of each GPU instance (NVIDIA MIG user guide, from R570 on)"
        return gpus, rule
    rule = "one MIG instance and no other device (NVIDIA MIG user guide, before R570)"
    return (first_instance,), rule
