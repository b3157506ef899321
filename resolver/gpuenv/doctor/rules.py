"""The rules, which draw conclusions (findings) from facts. Each function separates related causes.

Two other sources of findings are in verdicts.py and causes.toml: a message that names its cause,
and a test of the host that proves or rules out a cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from . import architecture_rules, build_rules, library_rules
from .facts import LEAST_BYTES_OF_HANDLE, NVIDIA_KINDS, Case, Memory, first_of, with_names
from .model import Fact, Finding, likely, possible, proved
from .status_codes import CUDA_CAUSES, XID_CERTAIN, XID_HARDWARE, version_tuple

_DRIVER_MISMATCH = ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "803")
_NO_DEVICE = ("100", "38")  # CUDA_ERROR_NO_DEVICE, and cudaErrorNoDevice before CUDA 10.1
# What messages say in a container that was started without the GPU.
_WITHOUT_GPU = ("driver_not_found", "driver_not_loaded", "driver_too_old", "visible_devices_wrong")
# What messages say in a container that has the GPU.
_WITH_DEVICE = ("container_gpu_access_lost", "gpu_busy_or_exclusive", "gpu_hardware_fault")
# Messages that a container's driver is older than its image: the container has the driver.
COMPARES_DRIVER = frozenset(("built-for-driver", "container-wants-driver", "driver-below-image"))
# What the runtime returns if the driver is too old, and also if there is none.
INSUFFICIENT_DRIVER = frozenset(("insufficient-driver", "driver-not-sufficient", "35"))
DRIVER_ABSENT_IN_WORDS = "driver-absent-in-words"  # a message of programs and of reporters
# TensorFlow's message of a missing driver, which it also prints if it does not find libcudart.
DRIVER_OR_CUDART_ABSENT = "could-not-find-cuda-drivers"
WORKS_AFTER_PROGRAM_ON_HOST = "works-after-a-program-on-the-host"
NO_DRIVER_FILES = "no-driver-files"  # a message: the files of the driver's devices are absent
# Messages that nvidia-smi cannot communicate with the driver.
SMI_FAILED = ("nvidia-smi-failed", "nvidia-smi-cannot")
# What programs and reporters say if no GPU is seen.
_NO_GPU = ("cuda-unavailable", "took-cpu", "reported-unavailable", "no-gpu-seen")
# What a reporter says was updated -> the cause if the GPU is lost then.
_CAUSES_OF_UPDATES = {
    "driver-updated": "driver_userspace_kernel_mismatch",
    "kernel-updated": "driver_not_loaded",
}
# TensorFlow, in its source before XLA was a project of its own, or by its name.
_OF_TENSORFLOW = re.compile(r"(?i)tensorflow|\bkeras\b|(?<!/)\bcuda_dnn\.cc")
# What cuDNN returns mostly if it cannot allocate memory.
_STATUS_WITHOUT_MEMORY = "CUDNN_STATUS_INTERNAL_ERROR"
# What messages say on a machine without a driver.
_WITHOUT_DRIVER = ("driver_not_found", "driver_not_loaded")
# Messages that the libstdc++ of the system or of a conda environment hides the other one.
_LIBSTDCXX_OF_CONDA = ("libstdcxx-of-conda", "old-libstdcxx-of-conda")
_OPEN_COMPUTE_MODE = re.compile(r"(?i)default|0")


def findings(case: Case) -> Iterator[Finding]:
    """Yield the findings of all rules."""
    for rule in _RULES:
        yield from rule(case)


# ---- the driver ---------------------------------------------------------------------------------


def driver_versions(case: Case) -> Iterator[Finding]:
    """Compare the release of the kernel module with the release of the driver's libraries."""
    statuses = _with_values(case.about("status", "cuda"), *_DRIVER_MISMATCH)
    failed = case.failed("driver-versions")
    differing = _differing_releases(case)
    if not (failed or statuses or differing):
        return
    finding = proved if failed or differing else likely
    facts = [failed, *statuses, *differing]
    compat = _compat_library(case)
    container = case.first("container", value="yes")
    if compat or (container and (statuses or _is_compat_release(differing))):
        yield finding("compat_libcuda_misuse", *facts, compat, container)
    else:
        yield finding("driver_userspace_kernel_mismatch", *facts)


