"""Run a check that another package brings (entry points of the group "gpuenv.checks").

Options: {"entry": "package.module:function", "device": bool}. The function is called with the
keyword `device`: whether it may use a GPU. It passes if it returns, and its text is the evidence;
it fails with an exception; unittest.SkipTest means that it cannot tell. Answers with
answers.OwnCheck. Runs on Python 3.8 and later; standard library and the package only.
"""

from __future__ import annotations

import unittest
from importlib.metadata import EntryPoint
from typing import TypedDict

from ._common import run, step
from ._framework import failure
from .answers import OwnCheck


class Options(TypedDict):
    """The options of this probe."""

    entry: str
    device: bool


def probe(options: Options) -> OwnCheck:
    """Return the answer that this file's docstring describes."""
    step(f"call {options['entry']}")
    try:
        function = EntryPoint(name="", value=options["entry"], group="").load()
        said = function(device=options["device"])
    except unittest.SkipTest as skipped:
        return {"status": "unknown", "evidence": str(skipped)}
    except Exception as error:
        return {"status": "fail", "evidence": failure(error)}
    return {"status": "pass", "evidence": "" if said is None else str(said)}


if __name__ == "__main__":
    run(probe)
