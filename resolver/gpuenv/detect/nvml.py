"""NVML, through nvidia-ml-py: the devices, the driver release and the CUDA version that the driver supports."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..model import CudaVersion, Gpu, Problem, Value, parse_release
from . import system

SECONDS = 60.0  # a cold driver without persistence takes a second or two for each device

_SONAME = "libnvidia-ml.so.1"
# What glibc, musl and macOS say of a library that is not there, rather than of one that cannot be loaded.
_NOT_THERE = (f"{_SONAME}: cannot open", f"Error loading shared library {_SONAME}:", f"dlopen({_SONAME}")
# nvml.h, nvmlReturn_t.
_NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND, _LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND = 3, 4, 6, 12, 13
_LOST, _RESET_REQUIRED, _MISMATCH = 15, 16, 18
# nvml.h, nvmlComputeMode_t.
_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_CODES = {
    4: ("no-permission", "give this user access to /dev/nvidia*, or run where it has it"),
    9: ("driver-not-loaded", "load the kernel module (modprobe nvidia) or reboot; after a kernel update, rebuild it"),
    12: ("nvml-library-not-found", "reinstall the driver's libraries"),
    15: ("gpu-lost", "the device fell off the bus: see the kernel log (Xid 79) and reboot"),
    16: ("gpu-reset-required", "reset the device (nvidia-smi --gpu-reset) or reboot"),
    18: ("driver-library-mismatch", "reboot, or unload and reload the nvidia kernel modules"),
    999: ("nvml-unknown-error", "in a container that lost its devices, restart it; else see the kernel log"),
}


class Instance(Value):
    """A MIG compute instance: the ids of its GPU instance and of itself, and the device that CUDA makes of it."""

    gpu_instance: int | None
    compute_instance: int | None
    gpu: Gpu


class Device(Value):
    """A physical device at its NVML index. `gpu` None is a device that does not answer."""

    index: int
    gpu: Gpu | None
    mig: bool = False
    instances: tuple[Instance, ...] = ()


class Reading(Value):
    """What could be read. `state`: ok; missing (no library); failed; unbound (no nvidia-ml-py); hung."""

    state: str
    devices: tuple[Device, ...] = ()
    driver: str | None = None
    driver_cuda: CudaVersion | None = None
    problems: tuple[Problem, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()


def read(root: str, kernel: str | None, seconds: float = SECONDS) -> Reading:
    """Everything NVML says, within `seconds`. `kernel` is the release of the loaded module, for a message."""
    problems: list[Problem] = []
    state = _load(root, problems)
    if state != "ok":
        return Reading(state=state, problems=tuple(problems))
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]  # takes 20 ms
    except ImportError:
        return Reading(state="unbound", problems=tuple(problems))
    import threading  # pynvml has imported it already

    session = _Session(pynvml, kernel, problems)
    # A thread, since a call into a broken driver may never return: it is left behind.
    thread = threading.Thread(target=session.run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        detail = f"NVML gave no answer in {seconds:g} s"
        problems = [*problems, Problem(code="nvml-timeout", detail=detail, hint="see the kernel log, and reboot")]
        return Reading(state="hung", problems=tuple(problems))
    if session.error is not None:
        raise session.error
    return session.result()


def _load(root: str, problems: list[Problem]) -> str:
    """Loads the library, so that nvidia-ml-py finds it by its soname. Returns "ok", "missing" or "failed"."""
    import ctypes  # takes 4 ms

    if os.name == "nt":
        return "ok"  # nvidia-ml-py knows the two places of nvml.dll
    try:
        ctypes.CDLL(_SONAME)
    except OSError as error:
        text = str(error)
        if not text.startswith(_NOT_THERE):
            hint = system.CONTAINER_HINT + "; else reinstall the driver"
            problems.append(Problem(code="driver-libraries-broken", detail=text, hint=hint))
            return "failed"
    else:
        return "ok"
    for folder in system.DRIVER_FOLDERS:
        try:
            ctypes.CDLL(os.path.join(root, folder, _SONAME))
        except OSError:
            continue
        detail = f"the driver's libraries are in /{folder}, where the loader does not look"
        hint = f"add /{folder} to LD_LIBRARY_PATH or to the loader's configuration (ldconfig)"
        problems.append(Problem(code="driver-libraries-off-path", detail=detail, hint=hint))
        return "ok"
    return "missing"


class _Session:
    """One nvmlInit to nvmlShutdown."""

    def __init__(self, nvml: Any, kernel: str | None, problems: list[Problem]) -> None:
        self.nvml, self.kernel, self.problems = nvml, kernel, list(problems)
        self.state = "failed"
        self.devices: list[Device] = []
        self.driver: str | None = None
        self.cuda: CudaVersion | None = None
        self.sources: list[tuple[str, str]] = []
        self.error: BaseException | None = None

    def result(self) -> Reading:
        return Reading(
            state=self.state, devices=tuple(self.devices), driver=self.driver, driver_cuda=self.cuda,
            problems=tuple(self.problems), sources=tuple(self.sources),
        )  # fmt: skip

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:  # carried over to the caller's thread
            self.error = error

    def _run(self) -> None:
        try:
            self.nvml.nvmlInit()
        except self.nvml.NVMLError as error:
            self._note(error.value, "NVML does not start")
            return
        try:
            self._read_driver()
            count = self.nvml.nvmlDeviceGetCount()
            self.state = "ok"
            self.sources.append(("gpus", "NVML"))
            for index in range(count):
                self.devices.append(self._device(index))
        except self.nvml.NVMLError as error:
            self._note(error.value, "NVML lists no devices")
        finally:
            self._quietly(self.nvml.nvmlShutdown)

    def _read_driver(self) -> None:
        text = self._ask("the driver release", self.nvml.nvmlSystemGetDriverVersion)
        try:
            parse_release(text or "")
            self.driver = text
            self.sources.append(("driver", "NVML"))
        except ValueError:
            self.sources.append(("driver", f"NVML said {text!r}, which is not a driver release"))
        try:
            # Not the first version of this call: without libcuda that one makes an answer up.
            number = self.nvml.nvmlSystemGetCudaDriverVersion_v2()
        except self.nvml.NVMLError as error:
            if error.value in (_LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND):
                hint = "install the driver's libcuda; in a container set NVIDIA_DRIVER_CAPABILITIES=compute,utility"
                detail = "NVML answers, and the loader finds no libcuda.so.1: CUDA cannot start"
                self.problems.append(Problem(code="libcuda-missing", detail=detail, hint=hint))
            else:
                self._note(error.value, "the driver's CUDA version")
            return
        if number > 0:
            self.cuda = (number // 1000, number % 1000 // 10)
            self.sources.append(("driver_cuda", "NVML"))

    def _device(self, index: int) -> Device:
        """The device; one that is lost or wants a reset keeps its place, since CUDA's numbers count on it."""
        nvml = self.nvml
        what = f"GPU {index}"
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            bus = self._optional(nvml.nvmlDeviceGetPciInfo, handle)
            bus_id = None if bus is None else _text(bus.busId)
            what += f" ({bus_id})" if bus_id else ""
            name = self._ask(f"the name of {what}", nvml.nvmlDeviceGetName, handle) or "unknown"
            ecc = self._optional(nvml.nvmlDeviceGetEccMode, handle)
            mode = self._optional(nvml.nvmlDeviceGetComputeMode, handle)
            gpu = Gpu(
                name=name,
                compute_capability=self._ask(
                    f"the compute capability of {what}", nvml.nvmlDeviceGetCudaComputeCapability, handle
                ),
                index=index,
                uuid=self._optional(nvml.nvmlDeviceGetUUID, handle),
                pci_bus_id=bus_id,
                compute_mode=None if mode is None else _COMPUTE_MODES.get(mode),
                ecc=None if ecc is None else bool(ecc[0]),
                **self._memory(handle),
            )
            mig = self._optional(nvml.nvmlDeviceGetMigMode, handle)
            on = bool(mig and mig[0])
            return Device(index=index, gpu=gpu, mig=on, instances=self._instances(handle, gpu) if on else ())
        except nvml.NVMLError as error:
            self._note(error.value, what)
            return Device(index=index, gpu=None)

    def _memory(self, handle: Any) -> dict[str, Any]:
        memory = self._optional(self.nvml.nvmlDeviceGetMemoryInfo, handle)
        return {} if memory is None else {"memory_total": int(memory.total), "memory_free": int(memory.free)}

    def _instances(self, handle: Any, parent: Gpu) -> tuple[Instance, ...]:
        nvml, found = self.nvml, []
        for number in range(self._optional(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            try:
                instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            except nvml.NVMLError as error:
                if error.value != _NOT_FOUND:  # the numbers have gaps
                    self._note(error.value, f"MIG device {number} of GPU {parent.index}")
                continue
            gpu = parent.replace(
                name=self._optional(nvml.nvmlDeviceGetName, instance) or f"{parent.name} MIG",
                uuid=self._optional(nvml.nvmlDeviceGetUUID, instance),
                mig=True,
                **{"memory_total": None, "memory_free": None, **self._memory(instance)},
            )
            ids = (nvml.nvmlDeviceGetGpuInstanceId, nvml.nvmlDeviceGetComputeInstanceId)
            first, second = (self._optional(ask, instance) for ask in ids)
            found.append(Instance(gpu_instance=first, compute_instance=second, gpu=gpu))
        return tuple(found)

    def _ask(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """The answer, or None with a problem noted. Errors that condemn the whole device are raised."""
        try:
            return call(*arguments)
        except self.nvml.NVMLError as error:
            if error.value in (_LOST, _RESET_REQUIRED):
                raise
            self._note(error.value, what)
        except UnicodeDecodeError:
            self.problems.append(Problem(code="nvml-error", detail=f"{what}: NVML's text is not UTF-8"))
        return None

    def _optional(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The answer, or None: nothing depends on this fact, and many devices do not have it."""
        try:
            return call(*arguments)
        except self.nvml.NVMLError as error:
            if error.value in (_LOST, _RESET_REQUIRED):
                raise
        except UnicodeDecodeError:
            pass
        return None

    def _quietly(self, call: Callable[..., Any]) -> Any:
        try:
            return call()
        except (self.nvml.NVMLError, UnicodeDecodeError):
            return None

    def _note(self, number: int, what: str) -> None:
        code, hint = _CODES.get(number, ("nvml-error", "see the kernel log; nvidia-smi says more"))
        names = (name for name in dir(self.nvml) if name.startswith("NVML_ERROR_"))
        name = next((name for name in names if getattr(self.nvml, name) == number), "unknown to nvidia-ml-py")
        detail = f"{what}: NVML error {number} ({name})"
        if number == _MISMATCH:
            detail += f"; the kernel module is {self.kernel or 'unknown'}, the libraries are {self._library()}"
        self.problems.append(Problem(code=code, detail=detail, hint=hint))

    def _library(self) -> str:
        """NVML's own release, which it tells before it starts; newer ones put their CUDA major before it."""
        text = self._quietly(self.nvml.nvmlSystemGetNVMLVersion)
        if not text:
            return "unknown"
        major, _, rest = text.partition(".")
        return rest if rest.count(".") and len(major) < 3 else str(text)


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
