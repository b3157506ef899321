"""The values that the stages hand to one another: frozen, slotted, keyword-only, no I/O.

Words: a *compute capability* is a pair such as (8, 9); a *driver release* is a string such as "580.65.06"; a
*CUDA version* is a pair such as (13, 0) and is used both for a toolkit and for what a driver supports, never for
anything else. Sizes are bytes.
"""

from __future__ import annotations

from typing import Any, Self, dataclass_transform

ComputeCapability = tuple[int, int]
CudaVersion = tuple[int, int]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class _ValueMeta(type):
    """Makes the classes below what `dataclass(frozen=True, slots=True, kw_only=True)` would make them.

    The standard module is not used because importing it takes a sixth of the time that a whole solve may take
    (it imports inspect, ast and tokenize).
    """

    _fields: tuple[str, ...]
    _defaults: dict[str, object]
    _puts: tuple[Any, ...]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _ValueMeta:
        fields = tuple(namespace.get("__annotations__", ()))
        defaults = {field: namespace.pop(field) for field in fields if field in namespace}
        namespace["__slots__"] = fields
        cls = super().__new__(mcs, name, bases, namespace)
        cls._fields, cls._defaults = fields, defaults
        cls._puts = tuple(cls.__dict__[field].__set__ for field in fields)
        return cls


class Value(metaclass=_ValueMeta):
    """Base of the value types: equality and hash by content, `replace` for a changed copy."""

    def __init__(self, **fields: object) -> None:
        # A solve makes a thousand of these: the usual case is one loop, and the mistakes are told apart after it.
        cls, put = type(self), object.__setattr__
        given = fields if len(fields) == len(cls._fields) else {**cls._defaults, **fields}
        try:
            for name in cls._fields:
                put(self, name, given[name])
        except KeyError as error:
            raise TypeError(f"{cls.__name__}() needs {error.args[0]!r}") from None
        if len(given) != len(cls._fields):
            raise TypeError(f"{cls.__name__}() has no {', '.join(sorted({*given} - {*cls._fields}))}")

    @classmethod
    def of(cls, *content: object) -> Self:
        """Of all fields in their order: a third of the time, where thousands are made."""
        value = cls.__new__(cls)
        for put, one in zip(cls._puts, content, strict=True):
            put(value, one)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def _content(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in type(self)._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and type(self) is type(other) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self)._fields)
        return f"{type(self).__name__}({inner})"

    def replace(self, **changes: object) -> Self:
        """A copy with some fields changed."""
        return type(self)(**{name: getattr(self, name) for name in type(self)._fields} | changes)


def parse_release(text: str) -> tuple[int, ...]:
    """The comparable form of a driver release: "580.65.06" -> (580, 65, 6). ValueError for anything else."""
    parts = text.split(".")
    if not 2 <= len(parts) <= 4 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"{text!r} is not a driver release such as 580.65.06")
    return tuple(int(part) for part in parts)


