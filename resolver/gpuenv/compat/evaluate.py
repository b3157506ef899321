"""What speaks against one release on one host: the rules asked of what the data knows of it.

The solver asks it of every candidate, `survival` of pins that anybody chose. The answers are by the host fact that they
are about ("__driver", "__sm", "__data"), which are nodes of the solver's graph; complete, never just the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Reason
from ..model import Build, Code, CudaVersion, Host, Library, Needs, parse_release
from ..protocols import Matrix
from . import rules

Facts = dict[str, tuple[Reason, ...]]


def of_build(subject: str, build: Build | None, host: Host, matrix: Matrix, *, on_path: bool) -> Facts:
    """R1 and R2 for a framework's build or a companion's; `on_path` says that a convolution runs its code.

    None is a release that the data does not know. Codes: those of the rules, build-unknown, cpu-build. A host without a
    GPU has nothing against any build.
    """
    if not host.gpus:
        return {}
    if build is None:
        return unknown("build-unknown", subject)
    if build.cuda is None:
        source = build.code.source
        reason = Reason(code="cpu-build", subject=subject, need="a CUDA build", have="a CPU build", source=source)
        return {"__sm": (reason,)}
    floor = matrix.driver_floor(build.cuda, host.os)
    return {
        "__driver": rules.driver_reasons(subject, build.cuda, host.driver, floor),
        "__sm": rules.device_reasons(subject, build.code, host.gpus, host.driver_cuda) if on_path else (),
    }


def of_library(subject: str, library: Library | None, host: Host, matrix: Matrix) -> Facts:
    """R2 for a CUDA library, and R1 where it is a framework's own, whose toolkit is known. Codes: library-unknown too.

    Of other libraries the environment's driver floor is that of the frameworks' builds.
    """
    if library is None:
        return unknown("library-unknown", subject)
    if not host.gpus:
        return {}
    facts: Facts = {"__sm": rules.device_reasons(subject, library.code, host.gpus, host.driver_cuda)}
    if library.cuda is not None:
        floor = matrix.driver_floor(library.cuda, host.os)
        facts["__driver"] = rules.driver_reasons(subject, library.cuda, host.driver, floor)
    return facts


def unknown(code: str, subject: str) -> Facts:
    """That the data has no row of a release."""
    need, have = "a release that the data knows", "not in the compatibility data"
    return {"__data": (Reason(code=code, subject=subject, need=need, have=have),)}


def known_bad(name: str, version: str, host: Host, matrix: Matrix) -> tuple[Reason, ...]:
    """Whether a release is known to be bad, everywhere or on the host's devices. Codes: known-broken, known-avoid."""
    found = matrix.bad(name, version, (gpu.compute_capability for gpu in host.gpus if gpu.compute_capability))
    if found is None:
        return ()
    severity, text, source = found
    subject, need = f"{name} {version}", "a release that is not known to be bad"
    return (Reason(code=f"known-{severity}", subject=subject, need=need, have=text, source=source),)


def needs_of_gpus(
    needs: Needs, toolkits: Sequence[CudaVersion], codes: Sequence[Code], host: Host, matrix: Matrix
) -> Needs:
    """What a plan needs of a GPU host beside `needs`: the driver floor of its newest toolkit (R1), the devices that all
    of its libraries serve (R2, R3). `toolkits` are the CUDA versions in it, one at least.
    """
    rows = [matrix.driver_floor(cuda, host.os) for cuda in toolkits]
    floors = [row[0] for row in rows if row is not None]
    # A lock may go to any host with a driver of the floor: PTX counts only where a device here lives by it, and then
    # the driver that compiles it here becomes the floor.
    mine = [gpu.compute_capability for gpu in host.gpus if gpu.compute_capability is not None]
    by_ptx = any(rules.serves_all(codes, one, host.driver_cuda) == "ptx" for one in mine)
    good = ("sass", "ptx") if by_ptx else ("sass",)
    if by_ptx and host.driver is not None:
        floors.append(host.driver)
    served = [one for one in matrix.capabilities() if rules.serves_all(codes, one, host.driver_cuda) in good]
    # Devices that were let pass with a warning, their code being unknown, are what the lock was made for.
    served += [one for one in mine if one not in served]
    return needs.replace(
        driver=max(floors, key=parse_release, default=None),
        compute_capabilities=tuple(sorted(set(served))),
        cuda=max(toolkits),
    )


def is_doubt(reason: Reason) -> bool:
    """Whether a reason says that the facts do not decide, or is a warning, rather than that something fails."""
    return reason.code.endswith("-unknown") or reason.code in ("known-avoid", "gpu-unused")
