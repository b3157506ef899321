"""A page in a headless Chromium, by Playwright."""

from __future__ import annotations

import shutil
from typing import Any, Self

from playwright.sync_api import ConsoleMessage, Request, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page, as a user has it.

    Attributes:
        page: the page, with all that Playwright can do with it.
        errors: the errors and warnings of its console, and exceptions that nothing caught.
        requests: the URLs that a page asked for and that are no file.
    """

    def __init__(self) -> None:
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=CHROMIUM)
        self.version = self._browser.version
        self.page = self._browser.new_page()
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._note_request)
        self.errors: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._browser.close()
        self._playwright.stop()

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:", "about:")):
            self.requests.append(request.url)

    def open(self, url: str) -> None:
        """Open a page anew, also if only the fragment differs, and wait until it is loaded."""
        self.page.goto("about:blank")
        self.page.goto(url)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are awaited."""
        return self.page.evaluate(expression)

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return self.page.inner_text(selector)

    def press(self, key: str) -> None:
        """Press and release a key."""
        self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.page.keyboard.insert_text(text)

    def click(self, selector: str) -> None:
        """Click an element with the mouse."""
        self.page.click(selector)

    def look(self, *, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the window, and light or dark."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if dark else "light")

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        width = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return int(width)

    def violations(self) -> list[list[Any]]:
        """Return the rules of axe-core that the page violates, each with examples."""
        from axe_playwright_python.sync_playwright import Axe  # tests do not need it

        found = Axe().run(self.page, options={"preload": False}).response["violations"]
        return [
            [rule["impact"], rule["id"], [node["html"][:120] for node in rule["nodes"][:2]]]
            for rule in found
        ]
