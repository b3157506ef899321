"""Profiles in [tool.gpuenv] of a pyproject.toml, and whether their locks are up to date.

A profile is a described host with a request. It holds no fact of the machine that locks it, so that
every developer and CI get the same bytes. Its lock is next to pyproject.toml: pylock.PROFILE.toml,
or PROFILE.conda-lock.yml for conda packages. The lock stores the profile as its inputs, so that a
comparison with the profile needs no solve, no GPU and no network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ..compat.data import CompatibilityData
from ..detect import described
from ..errors import InputError, Reason, TamperedError, did_you_mean
from ..model import (
    CondaOptions,
    Host,
    IndexOptions,
    Lock,
    Python,
    Request,
    Value,
    parse_pair,
    show_pair,
)

# The defaults of a profile: what most clusters have. glibc 2.28 is the manylinux policy that the
# frameworks' own wheels are built for.
GLIBC = "2.28"
PLATFORM = "linux-x86_64"

# The value of a profile's key. None, "", False and () are left out of locks.
Input = str | bool | tuple[str, ...] | None


# The fields of a profile that have another name among the inputs of a lock.
_INPUT_KEYS = {
    "name": "profile",
    "gpus": "gpu",
    "channels": "conda-channels",
    "overrides": "override-dependencies",
}


class Profile(Value):
    """A host to lock for, and the request. Texts are as in pyproject.toml.

    `gpus` holds one text for each device, () for none. `driver` is the oldest driver release that
    the lock must run on. `platform` "" is that of the GPUs if they exist on one platform only,
    otherwise linux-x86_64. With `separate_versions` the profile has its own version of every
    framework; `own_ranges` names those that its own table gives a version range. The requirements
    of a conda profile are conda specs; `wheels` are installed beside its packages.
    """

    name: str
    frameworks: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    python: str
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    platform: str = ""
    glibc: str | None = None
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    package_indexes: tuple[str, ...] = ()
    merge_indexes: bool = False
    known_metadata: tuple[str, ...] = ()
    build_settings: tuple[str, ...] = ()
    exclude_newer_of: tuple[str, ...] = ()
    no_index: bool = False
    default_index_only: bool = False
    pre: bool = False
    exclude_newer: str | None = None
    no_build: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    separate_versions: bool = False
    own_ranges: tuple[str, ...] = ()
    backend: str = "pip"  # pip | conda
    channels: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()

    @property
    def requests(self) -> tuple[str, ...]:
        """Return all that is asked for."""
        return (*self.frameworks, *self.requirements, *self.wheels)

    @property
    def filename(self) -> str:
        """Return the file name of the lock, in the form that pip and uv, or conda-lock, accept."""
        if self.backend == "conda":
            return f"{self.name}.conda-lock.yml"
        return f"pylock.{self.name}.toml"


class Project(Value):
    """The profiles of a pyproject.toml, in the order of the file.

    `folder` is the folder of the file and of the locks, "" for the working folder.
    """

    path: str
    folder: str
    profiles: tuple[Profile, ...]

    def lock_path(self, profile: Profile) -> str:
        """Return the path of a profile's lock."""
        return os.path.join(self.folder, profile.filename)

    def select(self, names: Sequence[str]) -> tuple[Profile, ...]:
        """Return the profiles of these names in the order of the file; () selects all.

        Raises:
            InputError: there is no profile of a name.
        """
        known = [profile.name for profile in self.profiles]
        for name in names:
            if name not in known:
                message = f"{self.path} has no profile {name!r}; it has {', '.join(known)}"
                hint = "a lock file is given as a path: pylock.NAME.toml"
                if meant := did_you_mean(name, known):
                    hint = f"{meant} Otherwise {hint}"
                raise InputError(message, hint=hint)
        return tuple(profile for profile in self.profiles if not names or profile.name in names)


class Difference(Value):
    """An input that differs between the lock (`was`) and the profile (`now`). None is nothing."""

    key: str
    was: Input
    now: Input


