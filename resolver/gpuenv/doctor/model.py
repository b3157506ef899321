"""What the doctor's parts hand to one another: facts, from a log or from the host, and what follows from them.

A fact has the same kind whoever saw it: the reader of logs, detection, or a check of an environment. Where the two
disagree the host's fact holds. What stands in `KINDS` and `TESTS` below is the whole vocabulary; the causes are those
of `matrix_data/doctor/causes.toml`.
"""

from __future__ import annotations

from ..model import Value


class Fact(Value):
    """One thing that was seen.

    `kind` is a key of KINDS, which says what `subject` and `value` hold. `where` is "log line 12" or, for the host,
    its source ("host: NVML"): it never begins with "log" for a fact of the host. `text` is the line or the evidence
    in words, shortened to 300 characters.
    """

    kind: str
    subject: str = ""
    value: str = ""
    where: str = ""
    text: str = ""

    @property
    def from_log(self) -> bool:
        """Whether a log said it; the host's own facts outrank it."""
        return self.where.startswith("log")


class Verdict(Value):
    """A cause, how sure it is, what it rests on (at least one line), and the one thing to do."""

    cause: str
    confidence: str  # proved | likely | possible
    evidence: tuple[str, ...]
    fix: str


class Diagnosis(Value):
    """What follows from the facts, best verdict first.

    `abstained`: a fault is there, and nothing says which cause it has: `next_tests` are then the names of TESTS to
    make, in their order (those that have not been made). An abstention over cuDNN's start has the one verdict
    "cudnn_init_failed_unknown", which names no cause. No fault at all: not abstained, no verdict, no test.
    """

    abstained: bool = False
    verdicts: tuple[Verdict, ...] = ()
    next_tests: tuple[str, ...] = ()


KINDS: dict[str, str] = {
    # versions
    "cudnn-loaded": "subject: '' or the framework; value: version of the cuDNN that loads, '9.1.0'",
    "cudnn-built": "subject: '' or the framework; value: version of the cuDNN that it was built with, '9.3.0'",
    "driver": "subject: 'kernel' (the loaded module), 'userspace' (libcuda, NVML) or '' (not told); value: '550.54.14'",
    "driver-cuda": "value: newest CUDA version that the driver supports, '12.4'",
    "cuda-built": "subject: framework or ''; value: CUDA version of the build, '12.8', or 'none' for a CPU build",
    "package": "subject: normalized distribution name; value: its version",
    "version": "subject: framework; value: its release, '2.14'",
    "toolkit": "value: CUDA release of the compiler or of the installation, '12.4'; not what the driver supports",
    "os": "value: 'windows'",
    # devices
    "gpu": "subject: index or ''; value: the name",
    "capability": "subject: index, name or ''; value: compute capability, '12.0'",
    "architectures": "subject: framework or library; value: capabilities it has code for, space separated, '7.5 8.0'",
    "architecture-range": "subject: framework; value: 'capability least most', a GPU's and those that the build serves",
    "architecture-missing": "subject: framework, library or ''; value: what was said; no code for this GPU",
    "compute-mode": "subject: index; value: default, exclusive-process, exclusive-thread or prohibited",
    "device-node": "subject: /dev path; value: 'yes', 'missing' or 'denied'",
    "pci-gpu": "value: number of NVIDIA display devices on the PCI bus, '0' for none at all",
    "xid": "subject: PCI address or ''; value: the number",
    "ecc": "subject: index; value: number of uncorrected errors",
    # memory, bytes as decimal digits
    "free-bytes": "subject: index or ''; value: free memory of the GPU",
    "total-bytes": "subject: index or ''; value: memory of the GPU",
    "smi-memory": "value: 'used total' in MiB, a row of nvidia-smi's table, of an unknown moment",
    "wanted-bytes": "subject: index or ''; value: the allocation that failed",
    "out-of-memory": "subject: who says so (cuda, torch, xla, bfc, kernel); value: ''; said in as many words",
    # statuses
    "status": "subject: cudnn, cuda, nvml, cublas, nccl, cusolver, cufft, curand or nvrtc; value: the full name",
    "cudnn-reason": "subject: function; value: 'STATUS: the reason that cuDNN gives in its own log'",
    "handle": "subject: null, destroyed, forked or raced; value: the call; a cuDNN handle used as it may not be",
    "symptom": "subject: cudnn-start, cudnn-call, load, launch or nccl, a failure in words that name no cause; or what "
    "may explain one: cuda-unavailable, cuda-asked, took-cpu, compat-path, uvm-reloaded, suspended, growth; value: ''",
    # libraries
    "library-missing": "subject: file name asked for, 'libcudnn_ops.so.9'; value: who asked or ''",
    "library-from": "subject: file name, 'libcudnn_cnn.so.9'; value: path that the process loaded it from",
    "library-present": "subject: file name; value: path; on disk, in the loader's cache or in the environment",
    "symbol-missing": "subject: file that lacks it or that asked; value: the symbol; two libraries that do not fit",
    "libc-wanted": "subject: GLIBC, GLIBCXX, CXXABI, GCC or musl; value: the version wanted and not there",
    # surroundings
    "container": "value: 'yes' or 'no'",
    "wsl": "value: 'yes' or 'no'",
    "vgpu": "value: 'yes'; the GPU is a share of one, made by a hypervisor",
    "secure-boot": "value: 'yes' or 'no'",
    "module": "subject: nvidia, nvidia_uvm or nouveau; value: 'loaded', 'missing' (not built) or 'absent'",
    "variable": "subject: name of an environment variable; value: its value",
    "framework": "subject: torch, tensorflow, jax, ..; value: version or ''",
    # said in words that name one cause by themselves
    "says": "subject: a cause of the taxonomy; value: the pattern's name; the message has no other meaning",
    "hints": "subject: a cause of the taxonomy; value: the pattern's name; the message mostly means that",
    "maybe": "subject: a cause of the taxonomy; value: the pattern's name; the message means that among others",
    # tests, made on the host
    "test": "subject: a key of TESTS; value: pass, fail or unknown; text: what was seen",
}

