"""[tool.gpuenv] of a repository's pyproject.toml: its profiles, and whether their locks are still what they ask for.

A profile is a described host with a request. It says nothing about the machine that locks it, so that everyone and CI
get the same bytes. Its lock, pylock.<profile>.toml beside pyproject.toml, carries the profile as [tool.gpuenv.inputs]:
comparing the two tables needs no solve, no GPU and no network.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..errors import InputError, Reason, TamperedError
from ..model import ComputeCapability, Host, IndexOptions, Lock, Python, Request, Value, parse_pair

# What most clusters have: the policy that the frameworks' own wheels are built for.
GLIBC = "2.28"
PLATFORM = "linux-x86_64"


class Profile(Value):
    """A host to lock for and what is wanted there, texts as pyproject.toml has them.

    `gpus` holds one text a device, () for none; `driver` is the oldest release that the lock must run on. `options`
    are the index options that differ from their default, by their key.
    """

    name: str
    frameworks: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    python: str
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    platform: str = PLATFORM
    glibc: str | None = None
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def filename(self) -> str:
        """The name of its lock; pip and uv take no other form."""
        return f"pylock.{self.name}.toml"


class Project(Value):
    """The profiles of a pyproject.toml, in the order of the file. `folder` is where their locks stand, "" for here."""

    path: str
    folder: str
    profiles: tuple[Profile, ...]

    def lock_path(self, profile: Profile) -> str:
        """Where the lock of a profile is."""
        return os.path.join(self.folder, profile.filename)

    def select(self, names: Sequence[str]) -> tuple[Profile, ...]:
        """The profiles of these names in the order of the file, all for none. InputError for an unknown name."""
        known = [profile.name for profile in self.profiles]
        for name in names:
            if name not in known:
                what = f"{self.path} has no profile {name!r}; it has {', '.join(known)}"
                raise InputError(what, hint="a lock file is given as a path: pylock.NAME.toml")
        return tuple(profile for profile in self.profiles if not names or profile.name in names)


class Difference(Value):
    """One input that is not what was locked. A text, a flag or a tuple of texts; None or () for nothing."""

    key: str
    was: Any
    now: Any


class State(Value):
    """How a profile's lock stands: `status` is fresh, stale, tampered, missing or unreadable.

    `detail` says why where there are no differences; `newer_data` is the data at hand if the lock was made with other
    data that is no newer, which makes no lock stale.
    """

    profile: str
    path: str
    status: str
    differences: tuple[Difference, ...] = ()
    detail: str = ""
    newer_data: str = ""


class Comparison(Value):
    """What a new lock changes: (name, old version, new version), None for a package that comes or goes.

    `files` are the packages that keep their version and get another file.
    """

    packages: tuple[tuple[str, str | None, str | None], ...] = ()
    files: tuple[str, ...] = ()


# ---- what a profile asks for ----------------------------------------------------------------------------------------


def base_host(profile: Profile) -> Host:
    """The profile's Python on Linux, to be described further: no fact of this machine enters it."""
    version = parse_pair(profile.python.removesuffix("t"))
    return Host(python=Python(version=version, free_threaded=profile.python.endswith("t")))


def request(profile: Profile, preferences: Sequence[tuple[str, str]] = ()) -> Request:
    """What the solver is asked for a profile; `preferences` are the pins to keep where they still fit."""
    options = dict(profile.options)
    return Request(
        frameworks=profile.frameworks,
        requirements=profile.requirements,
        constraints=profile.constraints,
        default_index_only=options.get("default-index-only", False),
        pre=options.get("pre", False),
        exclude_newer=options.get("exclude-newer"),
        preferences=tuple(preferences),
    )


def index_options(profile: Profile, folder: str, *, offline: bool = False, refresh: bool = False) -> IndexOptions:
    """Where a profile's packages come from; folders of find-links are relative to the project's."""
    options = dict(profile.options)
    links = [one if "://" in one else os.path.join(folder, one) for one in options.get("find-links", ())]
    return IndexOptions(
        index_url=options.get("index-url"),
        extra_index_urls=options.get("extra-index-urls", ()),
        find_links=tuple(links),
        offline=offline,
        refresh=refresh,
        exclude_newer=options.get("exclude-newer"),
    )


