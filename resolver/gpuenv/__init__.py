"""gpuenv resolves a GPU host and a list of frameworks to an environment that is known to work.

    host = detect()
    plan = solve(Request(frameworks=("torch",)), host)
    saved = lock(plan)
    sync(saved, "env", host=host)
    checks = verify(saved, "env", host)

This module exports the public names. `gpuenv.api` composes the stages.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import api
from .api import (
    compatibility_data,
    data_version,
    describe,
    detect,
    lock,
    matrix_catalog,
    read_host,
    read_lock,
    solve,
    write_lock,
)
from .compat.evaluate import toolkit_distance
from .errors import (
    Change,
    DataError,
    Explanation,
    GpuEnvError,
    HostMismatchError,
    InputError,
    InstallError,
    NoSolutionError,
    NotAttestedError,
    NotVerifiedError,
    OfflineError,
    PackageIndexError,
    Reason,
    TargetBusyError,
    WrongTypeError,
    is_doubt,
)
from .lock.host_fit import fit as unmet_needs
from .model import (
    Check,
    Checks,
    Choice,
    CondaOptions,
    Gpu,
    Host,
    IndexOptions,
    Lock,
    Needs,
    Pin,
    Plan,
    Problem,
    Python,
    Rejection,
    Request,
    Requirement,
    Wheel,
    parse_release,
    reaches_release,
)
from .model import html_of as _html_of
from .serialize import host_from_plain, to_plain
from .version import __version__

__all__ = [
    "Change",
    "Check",
    "Checks",
    "Choice",
    "CondaOptions",
    "DataError",
    "Explanation",
    "Gpu",
    "GpuEnvError",
    "Host",
    "HostMismatchError",
    "IndexOptions",
    "InputError",
    "InstallError",
    "Lock",
    "Needs",
    "NoSolutionError",
    "NotAttestedError",
    "NotVerifiedError",
    "OfflineError",
    "PackageIndexError",
    "Pin",
    "Plan",
    "Problem",
    "Python",
    "Reason",
    "Rejection",
    "Request",
    "Requirement",
    "TargetBusyError",
    "Wheel",
    "WrongTypeError",
    "__version__",
    "add_profiles",
    "compatibility_data",
    "data_version",
    "describe",
    "detect",
    "examine",
    "explain",
    "explain_lock",
    "host_from_plain",
    "install",
    "is_doubt",
    "lock",
    "matrix_catalog",
    "parse_release",
    "reaches_release",
    "read_host",
    "read_lock",
    "read_project",
    "reasons_against",
    "rollback",
    "solve",
    "sync",
    "to_plain",
    "toolkit_distance",
    "unmet_needs",
    "verify",
    "write_lock",
]


if TYPE_CHECKING:
    from .api import (
        add_profiles,
        examine,
        explain,
        explain_lock,
        install,
        read_project,
        reasons_against,
        rollback,
        sync,
        verify,
    )
else:
    # Four packages have the name of a function of the API: detect, install, lock and verify. Python
    # binds a package to its parent at its first import. The functions of the first and the third
    # replaced them above; these two leave the name to `__getattr__`.
    for _package in ("install", "verify"):
        import_module(f".{_package}", __name__)
        del globals()[_package]

    def __getattr__(name: str) -> Any:
        if name in __all__:
            return getattr(api, name)  # loaded at its first use
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return __all__


def _to_html(value: object) -> str | None:
    """Return the HTML of a value for a notebook."""
    from .render.notebook import to_html  # it needs the doctor, which a solve does not

    return to_html(value)


_html_of[:] = [_to_html]
