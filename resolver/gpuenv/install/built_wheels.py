"""Wheels that are built here of the source distributions of a lock.

The lock names the source distribution with its hash. Its wheel is built with the interpreter of the
environment, or of the lock, and takes its place.
"""

from __future__ import annotations

import os
import sys

from .. import activity
from ..errors import InputError, InstallError
from ..index.cache import Cache
from ..index.default_index import default_index
from ..index.urls import file_url_to_path, path_to_file_url
from ..interpreters import required_release
from ..model import IndexOptions, Lock, Wheel
from ..requirements.target import TargetEnvironment
from .fetch import fetch, sha256_of


def with_built_wheels(lock: Lock, python: str | None, folder: str, options: IndexOptions) -> Lock:
    """Return a lock with wheels that are built from its source distributions.

    Args:
        lock: The lock.
        python: The interpreter to build with; None is one of the lock's Python.
        folder: A folder for the source distributions.
        options: Where build requirements come from.

    Raises:
        InstallError: One cannot be downloaded or built. The end of the output of its build is
            announced before.
    """
    if all(pin.wheel.filename.endswith(".whl") for pin in lock.pins):
        return lock
    from ..index.http import Transport
    from ..index.source_builds import BuildFailedError, SourceBuilder

    cache = Cache()
    default = default_index(cache)
    builder = SourceBuilder(
        python or required_release(lock) or sys.executable,
        options,
        default_index=default.url,
        cert=default.cert,
        folder=cache.folder,
    )
    pins = []
    for pin in lock.pins:
        sdist = pin.wheel
        if sdist.filename.endswith(".whl"):
            pins.append(pin)
            continue
        archive = os.path.join(folder, sdist.filename)
        if sdist.url.startswith("file:"):
            archive = file_url_to_path(sdist.url)
        elif builder.kept_wheel(sdist) is None and not os.path.exists(archive):
            with Transport(cert=default.cert) as transport:
                fetch(sdist, archive, transport)
        dependents = [other.wheel.name for other in lock.pins if sdist.name in other.dependencies]
        dependent = " and ".join(dependents) or "the request"
        try:
            path = builder.wheel(sdist, archive, f"no wheel fits; it is for {dependent}")
        except BuildFailedError as error:
            if error.output:
                activity.current.announce(f"the end of the output of the build:\n{error.output}")
            reason = error.reason
            message = f"{reason.subject}, for {dependent}, cannot be built: it needs {reason.need}"
            raise InstallError(f"{message}; found {reason.have}") from None
        pins.append(pin.replace(wheel=_wheel_at(path, sdist)))
    return lock.replace(pins=tuple(pins))


def _wheel_at(path: str, sdist: Wheel) -> Wheel:
    return sdist.replace(
        filename=os.path.basename(path),
        url=path_to_file_url(path),
        sha256=sha256_of(path),
        size=os.path.getsize(path),
        index="",
    )


def check_fits(lock: Lock) -> None:
    """Raise InputError if a wheel of a lock, such as one built here, is for another host."""
    environment = TargetEnvironment(lock.host)
    for pin in lock.pins:
        filename = pin.wheel.filename
        if filename.endswith(".whl") and environment.rank(filename) is None:
            raise InputError(
                f"{filename} was built on this machine, and the lock is for another one",
                hint="run gpuenv download on a machine with the platform and Python of the lock",
            )