def parse_pair(text: str) -> tuple[int, int]:
    """ "13.2" -> (13, 2), for CUDA versions, compute capabilities, Python and glibc versions. ValueError else."""
    major, dot, minor = text.partition(".")
    if not (dot and major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
        raise ValueError(f"{text!r} is not of the form X.Y")
    return int(major), int(minor)


def show_pair(pair: tuple[int, int] | None) -> str:
    """(13, 2) -> "13.2"; None -> "unknown"."""
    return "unknown" if pair is None else f"{pair[0]}.{pair[1]}"


# ---- the host -------------------------------------------------------------------------------------------------


class Gpu(Value):
    """One device that the process would see, in the order of the CUDA runtime's numbering.

    `compute_capability` None means unknown. A MIG instance is one Gpu with `mig` true and its own UUID and memory.
    """

    name: str
    compute_capability: ComputeCapability | None
    index: int | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    memory_total: int | None = None
    memory_free: int | None = None
    compute_mode: str | None = None
    ecc: bool | None = None
    mig: bool = False


class Problem(Value):
    """Something that keeps a fact about the host from being known. `code` is kebab-case and stable."""

    code: str
    detail: str
    hint: str = ""


class Python(Value):
    """The target interpreter. `version` is (3, 12); `full_version` "3.12.3" where it is known."""

    version: tuple[int, int]
    full_version: str | None = None
    free_threaded: bool = False
    executable: str | None = None


class Host(Value):
    """What an environment will run on. Detected, read from a file, or described by flags.

    `gpus` empty and `problems` empty is a host that is meant to have no GPU. `driver` None is an unknown driver;
    `driver_cuda` is the newest CUDA version that the driver supports. `sources` says where each fact came from.
    """

    os: str = "linux"  # linux | windows
    machine: str = "x86_64"  # x86_64 | aarch64
    glibc: tuple[int, int] | None = None
    python: Python
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    driver_cuda: CudaVersion | None = None
    virtualization: str | None = None  # wsl2 | container | tegra
    problems: tuple[Problem, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def platform(self) -> str:
        """linux-x86_64, linux-aarch64 or win-amd64, as the --platform flag says it."""
        return "win-amd64" if self.os == "windows" else f"{self.os}-{self.machine}"


# ---- packages -------------------------------------------------------------------------------------------------


class Requirement(Value):
    """A parsed PEP 508 requirement. `name` is normalized; `specifier` is the PEP 440 text, "" for any version."""

    name: str
    extras: tuple[str, ...] = ()
    specifier: str = ""
    marker: str | None = None
    url: str | None = None

    def __str__(self) -> str:
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        at = f" @ {self.url}" if self.url else self.specifier
        return f"{self.name}{extras}{at}" + (f" ; {self.marker}" if self.marker else "")


class Wheel(Value):
    """One wheel file of one index. `size` None is unknown; `sha256` None only on an index that gives no hash.

    The file name of a source distribution ends in .tar.gz or .zip; one is taken only where the request allows it.
    `index` is "" for a file of --find-links and "url" for one that a requirement names by its URL.
    """

    name: str
    version: str
    filename: str
    url: str
    sha256: str | None
    size: int | None = None
    requires_python: str | None = None
    yanked: str | None = None  # None: not yanked; else the reason, which may be ""
    upload_time: str | None = None
    index: str = ""  # the URL of the index that supplied it, "" for a find-links folder
    metadata: Any = None  # how the index finds the dependencies; of no meaning to others


# ---- compatibility facts ---------------------------------------------------------------------------------------


class Code(Value):
    """The device code that a library or a build carries, as the compiler names it, without sm_/compute_ prefix.

    `sass` and `ptx` hold targets such as "90", "90a" (architecture-specific), "100f" (family). None is unknown,
    () is "none". `made_by` is the CUDA toolkit that made the PTX. `evidence` is "scanned" (read from the binary, and
    `source` carries the wheel's file name and sha256) or "documented".
    """

    sass: tuple[str, ...] | None
    ptx: tuple[str, ...] | None = None
    made_by: CudaVersion | None = None
    evidence: str = "documented"
    source: str = ""
    some: tuple[str, ...] = ()  # targets of some libraries or of few fat binaries only; no rule counts them


class Build(Value):
    """One build of a framework or of a companion: what one wheel (version, variant, platform) was compiled for.

    `variant` is "cu132", "cpu", ...; `index` the index that has it ("default" or a URL); `version` carries no local
    part, `local` is the whole version string as that index spells it ("2.13.0+cu126", or "2.13.0" on the default
    index). `cudnn` is the version that the build was compiled against or pins.
    """

    name: str
    version: str
    local: str
    variant: str
    index: str
    platform: str
    cuda: CudaVersion | None
    cudnn: str | None = None
    code: Code
    companions: tuple[tuple[str, str], ...] = ()  # (torchvision, 0.30.0), ...


class Library(Value):
    """One release of a CUDA library's distribution (nvidia-cudnn-cu12 9.10.2.21) on one platform.

    `code` is the minimum over its member libraries (R3). `bad` is why the release is known to be bad: severity
    "broken" (never select) or "avoid" (select only if nothing else does), text, source.
    """

    name: str
    version: str
    platform: str
    cuda_major: int  # 0 where it has none, such as jaxlib
    code: Code
    bad: tuple[str, str, str] | None = None
    cuda: CudaVersion | None = None  # the toolkit that a framework's own library was built with
    cudnn: str | None = None  # and the cuDNN


class Way(Value):
    """A way to install a framework: one of its variants.

    `requires` are the requirements that install it ("jax[cuda12]"); the first one's distribution has the framework's
    version. `carriers` are the distributions whose device code a convolution runs; () is a CPU build. `variant` "*" is
    where one distribution has every variant, told apart by the local part of its version (torch 2.13.0+cu126).
    """

    variant: str
    requires: tuple[str, ...]
    carriers: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()  # those that have it; () is all


class Framework(Value):
    """How a framework is named, found and probed. One data file each."""

    name: str
    distribution: str
    import_name: str
    probe: str
    ways: tuple[Way, ...] = ()  # best first where nothing else decides
    source: str = ""
    companions: tuple[str, ...] = ()  # distributions whose builds must match the framework's CUDA
    indexes: tuple[str, ...] = ()  # URLs with {variant}: used for this framework's packages only
    packages: tuple[str, ...] = ()  # the distributions that may come from those indexes


# ---- requests and plans ---------------------------------------------------------------------------------------


class Request(Value):
    """What the user asks for. `frameworks` and `requirements` are PEP 508 texts, in the order given.

    `preferences` are (name, version) pairs of an earlier lock, taken before newer releases where they still fit; they
    are wishes, so the digest of a plan leaves them out. `hashes` are (normalized name, its allowed sha256s): no other
    file of that name is taken; with `require_hashes` every package of a plan needs one. `allow_sdist` are the names of
    which a source distribution may be taken where there is no wheel.
    """

    frameworks: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    hashes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    require_hashes: bool = False
    allow_sdist: tuple[str, ...] = ()
    default_index_only: bool = False
    pre: bool = False
    exclude_newer: str | None = None
    preferences: tuple[tuple[str, str], ...] = ()
    conda: CondaOptions | None = None  # for a conda environment; None for wheels


class CondaOptions(Value):
    """What a request for a conda environment adds.

    `channels` are URLs or names, best first; () is the default channel. `keep_python` keeps the
    host's Python version; otherwise the solver chooses one. `wheels` are PEP 508 texts of wheels to
    install beside the conda packages.
    """

    channels: tuple[str, ...] = ()
    keep_python: bool = False
    wheels: tuple[str, ...] = ()


class IndexOptions(Value):
    """Where packages may come from. `index_url` replaces the default index and turns the snapshot off."""

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    offline: bool = False
    refresh: bool = False
    exclude_newer: str | None = None


class Choice(Value):
    """The build chosen for a framework. `evidence` is "scanned" or "documented"."""

    framework: str
    version: str
    variant: str
    cuda: CudaVersion | None
    cudnn: str | None
    sass: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    evidence: str = "documented"
    source: str = ""


class Needs(Value):
    """What a lock asks of a host. Empty or None asks for nothing."""

    driver: str | None = None  # the driver floor
    compute_capabilities: tuple[ComputeCapability, ...] = ()  # every one that all libraries on the path serve
    cuda: CudaVersion | None = None
    glibc: tuple[int, int] | None = None
    python: tuple[int, int] | None = None
    platform: str = ""


class Pin(Value):
    """One package of a plan with the file that was chosen and the names that it depends on."""

    wheel: Wheel
    dependencies: tuple[str, ...] = ()


class Rejection(Value):
    """A build that was passed over, with every fact that speaks against it (errors.Reason values)."""

    name: str
    version: str
    reasons: tuple[Any, ...]


class Plan(Value):
    """A solved environment. `pins` are sorted by name. `warnings` are errors.Reason values."""

    request: Request
    host: Host
    pins: tuple[Pin, ...]
    choices: tuple[Choice, ...]
    needs: Needs
    skipped: tuple[Rejection, ...] = ()
    warnings: tuple[Any, ...] = ()
    data: str = ""  # version of the matrix data and of the snapshot
    digest: str = ""  # sha256 of the inputs: request, host facts, data
    wheels: Plan | None = None  # of the wheels beside conda packages


class Lock(Value):
    """What a lock file says. Read back from a file it equals the lock that was written.

    `inputs` are (key, text, flag or texts) pairs: the profile of a project that it was locked for, if any.
    """

    pins: tuple[Pin, ...]
    needs: Needs
    choices: tuple[Choice, ...]
    host: Host
    frameworks: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    allow_sdist: tuple[str, ...] = ()
    data: str = ""
    digest: str = ""
    inputs: tuple[tuple[str, Any], ...] = ()
    conda: bool = False  # whether the pins are conda packages
    wheels: Lock | None = None  # of the wheels beside conda packages


Mark = tuple[str, str, str]


class Check(Value):
    """The outcome of one check: `status` is pass, fail or unknown; `evidence` is what was seen, in words.

    `marks` is what programs read of it, each (code, what it is about, more): of a framework's or cuDNN's libraries
    missing (file, who asks), outside (file, path taken), mixed, broken (path), foreign (path), symbol (file),
    crashed, none (no libcudnn at all), version (what loads); of files and owners twice (distribution), two-owners
    (path), no-record (distribution) and glibc (distribution, version); of a device result (call, number), status
    (cuda or cudnn, name), no-driver and memory.
    """

    name: str
    subject: str
    status: str
    evidence: str
    seconds: float = 0.0
    marks: tuple[Mark, ...] = ()
