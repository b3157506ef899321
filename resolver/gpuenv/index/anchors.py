"""The links of an HTML page of an index (PEP 503).

Pages have thousands of them, and html.parser takes longer to read them than the network to bring them. Tags that are
written in the usual way are read here; html.parser is asked where a page has anything in which a tag may be no tag.
"""

from __future__ import annotations

import re

Attributes = dict[str, str | None]

_TAG = re.compile(r"""<(a|base|meta)((?:[\s/](?:"[^"]*"|'[^']*'|[^'"<>])*)?)>""", re.IGNORECASE)
_MAYBE = re.compile(r"<(?:a|base|meta)[\s/>]", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""\s+([a-zA-Z][a-zA-Z0-9:_-]*)(?:="([^"]*)"|='([^']*)'|(?=[\s]|$))""")
_STRANGE = re.compile(r"<!--|<!\[|<\?|<(?:script|style|textarea|title|xmp|iframe|noembed|noframes|plaintext)\b", re.I)
_TITLE = re.compile(r"<title>[^<]*</title>", re.IGNORECASE)


def read_anchors(text: str) -> tuple[str | None, list[Attributes], str | None]:
    """(base href, attributes of every anchor, version of the simple API) of an HTML page."""
    tags = _usual(text)
    if tags is None:
        tags = _parsed(text)
    base = next((attributes.get("href") for name, attributes in tags if name == "base"), None)
    versions = [one.get("content") for name, one in tags if name == "meta" and one.get("name") == _VERSION_NAME]
    return base, [attributes for name, attributes in tags if name == "a"], versions[-1] if versions else None


_VERSION_NAME = "pypi:repository-version"


def _usual(text: str) -> list[tuple[str, Attributes]] | None:
    """The tags of a page with nothing strange in it, None of any other."""
    if _STRANGE.search(_TITLE.sub("", text[:4096]) + text[4096:]):
        return None
    found: list[tuple[str, Attributes]] = []
    for match in _TAG.finditer(text):
        attributes = _attributes(match[2])
        if attributes is None:
            return None
        found.append((match[1].lower(), attributes))
    return found if len(found) == len(_MAYBE.findall(text)) else None


def _attributes(text: str) -> Attributes | None:
    from html import unescape

    found: Attributes = {}
    end = 0
    for match in _ATTRIBUTE.finditer(text):
        if match.start() != end:
            return None
        end = match.end()
        name, value = match[1].lower(), match[2] if match[2] is not None else match[3]
        found[name] = unescape(value) if value and "&" in value else value
    return None if text[end:].strip() else found


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
