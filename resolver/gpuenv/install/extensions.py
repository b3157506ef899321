"""Packages that compile code for a framework: what their builds need, and what must hold after.

Their lock names a source distribution, and the package that must be installed before its build
(`built-with`). `sync` builds it beside the new environment when that has all wheels, for the
devices of the lock. Compilers are looked for before anything is written.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable

from ..binaries.served import judge
from ..binaries.wheel import scan_wheel
from ..compat.data import compatibility_data
from ..compat.evaluate import serves
from ..distributions import read_distributions
from ..errors import InstallError
from ..index.source_builds import Beside
from ..index.source_trees import folder_of, project_digest
from ..model import Code, CudaVersion, Lock, Pin, Value, parse_pair, show_pair
from ..prefix import sites
from ..requirements.source_urls import is_editable

_WHEELS_FROM = 13  # the first CUDA major whose wheels of nvidia-cuda-nvcc have all of a compiler
_INSTALL_TOOLKIT = "install the CUDA toolkit {cuda}, or set CUDA_HOME to one"
_PLACES = ("/usr/local/cuda-{cuda}", "/usr/local/cuda", "/opt/cuda")
_GIB_OF_A_JOB = 4  # nvcc needs that much for the larger kernels of flash-attn
Pair = tuple[int, int]
_RELEASE = re.compile(r"release (\d+)\.(\d+)")


class Toolkit(Value):
    """A CUDA toolkit of this host."""

    home: str
    cuda: CudaVersion


def built_with(pin: Pin) -> str:
    """Return the package that a pin must be built with; "" for wheels and isolated builds.

    Locks of other tools do not say it.
    """
    if not pin.wheel.is_sdist:
        return ""
    row = compatibility_data().compiled_against(pin.wheel.name, pin.wheel.version)
    return pin.built_with or ("" if row is None else str(row.value))


def label(lock: Lock, pin: Pin, prefix: str) -> str:
    """Return what the wheel of a pin depends on: "torch-2.15.0-cuda-13.2-for-9.0"; "" if nothing.

    An environment records it: a package that was compiled for another release is built again, and
    so is an editable install whose project files have changed.

    Args:
        lock: the lock, or a part of it.
        pin: the package.
        prefix: the environment, which has the framework if the part of the lock has not.
    """
    own = project_digest(folder_of(pin.wheel.url)) if is_editable(pin.wheel) else ""
    name = built_with(pin)
    if not name:
        return own
    versions = [other.wheel.version for other in lock.pins if other.wheel.name == name]
    if not versions:
        versions = [row.version for row in read_distributions(sites(prefix)) if row.name == name]
    parts = [name, *versions]
    cuda = _cuda(lock, name)
    if cuda is not None:
        capabilities = _capabilities(lock)
        parts += ["cuda", show_pair(cuda), "for", *map(show_pair, capabilities)]
    return "-".join(filter(None, [*parts, own]))


def require_compilers(lock: Lock, pins: Iterable[Pin]) -> None:
    """Raise InstallError if this host lacks what the builds of some packages need."""
    for pin in pins:
        name, wheel = built_with(pin), pin.wheel
        if not name:
            continue
        cuda, problem = _cuda(lock, name), ""
        names = os.environ.get("CXX", "").split()[:1] or ["c++", "g++", "clang++", "cl"]
        if not any(map(shutil.which, names)):
            problem, hint = "a C++ compiler", "install g++"
        elif cuda is not None and cuda[0] < _WHEELS_FROM and _toolkit(cuda) is None:
            problem = f"nvcc of CUDA {cuda[0]}, as {name} has"
            hint = _INSTALL_TOOLKIT.format(cuda=show_pair(cuda))
        if problem:
            message = f"{wheel.name} {wheel.version} is compiled for {name}: this needs {problem}"
            kits = _toolkits(cuda) if "nvcc" in problem else []
            found = ", ".join(f"{kit.home} has {show_pair(kit.cuda)}" for kit in kits)
            raise InstallError(f"{message}; found {found or 'none'}", hint=hint)


def beside(lock: Lock, pin: Pin, prefix: str) -> Beside:
    """Return how a package is built beside the environment at `prefix`."""
    name, data = built_with(pin), compatibility_data()
    row = data.compiled_against(pin.wheel.name, pin.wheel.version)
    requires = () if row is None else row.requires
    if row is None and data.framework(name) is not None:
        requires = ("ninja", "packaging", "wheel")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") >> 30
    jobs = max(1, min(os.cpu_count() or 1, memory // _GIB_OF_A_JOB))
    variables = {"MAX_JOBS": os.environ.get("MAX_JOBS", str(jobs))}
    cuda, capabilities, hint = _cuda(lock, name), _capabilities(lock), ""
    if cuda is not None:
        toolkit = _toolkit(cuda)
        if toolkit is not None:
            variables["CUDA_HOME"] = toolkit.home
        else:
            release = f"=={show_pair(cuda)}.*"
            hint = (
                f"no CUDA {cuda[0]} toolkit is here, so nvcc comes from wheels; if they do not"
                f" suffice, {_INSTALL_TOOLKIT.format(cuda=show_pair(cuda))}"
            )
            requires = (*requires, f"nvidia-cuda-nvcc{release}", f"nvidia-cuda-cccl{release}")
        variables["TORCH_CUDA_ARCH_LIST"] = ";".join(map(show_pair, capabilities))
        variables["FORCE_CUDA"] = "1"  # a host that builds need not have a GPU
    if row is not None:
        compiled = [parse_pair(text) for text in row.capabilities]
        served = [_served(capability, compiled) for capability in capabilities]
        numbers = ";".join(sorted({f"{major}{minor}" for major, minor in served}, key=int))
        for text in row.variables:
            key, _, value = text.partition("=")
            variables[key] = value.format(numbers=numbers)
    return Beside(
        package=name,
        folders=tuple(sites(prefix)),
        label=label(lock, pin, prefix),
        requires=requires,
        variables=tuple(variables.items()),
        hint=hint,
    )


def require_device_code(lock: Lock, pin: Pin, wheel: str) -> None:
    """Raise InstallError if a wheel that was built here has no code for a device of the lock (R2).

    Args:
        lock: the lock.
        pin: the package.
        wheel: the path of its wheel.
    """
    if _cuda(lock, built_with(pin)) is None:
        return
    for file in judge(scan_wheel(wheel).files, lock.host, compatibility_data()):
        if file.fails:
            reason = file.reasons[0]
            message = f"{pin.wheel.name} {pin.wheel.version} was built without code for"
            raise InstallError(f"{message} {reason.need}: {file.file.path}", hint=file.hint)


def _cuda(lock: Lock, name: str) -> CudaVersion | None:
    """Return the CUDA version of the framework in a lock; None for a CPU build."""
    for choice in lock.choices:
        framework = compatibility_data().framework(choice.framework)
        if framework is not None and framework.distribution == name:
            return choice.cuda
    return None


def _capabilities(lock: Lock) -> list[Pair]:
    return sorted(set(filter(None, lock.host.capabilities)))


def _served(capability: Pair, compiled: Iterable[Pair]) -> Pair:
    """Return the newest target of a project whose code runs on a device; itself without one."""
    return max(
        (one for one in compiled if serves(Code(sass=(f"{one[0]}{one[1]}",)), capability)),
        default=capability,
    )


def _toolkit(cuda: CudaVersion) -> Toolkit | None:
    """Return the toolkit to compile with: of the same major, the same minor before others.

    torch.utils.cpp_extension refuses another major and accepts another minor.
    """
    fitting = [kit for kit in _toolkits(cuda) if kit.cuda[0] == cuda[0]]
    return next((kit for kit in fitting if kit.cuda == cuda), next(iter(fitting), None))


def _toolkits(cuda: CudaVersion | None) -> list[Toolkit]:
    """Return the toolkits of this host. CUDA_HOME excludes others: the user chose it."""
    chosen = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    places = [place.format(cuda=show_pair(cuda or (0, 0))) for place in _PLACES]
    homes = [chosen] if chosen else places
    on_path = shutil.which("nvcc")
    if on_path and not chosen:
        homes.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(on_path))))
    found: dict[str, Toolkit] = {}
    for home in homes:
        nvcc = os.path.join(home, "bin", "nvcc")
        if not os.path.exists(nvcc) or not os.path.isdir(os.path.join(home, "include", "crt")):
            continue  # such as a script that starts nvcc
        done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
        match = _RELEASE.search(done.stdout)
        if match is not None:
            kit = Toolkit(home=home, cuda=(int(match[1]), int(match[2])))
            found.setdefault(os.path.realpath(home), kit)
    return list(found.values())
