"""gpuenv as a plugin of conda: `conda gpuenv`, a check after transactions, one for `conda doctor`, hints at errors.

conda imports this module for every command, so it imports nothing but sys; conda's types and the other modules of this
package (transaction, checks, doctor, hints) are imported by the hooks that conda asks. All that gpuenv does is done by
a child process over the contract of its command line: whatever is broken in gpuenv becomes one line on stderr, and
conda goes on. The one exception is what the user asked for:

    conda config --set plugins.gpuenv_verify strict     # off, warn (the default) or strict

Strict, a transaction whose environment fails a check is rolled back by conda. What could not be proved (no GPU here,
gpuenv itself broken) is never a failure.

No virtual package is registered: __cuda is conda's own, __cuda_arch (CEP 46) is that of nvidia-virtual-packages.
Written against conda 26.7; the hooks that an older conda lacks are not asked for by it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

try:
    from conda.plugins import hookimpl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # without conda, a hook is an ordinary function

    def hookimpl(function: Callable[..., Any]) -> Callable[..., Any]:  # type: ignore[unused-ignore]
        """Return the function unchanged."""
        return function


SETTING = "gpuenv_verify"
OFF, WARN, STRICT = "off", "warn", "strict"


# ---- what conda asks ------------------------------------------------------------------------------------------------


@hookimpl
def conda_subcommands() -> list[Any]:
    """`conda gpuenv ...`: the arguments are gpuenv's own."""
    return _offered(lambda types: [types.CondaSubcommand(name="gpuenv", summary=_SUMMARY, action=run_command)])


@hookimpl
def conda_settings() -> list[Any]:
    """`plugins: gpuenv_verify:` of .condarc, CONDA_PLUGINS_GPUENV_VERIFY of the environment."""

    def offer(types: Any) -> list[Any]:
        parameter = of_conda("common.configuration").PrimitiveParameter(WARN, element_type=(str, bool))
        text = "what gpuenv's checks do after a transaction that touches cuDNN, CUDA or a framework: off, warn, strict"
        return [types.CondaSetting(name=SETTING, description=text, parameter=parameter)]

    return _offered(offer)


@hookimpl
def conda_post_transaction_actions() -> list[Any]:
    """The check of the environment that a transaction leaves, before conda holds it for done."""

    def offer(types: Any) -> list[Any]:
        from . import transaction as own

        base = of_conda("core.path_actions").Action
        methods = {"verify": own.ready, "execute": own.execute, "reverse": own.nothing, "cleanup": own.tell}
        action = type("GpuenvAction", (base,), methods)
        return [types.CondaPostTransactionAction(name="gpuenv", action=action)]

    return _offered(offer)


@hookimpl
def conda_health_checks() -> list[Any]:
    """`conda doctor gpuenv`, `conda doctor --fix gpuenv`."""

    def offer(types: Any) -> list[Any]:
        from .doctor import fix, health

        more = {
            "fixer": fix,
            "summary": "Prove that CUDA, cuDNN and the frameworks fit this host's GPUs and driver",
            "fix": "Install the builds that gpuenv solves for this host",
        }
        try:
            return [types.CondaHealthCheck(name="gpuenv", action=health, **more)]
        except TypeError:  # before 26.1 a health check could only look
            return [types.CondaHealthCheck(name="gpuenv", action=health)]

    return _offered(offer)


@hookimpl
def conda_error_hints(error: BaseException) -> list[Any]:
    """Where gpuenv can say more about an error of conda's."""

    def offer(types: Any) -> list[Any]:
        from .hints import hints

        return [types.CondaErrorHint(text=text, hint_code=code) for text, code in hints(error)]

    return _offered(offer)


def _offered(offer: Callable[[Any], list[Any]]) -> list[Any]:
    """What a hook offers; nothing where this conda cannot take it."""
    try:
        return offer(of_conda("plugins.types"))
    except Exception as error:
        warn(f"left out: {words_of(error)}")
        return []


def of_conda(name: str) -> Any:
    """A module of conda's, by its name in there."""
    from importlib import import_module

    return import_module(f"conda.{name}")


# ---- conda gpuenv ---------------------------------------------------------------------------------------------------

_SUMMARY = "Solve, lock, install and prove GPU environments: driver, CUDA, cuDNN and frameworks that fit together."


def run_command(arguments: Sequence[str]) -> int:
    """Runs gpuenv with the arguments behind `conda gpuenv`; its exit status is conda's."""
    import subprocess

    child = subprocess.Popen(command(_spelled(arguments)))
    while True:
        try:
            status = child.wait()
        except KeyboardInterrupt:  # the child has got it, too, and ends
            continue
        return status if status >= 0 else 128 - status


def _spelled(arguments: Sequence[str]) -> list[str]:
    """The arguments as they were typed: argparse takes a `--` out of what it hands on, and `gpuenv run` needs it."""
    typed = sys.argv[sys.argv.index("gpuenv") + 1 :] if "gpuenv" in sys.argv else []
    same = [one for one in typed if one != "--"] == [one for one in arguments if one != "--"]
    return typed if same else list(arguments)


def command(arguments: Sequence[str]) -> list[str]:
    """gpuenv in a child; -P: a folder `gpuenv` where the user happens to be is none of it."""
    return [sys.executable, "-P", "-m", "gpuenv", *arguments]


# ---- what the other modules share -----------------------------------------------------------------------------------


def warn(text: str) -> None:
    """One line on stderr."""
    print(f"gpuenv: {text}", file=sys.stderr)


def words_of(error: BaseException) -> str:
    """An error on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if not isinstance(error, RuntimeError) else text
