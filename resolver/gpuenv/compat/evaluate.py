"""Can this run on this host? The only module that calls the rules (compat.rules).

- `build_reasons`, `library_reasons`, `known_bad_reasons`, `host_reasons`, `device_tier`: one
  release on a host. The resolver asks these of every candidate. Answers are complete, never just
  the first reason, and are keyed by the host fact that they are about: "__driver", "__sm" and
  "__data" are nodes of the resolver's graph.
- `variant_reasons`: the properties of a variant wheel on a host.
- `environment_findings`, `environment_reasons`: a whole environment on a host, from its parts
  (compat.parts). Locks, installed environments, conda closures and the doctor ask these.
- `code_reasons`, `serves`: device code that was read from a file, on a host.
- `needs_of_gpus`: what a plan needs of a host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..errors import Reason, is_doubt
from ..model import (
    Build,
    Code,
    CudaVersion,
    Host,
    Library,
    Needs,
    Value,
    WheelVariant,
    parse_release,
)
from . import rules, variants
from .architectures import show_code
from .data import CompatibilityData
from .extensions import FRAMEWORK, BuiltFor, release_of
from .parts import FrameworkBuild, Package, Parts, parts_of_pins

Facts = dict[str, tuple[Reason, ...]]

OWNER_SOURCE = rules.OWNER_SOURCE
# The codes of `host_reasons`, in the order in which it returns them, and the codes of R2.
HOST_CODES = ("gpu-needs-newer-driver", "gpu-dropped-by-driver")
DEVICE_CODES = (
    "no-code-for-device", "ptx-needs-newer-driver", "code-unknown", "device-unknown",
    "jetson-wheel",
)  # fmt: skip
_CUDNN = "nvidia-cudnn-cu"


class Finding(Value):
    """A reason, and the packages that it is about, the one to replace first; () for the host."""

    reason: Reason
    packages: tuple[str, ...] = ()


# ---- one release on a host ---------------------------------------------------------------------


def build_reasons(
    subject: str, build: Build | None, host: Host, data: CompatibilityData, *, on_path: bool
) -> Facts:
    """R1 and R2 for the build of a framework or of a companion.

    Args:
        subject: how the reasons name the build.
        build: None is a release that the data does not know.
        host: a host without a GPU gives no reasons.
        data: the compatibility data.
        on_path: whether a convolution runs the build's own code.

    Returns:
        Reasons by host fact. Codes: those of the rules, build-unknown, cpu-build.
    """
    if not host.gpus:
        return {}
    if build is None:
        return _not_in_data("build-unknown", subject)
    if build.cuda is None:
        return {"__sm": (rules.cpu_build_reason(subject, build.code, host.gpus),)}
    device: tuple[Reason, ...] = ()
    if on_path:
        device = rules.device_reasons(subject, build.code, host.gpus, host.driver_cuda)
    return {"__driver": driver_reasons(subject, build.cuda, host, data), "__sm": device}


def library_reasons(
    subject: str, library: Library | None, host: Host, data: CompatibilityData
) -> Facts:
    """R2 for a CUDA library, and R1 for a library whose toolkit is known.

    For other libraries of an environment, the builds of the frameworks decide which driver it
    needs; see `requested_library_reasons` for a library without a framework.

    Returns:
        Reasons by host fact. Codes: those of the rules, library-unknown.
    """
    if library is None:
        if rules.needs_jetson_wheels(host.gpus):  # no library of an index is one
            return {"__sm": rules.device_reasons(subject, Code(sass=None), host.gpus, None)}
        return _not_in_data("library-unknown", subject)
    if not host.gpus:
        return {}
    if library.by_cuda:  # one library for each CUDA version: one of them must run
        every = [library_reasons(subject, choice, host, data) for choice in library.choices()]
        return next((facts for facts in every if not any(facts.values())), every[0])
    facts = {"__sm": rules.device_reasons(subject, library.code, host.gpus, host.driver_cuda)}
    if library.cuda is not None:
        facts["__driver"] = driver_reasons(subject, library.cuda, host, data)
    return facts


def requested_library_reasons(
    subject: str, library: Library | None, host: Host, data: CompatibilityData
) -> Facts:
    """R1 and R2 for a CUDA library without a framework: see `library_reasons`.

    R1 counts from the first toolkit of the library's CUDA major if its own is not known.
    """
    if library is not None and library.cuda is None and library.cuda_major:
        library = library.replace(cuda=(library.cuda_major, 0))
    return library_reasons(subject, library, host, data)


def _not_in_data(code: str, subject: str) -> Facts:
    need, have = "a release that the data knows", "not in the compatibility data"
    return {"__data": (Reason(code=code, subject=subject, need=need, have=have),)}


def driver_reasons(
    subject: str, cuda: CudaVersion, host: Host, data: CompatibilityData
) -> tuple[Reason, ...]:
    """R1 for a toolkit. Codes: driver-floor, driver-floor-unknown, driver-cuda."""
    return rules.driver_reasons(subject, cuda, host, data.driver_floor(cuda, host.os))


def host_reasons(host: Host, data: CompatibilityData) -> tuple[Reason, ...]:
    """R7 and R9 for the driver and the GPUs.

    Codes: gpu-needs-newer-driver, gpu-dropped-by-driver, driver-branch-unknown.
    """
    too_old = rules.first_branch_reasons(host, data.first_branches)
    return too_old + rules.branch_reasons(host, data.last_branches, data.newest_branch())


def cudnn_reasons(subject: str, build_cudnn: str, runtime_cudnn: str) -> tuple[Reason, ...]:
    """R4 for a cuDNN release beside a build. Codes: cudnn-version, cudnn-version-unknown."""
    return rules.cudnn_reasons(subject, build_cudnn, runtime_cudnn)


def known_bad_reasons(
    distribution: str, version: str, host: Host, data: CompatibilityData, subject: str = ""
) -> tuple[Reason, ...]:
    """R4: whether a release is known to be bad everywhere or on the host's devices.

    Args:
        distribution: the wheel distribution under which the data has the release.
        version: its version.
        host: its GPUs count.
        data: the compatibility data.
        subject: how the reason names the release; by default "distribution version".

    Returns:
        Codes: known-broken, known-avoid.
    """
    # A generator: for most distributions the data has no verdict and does not look at the GPUs.
    capabilities = (gpu.compute_capability for gpu in host.gpus if gpu.compute_capability)
    verdict = data.bad(distribution, version, capabilities)
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
        yield _variant_reason("needs-gpu", subject, "a GPU", "a host without one")
        return
    yield from (reason for reason in host_reasons(host, data) if not is_doubt(reason))
    bounds = rules.cuda_bound_reasons(subject, claims.lower, claims.upper, host.driver_cuda)
    yield from bounds
    if claims.lower and not bounds:
        yield from driver_reasons(subject, min(claims.lower), host, data)
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
    return Reason(code=code, subject=subject, need=need, have=have, source=rules.VARIANT_SOURCE)


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


def serves(code: Code, capability: tuple[int, int]) -> bool:
    """R2 without a driver: whether the code may run on a device; unknown code may."""
    return rules.serves(code, capability, None) is not None


def code_reasons(subject: str, code: Code, host: Host) -> tuple[Reason, ...]:
    """R2 and R6 for the device code of a file. Codes: those of `rules.device_reasons`."""
    return rules.device_reasons(subject, code, host.gpus, host.driver_cuda)


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
    capabilities = [gpu.compute_capability for gpu in host.gpus if gpu.compute_capability]
    answers = [rules.serves_all(codes, capability, host.driver_cuda) for capability in capabilities]
    accepted: tuple[str, ...] = ("sass",)
    # The lock may go to any host with a driver of the floor. So PTX counts only if a device of this
    # host depends on it; then the driver that compiles it here becomes the floor.
    if "ptx" in answers:
        accepted = ("sass", "ptx")
        if host.driver is not None:
            floors.append(host.driver)
    # Devices that passed with a warning, their code being unknown, are what the lock was made for.
    served = set(capabilities)
    for capability in data.capabilities():
        if rules.serves_all(codes, capability, host.driver_cuda) in accepted:
            served.add(capability)
    return needs.replace(
        driver=max(floors, key=parse_release, default=None),
        compute_capabilities=tuple(sorted(served)),
        cuda=max(toolkits),
    )


# ---- a whole environment -----------------------------------------------------------------------


def pin_reasons(
    pins: Iterable[tuple[str, str]], host: Host, data: CompatibilityData
) -> tuple[Reason, ...]:
    """Return everything that speaks against (name, version) pairs on a host.

    The pairs are those of a lock of any tool or of an installed environment. Neither an index nor
    a solve is needed, so it also answers "would these pins work with another driver or GPU?".
    """
    return environment_reasons(parts_of_pins(pins, host.platform, data), host, data)


def environment_reasons(parts: Parts, host: Host, data: CompatibilityData) -> tuple[Reason, ...]:
    """Return everything that speaks against an environment on a host; each reason once.

    Codes: see `environment_findings`. `errors.is_doubt` tells doubts from failures.
    """
    reasons: dict[tuple[str, str, str, str], Reason] = {}
    for finding in environment_findings(parts, host, data):
        reason = finding.reason
        reasons[reason.code, reason.subject, reason.need, reason.have] = reason
    return tuple(reasons.values())


def environment_findings(parts: Parts, host: Host, data: CompatibilityData) -> Iterator[Finding]:
    """Yield everything that speaks against an environment on a host, with the packages concerned.

    Codes: those of the rules, cpu-build, build-unknown, library-unknown, cuda-major, cuda-variant,
    driver-unknown, cudnn-unknown, gpu-unused (a CUDA build without a GPU: it runs on the CPU).
    """
    if host.gpus:
        yield from _device_findings(parts, host, data)
    frameworks = {part.framework: part for part in parts.builds if part.on_path}
    for part in frameworks.values():
        if not host.gpus and part.build is not None and part.build.cuda is not None:
            reason = Reason(
                code="gpu-unused",
                subject=part.subject,
                need="a GPU to be of use",
                have="a host without a GPU: it runs on the CPU",
                source=part.build.code.source,
            )
            yield Finding(reason=reason, packages=(part.package,))
    for package in parts.packages:
        subject = package.subject
        reasons = known_bad_reasons(package.distribution, package.version, host, data, subject)
        yield from _about((package.name,), reasons)
    yield from _bad_pairs(parts, host, data)
    for part in frameworks.values():
        yield from _cudnn_of_build(part, parts, host)
    for part in parts.builds:  # a companion must be built for the same CUDA as its framework
        base = frameworks[part.framework].build if part.framework in frameworks else None
        if part.on_path or base is None or part.build is None:
            continue
        # A companion that fits several releases of its framework links the CUDA runtime only.
        if len(part.build.companions) == 1 and part.build.variant != base.variant:
            reason = Reason(
                code="cuda-variant",
                subject=part.subject,
                need=f"the CUDA build of {base.name} {base.local}, {base.variant}",
                have=part.build.variant,
                source=part.build.code.source,
            )
            yield Finding(reason=reason, packages=(part.package,))
    if FRAMEWORK in frameworks:
        yield from _extensions(frameworks[FRAMEWORK], parts, data)
    # R5: two distributions that install the same files.
    owners: dict[str, dict[str, str]] = {}  # folder -> distribution -> a package of it
    for package in parts.packages:
        for folder in data.slots(package.distribution):
            owners.setdefault(folder, {}).setdefault(package.distribution, package.name)
    names = {folder: list(members.values()) for folder, members in owners.items()}
    for reason in rules.owner_reasons(names):
        yield Finding(reason=reason, packages=tuple(sorted(names[reason.subject])))


def _about(packages: tuple[str, ...], reasons: Iterable[Reason]) -> Iterator[Finding]:
    for reason in reasons:
        yield Finding(reason=reason, packages=packages)


def _device_findings(parts: Parts, host: Host, data: CompatibilityData) -> Iterator[Finding]:
    """R1, R2, R3, R6, R7 and R9 on a host with a GPU."""
    builds = [part.build for part in parts.builds if part.build is not None]
    toolkits = [build.cuda for build in builds if build.cuda is not None]
    # A build of which nothing is known may need a driver.
    if parts.libraries or parts.toolkits or toolkits or len(builds) < len(parts.builds):
        yield from _about((), host_reasons(host, data))
    for part in parts.builds:
        facts = build_reasons(part.subject, part.build, host, data, on_path=part.on_path)
        for reasons in facts.values():
            yield from _about((part.package,), reasons)
    for toolkit in parts.toolkits:
        reasons = driver_reasons(toolkit.package.subject, toolkit.cuda, host, data)
        yield from _about((toolkit.package.name,), reasons)
    toolkits += [toolkit.cuda for toolkit in parts.toolkits]
    # Without a CUDA framework, R1 counts by the CUDA major of the libraries.
    for cuda_library in () if toolkits else parts.libraries:
        package, library = cuda_library.package, cuda_library.library
        if library is not None and library.cuda_major:
            reasons = driver_reasons(package.subject, (library.cuda_major, 0), host, data)
            yield from _about((package.name,), reasons)
    yield from _library_findings(parts, host, data)
    if host.driver is None:
        yield from _unknown_driver(toolkits, parts, host, data)


def _library_findings(parts: Parts, host: Host, data: CompatibilityData) -> Iterator[Finding]:
    """R2 and R3 for the CUDA libraries: of several in a distribution, the one that is loaded."""
    torch = None
    for part in parts.builds:
        if part.framework == FRAMEWORK and part.on_path and part.build and part.build.cuda:
            torch = part.build.cuda
            break
    for cuda_library in parts.libraries:
        package, library = cuda_library.package, cuda_library.library
        if library is not None and library.by_cuda and torch is not None:
            library = library.of_cuda(torch) or library
        for reasons in library_reasons(package.subject, library, host, data).values():
            yield from _about((package.name,), reasons)


def _unknown_driver(
    toolkits: Sequence[CudaVersion], parts: Parts, host: Host, data: CompatibilityData
) -> Iterator[Finding]:
    """Yield the floor that a driver must meet whose release is not known (R1)."""
    if not toolkits:
        libraries = [row.library for row in parts.libraries if row.library is not None]
        toolkits = [(row.cuda_major, 0) for row in libraries if row.cuda_major]
    floors = [data.driver_floor(cuda, host.os) for cuda in toolkits]
    known = [floor for floor in floors if floor is not None]
    if known:
        release, source = max(known, key=lambda floor: parse_release(floor[0]))
        reason = Reason(
            code="driver-unknown",
            subject="driver",
            need=f"driver {release} or newer",
            have="a driver release that is not known",
            source=source,
        )
        yield Finding(reason=reason)


def _bad_pairs(parts: Parts, host: Host, data: CompatibilityData) -> Iterator[Finding]:
    """R4 for releases that must not meet."""
    sides: dict[str, dict[str, Package]] = {}
    verdicts: dict[str, tuple[str, str, str]] = {}
    for package in parts.packages:
        for row in data.bad_pairs(package.distribution, package.version):
            pair, side, several_gpus, text, source, severity = row
            if pair_counts(host, several_gpus=several_gpus):
                sides.setdefault(pair, {})[side] = package
                verdicts[pair] = (severity, text, source)
    for pair, members in sides.items():
        if len(members) > 1:
            first, second = members["a"], members["b"]
            reason = rules.bad_pair_reason(first.subject, second.subject, pair, verdicts[pair])
            yield Finding(reason=reason, packages=(first.name, second.name))


def pair_counts(host: Host, *, several_gpus: bool) -> bool:
    """Return whether a bad pair counts on a host: some count only with several GPUs."""
    return len(host.gpus) > (1 if several_gpus else 0)


def _cudnn_of_build(part: FrameworkBuild, parts: Parts, host: Host) -> Iterator[Finding]:
    """R4 for the cuDNN of the build's CUDA major. Without one the system's would be loaded."""
    build = part.build
    if build is None or build.cudnn is None or build.cuda is None:
        return
    required = f"{_CUDNN}{build.cuda[0]}"
    releases = [package for package in parts.packages if package.distribution.startswith(_CUDNN)]
    fitting = [release for release in releases if release.distribution == required]
    if fitting:
        reasons = rules.cudnn_reasons(part.subject, build.cudnn, fitting[0].version)
        yield from _about((fitting[0].name, part.package), reasons)
    elif releases:
        reason = Reason(
            code="cuda-major",
            subject=part.subject,
            need=required,
            have=" and ".join(release.subject for release in releases),
            source=rules.OWNER_SOURCE,
        )
        yield Finding(reason=reason, packages=(releases[0].name, part.package))
    elif host.os == "linux" and host.gpus:  # on Windows the framework's own wheel holds cuDNN
        reason = Reason(
            code="cudnn-unknown",
            subject=part.subject,
            need=f"cuDNN {build.cudnn} or a newer release of its major",
            have="none in the environment: the system's is loaded if there is one",
            source=rules.CUDNN_SOURCE,
        )
        yield Finding(reason=reason, packages=(part.package,))


def _extensions(part: FrameworkBuild, parts: Parts, data: CompatibilityData) -> Iterator[Finding]:
    """R10 for extensions whose names or libraries say for which torch they were built."""
    version = next(package.version for package in parts.packages if package.name == part.package)
    torch, actual = f"{part.package} {version}", BuiltFor(release=release_of(version))
    if part.build is not None:
        abi = data.cxx11_abi(part.build)
        actual = actual.replace(
            cuda_major=0 if part.build.cuda is None else part.build.cuda[0],
            cxx11_abi=None if abi is None else abi[0],
        )
    for package in parts.packages:
        if package.built_for is not None:
            reasons = rules.extension_reasons(package.subject, package.built_for, torch, actual)
            yield from _about((package.name, part.package), reasons)
    for cuda_library in parts.libraries:
        package, library = cuda_library.package, cuda_library.library
        majors = library.cuda_majors() if library is not None else ()
        if not data.is_extension(package.distribution) or not majors:
            continue
        if actual.cuda_major and actual.cuda_major not in majors:
            built_for = BuiltFor(cuda_major=max(majors))
            reasons = rules.extension_reasons(package.subject, built_for, torch, actual)
            yield from _about((package.name, part.package), reasons)
