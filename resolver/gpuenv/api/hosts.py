"""The host: detected, read from a file, or described by the texts of the host flags.

Also here: checks of the arguments that programs give.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..compat.data import compatibility_data
from ..detect import described
from ..detect import host as detection
from ..errors import InputError, WrongTypeError
from ..model import Host, Lock, Request, Value
from ..requirements import conda_settings
from ..resolve.conda import virtual_packages

# Several texts. Not Sequence[str]: a plain str is one, and type checkers would accept "torch".
Texts = tuple[str, ...] | list[str]


def require_type(value: object, kind: type[Value], name: str) -> None:
    """Raise WrongTypeError if an argument is not a value of a kind."""
    if not isinstance(value, kind):
        message = f"{name} must be a {kind.__name__}, not {_shown(value)}"
        raise WrongTypeError(message, hint=f"make one: {kind.__name__}(...)")


def require_texts(value: object, name: str) -> None:
    """Raise WrongTypeError if an argument is not several texts, such as a single one."""
    if isinstance(value, (tuple, list)) and all(isinstance(item, str) for item in value):
        return
    hint = f"give a tuple: {name}=({value!r},)" if isinstance(value, str) else "give a tuple of str"
    raise WrongTypeError(f"{name} must be several texts, not {_shown(value)}", hint=hint)


def require_request(request: object) -> None:
    """Raise WrongTypeError if an argument is no request, or a request with wrong fields."""
    require_type(request, Request, "request")
    for name in ("frameworks", "requirements", "constraints", "overrides", "no_build", "no_binary"):
        require_texts(getattr(request, name), name)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else type(value).__name__


def detect(
    *,
    root: str = "/",
    env: Mapping[str, str] | None = None,
    python: str | None = None,
    conda: bool = False,
) -> Host:
    """Detect the host that this process runs on.

    Args:
        root: prefix of every path of /proc, /sys, /etc and /dev that is read.
        env: environment variables; the default is this process's.
        python: the target interpreter: a path, a command, or a version such as "3.12".
        conda: whether the question is about conda packages or a conda environment: then the
            variables CONDA_OVERRIDE_* and conda's settings replace facts, as in conda.

    Returns:
        The host. A fact that cannot be known is None, and `Host.problems` says why.

    Raises:
        InputError: `python` is neither an interpreter nor a version, or a variable of conda is no
            version.
    """
    host = detection.detect(root=root, env=env, python=python)
    # The tables know some facts that the driver did not report.
    if host.driver is not None and host.driver_cuda is None:
        host = host.replace(driver_cuda=compatibility_data().driver_cuda(host.driver))
    if any(gpu.compute_capability is None for gpu in host.gpus):
        gpus = tuple(
            gpu.replace(compute_capability=compatibility_data().compute_capability(gpu.name))
            if gpu.compute_capability is None
            else gpu
            for gpu in host.gpus
        )
        sources = (*host.sources, ("compute_capability", "the GPU's name"))
        host = host.replace(gpus=gpus, sources=sources)
    if conda:
        env = os.environ if env is None else env
        host = virtual_packages.overridden(host, {**conda_settings.overrides(env), **env})
    return host


def describe(
    base: Host | None = None,
    *,
    gpus: Texts = (),
    driver: str | None = None,
    python: str | None = None,
    platform: str | None = None,
    glibc: str | None = None,
) -> Host:
    """Describe a host by the texts of the host flags.

    Args:
        base: the host that the texts change; the default is this machine without its GPU.
        gpus: one text for each device: "H100", "sm_90", "9.0" or "none".
        driver: the driver release, or its beginning: "580.65.06", "580.65" or "580".
        python: the target interpreter: a version or a path.
        platform: "linux-x86_64", "linux-aarch64" or "win-amd64". The default is the platform of
            the GPUs if they exist on one only, such as GH200.
        glibc: the glibc version of the target.

    Raises:
        InputError: a text is not understood (close names are suggested), or the GPUs do not exist
            on the platform.
    """
    require_texts(gpus, "gpus")
    return described.describe(
        base,
        compatibility_data(),
        gpus=gpus,
        driver=driver,
        python=python,
        platform=platform,
        glibc=glibc,
    )


def require_gpu(host: Host) -> None:
    """Raise InputError if no GPU was detected and nobody said that there is none."""
    if host.gpus or not host.problems:
        return
    first = host.problems[0]
    raise InputError(
        f"no usable GPU on this host ({first.code}: {first.detail})",
        hint="describe the host: --gpu H100 --driver 580.65.06, --host FILE,"
        " or --gpu none for the CPU",
    )


def with_python_of(host: Host, lock: Lock) -> Host:
    """Return the host with the Python that a lock was made for.

    The interpreter that runs gpuenv says nothing about the environment of a lock. The locks of
    other tools name no Python; the host stays as it is then.
    """
    return host.replace(python=lock.host.python) if lock.needs.python else host