def _differing_releases(case: Case) -> list[Fact]:
    """Return the releases of the kernel module and of libcuda if they differ."""
    kernel = case.first("driver", subject="kernel")
    userspace = case.first("driver", subject="userspace")
    if kernel and userspace and _release(kernel) != _release(userspace):
        return [kernel, userspace]
    return []


def _release(driver: Fact) -> tuple[int, ...]:
    """Return a driver's release as numbers; TensorFlow prints 470.82 as "470.82.0"."""
    return (*version_tuple(driver.value), 0, 0, 0)[:3]


def _is_compat_release(differing: list[Fact]) -> bool:
    """Whether libcuda is newer than the kernel module, as an image's own libcuda is."""
    if not differing:
        return False
    kernel, userspace = differing
    return version_tuple(userspace.value) > version_tuple(kernel.value)


def _compat_library(case: Case) -> Fact | None:
    """Return the fact that libcuda is a forward-compatibility library, or None."""
    for fact in case.of_kind("library-from"):
        if fact.subject.startswith("libcuda.so") and "/compat" in fact.value:
            return fact
    return first_of(case.symptoms("compat-path"))


def compat_path(case: Case) -> Iterator[Finding]:
    """Find the forward-compatibility libcuda that a path names, if CUDA is not available.

    It is the likely cause if the log shows the driver, so that the GPU is there.
    """
    paths = case.symptoms("compat-path")
    if not paths:
        return
    failures = case.symptoms("cuda-unavailable")
    if has_driver_of_container(case):
        lost = [*_lost_gpu(case), *case.about("maybe", "driver_not_found")]
        for fact in lost:
            yield likely("compat_libcuda_misuse", fact, paths[0])
    failures += [fact for fact in case.symptoms("unexplained") if "compat" in fact.text]
    if failures:
        yield possible("compat_libcuda_misuse", failures[0], paths[0])


def driver_presence(case: Case) -> Iterator[Finding]:
    """Explain from the host's facts why the driver does not answer."""
    lost = case.failed("libcuda") or case.failed("nvml")
    missing_nodes = _with_values(case.about("device-node", "/dev/nvidiactl"), "missing")
    container = case.first("container", value="yes")
    # The container of a log may be on another machine.
    if container and not container.from_log and (lost or missing_nodes):
        yield proved("container_gpu_not_injected", container, lost, *missing_nodes)
    else:
        yield from _driver_of_host(case, lost)


def _driver_of_host(case: Case, lost: Fact | None) -> Iterator[Finding]:
    """Find a kernel module that is not loaded, or a host without a GPU.

    Args:
        lost: the failed test of the driver's libraries, or None.
    """
    unloaded = _with_values(case.about("module", "nvidia"), "absent", "missing")
    gpus = [fact for fact in case.preferred("pci-gpu") if not fact.from_log]
    has_gpu = any(fact.value != "0" for fact in gpus)
    if unloaded and (lost or has_gpu):
        yield proved("driver_not_loaded", *unloaded, lost)
    elif gpus and not has_gpu and (case.log or lost):
        yield proved("driver_not_found", *gpus)


def updated_hosts(case: Case) -> Iterator[Finding]:
    """Find a kernel or a driver that was updated before the GPU was lost, in a reporter's words."""
    if case.first("container", value="yes"):
        return
    for symptom, cause in _CAUSES_OF_UPDATES.items():
        for words in case.symptoms(symptom)[:1]:
            for fact in _lost_gpu(case):
                yield likely(cause, fact, words)
            for fact in case.unexplained():
                yield possible(cause, fact, words)


