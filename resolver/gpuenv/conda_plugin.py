"""gpuenv as a plugin of conda: `conda gpuenv`, a check after transactions, one for `conda doctor`, hints at errors.

conda imports this module for every command, so it imports nothing but os and sys, and conda's types only inside the
hooks that conda asks. All that gpuenv does is done by a child process over the contract of its command line: whatever
is broken in gpuenv becomes one line on stderr, and conda goes on. The one exception is what the user asked for:

    conda config --set plugins.gpuenv_verify strict     # off, warn (the default) or strict

Strict, a transaction whose environment fails a check is rolled back by conda. What could not be proved (no GPU here,
gpuenv itself broken) is never a failure.

No virtual package is registered: __cuda is conda's own, __cuda_arch (CEP 46) is that of nvidia-virtual-packages.
Written against conda 26.7; the hooks that an older conda lacks are not asked for by it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeVar

    Hook = TypeVar("Hook", bound=Callable[..., object])
    Check = dict[str, Any]  # of `gpuenv verify --json`: name, subject, status, evidence, seconds

    def hookimpl(function: Hook) -> Hook:
        """Marks a hook for conda."""
        ...
else:
    try:
        from conda.plugins import hookimpl
    except ImportError:  # the child below, tests: no conda is there to ask the hooks

        def hookimpl(function):
            """Without conda a hook is a function."""
            return function


# Packages of conda-forge and of the old pytorch channel, and gpuenv's name of the framework ("" is none).
WATCHED = {
    "cuda-version": "",
    "cudatoolkit": "",
    "cudnn": "",
    "libcudnn": "",
    "cupy": "cupy",
    "cupy-core": "cupy",
    "jax": "jax",
    "jaxlib": "jax",
    "libtorch": "torch",
    "onnxruntime": "onnxruntime",
    "onnxruntime-cpp": "onnxruntime",
    "pytorch": "torch",
    "pytorch-cuda": "torch",
    "pytorch-gpu": "torch",
    "tensorflow": "tensorflow",
    "tensorflow-base": "tensorflow",
    "tensorflow-gpu": "tensorflow",
}
SETTING = "gpuenv_verify"
OFF, WARN, STRICT = "off", "warn", "strict"
TIMEOUT = 120.0  # s, of the checks after a transaction
SHOWN = 6  # failed checks that a message names
UNSOLVED = {"UnsatisfiableError", "PackagesNotFoundError", "ResolvePackageNotFound", "SpecsConfigurationConflictError"}


# ---- what conda asks ----------------------------------------------------------------------------------------------


@hookimpl
def conda_subcommands() -> list[Any]:
    """`conda gpuenv ...`: the arguments are gpuenv's own."""
    return _offered(lambda types: [types.CondaSubcommand(name="gpuenv", summary=_SUMMARY, action=run_command)])


@hookimpl
def conda_settings() -> list[Any]:
    """`plugins: gpuenv_verify:` of .condarc, CONDA_PLUGINS_GPUENV_VERIFY of the environment."""

    def offer(types: Any) -> list[Any]:
        parameter = _conda("common.configuration").PrimitiveParameter(WARN, element_type=(str, bool))
        text = "what gpuenv's checks do after a transaction that touches cuDNN, CUDA or a framework: off, warn, strict"
        return [types.CondaSetting(name=SETTING, description=text, parameter=parameter)]

    return _offered(offer)


@hookimpl
def conda_post_transaction_actions() -> list[Any]:
    """The check of the environment that a transaction leaves, before conda holds it for done."""

    def offer(types: Any) -> list[Any]:
        base = _conda("core.path_actions").Action
        methods = {"verify": _ready, "execute": _execute, "reverse": _nothing, "cleanup": _tell}
        action = type("GpuenvAction", (base,), methods)
        return [types.CondaPostTransactionAction(name="gpuenv", action=action)]

    return _offered(offer)


@hookimpl
def conda_health_checks() -> list[Any]:
    """`conda doctor gpuenv`, `conda doctor --fix gpuenv`."""

    def offer(types: Any) -> list[Any]:
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
        return [types.CondaErrorHint(text=text, hint_code=code) for text, code in hints(error)]

    return _offered(offer)


def _offered(offer: Callable[[Any], list[Any]]) -> list[Any]:
    """What a hook offers; nothing where this conda cannot take it."""
    try:
        return offer(_conda("plugins.types"))
    except Exception as error:
        _warn(f"left out: {_line(error)}")
        return []


def _conda(name: str) -> Any:
    from importlib import import_module

    return import_module(f"conda.{name}")


