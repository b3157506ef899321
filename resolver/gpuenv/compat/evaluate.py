"""Can this run on this host? The only module that calls the rules (compat.rules).

- `build_reasons`, `library_reasons`, `known_bad_reasons`, `host_reasons`, `device_tier`: one
  release on a host. The resolver asks these of every candidate. Answers are complete, never just
  the first reason.
- `variant_reasons`: the properties of a variant wheel on a host.
- `agreements`: what a package and all packages beside it must share. The resolver asks it for
  every candidate, `environment_findings` for every package.
- `packages_of_pins`, `environment_findings`: a whole environment on a host. Locks, installed
  environments, conda closures (compat.conda_parts) and the doctor ask these.
- `code_reasons`, `serves`: device code that was read from a file, on a host.
- `needs_of_gpus`: what a plan needs of a host.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from ..errors import Reason, is_doubt
from ..model import (
    EVERY_FRAMEWORK,
    Build,
    Code,
    CudaVersion,
    Host,
    Library,
    Needs,
    Requirement,
    Value,
    Wheel,
    WheelVariant,
    parse_release,
    show_pair,
)
from ..requirements.target import normalize_name
from . import rules, variants
from .architectures import show_code
from .data import CompatibilityData
from .extensions import FRAMEWORK, Links, abi_text, release_of, shown_release

# A reason, and the packages that it is about, the one to replace first; () for the host.
Finding = tuple[Reason, tuple[str, ...]]

OWNER_SOURCE = rules.OWNER_SOURCE
cudnn_reasons = rules.cudnn_reasons
code_reasons = rules.device_reasons
# The codes of reasons about the host alone, against every build.
HOST_CODES = ("gpu-needs-newer-driver", "gpu-dropped-by-driver", "jetson-wheel")
# The codes of reasons about the driver of a toolkit.
TOOLKIT_CODES = (*HOST_CODES[:2], "driver-floor", "driver-floor-unknown", "driver-cuda")
_CUDNN = "nvidia-cudnn-cu"
_MINORS = 100  # no major of cuDNN has had as many minors


# ---- one release on a host ---------------------------------------------------------------------


def other_build_reason(
    chosen: Mapping[str, str],
    framework: str,
    subject: str,
    tags: Sequence[str],
    cuda: CudaVersion | None,
) -> Reason | None:
    """Return the reason against a build that is not the one that the user chose by hand.

    Args:
        chosen: the builds of a Request.
        framework: the framework.
        subject: how the reason names the build.
        tags: the names of the build, best first; "" for an unknown one.
        cuda: its CUDA; None for a CPU build.
    """
    wanted = chosen.get(framework, chosen.get(EVERY_FRAMEWORK))
    names = tags if cuda is None else (*tags, show_pair(cuda), str(cuda[0]))
    if wanted is None or wanted in names:
        return None
    have = tags[0] or "an unknown build"
    if cuda is not None:
        have += f", for CUDA {show_pair(cuda)}"
    need = f"the build {wanted}, which was chosen by hand"
    if wanted[0].isdigit():
        need = f"for CUDA {wanted}, which was chosen by hand"
    return Reason("other-build", subject, need, have)


def build_reasons(
    subject: str, build: Build | None, host: Host, data: CompatibilityData, *, on_path: bool
) -> tuple[Reason, ...]:
    """R1 and R2 for the build of a framework or of a companion.

    Args:
        subject: how the reasons name the build.
        build: None is a release that the data does not know.
        host: a host without a GPU gives no reasons.
        data: the compatibility data.
        on_path: whether a convolution runs the build's own code.

    Returns:
        Codes: those of the rules, build-unknown, cpu-build.
    """
    if not host.gpus:
        return ()
    if build is None:
        return _not_in_data("build-unknown", subject)
    if build.cuda is None:
        return rules.cpu_build_reasons(subject, build.code, host)
    device = code_reasons(subject, build.code, host) if on_path else ()
    return device + driver_reasons(subject, build.cuda, host, data)


def library_reasons(
    subject: str, library: Library | None, host: Host, data: CompatibilityData
) -> tuple[Reason, ...]:
    """R2 for a CUDA library, and R1 for a library whose toolkit is known.

    For other libraries of an environment, the builds of the frameworks decide which driver it
    needs; see `requested_library_reasons` for a library without a framework.

    Returns:
        Codes: those of the rules, library-unknown.
    """
    if library is None:
        return jetson_reasons(subject, host) or _not_in_data("library-unknown", subject)
    if not host.gpus:
        return ()
    if library.by_cuda:  # one library for each CUDA version: one of them must run
        every = [library_reasons(subject, choice, host, data) for choice in library.choices()]
        return every[0] if all(every) else ()
    reasons = code_reasons(subject, library.code, host)
    if library.cuda is not None:
        reasons += driver_reasons(subject, library.cuda, host, data)
    return reasons


def jetson_reasons(subject: str, host: Host) -> tuple[Reason, ...]:
    """R2 for any library of an index on a Jetson before Thor, which needs other wheels."""
    if not rules.needs_jetson_wheels(host.gpus):
        return ()
    return code_reasons(subject, Code(sass=None), host)


def requested_library_reasons(
    subject: str, library: Library | None, host: Host, data: CompatibilityData
) -> tuple[Reason, ...]:
    """R1 and R2 for a CUDA library without a framework: see `library_reasons`.

    R1 counts from the first toolkit of the library's CUDA major if its own is not known.
    """
    if library is not None and library.cuda is None and library.cuda_major:
        library = library.replace(cuda=(library.cuda_major, 0))
    return library_reasons(subject, library, host, data)


def source_reasons(
    name: str, version: str, host: Host, data: CompatibilityData
) -> tuple[Reason, ...]:
    """R2 for a source distribution whose project compiles code for certain devices only.

    Returns:
        Codes: needs-gpu, those of the rule.
    """
    row = data.compiled_against(name, version)
    if row is None or not row.capabilities:
        return ()
    if not host.gpus:
        return (gpu_reason(f"{name} {version}"),)
    targets = tuple(capability.replace(".", "") for capability in row.capabilities)
    code = Code(sass=targets, ptx=(), source=row.source)
    return code_reasons(f"{name} {version}", code, host)


def gpu_reason(subject: str, source: str = "") -> Reason:
    """Return that a release needs a GPU and that the host has none. Code: needs-gpu."""
    have = "a host without one"
    return Reason("needs-gpu", subject, "a GPU", have, source=source)


def _not_in_data(code: str, subject: str) -> tuple[Reason, ...]:
    need, have = "a release that the data knows", "not in the compatibility data"
    return (Reason(code, subject, need, have),)


def driver_reasons(
    subject: str, cuda: CudaVersion, host: Host, data: CompatibilityData
) -> tuple[Reason, ...]:
    """R1 for a toolkit. Codes: driver-floor, driver-floor-unknown, driver-cuda."""
    return rules.driver_reasons(subject, cuda, host, data.driver_floor(cuda, host.os))


def host_reasons(host: Host, data: CompatibilityData) -> tuple[Reason, ...]:
    """R7 and R9 for the driver and the GPUs.

    Codes: gpu-needs-newer-driver, gpu-dropped-by-driver, driver-branch-unknown.
    """
    newest = data.newest_branch()
    return rules.branch_reasons(host, data.first_branches, data.last_branches, newest)


def known_bad_reasons(
    distribution: str, version: str, host: Host, data: CompatibilityData, subject: str = ""
) -> tuple[Reason, ...]:
    """R4: whether a release is known to be bad everywhere or on the host's devices.

    Args:
        distribution: the wheel distribution under which the data has the release.
        version: its version.
        host: its GPUs, driver, platform and Python count.
        data: the compatibility data.
        subject: how the reason names the release; by default "distribution version".

    Returns:
        Codes: known-unsupported, known-broken, known-avoid.
    """
    # A generator: for most distributions the data has no verdict and does not look at the GPUs.
    capabilities = (gpu.compute_capability for gpu in host.gpus if gpu.compute_capability)
    python = show_pair(host.python.version)
    verdict = data.bad(
        distribution,
        version,
        capabilities,
        host.driver_cuda,
        platform=host.platform,
        python=python,
    )
    return rules.bad_release_reasons(subject or f"{distribution} {version}", verdict)


def variant_reasons(
    subject: str,
    variant: WheelVariant,
    listed: Mapping[str, Mapping[str, Sequence[str]]],
    host: Host,
    data: CompatibilityData,
) -> tuple[Reason, ...]:
    """R1, R2, R6, R7 and R9 for the properties of a variant wheel.

    Args:
        subject: how the reasons name the wheel.
        variant: its label, its properties and its device code.
        listed: namespace -> feature -> values, where the metadata lists what suits every host.
        host: the host.
        data: the compatibility data.

    Returns:
        Codes: those of the rules, needs-gpu, variant-namespace, variant-property, cpu-feature,
        cpu-unknown.
    """
    reasons: list[Reason] = []
    if variants.NVIDIA not in listed:
        reasons += _nvidia_reasons(subject, variant, host, data)
    for namespace, feature, values in variant.properties:
        need = f"{namespace} {feature} {' or '.join(values)}"
        if namespace in listed:
            if not set(values) & set(listed[namespace].get(feature, ())):
                have = "none of these values in the list of its provider"
                reasons.append(_variant_reason("variant-property", subject, need, have))
        elif namespace not in variants.FEATURES:
            need, have = f"a provider of the namespace {namespace}", "no known provider"
            reasons.append(_variant_reason("variant-namespace", subject, need, have))
        elif namespace != variants.NVIDIA:
            suitable = variants.suitable_values(namespace, feature, values, host)
            if not suitable:
                reasons.append(_variant_reason("cpu-feature", subject, need, "a CPU without it"))
            elif not any(variants.is_cpu_known(namespace, value, host) for value in suitable):
                have = "a CPU whose features are not known"
                reasons.append(_variant_reason("cpu-unknown", subject, need, have))
    return tuple(dict.fromkeys(reasons))


def _nvidia_reasons(
    subject: str, variant: WheelVariant, host: Host, data: CompatibilityData
) -> Iterator[Reason]:
    claims = variants.nvidia_claims(variant)
    if claims is None:
        return
    for text in claims.unreadable:
        yield _variant_reason("variant-property", subject, f"nvidia {text}", "no known meaning")
    if not host.gpus:
        yield gpu_reason(subject, rules.VARIANT_SOURCE)
        return
    yield from (reason for reason in host_reasons(host, data) if not is_doubt(reason))
    bounds = rules.cuda_bound_reasons(subject, claims.lower, claims.upper, host.driver_cuda)
    yield from bounds
    if claims.lower is not None and not bounds:
        yield from driver_reasons(subject, claims.lower, host, data)
    code = variant.code or claims.code
    if code is not None:
        yield from code_reasons(subject, code, host)


def claim_reasons(subject: str, variant: WheelVariant) -> tuple[Reason, ...]:
    """Return what the properties of a variant wheel say and its libraries contradict.

    Args:
        subject: how the reason names the wheel.
        variant: its label, its properties and its device code.

    Returns:
        One reason, or none. Code: variant-claim.
    """
    claims, scanned = variants.nvidia_claims(variant), variant.code
    if scanned is None or claims is None or claims.code is None:
        return ()
    claimed = claims.code
    missing = Code(
        sass=tuple(target for target in claimed.sass or () if target not in (scanned.sass or ())),
        ptx=tuple(target for target in claimed.ptx or () if target not in (scanned.ptx or ())),
    )
    if not missing.sass and not missing.ptx:
        return ()
    need, have = f"{show_code(missing)}, as its properties say", show_code(scanned)
    return (_variant_reason("variant-claim", subject, need, f"{have} in its libraries"),)


def _variant_reason(code: str, subject: str, need: str, have: str) -> Reason:
    return Reason(code, subject, need, have, source=rules.VARIANT_SOURCE)


def device_tier(code: Code, host: Host) -> int:
    """Rank a build for the devices: 0 if all have SASS, 1 if all have SASS or PTX, 2 otherwise."""
    tier = 0
    for gpu in host.gpus:
        answer = rules.serves(code, gpu.compute_capability, host.driver_cuda)
        if answer == "ptx":
            tier = 1
        elif answer != "sass":
            return 2
    return tier


def toolkit_distance(cuda: CudaVersion, driver_cuda: CudaVersion | None) -> tuple[int, int]:
    """Rank a toolkit by its distance from the driver's CUDA version (smaller is better).

    At the same distance the older toolkit comes first. Without a driver, the newest one does.
    """
    if driver_cuda is None:
        return -cuda[0], -cuda[1]
    gap = (cuda[0] - driver_cuda[0]) * 100 + cuda[1] - driver_cuda[1]
    return abs(gap), gap


def serves(code: Code, capability: tuple[int, int]) -> bool:
    """R2 without a driver: whether the code may run on a device; unknown code may."""
    return rules.serves(code, capability, None) is not None


# ---- what a plan needs of a host ---------------------------------------------------------------


def needs_of_gpus(
    needs: Needs,
    toolkits: Sequence[CudaVersion],
    codes: Sequence[Code],
    host: Host,
    data: CompatibilityData,
) -> Needs:
    """Add what a plan needs of a GPU host: the driver floor (R1) and the devices (R2, R3).

    Args:
        needs: the needs that are no matter of GPUs.
        toolkits: the CUDA versions in the plan, at least one. The newest decides.
        codes: the device code of every library on the path.
        host: the host that the plan was made for.
        data: the compatibility data.
    """
    floors = []
    for cuda in toolkits:
        floor = data.driver_floor(cuda, host.os)
        if floor is not None:
            floors.append(floor[0])
    capabilities = set(filter(None, host.capabilities))
    # The lock may go to any host with a driver of the floor. So PTX counts only if a device of this
    # host depends on it; then the first driver that compiles it belongs to the floor.
    compiled = [
        code.made_by
        for code in codes
        if code.made_by is not None
        and any(
            rules.serves(code, capability, host.driver_cuda) == "ptx" for capability in capabilities
        )
    ]
    ptx_cuda = max(compiled, default=None)
    if ptx_cuda is not None:
        first = data.first_driver(ptx_cuda, host.os)
        # The driver that compiles it here is new enough, also if it is older than the data's first.
        known = [release for release in (first, host.driver) if release is not None]
        floors += sorted(known, key=parse_release)[:1]
    # Devices that passed with a warning, their code being unknown, are what the lock was made for.
    served = {
        capability
        for capability in data.capabilities()
        if rules.serves_all(codes, capability, ptx_cuda) in ("sass", "ptx")
    }
    served |= capabilities
    return needs.replace(
        driver=max(floors, key=parse_release, default=None),
        compute_capabilities=tuple(sorted(served)),
        cuda=max(toolkits),
    )


# ---- a whole environment -----------------------------------------------------------------------


class Package(Value):
    """One package of an environment, as the rules see it.

    Attributes:
        name: what its installer calls it (libcudnn).
        version: its version.
        distribution: the wheel distribution whose rows in the data describe it
            (nvidia-cudnn-cu12); "" if there is none.
        links: what its files need of the packages beside it.
        framework: the framework that the package is a build or a companion of; "" for others.
        build: that build; None is a release that the data does not know.
        build_subject: how reasons name the build.
        on_path: whether a convolution runs the build's own code: true for a framework, false for a
            companion.
        is_library: whether it is a CUDA library on the path of a convolution.
        library: that library; None if the data does not know it.
        toolkit: the version of a package that stands for the CUDA of the environment
            (cuda-version of conda).
    """

    name: str
    version: str
    distribution: str
    links: Links | None = None
    framework: str = ""
    build: Build | None = None
    build_subject: str = ""
    on_path: bool = False
    is_library: bool = False
    library: Library | None = None
    toolkit: CudaVersion | None = None

    @property
    def subject(self) -> str:
        """How reasons name the package."""
        return f"{self.name} {self.version}"


class Agreement(Value):
    """A value that a package and all packages beside it must share.

    Attributes:
        code: that of the reason against packages that do not share it.
        topic: what it is about: "CUDA", "torch built for", a folder with one owner (R5).
        values: those that the package accepts.
        text: what messages say: "CUDA 12 or 13".
        source: of the fact.
        is_topic: whether the package itself is what the topic is about, such as numpy of "NumPy".
    """

    code: str
    topic: str
    values: tuple[str, ...]
    text: str
    source: str
    is_topic: bool = False

    def agrees_with(self, other: Agreement) -> bool:
        """Return whether one value fits both."""
        return not set(self.values).isdisjoint(other.values)


def _agreement(
    code: str, topic: str, values: Iterable[object], source: str, *, is_topic: bool = False
) -> Agreement:
    texts = tuple(map(str, values))
    return Agreement(
        code=code,
        topic=topic,
        values=texts,
        text=f"{topic} {' or '.join(texts)}",
        source=source,
        is_topic=is_topic,
    )


def agreements_of_requirement(
    wheel: Wheel, requirement: Requirement, links: Links | None
) -> Iterator[Agreement]:
    """Yield R11 for a wheel that requires NumPy, if the data has no NumPy major for it.

    A wheel for one Python version that is older than NumPy 2 needs NumPy 1. Nothing is known of one
    whose index gives no date. A requirement with an upper bound says whether NumPy 2 fits.
    """
    is_read = links is not None and links.numpy is not None
    if is_read or requirement.name != "numpy" or "<" in requirement.specifier:
        return
    is_compiled = not wheel.is_sdist and wheel.filename.split("-")[-2] != "none"
    if is_compiled and (wheel.upload_time or rules.FIRST_NUMPY_2) < rules.FIRST_NUMPY_2:
        yield _agreement("numpy-abi", "NumPy", [1], rules.NUMPY_SOURCE)


def agreements(package: Package, host: Host, data: CompatibilityData) -> Iterator[Agreement]:
    """Yield what a package and all packages beside it must share (R4, R5, R10, R11).

    Codes: cuda-variant, cuda-major, extension-cuda, extension-abi, cudnn-major, cudnn-version,
    numpy-abi, two-owners, bad-pair, avoid-pair.
    """
    links = package.links or Links()
    if package.build is not None:
        yield from _agreements_of_build(package, package.build, links, data)
    else:
        yield from _agreements_on_cuda(package, links)
    if links.cxx11_abi is not None:
        for name, specifier in links.frameworks:
            topic = f"{name} {shown_release(specifier)} with"
            yield _agreement("extension-abi", topic, [abi_text(links.cxx11_abi)], links.source)
    if host.os == "linux":  # on Windows the framework's own wheel holds cuDNN
        yield from _cudnn_agreements(package, links)
    if links.numpy:
        yield _agreement("numpy-abi", "NumPy", links.numpy, links.source)
    if package.name == "numpy":
        major = package.version.partition(".")[0]
        yield _agreement("numpy-abi", "NumPy", [major], rules.NUMPY_SOURCE, is_topic=True)
    yield from owner_agreements(package.distribution, data)
    for pair, side, verdict in data.bad_pairs(
        package.distribution, package.version, len(host.gpus)
    ):
        code = "avoid-pair" if verdict[0] == "avoid" else "bad-pair"
        agreement = _agreement(code, pair, [side], verdict[2])
        yield agreement.replace(text=verdict[1])


def _agreements_on_cuda(package: Package, links: Links) -> Iterator[Agreement]:
    """Yield what a package that is no build of a framework needs of CUDA and of torch's CUDA."""
    if package.library is not None and package.library.cuda_majors() and not links.cuda:
        majors, source = package.library.cuda_majors(), package.library.code.source
        yield _agreement("cuda-major", "CUDA", majors, source)
    # A build that names its CUDA is another one than that whose CUDA versions were read.
    versions = () if "+" in package.version else links.cuda_versions
    if links.frameworks and versions:
        yield _agreement("extension-cuda", f"{FRAMEWORK} with CUDA", versions, links.source)
    if links.cuda and links.frameworks and "none" not in versions:
        yield _agreement("extension-cuda", f"{FRAMEWORK} for CUDA", links.cuda, links.source)
    elif links.cuda:
        yield _agreement("cuda-major", "CUDA", links.cuda, links.source)


