"""One rattler process for the solves of a test module: its start takes longer than a small solve.

Each solve opens its channels, so nothing of the solve before is left in the process.
"""

import os
from contextlib import contextmanager

import pytest

from gpuenv.resolve.conda import solvers
from gpuenv.resolve.conda.solvers import RattlerProcess


class Turn:
    """One solver's turn with the process. It has the methods of RattlerProcess."""

    def __init__(self, free):
        self._free = free
        self._process = free.pop()
        self.send, self.answer = self._process.send, self._process.answer

    def close(self):
        self._free.append(self._process)


def variables():
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@contextmanager
def one_process():
    """Solvers of this process take turns with one rattler process.

    A solver in another environment, or beside one that has not ended, starts a process of its own.
    """
    free = [RattlerProcess()]
    (process,), at_start = free, variables()

    def start():
        if free and variables() == at_start:
            return Turn(free)
        return RattlerProcess()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solvers, "RattlerProcess", start)
        yield
    process.close()
