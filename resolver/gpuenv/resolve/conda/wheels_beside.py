"""Wheels in a conda environment: what conda supplies to them, and which cannot stand beside it.

A distribution that a conda package installs is held. In the solve of the wheels it has a name of
its own (torch -> torch-of-conda) with one release, that of the conda package. So no rule about
wheels is asked of it, and a conflict says whose it is. Held distributions are not installed again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...compat import conda_parts
from ...compat.conda_records import Record
from ...compat.data import CompatibilityData
from ...compat.evaluate import OWNER_SOURCE
from ...errors import InputError, Reason, UnusableFileError
from ...index.multi_index import MultiIndex
from ...index.protocol import Index, Metadata
from ...model import Pin, Plan, Request, Requirement, Value, Wheel
from ...requirements.target import TargetEnvironment, parse_requirement, version_key
from .candidates import admits

SUFFIX = "-of-conda"
HELD = "conda"  # Wheel.index of a release that a conda package supplies


# ---- what a closure supplies --------------------------------------------------------------------


class Supply(Value):
    """What a conda closure supplies to wheels, and what it rules out.

    `versions` is {distribution: its version}; `refused` {distribution: why no wheel of it fits};
    `libraries` {nvidia-LIBRARY: the conda package with the same library}.
    """

    versions: Mapping[str, str]
    refused: Mapping[str, Reason]
    libraries: Mapping[str, str]

    def against(self, name: str, version: str) -> Reason | None:
        """Return why a wheel cannot stand beside the conda packages; None if it can.

        Codes: two-cudnn, two-libraries, two-frameworks, other-build, conda-version.
        """
        reason = conda_parts.two_libraries(self.libraries, name, version)
        if reason is None and name in self.refused:
            return self.refused[name].replace(subject=f"{name} {version}")
        return reason

    def owners(self, wheels: Iterable[tuple[str, str]]) -> tuple[Reason, ...]:
        """Return what wheels in the same prefix, (name, version), would own a second time.

        The question is not whether a solve would choose the wheels. Codes: two-cudnn,
        two-libraries, two-frameworks.
        """
        reasons = filter(None, itertools.starmap(self.against, wheels))
        return conda_parts.both_own(reason for reason in reasons if reason.code.startswith("two-"))

    def renamed(self, text: str) -> str:
        """Return a requirement with the name that the solve uses.

        "numpy>=2" becomes "numpy-of-conda>=2" if numpy is held.

        Raises:
            InputError: The requirement names a held distribution by URL.
        """
        parsed = parse_requirement(text)
        if parsed.name not in self.versions:
            return text
        if parsed.url:
            version = self.versions[parsed.name]
            message = f"--pip {text}: conda brings {parsed.name} {version} here"
            raise InputError(message, hint="leave one of them out")
        return str(parsed.replace(name=parsed.name + SUFFIX))


def unmet(requirements: Sequence[str], supply: Supply) -> tuple[Reason, ...]:
    """Return the requirements that a held distribution does not meet. Code: conflict."""
    reasons = []
    for parsed in map(parse_requirement, requirements):
        version = supply.versions.get(parsed.name)
        if version is None or not parsed.specifier or parsed.marker:
            continue
        if not admits(parsed.specifier, version):
            need = f"{parsed.name}{parsed.specifier}"
            have = f"{parsed.name} {version} of conda"
            reasons.append(Reason("conflict", "--pip", need, have))
    return tuple(reasons)


def records_of(pins: Sequence[Pin]) -> list[Record]:
    """Return the records of pinned packages. A file of an @EXPLICIT list has no `depends`."""
    return [
        {
            "name": pin.wheel.name,
            "version": pin.wheel.version,
            "channel": pin.wheel.index,
            "url": pin.wheel.url,
            "fn": pin.wheel.filename,
            "size": pin.wheel.size,
            "sha256": pin.wheel.sha256,
            **pin.wheel.metadata,
        }
        for pin in pins
    ]


def supply(records: Sequence[Record], matrix: CompatibilityData) -> Supply:
    """Return what the packages of a closure supply."""
    versions: dict[str, str] = {}
    refused: dict[str, Reason] = {}
    libraries = conda_parts.libraries_of_records(records)
    installed = {str(record["name"]): str(record["version"]) for record in records}
    for distribution, record in matrix.conda.providers(records).items():
        version = str(record["version"])
        try:
            version_key(version)
            versions[distribution] = version
        except (InputError, ValueError):  # a version that is not of PEP 440
            need, have = "a version that a wheel's needs can be held against", record["name"]
            refused[distribution] = _refusal("conda-version", need, f"{have} {version}")
    refused |= _owned_by_frameworks(installed, matrix)
    return Supply(versions=versions, refused=refused, libraries=libraries)


def _owned_by_frameworks(
    installed: Mapping[str, str], matrix: CompatibilityData
) -> dict[str, Reason]:
    """Return {distribution: why it cannot stand beside a framework of conda}.

    These are the framework's own distributions, and wheels that were built for its wheel.
    """
    owned: dict[str, Reason] = {}
    for name, package in matrix.conda.packages.items():
        framework = matrix.framework(name)
        if package not in installed or framework is None:
            continue
        have = f"{package} {installed[package]}"
        for companion in framework.companions:
            need = f"the wheel of {name} that it was built for"
            owned[companion] = _refusal("other-build", need, have)
        distributions = [framework.distribution]
        for way in framework.ways:
            distributions += [way.distribution, *way.carriers]
        for distribution in distributions:
            owned[distribution] = _refusal("two-frameworks", f"one {name} in a prefix", have)
    return owned


def _refusal(code: str, need: str, package: str) -> Reason:
    have = f"{package} of conda"
    return Reason(code, "", need, have, source=OWNER_SOURCE)


# ---- the solve ----------------------------------------------------------------------------------


class Beside(Index):
    """An index of wheels beside a conda closure: another index, with held distributions.

    `judge` gives the rules' reasons against a wheel, (name, version), beside the conda packages.
    """

    def __init__(
        self,
        inner: MultiIndex,
        supply: Supply,
        judge: Callable[[str, str], Reason | None],
        requirements: Iterable[str],
        refused: dict[str, Reason],
    ) -> None:
        """Take the user's own requirements, with held names.

        `refused` gets {distribution: why its newest wheel cannot stand here}.
        """
        self.inner, self.supply, self.judge, self.refused = inner, supply, judge, refused
        requested = [parsed for parsed in map(parse_requirement, requirements) if parsed.extras]
        # Held distributions whose extras are requested.
        self._with_extras = {parsed.name.removesuffix(SUFFIX) for parsed in requested}

    def _held(self, name: str) -> str | None:
        """Return the distribution of a held name; None for other names."""
        distribution = name.removesuffix(SUFFIX)
        if distribution != name and distribution in self.supply.versions:
            return distribution
        return None

    def name_of(self, distribution: str) -> str:
        """As index.protocol.Index: a held distribution has a name of its own."""
        return distribution + SUFFIX if distribution in self.supply.versions else distribution

    def files(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """As index.protocol.Index; a held name has one release."""
        distribution = self._held(name)
        if distribution is None:
            return self.inner.files(name, environment)
        version = self.supply.versions[distribution]
        filename = f"{name.replace('-', '_')}-{version.replace('-', '_')}-py3-none-any.whl"
        wheel = Wheel(
            name=name,
            version=version,
            filename=filename,
            url="",
            sha256="0" * 64,
            size=0,
            index=HELD,
        )
        return (wheel,)

    def metadata(self, wheel: Wheel) -> Metadata:
        """As index.protocol.Index, with held names.

        Raises:
            UnusableFileError: The wheel cannot stand beside the conda packages.
        """
        if wheel.index == HELD:
            return Metadata(dependencies=self._dependencies_of_extras(wheel))
        against = self.supply.against(wheel.name, wheel.version)
        against = against or self.judge(wheel.name, wheel.version)
        if against is not None:
            self.refused.setdefault(wheel.name, against)
            raise UnusableFileError(against)
        metadata = self.inner.metadata(wheel)
        return metadata.replace(dependencies=tuple(map(self._renamed, metadata.dependencies)))

    def _renamed(self, requirement: Requirement) -> Requirement:
        if requirement.name not in self.supply.versions:
            return requirement
        if requirement.extras:
            self._with_extras.add(requirement.name)
        return requirement.replace(name=self.name_of(requirement.name), url=None)

    def _dependencies_of_extras(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """Return what the extras of a held distribution require.

        conda installs the distribution's own dependencies, but not those of its extras.
        """
        name = wheel.name.removesuffix(SUFFIX)
        if name not in self._with_extras:
            return ()
        key = version_key(wheel.version)
        for release in self.inner.files(name):
            if release.filename.endswith(".whl") and version_key(release.version) == key:
                break
        else:
            subject, need = f"{name} {wheel.version}", "what its extras ask for"
            have = f"no wheel of {name} {wheel.version}, which would say it"
            reason = Reason("no-wheel", subject, need, have)
            raise UnusableFileError(reason)
        return tuple(
            self._renamed(requirement)
            for requirement in self.inner.metadata(release).dependencies
            if "extra" in (requirement.marker or "")
        )

    def left_out(self, name: str) -> Sequence[str]:
        """As the index."""
        return () if self._held(name) else self.inner.left_out(name)

    def at_hand(self, name: str) -> bool:
        """As the index; a held name needs no network."""
        return self._held(name) is not None or self.inner.at_hand(name)

    def direct(self, name: str, url: str) -> Wheel:
        """As the index."""
        return self.inner.direct(name, url)

    def request_needs(self, wheel: Wheel, extras: Sequence[str]) -> None:
        """As the index; conda supplies what a held distribution requires."""
        if wheel.index != HELD:
            self.inner.request_needs(wheel, extras)

    def widen(self, name: str) -> bool:
        """As the index; a held name has no other release."""
        return self._held(name) is None and self.inner.widen(name)


def without_held(plan: Plan, request: Request) -> Plan:
    """Return the plan of the wheels alone: without held distributions, with the user's request."""
    held = {pin.wheel.name for pin in plan.pins if pin.wheel.index == HELD}
    pins = []
    for pin in plan.pins:
        if pin.wheel.name not in held:
            dependencies = tuple(name for name in pin.dependencies if name not in held)
            pins.append(pin.replace(dependencies=dependencies))
    return plan.replace(pins=tuple(pins), request=request)