def _cudnn_agreements(package: Package, links: Links) -> Iterator[Agreement]:
    """Yield R4: the major of cuDNN, and that its minor is not older than that of a build.

    Codes: cudnn-major, cudnn-version.
    """
    build, library = package.build, package.library
    if links.cudnn:
        yield _agreement("cudnn-major", "cuDNN", links.cudnn, links.source)
    if package.distribution.startswith(_CUDNN):
        cuda, version = package.distribution.removeprefix(_CUDNN), package.version
        yield _agreement(
            "cudnn-major", "cuDNN", version.split(".")[:1], rules.CUDNN_SOURCE, is_topic=True
        )
        yield _minor_of_cudnn(cuda, version, is_topic=True)
    elif build is not None and package.on_path and build.cuda and build.cudnn:
        # Its wheel requires the cuDNN of the build, and `_cudnn_of_build` compares the minors.
        yield _agreement("cudnn-major", "cuDNN", build.cudnn.split(".")[:1], build.code.source)
    elif build is None and library is not None and library.cudnn:
        yield _minor_of_cudnn(library.cuda_major, library.cudnn)


def _minor_of_cudnn(cuda: object, version: str, *, is_topic: bool = False) -> Agreement:
    """Return the agreement about the minor version of a cuDNN for a CUDA major.

    Args:
        cuda: the CUDA major.
        version: that of the cuDNN, or the oldest that a build takes.
        is_topic: whether it is that of the cuDNN.
    """
    major, minor = (*version.split("."), "0")[:2]
    minors = range(int(minor), int(minor) + 1 if is_topic else _MINORS)
    agreement = _agreement(
        "cudnn-version",
        f"cuDNN {major} for CUDA {cuda}",
        [f"{major}.{number}" for number in minors],
        rules.CUDNN_SOURCE,
        is_topic=is_topic,
    )
    text = f"cuDNN {major}.{minor}"
    return agreement.replace(text=text if is_topic else f"{text} or a newer {major}.x")