def modules_held_back(case: Case) -> Iterator[Finding]:
    """Find a module that the kernel does not load, by words, if a program finds no GPU."""
    held_back = first_of(case.symptoms("module-held-back"))
    if held_back is None or case.first("container", value="yes"):
        return
    if case.of_kind("driver", "smi-memory"):
        return  # nvidia-smi worked
    for fact in (*_absent_driver(case), *_lost_gpu(case), *case.symptoms(*_NO_GPU)):
        yield likely("driver_not_loaded", fact, held_back)
    for fact in case.unexplained():
        yield possible("driver_not_loaded", fact, held_back)


def modules_of_kernels(case: Case) -> Iterator[Finding]:
    """Find a kernel for which the driver's module is not installed, by dkms's list."""
    built = case.about("kernel-built", "nvidia")
    if not built:
        return
    for running in case.of_kind("kernel-running"):
        if not any(_is_same_kernel(running.value, fact.value) for fact in built):
            yield likely("driver_not_loaded", running, *built)


def _is_same_kernel(release: str, other: str) -> bool:
    """Whether two releases are of one kernel; one of them may lack its last parts."""
    return release.startswith(other) or other.startswith(release)


def hosted_runners(case: Case) -> Iterator[Finding]:
    """Explain a missing GPU on a machine of a CI service: these machines have none."""
    hosted = first_of(case.symptoms("hosted-runner"))
    if hosted is None or case.of_kind("driver", "driver-cuda", "smi-memory", "gpu"):
        return
    for fact in _absent_driver(case):
        yield likely("driver_not_found", fact, hosted)
    for fact in case.symptoms(*_NO_GPU):
        yield possible("driver_not_found", fact, hosted)


def machines_without_gpu(case: Case) -> Iterator[Finding]:
    """Explain a missing GPU on a machine that has none, by words."""
    without = case.symptoms("machine-without-gpu")
    if not without or case.of_kind(*NVIDIA_KINDS):
        return
    for fact in (*_absent_driver(case), *case.symptoms(*_NO_GPU)):
        yield likely("driver_not_found", fact, without[0])
    for fact in case.unexplained():
        yield possible("driver_not_found", fact, without[0])


def _absent_driver(case: Case) -> list[Fact]:
    """Return the messages of a program that finds no driver, or no GPU."""
    absent = [fact for fact in case.of_kind("hints", "maybe") if fact.subject in _WITHOUT_DRIVER]
    insufficient = [fact for fact in case.of_kind("says") if fact.value in INSUFFICIENT_DRIVER]
    numbers = _with_values(case.about("status", "cuda"), *INSUFFICIENT_DRIVER)
    libraries = case.about("library-missing", "libcuda.so.1")
    return [*_unseen_devices(case), *absent, *insufficient, *numbers, *libraries]


def _lost_gpu(case: Case) -> list[Fact]:
    """Return the messages of a program that sees no GPU, or that fails as if it were lost."""
    failed = case.about("hints", "uvm_or_driver_state_broken")
    return _unseen_devices(case) + failed + case.symptoms("cuda-unavailable")


def driver_in_use(case: Case) -> Fact | None:
    """Return the words of a reporter that the driver is there, as other programs use it."""
    if case.first("container", value="yes") or case.first("wsl", value="yes"):
        return None
    return first_of(case.symptoms("gpu-used-elsewhere"))


def unaccepted_driver(case: Case) -> Iterator[Finding]:
    """Suggest why one program does not find the driver that others use.

    The driver is too old for it; TensorFlow's message also means that libcudart is missing.
    """
    words = driver_in_use(case)
    if words:
        for fact in with_names(case, "driver_not_found", (DRIVER_ABSENT_IN_WORDS,)):
            yield possible("driver_too_old", fact, words)
        for fact in with_names(case, "driver_not_found", (DRIVER_OR_CUDART_ABSENT,)):
            yield possible("cuda_lib_missing", fact, words)