# ---- conda gpuenv -------------------------------------------------------------------------------------------------

_SUMMARY = "Solve, lock, install and prove GPU environments: driver, CUDA, cuDNN and frameworks that fit together."


def run_command(arguments: Sequence[str]) -> int:
    """Runs gpuenv with the arguments behind `conda gpuenv`; its exit status is conda's."""
    import subprocess

    child = subprocess.Popen(_command(_spelled(arguments)))
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


def _command(arguments: Sequence[str]) -> list[str]:
    """gpuenv in a child; -P: a folder `gpuenv` where the user happens to be is none of it."""
    return [sys.executable, "-P", "-m", "gpuenv", *arguments]


# ---- after a transaction ------------------------------------------------------------------------------------------


def _ready(action: Any) -> None:
    """Before anything is changed."""
    action._verified = True
    action.history = None
    try:
        with open(_history(action), "rb") as file:
            action.history = file.read()
    except OSError:  # a new environment has none
        pass


def _nothing(action: Any) -> None:
    """Checking changes nothing that would have to be reversed."""


def _history(action: Any) -> str:
    return os.path.join(action.target_prefix, "conda-meta", "history")


def _restore(path: str, history: bytes) -> None:
    """Writes the history that conda before 26.7.0 loses in a rollback: without it a folder is no environment to it."""
    if os.path.exists(path):
        return
    try:
        with open(path, "xb") as file:
            file.write(history)
    except OSError as error:
        _warn(f"{path} was lost in the rollback and cannot be written again: {_line(error)}")


def _execute(action: Any) -> None:
    """Checks the new environment. Raises only where the user asked for it, or is leaving."""
    refusal = None
    try:
        action.told, refusal = _outcome(action)
    except Exception as error:
        if type(error).__name__ == "CondaSignalInterrupt":
            raise
        action.told = [f"not checked: {_line(error)}"]
    if refusal is not None:
        if getattr(action, "history", None) is not None:
            import atexit  # conda reverses this action first, and the one that loses the history later

            atexit.register(_restore, _history(action), action.history)
        raise refusal


def _outcome(action: Any) -> tuple[list[str], Exception | None]:
    """The lines to tell once all is done, and the error that is to stop the transaction, if one is."""
    prefix, mode = action.target_prefix, _mode()
    if mode == OFF or not touched(action.link_precs or (), action.unlink_precs or (), prefix):
        return [], None
    if _foreign():
        return ["not checked: the environment is for another platform"], None
    checks = examine(prefix, TIMEOUT)
    lines = summary(checks, prefix)
    if mode != STRICT or all(one["status"] != "fail" for one in checks):
        return lines, None
    refusal: Exception = _conda("exceptions").CondaVerificationError("\n".join([f"gpuenv: {lines[0]}", *lines[1:]]))
    refusal.gpuenv_frameworks = frameworks(records(prefix))  # type: ignore[attr-defined]  # for the hint
    return lines, refusal


def _tell(action: Any) -> None:
    """Says what came out, once the progress of the transaction is off the screen."""
    for number, line in enumerate(getattr(action, "told", ())):
        _warn(line) if number == 0 else print(line, file=sys.stderr)


def touched(linked: Iterable[Any], unlinked: Iterable[Any], prefix: str) -> bool:
    """Whether a transaction changes a package that is watched, and leaves one in the environment."""
    if any(one.name in WATCHED for one in linked):
        return True
    return any(one.name in WATCHED for one in unlinked) and bool(WATCHED.keys() & records(prefix).keys())


def _mode() -> str:
    value = getattr(_conda("base.context").context.plugins, SETTING, WARN)
    text = str(value).lower()
    if text in {"off", "false", "no"}:
        return OFF
    if text not in {WARN, STRICT, "true"}:
        _warn(f"plugins.{SETTING} is {value!r}: taken as warn (it can be off, warn or strict)")
    return STRICT if text == STRICT else WARN


def _foreign() -> bool:
    """Whether conda is told to install for another platform than the one it runs on."""
    context = _conda("base.context").context
    return bool(context.subdir != context._native_subdir())


# ---- the checks of an environment ---------------------------------------------------------------------------------


