"""URLs of source trees that requirements name: folders, and commits of git repositories.

A tree is built like a source distribution. Its URL is `file:///FOLDER`, with `#editable` for an
editable install, or `git+URL@COMMIT`, with what was asked for in its fragment
(`#rev=main&subdirectory=python`). A commit is known by its id; a folder has no hash.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

from ..model import Value, Wheel
from ..serialize import text_digest
from .target import FILE_SUFFIXES

EDITABLE = "#editable"


class Commit(Value):
    """A commit of a repository, as PEP 751 has it."""

    url: str
    commit: str
    revision: str = ""
    subdirectory: str = ""

    def __str__(self) -> str:
        details = {"rev": self.revision, "subdirectory": self.subdirectory}
        fragment = urlencode({key: text for key, text in details.items() if text}, safe="/")
        return f"git+{self.url}@{self.commit}" + (f"#{fragment}" if fragment else "")


def is_tree(url: str) -> bool:
    """Return whether a URL or a path is that of a source tree, not of a file."""
    if url.startswith("git+"):
        return True
    parts = urlsplit(url)
    is_local = parts.scheme in ("", "file")
    return is_local and not parts.path.lower().endswith(FILE_SUFFIXES)


def read_commit(url: str) -> Commit:
    """Return the commit in a git+ URL; `commit` is what is asked for, "" for the default branch."""
    plain, _, fragment = url.removeprefix("git+").partition("#")
    details = dict(parse_qsl(fragment))
    scheme, _, rest = plain.partition("://")
    host, _, path = rest.partition("/")  # git@HOST has an @, too
    path, _, asked = path.partition("@")
    return Commit(
        url=f"{scheme}://{host}/{path}",
        commit=asked,
        revision=details.get("rev", ""),
        subdirectory=details.get("subdirectory", ""),
    )


def key_of(url: str) -> str | None:
    """Return what stands for the hash of a tree: of a commit, not of a folder, which changes."""
    if not url.startswith("git+"):
        return None
    return text_digest(str(read_commit(url).replace(revision="")))


def is_editable(wheel: Wheel) -> bool:
    """Return whether a package is an editable install of a folder."""
    return wheel.url.endswith(EDITABLE)
