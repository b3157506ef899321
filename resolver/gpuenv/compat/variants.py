"""What the properties of variant wheels (PEP 825) mean, by namespace: helpers, no rules.

The namespaces are those of the providers nvidia-variant-provider (features of the driver and of
the device code), provider-variant-x86-64 and provider-variant-aarch64 (features of the CPU).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Code, ComputeCapability, CudaVersion, Host, Value, WheelVariant
from .architectures import parse_target, ptx_runs, sass_runs

NVIDIA, X86_64, AARCH64 = "nvidia", "x86_64", "aarch64"
LOWER, UPPER, SM = "cuda_version_lower_bound", "cuda_version_upper_bound", "sm_arch"
LEVEL, VERSION, ON = "level", "version", "on"
_REAL, _VIRTUAL = "real", "virtual"

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
        lower: the oldest CUDA that the driver may have; None if the variant does not say.
        upper: the driver's CUDA is older than this; None if the variant does not say.
        code: the device code; None if the variant does not say.
        unreadable: the values that have no known meaning, as "feature value".
    """

    lower: CudaVersion | None = None
    upper: CudaVersion | None = None
    code: Code | None = None
    unreadable: tuple[str, ...] = ()


def nvidia_claims(variant: WheelVariant) -> NvidiaClaims | None:
    """Return what a variant says in the namespace nvidia; None if it says nothing.

    The toolkit that made the PTX is not among the properties. The oldest CUDA that the driver must
    have stands for it: the publisher promises that the wheel runs with such a driver.
    """
    features = {row[1]: row[2] for row in variant.properties if row[0] == NVIDIA}
    if not features:
        return None
    # Of several values of a bound, one must hold.
    lower = min(filter(None, map(_cuda_version, features.get(LOWER, ()))), default=None)
    upper = max(filter(None, map(_cuda_version, features.get(UPPER, ()))), default=None)
    targets = list(filter(None, map(_target, features.get(SM, ()))))
    known = {LOWER: lower, UPPER: upper, SM: targets}
    code = None
    if targets:
        sass, ptx = (
            tuple(sorted({name for name, is_real in targets if is_real is real}, key=parse_target))
            for real in (True, False)
        )
        source = f"the properties of the variant {variant.label}"
        code = Code(sass=sass, ptx=ptx, made_by=lower, source=source)
    return NvidiaClaims(
        lower=lower,
        upper=upper,
        code=code,
        unreadable=tuple(
            f"{feature} {' or '.join(values)}"
            for feature, values in sorted(features.items())
            if not known.get(feature)
        ),
    )


def _target(value: str) -> tuple[str, bool] | None:
    """Return ("90a", True) for 90a_real and ("90", False) for 90_virtual; None for another text."""
    target, _, kind = value.rpartition("_")
    try:
        parse_target(target)
    except ValueError:
        return None
    return (target, kind == _REAL) if kind in (_REAL, _VIRTUAL) else None


def _cuda_version(value: str) -> CudaVersion | None:
    """Return "12.8" as (12, 8) and "12" as (12, 0). None for another text."""
    major, _, minor = value.partition(".")
    try:
        return int(major), int(minor or "0")
    except ValueError:
        return None


# ---- the values that suit a host -----------------------------------------------------------------


def suitable_values(
    namespace: str, feature: str, values: Iterable[str], host: Host
) -> tuple[str, ...]:
    """Return the values of a feature that suit a host, the best one first.

    Of the namespace nvidia a value suits if it suits any device; whether all values together serve
    every device is a question for the rules.
    """
    if namespace == NVIDIA and feature == SM:
        return _suitable_targets(values, host)
    if namespace == NVIDIA:
        known = [(_cuda_version(value), value) for value in values if feature in (LOWER, UPPER)]
        # An unknown driver meets every bound.
        reached = [
            (bound, value)
            for bound, value in known
            if bound is not None
            and (host.driver_cuda is None or (host.driver_cuda < bound) == (feature == UPPER))
        ]
        return tuple(value for _, value in sorted(reached, key=lambda pair: pair[0], reverse=True))
    suitable = [value for value in values if _suits_cpu(namespace, feature, value, host)]
    if (namespace, feature) == (X86_64, LEVEL):
        suitable.sort(reverse=True)
    return tuple(suitable)


def _suitable_targets(values: Iterable[str], host: Host) -> tuple[str, ...]:
    serving = []
    for value in values:
        parsed = _target(value)
        if parsed is None:
            continue
        target, is_real = parsed
        runs = sass_runs if is_real else ptx_runs
        if any(device is None or runs(target, device) for device in host.capabilities):
            serving.append((is_real, parse_target(target), value))
    return tuple(value for *_, value in sorted(serving, key=lambda row: row[:2], reverse=True))


def provider_sm_values(values: Iterable[str], capability: ComputeCapability) -> tuple[str, ...]:
    """Return the values of sm_arch that nvidia-variant-provider supports, the best one first.

    These are code of the same major version with the same or an older minor one, and then PTX of
    the major version itself. uv has the same rule.
    """
    major, minor = capability
    supported = [f"{major}{lower}_{_REAL}" for lower in range(minor, -1, -1)]
    supported.append(f"{major}0_{_VIRTUAL}")
    names = set(values)
    return tuple(value for value in supported if value in names)


def _suits_cpu(namespace: str, feature: str, value: str, host: Host) -> bool:
    if host.machine != namespace:
        return False
    if (namespace, feature) == (X86_64, LEVEL):
        levels = list(_LEVELS)
        if value not in levels or not host.cpu:
            return value in levels
        reached = levels[: levels.index(value) + 1]
        return all(set(_LEVELS[level]) <= set(host.cpu) for level in reached)
    if (namespace, feature) == (AARCH64, VERSION):
        return value == _BASE_VERSION or not host.cpu
    return value == ON and (feature in host.cpu or not host.cpu)


def is_cpu_known(namespace: str, value: str, host: Host) -> bool:
    """Return whether it is known that the CPU of a host has what a value names."""
    return bool(host.cpu) or (namespace, value) in ((X86_64, "v1"), (AARCH64, _BASE_VERSION))