class State(Value):
    """Whether a profile's lock is up to date.

    `status` is fresh, stale, tampered, missing or unreadable. `detail` says why if there are no
    differences. `newer_data` is the version of the data at hand if the lock was made with older
    data; that alone does not make a lock stale.
    """

    profile: str
    path: str
    status: str
    differences: tuple[Difference, ...] = ()
    detail: str = ""
    newer_data: str = ""


class Comparison(Value):
    """What a new lock changes.

    `packages` holds (name, old version, new version); None is a package that is added or removed.
    `files` are the packages that keep their version but get another file.
    """

    packages: tuple[tuple[str, str | None, str | None], ...] = ()
    files: tuple[str, ...] = ()


# ---- what a profile asks for ---------------------------------------------------------------------


def host_of(profile: Profile, data: CompatibilityData) -> Host:
    """Return the host that a profile describes. It holds no fact of this machine.

    InputError names the host flags.
    """
    version = parse_pair(profile.python.removesuffix("t"))
    python = Python(version=version, free_threaded=profile.python.endswith("t"))
    return described.describe(
        Host(python=python),
        data,
        gpus=profile.gpus or ("none",),
        driver=profile.driver,
        python=None,
        platform=profile.platform or None,
        glibc=profile.glibc,
    )


def request(profile: Profile) -> Request:
    """Return the request of a profile."""
    conda = None
    if profile.backend == "conda":
        conda = CondaOptions(channels=profile.channels, keep_python=True, wheels=profile.wheels)
    return msgspec.convert(profile, Request, from_attributes=True).replace(conda=conda)


def index_options(
    profile: Profile, folder: str, others: IndexOptions | None = None
) -> IndexOptions:
    """Return where a profile's packages come from.

    Args:
        profile: the profile. Its folders in find-links are relative to the project's folder.
        folder: the project's folder.
        others: what is asked beside the indexes of the profile.
    """
    others = others or IndexOptions()
    links = profile.find_links
    find_links = [link if "://" in link else os.path.join(folder, link) for link in links]
    fields = msgspec.convert(profile, IndexOptions, from_attributes=True)
    find_links = [*others.find_links, *find_links]
    if others.no_index and not find_links:
        hint = "name a folder of wheels: --find-links DIR"
        raise InputError("--no-index: without --find-links nothing can be found", hint=hint)
    return fields.replace(
        index_url=others.index_url or fields.index_url,
        extra_index_urls=(*others.extra_index_urls, *fields.extra_index_urls),
        find_links=tuple(find_links),
        no_index=others.no_index or fields.no_index,
        folder=folder or os.curdir,
        offline=others.offline,
        refresh=others.refresh,
    )


def inputs(profile: Profile) -> tuple[tuple[str, Input], ...]:
    """Return the profile as its lock keeps it: (key, value) pairs without empty values."""
    fields = profile.non_defaults()
    fields.pop("own_ranges", None)
    return tuple(
        (_INPUT_KEYS.get(name, name.replace("_", "-")), value)
        for name, value in fields.items()
        if value
    )


# ---- is its lock up to date? ---------------------------------------------------------------------


