"""Says what is installed and what it asks for: of each distribution its requirements, and whether an index has it.

-> {"prefix", "managed": why no installer may write here or "",
    "distributions": [{"name", "version", "requires": [TEXT],
    "direct": true if it was installed from a folder, a file or a URL of its own}]}

Runs on Python 3.9 and later; standard library only. The files are those of the installed-distributions format:
direct_url.json is PEP 610, EXTERNALLY-MANAGED is PEP 668.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
import sysconfig


def main() -> None:
    """Answers; the options say nothing."""
    rows = {}
    for dist in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", dist.metadata["Name"] or "").lower()
        if name and name not in rows:  # the first on sys.path is what an import finds
            direct = dist.read_text("direct_url.json") is not None
            row = {"name": name, "version": dist.version, "requires": list(dist.requires or ()), "direct": direct}
            rows[name] = row
    managed = ""
    if sys.prefix == sys.base_prefix:
        path = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
        managed = path if os.path.isfile(path) else ""
    answer = {"prefix": sys.prefix, "managed": managed, "distributions": [rows[name] for name in sorted(rows)]}
    sys.stdout.write("\ngpuenv-probe: " + json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
