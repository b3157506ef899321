"""Settings and project tables that make other tools take the same builds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError
from ..model import Host, IndexOptions, Lock, Request
from . import environments

if TYPE_CHECKING:  # the stages are imported when they are first used
    from ..lock.tool_settings import ToolSettings


def tool_settings(
    tool: str, host: Host, request: Request | None = None, options: IndexOptions | None = None
) -> ToolSettings:
    """Return the settings that make a tool take the builds that gpuenv takes.

    Args:
        tool: uv, conda, pixi or pip.
        host: the host.
        request: what is to be installed; None leaves out what depends on packages.
        options: where packages may come from.

    Raises:
        InexpressibleError: the settings of the tool cannot express it.
        NoSolutionError: the request has no solution.
    """
    from ..lock.tool_settings import settings
    from .wheels import labels_of_uv

    if request is None or tool in ("conda", "pixi"):
        return settings(tool, host, None)
    options = options or IndexOptions()
    plan = environments.solve(request, host, options)
    labels = labels_of_uv(plan, options) if tool == "uv" else ()
    return settings(tool, host, plan, labels)


def project_tables(tool: str, lock: Lock) -> str:
    """Return a lock as the project of a tool.

    The tool is uv, pixi, poetry or pdm for wheels; conda, constructor or pixi for conda packages.

    Raises:
        InputError: the tool does not take the packages of the lock.
        InexpressibleError: the tool cannot name a file of the lock.
    """
    from ..lock import conda_projects, tool_projects

    if lock.conda:
        if tool not in conda_projects.TOOLS:
            raise InputError(f"{tool} takes wheels, and the lock has conda packages")
        return conda_projects.project_text(tool, lock)
    if tool not in tool_projects.TOOLS:
        raise InputError(f"{tool} takes conda packages, and the lock has wheels")
    return tool_projects.project_tables(tool, lock)


def write_text(path: str, text: str) -> None:
    """Write a text to a file. InputError if it cannot be written."""
    from ..lock import pylock

    pylock.write(path, text)
