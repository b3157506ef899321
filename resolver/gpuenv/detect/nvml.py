"""Read the devices, the driver release and the driver's CUDA version from NVML (nvidia-ml-py)."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import TypeVar

from ..model import CudaVersion, Gpu, Problem, Value, parse_release
from . import system

# A cold driver without persistence mode takes a second or two for each device.
SECONDS = 60.0

_SONAME = "libnvidia-ml.so.1"
# How glibc, musl and macOS begin the message for a library that does not exist. Any other message
# is about a library that exists and cannot be loaded.
_NOT_FOUND_MESSAGES = (
    f"{_SONAME}: cannot open",
    f"Error loading shared library {_SONAME}:",
    f"dlopen({_SONAME}",
)
# nvml.h, nvmlReturn_t.
_NOT_FOUND = 6
_LIBRARY_NOT_FOUND = 12
_FUNCTION_NOT_FOUND = 13
_LIB_RM_VERSION_MISMATCH = 18
_DEVICE_ERRORS = (15, 16)  # the device is lost, or needs a reset
# nvml.h, nvmlComputeMode_t.
_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
# NVML error -> (problem code, hint)
_PROBLEMS = {
    4: (
        "no-permission",
        "give this user access to /dev/nvidia*, or run as a user who has it",
    ),
    9: (
        "driver-not-loaded",
        "load the kernel module (modprobe nvidia) or reboot; after a kernel update, rebuild it",
    ),
    _LIBRARY_NOT_FOUND: ("nvml-library-not-found", "reinstall the driver's libraries"),
    15: ("gpu-lost", "the device fell off the bus: see the kernel log (Xid 79) and reboot"),
    16: ("gpu-reset-required", "reset the device (nvidia-smi --gpu-reset) or reboot"),
    _LIB_RM_VERSION_MISMATCH: (
        "driver-library-mismatch",
        "reboot, or unload and reload the nvidia kernel modules",
    ),
    999: (
        "nvml-unknown-error",
        "in a container that lost its devices, restart it; otherwise see the kernel log",
    ),
}
_OTHER_PROBLEM = ("nvml-error", "see the kernel log and the output of nvidia-smi")

Answer = TypeVar("Answer")


class Instance(Value):
    """A MIG compute instance.

    The ids are those of its GPU instance and its own; `gpu` is the device that CUDA makes of it.
    """

    gpu_instance: int | None
    compute_instance: int | None
    gpu: Gpu


class Device(Value):
    """A physical device at its NVML index. `gpu` is None for a device that does not answer."""

    index: int
    gpu: Gpu | None
    mig: bool = False
    instances: tuple[Instance, ...] = ()


@dataclass
class Reading:
    """The facts that could be read so far.

    `state` is "ok", "missing" (no library), "failed", "unbound" (no nvidia-ml-py) or "hung".
    """

    state: str
    devices: list[Device] = field(default_factory=list)
    driver: str | None = None
    driver_cuda: CudaVersion | None = None
    problems: list[Problem] = field(default_factory=list)
    sources: list[tuple[str, str]] = field(default_factory=list)


def cuda_version(number: int) -> CudaVersion | None:
    """Return a version such as 13020 of the driver's interfaces as (13, 2); None for 0."""
    return (number // 1000, number % 1000 // 10) if number > 0 else None


def read(root: str, kernel: str | None, seconds: float = SECONDS) -> Reading:
    """Read all facts from NVML.

    Args:
        root: prefix of the folders that are searched if the loader does not find the library.
        kernel: the release of the loaded kernel module, for a message.
        seconds: the time limit.
    """
    state, problems = _load(root)
    if state != "ok":
        return Reading(state, problems=problems)
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]  # not needed without NVML
    except ImportError:
        return Reading("unbound", problems=problems)
    session = _Session(pynvml, kernel, list(problems))
    # A call into a broken driver may never return. The daemon thread is then abandoned.
    thread = threading.Thread(target=session.run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        detail = f"NVML gave no answer in {seconds:g} s"
        hint = "see the kernel log, and reboot"
        problems.append(Problem("nvml-timeout", detail, hint))
        return Reading("hung", problems=problems)
    return session


def _load(root: str) -> tuple[str, list[Problem]]:
    """Load the library, so that nvidia-ml-py finds it by its soname.

    Returns:
        "ok", "missing" or "failed"; and what is wrong with it.
    """
    if os.name == "nt":
        return "ok", []  # nvidia-ml-py knows the two places of nvml.dll
    try:
        ctypes.CDLL(_SONAME)
        return "ok", []
    except OSError as error:
        message = str(error)
    if not message.startswith(_NOT_FOUND_MESSAGES):
        hint = f"{system.CONTAINER_HINT}; otherwise reinstall the driver"
        return "failed", [Problem("driver-libraries-broken", message, hint)]
    for folder in system.DRIVER_FOLDERS:
        with suppress(OSError):
            ctypes.CDLL(os.path.join(root, folder, _SONAME))
            detail = f"the driver's libraries are in /{folder}, where the loader does not search"
            hint = f"add /{folder} to LD_LIBRARY_PATH or to the loader's configuration (ldconfig)"
            return "ok", [Problem("driver-libraries-off-path", detail, hint)]
    return "missing", []


class _Session(Reading):
    """One session of NVML, from nvmlInit to nvmlShutdown."""

    def __init__(self, nvml: ModuleType, kernel: str | None, problems: list[Problem]) -> None:
        super().__init__("failed", problems=problems)
        self.nvml, self.kernel = nvml, kernel

    def run(self) -> None:
        nvml = self.nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._add_problem(error.value, "NVML does not start")
            return
        try:
            self._read_driver()
            count = nvml.nvmlDeviceGetCount()
            self.state = "ok"
            self.sources.append(("gpus", "NVML"))
            self.devices = [self._device(index) for index in range(count)]
        except nvml.NVMLError as error:
            self._add_problem(error.value, "NVML cannot list the devices")
        finally:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _read_driver(self) -> None:
        nvml = self.nvml
        release = self._query("the driver release", nvml.nvmlSystemGetDriverVersion)
        try:
            parse_release(release or "")
            self.driver = release
            self.sources.append(("driver", "NVML"))
        except ValueError:
            source = f"NVML returned {release!r}, which is not a driver release"
            self.sources.append(("driver", source))
        try:
            # The first version of this call returns an invented number if libcuda is missing.
            self.driver_cuda = cuda_version(nvml.nvmlSystemGetCudaDriverVersion_v2())
        except nvml.NVMLError as error:
            if error.value not in (_LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND):
                self._add_problem(error.value, "the driver's CUDA version")
                return
            missing = Problem(
                "libcuda-missing",
                "NVML works, but the loader finds no libcuda.so.1: CUDA cannot start",
                "install the driver's libcuda; in a container set"
                " NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            )
            self.problems.append(missing)
        if self.driver_cuda is not None:
            self.sources.append(("driver_cuda", "NVML"))

    def _device(self, index: int) -> Device:
        """Read a device.

        A device that is lost or needs a reset keeps its place, because CUDA's numbers include it.
        """
        nvml, subject = self.nvml, f"GPU {index}"
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            info = self._query("", nvml.nvmlDeviceGetPciInfo, handle)
            bus_id = None if info is None else info.busId
            if bus_id:
                subject += f" ({bus_id})"
            name = self._query(f"the name of {subject}", nvml.nvmlDeviceGetName, handle)
            ecc = self._query("", nvml.nvmlDeviceGetEccMode, handle)
            mode = self._query("", nvml.nvmlDeviceGetComputeMode, handle)
            capability = self._query(
                f"the compute capability of {subject}",
                nvml.nvmlDeviceGetCudaComputeCapability,
                handle,
            )
            gpu = Gpu(
                name=name or "unknown",
                compute_capability=capability,
                index=index,
                pci_bus_id=bus_id,
                compute_mode=None if mode is None else _COMPUTE_MODES.get(mode),
                ecc=None if ecc is None else bool(ecc[0]),
            ).replace(**self._identity(handle))
            mig = self._query("", nvml.nvmlDeviceGetMigMode, handle)
            if not mig or not mig[0]:
                return Device(index=index, gpu=gpu)
            return Device(index=index, gpu=gpu, mig=True, instances=self._instances(handle, gpu))
        except nvml.NVMLError as error:
            self._add_problem(error.value, subject)
            return Device(index=index, gpu=None)

    def _identity(self, handle: object) -> dict[str, str | int | None]:
        """Return the fields of a device that differ for its instances."""
        memory = self._query("", self.nvml.nvmlDeviceGetMemoryInfo, handle)
        return {
            "uuid": self._query("", self.nvml.nvmlDeviceGetUUID, handle),
            "memory_total": None if memory is None else int(memory.total),
            "memory_free": None if memory is None else int(memory.free),
        }

    def _instances(self, device: object, parent: Gpu) -> tuple[Instance, ...]:
        nvml, instances = self.nvml, []
        for number in range(self._query("", nvml.nvmlDeviceGetMaxMigDeviceCount, device) or 0):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, number)
            except nvml.NVMLError as error:
                if error.value != _NOT_FOUND:  # the numbers have gaps
                    self._add_problem(error.value, f"MIG device {number} of GPU {parent.index}")
                continue
            name = self._query("", nvml.nvmlDeviceGetName, handle) or f"{parent.name} MIG"
            instance = Instance(
                gpu=parent.replace(name=name, mig=True, **self._identity(handle)),
                gpu_instance=self._query("", nvml.nvmlDeviceGetGpuInstanceId, handle),
                compute_instance=self._query("", nvml.nvmlDeviceGetComputeInstanceId, handle),
            )
            instances.append(instance)
        return tuple(instances)

    def _query(
        self, subject: str, call: Callable[..., Answer], *arguments: object
    ) -> Answer | None:
        """Return the answer, or None and add a problem.

        Many devices lack a fact on which nothing depends: "" as `subject` adds no problem then.

        Raises:
            NVMLError: the whole device is unusable.
        """
        try:
            return call(*arguments)
        except self.nvml.NVMLError as error:
            if error.value in _DEVICE_ERRORS:
                raise
            if subject:
                self._add_problem(error.value, subject)
        except UnicodeDecodeError:
            if subject:
                detail = f"{subject}: NVML's text is not UTF-8"
                self.problems.append(Problem(code="nvml-error", detail=detail))
        return None

    def _add_problem(self, number: int, subject: str) -> None:
        names = [name for name in dir(self.nvml) if name.startswith("NVML_ERROR_")]
        name = next(
            (name for name in names if getattr(self.nvml, name) == number),
            "unknown to nvidia-ml-py",
        )
        detail = f"{subject}: NVML error {number} ({name})"
        if number == _LIB_RM_VERSION_MISMATCH:
            kernel = self.kernel or "unknown"
            libraries = self._library_release()
            detail += f"; the kernel module is {kernel}, the libraries are {libraries}"
        code, hint = _PROBLEMS.get(number, _OTHER_PROBLEM)
        self.problems.append(Problem(code, detail, hint))

    def _library_release(self) -> str:
        """Return NVML's own release, which it reports before it starts.

        Newer libraries put their CUDA major version before the release.
        """
        try:
            version = str(self.nvml.nvmlSystemGetNVMLVersion())
        except (self.nvml.NVMLError, UnicodeDecodeError):
            return "unknown"
        first, _, rest = version.partition(".")
        return rest if "." in rest and len(first) < 3 else version
