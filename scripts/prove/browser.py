"""A headless Chromium that a test drives through the DevTools protocol, over two pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

AXE = "axe-core@4.14.1"  # MPL-2.0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_TIMEOUT = 60  # seconds for one answer of a busy machine
_KEYS = {"Tab": 9, "Enter": 13, "ArrowDown": 40, " ": 32}


class Browser:
    """One page in a headless Chromium.

    Attributes:
        requests: the URLs that the page asked for, but for the pages that were opened.
        errors: the errors and warnings of its console, and exceptions that nothing caught.
    """

    def __init__(self, folder: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        arguments = " ".join([
            "--headless --remote-debugging-pipe --no-sandbox --disable-gpu --no-first-run",
            f"--user-data-dir={folder} --disable-dev-shm-usage --hide-scrollbars about:blank",
        ])  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {CHROMIUM} {arguments} 3<&{to_browser} 4>&{from_browser}"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log", "Performance"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session = ""
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)

    # ---- the protocol

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the result of a method of the protocol. Raises RuntimeError if it fails."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + _TIMEOUT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise OSError("the browser ended")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _note(self, event: dict[str, Any]) -> None:
        method, fields = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent" and fields["type"] != "Document":
            self.requests.append(fields["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(fields["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.errors.append(fields["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and fields["type"] in ("error", "warning"):
            self.errors.append(str(fields["args"]))
        self._events.append(event)

    def _wait_for(self, *methods: str) -> None:
        while not any(event.get("method") in methods for event in self._events):
            self._note(self._receive())

    # ---- a user

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self._events.clear()
        self.call("Page.navigate", url="about:blank")
        self._wait_for("Page.loadEventFired")
        self._events.clear()
        self.call("Page.navigate", url=url)
        self._wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are awaited."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key."""
        code = _KEYS[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        fields = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        kind = "keyDown" if text else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", type=kind, text=text, **fields)
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse."""
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind, x=box[0], y=box[1], button="left", clickCount=1,
            )  # fmt: skip

    def follow(self, selector: str) -> None:
        """Click a link to another page and wait until that is loaded."""
        self._events.clear()
        self.click(selector)
        self._wait_for("Page.loadEventFired")

    def back(self) -> None:
        """Press the back button of the browser."""
        history = self.call("Page.getNavigationHistory")
        entry = history["entries"][history["currentIndex"] - 1]
        self._events.clear()
        self.call("Page.navigateToHistoryEntry", entryId=entry["id"])
        self._wait_for("Page.navigatedWithinDocument", "Page.frameNavigated")

    def look(self, *, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the window, and light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return self.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def violations(self, axe: str) -> list[list[Any]]:
        """Return the rules that the page violates by the script of axe-core, each with examples."""
        self.evaluate(f"{axe}; 0")
        found = self.evaluate("axe.run({preload: false}).then((results) => results.violations)")
        return [
            [rule["impact"], rule["id"], [node["html"][:120] for node in rule["nodes"][:2]]]
            for rule in found
        ]

    def outside_requests(self) -> list[str]:
        """Return the requests of the page that a file cannot answer."""
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]

    def screenshot(self, path: Path) -> None:
        """Write a picture of the window."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))


def fetch_axe(folder: Path) -> str:
    """Return the script of axe-core, which npm fetches into a folder and whose hash npm checks."""
    subprocess.run(["npm", "pack", "--silent", AXE], cwd=folder, check=True)
    [archive] = folder.glob("axe-core-*.tgz")
    subprocess.run(["tar", "xzf", archive.name], cwd=folder, check=True)
    return (folder / "package" / "axe.min.js").read_text()
