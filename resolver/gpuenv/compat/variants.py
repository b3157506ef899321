"""What the properties of variant wheels (PEP 825) mean, by namespace: helpers, no rules.

The namespaces are those of the providers nvidia-variant-provider (features of the driver and of
the device code), provider-variant-x86-64 and provider-variant-aarch64 (features of the CPU).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model import Code, ComputeCapability, CudaVersion, Host, Value, WheelVariant
from .architectures import parse_target, ptx_runs, sass_runs

NVIDIA, X86_64, AARCH64 = "nvidia", "x86_64", "aarch64"
LOWER, UPPER, SM = "cuda_version_lower_bound", "cuda_version_upper_bound", "sm_arch"
LEVEL, VERSION, ON = "level", "version", "on"
_REAL, _VIRTUAL = "_real", "_virtual"

# The levels of x86-64 (System V ABI, AMD64 supplement, table 3.1). Features have the names that
# Linux gives them. The most important feature comes first.
_LEVELS: dict[str, tuple[str, ...]] = {
    "v1": (),
    "v2": ("sse4_2", "sse4_1", "ssse3", "sse3", "cx16", "lahf_lm", "popcnt"),
    "v3": ("avx2", "avx", "bmi2", "bmi1", "abm", "f16c", "fma", "movbe", "xsave"),
    "v4": ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}
_BASE_VERSION = "8a"  # every aarch64 CPU
# The features that variants name, the one that counts most first.
_X86_64_FEATURES = (
    "avx_vnni", "cppc", "ibrs_enhanced", "tsc_adjust", "flush_l1d", "movdir64b", "movdiri",
    "avx512_bf16", "avx512_bitalg", "avx512_vbmi2",
    "avx512_vnni", "avx512_vp2intersect", "avx512_vpopcntdq", "avx512ifma", "avx512vbmi", "rdpid",
    "sha_ni", "vaes", "vpclmulqdq", "clwb", "clzero", *_LEVELS["v4"], "clflushopt", "gfni",
    "rdseed", "xsavec", "xsaveopt", "adx", *_LEVELS["v3"], "rdrand", "aes", "pclmulqdq", "sse4a",
    "fsgsbase", *_LEVELS["v2"], "sse2", "sse", "mmx",
)  # fmt: skip
_AARCH64_FEATURES = (
    "sve2", "flagm2", "frint", "sb", "paca", "pacg", "ssbs", "asimdfhm", "bf16", "dcpodp", "dgh",
    "dit", "flagm", "i8mm", "ilrcpc", "jscvt", "rng", "sha3", "sha512", "svebf16", "svei8mm",
    "uscat", "asimddp", "lrcpc", "asimdhp", "dcpop", "fcma", "fphp", "sve", "asimdrdm", "atomics",
    "aes", "asimd", "cpuid", "crc32", "evtstrm", "fp", "pmull", "sha1", "sha2",
)  # fmt: skip

# The features of each known namespace, the one that counts most first.
FEATURES: dict[str, tuple[str, ...]] = {
    NVIDIA: (LOWER, UPPER, SM),
    X86_64: (LEVEL, *_X86_64_FEATURES),
    AARCH64: (VERSION, *_AARCH64_FEATURES),
}
CPU_FEATURES = frozenset((*_X86_64_FEATURES, *_AARCH64_FEATURES))


class NvidiaClaims(Value):
    """What a variant says about the driver and the devices that it needs.

    Attributes:
        lower: the driver's CUDA is at least one of these; None if the variant does not say.
        upper: the driver's CUDA is older than one of these; None if the variant does not say.
        code: the device code; None if the variant does not say.
        unreadable: the values that have no known meaning, as "feature value".
    """

    lower: tuple[CudaVersion, ...] | None = None
    upper: tuple[CudaVersion, ...] | None = None
    code: Code | None = None
    unreadable: tuple[str, ...] = ()


def nvidia_claims(variant: WheelVariant) -> NvidiaClaims | None:
    """Return what a variant says in the namespace nvidia; None if it says nothing."""
    features = {row[1]: row[2] for row in variant.properties if row[0] == NVIDIA}
    if not features:
        return None
    bounds: dict[str, tuple[CudaVersion, ...]] = {}
    unreadable = []
    for feature, values in sorted(features.items()):
        known = [value for value in values if _is_known(feature, value)]
        if not known:
            unreadable.append(f"{feature} {' or '.join(values)}")
        elif feature != SM:
            bounds[feature] = tuple(sorted(map(_cuda_version, known)))
    code = None
    if any(_is_known(SM, value) for value in features.get(SM, ())):
        made_by = min(bounds[LOWER]) if LOWER in bounds else None
        code = _claimed_code(features[SM], made_by, variant.label)
    return NvidiaClaims(
        lower=bounds.get(LOWER), upper=bounds.get(UPPER), code=code, unreadable=tuple(unreadable)
    )


def _claimed_code(values: Sequence[str], made_by: CudaVersion | None, label: str) -> Code:
    """Return the device code that values of sm_arch name.

    The toolkit that made the PTX is not among the properties. The oldest CUDA that the driver must
    have stands for it: the publisher promises that the wheel runs with such a driver.
    """
    known = [value for value in values if _is_known(SM, value)]
    sass = [value.removesuffix(_REAL) for value in known if value.endswith(_REAL)]
    ptx = [value.removesuffix(_VIRTUAL) for value in known if value.endswith(_VIRTUAL)]
    return Code(
        sass=tuple(sorted(sass, key=parse_target)),
        ptx=tuple(sorted(ptx, key=parse_target)),
        made_by=made_by,
        source=f"the properties of the variant {label}",
    )


def _is_known(feature: str, value: str) -> bool:
    try:
        if feature == SM:
            parse_target(value.removesuffix(_REAL).removesuffix(_VIRTUAL))
            return value.endswith((_REAL, _VIRTUAL))
        _cuda_version(value)
    except ValueError:
        return False
    return feature in (LOWER, UPPER)


def _cuda_version(value: str) -> CudaVersion:
    """Return "12.8" as (12, 8) and "12" as (12, 0). ValueError for another text."""
    major, _, minor = value.partition(".")
    return int(major), int(minor or "0")


# ---- the values that suit a host -----------------------------------------------------------------


def suitable_values(
    namespace: str, feature: str, values: Iterable[str], host: Host
) -> tuple[str, ...]:
    """Return the values of a feature that suit a host, the best one first.

    Of the namespace nvidia a value suits if it suits any device; whether all values together serve
    every device is a question for the rules.
    """
    if namespace == NVIDIA:
        return _suitable_for_devices(feature, values, host)
    suitable = [value for value in values if _suits_cpu(namespace, feature, value, host)]
    if (namespace, feature) == (X86_64, LEVEL):
        suitable.sort(reverse=True)
    return tuple(suitable)


def _suitable_for_devices(feature: str, values: Iterable[str], host: Host) -> tuple[str, ...]:
    known = [value for value in values if _is_known(feature, value)]
    if feature == SM:
        serving = [value for value in known if _serves_any(value, host)]
        return tuple(sorted(serving, key=_sm_order, reverse=True))
    reached = [value for value in known if _bound_holds(feature, _cuda_version(value), host)]
    return tuple(sorted(reached, key=_cuda_version, reverse=True))


def provider_sm_values(values: Iterable[str], capability: ComputeCapability) -> tuple[str, ...]:
    """Return the values of sm_arch that nvidia-variant-provider supports, the best one first.

    These are code of the same major version with the same or an older minor one, and then PTX of
    the major version itself. uv has the same rule.
    """
    major, minor = capability
    supported = [f"{major}{lower}{_REAL}" for lower in range(minor, -1, -1)]
    supported.append(f"{major}0{_VIRTUAL}")
    names = set(values)
    return tuple(value for value in supported if value in names)


def _bound_holds(feature: str, bound: CudaVersion, host: Host) -> bool:
    """Return whether the driver of a host meets a bound; an unknown driver does."""
    if host.driver_cuda is None:
        return True
    if feature == UPPER:
        return host.driver_cuda < bound
    return host.driver_cuda >= bound


def _serves_any(value: str, host: Host) -> bool:
    target = value.removesuffix(_REAL).removesuffix(_VIRTUAL)
    runs = sass_runs if value.endswith(_REAL) else ptx_runs
    for gpu in host.gpus:
        if gpu.compute_capability is None or runs(target, gpu.compute_capability):
            return True
    return False


def _sm_order(value: str) -> tuple[bool, tuple[int, int], str]:
    target = value.removesuffix(_REAL).removesuffix(_VIRTUAL)
    return (value.endswith(_REAL), *parse_target(target))


def _has_level(level: str, host: Host) -> bool:
    if level not in _LEVELS:
        return False
    if not host.cpu:
        return True
    names = list(_LEVELS)
    needed: set[str] = set()
    for name in names[: names.index(level) + 1]:
        needed.update(_LEVELS[name])
    return needed <= set(host.cpu)


def _suits_cpu(namespace: str, feature: str, value: str, host: Host) -> bool:
    if host.machine != namespace:
        return False
    if (namespace, feature) == (X86_64, LEVEL):
        return _has_level(value, host)
    if (namespace, feature) == (AARCH64, VERSION):
        return value == _BASE_VERSION or not host.cpu
    return value == ON and (feature in host.cpu or not host.cpu)


def is_cpu_known(namespace: str, value: str, host: Host) -> bool:
    """Return whether it is known that the CPU of a host has what a value names."""
    return bool(host.cpu) or (namespace, value) in ((X86_64, "v1"), (AARCH64, _BASE_VERSION))
