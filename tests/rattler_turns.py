"""One rattler process for the solves of a test module: its start takes longer than a small solve.

Each solve opens its channels, so nothing of the solve before is left in the process.
"""

import os
from contextlib import contextmanager
from subprocess import Popen

import pytest

from gpuenv.resolve.conda import solvers


class Turn:
    """One solver's turn with the process. It has what a solver uses of Popen."""

    def __init__(self, free):
        self._free, self._child = free, free.pop()
        self.stdin, self.stdout = self._child.stdin, self._child.stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._free.append(self._child)

    def communicate(self, timeout):
        """The process goes on."""

    def kill(self):
        """The process goes on."""


def variables():
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@contextmanager
def one_process():
    """Solvers of this process take turns with one rattler process.

    A solver in another environment, or beside one that has not ended, starts a process of its own.
    """
    one = solvers.RattlerSolver([], [])
    free, at_start = [one._child], variables()

    def start(*arguments, **pipes):
        if free and variables() == at_start:
            return Turn(free)
        return Popen(*arguments, **pipes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solvers, "Popen", start)
        yield
    one.close()
