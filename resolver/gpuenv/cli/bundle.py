"""`gpuenv verify --bundle FILE`: a report without the names of the user and of the host."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .. import api
from ..atomic_write import write_whole
from ..errors import GpuEnvError, InputError
from ..model import Check, Host, Lock
from ..render import checks as render_checks
from ..render import plans, redact
from ..serialize import to_plain
from ..verify import probe_tests
from ..version import __version__

SURVEY_SECONDS = 30.0
# Environment variables that may hold the name of the user or of the host.
_USER_VARIABLES = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER", "NB_USER")
_HOST_VARIABLES = (
    "HOSTNAME",
    "HOST",
    "COMPUTERNAME",
    "SLURMD_NODENAME",
    "SLURM_SUBMIT_HOST",
    "SLURM_LAUNCH_NODE_IPADDR",
)


def write_bundle(
    path: str, checks: Sequence[Check], host: Host, target: str, lock: Lock | None
) -> None:
    """Write the report, and replace what is at the path. InputError if it cannot be written."""
    packages: list[tuple[str, str]] = []
    with suppress(GpuEnvError):
        packages = list(probe_tests.survey(target, SURVEY_SECONDS).versions.items())
    variables = redact.variables(os.environ)
    package_lines = [f"{name} {version}" for name, version in packages]
    data: dict[str, Any] = {
        "gpuenv": __version__,
        "data": api.data_version(),
        "python": sys.version.split()[0],
        "target": target,
        "host": host,
        **render_checks.checks_json(checks),
        "lock": None,
        "packages": package_lines,
        "variables": variables,
    }
    if lock is not None:
        data["lock"] = {
            "frameworks": lock.frameworks,
            "choices": lock.choices,
            "needs": lock.needs,
            "data": lock.data,
            "pins": [f"{pin.wheel.name} {pin.wheel.version}" for pin in lock.pins],
        }
    verdict = "verified" if render_checks.ok(checks) else "NOT verified"
    sections = [
        ("Checks", render_checks.check_lines(checks)),
        ("Host", plans.host_lines(host)),
        ("Variables", [f"{name}={value}" for name, value in variables.items()]),
        ("Packages", package_lines),
    ]
    names = private_names(os.environ, packages, lock)
    text = redact.report(f"gpuenv {__version__}: {verdict}", sections, to_plain(data), names)
    try:
        write_whole(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise InputError(f"--bundle {path}: cannot be written: {error.strerror}") from None


def private_names(
    env: Mapping[str, str],
    packages: Sequence[tuple[str, str]],
    lock: Lock | None,
) -> redact.Names:
    """Find the names of this user and of this host, which the report must not have.

    No network is used.

    Args:
        env: environment variables.
        packages: (name, version) of the installed packages. An account that is called like a
            package keeps its name: otherwise the package would vanish from every check.
        lock: the lock; its versions are not taken for addresses.
    """
    users = {env.get(name, "") for name in _USER_VARIABLES}
    homes = {os.path.expanduser("~"), env.get("HOME", "")}
    try:
        import pwd  # POSIX

        account = pwd.getpwuid(os.getuid())
        full = account.pw_gecos.partition(",")[0].strip()  # whole and in its parts
        users |= {account.pw_name, full, *(word for word in full.split() if len(word) > 2)}
        homes.add(account.pw_dir)
    except (ImportError, KeyError):
        pass
    homes |= {os.path.realpath(home) for home in homes if home}
    hosts = {env.get(name, "") for name in _HOST_VARIABLES}
    if hasattr(os, "uname"):
        hosts.add(os.uname().nodename)
    for name in tuple(hosts):  # whole, without the domain, and the domain alone
        host, dot, domain = name.partition(".")
        if dot:
            hosts |= {host, domain}
    versions = {version for _, version in packages}
    if lock is not None:
        versions |= {pin.wheel.version for pin in lock.pins}

    def usable(names: Iterable[str]) -> tuple[str, ...]:
        # One character would be removed everywhere.
        return tuple(sorted(name for name in names if len(name) > 1))

    return redact.Names(
        users=usable(users - {name for name, _ in packages}),
        hosts=usable(hosts),
        homes=usable(homes),
        versions=frozenset(versions),
    )
