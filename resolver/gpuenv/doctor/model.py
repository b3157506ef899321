"""Values of the doctor: facts, findings, verdicts and the diagnosis.

A fact has the same kind whether it comes from a log, from detection or from a check of an
environment. Where a log and the host disagree, the host's fact counts. `KINDS` lists every kind of
fact and `TESTS` every test. `matrix_data/doctor/causes.toml` lists every cause.
"""

from __future__ import annotations

from ..model import Value

MAX_TEXT = 300  # characters of a fact's text


class Fact(Value):
    """One observation.

    Attributes:
        kind: a key of `KINDS`, which says what `subject` and `value` hold.
        where: "log line 12", or the source on the host ("host: NVML"). A fact of the host never
            has a `where` that starts with "log".
        text: the line of the log, or the observation in words: MAX_TEXT characters at most.
    """

    kind: str
    subject: str = ""
    value: str = ""
    where: str = ""
    text: str = ""

    @property
    def from_log(self) -> bool:
        """Whether the fact comes from a log. Facts of the host outrank it."""
        return self.where.startswith("log")


class Finding(Value):
    """A cause that a rule found, its confidence (proved, likely, possible), and the facts."""

    cause: str
    confidence: str
    facts: tuple[Fact, ...]


class Verdict(Value):
    """A cause of the failure: the confidence, at least one line of evidence, and what to do.

    Attributes:
        advice: what the facts add to the fix, in sentences.
        title: what the facts say more exactly than the cause's title, or "".
        complete: whether the fix is all there is to do: a new solve does not help.
    """

    cause: str
    confidence: str  # proved | likely | possible
    evidence: tuple[str, ...]
    fix: str
    advice: tuple[str, ...] = ()
    title: str = ""
    complete: bool = False


class Outside(Value):
    """A failure that is not one of an NVIDIA GPU's environment.

    Attributes:
        area: what failed: an id of `catalog.areas`.
    """

    area: str
    title: str
    evidence: tuple[str, ...]
    fix: str


class Diagnosis(Value):
    """The result: verdicts, the best first, or the tests that would settle an open question.

    Attributes:
        abstained: something failed, and no fact tells its cause. `next_tests` then names the tests
            of `TESTS` to run, in order, without those that have run already. If cuDNN failed to
            start, `verdicts` holds the one verdict "cudnn_init_failed_unknown", which names no
            cause.
        verdicts: empty, with `abstained` false, if nothing failed.
        failures: lines of evidence that something failed, if `abstained`.
        outside: what failed instead of the GPU's environment, if the log shows it and `abstained`.
    """

    abstained: bool = False
    verdicts: tuple[Verdict, ...] = ()
    next_tests: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    outside: Outside | None = None


def proved(cause: str, *facts: Fact | None) -> Finding:
    """Return a finding that has no other explanation. Facts that are None are left out."""
    return _finding(cause, "proved", facts)


def likely(cause: str, *facts: Fact | None) -> Finding:
    """Return a finding that the facts mostly mean. Facts that are None are left out."""
    return _finding(cause, "likely", facts)


def possible(cause: str, *facts: Fact | None) -> Finding:
    """Return a finding that the facts allow. Facts that are None are left out."""
    return _finding(cause, "possible", facts)


def _finding(cause: str, confidence: str, facts: tuple[Fact | None, ...]) -> Finding:
    given = tuple(fact for fact in facts if fact is not None)
    return Finding(cause=cause, confidence=confidence, facts=given)


