"""Runs a program's entry point in a fork of this process.

A fork has its own environment, working folder, standard streams, signals and exit status, as a
started process has. It does not pay for the start of the interpreter and for the imports, which
are most of the time of a short command.
"""

import faulthandler
import gc
import io
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings

from processes import Done

LIMIT = 120.0  # seconds until a command counts as hanging


def run(entry_point, command, folder, environment):
    """Call `entry_point` in a fork, with `command` as sys.argv, and wait for its end.

    Raises:
        AssertionError: It did not end within LIMIT; it was killed. The message has its stacks.
    """
    with (
        open(os.devnull, "rb") as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        streams = [stdin.fileno(), stdout.fileno(), stderr.fileno()]
        try:
            status = wait(start(entry_point, command, folder, environment, streams), command)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{error}\n{_text(stderr)}") from None
        return Done([*command], status, _text(stdout), _text(stderr))


def start(entry_point, command, folder, environment, streams):
    """Call `entry_point` in a fork, with three descriptors as its streams. Return its number."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Threads of this process are servers, which the fork does not touch.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _call_and_exit(entry_point, command, folder, environment, streams)
    return pid


def _call_and_exit(entry_point, command, folder, environment, streams):
    status = 1
    try:
        _become_a_process(folder, environment, streams)
        faulthandler.dump_traceback_later(LIMIT - 5, file=sys.stderr)  # where it hangs
        sys.argv = [*command]
        entry_point()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _become_a_process(folder, environment, streams):
    """Replace what this process has of pytest's by what a new process would have."""
    # What the other process left, such as V8, may wait for its threads when it is collected.
    gc.freeze()
    # A command that a test called may have set handlers in this process.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    # They stay open until the process ends.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.excepthook = sys.__excepthook__
    sys.unraisablehook = sys.__unraisablehook__
    threading.excepthook = threading.__excepthook__
    logging.getLogger().handlers.clear()
    warnings.resetwarnings()
    warnings.simplefilter("ignore")


def wait(pid, command):
    """Return the exit status of a fork, negative if a signal ended it.

    Raises:
        subprocess.TimeoutExpired: It did not end within LIMIT; it was killed.
    """
    descriptor = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([descriptor], [], [], LIMIT)
    finally:
        os.close(descriptor)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not ready:
        raise subprocess.TimeoutExpired([*command], LIMIT)
    return status


def _text(file):
    file.seek(0)
    return io.TextIOWrapper(io.BytesIO(file.read()), encoding="utf-8").read()