def changed_machines(case: Case) -> Iterator[Finding]:
    """Find a module that is not loaded: no GPU is seen after a restart, or on a new machine."""
    changed = first_of(case.symptoms("machine-changed"))
    if changed is None or case.first("container", value="yes") or case.of_kind("variable"):
        return
    if case.of_kind("driver", "driver-cuda", "smi-memory", "chosen-devices"):
        return
    for fact in _unseen_devices(case):
        yield likely("driver_not_loaded", fact, changed)
    for fact in case.symptoms("no-gpu-seen"):
        yield possible("driver_not_loaded", fact, changed)


def driver_state(case: Case) -> Iterator[Finding]:
    """Find kernel modules in a broken state: after a suspend, or if the same program worked."""
    suspended = first_of(case.symptoms("uvm-reloaded", "suspended"))
    failure = first_of(case.symptoms("launch", "cuda-unavailable", "unexplained"))
    if suspended and failure:
        yield likely("uvm_or_driver_state_broken", failure, suspended)
    worked = first_of(case.symptoms("worked-before"))
    if worked and not (case.of_kind("variable") or case.first("container", value="yes")):
        for fact in _unseen_devices(case):
            yield likely("uvm_or_driver_state_broken", fact, worked)
    failed = case.failed("cuinit")
    if failed and _host_has_unknown_error(case) and case.passed("nvml"):
        yield proved("uvm_or_driver_state_broken", failed)


def _host_has_unknown_error(case: Case) -> bool:
    return any(fact.kind == "status" and fact.value == "CUDA_ERROR_UNKNOWN" for fact in case.host)


# ---- surroundings and devices -------------------------------------------------------------------


def container_devices(case: Case) -> Iterator[Finding]:
    """Find a container that was started without the GPU."""
    if _programs_without_glibc(case):
        return
    container = case.first("container", value="yes")
    words = tuple(case.about("suggests", "container_gpu_not_injected"))
    for kind in ("hints", "maybe"):
        for fact in case.about(kind, "driver_not_found"):
            if fact.value == library_rules.WITHOUT_LIBCUDA_NAME:
                continue  # cuDNN runs on the GPU
            if container:
                yield likely("container_gpu_not_injected", fact, container)
            elif len(words) > 1:
                yield likely("container_gpu_not_injected", fact, *words)
    if container and container.from_log and not case.symptoms("gpu-lost-later"):
        yield from _unseen_in_container(case, container)


def _unseen_in_container(case: Case, container: Fact) -> Iterator[Finding]:
    """Find a container in which a program says that it sees no GPU."""
    if not _has_device_of_container(case):
        for fact in _unseen_devices(case):
            yield likely("container_gpu_not_injected", fact, container)
    if case.symptoms("cuda-available", "driver-in-container"):
        return
    unavailable = case.symptoms("cuda-unavailable", "took-cpu", "no-gpu-seen")
    chosen = first_of(case.of_kind("chosen-devices"))
    if chosen and unavailable:
        yield possible("visible_devices_wrong", unavailable[0], chosen)
        return
    if case.unexplained() or case.of_kind("gpu", "driver"):
        unavailable += case.symptoms("reported-unavailable")
    for fact in unavailable:
        yield possible("container_gpu_not_injected", fact, container)


def _has_device_of_container(case: Case) -> bool:
    """Whether the log shows the GPU of its container, or a variable that selects a GPU."""
    if any(case.about("hints", cause) for cause in _WITH_DEVICE):
        return True
    shown = has_driver_of_container(case) or case.symptoms("cuda-available")
    chosen = case.about("variable", "CUDA_VISIBLE_DEVICES") or case.of_kind("chosen-devices")
    return bool(shown or chosen)


def has_driver_of_container(case: Case) -> bool:
    """Whether something shows that a container has the driver or was started with the GPU."""
    shown = case.of_kind("driver", "driver-cuda", "smi-memory")
    return bool(shown or case.symptoms("started-with-gpu"))


def _unseen_devices(case: Case) -> list[Fact]:
    """Return the messages that no device is seen, without those that a number is wrong."""
    stated = _with_values(case.about("hints", "visible_devices_wrong"), "no-device")
    named = [fact for fact in stated if "ordinal" not in fact.text]
    return named + _with_values(case.about("status", "cuda"), *_NO_DEVICE)


