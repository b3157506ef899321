"""The values that the stages pass to one another: frozen, slotted, keyword-only, no I/O.

A *compute capability* is a pair such as (8, 9). A *driver release* is a text such as "580.65.06". A
*CUDA version* is a pair such as (13, 0), the version of a toolkit or the newest one that a driver
supports. Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Self, dataclass_transform

import msgspec

Natural = Annotated[int, msgspec.Meta(ge=0)]
ComputeCapability = tuple[Natural, Natural]
CudaVersion = tuple[Natural, Natural]

# Returns the HTML of a value for notebooks; None if it has none. The package's root sets it.
html_of: list[Callable[[object], str | None]] = []


def to_html(value: object) -> str | None:
    """Return the HTML of a value, None without one."""
    return html_of[0](value) if html_of else None


class _ValueMeta(msgspec.StructMeta):
    """Make values keyword-only if they do not say otherwise: a Struct does not inherit that."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any
    ) -> _ValueMeta:
        return super().__new__(mcs, name, bases, namespace, **{"kw_only": True, **config})


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Value(msgspec.Struct, metaclass=_ValueMeta, frozen=True, forbid_unknown_fields=True):
    """Base of the value types: equality and hash by content."""

    def _repr_html_(self) -> str | None:
        return to_html(self)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def non_defaults(self) -> dict[str, Any]:
        """Return {name: content} of the fields that do not have their default, in their order."""
        names, defaults = self.__struct_fields__, self.__struct_defaults__
        # The last fields are those with a default, or any that stand between them.
        default_of = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        content = {name: getattr(self, name) for name in names}
        return {
            name: item
            for name, item in content.items()
            if item != default_of.get(name, msgspec.NODEFAULT)
        }


def parse_release(text: str) -> tuple[int, ...]:
    """Return the numbers of a driver release, or of its beginning: "580.65.06" -> (580, 65, 6).

    Raises:
        ValueError: the text is not a driver release.
    """
    parts = text.split(".")
    if len(parts) > 4 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"{text!r} is not a driver release such as 580.65.06")
    return tuple(int(part) for part in parts)


def reaches_release(release: str, floor: str) -> bool:
    """Return whether a driver release is a floor or newer.

    The beginning of a release stands for the newest release that begins so: 580.65 reaches
    580.65.06, and so does 580.
    """
    numbers = parse_release(release)
    return numbers >= parse_release(floor)[: len(numbers)]


def parse_pair(text: str) -> tuple[int, int]:
    """Return "13.2" as (13, 2): CUDA, Python and glibc versions, and compute capabilities.

    Raises:
        ValueError: the text has another form.
    """
    major, _, minor = text.partition(".")
    if not (text.isascii() and major.isdigit() and minor.isdigit()):
        raise ValueError(f"{text!r} is not of the form X.Y")
    return int(major), int(minor)


def major_minor(version: str) -> tuple[int, int] | None:
    """Return the first two numbers of a version: "12.9.1" -> (12, 9). None for other texts."""
    try:
        return parse_pair(".".join(version.split(".")[:2]))
    except ValueError:
        return None


def show_pair(pair: tuple[int, int] | None) -> str:
    """Return (13, 2) as "13.2", and None as "unknown"."""
    return "unknown" if pair is None else f"{pair[0]}.{pair[1]}"


def first_texts(texts: Sequence[str], separator: str = "; ", shown: int = 6) -> str:
    """Join the first texts, and say how many more there are."""
    more = f"{separator}and {len(texts) - shown} more" if len(texts) > shown else ""
    return separator.join(texts[:shown]) + more


