"""The answers of the probes, as types. The docstring of each probe describes its values.

Read on both sides: by the probes, and by gpuenv's checks of the answers. Runs on Python 3.8 and
later.
"""

from __future__ import annotations

from typing import TypedDict


class Run(TypedDict):
    """One convolution of a framework, called several times."""

    what: str
    error: float  # ||result - reference|| / ||reference||
    tolerance: float
    # Seconds of the first call, in which libraries load kernels and programs are compiled.
    first_s: float
    steady_s: float  # seconds of the fastest later call


class FrameworkDevice(TypedDict, total=False):
    """A framework on one device: its runs, or why there are none."""

    index: int
    name: str
    runs: list[Run]
    failure: str


class FrameworkAnswer(TypedDict, total=False):
    """The answer of a framework probe."""

    version: str
    cuda: str | None  # "13.0" or "13"; None is a CPU build
    for_cpus: bool  # whether the build with CUDA is the one for hosts without a GPU, too
    cudnn: int | None  # the number that cudnnGetVersion returns; None if none is loaded
    cudnn_failure: str  # why the framework cannot use the cuDNN that it finds
    numpy_failure: str  # why its arrays cannot become arrays of the installed NumPy
    without_cudnn: str  # why a framework that does not need cuDNN ran without it
    cpu: Run
    devices: list[FrameworkDevice]
    device_failure: str  # why no device can be used
    # Why no device was tried although nothing is wrong: the user's choice, a build for other GPUs.
    aside: str
    mapped: list[str]  # CUDA and framework libraries of /proc/self/maps at the end


class MemberLoad(TypedDict):
    """How one library of cuDNN was loaded: its path, or why it was not."""

    name: str
    path: str | None
    failure: str | None


class CudnnAnswer(TypedDict, total=False):
    """The answer of the probe "cudnn"."""

    loads: list[MemberLoad]
    version: int | None
    max_device: int | None  # cudnnGetMaxDeviceVersion: 1210 means devices up to 12.1
    checks: dict[str, int]  # ...VersionCheck function -> its status
    mapped: list[str]


class Fault(TypedDict, total=False):
    """A call that failed.

    `kind` is library, driver, memory or cudnn; `after` is what the driver says afterwards.
    """

    kind: str
    call: str
    status: int | None
    name: str
    said: str
    after: str


class DriverFacts(TypedDict, total=False):
    """The driver's library, and the number of devices that it shows to the process."""

    path: str
    count: int


class DeviceFacts(TypedDict, total=False):
    """One device. `mode` is a CUcomputemode; `total` and `free` are bytes."""

    name: str
    capability: list[int]
    mode: int
    total: int
    free: int


class ConvolutionRun(TypedDict):
    """One convolution of the probe "convolution" in one type on one stream."""

    what: str
    error: (
        float | None
    )  # largest difference over the largest reference value; None if a value is not finite
    tolerance: float
    wrong: int  # how many values are wrong
    values: int
    first: str  # the first wrong value
    sha256: str  # of the bytes of the result: equal devices compute equal bits


class ConvolutionAnswer(TypedDict, total=False):
    """The answer of the probe "convolution". Keys of steps that were not reached are left out."""

    fault: Fault | None
    driver: DriverFacts
    device: DeviceFacts
    context_s: float
    version: int  # of cuDNN
    handles: int
    runs: list[ConvolutionRun]
    left: list[str]  # types that were not run, and why
    check_s: float
    free: int  # bytes after a failure
    mapped: list[str]


class CompanionAnswer(TypedDict, total=False):
    """The answer of the probe "companion"."""

    framework: str  # why a framework that is imported first cannot be; then there is nothing else
    failures: dict[str, str]  # module -> why it cannot be imported
    loads: dict[str, str | None]  # library -> None (the imports did it), "" or why it cannot be
    numpy: str  # what NumPy says of extensions that were built for another one
    operation: list[str]  # for each device: "" or what is wrong
    setting: str  # the variable that the import needs, and its value


class OwnCheck(TypedDict):
    """The answer of the probe "check"."""

    status: str  # pass, fail or unknown
    evidence: str


class Interpreter(TypedDict):
    """The answer of the probe "interpreter"."""

    glibc: list[int] | None
    version: list[int]
    implementation: str
    executable: str
    prefix: str
    is_system: bool  # it belongs to no environment
    managed: str  # the file that forbids installers to write here, or ""
    path: list[str]  # sys.path
    isolated: bool  # programs find nothing that an isolated interpreter does not find
    hidden: list[list[str]]  # (path that hides a module, what lets programs find it)
    purelib: str
    platlib: str
    markers: dict[str, str]  # the variables of environment markers
    imports: dict[str, str | None]  # module -> its file


class FilesAnswer(TypedDict):
    """The answer of the probe "files"."""

    wrong: list[tuple[int, str]]  # the place of a file in the list, and what is wrong with it
