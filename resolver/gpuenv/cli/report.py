"""`gpuenv verify --bundle FILE`: what goes into the report, and which names are known to be taken out of it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .. import api
from ..atomic_write import write_whole
from ..errors import InputError
from ..loader_env import interpreter
from ..model import Check, Host, Lock
from ..render import plans, redact
from ..serialize import to_plain
from ..version import __version__

SECONDS = 30.0  # for the list of what is installed
_USERS = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "SLURM_JOB_USER", "NB_USER")
_HOSTS = ("HOSTNAME", "HOST", "COMPUTERNAME", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST", "SLURM_LAUNCH_NODE_IPADDR")


def write_bundle(path: str, checks: Sequence[Check], host: Host, target: str, lock: Lock | None) -> None:
    """Writes the report in place of what is at `path`. InputError if it cannot be written."""
    packages = _packages(target)
    names = names_of(os.environ, packages, lock)
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
    found = redact.variables(os.environ)
    data: dict[str, Any] = {
        "gpuenv": __version__,
        "data": api.data_version(),
        "python": sys.version.split()[0],
        "target": target,
        "host": to_plain(host),
        **plans.checks_json(checks),
        "lock": None if lock is None else _lock(lock),
        "packages": [f"{name} {version}" for name, version in packages],
        "variables": found,
    }
    verdict = "verified" if plans.ok(checks) else "NOT verified"
    sections = [
        ("Checks", plans.check_lines(checks)),
        ("Host", plans.host_lines(host)),
        ("Variables", [f"{name}={value}" for name, value in found.items()]),
        ("Packages", [f"{name} {version}" for name, version in packages]),
    ]
    return redact.report(f"gpuenv {__version__}: {verdict}", sections, data, names)


def _lock(lock: Lock) -> dict[str, Any]:
    return {
        "frameworks": list(lock.frameworks),
        "choices": [to_plain(choice) for choice in lock.choices],
        "needs": to_plain(lock.needs),
        "data": lock.data,
        "pins": [f"{pin.wheel.name} {pin.wheel.version}" for pin in lock.pins],
    }


def _packages(target: str) -> list[tuple[str, str]]:
    """(name, version) of what is installed; [] if the interpreter does not tell."""
    import time

    from ..verify.runner import Children

    with Children(interpreter(target), os.environ, time.monotonic() + SECONDS) as children:
        answer = children.run("installed", {"mode": "survey"}).answer
    return [(row["name"], row["version"]) for row in (answer or {}).get("distributions", ())]


def names_of(
    env: Mapping[str, str], packages: Sequence[tuple[str, str]] = (), lock: Lock | None = None
) -> redact.Names:
    """The names of this user and of this host; nothing is asked of the network for them."""
    users, homes = {env.get(name, "") for name in _USERS}, {os.path.expanduser("~"), env.get("HOME", "")}
    try:
        import pwd

        entry = pwd.getpwuid(os.getuid())
        users |= {entry.pw_name, *_words(entry.pw_gecos)}
        homes.add(entry.pw_dir)
    except (ImportError, KeyError):
        pass
    hosts = {env.get(name, "") for name in _HOSTS} | {os.uname().nodename if hasattr(os, "uname") else ""}
    # The name alone, and the domain alone.
    hosts |= {part for name in hosts if "." in name for part in (name.partition(".")[0], name.partition(".")[2])}
    homes |= {os.path.realpath(home) for home in homes if home}
    # An account that is called as a package is would take its name out of every check.
    known = {name for name, _ in packages}
    versions = {version for _, version in packages}
    versions |= {pin.wheel.version for pin in lock.pins} if lock is not None else set()
    return redact.Names(
        users=tuple(sorted(name for name in users if len(name) > 1 and name not in known)),
        hosts=tuple(sorted(name for name in hosts if len(name) > 1)),
        homes=tuple(sorted(home for home in homes if len(home) > 1)),
        versions=frozenset(versions),
    )


def _words(gecos: str) -> set[str]:
    """The full name that an account has, whole and in its parts."""
    full = gecos.partition(",")[0].strip()
    return {full, *(word for word in re.split(r"\s+", full) if len(word) > 2)} if full else set()
