"""Hosts that differ from a given host in one thing, nearest first, to find what would help."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Host, Python, Value, reaches_release, show_pair
from ..requirements.target import PYTHONS
from .architectures import driver_branch
from .data import CompatibilityData


class ChangedHost(Value):
    """A host after one change, and the text of that change."""

    change: str
    host: Host


def drivers(host: Host, data: CompatibilityData) -> tuple[ChangedHost, ...]:
    """Return the newer driver releases that allow more than the host's, oldest first.

    Each release allows all that an earlier one does, so the last one tells whether any helps. If
    the driver dropped the GPU, the only answer is the last branch that supports it. () if the
    driver is not known.
    """
    if not host.gpus or host.driver is None:
        return ()
    # The newest branch that supports all GPUs; None if no branch dropped any.
    dropped = [data.last_branches.get(gpu.compute_capability or (0, 0)) for gpu in host.gpus]
    last_branch = min((branch for branch, _ in filter(None, dropped)), default=None)
    newest = data.newest_branch() if last_branch is None else last_branch
    releases = [
        release for release in data.driver_steps(host.os) if driver_branch(release) <= newest
    ]
    changes = {}
    if last_branch is not None and driver_branch(host.driver) > last_branch:
        for release in releases[-1:]:
            changes[release] = f"a driver of branch R{last_branch}, the last one for this GPU"
    else:
        for release in releases:
            if not reaches_release(host.driver, release):
                changes[release] = f"driver {release} or newer"
                if release.endswith(".00"):
                    changes[release] = f"a driver of branch R{driver_branch(release)} or newer"
    return tuple(
        ChangedHost(
            change=change, host=host.replace(driver=release, driver_cuda=data.driver_cuda(release))
        )
        for release, change in changes.items()
    )


def pythons(host: Host) -> Iterator[ChangedHost]:
    """Yield other interpreters: without free threading, then the nearest minor releases."""
    current = host.python
    if current.free_threaded:
        change = f"Python {show_pair(current.version)}, not free-threaded"
        yield ChangedHost(change=change, host=host.replace(python=Python(version=current.version)))

    def distance(version: tuple[int, int]) -> tuple[int, tuple[int, int]]:
        return abs(version[1] - current.version[1]), version

    for version in sorted(PYTHONS, key=distance):
        if version != current.version:
            changed = host.replace(python=Python(version=version))
            yield ChangedHost(change=f"Python {show_pair(version)}", host=changed)


def linux_on_windows(host: Host) -> Iterator[ChangedHost]:
    """Yield, for a Windows host, the Linux that runs on it and uses its driver."""
    if host.os == "windows":
        changed = host.replace(os="linux", virtualization="wsl2")
        yield ChangedHost(change="Linux in WSL 2 (--platform linux-x86_64)", host=changed)


def fewer_gpus(host: Host) -> Iterator[ChangedHost]:
    """Yield, for a host with different GPUs, the GPUs of one compute capability alone."""
    capabilities = dict.fromkeys(host.capabilities)
    if len(capabilities) < 2:
        return
    for capability in capabilities:
        kept = tuple(gpu for gpu in host.gpus if gpu.compute_capability == capability)
        names = " and ".join(dict.fromkeys(gpu.name for gpu in kept))
        change = f"only the {names} (CUDA_VISIBLE_DEVICES)"
        yield ChangedHost(change=change, host=host.replace(gpus=kept))


def without_gpu(host: Host) -> ChangedHost:
    """Return the same host with its GPU not used."""
    changed = host.replace(gpus=(), driver=None, driver_cuda=None)
    return ChangedHost(change="without the GPU (--gpu none)", host=changed)
