"""Which files with device code cannot run on the devices of a host, and what to do about them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..compat.data import CompatibilityData
from ..compat.evaluate import code_reasons
from ..errors import Reason, is_doubt
from ..model import Code, Host, Value, show_pair
from .device_code import code_of
from .environment import CodeFile

_OF_NVIDIA = "nvidia-"


class JudgedFile(Value):
    """A file with device code, on a host.

    Attributes:
        file: the file.
        code: the targets of its device code.
        reasons: what speaks against it; () if it runs on every device.
        optional: why its distribution may work without it, or "": the libraries of NVIDIA, which
            the rules judge by their release; collections of kernels for certain devices; and
            libraries beside others of their distribution that run.
        hint: what to do about it; "" if it runs on every device.
    """

    file: CodeFile
    code: Code
    reasons: tuple[Reason, ...] = ()
    optional: str = ""
    hint: str = ""

    @property
    def fails(self) -> bool:
        """Whether a program that uses the file fails on a device."""
        return not self.optional and not all(map(is_doubt, self.reasons))


def judge(files: Iterable[CodeFile], host: Host, data: CompatibilityData) -> tuple[JudgedFile, ...]:
    """Apply R2 to files with device code.

    A target counts if any fat binary of a file has it, because a library may have kernels for
    certain devices beside those for all.

    Args:
        files: files of one folder, environment or wheel.
        host: its devices and the CUDA version of its driver count.
        data: the compatibility data.
    """
    # Distributions whose files serve certain devices only, with the source.
    collections = {
        name: row.source
        for row in data.rule_rows("kernel_collection")
        for name in row.distributions
    }
    rows: list[tuple[CodeFile, Code, tuple[Reason, ...]]] = []
    for file in files:
        code = code_of(file.images, data.ptx_toolkits, every_target=True)
        subject = f"{os.path.basename(file.path)} of {file.owner}" if file.owner else file.path
        rows.append((file, code, () if file.fault else code_reasons(subject, code, host)))
    running = {_group(file) for file, _, reasons in rows if not (reasons or file.fault)}
    judged = []
    for file, code, reasons in rows:
        distribution, optional, hint = file.owner.partition(" ")[0], "", ""
        if reasons:
            if distribution.startswith(_OF_NVIDIA):
                optional = "the rules judge NVIDIA's libraries by their release"
            elif distribution in collections:
                optional = collections[distribution]
            elif _group(file) in running:
                optional = "other files of its distribution run"
            hint = _rebuild_hint(file.path, code, host)
            if data.covers(distribution) or data.is_extension(distribution):
                hint = f"`gpuenv solve {distribution}` finds a build for this GPU"
        row = JudgedFile(file=file, code=code, reasons=reasons, optional=optional, hint=hint)
        judged.append(row)
    return tuple(judged)


def _group(file: CodeFile) -> str:
    """Return what files belong together by: their distribution, otherwise their folder."""
    return file.owner or os.path.dirname(file.path)


def _rebuild_hint(path: str, code: Code, host: Host) -> str:
    """Return what to build a file for: "rebuild it with TORCH_CUDA_ARCH_LIST=9.0"."""
    capabilities = sorted(
        {
            gpu.compute_capability
            for gpu in host.gpus
            if gpu.compute_capability and code_reasons(path, code, host.replace(gpus=(gpu,)))
        }
    )
    if not capabilities:
        return "rebuild it for the devices of this host"
    if path.endswith((".cubin", ".fatbin")):
        options = [f"sm_{major}{minor}" for major, minor in capabilities]
        return f"rebuild it with nvcc -arch={' or '.join(options)}"
    return f"rebuild it with TORCH_CUDA_ARCH_LIST={';'.join(map(show_pair, capabilities))}"


class Scan(Value):
    """What a path contains: a file, a wheel, an environment or a folder.

    `files` have device code; `read` counts all files that may have some.
    """

    path: str
    kind: str
    files: tuple[JudgedFile, ...]
    read: int
