"""The links of a page of the simple API in HTML."""

from __future__ import annotations

from html.parser import HTMLParser


class LinkParser(HTMLParser):
    """Collects what PEP 503 and PEP 629 define: links, the base URL and the API version."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: list[dict[str, str | None]] = []
        self.base: str | None = None
        self.api_version = "1.0"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the attributes of <a>, the first <base> and the last version in <meta>."""
        attributes = dict(attrs)
        if tag == "a":
            self.anchors.append(attributes)
        elif tag == "base" and self.base is None:
            self.base = attributes.get("href") or ""
        elif tag == "meta" and attributes.get("name") == "pypi:repository-version":
            self.api_version = attributes.get("content") or ""