def examine(prefix: str, timeout: float) -> list[Check]:
    """The checks of `gpuenv verify`, and those of conda's own records. RuntimeError says why there are none."""
    packages = records(prefix)
    checks = [*cuda_check(packages, os.environ), *cudnn_check(packages, wheels(prefix))]
    if os.path.exists(os.path.join(prefix, "bin", "python")) or os.path.exists(os.path.join(prefix, "python.exe")):
        # The override describes another host than this one: nothing can be proved on the devices that are here.
        elsewhere = ["--no-device"] if os.environ.get("CONDA_OVERRIDE_CUDA") is not None else []
        arguments = ["verify", "--json", "--target", prefix, "--timeout", str(timeout), *elsewhere]
        found = asked(arguments, prefix, timeout + 30)["checks"]
        told = {(one["name"], one["subject"]) for one in found}
        checks = [*found, *(one for one in checks if (one["name"], one["subject"]) not in told)]
    return checks


def asked(arguments: Sequence[str], folder: str, timeout: float) -> dict[str, Any]:
    """The JSON document that gpuenv answers with. RuntimeError, with its own words, if it does not."""
    import json
    import subprocess

    done = subprocess.run(_command(arguments), cwd=folder, capture_output=True, timeout=timeout, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or done.returncode not in (0, 1):
        words = done.stderr.decode(errors="replace").strip().splitlines() or [f"gpuenv ended with {done.returncode}"]
        raise RuntimeError(words[-1])
    return answer


def records(prefix: str) -> dict[str, str]:
    """name -> version of conda's packages, by the names of their records: cudnn-9.10.2.21-h1_0.json."""
    try:
        names = os.listdir(os.path.join(prefix, "conda-meta"))
    except OSError:
        return {}
    parts = [name.removesuffix(".json").rsplit("-", 2) for name in names if name.endswith(".json")]
    return {three[0]: three[1] for three in parts if len(three) == 3}


def wheels(prefix: str) -> dict[str, tuple[str, str]]:
    """name -> (version, folder) of the cuDNN that pip installed into the environment."""
    found = {}
    lib = os.path.join(prefix, "lib")
    folders = [os.path.join(lib, name, "site-packages") for name in _listed(lib) if name.startswith("python3")]
    for folder in [*folders, os.path.join(prefix, "Lib", "site-packages")]:
        for name in _listed(folder):
            if name.startswith("nvidia_cudnn") and name.endswith(".dist-info"):
                title, _, version = name.removesuffix(".dist-info").partition("-")
                found[title.replace("_", "-")] = (version, folder)
    return found


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def cuda_check(packages: dict[str, str], env: Any) -> list[Check]:
    """The driver's CUDA against the environment's: conda's solvers pass over `constrains: __cuda` (R1)."""
    wanted = packages.get("cuda-version") or packages.get("cudatoolkit")
    if wanted is None:
        return []
    override = env.get("CONDA_OVERRIDE_CUDA")
    where = "CONDA_OVERRIDE_CUDA says" if override else "this host's driver runs"
    if override is None:
        host = asked(["detect", "--json"], os.curdir, 60)
        override = ".".join(map(str, host.get("driver_cuda") or ()))
    have = override.split(".")[0]
    status = "unknown"
    if not have.isdigit():
        evidence = f"CUDA {wanted} is installed, and no driver is known that would run it"
    elif int(have) >= int(wanted.split(".")[0]):
        status, evidence = "pass", f"CUDA {wanted} is installed, {where} CUDA {override}"
    elif "cuda-compat" in packages:
        evidence = f"CUDA {wanted} is installed, {where} CUDA {override}, and cuda-compat is to bridge that"
    else:
        status = "fail"
        evidence = f"CUDA {wanted} is installed, {where} CUDA {override} and nothing newer than {have}.x"
    return [{"name": "driver", "subject": "cuda-version", "status": status, "evidence": evidence, "seconds": 0.0}]


def cudnn_check(packages: dict[str, str], installed: dict[str, tuple[str, str]]) -> list[Check]:
    """Names the cuDNN of conda and that of pip where one environment has both (R5: one owner)."""
    version = packages.get("libcudnn") or packages.get("cudnn")
    if version is None or not installed:
        return []
    names = [f"{name} {one} ({folder})" for name, (one, folder) in sorted(installed.items())]
    evidence = f"cudnn {version} of conda and {', '.join(names)} of pip: imports decide which one a process gets"
    return [{"name": "owners", "subject": "cuDNN", "status": "fail", "evidence": evidence, "seconds": 0.0}]


def summary(checks: Sequence[Check], prefix: str) -> list[str]:
    """What the checks came to: a line, then one for each that failed."""
    counts = {status: sum(one["status"] == status for one in checks) for status in ("pass", "fail", "unknown")}
    lines = [f"{prefix}: {counts['pass']} checks passed, {counts['fail']} failed, {counts['unknown']} unknown"]
    failed = [check_line(one) for one in checks if one["status"] == "fail"]
    more = [f"  and {len(failed) - SHOWN} more: conda gpuenv verify --target {prefix}"] if len(failed) > SHOWN else []
    return [*lines, *failed[:SHOWN], *more]


def check_line(check: Check) -> str:
    """One check for people."""
    mark = {"pass": "ok  ", "fail": "FAIL"}.get(check["status"], "?   ")
    return f"  {mark} {' '.join(part for part in (check['name'], check['subject']) if part)}: {check['evidence']}"


# ---- conda doctor -------------------------------------------------------------------------------------------------


def health(prefix: str, verbose: bool) -> None:
    """The health check: prints what gpuenv finds in the environment."""
    constants = _conda("base.constants")  # before 26.1 the marks were elsewhere
    good, wrong = getattr(constants, "OK_MARK", "ok"), getattr(constants, "X_MARK", "FAIL")
    if not WATCHED.keys() & records(prefix).keys() and not wheels(prefix):
        print(f"{good} gpuenv: no CUDA, cuDNN or framework of a GPU is in the environment.\n")
        return
    checks = examine(prefix, TIMEOUT)
    lines = summary(checks, prefix)
    bad = any(one["status"] == "fail" for one in checks)
    print(f"{wrong if bad else good} gpuenv: {lines[0].removeprefix(prefix + ': ')}")
    print("\n".join([check_line(one) for one in checks] if verbose else lines[1:]) + "\n")


def fix(prefix: str, _arguments: Any, confirm: Callable[[str], None]) -> int:
    """The fixer: solves for this host, shows what would change, and installs it once the user has agreed.

    `confirm` raises where the user declines or the run is dry: nothing has been written to the environment by then.
    """
    import subprocess
    import tempfile

    packages = records(prefix)
    bad = [one for one in examine(prefix, TIMEOUT) if one["status"] == "fail"]
    if not bad:
        print("gpuenv: no check fails, nothing is to be fixed.")
        return 0
    print("\n".join(check_line(one) for one in bad))
    names = frameworks(packages)
    if not names:
        print("gpuenv: no framework is installed that a solution could be looked for.")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        lock = os.path.join(folder, "explicit.txt")
        flags = [flag for name in names for flag in ("--framework", name)]
        flags += ["--python", ".".join(packages["python"].split(".")[:2])] if "python" in packages else []
        # gpuenv takes one channel at a time: what "defaults" stands for is left to its own default.
        channels = [str(one) for one in _conda("base.context").context.channels if one != "defaults"]
        flags += [flag for one in channels for flag in ("--channel", one)]
        solve = ["solve", "--backend", "conda", "--format", "conda-explicit", *flags, "-o", lock]
        if subprocess.run(_command(solve), cwd=folder, check=False).returncode or not os.path.exists(lock):
            print("gpuenv: no solution was found, nothing was changed.")
            return 1
        confirm(f"Install these builds into {prefix}?")
        install = [sys.executable, "-P", "-m", "conda", "install", "--yes", "--prefix", prefix, "--file", lock]
        return subprocess.run(install, check=False).returncode


def frameworks(packages: Iterable[str]) -> list[str]:
    """gpuenv's names of the frameworks among conda's packages."""
    return sorted({WATCHED.get(name, "") for name in packages} - {""})


# ---- hints --------------------------------------------------------------------------------------------------------


def hints(error: BaseException) -> list[tuple[str, str]]:
    """(text, code) of what gpuenv can say about an error of conda's."""
    refused = getattr(error, "gpuenv_frameworks", None)
    if refused is not None:
        return [(f"{_WHY} {' '.join(refused or ['FRAMEWORK'])}; {_LENIENT}", "gpuenv_strict")]
    if not UNSOLVED & {one.__name__ for one in type(error).__mro__}:
        return []
    import re

    words = set(re.findall(r"[a-z][a-z0-9-]*", str(error).lower()))
    if not words & (WATCHED.keys() | {"cuda"}):
        return []
    return [(f"{_WHY} {' '.join(frameworks(words) or ['FRAMEWORK'])}", "gpuenv_explain")]


_WHY = "See which builds this host's driver and GPUs can run: conda gpuenv explain"
_LENIENT = "to keep such an environment: conda config --set plugins.gpuenv_verify warn"


# ---- words --------------------------------------------------------------------------------------------------------


def _warn(text: str) -> None:
    print(f"gpuenv: {text}", file=sys.stderr)


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if not isinstance(error, RuntimeError) else text