def inputs(profile: Profile) -> tuple[tuple[str, Any], ...]:
    """The profile as its lock keeps it; what is empty is left out."""
    rows: tuple[tuple[str, Any], ...] = (
        ("profile", profile.name),
        ("frameworks", profile.frameworks),
        ("requirements", profile.requirements),
        ("constraints", profile.constraints),
        ("python", profile.python),
        ("gpu", profile.gpus),
        ("driver", profile.driver),
        ("platform", profile.platform),
        ("glibc", profile.glibc),
        *profile.options,
    )
    return tuple((key, value) for key, value in rows if value)


# ---- does its lock still hold? --------------------------------------------------------------------------------------


def state(project: Project, profile: Profile, read: Callable[[str], Lock], data: str) -> State:
    """How a profile's lock stands. `read` reads a lock, `data` is the version of the data at hand."""
    path = project.lock_path(profile)

    def found(status: str, **more: Any) -> State:
        return State(profile=profile.name, path=path, status=status, **more)

    if not os.path.lexists(path):
        return found("missing")
    try:
        lock = read(path)
    except TamperedError as error:
        return found("tampered", detail=error.message)
    except InputError as error:
        return found("unreadable", detail=error.message)
    newer = data if lock.data != data and _dates(lock.data) <= _dates(data) else ""
    if not lock.inputs:
        return found("stale", detail="it was not locked for a profile of pyproject.toml", newer_data=newer)
    differences = tuple(differing(profile, lock))
    return found("stale" if differences else "fresh", differences=differences, newer_data=newer)


def _dates(data: str) -> list[str]:
    """The dates in "matrix 2026-11-21.2dfc09f3, index snapshot 2026-11-21+bebf9271d943"."""
    return [part.rpartition(" ")[2][:10] for part in data.split(",")]


def differing(profile: Profile, lock: Lock) -> Iterator[Difference]:
    """The inputs of a lock that are no longer the profile's."""
    was, now = dict(lock.inputs), dict(inputs(profile))
    for key in (*now, *(key for key in was if key not in now)):
        if was.get(key) != now.get(key):
            yield Difference(key=key, was=was.get(key), now=now.get(key))


def preferences(lock: Lock | None, upgrade: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """The pins of an earlier lock that a new one keeps where they fit: all but `upgrade`, none if that is empty."""
    if lock is None or upgrade == []:
        return ()
    return tuple((pin.wheel.name, pin.wheel.version) for pin in lock.pins if pin.wheel.name not in (upgrade or ()))


def compare(old: Lock | None, new: Lock) -> Comparison:
    """What changes from one lock to the next, by name."""
    before = {pin.wheel.name: pin.wheel for pin in old.pins} if old is not None else {}
    after = {pin.wheel.name: pin.wheel for pin in new.pins}
    packages, files = [], []
    for name in sorted({*before, *after}):
        was, now = before.get(name), after.get(name)
        if was is None or now is None or was.version != now.version:
            packages.append((name, was.version if was else None, now.version if now else None))
        elif (was.filename, was.url, was.sha256) != (now.filename, now.url, now.sha256):
            files.append(name)
    return Comparison(packages=tuple(packages), files=tuple(files))


# ---- which lock is for this host? -----------------------------------------------------------------------------------


def choose(
    fits: Iterable[tuple[Profile, Lock, tuple[Reason, ...]]], host: Host
) -> tuple[tuple[Profile, ...], tuple[tuple[Profile, tuple[Reason, ...]], ...]]:
    """(profiles whose locks fit the host, best first; what speaks against each of the others).

    `fits` are the profiles with their locks and what these need that the host lacks. A lock that was made for devices
    like the host's comes before one that merely serves them; else the order stays. A lock without CUDA is never taken
    for a host that has a GPU: it would run there and leave the GPU idle.
    """
    good, others = [], []
    here = {gpu.compute_capability for gpu in host.gpus}
    for profile, lock, lacks in fits:
        reasons = lacks
        if host.gpus and lock.needs.driver is None and not lacks:
            need, have = "a host without a GPU, for which it was locked", ", ".join(gpu.name for gpu in host.gpus)
            reasons = (Reason(code="cpu-lock", subject="lock", need=need, have=have),)
        if reasons:
            others.append((profile, reasons))
        else:
            good.append((_made_for(lock) != here, profile))
    return tuple(profile for _, profile in sorted(good, key=lambda row: row[0])), tuple(others)


def _made_for(lock: Lock) -> set[ComputeCapability | None]:
    return {gpu.compute_capability for gpu in lock.host.gpus}
