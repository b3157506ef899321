"""The variant wheels of a release on a host: which suit it, and in which order (PEP 825)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

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
from ..index.urls import file_url_to_path
from ..index.variants import ReleaseVariants
from ..model import ComputeCapability, Gpu, Host, Requirement, Value, Wheel, WheelVariant
from ..requirements.target import split_label

Property = tuple[str, str, str]  # namespace, feature, value
SortKey = tuple[float, ...]  # the places of a namespace, a feature and a value

_THREADS = 16
_SOURCE = "PEP 825"


class JudgedVariant(Value):
    """A variant wheel on a host: its variant, and what speaks against it."""

    variant: WheelVariant
    reasons: tuple[Reason, ...] = ()
    supported: tuple[Property, ...] = ()  # the properties that suit the host
    warnings: tuple[Reason, ...] = ()
    claims: NvidiaClaims | None = None  # with the device code of the libraries if it is known


class VariantChooser:
    """Judges and orders variant wheels on one host. Every answer is remembered."""

    def __init__(self, host: Host, data: CompatibilityData, index: Index) -> None:
        self._host, self._data, self._index = host, data, index
        self._judged: dict[str, JudgedVariant] = {}  # by URL
        # By name, version and index: the metadata, and why it cannot be used.
        self._releases: dict[
            tuple[str, str, str], tuple[ReleaseVariants, UnusableFileError | OfflineError | None]
        ] = {}

    def judged(self, wheel: Wheel) -> JudgedVariant | None:
        """Return what is known about a variant wheel; None for a wheel that is no variant."""
        if wheel.url not in self._judged and _label(wheel):
            self.sort([wheel])
        return self._judged.get(wheel.url)

    def sort(self, wheels: Sequence[Wheel]) -> list[Wheel]:
        """Sort the wheels of each release of a package on each index, the best one first.

        Order: variants that suit the host, as PEP 825 orders them; wheels that are no variants;
        variants with doubts; variants that do not suit the host.
        """
        if not any(map(_label, wheels)):
            return list(wheels)
        releases: dict[tuple[str, str], list[Wheel]] = {}
        for wheel in wheels:
            releases.setdefault((wheel.version, wheel.index), []).append(wheel)
        with ThreadPoolExecutor(_THREADS) as pool:
            read = pool.map(self._read, releases.values())
        ordered: list[Wheel] = []
        for files, (release, error) in zip(releases.values(), read, strict=True):
            order = _Order(release, self._host)
            keys: dict[str, tuple[int, list[SortKey], str]] = {}
            for wheel in files:
                label = _label(wheel)
                if not label:
                    keys[wheel.url] = (1, [], "")
                    continue
                if wheel.url not in self._judged:
                    self._judged[wheel.url] = self._judge(wheel, label, order, error)
                judged = self._judged[wheel.url]
                group = 0
                if judged.reasons:
                    group = 2 if all(map(is_doubt, judged.reasons)) else 3
                keys[wheel.url] = (group, order.key(judged.variant), label)
            ordered += sorted(files, key=lambda wheel: keys[wheel.url])
        return ordered

    def _read(
        self, wheels: Sequence[Wheel]
    ) -> tuple[ReleaseVariants, UnusableFileError | OfflineError | None]:
        """Return the metadata of the variants of a release, and why it cannot be used."""
        variant_wheels = list(filter(_label, wheels))
        if not variant_wheels:
            return ReleaseVariants(), None
        key = (wheels[0].name, wheels[0].version, wheels[0].index)
        if key not in self._releases:
            try:
                self._releases[key] = self._index.variants(variant_wheels), None
            except (UnusableFileError, OfflineError) as error:
                self._releases[key] = ReleaseVariants(), error
        return self._releases[key]

    def _judge(
        self,
        wheel: Wheel,
        label: str,
        order: _Order,
        error: UnusableFileError | OfflineError | None,
    ) -> JudgedVariant:
        variant = order.release.find(label)
        if variant is None:
            if isinstance(error, UnusableFileError):
                reason = error.reason
            elif error is not None:
                reason = not_cached(wheel, "the metadata of its variants")
            else:
                labels = " ".join(other.label for other in order.release.variants) or "of none"
                reason = Reason(
                    "bad-metadata",
                    wheel.filename,
                    f"the variant {label} in its metadata",
                    f"the labels {labels}",
                    source=_SOURCE,
                )
            unknown = WheelVariant(name=wheel.name, label=label)
            return JudgedVariant(variant=unknown, reasons=(reason,))
        subject = f"{wheel.name} {wheel.version} ({label})"
        claims = nvidia_claims(variant)
        if claims is not None:
            if wheel.url.startswith("file:"):  # its libraries say more than its properties
                from ..binaries.wheel import wheel_code  # only this needs it

                path, toolkits = file_url_to_path(wheel.url), self._data.ptx_toolkits
                variant = variant.replace(code=wheel_code(path, wheel.sha256, toolkits))
            claims = claims.replace(code=variant.code or claims.code)
        reasons = evaluate.variant_reasons(subject, variant, order.listed, self._host, self._data)
        contradicted = evaluate.claim_reasons(subject, variant)
        if not all(map(is_doubt, reasons)):
            reasons = (*reasons, *contradicted)
        return JudgedVariant(
            variant=variant,
            reasons=reasons,
            claims=claims,
            warnings=contradicted,
            supported=tuple(
                (namespace, feature, value)
                for namespace, feature, values in variant.properties
                for value in order.suitable(namespace, feature, values)
            ),
        )

    def label_by_provider(self, wheels: Sequence[Wheel], capability: ComputeCapability) -> str:
        """Return the label that an installer with nvidia-variant-provider takes of a release.

        Args:
            wheels: the wheels of the release.
            capability: the compute capability that the provider is told.

        Returns:
            "" if no variant suits.
        """
        labels = set(filter(None, map(_label, wheels)))
        release, _ = self._read(wheels)
        order = _Order(release, self._host, capability)
        fitting = [
            (order.key(variant), variant.label)
            for variant in release.variants
            if variant.label in labels and all(best for _, best in order.ranked(variant))
        ]
        return min(fitting)[1] if fitting else ""

    def precedes(self, wheel: Wheel, other: Wheel) -> bool:
        """Return whether a wheel precedes a variant of its release on a host that both suit.

        True for a variant that the metadata lacks: its place is not known.
        """
        release, _ = self._read([wheel])
        variant, second = release.find(_label(wheel)), release.find(_label(other))
        if variant is None or second is None:
            return bool(_label(wheel))
        any_gpu = Gpu(name="any GPU", compute_capability=None)
        order = _Order(release, self._host.replace(driver_cuda=None, gpus=(any_gpu,), cpu=()))
        return (order.key(variant), variant.label) < (order.key(second), second.label)

    def applicable(self, wheel: Wheel, dependencies: Sequence[Requirement]) -> list[Requirement]:
        """Return the dependencies of a wheel without the markers about its variant.

        Raises:
            UnusableFileError: a marker cannot be evaluated.
        """
        judged = self.judged(wheel)
        label = "" if judged is None else judged.variant.label
        supported = () if judged is None else judged.supported

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
                reason = Reason(
                    "bad-metadata",
                    wheel.filename,
                    "readable requirements",
                    f"the requirement {str(dependency)!r}: {error}",
                    source=_SOURCE,
                )
                raise UnusableFileError(reason) from None
            applicable.append(dependency.replace(marker=marker))
        return applicable


class _Order:
    """The order of PEP 825 among the variants of a release.

    Namespaces are ordered by the metadata, features by their provider, and values by how well they
    suit the host.

    Attributes:
        release: the release.
        listed: the values that the metadata itself lists, by namespace and feature.
    """

    def __init__(
        self, release: ReleaseVariants, host: Host, told: ComputeCapability | None = None
    ) -> None:
        """Order variants on a host.

        Args:
            release: the release.
            host: the host.
            told: the compute capability that nvidia-variant-provider is told. None: each value
                suits that serves one of the devices.
        """
        self.release, self._host, self._told = release, host, told
        self.listed: Mapping[str, Mapping[str, tuple[str, ...]]] = {
            namespace: dict(features) for namespace, features in release.static
        }
        named: dict[tuple[str, str], dict[str, None]] = {}
        for variant in release.variants:
            for namespace, feature, values in variant.properties:
                named.setdefault((namespace, feature), {}).update(dict.fromkeys(values))
        self._values = {key: self.suitable(*key, tuple(values)) for key, values in named.items()}

    def suitable(self, namespace: str, feature: str, values: Sequence[str]) -> tuple[str, ...]:
        """Return the values of a feature that suit the host, the best one first."""
        if namespace in self.listed:
            listed = self.listed[namespace].get(feature, ())
            return tuple(value for value in listed if value in values)
        if namespace not in FEATURES:
            return ()
        if self._told is not None and (namespace, feature) == (NVIDIA, SM):
            return provider_sm_values(values, self._told)
        return suitable_values(namespace, feature, values, self._host)

    def ranked(self, variant: WheelVariant) -> list[tuple[SortKey, Property | None]]:
        """Return the best value of each feature with its sort key, the smallest key first.

        The value is None if none suits.
        """
        rows: list[tuple[SortKey, Property | None]] = []
        for namespace, feature, names in variant.properties:
            features = [*self.listed.get(namespace, FEATURES.get(namespace, ()))]
            feature_place = features.index(feature) if feature in features else math.inf
            place, best = math.inf, None
            for number, value in enumerate(self._values[namespace, feature]):
                if value in names:
                    place, best = number, (namespace, feature, value)
                    break
            namespace_place = self.release.namespaces.index(namespace)
            rows.append(((namespace_place, feature_place, place), best))
        return sorted(rows, key=lambda row: row[0])

    def key(self, variant: WheelVariant) -> list[SortKey]:
        """Return the sort key of a variant; the smallest is the best.

        At the first difference of two variants the smaller key wins; if all keys of one variant
        begin the other's, the variant with more wins.
        """
        return [*(key for key, _ in self.ranked(variant)), (math.inf,)]


def _label(wheel: Wheel) -> str:
    return split_label(wheel.filename)[1]


def not_cached(wheel: Wheel, need: str) -> Reason:
    """Return the reason against a wheel of which offline something is not known."""
    have = "not in the cache, and --offline is on"
    return Reason("not-cached", wheel.filename, need, have)