def owner_agreements(distribution: str, data: CompatibilityData) -> Iterator[Agreement]:
    """Yield R5 for a distribution: one owner of the paths of its family. Code: two-owners."""
    family = data.family(distribution)
    if family is not None and not family.tolerated:
        agreement = _agreement("two-owners", family.path, [distribution], family.source)
        yield agreement.replace(text=f"owner of {family.path} {distribution}")


def _agreements_of_build(
    package: Package, build: Build, links: Links, data: CompatibilityData
) -> Iterator[Agreement]:
    """Yield the agreements of a build of a framework or of a companion."""
    source, on_path = build.code.source, package.on_path
    framework = data.framework(package.framework)
    # A companion of several framework releases links the CUDA runtime only.
    is_for_variant = len(build.companions) == 1 or links.cuda_versions
    has_companions = framework is not None and framework.companions
    if has_companions and (on_path or is_for_variant):
        topic = f"{package.framework} built for"
        yield _agreement("cuda-variant", topic, [build.variant], source, is_topic=on_path)
    if build.cuda is not None and (on_path or not is_for_variant):
        yield _agreement("cuda-major", "CUDA", [build.cuda[0]], source)
    if on_path and package.framework == FRAMEWORK:
        major, version = (
            ("none", "none") if build.cuda is None else (build.cuda[0], show_pair(build.cuda))
        )
        topic = f"{FRAMEWORK} for CUDA"
        yield _agreement("extension-cuda", topic, [major], source, is_topic=True)
        topic = f"{FRAMEWORK} with CUDA"
        yield _agreement("extension-cuda", topic, [version], source, is_topic=True)
        abi = data.cxx11_abi(build)
        if abi is not None:
            topic = f"{FRAMEWORK} {release_of(package.version)} with"
            yield _agreement("extension-abi", topic, [abi_text(abi)], source, is_topic=True)