def container_command(case: Case) -> Iterator[Finding]:
    """Find a command that starts a container without the GPU."""
    started = first_of(case.symptoms("started-without-gpu"))
    if started is None:
        return
    for fact in case.of_kind("says", "hints", "maybe"):
        if fact.subject in _WITHOUT_GPU and fact.value not in COMPARES_DRIVER:
            yield likely("container_gpu_not_injected", fact, started)
    for fact in (
        *case.about("suggests", "container_gpu_not_injected"),
        *case.symptoms("cuda-unavailable", "took-cpu"),
    ):
        yield possible("container_gpu_not_injected", fact, started)
    for fact in case.symptoms("no-gpu-seen"):
        yield likely("container_gpu_not_injected", fact, started)


def container_driver(case: Case) -> Iterator[Finding]:
    """Find a program in a container that needs a driver, if the log shows none."""
    for fact in case.of_kind("says", "hints", "status"):
        if lacks_driver_of_container(fact, case):
            yield likely("container_gpu_not_injected", fact, *case.symptoms("in-container"))


def lacks_driver_of_container(fact: Fact, case: Case) -> bool:
    """Whether a program in a container misses a driver, and nothing shows that it has one."""
    if not fact.from_log or not case.symptoms("in-container"):
        return False
    return fact.value in INSUFFICIENT_DRIVER and not has_driver_of_container(case)


def devices_of_host(case: Case) -> Iterator[Finding]:
    """Find a container that sees no GPU although its host has one, in the words of a reporter."""
    works = first_of(case.symptoms("gpu-works-on-host"))
    if works is None or not case.first("container", value="yes"):
        return
    if case.symptoms("fails-on-host"):
        return
    is_cpu_build = any(fact.value == "none" for fact in case.of_kind("cuda-built"))
    if is_cpu_build or case.symptoms("gpu-lost-later"):
        return
    stated = [*case.about("says", "driver_not_loaded"), *case.about("hints", "driver_not_loaded")]
    for fact in [*case.symptoms(*_NO_GPU), *_with_values(stated, *SMI_FAILED)]:
        yield likely("container_gpu_not_injected", fact, works)
    for fact in case.unexplained():
        yield possible("container_gpu_not_injected", fact, works)


def lost_devices(case: Case) -> Iterator[Finding]:
    """Find a container that saw the GPU at first, in the words of a reporter."""
    lost = first_of(case.symptoms("gpu-lost-later"))
    container = case.first("container", value="yes")
    if lost is None or container is None:
        return
    for fact in _lost_gpu(case):
        yield likely("container_gpu_access_lost", fact, lost)


def container_files(case: Case) -> Iterator[Finding]:
    """Find a container that lacks the files of the driver's devices."""
    container = case.first("container", value="yes")
    for fact in case.about("hints", "driver_not_loaded"):
        if container and fact.value == NO_DRIVER_FILES:
            yield likely("container_gpu_not_injected", fact, container)


def wsl_driver(case: Case) -> Iterator[Finding]:
    """Find a Linux driver in WSL, where the driver is the one of Windows."""
    wsl = case.first("wsl", value="yes")
    if wsl is None:
        return
    for fact in case.about("says", "driver_not_loaded"):
        if fact.value in SMI_FAILED:
            yield proved("wsl_driver_or_toolkit", fact, wsl)
    for fact in case.about("hints", "driver_not_loaded"):
        if fact.value == "nvidia-smi-cannot":
            yield likely("wsl_driver_or_toolkit", fact, wsl)
    for fact in case.about("says", "driver_userspace_kernel_mismatch"):
        yield likely("wsl_driver_or_toolkit", fact, wsl)


