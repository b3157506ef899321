"""Wheels in a conda environment: what its packages supply to them, and what of theirs has no place beside it.

A distribution that a conda package installs is held: in the solve of the wheels it stands under a name of its own
(torch -> torch-of-conda) with one release, the conda package's, so that no rule about wheels is asked of it and a
refusal says whose it is. Nothing of that name is installed again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...compat import conda_records
from ...compat.conda_records import Carriers
from ...compat.data import CompatibilityData
from ...compat.evaluate import OWNER_SOURCE
from ...errors import InputError, Reason, TamperedError, UnusableFileError
from ...index.protocol import Index
from ...model import Lock, Pin, Plan, Request, Requirement, Value, Wheel
from ...requirements.target import TargetEnvironment, normalize_name, parse_requirement, version_key

SUFFIX = "-of-conda"
HELD = "conda"  # Wheel.index of a release that a conda package supplies
CONDA = "conda-lock"  # Lock.inputs of a lock of wheels: the file of the conda lock that it belongs to
_PYTHON = {"python", "python_abi"}
_TAIL = re.compile(r"-cu[0-9]+$")
# NVIDIA's wheels of a library are nvidia-NAME or nvidia-NAME-cuN; conda-forge's packages of it libNAME, or as here.
_LIBRARIES = {
    "cudnn": ("cudnn",),
    "cuda-cudart": ("cuda-runtime",),
    "cuda-cupti": ("cuda-cupti",),
    "cuda-nvrtc": ("cuda-nvrtc",),
    "cuda-nvtx": ("nvtx",),
    "cusparselt": ("cusparselt",),
    "nccl": ("nccl",),
    "libnvshmem3": ("nvshmem",),
    "cudatoolkit": ("cublas", "cuda-runtime", "cuda-nvrtc", "cufft", "curand", "cusolver", "cusparse"),
}


class Supply(Value):
    """What a conda closure has for wheels, and against them.

    `versions` is {distribution: its version}, `refused` {distribution: why no wheel of it is taken}, `libraries`
    {nvidia-NAME: the conda package with the same library}, `frameworks` {distribution: why a wheel of it is a second
    owner of the framework}, of the conda package's own distribution, too.
    """

    versions: Mapping[str, str]
    refused: Mapping[str, Reason]
    libraries: Mapping[str, str]
    frameworks: Mapping[str, Reason]

    def against(self, name: str, version: str) -> Reason | None:
        """Why a wheel cannot stand beside the conda packages; None if it can.

        Codes: two-cudnn, two-libraries, two-frameworks, other-build, conda-version.
        """
        ours = self.libraries.get(_TAIL.sub("", name))
        if ours is not None:
            cudnn = _TAIL.sub("", name) == "nvidia-cudnn"
            need = "one cuDNN in a prefix" if cudnn else "one owner of a CUDA library in a prefix"
            code = "two-cudnn" if cudnn else "two-libraries"
            have, subject = f"{ours} of conda", f"{name} {version}"
            return Reason(code=code, subject=subject, need=need, have=have, source=OWNER_SOURCE)
        found = self.refused.get(name)
        return None if found is None else found.replace(subject=f"{name} {version}")

    def owner(self, name: str, version: str) -> Reason | None:
        """What a wheel in the same prefix owns a second time, whether or not a solve would take it; None if nothing.

        Codes: two-cudnn, two-libraries, two-frameworks.
        """
        found = self.frameworks.get(name) or self.against(name, version)
        return found if found is not None and found.code.startswith("two-") else None

    def asked(self, text: str) -> str:
        """A requirement as the solve reads it: numpy>=2 -> numpy-of-conda>=2 where numpy is held. InputError."""
        parsed = parse_requirement(text)
        if parsed.name not in self.versions:
            return text
        if parsed.url:
            what = f"--pip {text}: conda brings {parsed.name} {self.versions[parsed.name]} here"
            raise InputError(what, hint="leave one of them out")
        return str(parsed.replace(name=parsed.name + SUFFIX))


def unmet(asked: Sequence[str], held: Supply, admits: Callable[[str, str], bool]) -> tuple[Reason, ...]:
    """The user's own requirements of what conda brings in a version that is not in their range. Code: conflict."""
    found = []
    for parsed in map(parse_requirement, asked):
        version = held.versions.get(parsed.name)
        if version is not None and parsed.specifier and not parsed.marker and not admits(parsed.specifier, version):
            have = f"{parsed.name} {version} of conda"
            found.append(Reason(code="conflict", subject="--pip", need=f"{parsed.name}{parsed.specifier}", have=have))
    return tuple(found)