def disagreement_reason(
    subject: str, agreement: Agreement, other_subject: str, other: Agreement
) -> Reason:
    """Return the reason against two packages that do not share a value."""
    if agreement.is_topic and not other.is_topic:
        return disagreement_reason(other_subject, other, subject, agreement)
    need, have = agreement.text, f"{other_subject}, which needs {other.text}"
    if agreement.code == "two-owners":
        subject, need, have = agreement.topic, "one owner", f"{subject} and {other_subject}"
    elif agreement.code.endswith("-pair"):
        have = other_subject
    elif other.is_topic and not agreement.is_topic:
        have = f"{other_subject} ({other.text})"
    return Reason(agreement.code, subject, need, have, source=agreement.source)


def packages_of_pins(
    pins: Iterable[tuple[str, str]], platform: str, data: CompatibilityData
) -> list[Package]:
    """Describe pinned or installed distributions: a plan, a lock of any tool, an environment.

    Args:
        pins: (name, version) pairs. Names may be spelled in any way. Packages that no rule is
            about are allowed.
        platform: as in Host.platform.
        data: the compatibility data.
    """
    versions = {normalize_name(name): version for name, version in pins}
    ways, carriers = {}, set()
    for framework in data.all_frameworks():
        way = framework.installed_way(versions, platform)
        if way is not None and not framework.is_single_distribution:
            ways[way.distribution] = (framework, way)
        carriers |= {name for way in framework.ways for name in way.carriers}
    packages = []
    for name, version in versions.items():
        package = Package(
            name=name,
            version=version,
            distribution=name,
            links=data.links(name, version, platform),
            build_subject=f"{name} {version}",
        )
        single = data.framework_of(name)
        if single is not None:  # versions name builds: 2.13.0+cu126
            package = package.replace(
                framework=single.name,
                build=data.build(name, version, platform),
                on_path=name == single.distribution,
            )
        elif name in ways:
            framework, way = ways[name]
            package = package.replace(
                framework=framework.name,
                build=data.variant(framework, way, version, platform),
                build_subject=f"{framework.name} {version} ({way.variant})",
                on_path=True,
            )
        # A framework's own library counts with the framework's build.
        is_library = data.is_library(name) and name not in carriers
        if is_library or data.is_extension(name):
            library = data.library(name, version, platform)
            is_library = is_library or library is not None
            package = package.replace(library=library, is_library=is_library)
        packages.append(package)
    return packages