KINDS: dict[str, str] = {
    # versions
    "cudnn-loaded": "subject: '' or the framework; value: version of the loaded cuDNN, '9.1.0'",
    "cudnn-built": "subject: '' or the framework; value: the cuDNN that it was built with, '9.3.0'",
    "driver": "subject: 'kernel' (the loaded module), 'userspace' (libcuda, NVML) or '' (the "
    "source does not say which); value: the driver release, '550.54.14'",
    "driver-cuda-least": "value: the CUDA version that a program asks of the driver, '12.0'",
    "cuda-least": "value: the oldest CUDA version that a program asks for (driver or toolkit)",
    "driver-least": "value: the oldest release of the driver that a program asks for, '535.54'",
    "driver-cuda": "value: newest CUDA version that the driver supports, '12.4'",
    "cuda-built": "subject: framework or ''; value: CUDA version of the build, '12.8', or 'none' "
    "for a CPU build",
    "package": "subject: normalized distribution name; value: its version",
    "requirement": "subject: who has it, 'torchvision 0.15.0' or 'you'; value: 'torch==2.0.0', as "
    "a resolver states it",
    "version": "subject: framework; value: its release, '2.14'",
    "ptx": "subject: 'wanted' (what a program has) or 'known' (the newest that is understood); "
    "value: a version of PTX, '8.5'",
    "python": "value: a version of Python, '3.10'",
    "toolkit": "value: CUDA release of the compiler or of the installed toolkit, '12.4'; not the "
    "version that the driver supports",
    "os": "value: 'windows'",
    "packages-folder": "value: a folder of installed packages, '/opt/x/site-packages'",
    # devices
    "gpu": "subject: index or ''; value: the name",
    "capability": "subject: index, name or ''; value: compute capability, '12.0'",
    "architectures": "subject: framework or library; value: the compute capabilities that it has "
    "code for, separated by spaces, '7.5 8.0'",
    "architecture-range": "subject: framework; value: 'device lowest highest', the compute "
    "capability of a GPU, and the range that the build supports",
    "capability-least": "value: the lowest compute capability that a program asks for, '8.0'",
    "architecture-missing": "subject: framework, library, 'words' (of a reporter, that a program "
    "refuses a GPU) or ''; value: the message; there is no code for this GPU",
    "compute-mode": "subject: index; value: default, exclusive-process, exclusive-thread or "
    "prohibited",
    "device-node": "subject: /dev path; value: 'yes', 'missing' or 'denied'",
    "pci-gpu": "value: number of NVIDIA display devices on the PCI bus, '0' for none",
    "xid": "subject: PCI address or ''; value: the number",
    "ecc": "subject: index; value: number of uncorrected errors",
    # memory, bytes as decimal digits
    "free-bytes": "subject: index or ''; value: free memory of the GPU",
    "total-bytes": "subject: index or ''; value: memory of the GPU",
    "smi-memory": "value: 'used total' in MiB, a row of nvidia-smi's table, taken at any time",
    "wanted-bytes": "subject: index or ''; value: the size of the allocation that failed",
    "out-of-memory": "subject: source of the message (cuda, torch, xla, bfc, kernel); value: ''",
    # statuses
    "status": "subject: cudnn, cuda, nvml, cublas, nccl, cusolver, cufft, curand or nvrtc; value: "
    "the full name of the status",
    "cudnn-reason": "subject: function; value: 'STATUS: reason', from cuDNN's own log",
    "handle": "subject: null, destroyed, forked or raced, the misuse of a cuDNN handle; value: the "
    "call",
    "driver-named": "value: the driver release that a report of the environment names; it may be "
    "another one than the loaded driver",
    "file-named": "value: a file that a traceback or a message names",
    "other-binary": "subject: newer, older or driver, what the GPU or the driver is for a binary "
    "beside the framework; value: its path",
    "words": "the text has nothing that a program printed",
    "symptom": "subject: a failure that names no cause (cudnn-start, cudnn-call, load, launch, "
    "nccl, invalid-image, no-device, cuda-unavailable, failed, crashed), or a condition that may "
    "explain one or rule out a cause; value: ''",
    # libraries
    "library-missing": "subject: file name, 'libcudnn_ops.so.9'; value: what needs it or ''",
    "library-from": "subject: file name, 'libcudnn_cnn.so.9'; value: path of the loaded file",
    "library-present": "subject: file name; value: path; on disk, in the loader's cache or in the "
    "environment",
    "own-libraries": "subject: 'nvidia' (wheels of CUDA) or '' (of a framework); value: the folder "
    "of packages that has the libraries, '/opt/x/site-packages'",
    "symbol-missing": "subject: the file that lacks the symbol or needs it; value: the symbol; two "
    "libraries do not match",
    "libc-wanted": "subject: GLIBC, GLIBCXX, CXXABI, GCC, GOMP or musl; value: the version that "
    "is needed and missing",
    # surroundings
    "container": "value: 'yes' or 'no'",
    "wsl": "value: 'yes' or 'no'",
    "vgpu": "value: 'yes'; the GPU is a virtual GPU of a hypervisor",
    "secure-boot": "value: 'yes' or 'no'",
    "kernel-built": "subject: nvidia; value: a release of the kernel for which the module is "
    "installed, '6.8.0-40-generic'",
    "kernel-running": "value: a release of the kernel that runs, in the same form or shortened",
    "module": "subject: nvidia, nvidia_uvm or nouveau; value: 'loaded', 'missing' (not built) or "
    "'absent' (not loaded)",
    "variable": "subject: name of an environment variable; value: its value",
    "limit": "subject: address-space; value: a limit of this process in bytes, as ulimit sets it",
    "chosen-devices": "value: the number (not 0) or the UUID in CUDA_VISIBLE_DEVICES, or "
    "'ray', which sets it for its workers",
    "framework": "subject: torch, tensorflow, jax, ..; value: version or ''",
    # messages that name a cause by themselves
    "says": "subject: a cause; value: the name of the message, which has no other meaning",
    "hints": "subject: a cause; value: the name of the message, which mostly means that cause",
    "maybe": "subject: a cause; value: the name of the message, which may mean that cause",
    "outside": "subject: an area of causes.toml; a failure that is not of the GPU's environment",
    # tests on the host
    "test": "subject: a key of TESTS; value: pass, fail or unknown; text: the observation",
}