def supply(pins: Sequence[Pin], carriers: Carriers, matrix: CompatibilityData) -> Supply:
    """What the packages of a closure supply. A package is a Python distribution if it depends on Python."""
    versions: dict[str, str] = {}
    refused: dict[str, Reason] = {}
    libraries: dict[str, str] = {}
    for pin in pins:
        name, said = pin.wheel.name, f"{pin.wheel.name} {pin.wheel.version}"
        if _PYTHON & set(pin.dependencies):
            distribution = carriers.distributions.get(name) or normalize_name(name)
            try:
                version_key(pin.wheel.version)
                versions[distribution] = pin.wheel.version
            except (InputError, ValueError):
                refused[distribution] = _refusal(
                    "conda-version", "a version that a wheel's needs can be held against", said
                )
        stems = _LIBRARIES.get(name) or ((name.removeprefix("lib"),) if name.startswith("lib") else ())
        bundled = conda_records.cudnn_of({"name": name, "version": pin.wheel.version, "depends": (), **pin.wheel.metadata})[1]
        for stem in (*stems, *(("cudnn",) if bundled else ())):
            libraries.setdefault(f"nvidia-{stem}", said)
    owned = _of_frameworks(pins, carriers, matrix)
    refused |= {name: one for name, one in owned.items() if name not in versions}
    frameworks = {name: one for name, one in owned.items() if one.code == "two-frameworks"}
    return Supply(versions=versions, refused=refused, libraries=libraries, frameworks=frameworks)


def _of_frameworks(pins: Sequence[Pin], carriers: Carriers, matrix: CompatibilityData) -> dict[str, Reason]:
    """What is refused where conda brings a framework: its other distributions, and wheels built for its wheel."""
    found: dict[str, Reason] = {}
    for framework, package in carriers.packages.items():
        version = next((one.wheel.version for one in pins if one.wheel.name == package), None)
        known = matrix.framework(framework)
        if version is None or known is None:
            continue
        said = f"{package} {version}"
        for name in known.companions:
            found[name] = _refusal("other-build", f"the wheel of {framework} that it was built for", said)
        mine = [name for way in known.ways for name in (parse_requirement(way.requires[0]).name, *way.carriers)]
        for name in (known.distribution, *mine):
            found[name] = _refusal("two-frameworks", f"one {framework} in a prefix", said)
    return found


def _refusal(code: str, need: str, said: str) -> Reason:
    return Reason(code=code, subject="", need=need, have=f"{said} of conda", source=OWNER_SOURCE)


# ---- the solve ------------------------------------------------------------------------------------------------------


