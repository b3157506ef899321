"""Report what is installed and what it requires.

The requirements of each distribution, and where it came from.

-> {"prefix", "managed": path of the file that forbids installers to write here, or "",
    "distributions": [{"name", "version", "requires": [TEXT],
    "direct": true if it was installed from a folder, a file or a URL of its own}]}

Runs on Python 3.9 and later; standard library only. The files are those of the
installed-distributions format: direct_url.json is PEP 610, EXTERNALLY-MANAGED is PEP 668.
"""

from __future__ import annotations

import os
import sys
import sysconfig

from ._common import write_answer
from ._distributions import distributions


def rows() -> list[dict[str, object]]:
    """Return the installed distributions by name.

    Of each name it is the first on sys.path, which an import finds.
    """
    first: dict[str, dict[str, object]] = {}
    for distribution in distributions():
        if distribution.name in first:
            continue
        first[distribution.name] = {
            "name": distribution.name,
            "version": distribution.version,
            "requires": distribution.requires,
            "direct": distribution.read_text("direct_url.json") is not None,
        }
    return [first[name] for name in sorted(first)]


def managed_by() -> str:
    """Return the path of EXTERNALLY-MANAGED if it applies to this interpreter, else ""."""
    if sys.prefix != sys.base_prefix:
        return ""
    path = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return path if os.path.isfile(path) else ""


def main() -> None:
    """Write the answer; the options are not read."""
    write_answer({"prefix": sys.prefix, "managed": managed_by(), "distributions": rows()})


if __name__ == "__main__":
    main()
