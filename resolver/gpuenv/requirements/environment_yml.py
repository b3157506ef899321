"""environment.yml: the channels, conda's specs and the wheels that a file of conda asks for."""

from __future__ import annotations

from ..errors import InputError
from ..model import Value
from ..serialize import read_input

_KEYS = {"name", "prefix", "channels", "dependencies", "variables", "platforms", "category"}


class CondaEnvironment(Value):
    """What an environment.yml asks for; `wheels` are PEP 508 texts."""

    channels: tuple[str, ...] = ()
    specs: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()


def is_environment_file(path: str) -> bool:
    """Return whether a requirements file is one of conda, by its name."""
    return path.endswith((".yml", ".yaml"))


def read_environment(path: str) -> CondaEnvironment:
    """Read an environment.yml.

    Raises:
        InputError: The file cannot be read, is none, or asks for what gpuenv cannot read.
    """
    import yaml

    try:
        document = yaml.safe_load(read_input(path))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict) or not isinstance(document.get("dependencies"), list):
        raise InputError(f"{path}: is no environment.yml: it has no list of dependencies")
    unknown = sorted(set(map(str, document)) - _KEYS)
    if unknown:
        hint = "channels and dependencies are read"
        raise InputError(f"{path}: unknown key {unknown[0]}", hint=hint)
    specs: list[str] = []
    wheels: list[str] = []
    for entry in document["dependencies"]:
        if isinstance(entry, str):
            specs.append(entry)
        elif isinstance(entry, dict) and set(entry) == {"pip"} and isinstance(entry["pip"], list):
            wheels += map(str, entry["pip"])
        else:
            raise InputError(f"{path}: {entry!r} is no spec and no list of pip")
    for text in wheels:
        if text.startswith("-"):
            raise InputError(f"{path}: pip: {text}: options are not read")
    channels = [str(channel) for channel in document.get("channels") or ()]
    return CondaEnvironment(
        channels=tuple(channel for channel in channels if channel != "nodefaults"),
        specs=tuple(specs),
        wheels=tuple(wheels),
    )
