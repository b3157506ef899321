"""The programs of the folder scripts/, as modules and as commands."""

import importlib
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def load_script(name):
    """Return the module of a program, for example "prove.corpus"."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    return importlib.import_module(name)


def tool(group, name, *arguments):
    """Return the command that runs a program."""
    return [sys.executable, str(SCRIPTS / "tools.py"), group, name, *arguments]