class Beside(Index):
    """An index for wheels beside a conda closure: as `inner`, with the closure's distributions held."""

    def __init__(self, inner: Any, held: Supply) -> None:
        self.inner, self.held = inner, held
        self._extras: set[str] = set()
        self.refused: dict[str, Reason] = {}  # {distribution: why its newest wheel cannot stand here}

    def _held(self, name: str) -> str | None:
        """The distribution of a held name."""
        own = name.removesuffix(SUFFIX)
        return own if own != name and own in self.held.versions else None

    def has(self, name: str) -> bool:
        """As index.protocol.Index says."""
        return self._held(name) is not None or bool(self.inner.has(name))

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """As index.protocol.Index says; of a held name the one release that is there."""
        own = self._held(name)
        if own is None:
            found: Sequence[Wheel] = self.inner.wheels(name, environment)
            return found
        version = self.held.versions[own]
        file = f"{name.replace('-', '_')}-{version.replace('-', '_')}-py3-none-any.whl"
        return (Wheel(name=name, version=version, filename=file, url="", sha256="0" * 64, size=0, index=HELD),)

    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        """As index.protocol.Index says, and the held names. UnusableFileError for what cannot stand beside conda's."""
        if wheel.index == HELD:
            return self._of_extras(wheel)
        against = self.held.against(wheel.name, wheel.version)
        if against is not None:
            self.refused.setdefault(wheel.name, against)
            raise UnusableFileError(against)
        return tuple(map(self._renamed, self.inner.dependencies(wheel)))

    def _renamed(self, requirement: Requirement) -> Requirement:
        if requirement.name not in self.held.versions:
            return requirement
        if requirement.extras:
            self._extras.add(requirement.name)
        return requirement.replace(name=requirement.name + SUFFIX, url=None)

    def want_extras(self, requirements: Iterable[str]) -> None:
        """Tells of the user's own requirements, by their renamed texts."""
        for parsed in map(parse_requirement, requirements):
            own = self._held(parsed.name)
            if own is not None and parsed.extras:
                self._extras.add(own)

    def _of_extras(self, wheel: Wheel) -> Sequence[Requirement]:
        """What the extras of a held distribution ask for: its own needs are conda's, those of its extras are not."""
        own = wheel.name.removesuffix(SUFFIX)
        if own not in self._extras:
            return ()
        same = [one for one in self.inner.wheels(own) if version_key(one.version) == version_key(wheel.version)]
        if not same:
            have = f"no wheel of {own} {wheel.version}, which would say it"
            subject, need = f"{own} {wheel.version}", "what its extras ask for"
            raise UnusableFileError(Reason(code="no-wheel", subject=subject, need=need, have=have))
        found = [one for one in self.inner.dependencies(same[0]) if "extra" in (one.marker or "")]
        return tuple(map(self._renamed, found))

    def sdists(self, name: str) -> Sequence[Wheel]:
        """The source distributions of a name; of a held one none."""
        return () if self._held(name) else self.inner.sdists(name)

    def left_out(self, name: str) -> Sequence[str]:
        """As the index says it."""
        return () if self._held(name) else self.inner.left_out(name)

    def at_hand(self, name: str) -> bool:
        """Whether no network is needed for a name."""
        return self._held(name) is not None or bool(self.inner.at_hand(name))

    def direct(self, name: str, url: str) -> Wheel:
        """The file at a URL that a requirement names."""
        found: Wheel = self.inner.direct(name, url)
        return found

    def requires_python(self, wheel: Wheel) -> str | None:
        """As the index says it."""
        return None if wheel.index == HELD else self.inner.requires_python(wheel)

    def widen(self, name: str) -> bool:
        """As the index does it; there is no other release of a held name."""
        return self._held(name) is None and bool(self.inner.widen(name))


def without_held(plan: Plan, request: Request) -> Plan:
    """The plan of what is installed second: without what conda supplies, and with the request as it was made."""
    held = {pin.wheel.name for pin in plan.pins if pin.wheel.index == HELD}
    pins = [
        pin.replace(dependencies=tuple(name for name in pin.dependencies if name not in held))
        for pin in plan.pins
        if pin.wheel.name not in held
    ]
    return plan.replace(pins=tuple(pins), request=request)


# ---- the two locks --------------------------------------------------------------------------------------------------


def name_beside(path: str) -> str:
    """The file of the wheels' lock: conda-lock.yml -> pylock.conda-lock.toml, a name that pip and uv take."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return f"pylock.{stem.replace('.', '-')}.toml"


def named(lock: Lock) -> tuple[str, str] | None:
    """(file, its sha256) of the wheels' lock that a conda lock names; None if it has no wheels."""
    found = dict(lock.inputs).get("pip")
    return None if found is None else (str(found[0]), str(found[1]))


def conda_lock_of(lock: Lock) -> str | None:
    """The conda lock that a lock of wheels belongs to; None for one that stands alone."""
    found = dict(lock.inputs).get(CONDA)
    return None if found is None else str(found)


def path_beside(path: str, lock: Lock) -> str | None:
    """The file of the wheels of a conda lock at `path`, unchanged; None if it has none.

    InputError if it is missing, TamperedError if it is not the one that was written with the conda lock.
    """
    found = named(lock)
    if found is None:
        return None
    name, digest = found
    file = os.path.join(os.path.dirname(path), name)
    if os.path.basename(name) != name:
        raise InputError(f"{path}: names {name} for its pip packages, which is not a file beside it")
    try:
        with open(file, "rb") as stream:
            data = stream.read()
    except OSError as error:
        hint = "the two files belong together: copy both"
        raise InputError(f"{file}: cannot be read, and {path} has its pip packages in it: {error}", hint=hint) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise TamperedError(f"{file}: is not the file that {path} was locked with", hint="lock again: gpuenv solve")
    return file
