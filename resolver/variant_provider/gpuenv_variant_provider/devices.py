"""The visible devices and the driver, read through NVML by ctypes.

Nothing raises an error: what cannot be read is not known.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from typing import NamedTuple, Optional

Capability = tuple[int, int]

_SUCCESS = 0
_UUID_LENGTH = 96
_LIBRARY = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"


class Driver(NamedTuple):
    """The newest CUDA version that the driver supports, and the devices of a process."""

    cuda: Optional[tuple[int, int]]  # noqa: UP045  Python 3.9
    capabilities: tuple[Capability, ...]


class Device(NamedTuple):
    """A device with its UUID and those of its MIG instances."""

    uuid: str
    instances: tuple[str, ...]
    capability: Capability


def read_driver(environment: Mapping[str, str] | None = None) -> Driver | None:
    """Return the driver and the visible devices; None if there is no driver."""
    variables = os.environ if environment is None else environment
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    try:
        if nvml.nvmlInitWithFlags(0) != _SUCCESS:
            return None
        try:
            devices = _read_devices(nvml)
            return Driver(_read_cuda(nvml), visible_capabilities(devices, variables))
        finally:
            nvml.nvmlShutdown()
    except AttributeError:  # a library without one of the functions
        return None


def visible_capabilities(
    devices: list[Device], environment: Mapping[str, str]
) -> tuple[Capability, ...]:
    """Return the compute capabilities that CUDA_VISIBLE_DEVICES leaves, without repetitions.

    An index selects from unlike devices only if their order is known (CUDA_DEVICE_ORDER). If it is
    not, all devices count: what serves all serves the selected ones.
    """
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return _distinct(devices)
    same = len(_distinct(devices)) <= 1
    in_order = same or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    selected: list[Device] = []
    for token in text.split(","):
        name = token.strip()
        if name.isdigit():
            if int(name) >= len(devices):
                break
            selected += [devices[int(name)]] if in_order else devices
            continue
        matches = [device for device in devices if name and _has_uuid(device, name)]
        if len(matches) != 1:
            break  # CUDA ignores an unknown device and all that follow
        selected += matches
    return _distinct(selected)


def _has_uuid(device: Device, prefix: str) -> bool:
    return any(uuid.startswith(prefix) for uuid in (device.uuid, *device.instances))


def _distinct(devices: list[Device]) -> tuple[Capability, ...]:
    return tuple(dict.fromkeys(device.capability for device in devices))


def _read_cuda(nvml: ctypes.CDLL) -> tuple[int, int] | None:
    number = ctypes.c_int()
    if nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)) != _SUCCESS:
        return None
    return number.value // 1000, number.value % 1000 // 10


def _read_devices(nvml: ctypes.CDLL) -> list[Device]:
    """Return the devices in PCI order."""
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
        return []
    devices = []
    for index in range(count.value):
        handle, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != _SUCCESS:
            continue
        status = nvml.nvmlDeviceGetCudaComputeCapability(
            handle, ctypes.byref(major), ctypes.byref(minor)
        )
        if status == _SUCCESS:
            capability = major.value, minor.value
            devices.append(Device(_uuid(nvml, handle), _instances(nvml, handle), capability))
    return devices


def _uuid(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(_UUID_LENGTH)
    if nvml.nvmlDeviceGetUUID(handle, text, _UUID_LENGTH) != _SUCCESS:
        return ""
    return text.value.decode(errors="replace")


def _instances(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> tuple[str, ...]:
    """Return the UUIDs of the MIG instances of a device."""
    most = ctypes.c_uint()
    if nvml.nvmlDeviceGetMaxMigDeviceCount(handle, ctypes.byref(most)) != _SUCCESS:
        return ()
    uuids = []
    for index in range(most.value):
        instance = ctypes.c_void_p()
        status = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index, ctypes.byref(instance))
        if status == _SUCCESS:
            uuids.append(_uuid(nvml, instance))
    return tuple(uuids)
