"""Print what CHANGELOG.md says of this version.

python scripts/tools.py release notes
"""

from __future__ import annotations

import re
from argparse import Namespace

from common import ROOT
from gpuenv.version import __version__


def main(_arguments: Namespace) -> int:
    """Print the section of this version."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    (section,) = (part for part in sections if part.split()[0] == __version__)
    print(section.partition("\n")[2].strip())
    return 0
