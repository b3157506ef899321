"""`gpuenv verify --bundle FILE`: a report without the names of the user and of the host."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import api, loader_env
from ..atomic_write import write_whole
from ..errors import InputError
from ..model import Check, Host, Lock
from ..render import checks as render_checks
from ..render import plans, redact
from ..serialize import to_plain
from ..verify.runner import Children
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
    python = loader_env.interpreter(target)
    with Children(python, os.environ, time.monotonic() + SURVEY_SECONDS) as children:
        answer = children.run("installed", {"mode": "survey"}).answer or {}
    packages = [(row["name"], row["version"]) for row in answer.get("distributions", ())]
    names = private_names(os.environ, packages, lock)
    text = _report(checks, host, target=target, lock=lock, packages=packages, names=names)
    try:
        write_whole(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise InputError(f"--bundle {path}: cannot be written: {error.strerror}") from None


def _report(
    checks: Sequence[Check],
    host: Host,
    *,
    target: str,
    lock: Lock | None,
    packages: Sequence[tuple[str, str]],
    names: redact.Names,
) -> str:
    variables = redact.variables(os.environ)
    package_lines = [f"{name} {version}" for name, version in packages]
    data: dict[str, Any] = {
        "gpuenv": __version__,
        "data": api.data_version(),
        "python": sys.version.split()[0],
        "target": target,
        "host": to_plain(host),
        **render_checks.checks_json(checks),
        "lock": None if lock is None else _lock_json(lock),
        "packages": package_lines,
        "variables": variables,
    }
    verdict = "verified" if render_checks.ok(checks) else "NOT verified"
    sections = [
        ("Checks", render_checks.check_lines(checks)),
        ("Host", plans.host_lines(host)),
        ("Variables", [f"{name}={value}" for name, value in variables.items()]),
        ("Packages", package_lines),
    ]
    return redact.report(f"gpuenv {__version__}: {verdict}", sections, data, names)


def _lock_json(lock: Lock) -> dict[str, Any]:
    return {
        "frameworks": list(lock.frameworks),
        "choices": [to_plain(choice) for choice in lock.choices],
        "needs": to_plain(lock.needs),
        "data": lock.data,
        "pins": [f"{pin.wheel.name} {pin.wheel.version}" for pin in lock.pins],
    }


def private_names(
    env: Mapping[str, str],
    packages: Sequence[tuple[str, str]] = (),
    lock: Lock | None = None,
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
        import pwd

        account = pwd.getpwuid(os.getuid())
        users |= {account.pw_name, *_full_names(account.pw_gecos)}
        homes.add(account.pw_dir)
    except (ImportError, KeyError):
        pass
    homes |= {os.path.realpath(home) for home in homes if home}
    package_names = {name for name, _ in packages}
    versions = {version for _, version in packages}
    if lock is not None:
        versions |= {pin.wheel.version for pin in lock.pins}
    return redact.Names(
        users=_sorted(users - package_names),
        hosts=_sorted(_host_names(env)),
        homes=_sorted(homes),
        versions=frozenset(versions),
    )


def _host_names(env: Mapping[str, str]) -> set[str]:
    """Return the names of the host: whole, without the domain, and the domain alone."""
    names = {env.get(name, "") for name in _HOST_VARIABLES}
    if hasattr(os, "uname"):
        names.add(os.uname().nodename)
    for name in tuple(names):
        host, _, domain = name.partition(".")
        if "." in name:
            names |= {host, domain}
    return names


def _full_names(gecos: str) -> set[str]:
    """Return the full name of an account, whole and in its parts."""
    full = gecos.partition(",")[0].strip()
    if not full:
        return set()
    return {full, *(word for word in re.split(r"\s+", full) if len(word) > 2)}


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    """Sort names without those of one character: these would be removed everywhere."""
    return tuple(sorted(name for name in names if len(name) > 1))
