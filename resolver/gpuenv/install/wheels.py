"""Wheels into a virtual environment, through uv where it is there, else through pip.

Both get the same list: each file by its URL with its sha256, no dependency resolution, no index; a source distribution
is built in isolation, with what it asks for from its own index. An environment that
gpuenv made (it leaves `gpuenv.json` in it) holds exactly the lock afterwards; from any other nothing is removed, only
what the lock names is put there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence

from ..atomic_write import write_whole
from ..errors import InputError, InstallError
from ..model import Lock, parse_pair, show_pair
from ..requirements.target import normalize_name

Progress = Callable[[str], None]
MARK = "gpuenv.json"
# Said by pip and by uv when a file does not have the hash that it should have.
_MISMATCH = ("DO NOT MATCH THE HASHES", "Hash mismatch")
_ASK = "import sys, sysconfig; print(*sys.version_info[:2], int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))"


def sync(
    lock: Lock,
    target: str,
    *,
    installer: str = "auto",
    python: str | None = None,
    progress: Progress | None = None,
) -> str:
    """As backends.Backend.sync."""
    say = progress or _silent
    target = os.path.abspath(target)
    tool, base = check(lock, target, installer=installer, python=python)
    new = base is not None
    try:
        if base is not None:
            say(f"making {target} with {base}")
            _make(tool, base, target)
        say(f"installing {len(lock.pins)} packages with {'uv' if len(tool) == 1 else 'pip'}")
        exact = new or os.path.isfile(os.path.join(target, MARK))
        _install(lock, tool, interpreter_of(target), exact=exact)
        if new:
            _write_mark(lock, target)
    except BaseException:
        if new:
            import shutil

            shutil.rmtree(target, ignore_errors=True)
        raise
    return interpreter_of(target)


def add(
    lock: Lock,
    python: str,
    *,
    remove: Sequence[str] = (),
    installer: str = "auto",
    progress: Progress | None = None,
) -> None:
    """Puts what the lock names into the environment of an interpreter, after taking out what `remove` names.

    Nothing else of it changes. Raises as `sync`.
    """
    say = progress or _silent
    tool = _installer(installer)
    if remove:
        say(f"removing {', '.join(remove)}")
        if len(tool) == 1:
            _run([*tool, "pip", "uninstall", "--no-config", "--python", python, *remove], "removing packages")
        else:
            _run([*tool, "--python", python, "uninstall", "--yes", *remove], "removing packages")
    if lock.pins:
        say(f"installing {len(lock.pins)} packages with {'uv' if len(tool) == 1 else 'pip'}")
        _install(lock, tool, python, exact=False)


def check(
    lock: Lock, target: str, *, installer: str = "auto", python: str | None = None
) -> tuple[list[str], str | None]:
    """What can be said before anything is written: (the installer's command, the interpreter for a new environment).

    The interpreter is None for an environment that is there. InputError as `sync` raises it.
    """
    tool, target = _installer(installer), os.path.abspath(target)
    if os.path.exists(target) and not os.path.isdir(target):
        raise InputError(f"--target {target}: is not a folder")
    if os.path.isdir(target) and os.listdir(target):
        _check_existing(lock, target)
        return tool, None
    if not os.path.isdir(os.path.dirname(target)):
        raise InputError(f"--target {target}: the folder above it does not exist")
    return tool, find_interpreter(lock, python, tool[0] if len(tool) == 1 else None)


def check_installer(name: str) -> None:
    """InputError if the installer asked for is not there."""
    _installer(name)


def _silent(line: str) -> None:
    """Progress that nobody asked for."""
    del line


def interpreter_of(target: str) -> str:
    """The interpreter of the environment in a folder."""
    windows = os.path.join(target, "Scripts", "python.exe")
    return windows if os.path.isfile(windows) else os.path.join(target, "bin", "python")


# ---- what there is --------------------------------------------------------------------------------------------------


def _installer(name: str) -> list[str]:
    """The command of uv, [path], or of pip, [interpreter, -m, pip]."""
    if name != "pip":
        uv = _uv()
        if uv is not None:
            return [uv]
        if name == "uv":
            raise InputError("uv is not installed", hint="install uv, or give --installer pip")
    from importlib.util import find_spec

    if find_spec("pip") is None:
        raise InputError("neither uv nor pip is installed beside gpuenv", hint="install one of them")
    return [sys.executable, "-m", "pip"]


def _uv() -> str | None:
    import shutil

    try:
        from uv import find_uv_bin
    except ImportError:
        return shutil.which("uv")
    try:
        return str(find_uv_bin())
    except FileNotFoundError:
        return shutil.which("uv")


def find_interpreter(lock: Lock, asked: str | None, uv: str | None) -> str:
    """An interpreter of the lock's Python: the one asked for, this one, one on PATH, or one that uv knows."""
    if lock.needs.python is None:
        return sys.executable
    version, threads = show_pair(lock.needs.python), "t" * lock.host.python.free_threaded
    wanted = (*lock.needs.python, bool(threads))
    tried = []
    for candidate in _interpreters(f"{version}{threads}", asked, uv):
        found = _ask(candidate)
        if found == wanted:
            return candidate
        tried.append(candidate)
        if asked is not None and candidate == asked:
            have = "cannot be run" if found is None else f"is Python {found[0]}.{found[1]}{'t' * found[2]}"
            raise InputError(f"--python {asked}: {have}; the lock is for Python {version}{threads}")
    raise InputError(f"no Python {version}{threads} was found, which the lock is for", hint="name one: --python EXE")


def _interpreters(version: str, asked: str | None, uv: str | None) -> Iterator[str]:
    import shutil
    import subprocess

    if asked is not None and not asked.removesuffix("t").replace(".", "").isdigit():
        yield asked
        return
    yield sys.executable
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    if uv is not None:
        command = [uv, "python", "find", "--no-project", "--no-python-downloads", "--offline", version]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            yield done.stdout.strip()


def _ask(executable: str) -> tuple[int, int, bool] | None:
    import subprocess

    try:
        done = subprocess.run([executable, "-I", "-c", _ASK], capture_output=True, text=True, timeout=30, check=False)
        major, minor, free = done.stdout.split()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return int(major), int(minor), free == "1"


def _check_existing(lock: Lock, target: str) -> None:
    """InputError for a folder that is no environment, or one of another Python."""
    config = os.path.join(target, "pyvenv.cfg")
    if not (os.path.isfile(config) and os.path.isfile(interpreter_of(target))):
        raise InputError(f"--target {target}: has files in it and is no virtual environment")
    with open(config, encoding="utf-8") as file:
        pairs = [line.partition("=") for line in file]
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    text = fields.get("version_info") or fields.get("version") or ""
    try:
        version = parse_pair(".".join(text.split(".")[:2]))
    except ValueError:
        raise InputError(f"{config}: does not say which Python it is for") from None
    if lock.needs.python is not None and version != lock.needs.python:
        have, need = show_pair(version), show_pair(lock.needs.python)
        raise InputError(f"--target {target}: is for Python {have}, and the lock is for Python {need}")


# ---- what is done ---------------------------------------------------------------------------------------------------


def _make(tool: list[str], base: str, target: str) -> None:
    if len(tool) == 1:
        _run([*tool, "venv", "--quiet", "--no-project", "--no-config", "--python", base, target], "making it")
    else:
        _run([base, "-m", "venv", "--without-pip", target], "making it")


def _install(lock: Lock, tool: list[str], python: str, *, exact: bool) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gpuenv-") as folder:
        path = os.path.join(folder, "requirements.txt")
        with open(path, "w", encoding="utf-8") as file:
            for pin in lock.pins:
                file.write(f"{pin.wheel.name} @ {pin.wheel.url} --hash=sha256:{pin.wheel.sha256}\n")
        if len(tool) == 1:
            mode = ["sync", "--allow-empty-requirements"] if exact else ["install", "--no-deps", "--requirements"]
            flags = ["--require-hashes", *_indexes(lock), "--no-config", "--python", python]
            command = [*tool, "pip", *mode, path, *flags]
        else:
            if exact:
                _remove_others(lock, tool, python)
            flags = ["--no-deps", *_indexes(lock), "--require-hashes", "--no-input"]
            flags += ["--only-binary", ":all:"] if "--no-index" in flags else []
            flags += ["--disable-pip-version-check", "--no-warn-script-location"]
            command = [*tool, "--python", python, "install", *flags, "--requirement", path]
        _run(command, "installing", lock)


def _indexes(lock: Lock) -> list[str]:
    """No index is asked, but for what a source distribution of the lock needs to be built, in isolation."""
    sdists = [pin.wheel for pin in lock.pins if not pin.wheel.filename.endswith(".whl")]
    if not sdists:
        return ["--no-index"]
    own = [wheel.index for wheel in sdists if wheel.index.startswith(("https://", "http://"))]
    return ["--index-url", own[0]] if own else []


def _remove_others(lock: Lock, tool: list[str], python: str) -> None:
    """Takes out what the lock does not name, as `uv pip sync` does by itself."""
    import json
    import subprocess

    command = [*tool, "--python", python, "list", "--format", "json", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    names = {pin.wheel.name for pin in lock.pins}
    try:
        installed = [row["name"] for row in json.loads(done.stdout)]
    except (ValueError, KeyError, TypeError):
        raise InstallError(f"pip cannot list {python}: {_last_line(done.stderr)}") from None
    extra = [name for name in installed if normalize_name(name) not in names]
    if extra:
        _run([*tool, "--python", python, "uninstall", "--yes", *extra], "removing what the lock does not name")


def _run(command: list[str], what: str, lock: Lock | None = None) -> None:
    """Runs an installer. On a terminal it shows its progress; else its output is kept for what it says of failures.

    InstallError names what failed, and of which file.
    """
    import subprocess

    pipe = None if sys.stderr.isatty() else subprocess.PIPE
    dropped = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV")
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    merged = None if pipe is None else subprocess.STDOUT
    with subprocess.Popen(
        command, stdout=pipe, stderr=merged, text=True, errors="replace", env=environment
    ) as child:
        try:
            output = child.communicate()[0] or "its own words are above"
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        raise InstallError(_failure(output, what, os.path.basename(command[0]), child.returncode, lock))


def _failure(output: str, what: str, tool: str, status: int, lock: Lock | None) -> str:
    if any(text in output for text in _MISMATCH):
        for pin in lock.pins if lock is not None else ():
            if pin.wheel.sha256 and pin.wheel.sha256 in output:
                got = [word for word in output.replace(":", " ").split() if len(word) == len(pin.wheel.sha256)]
                others = [word for word in got if word != pin.wheel.sha256 and set(word) <= set("0123456789abcdef")]
                have = others[0] if others else "another one"
                name = pin.wheel.filename
                return f"{name} has the wrong hash: the lock says sha256 {pin.wheel.sha256}, the file has {have}"
        return f"a file has the wrong hash: {_last_line(output)}"
    return f"{what} failed ({tool}, status {status}): {_last_line(output)}"


def _last_line(output: str) -> str:
    """The most telling words: the last line that names an error, with the cause that uv gives last."""
    lines = [line.strip(" \u2570\u251c\u2500\u25b6\xd7") for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "failed"))]
    causes = [line for line in lines if line.lower().startswith(("cause", "caused by"))]
    told = [*errors[-1:], *causes[-1:]] or lines[-1:] or ["it said nothing"]
    return ": ".join(part.partition(": ")[2] or part for part in told)[:400]


def _write_mark(lock: Lock, target: str) -> None:
    import json

    write_whole(os.path.join(target, MARK), json.dumps({"made_by": "gpuenv", "digest": lock.digest}).encode())
