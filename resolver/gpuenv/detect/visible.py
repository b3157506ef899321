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


def select(
    devices: Sequence[Device], env: Mapping[str, str], driver: str | None
) -> tuple[tuple[Gpu, ...], tuple[Problem, ...], Sources]:
    """Return the visible devices in the order of their CUDA numbers, problems and sources.

    Args:
        devices: all devices, in NVML's order.
        env: the environment variables of the process.
        driver: the driver release, None if unknown.
    """
    problems = [
        Problem(
            "mig-no-instance",
            f"GPU {device.index} is in MIG mode and has no instance",
            "create one (nvidia-smi mig -cgi ... -C), or turn MIG mode off",
        )
        for device in devices
        if device.mig and not device.instances
    ]
    sources = []
    picks = every = [_Pick(device=device) for device in devices]
    value = env.get(_VARIABLE)
    by_index = value is not None and not value.startswith(_UUID_PREFIXES)
    if value is not None and devices:
        sources.append(("visible-devices", f"{_VARIABLE}={value}"))
        picks, problem = _pick(value, devices, by_index=by_index)
        if problem is not None:
            problems.append(problem)
    names = {device.gpu.name for device in devices if device.gpu}
    if len(names) > 1 and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        # CUDA may number the devices in another order than NVML.
        if by_index and 0 < len(picks) < len(devices):
            unknown_order = Problem(
                "device-order",
                f"{_VARIABLE}={value} selects from unlike devices by index,"
                " and the indexes follow CUDA's fastest-first order",
                "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the devices by UUID;"
                " until then every device counts as visible",
            )
            problems.append(unknown_order)
            picks = every
        else:
            order = (
                "NVML (PCI order); CUDA's own numbers may differ:"
                " unlike devices, CUDA_DEVICE_ORDER not PCI_BUS_ID"
            )
            sources.append(("device-order", order))
    gpus, rule = _cuda_devices(picks, driver)
    if rule:
        sources.append(("mig", rule))
    for gpu in gpus:
        if gpu.compute_mode == "prohibited":
            prohibited = Problem(
                "compute-prohibited",
                f"GPU {gpu.index} is in compute mode prohibited",
                f"nvidia-smi -i {gpu.index} -c DEFAULT",
            )
            problems.append(prohibited)
    return gpus, tuple(problems), tuple(sources)


# ---- the entries of the variable -----------------------------------------------------------------


def _pick(
    value: str, devices: Sequence[Device], *, by_index: bool
) -> tuple[list[_Pick], Problem | None]:
    """Return the devices that the variable names, and what is wrong with it.

    The first entry decides whether the entries are indexes or UUIDs. An empty entry and a negative
    number are the usual ends of the list.
    """
    picks: list[_Pick] = []
    for entry in value.split(","):
        text = entry.strip() if by_index else entry
        number = _NUMBER.match(text)
        if not text or (number is not None and int(number[0]) < 0):
            break
        named: list[_Pick] = []
        if not by_index and not text.startswith(_UUID_PREFIXES):
            reason = "is not a UUID, and the entries before it are"
            if number is not None:
                reason = "is an index, and the entries before it are UUIDs"
        elif not by_index:
            named = [pick for device in devices for pick in _named_by(text, device)]
            reason = "is the UUID of no device"
            if named:
                reason = f"begins the UUIDs of {len(named)} devices"
        elif number is None:
            reason = "is neither an index nor a UUID"
            if picks:
                reason = "is not a number, and the entries before it are"
        else:
            named = [_Pick(device=device) for device in devices[int(number[0]) :][:1]]
            reason = f"is not below the number of devices, {len(devices)}"
        if len(named) != 1:
            missing = Problem(
                "visible-device-missing",
                f"{_VARIABLE}: {entry.strip()!r} {reason}",
                "nvidia-smi -L lists the devices; the entries from this one on are not visible",
            )
            return picks, missing
        if named[0] in picks:
            repeated = Problem(
                "visible-devices-repeated",
                f"{_VARIABLE}={value} names a device twice, which hides every device",
                "name each device once",
            )
            return [], repeated
        picks += named
    if picks:
        return picks, None
    hidden = Problem(
        "devices-hidden",
        f"{_VARIABLE}={value!r} hides every device",
        f"unset {_VARIABLE} to use the GPU",
    )
    return [], hidden


def _named_by(entry: str, device: Device) -> list[_Pick]:
    """Return the device and its MIG instances whose UUID begins with an entry."""
    before_r470 = _MIG_UUID_BEFORE_R470.match(entry)
    if before_r470:
        # MIG-GPU-<uuid>/<GPU instance>/<compute instance>
        uuid, ids = before_r470[1], (int(before_r470[2]), int(before_r470[3]))
        if not _has_uuid(device.gpu, uuid):
            return []
        return [
            _Pick(device=device, instance=instance)
            for instance in device.instances
            if (instance.gpu_instance, instance.compute_instance) == ids
        ]
    if entry.startswith("GPU-"):
        return [_Pick(device=device)] if _has_uuid(device.gpu, entry) else []
    return [
        _Pick(device=device, instance=instance)
        for instance in device.instances
        if _has_uuid(instance.gpu, entry)
    ]


def _has_uuid(gpu: Gpu | None, abbreviated: str) -> bool:
    """Return whether the UUID of a device begins with an abbreviated UUID."""
    digits = _uuid_digits(abbreviated)
    return bool(digits) and gpu is not None and _uuid_digits(gpu.uuid or "").startswith(digits)


def _uuid_digits(uuid: str) -> str:
    """Return the hexadecimal digits after GPU- or MIG-, up to the first other character."""
    match = _UUID.match(uuid)
    return match[1].replace("-", "").lower()[:_UUID_DIGITS] if match else ""


# ---- CUDA's rules --------------------------------------------------------------------------------


def _cuda_devices(picks: Sequence[_Pick], driver: str | None) -> tuple[tuple[Gpu, ...], str]:
    """Return the CUDA devices that the picked devices make, and the rule for MIG ("" without)."""
    gpus: list[Gpu] = []
    gpu_instances: set[tuple[int, int | None]] = set()
    for pick in picks:
        device = pick.device
        if not device.mig:
            gpus += [device.gpu] if device.gpu is not None else []
            continue
        instances = device.instances if pick.instance is None else (pick.instance,)
        for instance in instances:
            key = (device.index, instance.gpu_instance)
            if key not in gpu_instances:  # one compute instance of each GPU instance
                gpu_instances.add(key)
                gpus.append(instance.gpu)
    instances_of_mig = [gpu for gpu in gpus if gpu.mig]
    if not instances_of_mig:
        return tuple(gpus), ""
    if driver is not None and parse_release(driver)[0] >= _ALL_INSTANCES_BRANCH:
        rule = "one compute instance of each GPU instance (NVIDIA MIG user guide, from R570 on)"
        return tuple(gpus), rule
    rule = "one MIG instance and no other device (NVIDIA MIG user guide, before R570)"
    return (instances_of_mig[0],), rule
