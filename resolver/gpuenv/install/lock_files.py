"""The files of a lock: downloaded, built of source distributions, and named for uv and pip."""

from __future__ import annotations

import os
import sys

from .. import activity
from ..errors import InputError, InstallError, PackageIndexError
from ..index.http import OK, PARTIAL, Transport
from ..index.source_builds import Beside, BuildFailedError, SourceBuilder
from ..index.source_trees import folder_of
from ..index.urls import file_url_to_path, path_to_file_url, redact_url
from ..interpreters import required_python
from ..model import IndexOptions, Lock, Wheel
from ..prefix import prefix_of
from ..requirements.source_urls import is_editable, is_tree
from ..requirements.target import TargetEnvironment, identify, split_label
from ..serialize import file_digest
from .bundle import copy_file, file_name, is_in_bundle
from .extensions import beside, built_with, require_device_code


def fetch(wheel: Wheel, path: str, transport: Transport, *, offline: bool) -> None:
    """Download a file of a lock to a path. A download that was interrupted continues.

    InstallError if its sha256 differs, on failure, or offline if it is not on this machine.
    """
    if offline and not wheel.is_local:
        raise missing_offline(wheel)
    folder, name = os.path.split(path)
    partial = os.path.join(folder, f".{name}.{(wheel.sha256 or '')[:16]}.part")
    release = f"{wheel.name} {wheel.version}"
    subject = f"{release} from {redact_url(wheel.url)}"
    try:
        if wheel.is_local:
            copy_file(wheel.url, partial)
            digest = file_digest(partial)
        else:
            with open(partial, "a+b") as file:
                reply, digest = transport.download(wheel.url, release, file, wheel.size)
            if reply.status not in (OK, PARTIAL):
                os.unlink(partial)
                raise InstallError(f"{subject}: the server answered with status {reply.status}")
    except PackageIndexError as error:
        raise InstallError(error.message, hint="run the command again: it continues") from None
    except OSError as error:
        raise InstallError(f"{subject}: cannot be written: {error.strerror}") from None
    if digest != wheel.sha256:
        os.unlink(partial)
        message = f"{subject} has the wrong hash: the lock says sha256 {wheel.sha256}"
        raise InstallError(f"{message}, the file has {digest}")
    os.replace(partial, path)


def missing_offline(wheel: Wheel) -> InstallError:
    """Return the error of a file that --offline cannot get."""
    release = f"{wheel.name} {wheel.version}"
    message = f"{file_name(wheel)} of {release} is in no --find-links folder, and --offline is on"
    return InstallError(message, hint=f"gpuenv download gets it: {redact_url(wheel.url)}")


def installable(lock: Lock, python: str, folder: str, builds: IndexOptions) -> Lock:
    """Return a lock of files that uv and pip can install.

    Source distributions are built. Files in bundles and variant wheels are copied to a folder. pip
    and uv refuse a file name with a variant label (PEP 825), uv also a variant whose provider it
    does not know. The content of a variant wheel is that of any other wheel, so it gets an ordinary
    name.

    Args:
        lock: The lock.
        python: The interpreter to build with.
        folder: A folder for the files.
        builds: Where the build requirements of source distributions come from.

    Raises:
        InstallError: A file cannot be built or fetched.
    """
    pins = []
    for pin in with_built_wheels(lock, python, folder, builds).pins:
        wheel = pin.wheel
        name, label = split_label(file_name(wheel))
        if label or is_in_bundle(wheel.url):
            path = os.path.join(folder, name)
            with Transport() as transport:
                fetch(wheel, path, transport, offline=builds.offline)
            # A file that is locked by its URL has the label in its file name.
            filename = split_label(wheel.filename)[0]
            wheel = wheel.replace(filename=filename, url=path_to_file_url(path), index="")
        pins.append(pin.replace(wheel=wheel))
    return lock.replace(pins=tuple(pins))


def with_built_wheels(lock: Lock, python: str | None, folder: str, options: IndexOptions) -> Lock:
    """Return a lock with wheels that are built from its source distributions.

    The lock names the source distribution with its hash. Its wheel takes its place.

    Args:
        lock: The lock.
        python: The interpreter of the environment; None is any one of the lock's Python. What is
            compiled for a package of the environment then stays a source distribution.
        folder: A folder for the source distributions.
        options: Where build requirements come from.

    Raises:
        InstallError: One cannot be downloaded or built. The end of the output of its build is
            announced before.
    """
    if not any(pin.wheel.is_sdist for pin in lock.pins):
        return lock
    wanted = python or required_python(lock) or sys.executable
    settings = dict.fromkeys(row for pin in lock.pins for row in pin.build_settings)
    options = options.replace(build_settings=(*options.build_settings, *settings))
    builder = SourceBuilder(wanted, options)
    pins = []
    for pin in lock.pins:
        sdist = pin.wheel
        if not pin.wheel.is_sdist:
            pins.append(pin)
            continue
        package = built_with(pin)
        if package and python is None:
            activity.current.announce(
                f"{sdist.name} {sdist.version} is compiled for {package} when it is installed"
            )
            pins.append(pin)
            continue
        place = beside(lock, pin, prefix_of(python)) if package and python else None
        archive = _archive_of(sdist, place, folder, builder, offline=options.offline)
        dependents = [other.wheel.name for other in lock.pins if sdist.name in other.dependencies]
        dependent = " and ".join(dependents) or "the request"
        why = "it is a source tree" if is_tree(sdist.url) else "no wheel fits"
        why = f"{why}; it is compiled for {package}" if package else f"{why}; it is for {dependent}"
        try:
            path = builder.wheel(sdist, archive, why, place)
            require_device_code(lock, pin, path)
        except BuildFailedError as error:
            raise _not_built(error, dependent, "" if place is None else place.hint) from None
        built = identify(os.path.basename(path)) if is_editable(sdist) else None
        wheel = sdist.replace(
            filename=os.path.basename(path),
            version=sdist.version if built is None else built[1],
            url=path_to_file_url(path),
            sha256=file_digest(path),
            size=os.path.getsize(path),
            index="",
        )
        pins.append(pin.replace(wheel=wheel))
    return lock.replace(pins=tuple(pins))


def _archive_of(
    sdist: Wheel, place: Beside | None, folder: str, builder: SourceBuilder, *, offline: bool
) -> str:
    """Return the archive or the tree of a source distribution.

    An archive is downloaded to the folder, unless its wheel was kept.
    """
    if is_tree(sdist.url):
        return folder_of(sdist.url, offline=offline)
    if sdist.is_local and not is_in_bundle(sdist.url):
        return file_url_to_path(sdist.url)
    archive = os.path.join(folder, sdist.filename)
    if builder.kept_wheel(sdist, place) is None and not os.path.exists(archive):
        with Transport() as transport:
            fetch(sdist, archive, transport, offline=offline)
    return archive


def _not_built(error: BuildFailedError, dependent: str, hint: str) -> InstallError:
    """Return the error of a build, the end of whose output is announced."""
    if error.output:
        activity.current.announce(f"the end of the output of the build:\n{error.output}")
    reason = error.reason
    message = f"{reason.subject}, for {dependent}, cannot be built: it needs {reason.need}"
    return InstallError(f"{message}; found {reason.have}", hint=hint)


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
