"""The stages, composed: one function for each verb.

The command line, the conda plugin and programs that use gpuenv call this package.

    environments   solve, lock, install and verify
      wheels       what is special in solving for wheels
      conda        conda environments, with wheels beside the conda packages
      fit          whether a lock, or pinned packages, fit a host
    explanations   why a request, a lock or a program fails
    projects       the profiles of a pyproject.toml and their locks
    hosts          detected and described hosts
    data           the compatibility data, loaded once

Their functions are exported here. Single commands import the other modules:

    inplace        installation into an environment that has packages already
    updates        rows for releases that the data does not know
"""

from __future__ import annotations

from .conda import repair
from .data import compatibility_data, data_version, matrix_catalog, matrix_tables
from .environments import (
    changes,
    check_target,
    downloaded_python,
    install,
    is_conda_lock,
    lock,
    lock_text,
    read_lock,
    recorded_lock,
    rollback,
    solve,
    sync,
    verify,
    write_lock,
)
from .explanations import check_lock, examine, explain, explain_lock
from .fit import reasons_against
from .hosts import describe, detect, read_host, require_gpu, with_python_of
from .projects import (
    add_profiles,
    begin_project,
    changed_requirements,
    fitting_lock,
    has_profiles,
    lock_profile,
    lock_profiles,
    profile_host,
    profile_states,
    read_project,
    write_profile_locks,
)
from .wheels import split_frameworks, tool_settings

__all__ = [
    "add_profiles",
    "begin_project",
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
    "explain_lock",
    "fitting_lock",
    "has_profiles",
    "install",
    "is_conda_lock",
    "lock",
    "lock_profile",
    "lock_profiles",
    "lock_text",
    "matrix_catalog",
    "matrix_tables",
    "profile_host",
    "profile_states",
    "read_host",
    "read_lock",
    "read_project",
    "reasons_against",
    "recorded_lock",
    "repair",
    "require_gpu",
    "rollback",
    "solve",
    "split_frameworks",
    "sync",
    "tool_settings",
    "verify",
    "with_python_of",
    "write_lock",
    "write_profile_locks",
]