def built_with(
    name: str, version: str, platform: str, data: CompatibilityData
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the CUDA and the cuDNN that the builds of a release on the default index use.

    Args:
        name: a framework or a distribution.
        version: the release; "2.10" is any release of that line.

    Returns:
        (CUDA, cuDNN): the version or only the major of CUDA, and the major of cuDNN; () is unknown.
    """
    framework, build, distribution = data.framework(name), None, name
    if framework is not None and framework.is_single_distribution:
        for known in data.builds(name, platform):
            is_asked = f"{known.version}.".startswith(f"{version}.")
            if build is None and is_asked and known.index == "default" and known.cuda:
                build = known
    elif framework is not None:
        build = data.variant(framework, framework.ways[0], version, platform)
        distribution = next(iter(framework.ways[0].carriers), name)
    # The GPU's package had a name of its own before it was the only one.
    links = data.links(distribution, version, platform)
    links = links or data.links(f"{name}-gpu", version, platform) or Links()
    cuda, cudnn = links.cuda, links.cudnn
    if links.cuda_versions:
        cuda = parse_release(links.cuda_versions[0])
    if build is not None:
        cuda = cuda or build.cuda or ()
        cudnn = cudnn or ((int(build.cudnn.partition(".")[0]),) if build.cudnn else ())
    return cuda, cudnn


def known_builds(
    pins: Iterable[tuple[str, str]], platform: str, data: CompatibilityData
) -> tuple[Build, ...]:
    """Return the builds of the frameworks among pinned packages, as far as the data knows them."""
    packages = packages_of_pins(pins, platform, data)
    return tuple(package.build for package in packages if package.on_path and package.build)


def pin_reasons(
    pins: Iterable[tuple[str, str]], host: Host, data: CompatibilityData
) -> tuple[Reason, ...]:
    """Return everything that speaks against (name, version) pairs on a host.

    The pairs are those of a lock of any tool or of an installed environment. Neither an index nor
    a solve is needed, so it also answers "would these pins work with another driver or GPU?".
    """
    return environment_reasons(packages_of_pins(pins, host.platform, data), host, data)


def environment_reasons(
    packages: Sequence[Package], host: Host, data: CompatibilityData
) -> tuple[Reason, ...]:
    """Return everything that speaks against an environment on a host; each reason once.

    Codes: see `environment_findings`. `errors.is_doubt` tells doubts from failures.
    """
    reasons: dict[tuple[str, str, str, str], Reason] = {}
    for reason, _ in environment_findings(packages, host, data):
        reasons[reason.code, reason.subject, reason.need, reason.have] = reason
    return tuple(reasons.values())


def environment_findings(
    packages: Sequence[Package], host: Host, data: CompatibilityData
) -> Iterator[Finding]:
    """Yield everything that speaks against an environment on a host, with the packages concerned.

    Codes: those of the rules, cpu-build, build-unknown, library-unknown, cuda-major, cuda-variant,
    driver-unknown, cudnn-unknown, gpu-unused (a CUDA build without a GPU: it runs on the CPU).
    """
    frameworks = {package.framework: package for package in packages if package.on_path}
    if host.gpus:
        yield from _device_findings(packages, host, data)
    for package in frameworks.values():
        if not host.gpus and package.build is not None and package.build.cuda is not None:
            reason = Reason(
                "gpu-unused",
                package.build_subject,
                "a GPU to be of use",
                "a host without a GPU: it runs on the CPU",
                source=package.build.code.source,
            )
            yield reason, (package.name,)
    for package in packages:
        subject = package.subject
        reasons = known_bad_reasons(package.distribution, package.version, host, data, subject)
        yield from _about(reasons, package)
    for package in frameworks.values():
        yield from _cudnn_of_build(package, packages, host)
    yield from _release_findings(packages, data)
    yield from _disagreements(packages, host, data)
    wheels = [(package.distribution, package.version) for package in packages]
    yield from _about(shared_path_reasons(wheels, data))


def reasons_beside(
    packages: Sequence[Package], others: Sequence[Package], host: Host, data: CompatibilityData
) -> Iterator[Reason]:
    """Yield what packages do not share with others, which stay as they are (R4, R5, R10, R11)."""
    names, together = {package.name for package in packages}, [*others, *packages]
    for findings in (_release_findings(together, data), _disagreements(together, host, data)):
        yield from (reason for reason, concerned in findings if names.intersection(concerned))


def _release_findings(packages: Sequence[Package], data: CompatibilityData) -> Iterator[Finding]:
    """R10: the frameworks that packages were built for, and what they need beside others.

    A framework that is not there is no finding: the packages may be for an environment that has it.
    Code: extension-release.
    """
    versions = {package.name: package.version for package in packages}
    versions |= {package.framework: package.version for package in packages if package.on_path}
    for package in packages:
        if package.links is not None:
            reasons = rules.framework_reasons(package.subject, package.links, versions)
            yield from _about(reasons, package)
    for row in data.undeclared(versions):
        beside = " and ".join(f"{name} {versions[name]}" for name in row.beside if name in versions)
        missing = [name for name in row.requires if beside and name not in versions]
        concerned = [one for one in packages if row.is_about(one.name, one.version)]
        for package in concerned:
            for need in missing:
                reason = Reason(
                    "extension-release",
                    package.subject,
                    need,
                    f"none beside {beside}",
                    source=row.source,
                )
                yield reason, (package.name,)


def shared_path_reasons(
    pins: Iterable[tuple[str, str]], data: CompatibilityData, before: Container[str] = ()
) -> tuple[Reason, ...]:
    """R5 for the tolerated families among (normalized name, version) pairs. Code: shared-paths.

    Args:
        pins: the pairs.
        data: the compatibility data.
        before: the names of those that were installed before the others.
    """
    reasons: list[Reason] = []
    versions = dict(pins)
    for family in data.tolerated:
        present = [name for name in family.distributions if name in versions]
        present.sort(key=lambda name: name not in before)
        reasons += rules.shared_path_reasons(family, present, versions)
    return tuple(reasons)


def _about(reasons: Iterable[Reason], *packages: Package) -> Iterator[Finding]:
    names = tuple(package.name for package in packages)
    return ((reason, names) for reason in reasons)


def _device_findings(
    packages: Sequence[Package], host: Host, data: CompatibilityData
) -> Iterator[Finding]:
    """R1, R2, R3, R6, R7 and R9 on a host with a GPU."""
    builds = [package for package in packages if package.framework]
    libraries = [package for package in packages if package.is_library]
    toolkits = [package.build.cuda for package in builds if package.build and package.build.cuda]
    toolkits += [package.toolkit for package in packages if package.toolkit is not None]
    # A build of which nothing is known may need a driver.
    if libraries or toolkits or any(package.build is None for package in builds):
        yield from _about(host_reasons(host, data))
    torch = None
    for package in builds:
        subject, build, on_path = package.build_subject, package.build, package.on_path
        if package.framework == FRAMEWORK and on_path and build is not None:
            torch = build.cuda
        yield from _about(build_reasons(subject, build, host, data, on_path=on_path), package)
    # Without a CUDA build or toolkit, R1 counts by the CUDA major of the libraries.
    judge = library_reasons if toolkits else requested_library_reasons
    for package in packages:
        cuda = package.toolkit
        if not toolkits and (major := data.other_library_major(package.distribution)):
            cuda = (major, 0)
        if cuda is not None:
            yield from _about(driver_reasons(package.subject, cuda, host, data), package)
    for package in libraries:
        library = package.library
        if library is not None and library.by_cuda and torch is not None:
            library = library.of_cuda(torch) or library  # the one that is loaded
        yield from _about(judge(package.subject, library, host, data), package)
    if host.driver is None:
        yield from _unknown_driver(toolkits, libraries, host, data)


def _unknown_driver(
    toolkits: Sequence[CudaVersion],
    libraries: Iterable[Package],
    host: Host,
    data: CompatibilityData,
) -> Iterator[Finding]:
    """Yield which driver the newest of some toolkits needs; without one, the libraries'."""
    majors = [
        (package.library.cuda_major, 0)
        for package in libraries
        if package.library is not None and package.library.cuda_major
    ]
    floors = [data.driver_floor(cuda, host.os) for cuda in toolkits or majors]
    known = [floor for floor in floors if floor is not None]
    if not known:
        return
    release, source = max(known, key=lambda floor: parse_release(floor[0]))
    reason = Reason(
        "driver-unknown",
        "driver",
        f"driver {release} or newer",
        "a driver release that is not known",
        source=source,
    )
    yield reason, ()


def _cudnn_of_build(part: Package, packages: Sequence[Package], host: Host) -> Iterator[Finding]:
    """R4 for the cuDNN of the build's CUDA major. Without one the system's would be loaded."""
    build = part.build
    if build is None or build.cudnn is None or build.cuda is None:
        return
    required = f"{_CUDNN}{build.cuda[0]}"
    releases = [package for package in packages if package.distribution.startswith(_CUDNN)]
    fitting = [release for release in releases if release.distribution == required]
    if fitting:
        runtime = fitting[0].version
        if host.os != "linux" or runtime.partition(".")[0] == build.cudnn.partition(".")[0]:
            reasons = cudnn_reasons(part.build_subject, build.cudnn, runtime)
            yield from _about(reasons, fitting[0], part)  # `agreements` compare the majors
    elif releases:
        reason = Reason(
            "cuda-major",
            part.build_subject,
            required,
            " and ".join(release.subject for release in releases),
            source=rules.OWNER_SOURCE,
        )
        yield reason, (releases[0].name, part.name)
    elif host.os == "linux" and host.gpus:  # on Windows the framework's own wheel holds cuDNN
        reason = Reason(
            "cudnn-unknown",
            part.build_subject,
            f"cuDNN {build.cudnn} or a newer release of its major",
            "none in the environment: the system's is loaded if there is one",
            source=rules.CUDNN_SOURCE,
        )
        yield reason, (part.name,)


def _disagreements(
    packages: Sequence[Package], host: Host, data: CompatibilityData
) -> Iterator[Finding]:
    """R4, R5, R10 and R11: the packages that do not share a value of a topic."""
    topics: dict[str, list[tuple[Package, Agreement]]] = {}
    for package in packages:
        for agreement in agreements(package, host, data):
            topics.setdefault(agreement.topic, []).append((package, agreement))
    for members in topics.values():
        # The others must agree with the package that is the topic, otherwise with torch.
        base, shared = max(
            members,
            key=lambda member: (member[1].is_topic, member[0].framework == FRAMEWORK),
        )
        for package, agreement in members:
            # Frameworks of two CUDA majors run side by side if their libraries do (two-owners).
            is_companion = data.is_extension(package.distribution) or package.links is not None
            if agreement.code == "cuda-major" and (package.on_path or not is_companion):
                continue
            if agreement.agrees_with(shared):
                continue
            sides = [(package.subject, agreement), (base.subject, shared)]
            if agreement.code == "two-owners" or agreement.code.endswith("-pair"):
                sides.reverse()  # in the order of the packages
            yield disagreement_reason(*sides[0], *sides[1]), (package.name, base.name)
