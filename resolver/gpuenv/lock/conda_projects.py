"""A lock of conda packages as the project file of another tool, with exact versions and builds.

environment.yml is conda's and mamba's, construct.yaml is that of constructor, pixi.toml is pixi's.
"""

from __future__ import annotations

from ..errors import InexpressibleError
from ..index.urls import without_credentials
from ..model import Lock, Wheel
from ..serialize import dump_yaml
from .tool_settings import pixi_platform

TOOLS = ("conda", "constructor", "pixi")


def project_text(tool: str, lock: Lock) -> str:
    """Return the text of a project file.

    Args:
        tool: one of TOOLS.
        lock: the lock, of conda packages; wheels may stand beside them.

    Raises:
        InexpressibleError: the tool cannot install the wheels of the lock.
    """
    return {"conda": _environment, "constructor": _construct, "pixi": _pixi}[tool](lock)


def channels_of(lock: Lock) -> list[str]:
    """Return the channels of a lock, without passwords and tokens."""
    listed = dict(lock.inputs).get("channels") or [pin.wheel.index for pin in lock.pins]
    return list(dict.fromkeys(map(without_credentials, listed)))


def _wheels(lock: Lock) -> list[Wheel]:
    return [] if lock.wheels is None else [pin.wheel for pin in lock.wheels.pins]


def _environment(lock: Lock) -> str:
    dependencies: list[object] = [
        f"{pin.wheel.name}={pin.wheel.version}={pin.wheel.metadata['build']}" for pin in lock.pins
    ]
    wheels = [f"{wheel.name}=={wheel.version}" for wheel in _wheels(lock)]
    if wheels:
        if not any(pin.wheel.name == "pip" for pin in lock.pins):
            dependencies.append("pip")
        dependencies.append({"pip": wheels})
    return dump_yaml({"channels": channels_of(lock), "dependencies": dependencies})


def _construct(lock: Lock) -> str:
    wheels = _wheels(lock)
    if wheels:
        message = f"constructor installs no wheels, and {wheels[0].name} is one"
        raise InexpressibleError(message, hint="solve without --pip")
    specs = [
        f"{pin.wheel.name} {pin.wheel.version} {pin.wheel.metadata['build']}" for pin in lock.pins
    ]
    document = {"name": "gpuenv", "version": "1.0", "channels": channels_of(lock), "specs": specs}
    return dump_yaml(document)


def _pixi(lock: Lock) -> str:
    import tomli_w

    packages = {
        pin.wheel.name: {
            "version": f"=={pin.wheel.version}",
            "build": pin.wheel.metadata["build"],
        }
        for pin in lock.pins
    }
    document: dict[str, object] = {"dependencies": packages}
    wheels = _wheels(lock)
    if wheels:
        document["pypi-dependencies"] = {wheel.name: f"=={wheel.version}" for wheel in wheels}
    workspace = pixi_platform(lock.host, with_capability=False)
    channels = tomli_w.dumps({"channels": channels_of(lock), "name": "gpuenv"})
    return f"{workspace}{channels}\n{tomli_w.dumps(document)}"
