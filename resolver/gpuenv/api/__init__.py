"""The stages, composed.

The command line, the conda plugin and programs that use gpuenv call this package.

    environments   solve, lock, install and verify; for each kind of environment by
      wheels       environments of wheels
      conda        conda environments, with wheels beside the conda packages
      backend      what both provide
    explanations   why a request, a lock or a program fails
    projects       the profiles of a pyproject.toml and their locks
    hosts          detected and described hosts
    data           the compatibility data, loaded once

Their functions are exported here. Single commands import the other modules:

    inplace        installation into an environment that has packages already
    scripts        environments of scripts with inline metadata
    caches         the cache of this user
    files          the device code of files
    updates        rows for releases that the data does not know
    tools          settings and project tables for other tools

A function imports the stages that it calls: importing gpuenv stays light, and a solve for wheels
imports nothing of conda.
"""

from .data import (
    compatibility_data,
    data_dates,
    data_version,
    matrix_catalog,
    matrix_tables,
    unread_package,
)
from .environments import (
    WAIT,
    active_conda_prefix,
    active_environment,
    attested,
    changes,
    check_target,
    command_environment,
    download,
    downloaded_python,
    install,
    installed_packages,
    interpreter_of,
    is_conda_environment,
    is_conda_lock,
    lock,
    lock_text,
    read_lock,
    recorded_lock,
    refuse_unnamed_places,
    repair,
    rollback,
    solve,
    solve_again,
    sync,
    verify,
    with_local_files,
    write_bundle,
    write_lock,
)
from .explanations import (
    check_lock,
    examine,
    explain,
    explain_lock,
    framework_of_nickname,
    read_own_lock,
    split_frameworks,
)
from .hosts import (
    apply_conda_overrides,
    describe,
    detect,
    read_host,
    require_gpu,
    with_python_of,
    write_host,
)
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
from .wheels import check_frameworks, reasons_against

__all__ = [
    "WAIT",
    "active_conda_prefix",
    "active_environment",
    "add_profiles",
    "apply_conda_overrides",
    "attested",
    "begin_project",
    "changed_requirements",
    "changes",
    "check_frameworks",
    "check_lock",
    "check_target",
    "command_environment",
    "compatibility_data",
    "data_dates",
    "data_version",
    "describe",
    "detect",
    "download",
    "downloaded_python",
    "examine",
    "explain",
    "explain_lock",
    "fitting_lock",
    "framework_of_nickname",
    "has_profiles",
    "install",
    "installed_packages",
    "interpreter_of",
    "is_conda_environment",
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
    "read_own_lock",
    "read_project",
    "reasons_against",
    "recorded_lock",
    "refuse_unnamed_places",
    "repair",
    "require_gpu",
    "rollback",
    "solve",
    "solve_again",
    "split_frameworks",
    "sync",
    "unread_package",
    "verify",
    "with_local_files",
    "with_python_of",
    "write_bundle",
    "write_host",
    "write_lock",
    "write_profile_locks",
]