def wsl_devices(case: Case) -> Iterator[Finding]:
    """Find WSL without its GPU: it has one at most, and a Linux driver's library may hide it."""
    wsl = case.first("wsl", value="yes")
    if wsl is None:
        return
    unseen = _unseen_devices(case)
    if case.first("container", value="yes") is None:
        unseen += case.about("hints", "driver_not_found")
        for fact in case.about("maybe", "driver_not_found"):
            yield possible("wsl_driver_or_toolkit", fact, wsl)
    else:
        unseen += filter(_is_start_of_toolkit, case.about("hints", "container_gpu_not_injected"))
    for fact in unseen:
        yield likely("wsl_driver_or_toolkit", fact, wsl)


def _is_start_of_toolkit(fact: Fact) -> bool:
    """Whether the container toolkit reports that it found no driver or no GPU."""
    if fact.value == "no-gpu-offered":
        return "only 0 Devices" in fact.text
    return fact.value == "container-cli" and "initialization error" in fact.text


def hidden_devices(case: Case) -> Iterator[Finding]:
    """Find a variable that hides every GPU, in a log that says that none is used."""
    hidden = [fact for fact in case.about("variable", "CUDA_VISIBLE_DEVICES") if fact.from_log]
    unavailable = case.symptoms("cuda-unavailable", "took-cpu")
    if hidden and unavailable:
        yield likely("visible_devices_wrong", hidden[0], unavailable[0])
    elif hidden and case.symptoms("unexplained"):
        yield possible("visible_devices_wrong", hidden[0], case.symptoms("unexplained")[0])


def devices_of_process(case: Case) -> Iterator[Finding]:
    """Find a process that sees no GPU although another one does, in the words of a reporter.

    Its variables differ; a container, or a module that is lost later, differs in more.
    """
    seen = first_of(case.symptoms("seen-by-another-process"))
    if seen is None or case.first("container", value="yes") or case.symptoms("gpu-lost-later"):
        return
    for fact in (*_unseen_devices(case), *case.symptoms(*_NO_GPU)):
        yield likely("visible_devices_wrong", fact, seen)


def device_statuses(case: Case) -> Iterator[Finding]:
    """Find devices that refuse new processes, and causes that a CUDA status number names."""
    modes = case.preferred("compute-mode")
    closed = [fact for fact in modes if not _OPEN_COMPUTE_MODE.fullmatch(fact.value)]
    for status in case.of_kind("status"):
        if status.value == "CUDA_ERROR_DEVICE_UNAVAILABLE":
            if closed:
                yield proved("gpu_busy_or_exclusive", status, closed[0])
            elif not case.of_kind("vgpu"):
                # A virtual GPU has no compute mode: its hypervisor or its license refuses.
                yield likely("gpu_busy_or_exclusive", status)
        elif status.subject == "cuda" and status.value.isdigit():
            cause = CUDA_CAUSES.get(int(status.value))
            if cause:
                yield likely(cause, status)
    failure = first_of(case.symptoms("unexplained"))
    if closed and failure:
        yield possible("gpu_busy_or_exclusive", failure, closed[0])


def hardware_errors(case: Case) -> Iterator[Finding]:
    """Find failing hardware by its Xid and its ECC errors."""
    for xid in case.of_kind("xid"):
        if xid.value.isdigit() and int(xid.value) in XID_HARDWARE:
            finding = proved if int(xid.value) in XID_CERTAIN else likely
            yield finding("gpu_hardware_fault", xid)
    for ecc in case.of_kind("ecc"):
        if ecc.value.isdigit() and int(ecc.value) > 0:
            yield likely("gpu_hardware_fault", ecc)


# ---- memory -------------------------------------------------------------------------------------


def memory(case: Case) -> Iterator[Finding]:
    """Find exhausted memory, from a clear message or from a status that hides it.

    `verdicts.refutation` rules it out where the memory is free.
    """
    messages = case.of_kind("out-of-memory")
    if messages:
        yield from _stated_out_of_memory(case, messages[0])
    else:
        yield from _hidden_out_of_memory(case)