# What a pass shows. The order is the order in which the tests are proposed.
TESTS: dict[str, str] = {
    "fresh-process": "cuDNN starts, and a context is created, in a fresh process",
    "clean-loader": "the same without LD_LIBRARY_PATH and LD_PRELOAD",
    "one-folder": "after a convolution, all libcudnn* in /proc/self/maps are of one folder and one "
    "version",
    "free-memory": "more than a quarter of the GPU's memory is free",
    "float32-convolution": "a plain float32 convolution gives the same result as the CPU",
    "other-stream": "the same convolution on another stream",
    "each-device": "the same convolution on every visible device",
    "nvml": "nvmlInit succeeds",
    "libcuda": "dlopen('libcuda.so.1') succeeds",
    "cuinit": "cuInit returns 0",
    "context": "cuCtxCreate succeeds",
    "device-open": "open('/dev/nvidiactl') succeeds",
    "fabric": "the NVSwitch fabric is ready, or the machine has none",
    "health": "there is no Xid, no uncorrected ECC error and no lost device",
    "visible-devices": "CUDA_VISIBLE_DEVICES hides no device",
    "driver-runtime": "the driver supports the CUDA version of the framework's build",
    "driver-versions": "the kernel module and libcuda are of one release, and libcuda is not a "
    "forward-compatibility library",
    "cuda-build": "the framework is a CUDA build",
    "companions": "torchvision, torchaudio and similar packages match their torch",
    "cudnn-version": "the loaded cuDNN has the build's major version, and is not older",
    "cudnn-present": "a libcudnn of the needed major version is found",
    "cudnn-complete": "all libraries of cuDNN are present and pass its version checks",
    "loader-path": "libraries are loaded from the environment and not from another place",
    "one-cuda-major": "the nvidia-* packages of the environment are for one CUDA major version, "
    "and their files match their records",
    "libraries-resolve": "every library that the framework needs is found",
    "architecture": "the framework and cuDNN have code for every GPU",
    "libc": "glibc and libstdc++ are new enough for the environment",
    "environment": "the metadata of the environment are complete and its requirements are met",
}
# The tests that `--probe` runs. Checks of `gpuenv verify` and detection answer the others.
PROBE_TESTS = (
    "fresh-process",
    "clean-loader",
    "one-folder",
    "free-memory",
    "float32-convolution",
    "other-stream",
    "each-device",
)

# Commands that show by hand what a test shows. `gpuenv verify` and `--probe` make the other tests.
TEST_COMMANDS: dict[str, str] = {
    "free-memory": "nvidia-smi --query-gpu=memory.free,memory.total --format=csv",
    "nvml": "nvidia-smi -L",
    "libcuda": "ldconfig -p | grep libcuda.so.1",
    "cuinit": "python3 -c \"import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))\"",
    "device-open": "ls -l /dev/nvidiactl && head -c 0 /dev/nvidiactl",
    "fabric": "nvidia-smi -q | grep -A 3 Fabric",
    "health": "nvidia-smi -q -d ECC,PAGE_RETIREMENT && dmesg | grep -i -e xid -e NVRM",
    "visible-devices": "env | grep VISIBLE_DEVICES",
    "driver-versions": "cat /proc/driver/nvidia/version && nvidia-smi",
    "libc": "ldd --version",
}
