"""Which files with device code cannot run on the devices of a host, and what to do about them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

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
    judged = []
    for file in files:
        code = code_of(file.images, data.ptx_toolkits, every_target=True)
        reasons: tuple[Reason, ...] = ()
        if not file.fault:
            reasons = code_reasons(_subject(file), code, host)
        judged.append(JudgedFile(file=file, code=code, reasons=reasons))
    running = {
        _group(judged_file.file)
        for judged_file in judged
        if not judged_file.reasons and not judged_file.file.fault
    }
    collections = _collections(data)
    with_hints = []
    for judged_file in judged:
        optional, hint = "", ""
        if judged_file.reasons:
            optional = _optional(judged_file.file, running, collections)
            hint = _hint(judged_file, host, data)
        with_hints.append(judged_file.replace(optional=optional, hint=hint))
    return tuple(with_hints)


def _hint(judged_file: JudgedFile, host: Host, data: CompatibilityData) -> str:
    """Return what to do: a build of the data for this GPU, or what to rebuild the file for."""
    distribution = judged_file.file.owner.partition(" ")[0]
    if data.covers(distribution) or data.is_extension(distribution):
        return f"`gpuenv solve {distribution}` finds a build for this GPU"
    return _rebuild_hint(judged_file.file.path, judged_file.code, host)


def _rebuild_hint(path: str, code: Code, host: Host) -> str:
    """Return what to build a file for: "rebuild it with TORCH_CUDA_ARCH_LIST=9.0"."""
    missing = []
    for gpu in host.gpus:
        only = host.replace(gpus=(gpu,))
        if gpu.compute_capability and code_reasons(path, code, only):
            missing.append(gpu.compute_capability)
    capabilities = sorted(set(missing))
    if not capabilities:
        return "rebuild it for the devices of this host"
    if path.endswith((".cubin", ".fatbin")):
        options = [f"sm_{major}{minor}" for major, minor in capabilities]
        return f"rebuild it with nvcc -arch={' or '.join(options)}"
    return f"rebuild it with TORCH_CUDA_ARCH_LIST={';'.join(map(show_pair, capabilities))}"


def _subject(file: CodeFile) -> str:
    return f"{os.path.basename(file.path)} of {file.owner}" if file.owner else file.path


def _group(file: CodeFile) -> str:
    """Return what files belong together by: their distribution, otherwise their folder."""
    return file.owner or os.path.dirname(file.path)


def _optional(file: CodeFile, running: set[str], collections: Mapping[str, str]) -> str:
    distribution = file.owner.partition(" ")[0]
    if distribution.startswith(_OF_NVIDIA):
        return "the rules judge NVIDIA's libraries by their release"
    if distribution in collections:
        return collections[distribution]
    if _group(file) in running:
        return "other files of its distribution run"
    return ""


def _collections(data: CompatibilityData) -> dict[str, str]:
    """Return the distributions whose files serve certain devices only, with the source."""
    sources: dict[str, str] = {}
    for row in data.rule_rows("kernel_collection"):
        for name in row["distributions"]:
            sources[name] = row["source"]
    return sources


class Scan(Value):
    """What a path contains: a file, a wheel, an environment or a folder.

    `files` have device code; `read` counts all files that may have some.
    """

    path: str
    kind: str
    files: tuple[JudgedFile, ...]
    read: int