def _stated_out_of_memory(case: Case, message: Fact) -> Iterator[Finding]:
    rows = case.memory()
    full = [row.fact for row in rows if not row.mostly_free]
    yield proved("out_of_memory_masked", message, first_of(full))
    too_large = case.failed_allocation(above_total=True)
    if too_large and case.free_memory_fact():
        # The program asks for more memory than the GPU has.
        yield likely("unsupported_op_config", too_large, rows[0].fact)


def _hidden_out_of_memory(case: Case) -> Iterator[Finding]:
    statuses = [fact for fact in case.of_kind("status") if fact.subject in ("cudnn", "cublas")]
    failure = first_of([*statuses, *case.symptoms("cudnn-start", "cudnn-call")])
    words = first_of(case.symptoms("memory-short"))
    if words and failure:
        yield likely("out_of_memory_masked", failure, words)
    elif words and case.unexplained():
        yield possible("out_of_memory_masked", words)
    if failure is None:
        return
    rows = case.memory()
    shown = [row for row in rows if row.fact.kind == "smi-memory"]
    if shown and all(row.nearly_full for row in shown):
        yield likely("out_of_memory_masked", failure, shown[0].fact)
    preallocated = first_of(case.symptoms("preallocated"))
    for row in rows:
        if row.fact.kind == "free-bytes" and not row.mostly_free:
            yield _full_memory(failure, row, preallocated)
    growth = first_of(case.symptoms("growth"))
    if not rows and not words and (growth or _mostly_lacks_memory(case, failure)):
        yield possible("out_of_memory_masked", failure, growth)


def _mostly_lacks_memory(case: Case, failure: Fact) -> bool:
    """Whether a failure of cuDNN or cuBLAS mostly comes from too little memory.

    TensorFlow takes nearly all memory of a GPU, also where other programs use it.
    """
    if failure.value.endswith("_EXECUTION_FAILED"):
        return False  # the memory was allocated before
    if _OF_TENSORFLOW.search(failure.text) or case.about("version", "tensorflow"):
        return True
    return failure.value == _STATUS_WITHOUT_MEMORY and not _names_its_call(case, failure)


def _names_its_call(case: Case, failure: Fact) -> bool:
    """Whether a status of cuDNN is in a message of torch, or in one that cuDNN did not start."""
    of_torch = case.about("framework", "torch") or case.about("version", "torch")
    return bool(of_torch or case.symptoms("cudnn-start")) or "cuDNN error" in failure.text


def _full_memory(failure: Fact, row: Memory, preallocated: Fact | None) -> Finding:
    """Return how sure it is that cuDNN failed for lack of memory.

    A program that has allocated most of the memory for itself leaves little, which may suffice.
    """
    facts = (failure, row.fact, preallocated)
    is_full = row.fact.from_log and row.free < LEAST_BYTES_OF_HANDLE
    if is_full and not preallocated:
        return proved("out_of_memory_masked", *facts)
    if is_full or not preallocated:
        return likely("out_of_memory_masked", *facts)
    return possible("out_of_memory_masked", *facts)


# ---- the program and the rest -------------------------------------------------------------------


def conflicting_requirements(case: Case) -> Iterator[Finding]:
    """Find the two requirements for which a resolver found no solution."""
    cause = "install_resolution_failure"
    if not any(case.about(kind, cause) for kind in ("says", "hints", "maybe")):
        return
    first: dict[str, Fact] = {}
    for fact in case.of_kind("requirement"):
        other = first.setdefault(_required_package(fact.value), fact)
        if other.subject != fact.subject and other.value != fact.value:
            yield proved(cause, _as_sentence(other), _as_sentence(fact))
            return


def _required_package(requirement: str) -> str:
    """Return the name of a package: "torch==2.0.0" -> "torch"."""
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def _as_sentence(requirement: Fact) -> Fact:
    verb = "require" if requirement.subject == "you" else "requires"
    return requirement.replace(text=f"{requirement.subject} {verb} {requirement.value}")


def handles(case: Case) -> Iterator[Finding]:
    """Find misuse of cuDNN handles, from cuDNN's log of calls (cudnn_calls.py)."""
    for handle in case.of_kind("handle"):
        if handle.subject == "forked":
            yield proved("fork_after_cuda_init", handle)
        else:
            yield proved("cudnn_handle_misused", handle)


