"""A pytest plugin of mutate.py: record which functions each test calls, or run chosen tests.

MUTATE_RECORD=FILE  Append a JSON line for each test and for each function that it calls.
MUTATE_SELECT=FILE  Run only the tests whose ids FILE lists, in the order of FILE.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType

import pytest

PACKAGE = Path("resolver", "gpuenv")


class Recorder:
    """Writes what tests call. Processes that a test forks write to the same file."""

    def __init__(self, file: str, root: Path) -> None:
        self.descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.package = str(root / PACKAGE) + os.sep
        self.seen: set[CodeType] = set()
        self.test = ""

    def write(self, *fields: object) -> None:
        """Append one JSON line, by one system call."""
        os.write(self.descriptor, (json.dumps(fields) + "\n").encode())

    def trace(self, frame: FrameType, event: str, argument: object) -> None:
        """Python calls this at the start of each call; without a result it traces no lines."""
        code = frame.f_code
        if code in self.seen:
            return
        self.seen.add(code)
        if code.co_filename.startswith(self.package):
            module = code.co_filename.removeprefix(self.package)
            self.write("call", self.test, module, code.co_qualname.split(".<locals>")[0])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Trace a test with its fixtures."""
        self.test = item.nodeid
        self.seen.clear()
        threading.settrace(self.trace)
        sys.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the time and the outcome of each phase of a test."""
        self.write("phase", report.nodeid, report.duration, report.outcome)


class Selector:
    """Keeps the listed tests only."""

    def __init__(self, file: str) -> None:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        self.places = {json.loads(line): place for place, line in enumerate(lines)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop all other tests and sort the listed ones."""
        chosen = [item for item in items if item.nodeid in self.places]
        items[:] = sorted(chosen, key=lambda item: self.places[item.nodeid])


def pytest_configure(config: pytest.Config) -> None:
    """Register what the environment asks for."""
    if "MUTATE_RECORD" in os.environ:
        config.pluginmanager.register(Recorder(os.environ["MUTATE_RECORD"], config.rootpath))
    if "MUTATE_SELECT" in os.environ:
        config.pluginmanager.register(Selector(os.environ["MUTATE_SELECT"]))