TESTS: dict[str, str] = {
    # Ordered as a doctor makes them; --probe can make those marked P, the others are checks of verify or facts.
    "fresh-process": "P: cudnnCreate, or a context, in a fresh process",
    "clean-loader": "P: the same with LD_LIBRARY_PATH and LD_PRELOAD removed (pass after a failed fresh-process proves "
    "lib_shadowing)",
    "one-folder": "P: after a convolution all libcudnn* of /proc/self/maps lie in one folder, of one version",
    "free-memory": "P: more than a quarter of the GPU's memory is free",
    "float32-convolution": "P: a plain float32 convolution computes what the CPU computes",
    "other-stream": "P: the same on another stream",
    "each-device": "P: the same on every visible device",
    "nvml": "nvmlInit works",
    "libcuda": "dlopen('libcuda.so.1') works",
    "cuinit": "cuInit gives 0",
    "context": "cuCtxCreate works",
    "device-open": "open('/dev/nvidiactl') works",
    "fabric": "the fabric of an NVSwitch machine is ready (pass also where there is none)",
    "health": "no Xid, no uncorrected ECC error, no lost device is seen",
    "visible-devices": "as many devices with CUDA_VISIBLE_DEVICES as without it",
    "driver-runtime": "the driver serves the CUDA version of the framework's build",
    "driver-versions": "the kernel's module and libcuda are of one release, and libcuda is not a compat one",
    "cuda-build": "the framework is a build for CUDA",
    "companions": "torchvision, torchaudio and the like fit their torch",
    "cudnn-version": "the cuDNN that loads is not older than the one of the build, and of its major version",
    "cudnn-present": "a libcudnn of the wanted major version is found",
    "cudnn-complete": "all libraries of cuDNN are there and pass its version checks",
    "loader-path": "what loads comes from the environment and not from elsewhere",
    "one-cuda-major": "the environment's nvidia-* packages are of one CUDA major version, their files as recorded",
    "libraries-resolve": "every library that the framework needs is found",
    "architecture": "the framework and cuDNN have code for every GPU",
    "libc": "glibc and libstdc++ are new enough for the environment",
    "environment": "the environment's metadata are whole and its requirements met",
}