def libc_versions(case: Case) -> Iterator[Finding]:
    """Find a C or C++ library of the system that is too old, or a system without glibc."""
    of_conda = {fact.where for fact in with_names(case, "lib_shadowing", _LIBSTDCXX_OF_CONDA)}
    for fact in case.of_kind("libc-wanted"):
        finding = possible if fact.where in of_conda else proved
        yield finding("host_libc_too_old", fact)
    musl = case.symptoms("musl")
    if musl:
        for fact in case.about("hints", "install_resolution_failure"):
            yield likely("host_libc_too_old", fact, musl[0])
    for fact, sign in _programs_without_glibc(case):
        yield likely("host_libc_too_old", fact, sign)


def _programs_without_glibc(case: Case) -> list[tuple[Fact, Fact]]:
    """Return the failures of a program that is there and lacks its loader, and the signs of that.

    A kernel answers ENOENT if the loader that a program names (ld-linux-x86-64.so.2, of glibc) is
    missing, so a shell says that it does not find the program.
    """
    signs = case.symptoms("smi-on-disk")
    if case.symptoms("started-with-gpu"):
        signs += case.symptoms("musl")
    return [(fact, sign) for fact in case.symptoms("smi-not-started") for sign in signs]


def loader_comparison(case: Case) -> Iterator[Finding]:
    """Find shadowed libraries: the test fails, and passes without the loader's variables."""
    clean, fresh = case.passed("clean-loader"), case.failed("fresh-process")
    if clean and fresh:
        yield proved("lib_shadowing", fresh, clean)


def unsupported_operations(case: Case) -> Iterator[Finding]:
    """Find an operation that only the program can change: a plain convolution works."""
    passed = case.passed("float32-convolution")
    if passed:
        for fact in case.about("hints", "unsupported_op_config"):
            yield proved("unsupported_op_config", fact, passed)


def _with_values(facts: list[Fact], *values: str) -> list[Fact]:
    return [fact for fact in facts if fact.value in values]


# The order matters: the first finding of a cause gives the first line of evidence.
_RULES = (
    library_rules.cudnn_versions,
    library_rules.cudnn_packages,
    library_rules.missing_symbols,
    library_rules.loaded_files,
    library_rules.missing_libraries,
    library_rules.unnamed_libraries,
    library_rules.stated_requirements,
    library_rules.refused_cudnn,
    library_rules.unfound_symbols,
    driver_versions,
    compat_path,
    driver_presence,
    updated_hosts,
    modules_held_back,
    modules_of_kernels,
    hosted_runners,
    machines_without_gpu,
    unaccepted_driver,
    changed_machines,
    driver_state,
    container_devices,
    container_command,
    container_driver,
    devices_of_host,
    lost_devices,
    container_files,
    wsl_driver,
    wsl_devices,
    hidden_devices,
    devices_of_process,
    device_statuses,
    hardware_errors,
    build_rules.cpu_builds,
    build_rules.cpu_packages,
    build_rules.cuda_of_build,
    build_rules.default_build,
    build_rules.compiler_of_build,
    build_rules.extension_for_torch,
    build_rules.driver_of_named,
    build_rules.least_driver,
    architecture_rules.architectures,
    architecture_rules.toolkit_targets,
    architecture_rules.invalid_images,
    architecture_rules.jit_compiled,
    architecture_rules.failed_executions,
    architecture_rules.wrong_numbers,
    build_rules.releases_without_gpu,
    build_rules.tensorflow_on_windows,
    build_rules.libraries_of_release,
    build_rules.cudnn_of_provider,
    build_rules.gpu_after_release,
    build_rules.gpu_after_cudnn,
    memory,
    conflicting_requirements,
    handles,
    libc_versions,
    loader_comparison,
    unsupported_operations,
    library_rules.stated_absent_cudnn,
    library_rules.absent_cudnn,
)
