"""The flags that describe a host, and the host that they describe."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from .. import api
from ..model import Host
from ..resolve.conda import virtual_packages

NAMES = ("host", "gpu", "driver", "python", "platform", "glibc")


def add_host_flags(parser: ArgumentParser) -> None:
    """Add the flags that `read_host_flags` reads."""
    group = parser.add_argument_group("Host (what is not given is detected)")
    group.add_argument(
        "--host", metavar="FILE", help="Use the host that `gpuenv detect -o FILE` wrote"
    )
    group.add_argument(
        "--gpu",
        metavar="GPU",
        action="append",
        default=[],
        help="Use this GPU: H100, sm_90, 9.0, or none for the CPU. Repeat for several",
    )
    group.add_argument(
        "--driver", metavar="RELEASE", help="Use this driver release: 580.65.06, 580.65 or 580"
    )
    group.add_argument(
        "--python", metavar="X.Y|EXE", help="Use this Python version, or this interpreter"
    )
    group.add_argument(
        "--platform", metavar="NAME", help="Use linux-x86_64, linux-aarch64 or win-amd64"
    )
    group.add_argument("--glibc", metavar="X.Y", help="Use this glibc version, such as 2.28")


def is_described(arguments: Namespace) -> bool:
    """Return whether the flags describe another host, which has other devices."""
    return bool(arguments.gpu or arguments.host)


def used_flags(arguments: Namespace) -> list[str]:
    """Return the host flags that the user gave."""
    values = vars(arguments)
    return [f"--{name}" for name in NAMES if values[name]]


def read_host_flags(arguments: Namespace, *, need_gpu: bool, keep_python: bool = True) -> Host:
    """Return the host that the flags describe; facts that they leave out are detected.

    Args:
        arguments: the parsed flags.
        need_gpu: whether to raise InputError if no GPU was found and none was excluded by the
            flags.
        keep_python: False ignores --python, which names the interpreter of a new environment then.
    """
    python = arguments.python if keep_python else None
    base = None
    if arguments.host:
        base = api.read_host(arguments.host)
    elif not arguments.gpu:
        base = api.detect(python=python)
        python = None
    host = describe_from(base, arguments, python=python)
    if need_gpu:
        api.require_gpu(host)
    return host


def read_conda_host(arguments: Namespace, *, need_gpu: bool = True) -> Host:
    """Return the host for conda packages: CONDA_OVERRIDE_* variables change a detected host."""
    if is_described(arguments):
        return read_host_flags(arguments, need_gpu=need_gpu)
    host = virtual_packages.overridden(read_host_flags(arguments, need_gpu=False), os.environ)
    if need_gpu:
        api.require_gpu(host)
    return host


def describe_from(base: Host | None, arguments: Namespace, *, python: str | None) -> Host:
    """Return a host with the facts that the flags change."""
    return api.describe(
        base,
        gpus=arguments.gpu,
        driver=arguments.driver,
        python=python,
        platform=arguments.platform,
        glibc=arguments.glibc,
    )