def state(project: Project, profile: Profile, read: Callable[[str], Lock], data: str) -> State:
    """Return whether a profile's lock is up to date.

    Args:
        project: the project of the profile.
        profile: the profile.
        read: reads a lock file.
        data: the version of the compatibility data at hand.
    """
    path = project.lock_path(profile)
    missing = State(profile=profile.name, path=path, status="missing")
    if not os.path.lexists(path):
        return missing
    try:
        lock = read(path)
    except TamperedError as error:
        return missing.replace(status="tampered", detail=error.message)
    except InputError as error:
        return missing.replace(status="unreadable", detail=error.message)
    if lock.conda:  # the index snapshot has no conda packages
        data = data.partition(",")[0]
    # "matrix 2026-11-21.2dfc09f3, index snapshot 2026-11-21+bebf9271d943"
    dates = [re.findall(r"\d{4}-\d{2}-\d{2}", text) for text in (lock.data, data)]
    newer_data = data if lock.data != data and dates[0] <= dates[1] else ""
    if "profile" not in dict(lock.inputs):
        detail = "it was not locked for a profile of pyproject.toml"
        return missing.replace(status="stale", detail=detail, newer_data=newer_data)
    was: dict[str, Input] = dict(lock.inputs)
    if lock.conda:
        for key in ("channels", "pip"):  # every conda lock has them: see lock.conda_formats
            was.pop(key, None)
    now = dict(inputs(profile))
    differences = tuple(
        Difference(key=key, was=was.get(key), now=now.get(key))
        for key in {**now, **was}
        if was.get(key) != now.get(key)
    )
    if differences:
        return missing.replace(status="stale", differences=differences, newer_data=newer_data)
    return missing.replace(status="fresh", newer_data=newer_data)


def with_earlier(request: Request, lock: Lock, upgrade: Sequence[str] | None) -> Request:
    """Return a request that keeps the pins of an earlier lock where they fit.

    Args:
        request: the request.
        lock: the earlier lock.
        upgrade: the names whose pins are not kept; [] keeps none, None keeps all.
    """
    kept: list[tuple[str, str]] = []
    if upgrade != []:
        kept = [pin for pin in lock.versions.items() if pin[0] not in (upgrade or ())]
    if lock.conda:
        return request.replace(preferences=tuple(kept))
    python = lock.needs.python  # a lock does not have the Requires-Python of its files
    known = f"=={show_pair(python)}.*" if python is not None else None
    earlier = tuple(pin.wheel.replace(requires_python=known) for pin in lock.pins)
    return request.replace(preferences=tuple(kept), earlier=earlier)


def compare(old: Lock | None, new: Lock) -> Comparison:
    """Return what changes from one lock to the next, in the order of the names."""
    before = {pin.wheel.name: pin.wheel for pin in old.pins} if old is not None else {}
    after = {pin.wheel.name: pin.wheel for pin in new.pins}
    packages: list[tuple[str, str | None, str | None]] = []
    files = []
    for name in sorted({*before, *after}):
        was, now = before.get(name), after.get(name)
        if was is None or now is None or was.version != now.version:
            versions = [None if wheel is None else wheel.version for wheel in (was, now)]
            packages.append((name, versions[0], versions[1]))
        elif (was.filename, was.url, was.sha256) != (now.filename, now.url, now.sha256):
            files.append(name)
    return Comparison(packages=tuple(packages), files=tuple(files))


# ---- which lock is for this host? ----------------------------------------------------------------


def choose(
    candidates: Iterable[tuple[Profile, Lock, tuple[Reason, ...]]], host: Host
) -> tuple[tuple[Profile, ...], tuple[tuple[Profile, tuple[Reason, ...]], ...]]:
    """Choose the profiles whose locks fit a host.

    A lock that was made for devices like the host's comes before one that merely serves them;
    otherwise the order stays. A lock of the CPU never fits a host that has a GPU: it would
    run there and leave the GPU unused.

    Args:
        candidates: profiles, their locks, and the needs of the locks that the host lacks.
        host: the host.

    Returns:
        The profiles whose locks fit, best first, and the other profiles with the reasons against
        them.
    """
    capabilities = set(host.capabilities)
    fitting, others = [], []
    for profile, lock, missing in candidates:
        reasons = missing
        is_of_cpu = not lock.host.gpus and lock.needs.driver is None
        if host.gpus and is_of_cpu and not reasons:
            gpus = ", ".join(gpu.name for gpu in host.gpus)
            need = "a host without a GPU, for which it was locked"
            reasons = (Reason("cpu-lock", "lock", need, gpus),)
        if reasons:
            others.append((profile, reasons))
        else:
            fitting.append((set(lock.host.capabilities) != capabilities, profile))
    fitting.sort(key=lambda row: row[0])
    return tuple(profile for _, profile in fitting), tuple(others)
