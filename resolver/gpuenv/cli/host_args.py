"""The flags that describe a host, and the host that they give."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .. import api
from ..errors import InputError
from ..model import Host


def host_flags(parser: ArgumentParser) -> None:
    """The flags of `host_of`."""
    group = parser.add_argument_group("host (what is left out is detected)")
    group.add_argument("--host", metavar="FILE", help="a host that `gpuenv detect -o FILE` wrote")
    group.add_argument("--gpu", metavar="GPU", action="append", default=[], help="H100, sm_90, 9.0 or none; may repeat")
    group.add_argument("--driver", metavar="RELEASE", help="driver release, such as 580.65.06")
    group.add_argument("--python", metavar="X.Y|EXE", help="target interpreter: a version, or the path of one")
    group.add_argument("--platform", metavar="NAME", help="linux-x86_64, linux-aarch64 or win-amd64")
    group.add_argument("--glibc", metavar="X.Y", help="glibc of the target, such as 2.28")


def host_of(arguments: Namespace, *, solving: bool, python: bool = True) -> Host:
    """The host of the flags; what they leave out is detected."""
    wanted = arguments.python if python else None
    base = api.read_host(arguments.host) if arguments.host else None
    if base is None and not arguments.gpu:
        base = api.detect(python=wanted)
        wanted = None
    host = api.describe(
        base,
        gpus=arguments.gpu,
        driver=arguments.driver,
        python=wanted,
        platform=arguments.platform,
        glibc=arguments.glibc,
    )
    if solving and not host.gpus and host.problems:
        first = host.problems[0]
        raise InputError(
            f"no usable GPU on this host ({first.code}: {first.detail})",
            hint="describe the host: --gpu H100 --driver 580.65.06, --host FILE, or --gpu none for the CPU",
        )
    return host
