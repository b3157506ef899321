"""What an extension needs of the packages beside it (R10), as its version or build string says.

Examples: flash_attn 2.8.3+cu12torch2.8cxx11abiTRUE, torch_scatter 2.1.2+pt28cu128, natten
0.21.0+torch280cu128, and pytorch3d with the build string py310_cu121_pyt241.
"""

from __future__ import annotations

import re

from ..model import Value
from ..requirements.versions import public, same_version

FRAMEWORK = "torch"
NAME_SOURCE = (
    "the name of the extension; Dao-AILab/flash-attention#457, #1644, #1783: with another build of"
    " torch its symbols are undefined"
)
_RELEASE = re.compile(r"(?<![a-z])((?:py)?torch|pyt|pt)[-_.]?(\d+(?:\.\d+)*)")
_CUDA = re.compile(r"(?<![a-z])cu(?:da)?[-.]?(1\d)")
_ABI = re.compile(r"cxx11abi(true|false|1|0)")


class Links(Value):
    """What the files of a release need of the packages beside it (R4, R10, R11).

    A field that is empty or None says nothing.

    Attributes:
        frameworks: (distribution, specifier) pairs: ("torch", ">=2.11,<2.13").
        cuda: the CUDA majors that it has files for. Minor versions are compatible (setup.py of
            flash-attn, which names its wheels cu122 for every CUDA 12).
        cuda_versions: the only CUDA versions ("13.0") of torch beside which it works: it compares
            major and minor when it is imported, it has a library for each, or it is older than
            CUDA 11. "none" is a CPU build of torch.
        cudnn: the cuDNN majors that it can load.
        numpy: the NumPy majors that can load it: (1,) if it is compiled against NumPy 1; () says
            nothing. None if its files were not read for that.
        cxx11_abi: the value of _GLIBCXX_USE_CXX11_ABI of the torch that it needs.
        source: where this was read.
    """

    frameworks: tuple[tuple[str, str], ...] = ()
    cuda: tuple[int, ...] = ()
    cuda_versions: tuple[str, ...] = ()
    cudnn: tuple[int, ...] = ()
    numpy: tuple[int, ...] | None = None
    cxx11_abi: bool | None = None
    source: str = ""


def release_of(version: str) -> str:
    """Return the first two numbers of a version: "2.8.0+cu128" -> "2.8"."""
    return ".".join(version.split(".")[:2])


def shown_release(specifier: str) -> str:
    """Return "2.8" for "==2.8.*"; any other specifier as it is."""
    return specifier.removeprefix("==").removesuffix(".*")


def abi_text(cxx11_abi: bool | None) -> str:
    """Return "CXX11_ABI=1" or "CXX11_ABI=0"."""
    return f"CXX11_ABI={1 if cxx11_abi else 0}"


def of_version(version: str, *, names_cuda: bool = False) -> Links | None:
    """Read the local part of a version.

    Args:
        version: the version of a distribution: "2.8.3+cu12torch2.8cxx11abiTRUE".
        names_cuda: whether a local part such as cu128 alone is about torch. It is not for
            distributions that do not use torch, such as llama-cpp-python.

    Returns:
        None if the version names no build of torch.
    """
    links = _parse(version.partition("+")[2].lower())
    if names_cuda and links.cuda and not links.frameworks:
        links = links.replace(frameworks=((FRAMEWORK, ""),))
    return links if links.frameworks else None


def may_describe_itself_as(version: str, described: str) -> bool:
    """Return whether METADATA of the wheel of a version may state another version.

    The file names of flash-attn and others add the build of torch. pip and uv accept them.
    """
    if same_version(version, described):
        return True
    return of_version(version) is not None and same_version(public(version), described)


def of_url(url: str) -> Links:
    """Read the URL of a file: "https://download.openmmlab.com/mmcv/dist/cu121/torch2.4.0/..."."""
    return _parse(url.lower()).replace(source=url)


def of_build_string(build: str) -> Links | None:
    """Read a conda build string: "py312_torch_2.4.0_cu121". None if it names no build of torch."""
    links = _parse(build.lower())
    return links if links.frameworks else None


def _parse(text: str) -> Links:
    found, cuda, abi = _RELEASE.search(text), _CUDA.search(text), _ABI.search(text)
    release = _release(found[1], found[2]) if found else ""
    return Links(
        frameworks=((FRAMEWORK, f"=={release}.*"),) if release else (),
        cuda=(int(cuda[1]),) if cuda else (),
        cxx11_abi=abi[1] in ("true", "1") if abi else None,
        source=NAME_SOURCE,
    )


def _release(word: str, digits: str) -> str:
    """Return "2.10" for pt210, torch2.10, torch2.10.0 and torch2100; "" for one number."""
    if "." in digits:
        numbers = digits.split(".")
    elif word == "pt" or len(digits) == 2:
        numbers = [digits[0], digits[1:]]
    else:  # three numbers, of which the first and the last have one digit
        numbers = [digits[0], digits[1:-1]]
    return ".".join(numbers[:2]) if numbers[1] else ""
