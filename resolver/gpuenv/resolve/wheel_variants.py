"""The variant wheels of a release on a host: which suit it, and in which order (PEP 825)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ..compat import evaluate
from ..compat.data import CompatibilityData
from ..compat.variants import (
    FEATURES,
    NVIDIA,
    SM,
    NvidiaClaims,
    nvidia_claims,
    provider_sm_values,
    suitable_values,
)
from ..errors import OfflineError, Reason, UnusableFileError, is_doubt
from ..index import variants
from ..index.protocol import Index
from ..index.variants import ReleaseVariants
from ..model import Code, ComputeCapability, Gpu, Host, Requirement, Value, Wheel, WheelVariant
from ..requirements.target import split_label

Listed = Mapping[str, Mapping[str, tuple[str, ...]]]
Suitable = Callable[[str, str, Sequence[str]], tuple[str, ...]]
ReadRelease = tuple[ReleaseVariants, UnusableFileError | OfflineError | None]
SortKey = tuple[tuple[float, ...], ...]

_UNUSABLE = "bad-metadata"
_THREADS = 16
_SOURCE = "PEP 825"


class JudgedVariant(Value):
    """A variant wheel on a host: its variant, and what speaks against it."""

    variant: WheelVariant
    reasons: tuple[Reason, ...] = ()
    supported: tuple[tuple[str, str, str], ...] = ()  # the properties that suit the host
    ranked: tuple[tuple[str, str, str], ...] = ()  # the best property of each feature, in order
    warnings: tuple[Reason, ...] = ()
    claims: NvidiaClaims | None = None  # with the device code of the libraries if it is known


class VariantChooser:
    """Judges and orders variant wheels on one host. Every answer is remembered."""

    def __init__(self, host: Host, data: CompatibilityData, index: Index) -> None:
        self._host, self._data, self._index = host, data, index
        self._judged: dict[str, JudgedVariant] = {}  # by URL
        self._read_releases: dict[tuple[str, str, str], ReadRelease] = {}

    def judged(self, wheel: Wheel) -> JudgedVariant | None:
        """Return what is known about a variant wheel; None for a wheel that is no variant."""
        if wheel.url not in self._judged and split_label(wheel.filename)[1]:
            self.sort([wheel])
        return self._judged.get(wheel.url)

    def sort(self, wheels: Sequence[Wheel]) -> list[Wheel]:
        """Sort the wheels of one release on one index, the best one first.

        Order: variants that suit the host, as PEP 825 orders them; wheels that are no variants;
        variants with doubts; variants that do not suit the host.
        """
        labels = {wheel.url: split_label(wheel.filename)[1] for wheel in wheels}
        variant_wheels = [wheel for wheel in wheels if labels[wheel.url]]
        if not variant_wheels:
            return list(wheels)
        release, error = self._read(variant_wheels)
        if error is not None:
            for wheel in variant_wheels:
                self._judged[wheel.url] = _unusable(wheel, labels[wheel.url], error)
        listed = {namespace: dict(features) for namespace, features in release.static}
        order = _Order(release, listed, self._suitable(listed))
        keys: dict[str, tuple[int, SortKey, str]] = {}
        for wheel in wheels:
            label = labels[wheel.url]
            if not label:
                keys[wheel.url] = (1, (), "")
                continue
            if wheel.url not in self._judged:
                self._judged[wheel.url] = self._judge(wheel, label, release, listed, order)
            judged = self._judged[wheel.url]
            keys[wheel.url] = (_group(judged), order.key(judged.variant), label)
        return sorted(wheels, key=lambda wheel: keys[wheel.url])

    def metadata(self, wheel: Wheel) -> str:
        """Return the metadata of the variant of a wheel that was judged, as JSON text."""
        release, _ = self._read([wheel])
        return variants.metadata_of(release, split_label(wheel.filename)[1])

    def read_ahead(self, releases: Iterable[Sequence[Wheel]]) -> None:
        """Read the metadata of several releases at once, if an index has them."""
        remote = []
        for wheels in releases:
            named = [wheel for wheel in wheels if split_label(wheel.filename)[1]]
            if named and not named[0].url.startswith("file:"):
                remote.append(named)
        if len(remote) < 2:
            return
        from concurrent.futures import ThreadPoolExecutor  # slow: it loads logging

        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(self._read, remote):
                pass

    def _read(self, wheels: Sequence[Wheel]) -> ReadRelease:
        """Return the metadata of a release, and why it cannot be used."""
        key = (wheels[0].name, wheels[0].version, wheels[0].index)
        if key not in self._read_releases:
            try:
                self._read_releases[key] = self._index.variants(wheels), None
            except (UnusableFileError, OfflineError) as error:
                self._read_releases[key] = ReleaseVariants(), error
        return self._read_releases[key]

    def _suitable(self, listed: Listed) -> Suitable:
        return partial(_suitable, listed, self._host)

    def label_by_provider(self, wheels: Sequence[Wheel], capability: ComputeCapability) -> str:
        """Return the label that an installer with nvidia-variant-provider takes of a release.

        Args:
            wheels: the wheels of the release.
            capability: the compute capability that the provider is told.

        Returns:
            "" if no variant suits.
        """
        ordered = self.sort(wheels)
        release, _ = self._read([wheel for wheel in ordered if split_label(wheel.filename)[1]])
        listed = {namespace: dict(features) for namespace, features in release.static}

        def suitable(namespace: str, feature: str, names: Sequence[str]) -> tuple[str, ...]:
            if (namespace, feature) == (NVIDIA, SM) and namespace not in listed:
                return provider_sm_values(names, capability)
            return _suitable(listed, self._host, namespace, feature, names)

        order = _Order(release, listed, suitable)
        labels = {split_label(wheel.filename)[1] for wheel in wheels}
        fitting = [
            variant
            for variant in release.variants
            if variant.label in labels and order.suits(variant)
        ]
        fitting.sort(key=lambda variant: (order.key(variant), variant.label))
        return fitting[0].label if fitting else ""

    def _judge(
        self,
        wheel: Wheel,
        label: str,
        release: ReleaseVariants,
        listed: Listed,
        order: _Order,
    ) -> JudgedVariant:
        variant = release.find(label)
        if variant is None:
            labels = " ".join(other.label for other in release.variants) or "of none"
            reason = Reason(
                code=_UNUSABLE,
                subject=wheel.filename,
                need=f"the variant {label} in its metadata",
                have=f"the labels {labels}",
                source=_SOURCE,
            )
            unknown = WheelVariant(name=wheel.name, label=label)
            return JudgedVariant(variant=unknown, reasons=(reason,))
        subject = f"{wheel.name} {wheel.version} ({label})"
        claims = nvidia_claims(variant)
        if claims is not None:
            variant = variant.replace(code=self._scanned_code(wheel))
            claims = claims.replace(code=variant.code or claims.code)
        reasons = evaluate.variant_reasons(subject, variant, listed, self._host, self._data)
        contradicted = evaluate.claim_reasons(subject, variant)
        if not all(map(is_doubt, reasons)):
            reasons = (*reasons, *contradicted)
        return JudgedVariant(
            variant=variant,
            reasons=reasons,
            claims=claims,
            warnings=contradicted,
            supported=tuple(_supported(variant, listed, self._host)),
            ranked=order.best_properties(variant),
        )

    def _scanned_code(self, wheel: Wheel) -> Code | None:
        """Return the device code in the libraries of a wheel on this machine."""
        if not wheel.url.startswith("file:"):
            return None
        from ..binaries.wheel import wheel_code
        from ..index.cache import Cache
        from ..index.urls import file_url_to_path

        path = file_url_to_path(wheel.url)
        return wheel_code(path, wheel.sha256, self._data.ptx_toolkits, Cache())

    def order_reason(self, wheel: Wheel, better: Wheel) -> Reason:
        """Return the first difference in the order of two variants that suit the host."""
        label, best = split_label(wheel.filename)[1], split_label(better.filename)[1]
        judged, other = self._judged.get(wheel.url), self._judged.get(better.url)
        subject, have = f"{wheel.name} {wheel.version}", "variants come before other wheels"
        if judged is not None and other is not None:
            subject += f" ({label})"
            have = _first_difference(judged.ranked, other.ranked)
        need = f"a place before {best} in the order of the variants"
        return Reason(code="variant-order", subject=subject, need=need, have=have, source=_SOURCE)

    def precedes(self, wheel: Wheel, other: Wheel) -> bool:
        """Return whether a variant precedes another of its release on a host that both suit."""
        release, _ = self._read([wheel])
        variant, second = (release.find(split_label(file.filename)[1]) for file in (wheel, other))
        if variant is None or second is None:
            return False
        listed = {namespace: dict(features) for namespace, features in release.static}
        any_gpu = Gpu(name="any GPU", compute_capability=None)
        any_host = self._host.replace(driver_cuda=None, gpus=(any_gpu,), cpu=())
        order = _Order(release, listed, partial(_suitable, listed, any_host))
        return order.key(variant) < order.key(second)

    def applicable(self, wheel: Wheel, dependencies: Sequence[Requirement]) -> list[Requirement]:
        """Return the dependencies of a wheel without the markers about its variant.

        Raises:
            UnusableFileError: a marker cannot be evaluated.
        """
        judged = self.judged(wheel)
        label = ""
        supported: tuple[tuple[str, str, str], ...] = ()
        if judged is not None:
            label, supported = judged.variant.label, judged.supported

        def decide(clause: variants.Clause) -> bool:
            return variants.clause_holds(clause, label, supported)

        applicable = []
        for dependency in dependencies:
            marker = dependency.marker
            if marker is None or not variants.names_variant(marker):
                applicable.append(dependency)
                continue
            try:
                marker = variants.replace_clauses(marker, decide)
            except ValueError as error:
                raise _bad_marker(wheel, dependency, str(error)) from None
            applicable.append(dependency.replace(marker=marker))
        return applicable


class _Order:
    """The order of PEP 825 among the variants of a release.

    Namespaces are ordered by the metadata, features by their provider, and values by how well they
    suit the host.
    """

    def __init__(self, release: ReleaseVariants, listed: Listed, suitable: Suitable) -> None:
        self._namespaces, self._listed = release.namespaces, listed
        values: dict[tuple[str, str], dict[str, None]] = {}
        for variant in release.variants:
            for namespace, feature, names in variant.properties:
                values.setdefault((namespace, feature), {}).update(dict.fromkeys(names))
        self._values: dict[tuple[str, str], tuple[str, ...]] = {}
        for (namespace, feature), named in values.items():
            self._values[namespace, feature] = suitable(namespace, feature, tuple(named))

    def suits(self, variant: WheelVariant) -> bool:
        """Return whether one value of each feature suits."""
        return len(self.best_properties(variant)) == len(variant.properties)

    def key(self, variant: WheelVariant) -> SortKey:
        """Return the sort key of a variant; the smallest is the best.

        The keys of the best value of each feature are sorted. At the first difference the smaller
        one wins; if all keys of one variant begin the other's, the variant with more wins.
        """
        keys = [self._property_key(row) for row in variant.properties]
        return (*sorted(keys), (math.inf,))

    def best_properties(self, variant: WheelVariant) -> tuple[tuple[str, str, str], ...]:
        """Return the best property of each feature that suits the host, in the order of keys."""
        best = []
        for row in sorted(variant.properties, key=self._property_key):
            namespace, feature, names = row
            for name in self._values[namespace, feature]:
                if name in names:
                    best.append((namespace, feature, name))
                    break
        return tuple(best)

    def _property_key(self, row: tuple[str, str, tuple[str, ...]]) -> tuple[float, ...]:
        namespace, feature, names = row
        suitable = self._values[namespace, feature]
        places = [suitable.index(name) for name in names if name in suitable]
        return (
            self._namespaces.index(namespace),
            self._feature_place(namespace, feature),
            min(places, default=math.inf),
        )

    def _feature_place(self, namespace: str, feature: str) -> float:
        features: Sequence[str] = FEATURES.get(namespace, ())
        if namespace in self._listed:
            features = tuple(self._listed[namespace])
        return features.index(feature) if feature in features else math.inf


def _suitable(
    listed: Listed, host: Host, namespace: str, feature: str, names: Sequence[str]
) -> tuple[str, ...]:
    """Return the values of a feature that suit the host, the best one first."""
    if namespace in listed:
        return tuple(name for name in listed[namespace].get(feature, ()) if name in names)
    if namespace not in FEATURES:
        return ()
    return suitable_values(namespace, feature, names, host)


def _supported(variant: WheelVariant, listed: Listed, host: Host) -> Iterator[tuple[str, str, str]]:
    for namespace, feature, names in variant.properties:
        for name in _suitable(listed, host, namespace, feature, names):
            yield namespace, feature, name


def _group(judged: JudgedVariant) -> int:
    """Return the place of a variant among the groups of `sort`."""
    if not judged.reasons:
        return 0
    return 2 if all(map(is_doubt, judged.reasons)) else 3


def _first_difference(
    later: Sequence[tuple[str, str, str]], earlier: Sequence[tuple[str, str, str]]
) -> str:
    """Return why one list of best properties comes after another, as a clause."""
    for own, other in zip(later, earlier, strict=False):
        if own != other:
            return f"{' '.join(other)} comes before {' '.join(own)}"
    if len(earlier) > len(later):
        return "the variant with more properties comes first"
    return "variants with the same properties are ordered by their labels"


def _unusable(wheel: Wheel, label: str, error: UnusableFileError | OfflineError) -> JudgedVariant:
    variant = WheelVariant(name=wheel.name, label=label)
    if isinstance(error, UnusableFileError):
        return JudgedVariant(variant=variant, reasons=(error.reason,))
    reason = Reason(
        code="not-cached",
        subject=wheel.filename,
        need="the metadata of its variants",
        have="not in the cache, and --offline is on",
    )
    return JudgedVariant(variant=variant, reasons=(reason,))


def _bad_marker(wheel: Wheel, dependency: Requirement, detail: str) -> UnusableFileError:
    return UnusableFileError(
        Reason(
            code=_UNUSABLE,
            subject=wheel.filename,
            need="readable requirements",
            have=f"the requirement {str(dependency)!r}: {detail}",
            source=_SOURCE,
        )
    )
