"""The links of an HTML page of an index (PEP 503).

Pages have thousands of them, and html.parser takes longer to read them than the network to bring them. Tags that are
written in the usual way are read here; html.parser is asked where a page has anything in which a tag may be no tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Attributes = dict[str, str | None]

_TAG = re.compile(r"""<(a|base|meta)((?:[\s/](?:"[^"]*"|'[^']*'|[^'"<>])*)?)>""", re.IGNORECASE)
_MAYBE = re.compile(r"<(?:a|base|meta)[\s/>]", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""\s+([a-zA-Z][a-zA-Z0-9:_-]*)(?:="([^"]*)"|='([^']*)'|(?=\s|$))""")
_ATTRIBUTES = re.compile(rf"(?:{_ATTRIBUTE.pattern})*\s*")
_STRANGE = re.compile(r"<!--|<!\[|<\?|<(?:script|style|textarea|title|xmp|iframe|noembed|noframes|plaintext)\b", re.I)
_TITLE = re.compile(r"<title>[^<]*</title>", re.IGNORECASE)
_VERSION_NAME = "pypi:repository-version"


def read_anchors(text: str) -> tuple[str | None, Iterator[Attributes], str | None]:
    """(base href, attributes of every anchor, version of the simple API) of an HTML page."""
    if not _is_usual(text):
        parsed = _parsed(text)
        return _of(parsed, iter([attributes for name, attributes in parsed if name == "a"]))
    others = [(tag[1].lower(), _attributes(tag[2])) for tag in _TAG.finditer(text) if tag[1] not in "aA"]
    return _of(others, (_attributes(tag[2]) for tag in _TAG.finditer(text) if tag[1] in "aA"))


def _of(
    others: Sequence[tuple[str, Attributes]], anchors: Iterator[Attributes]
) -> tuple[str | None, Iterator[Attributes], str | None]:
    base = next((attributes.get("href") for name, attributes in others if name == "base"), None)
    versions = [one.get("content") for name, one in others if name == "meta" and one.get("name") == _VERSION_NAME]
    return base, anchors, versions[-1] if versions else None


def _is_usual(text: str) -> bool:
    """Whether a page has nothing strange in it, so that its tags are what they seem to be."""
    title = _TITLE.search(text, 0, 4096)
    start, end = title.span() if title else (0, 0)
    if _STRANGE.search(text, 0, start) or _STRANGE.search(text, end):
        return False
    found = 0
    for tag in _TAG.finditer(text):
        if not _ATTRIBUTES.fullmatch(tag[2]):
            return False
        found += 1
    return found == sum(1 for _ in _MAYBE.finditer(text))


def _attributes(text: str) -> Attributes:
    from html import unescape

    found: Attributes = {}
    for match in _ATTRIBUTE.finditer(text):
        value = match[2] if match[2] is not None else match[3]
        found[match[1].lower()] = unescape(value) if value and "&" in value else value
    return found


def _parsed(text: str) -> list[tuple[str, Attributes]]:
    """The same by html.parser, of any page."""
    from html.parser import HTMLParser

    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.tags: list[tuple[str, Attributes]] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag in ("a", "base", "meta"):
                self.tags.append((tag, dict(attrs)))

    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader.tags
