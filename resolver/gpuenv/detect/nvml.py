"""Read the devices, the driver release and the driver's CUDA version from NVML (nvidia-ml-py)."""

from __future__ import annotations

import os
from collections.abc import Callable
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
_NO_PERMISSION = 4
_NOT_FOUND = 6
_DRIVER_NOT_LOADED = 9
_LIBRARY_NOT_FOUND = 12
_FUNCTION_NOT_FOUND = 13
_GPU_IS_LOST = 15
_RESET_REQUIRED = 16
_LIB_RM_VERSION_MISMATCH = 18
_UNKNOWN = 999
_DEVICE_ERRORS = (_GPU_IS_LOST, _RESET_REQUIRED)
# nvml.h, nvmlComputeMode_t.
_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
# NVML error -> (problem code, hint)
_PROBLEMS = {
    _NO_PERMISSION: (
        "no-permission",
        "give this user access to /dev/nvidia*, or run as a user who has it",
    ),
    _DRIVER_NOT_LOADED: (
        "driver-not-loaded",
        "load the kernel module (modprobe nvidia) or reboot; after a kernel update, rebuild it",
    ),
    _LIBRARY_NOT_FOUND: ("nvml-library-not-found", "reinstall the driver's libraries"),
    _GPU_IS_LOST: (
        "gpu-lost",
        "the device fell off the bus: see the kernel log (Xid 79) and reboot",
    ),
    _RESET_REQUIRED: (
        "gpu-reset-required",
        "reset the device (nvidia-smi --gpu-reset) or reboot",
    ),
    _LIB_RM_VERSION_MISMATCH: (
        "driver-library-mismatch",
        "reboot, or unload and reload the nvidia kernel modules",
    ),
    _UNKNOWN: (
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


class Reading(Value):
    """The facts that could be read.

    `state` is "ok", "missing" (no library), "failed", "unbound" (no nvidia-ml-py) or "hung".
    """

    state: str
    devices: tuple[Device, ...] = ()
    driver: str | None = None
    driver_cuda: CudaVersion | None = None
    problems: tuple[Problem, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()


def read(root: str, kernel: str | None, seconds: float = SECONDS) -> Reading:
    """Read all facts from NVML.

    Args:
        root: prefix of the folders that are searched if the loader does not find the library.
        kernel: the release of the loaded kernel module, for a message.
        seconds: the time limit.
    """
    problems: list[Problem] = []
    state = _load(root, problems)
    if state != "ok":
        return Reading(state=state, problems=tuple(problems))
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]  # takes 20 ms
    except ImportError:
        return Reading(state="unbound", problems=tuple(problems))
    import threading  # pynvml has imported it already; a host without NVML does not need it

    session = _Session(pynvml, kernel, problems)
    # A call into a broken driver may never return. The daemon thread is then abandoned.
    thread = threading.Thread(target=session.run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        timeout = Problem(
            code="nvml-timeout",
            detail=f"NVML gave no answer in {seconds:g} s",
            hint="see the kernel log, and reboot",
        )
        return Reading(state="hung", problems=(*problems, timeout))
    if session.error is not None:
        raise session.error
    return session.reading()


def _load(root: str, problems: list[Problem]) -> str:
    """Load the library, so that nvidia-ml-py finds it by its soname.

    Returns:
        "ok", "missing" or "failed".
    """
    import ctypes  # takes 4 ms

    if os.name == "nt":
        return "ok"  # nvidia-ml-py knows the two places of nvml.dll
    try:
        ctypes.CDLL(_SONAME)
        return "ok"
    except OSError as error:
        message = str(error)
    if not message.startswith(_NOT_FOUND_MESSAGES):
        hint = f"{system.CONTAINER_HINT}; otherwise reinstall the driver"
        problems.append(Problem(code="driver-libraries-broken", detail=message, hint=hint))
        return "failed"
    for folder in system.DRIVER_FOLDERS:
        try:
            ctypes.CDLL(os.path.join(root, folder, _SONAME))
        except OSError:
            continue
        detail = f"the driver's libraries are in /{folder}, where the loader does not search"
        hint = f"add /{folder} to LD_LIBRARY_PATH or to the loader's configuration (ldconfig)"
        problems.append(Problem(code="driver-libraries-off-path", detail=detail, hint=hint))
        return "ok"
    return "missing"


class _Session:
    """One session of NVML, from nvmlInit to nvmlShutdown."""

    def __init__(self, nvml: ModuleType, kernel: str | None, problems: list[Problem]) -> None:
        self.nvml = nvml
        self.kernel = kernel
        self.problems = list(problems)
        self.state = "failed"
        self.devices: list[Device] = []
        self.driver: str | None = None
        self.cuda: CudaVersion | None = None
        self.sources: list[tuple[str, str]] = []
        self.error: BaseException | None = None

    def reading(self) -> Reading:
        return Reading(
            state=self.state,
            devices=tuple(self.devices),
            driver=self.driver,
            driver_cuda=self.cuda,
            problems=tuple(self.problems),
            sources=tuple(self.sources),
        )

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:  # the caller's thread raises it
            self.error = error

    def _run(self) -> None:
        try:
            self.nvml.nvmlInit()
        except self.nvml.NVMLError as error:
            self._add_problem(error.value, "NVML does not start")
            return
        try:
            self._read_driver_release()
            self._read_driver_cuda()
            count = self.nvml.nvmlDeviceGetCount()
            self.state = "ok"
            self.sources.append(("gpus", "NVML"))
            for index in range(count):
                self.devices.append(self._device(index))
        except self.nvml.NVMLError as error:
            self._add_problem(error.value, "NVML cannot list the devices")
        finally:
            self._query_silently(self.nvml.nvmlShutdown)

    def _read_driver_release(self) -> None:
        release = self._query("the driver release", self.nvml.nvmlSystemGetDriverVersion)
        try:
            parse_release(release or "")
        except ValueError:
            source = f"NVML returned {release!r}, which is not a driver release"
            self.sources.append(("driver", source))
            return
        self.driver = release
        self.sources.append(("driver", "NVML"))

    def _read_driver_cuda(self) -> None:
        try:
            # The first version of this call returns an invented number if libcuda is missing.
            number = self.nvml.nvmlSystemGetCudaDriverVersion_v2()
        except self.nvml.NVMLError as error:
            if error.value not in (_LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND):
                self._add_problem(error.value, "the driver's CUDA version")
                return
            missing = Problem(
                code="libcuda-missing",
                detail="NVML works, but the loader finds no libcuda.so.1: CUDA cannot start",
                hint="install the driver's libcuda; in a container set"
                " NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            )
            self.problems.append(missing)
            return
        if number > 0:
            self.cuda = (number // 1000, number % 1000 // 10)
            self.sources.append(("driver_cuda", "NVML"))

    def _device(self, index: int) -> Device:
        """Read a device.

        A device that is lost or needs a reset keeps its place, because CUDA's numbers include it.
        """
        nvml = self.nvml
        subject = f"GPU {index}"
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            bus_id = self._bus_id(handle)
            if bus_id:
                subject += f" ({bus_id})"
            gpu = self._gpu(handle, index, bus_id, subject)
            mig_mode = self._query_optional(nvml.nvmlDeviceGetMigMode, handle)
            if not mig_mode or not mig_mode[0]:
                return Device(index=index, gpu=gpu)
            return Device(index=index, gpu=gpu, mig=True, instances=self._instances(handle, gpu))
        except nvml.NVMLError as error:
            self._add_problem(error.value, subject)
            return Device(index=index, gpu=None)

    def _bus_id(self, handle: object) -> str | None:
        info = self._query_optional(self.nvml.nvmlDeviceGetPciInfo, handle)
        if info is None:
            return None
        bus_id: str | bytes = info.busId
        if isinstance(bus_id, bytes):
            return bus_id.decode(errors="replace")
        return bus_id

    def _gpu(self, handle: object, index: int, bus_id: str | None, subject: str) -> Gpu:
        nvml = self.nvml
        name = self._query(f"the name of {subject}", nvml.nvmlDeviceGetName, handle)
        ecc_mode = self._query_optional(nvml.nvmlDeviceGetEccMode, handle)
        ecc = None
        if ecc_mode is not None:
            ecc = bool(ecc_mode[0])
        mode = self._query_optional(nvml.nvmlDeviceGetComputeMode, handle)
        compute_mode = None
        if mode is not None:
            compute_mode = _COMPUTE_MODES.get(mode)
        capability = self._query(
            f"the compute capability of {subject}", nvml.nvmlDeviceGetCudaComputeCapability, handle
        )
        uuid = self._query_optional(nvml.nvmlDeviceGetUUID, handle)
        total, free = self._memory(handle)
        return Gpu(
            name=name or "unknown",
            compute_capability=capability,
            index=index,
            uuid=uuid,
            pci_bus_id=bus_id,
            memory_total=total,
            memory_free=free,
            compute_mode=compute_mode,
            ecc=ecc,
        )

    def _memory(self, handle: object) -> tuple[int | None, int | None]:
        """Return (total, free) in bytes."""
        memory = self._query_optional(self.nvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is None:
            return None, None
        return int(memory.total), int(memory.free)

    def _instances(self, handle: object, parent: Gpu) -> tuple[Instance, ...]:
        nvml = self.nvml
        instances = []
        count = self._query_optional(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
        for number in range(count):
            try:
                instance_handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            except nvml.NVMLError as error:
                if error.value != _NOT_FOUND:  # the numbers have gaps
                    subject = f"MIG device {number} of GPU {parent.index}"
                    self._add_problem(error.value, subject)
                continue
            instances.append(self._instance(instance_handle, parent))
        return tuple(instances)

    def _instance(self, handle: object, parent: Gpu) -> Instance:
        nvml = self.nvml
        name = self._query_optional(nvml.nvmlDeviceGetName, handle)
        uuid = self._query_optional(nvml.nvmlDeviceGetUUID, handle)
        total, free = self._memory(handle)
        gpu = parent.replace(
            name=name or f"{parent.name} MIG",
            uuid=uuid,
            mig=True,
            memory_total=total,
            memory_free=free,
        )
        return Instance(
            gpu_instance=self._query_optional(nvml.nvmlDeviceGetGpuInstanceId, handle),
            compute_instance=self._query_optional(nvml.nvmlDeviceGetComputeInstanceId, handle),
            gpu=gpu,
        )

    # ---- queries

    def _query(
        self, subject: str, call: Callable[..., Answer], *arguments: object
    ) -> Answer | None:
        """Return the answer, or None and add a problem.

        Raises:
            NVMLError: the whole device is unusable.
        """
        try:
            return call(*arguments)
        except self.nvml.NVMLError as error:
            if error.value in _DEVICE_ERRORS:
                raise
            self._add_problem(error.value, subject)
        except UnicodeDecodeError:
            detail = f"{subject}: NVML's text is not UTF-8"
            self.problems.append(Problem(code="nvml-error", detail=detail))
        return None

    def _query_optional(self, call: Callable[..., Answer], *arguments: object) -> Answer | None:
        """Return the answer, or None: many devices lack this fact and nothing depends on it.

        Raises:
            NVMLError: the whole device is unusable.
        """
        try:
            return call(*arguments)
        except self.nvml.NVMLError as error:
            if error.value in _DEVICE_ERRORS:
                raise
        except UnicodeDecodeError:
            pass
        return None

    def _query_silently(self, call: Callable[..., Answer]) -> Answer | None:
        """Return the answer, or None after any error."""
        try:
            return call()
        except (self.nvml.NVMLError, UnicodeDecodeError):
            return None

    # ---- problems

    def _add_problem(self, number: int, subject: str) -> None:
        code, hint = _PROBLEMS.get(number, _OTHER_PROBLEM)
        detail = f"{subject}: NVML error {number} ({self._error_name(number)})"
        if number == _LIB_RM_VERSION_MISMATCH:
            kernel = self.kernel or "unknown"
            libraries = self._library_release()
            detail += f"; the kernel module is {kernel}, the libraries are {libraries}"
        self.problems.append(Problem(code=code, detail=detail, hint=hint))

    def _error_name(self, number: int) -> str:
        for name in dir(self.nvml):
            if name.startswith("NVML_ERROR_") and getattr(self.nvml, name) == number:
                return name
        return "unknown to nvidia-ml-py"

    def _library_release(self) -> str:
        """Return NVML's own release, which it reports before it starts.

        Newer libraries put their CUDA major version before the release.
        """
        version = self._query_silently(self.nvml.nvmlSystemGetNVMLVersion)
        if not version:
            return "unknown"
        first, _, rest = str(version).partition(".")
        if "." in rest and len(first) < 3:
            return rest
        return str(version)
