"""The stages, composed: one function for each verb.

The command line, the conda plugin and programs that use gpuenv call this package.

    environments   solve; make, read and write locks
      wheels       what is special in solving for wheels
      conda        conda environments, with wheels beside the conda packages
    installing     whether a lock fits a host; install locks, and verify environments
    projects       the profiles of a pyproject.toml and their locks
    foreign        locks of other tools, to install and to verify
    explanations   why a request, a lock or a program fails
    dockerfiles    whether what a Dockerfile installs works
    hosts          detected and described hosts
    data           the compatibility data, loaded once

Their functions are exported here. Single commands import the other modules:

    inplace        installation into an environment that has packages already
    updates        rows for releases that the data does not know
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..compat.data import compatibility_data
from ..detect.host import read_host
from .data import data_version, matrix_catalog
from .environments import attested, is_conda_lock, lock, lock_text, read_lock, solve, write_lock
from .hosts import describe, detect, require_gpu, with_python_of
from .wheels import (
    built_requirements,
    name_of_project,
    read_url,
    tool_settings,
)

__all__ = [
    "add_profiles",
    "attested",
    "begin_project",
    "built_requirements",
    "changed_requirements",
    "changes",
    "check_lock",
    "check_target",
    "compatibility_data",
    "data_version",
    "describe",
    "detect",
    "downloaded_python",
    "examine",
    "explain",
    "explain_dockerfile",
    "explain_lock",
    "fitting_lock",
    "has_profiles",
    "install",
    "is_conda_lock",
    "is_tool_lock",
    "lock",
    "lock_profiles",
    "lock_text",
    "matrix_catalog",
    "name_of_project",
    "profile_of",
    "profile_places",
    "project_state",
    "read_host",
    "read_lock",
    "read_project",
    "read_tool_lock",
    "read_url",
    "reasons_against",
    "recorded_lock",
    "repair",
    "require_gpu",
    "rollback",
    "shared_path_reasons",
    "solve",
    "sync",
    "tool_settings",
    "uninstalled_project",
    "verify",
    "with_python_of",
    "with_recorded",
    "write_lock",
    "write_profile_locks",
]

if TYPE_CHECKING:
    from .conda import repair
    from .dockerfiles import explain_dockerfile
    from .explanations import check_lock, examine, explain, explain_lock
    from .foreign import is_tool_lock, read_tool_lock
    from .installing import (
        changes,
        check_target,
        downloaded_python,
        install,
        reasons_against,
        recorded_lock,
        rollback,
        shared_path_reasons,
        sync,
        verify,
        with_recorded,
    )
    from .projects import (
        add_profiles,
        begin_project,
        changed_requirements,
        fitting_lock,
        has_profiles,
        lock_profiles,
        profile_of,
        profile_places,
        project_state,
        read_project,
        uninstalled_project,
        write_profile_locks,
    )
else:
    # A solve needs only the first of these. Each is loaded when a function is used that the modules
    # before it do not have.
    _ON_DEMAND = ("foreign", "installing", "projects", "explanations", "dockerfiles", "conda")

    def __getattr__(name: str) -> Any:
        for module in _ON_DEMAND if name in __all__ else ():
            functions = vars(import_module(f".{module}", __name__))
            if name in functions:
                return functions[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
