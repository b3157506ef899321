"""gpuenv as a plugin of conda.

It adds `conda gpuenv`, a check after transactions, a check of `conda doctor`, hints at errors.

conda imports this module for every command, so the rest of the package is imported by the hooks
that conda calls:

packages.py      the packages in an environment, and which of them are watched
checks.py        the checks of an environment
transaction.py   the check after a transaction
health_check.py  `conda doctor gpuenv` and its fixer
error_hints.py   hints at errors of conda

gpuenv itself runs in child processes, through its command line. Whatever is broken in gpuenv
becomes one line on stderr, and conda goes on. The exception is what the user asks for:

    conda config --set plugins.gpuenv_verify strict     # off, warn (the default) or strict

With strict, conda rolls back a transaction whose environment fails a check. What could not be
proved (no GPU here, gpuenv itself broken) is never a failure.

No virtual package is registered: __cuda is conda's own, __cuda_arch (CEP 46) is that of
nvidia-virtual-packages. Written against conda 26.7; an older conda does not call the hooks that it
does not know.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

try:
    from conda.plugins import hookimpl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # without conda, a hook is an ordinary function

    def hookimpl(  # type: ignore[unused-ignore]
        function: Callable[..., object],
    ) -> Callable[..., object]:
        """Return the function unchanged."""
        return function


SETTING = "gpuenv_verify"
OFF, WARN, STRICT = "off", "warn", "strict"
_SUMMARY = (
    "Solve, lock, install and prove GPU environments: "
    "driver, CUDA, cuDNN and frameworks that fit together."
)


# ---- the hooks ----------------------------------------------------------------------------------


@hookimpl
def conda_subcommands() -> list[object]:
    """Offer `conda gpuenv ...`: the arguments are gpuenv's own."""

    def subcommand(types: ModuleType) -> list[object]:
        return [types.CondaSubcommand(name="gpuenv", summary=_SUMMARY, action=run_command)]

    return _offer(subcommand)


@hookimpl
def conda_settings() -> list[object]:
    """Offer `plugins: gpuenv_verify:` of .condarc and CONDA_PLUGINS_GPUENV_VERIFY."""

    def setting(types: ModuleType) -> list[object]:
        configuration = import_conda("common.configuration")
        parameter = configuration.PrimitiveParameter(WARN, element_type=(str, bool))
        text = (
            "what gpuenv's checks do after a transaction that touches cuDNN, CUDA or a framework: "
            "off, warn, strict"
        )
        return [types.CondaSetting(name=SETTING, description=text, parameter=parameter)]

    return _offer(setting)


@hookimpl
def conda_post_transaction_actions() -> list[object]:
    """Offer the check of the environment that a transaction leaves."""

    def post_transaction_action(types: ModuleType) -> list[object]:
        from .transaction import VerificationAction

        base = import_conda("core.path_actions").Action
        action = type("GpuenvAction", (VerificationAction, base), {})
        return [types.CondaPostTransactionAction(name="gpuenv", action=action)]

    return _offer(post_transaction_action)


@hookimpl
def conda_health_checks() -> list[object]:
    """Offer `conda doctor gpuenv` and `conda doctor --fix gpuenv`."""

    def health_check(types: ModuleType) -> list[object]:
        from .health_check import fix, report_health

        try:
            check = types.CondaHealthCheck(
                name="gpuenv",
                action=report_health,
                fixer=fix,
                summary="Prove that CUDA, cuDNN and the frameworks fit this host's GPUs and driver",
                fix="Install the builds that gpuenv solves for this host",
            )
        except TypeError:  # before conda 26.1 there were no fixers
            check = types.CondaHealthCheck(name="gpuenv", action=report_health)
        return [check]

    return _offer(health_check)


@hookimpl
def conda_error_hints(error: BaseException) -> list[object]:
    """Offer hints at an error of conda that gpuenv can explain."""

    def error_hints(types: ModuleType) -> list[object]:
        from .error_hints import hints

        return [types.CondaErrorHint(text=text, hint_code=code) for text, code in hints(error)]

    return _offer(error_hints)


def _offer(make: Callable[[ModuleType], list[object]]) -> list[object]:
    """Return what a hook offers; nothing, and a line on stderr, where this conda cannot take it."""
    try:
        return make(import_conda("plugins.types"))
    except Exception as error:
        warn(f"left out: {one_line(error)}")
        return []


# ---- conda gpuenv -------------------------------------------------------------------------------


def run_command(arguments: Sequence[str]) -> int:
    """Run gpuenv with the arguments behind `conda gpuenv`, and return its exit status."""
    child = subprocess.Popen(command(_with_channels(_typed_arguments(arguments))))
    while True:
        try:
            status = child.wait()
        except KeyboardInterrupt:  # the child has got the signal, too, and ends
            continue
        return status if status >= 0 else 128 - status


def _with_channels(arguments: list[str]) -> list[str]:
    """Let `conda gpuenv explain` explain conda's packages, in the channels of conda's settings."""
    if arguments[:1] != ["explain"] or any(text.startswith("--backend") for text in arguments):
        return arguments
    flags = ["--backend", "conda"]
    if not any(text.startswith("--channel") for text in arguments):
        flags += channel_flags()
    return ["explain", *flags, *arguments[1:]]


def _typed_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments as they were typed: argparse drops a `--`, which `gpuenv run` needs."""
    if "gpuenv" in sys.argv:
        typed = sys.argv[sys.argv.index("gpuenv") + 1 :]
        if _without_separators(typed) == _without_separators(arguments):
            return typed
    return list(arguments)


def _without_separators(arguments: Sequence[str]) -> list[str]:
    return [argument for argument in arguments if argument != "--"]


# ---- what the other modules share ---------------------------------------------------------------


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command of a gpuenv in a child process.

    -P keeps a folder `gpuenv` in the user's working folder from being imported.
    """
    return [sys.executable, "-P", "-m", "gpuenv", *arguments]


def channel_flags() -> list[str]:
    """Return the flags of gpuenv for the channels of conda's settings."""
    flags = []
    # gpuenv reads one channel at a time: what "defaults" stands for is left to its own default.
    for channel in import_conda("base.context").context.channels:
        if channel != "defaults":
            flags += ["--channel", str(channel)]
    return flags


def import_conda(name: str) -> ModuleType:
    """Return a module of conda by its name inside conda."""
    return importlib.import_module(f"conda.{name}")


def warn(text: str) -> None:
    """Write one line to stderr."""
    print(f"gpuenv: {text}", file=sys.stderr)


def one_line(error: BaseException) -> str:
    """Return an error on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, RuntimeError):
        return text
    return f"{type(error).__name__}: {text}"