def quantity_text(count: int, noun: str) -> str:
    """Return "1 package" or "2 packages"."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


# ---- the host ------------------------------------------------------------------------------------


class Gpu(Value):
    """One device that the process would see, in the order of the CUDA runtime's numbering.

    `compute_capability` None is unknown. A MIG instance is one Gpu with `mig` true and with its own
    UUID and memory.
    """

    name: str
    compute_capability: ComputeCapability | None
    index: Natural | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    memory_total: Natural | None = None
    memory_free: Natural | None = None
    compute_mode: str | None = None
    ecc: bool | None = None
    mig: bool = False


def gpu_label(gpus: Sequence[Gpu], ordinal: int) -> str:
    """Return the name of a device of a process, such as "GPU 1".

    The number is that of nvidia-smi, which CUDA_VISIBLE_DEVICES does not change. It is `ordinal`,
    the number in the process, if that of nvidia-smi is not known or has more than one MIG instance.
    """
    index = gpus[ordinal].index if ordinal < len(gpus) else None
    if index is None or [gpu.index for gpu in gpus].count(index) > 1:
        index = ordinal
    return f"GPU {index}"


class Problem(Value, kw_only=False):
    """Why a fact about the host is not known. `code` is kebab-case and stable.

    The fields may be given by position.
    """

    code: str
    detail: str
    hint: str = ""


class Python(Value):
    """The target interpreter. `version` is (3, 12); `full_version` is "3.12.3" if it is known."""

    version: tuple[Natural, Natural]
    full_version: str | None = None
    free_threaded: bool = False
    executable: str | None = None

    @property
    def release(self) -> str:
        """The version as the --python flag takes it: "3.12", "3.13t"."""
        return show_pair(self.version) + "t" * self.free_threaded


class Host(Value):
    """What an environment will run on: detected, read from a file, or described by flags.

    A host with neither `gpus` nor `problems` is meant to have no GPU. `driver` None is an unknown
    driver. `driver_cuda` is the newest CUDA version that the driver supports. `sources` says where
    each fact came from.
    """

    os: str = "linux"  # linux | windows
    machine: str = "x86_64"  # x86_64 | aarch64
    glibc: tuple[Natural, Natural] | None = None
    python: Python
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    driver_cuda: CudaVersion | None = None
    virtualization: str | None = None  # wsl2 | container | tegra
    problems: tuple[Problem, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    cpu: tuple[str, ...] = ()  # the features of the CPU that variant wheels ask for; () is unknown
    virtual: tuple[tuple[str, str], ...] = ()  # what conda is told: ("__archspec", "zen4")

    @property
    def platform(self) -> str:
        """The platform as the --platform flag takes it: linux-x86_64, linux-aarch64, win-amd64."""
        return "win-amd64" if self.os == "windows" else f"{self.os}-{self.machine}"

    @property
    def capabilities(self) -> tuple[ComputeCapability | None, ...]:
        """The compute capability of each GPU."""
        return tuple(gpu.compute_capability for gpu in self.gpus)


# ---- packages ------------------------------------------------------------------------------------


class Requirement(Value):
    """A parsed PEP 508 requirement. `name` is normalized; `specifier` "" is any version."""

    name: str
    extras: tuple[str, ...] = ()
    specifier: str = ""
    marker: str | None = None
    url: str | None = None

    def __str__(self) -> str:
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        source = f" @ {self.url}" if self.url else self.specifier
        marker = f" ; {self.marker}" if self.marker else ""
        return f"{self.name}{extras}{source}{marker}"


class Wheel(Value):
    """One wheel file of one index, or a source distribution where the request allows one.

    The file name of a source distribution ends in .tar.gz or .zip. `size` None is unknown; `sha256`
    None is only possible on an index without hashes. `index` is the URL of the index, "" for a file
    of --find-links and "url" for one that a requirement names by its URL.
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
    index: str = ""
    metadata: Any = None  # private to the index: how it finds the dependencies

    @property
    def is_sdist(self) -> bool:
        """Whether it is a source distribution."""
        return self.filename.endswith((".tar.gz", ".zip"))

    @property
    def is_local(self) -> bool:
        """Whether it is a file or a folder of this machine, by its URL."""
        return self.url.startswith("file:")


