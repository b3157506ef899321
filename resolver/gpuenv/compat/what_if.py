"""Hosts that differ from a given one in one thing, nearest first: what "which change would help" is asked of."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Gpu, Host, Python, Value, parse_release, show_pair
from .architectures import TEGRA, driver_branch
from .data import CompatibilityData

PYTHONS = ((3, 9), (3, 10), (3, 11), (3, 12), (3, 13), (3, 14), (3, 15))
NAMED = 3  # GPUs that stand for a compute capability


class Elsewhere(Value):
    """One change of a host: what it is called, and the host then."""

    change: str
    host: Host


def drivers(host: Host, matrix: CompatibilityData) -> tuple[Elsewhere, ...]:
    """Newer driver releases that allow more than the host's, oldest first; of a GPU that the driver dropped its last.

    Each allows all that an earlier one does: the last tells whether any helps. () where no driver is known.
    """
    if not host.gpus or host.driver is None:
        return ()
    capabilities = [gpu.compute_capability for gpu in host.gpus if gpu.compute_capability is not None]
    drops = [drop[0] for one in capabilities if (drop := matrix.last_branch(one)) is not None]
    last = min(drops, default=matrix.newest_branch())
    releases = [release for release in matrix.driver_steps(host.os) if driver_branch(release) <= last]
    now = parse_release(host.driver)
    if drops and driver_branch(host.driver) > last:
        what = f"a driver of branch R{last}, the last one for this GPU"
        return (Elsewhere(change=what, host=_with_driver(host, releases[-1], matrix)),) if releases else ()
    newer = [release for release in releases if parse_release(release) > now]
    return tuple(Elsewhere(change=_newer(release), host=_with_driver(host, release, matrix)) for release in newer)


def _newer(release: str) -> str:
    if release.endswith(".00"):
        return f"a driver of branch R{driver_branch(release)} or newer"
    return f"driver {release} or newer"


def _with_driver(host: Host, release: str, matrix: CompatibilityData) -> Host:
    return host.replace(driver=release, driver_cuda=matrix.driver_cuda(release))


def pythons(host: Host) -> Iterator[Elsewhere]:
    """Other interpreters: the same without free threading, then the nearest minor releases."""
    mine = host.python
    if mine.free_threaded:
        text = f"Python {show_pair(mine.version)}, not free-threaded"
        yield Elsewhere(change=text, host=host.replace(python=Python(version=mine.version)))
    for version in sorted(PYTHONS, key=lambda version: (abs(version[1] - mine.version[1]), version)):
        if version != mine.version:
            changed = host.replace(python=Python(version=version))
            yield Elsewhere(change=f"Python {show_pair(version)}", host=changed)


def fewer_gpus(host: Host) -> Iterator[Elsewhere]:
    """Of a host with different GPUs those of one compute capability alone."""
    kinds = dict.fromkeys(gpu.compute_capability for gpu in host.gpus)
    for kind in kinds if len(kinds) > 1 else ():
        gpus = tuple(gpu for gpu in host.gpus if gpu.compute_capability == kind)
        names = " and ".join(dict.fromkeys(gpu.name for gpu in gpus))
        yield Elsewhere(change=f"only the {names} (CUDA_VISIBLE_DEVICES)", host=host.replace(gpus=gpus))


def gpus(host: Host, matrix: CompatibilityData) -> Iterator[Elsewhere]:
    """One GPU of another compute capability that the driver drives: the next newer ones, then the next older ones."""
    mine = [gpu.compute_capability for gpu in host.gpus if gpu.compute_capability is not None]
    known = [one for one in matrix.capabilities() if one not in TEGRA and _drives(host, one, matrix)]
    newer = [one for one in known if not mine or one > max(mine)]
    older = [one for one in known if mine and one < min(mine)]
    for capability in (*newer, *reversed(older)):
        names = [name for name in matrix.gpu_names() if matrix.compute_capability(name) == capability][:NAMED]
        if names:
            text = f"a GPU of compute capability {show_pair(capability)} ({', '.join(names)})"
            gpu = Gpu(name=names[0], compute_capability=capability)
            yield Elsewhere(change=text, host=host.replace(gpus=(gpu,), problems=()))


def _drives(host: Host, capability: tuple[int, int], matrix: CompatibilityData) -> bool:
    last, first = matrix.last_branch(capability), matrix.first_cuda(capability)
    if host.driver is None:
        return last is None  # nobody buys a GPU that today's drivers have dropped
    known = first is None or host.driver_cuda is None or first <= host.driver_cuda
    return known and (last is None or driver_branch(host.driver) <= last[0])


def without_gpu(host: Host) -> Elsewhere:
    """The same host, its GPU left alone."""
    return Elsewhere(change="without the GPU (--gpu none)", host=host.replace(gpus=(), driver=None, driver_cuda=None))
