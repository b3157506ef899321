"""The entry point of gpuenv's conda plugin: hooks that never stop conda.

It adds `conda gpuenv`, a check after transactions, a check of `conda doctor`, hints at errors.

conda imports this module for every command. So it imports nothing of gpuenv. The hooks import
gpuenv when conda needs it: whatever is broken there becomes one line on stderr, and conda goes on.
The exception is what the user asks for:

    conda config --set plugins.gpuenv_verify strict     # off, warn (the default) or strict

With strict, conda rolls back a transaction whose environment fails a check. What could not be
proved (no GPU here, gpuenv itself broken) is never a failure.

No virtual package is registered: __cuda is conda's own, __cuda_arch (CEP 46) is that of
nvidia-virtual-packages. Written against conda 26.7; an older conda does not call the hooks that it
does not know.
"""

from __future__ import annotations

import importlib
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
    return _offer(
        lambda types: [types.CondaSubcommand(name="gpuenv", summary=_SUMMARY, action=_run_command)]
    )


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
        base = import_conda("core.path_actions").Action
        action = type("GpuenvAction", (load(".transaction").VerificationAction, base), {})
        return [types.CondaPostTransactionAction(name="gpuenv", action=action)]

    return _offer(post_transaction_action)


@hookimpl
def conda_health_checks() -> list[object]:
    """Offer `conda doctor gpuenv` and `conda doctor --fix gpuenv`."""

    def health_check(types: ModuleType) -> list[object]:
        try:
            check = types.CondaHealthCheck(
                name="gpuenv",
                action=_report_health,
                fixer=_fix,
                summary="Prove that CUDA, cuDNN and the frameworks fit this host's GPUs and driver",
                fix="Install the builds that gpuenv solves for this host",
            )
        except TypeError:  # before conda 26.1 there were no fixers
            check = types.CondaHealthCheck(name="gpuenv", action=_report_health)
        return [check]

    return _offer(health_check)


@hookimpl
def conda_error_hints(error: BaseException) -> list[object]:
    """Offer hints at an error of conda that gpuenv can explain."""

    return _offer(
        lambda types: [
            types.CondaErrorHint(text=text, hint_code=code)
            for text, code in load(".error_hints").hints(error)
        ]
    )


def _offer(make: Callable[[ModuleType], list[object]]) -> list[object]:
    """Return what a hook offers; nothing, and a line on stderr, where this conda cannot take it."""
    try:
        return make(import_conda("plugins.types"))
    except (Exception, SystemExit) as error:
        warn(f"left out: {one_line(error)}")
        return []


def _run_command(arguments: Sequence[str]) -> int:
    return _status_of(lambda: load().run_command(arguments))


def _report_health(prefix: str, verbose: bool) -> None:
    try:
        load(".health_check").report_health(prefix, verbose)
    except RuntimeError as error:
        warn(f"not checked: {one_line(error)}")


def _fix(prefix: str, arguments: object, confirm: Callable[[str], None]) -> int:
    return _status_of(lambda: load(".health_check").fix(prefix, arguments, confirm))


def _status_of(run: Callable[[], int]) -> int:
    """Return the exit status of a command; 1, and a line on stderr, where gpuenv cannot run."""
    try:
        return run()
    except RuntimeError as error:
        warn(one_line(error))
        return 1


# ---- the import of gpuenv -----------------------------------------------------------------------


def load(name: str = "") -> ModuleType:
    """Return a module of gpuenv.conda_plugin, such as ".checks"; "" is the package itself.

    Raises:
        RuntimeError: It cannot be imported.
    """
    try:
        return importlib.import_module(f"gpuenv.conda_plugin{name}")
    except (Exception, SystemExit) as error:
        raise RuntimeError(one_line(error)) from None


# ---- what gpuenv.conda_plugin uses, too ---------------------------------------------------------


def import_conda(name: str) -> ModuleType:
    """Return a module of conda by its name inside conda."""
    return importlib.import_module(f"conda.{name}")


def warn(text: str) -> None:
    """Write one line to stderr, if it can be written to."""
    try:
        print(f"gpuenv: {text}", file=sys.stderr)
    except (OSError, ValueError):
        pass


def one_line(error: BaseException) -> str:
    """Return an error on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, RuntimeError):
        return text
    return f"{type(error).__name__}: {text}"
