"""What an extension of PyTorch was built for, as its version or conda build string says (R10).

Examples: flash_attn 2.8.3+cu12torch2.8cxx11abiTRUE, torch_scatter 2.1.2+pt28cu128, natten
0.21.0+torch280cu128, and pytorch3d with the build string py310_cu121_pyt241.
"""

from __future__ import annotations

import re

from ..model import Value

FRAMEWORK = "torch"
_RELEASE = re.compile(r"(?<![a-z])((?:py)?torch|pyt|pt)[_.]?(\d+(?:\.\d+)*)")
_CUDA = re.compile(r"(?<![a-z])cu(?:da)?(1\d)")
_ABI = re.compile(r"cxx11abi(true|false|1|0)")


class BuiltFor(Value):
    """The build of torch that an extension needs. "" and None: its name does not say.

    `release` is the first two numbers of torch's release: "2.8". `cxx11_abi` is the value of
    _GLIBCXX_USE_CXX11_ABI. Of the CUDA version only the major counts: minor versions are compatible
    (setup.py of flash-attn, which names its wheels cu122 for every CUDA 12), and torchvision and
    torch_scatter compare only the major when they are imported.
    """

    release: str = ""
    cuda_major: int | None = None
    cxx11_abi: bool | None = None


def release_of(version: str) -> str:
    """Return the first two numbers of a version of torch: "2.8.0+cu128" -> "2.8"."""
    return ".".join(version.split(".")[:2])


def abi_text(cxx11_abi: bool | None) -> str:
    """Return "CXX11_ABI=1" or "CXX11_ABI=0"."""
    return f"CXX11_ABI={1 if cxx11_abi else 0}"


def of_version(version: str, *, names_cuda: bool = False) -> BuiltFor | None:
    """Read the local part of a version.

    Args:
        version: the version of a distribution: "2.8.3+cu12torch2.8cxx11abiTRUE".
        names_cuda: whether a local part such as cu128 alone is about torch. It is not for
            distributions that do not use torch, such as llama-cpp-python.

    Returns:
        None if the version names no build of torch.
    """
    built_for = _parse(version.partition("+")[2].lower())
    names_torch = built_for != BuiltFor() if names_cuda else built_for.release
    return built_for if names_torch else None


def of_build_string(build: str) -> BuiltFor | None:
    """Read a conda build string: "py312_torch_2.4.0_cu121". None if it names no build of torch."""
    built_for = _parse(build.lower())
    return built_for if built_for.release else None


def _parse(text: str) -> BuiltFor:
    release = _RELEASE.search(text)
    cuda = _CUDA.search(text)
    abi = _ABI.search(text)
    return BuiltFor(
        release=_release(release[1], release[2]) if release else "",
        cuda_major=int(cuda[1]) if cuda else None,
        cxx11_abi=abi[1] in ("true", "1") if abi else None,
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
