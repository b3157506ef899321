"""Folders that can and that cannot become an environment."""

from __future__ import annotations

import os

from ..errors import InputError
from ..model import Lock, parse_pair, show_pair
from ..prefix import find_interpreter


def check_place(target: str) -> None:
    """Raise InputError for a path at which there can be no environment."""
    if os.path.exists(target) and not os.path.isdir(target):
        raise InputError(f"--target {target}: is not a folder")
    if os.path.ismount(target):
        message = f"--target {target}: is a mount point, which cannot be replaced"
        raise InputError(message, hint="give a folder in it")
    if not os.path.isdir(os.path.dirname(target)):
        raise InputError(f"--target {target}: the folder above it does not exist")


def has_files(target: str) -> bool:
    """Return whether there is a folder that is not empty."""
    return os.path.isdir(target) and bool(os.listdir(target))


def check_existing(lock: Lock, target: str) -> None:
    """Raise InputError for a folder that is no environment, or one of another Python."""
    config = os.path.join(target, "pyvenv.cfg")
    if not os.path.isfile(config) or find_interpreter(target) is None:
        raise InputError(f"--target {target}: has files in it and is no virtual environment")
    with open(config, encoding="utf-8") as file:
        pairs = [line.partition("=") for line in file]
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    text = fields.get("version_info") or fields.get("version") or ""
    try:
        version = parse_pair(".".join(text.split(".")[:2]))
    except ValueError:
        raise InputError(f"{config}: does not say which Python it is for") from None
    if lock.needs.python is not None and version != lock.needs.python:
        have, need = show_pair(version), show_pair(lock.needs.python)
        message = f"--target {target}: is for Python {have}, and the lock is for Python {need}"
        raise InputError(message)
