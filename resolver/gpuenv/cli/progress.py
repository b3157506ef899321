"""Progress on stderr: one line that changes on a terminal, plain lines in CI, otherwise nothing."""

from __future__ import annotations

import os
import sys
import threading
import time

from ..activity import Activity, current
from ..render.changes import activity_text

FIRST = 0.3  # seconds after which a step is shown
LOOK_PERIOD = 0.1  # seconds between two looks at the activity
TERMINAL_PERIOD = 0.2
CI_PERIOD = 10.0
_CLEAR = "\r\x1b[K"


class _Ticker(threading.Thread):
    """Shows what runs, again and again, until the process ends."""

    def __init__(self, activity: Activity, *, terminal: bool) -> None:
        super().__init__(daemon=True)
        self._activity, self._terminal = activity, terminal
        self._period = TERMINAL_PERIOD if terminal else CI_PERIOD
        self._writing = threading.Lock()
        self._shown = ""  # the line that is on the terminal

    def run(self) -> None:
        """Show the activity of each step that takes some time."""
        begin: float | None = None
        shown_at = 0.0
        while True:
            time.sleep(LOOK_PERIOD)
            now = time.monotonic()
            if not self._activity.step:
                begin = None
                self.clear()
                continue
            if begin is None:
                begin, shown_at = now, now + FIRST - LOOK_PERIOD - self._period
            if now - shown_at >= self._period:
                shown_at = now
                self._show(int(now - begin))

    def _show(self, seconds: int) -> None:
        text = activity_text(self._activity, seconds)
        with self._writing:
            if not self._activity.step or text == self._shown:
                return
            if self._terminal:
                width = os.get_terminal_size(sys.stderr.fileno()).columns
                sys.stderr.write(f"{_CLEAR}{text[: max(1, width - 1)]}")
                self._shown = text
            else:
                sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line, so that other output begins in the first column."""
        with self._writing:
            if self._shown:
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()
                self._shown = ""


_ticker: _Ticker | None = None


def start() -> None:
    """Begin to show progress."""
    global _ticker  # noqa: PLW0603  a process has one line of progress
    if _ticker is None:
        terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        _ticker = _Ticker(current, terminal=terminal)
        _ticker.start()


def clear() -> None:
    """Remove the line of progress from the terminal before something else is printed."""
    if _ticker is not None:
        _ticker.clear()