class WheelVariant(Value):
    """The variant of a wheel (PEP 825): which hosts the wheel was built for.

    `properties` are (namespace, feature, values), sorted. A host suits the variant if it suits one
    value of each feature. The label "null" has no properties. `code` is the device code of its
    libraries if it was read. It counts instead of what the properties say.
    """

    name: str  # the distribution
    label: str
    properties: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    code: Code | None = None

    @property
    def features(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """The properties as PEP 825 writes them: {namespace: {feature: values}}."""
        namespaces: dict[str, dict[str, tuple[str, ...]]] = {}
        for namespace, feature, values in self.properties:
            namespaces.setdefault(namespace, {})[feature] = values
        return namespaces


# ---- compatibility facts -------------------------------------------------------------------------


class Code(Value):
    """The device code of a library or a build.

    `sass` and `ptx` hold targets without the prefix sm_ or compute_: "90", "90a"
    (architecture-specific), "100f" (family). None is unknown, () is none. `made_by` is the CUDA
    toolkit that made the PTX. `evidence` is "scanned" (read from the binary; `source` has the
    wheel's file name and sha256) or "documented". Devices below `unknown_below` may be served by
    targets that are not listed.
    """

    sass: tuple[str, ...] | None
    ptx: tuple[str, ...] | None = None
    made_by: CudaVersion | None = None
    evidence: str = "documented"
    source: str = ""
    some: tuple[str, ...] = ()  # targets of only some libraries or few fat binaries: not counted
    unknown_below: tuple[int, int] | None = None


class Build(Value):
    """One build of a framework or of a companion: what one wheel was compiled for.

    `variant` is "cu132", "cpu", ... `index` is the index that has the build: "default" or a URL.
    `version` has no local part. `local` is the whole version as that index spells it:
    "2.13.0+cu126", or "2.13.0" on the default index. `cudnn` is the version that the build was
    compiled against or pins. `companions` are (name, version) pairs: (torchvision, 0.30.0).
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
    companions: tuple[tuple[str, str], ...] = ()


class Library(Value):
    """One release of a CUDA library's distribution (nvidia-cudnn-cu12 9.10.2.21) on one platform.

    `code` is what all of its member libraries carry (R3). `cuda` and `cudnn` are what a framework's
    own library was built with.

    `by_cuda` is (CUDA version, code), in ascending order, for a distribution with one library for
    each CUDA version of its framework (bitsandbytes). One of them is loaded. `url` is the wheel,
    with its hash, of a build that is on no index.
    """

    name: str
    version: str
    platform: str
    cuda_major: int  # 0 where it has none (jaxlib), and where the runtime is in it (warp-lang)
    code: Code
    cuda: CudaVersion | None = None
    cudnn: str | None = None
    by_cuda: tuple[tuple[CudaVersion, Code], ...] = ()
    url: str = ""

    def of_cuda(self, cuda: CudaVersion) -> Library | None:
        """Return the library that is loaded beside a framework for a CUDA version.

        That is the library for this version, otherwise for the next older version of the major,
        otherwise for the oldest version of the major. None if the major has no library.
        """
        same_major = [pair for pair in self.by_cuda if pair[0][0] == cuda[0]]
        if not same_major:
            return None
        older = [pair for pair in same_major if pair[0] <= cuda]
        own_cuda, code = older[-1] if older else same_major[0]
        return self.replace(cuda=own_cuda, cuda_major=own_cuda[0], code=code, by_cuda=())

    def cuda_majors(self) -> tuple[int, ...]:
        """Return the CUDA majors that the distribution fits; () if it fits any."""
        if self.by_cuda:
            return tuple(sorted({cuda[0] for cuda, _ in self.by_cuda}))
        return (self.cuda_major,) if self.cuda_major else ()

    def choices(self) -> Iterator[Library]:
        """Yield the libraries of which one is loaded, the newest CUDA version first."""
        for cuda, code in reversed(self.by_cuda):
            yield self.replace(cuda=cuda, cuda_major=cuda[0], code=code, by_cuda=())


class Way(Value):
    """A way to install a framework: one of its variants.

    `requires` are the requirements that install it ("jax[cuda12]"); the first one's distribution
    has the framework's version. `carriers` are the distributions whose device code a convolution
    runs; () is a CPU build. `variant` "*" means that one distribution has every variant, named by
    the local part of its version (torch 2.13.0+cu126). `local` is how the local part of the
    carriers' version begins: jaxlib 0.4.20+cuda12.cudnn89 is for CUDA, jaxlib 0.4.20 is not.
    """

    variant: str
    requires: tuple[str, ...]
    carriers: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()  # those that have it; () is all
    local: str = ""

    @property
    def distribution(self) -> str:
        """The distribution that has the framework's version, such as jax."""
        return self.requires[0].partition("[")[0]

    def has_carriers(self, versions: Mapping[str, str]) -> bool:
        """Return whether the carriers are among distributions, {name: version}."""
        return all(
            name in versions and versions[name].partition("+")[2].startswith(self.local)
            for name in self.carriers
        )


class Framework(Value):
    """How a framework is named, found and probed. Each has one data file."""

    name: str
    distribution: str
    import_name: str
    probe: str
    ways: tuple[Way, ...] = ()  # best first where nothing else decides
    source: str = ""
    companions: tuple[str, ...] = ()  # distributions whose builds must match the framework's CUDA
    cpu_only: tuple[str, ...] = ()  # platforms for which the default index has CPU builds only

    def installed_way(self, versions: Mapping[str, str], platform: str) -> Way | None:
        """Return the way with the most carriers whose carriers are all there; a CPU way has none.

        Args:
            versions: {name: version} of what is installed.
            platform: that of the installation.
        """
        for way in sorted(self.ways, key=lambda way: -len(way.carriers)):
            if way.platforms and platform not in way.platforms:
                continue
            if way.distribution in versions and way.has_carriers(versions):
                return way
        return None

    @property
    def is_single_distribution(self) -> bool:
        """Whether one distribution has every variant, told apart by its version (torch)."""
        return [way.variant for way in self.ways] == ["*"]

    @property
    def distributions(self) -> tuple[str, ...]:
        """The framework's own distribution and its companions."""
        return (self.distribution, *self.companions)


# ---- requests and plans --------------------------------------------------------------------------


EVERY_FRAMEWORK = "*"  # a name in Request.builds
EVERY_PACKAGE = ":all:"  # a name in Request.no_build and Request.no_binary, as in pip


class Request(Value):
    """What the user asks for. `frameworks` and `requirements` are PEP 508 texts, in their order.

    `preferences` are (name, version) pairs of an earlier lock. They are taken before newer releases
    if they still fit. `earlier` are the files of that lock: releases that an index had then are
    candidates although the index snapshot lacks them, and the plan says why one is older now. Both
    are only wishes, so the digest of a plan leaves them out. `hashes` are
    pairs of a normalized name and its allowed sha256s: no other file of that name is taken. With
    `require_hashes` every package of a plan needs one. `no_build` names the packages that are not
    built from a source distribution, `no_binary` those of which no wheel is taken; EVERY_PACKAGE
    can stand for all others. `overrides` replace every requirement on their names, of the request
    and of releases. `builds` are (framework, build) pairs that choose builds by hand:
    "12.8" is a CUDA version, "cu128" a build's tag; EVERY_FRAMEWORK can stand for the framework.
    """

    frameworks: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    hashes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    require_hashes: bool = False
    no_build: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    default_index_only: bool = False
    pre: bool = False
    exclude_newer: str | None = None
    preferences: tuple[tuple[str, str], ...] = ()
    earlier: tuple[Wheel, ...] = ()
    builds: tuple[tuple[str, str], ...] = ()
    conda: CondaOptions | None = None  # for a conda environment; None for wheels

    def may_build(self, name: str) -> bool:
        """Return whether a package may be built from a source distribution."""
        if name in self.no_binary:
            return True
        return name not in self.no_build and EVERY_PACKAGE not in self.no_build

    def takes_wheels(self, name: str) -> bool:
        """Return whether a wheel of a package may be taken."""
        if name in self.no_build:
            return True
        return name not in self.no_binary and EVERY_PACKAGE not in self.no_binary


class CondaOptions(Value):
    """What a request for a conda environment adds.

    `channels` are URLs or names, best first; () is the default channel. With `configured_channels`,
    those of the settings of the conda that runs gpuenv follow. `keep_python` keeps the
    host's Python version; otherwise the solver chooses one. `wheels` are PEP 508 texts of wheels to
    install beside the conda packages.
    """

    channels: tuple[str, ...] = ()
    configured_channels: bool = False
    keep_python: bool = False
    wheels: tuple[str, ...] = ()


class IndexOptions(Value):
    """Where packages come from.

    `index_url` replaces the default index and disables the snapshot. `no_index` leaves only
    `find_links`. `package_indexes` are texts NAME=URL: a package that comes from this index only.
    With `merge_indexes` the releases of a package are those of all indexes. `known_metadata` are
    METADATA texts that replace those of files; one without a version is that of all releases.
    `build_settings` are texts KIND NAME TEXT about builds, of every package if NAME is *: a
    requirement or constraint of the build, or a config (for the backend) or variable KEY=VALUE.
    `exclude_newer_of` are texts NAME=DATE for single packages; NAME= excludes nothing. Relative
    paths of requirements start from `folder`, or from the working folder without it. The request
    has what the project in `folder` requires.
    """

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    package_indexes: tuple[str, ...] = ()
    merge_indexes: bool = False
    known_metadata: tuple[str, ...] = ()
    build_settings: tuple[str, ...] = ()
    folder: str = ""
    offline: bool = False
    refresh: bool = False
    exclude_newer: str | None = None
    exclude_newer_of: tuple[str, ...] = ()


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

    @classmethod
    def of_build(cls, framework: str, build: Build, cudnn: str | None) -> Choice:
        """Return the choice of a known build; `cudnn` is the release beside it, None for none."""
        return cls(
            framework=framework,
            version=build.version,
            variant=build.variant,
            cuda=build.cuda,
            cudnn=None if build.cuda is None else cudnn or build.cudnn,
            sass=build.code.sass or (),
            ptx=build.code.ptx or (),
            evidence=build.code.evidence,
            source=build.code.source,
        )


class Needs(Value):
    """What a lock needs of a host. Empty or None needs nothing.

    `driver` is the driver floor. `compute_capabilities` are those that all libraries on the path
    serve.
    """

    driver: str | None = None
    compute_capabilities: tuple[ComputeCapability, ...] = ()
    cuda: CudaVersion | None = None
    glibc: tuple[int, int] | None = None
    python: tuple[int, int] | None = None
    platform: str = ""


class Pin(Value):
    """One package of a plan with the file that was chosen and the names that it depends on.

    `publishers` are the identities whose attestations of the file hold, as canonical JSON; () if
    none was asked for. `built_with` is the package that must be installed before a source
    distribution can be built: it compiles code for it. "" for others. `build_settings` are
    those of IndexOptions for a source distribution.
    """

    wheel: Wheel
    dependencies: tuple[str, ...] = ()
    publishers: tuple[str, ...] = ()
    built_with: str = ""
    build_settings: tuple[str, ...] = ()


class Rejection(Value):
    """A build that was passed over, with all errors.Reason values against it."""

    name: str
    version: str
    reasons: tuple[Any, ...]


class Solved(Value):
    """What plans and locks have in common. `warnings` are errors.Reason values."""

    pins: tuple[Pin, ...]
    choices: tuple[Choice, ...]
    needs: Needs
    host: Host
    warnings: tuple[Any, ...] = ()
    data: str = ""  # the version of the compatibility data and of the snapshot
    digest: str = ""  # the sha256 of the inputs: request, host facts, data
    variants: tuple[WheelVariant, ...] = ()  # those of the pins that are variant wheels

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package."""
        return {pin.wheel.name: pin.wheel.version for pin in self.pins}

    def __str__(self) -> str:
        """Return how many packages it has, and which frameworks."""
        chosen = [f"{row.framework} {row.version} ({row.variant})" for row in self.choices]
        packages = f"{len(self.pins)} packages for {self.host.platform}"
        return f"<{type(self).__name__}: {', '.join([*chosen, packages])}>"


class Plan(Solved):
    """A solved environment. `pins` are sorted by name."""

    request: Request
    skipped: tuple[Rejection, ...] = ()
    index_date: str = ""  # that of the index snapshot, if a pin is of it
    wheels: Plan | None = None  # of the wheels beside conda packages


class Lock(Solved):
    """The content of a lock file. Read back from a file it equals the lock that was written.

    `inputs` describe the profile of a project that was locked, as (key, value) pairs; a value is a
    text, a flag or several texts. `warnings` are about the frameworks that do not use the GPU of
    the host.
    """

    frameworks: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    no_build: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    inputs: tuple[tuple[str, Any], ...] = ()
    conda: bool = False  # whether the pins are conda packages
    wheels: Lock | None = None  # of the wheels beside conda packages


class PackageChange(Value):
    """A package before and after an installation. `wheel` is one beside conda packages.

    The texts are its version and build; "" where it is not there.
    """

    name: str
    before: str = ""
    after: str = ""
    wheel: bool = False


class EnvironmentChanges(Value):
    """What an installation into an existing environment adds, changes and removes.

    `again` are packages whose files are replaced by those of the same version. `confirm` names the
    packages that are changed or removed only if the user agrees. `verified` tells whether the
    environment was proved to work when it was installed.
    """

    target: str
    add: tuple[PackageChange, ...] = ()
    change: tuple[PackageChange, ...] = ()
    remove: tuple[PackageChange, ...] = ()
    again: tuple[PackageChange, ...] = ()
    confirm: tuple[str, ...] = ()
    verified: bool = False

    def names(self) -> set[str]:
        """Return the names of all packages that differ afterwards."""
        rows = (*self.add, *self.change, *self.remove, *self.again)
        return {row.name for row in rows}


Mark = tuple[str, str, str]


class Check(Value, kw_only=False):
    """The outcome of one check. The first four fields may be given by position.

    `status` is pass, fail or unknown. `evidence` says what was observed. `marks` is the evidence
    for programs: a code, its subject, and more. The codes are

    - of libraries: missing (file, file that needs it), outside (file, path that was loaded),
      mixed, broken (path), foreign (path), symbol (file), crashed, none (there is no libcudnn),
      version (the version that loads);
    - of files: twice (distribution), two-owners (path), no-record (distribution), glibc
      (distribution, version);
    - of a device: result (call, number), status (cuda or cudnn, name), no-driver, memory;
    - of device code: no-code (path, its compute capabilities), rebuild (distribution or path,
      what to do);
    - of a fleet: library (path in the environment, hash), bits (convolution, sha256 of its
      result).
    """

    name: str
    subject: str
    status: str
    evidence: str
    seconds: float = 0.0
    marks: tuple[Mark, ...] = ()


class Checks(tuple[Check, ...]):
    """The checks of an environment, in their order."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return to_html(self)
