"""Import a framework that has no probe of its own, and report its version and libraries.

Contract: __init__.py. Runs on Python 3.8 and later; standard library and the framework only.
"""

from __future__ import annotations

from ._framework import Framework, main

if __name__ == "__main__":
    main(Framework)
