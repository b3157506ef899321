"""SHA-256 digests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def sha256_of(data: bytes) -> str:
    """Return the SHA-256 digest of some bytes as 64 hexadecimal digits."""
    return str(_algorithm()(data).hexdigest())


@cache
def _algorithm() -> Callable[[bytes], Any]:
    """Return SHA-256 of Python itself, as the module random does; else that of hashlib.

    hashlib loads OpenSSL, which takes 5 % of a solve.
    """
    for module in ("_sha2", "_sha256"):  # of Python 3.12 and later, and of Python 3.11
        try:
            algorithm: Callable[[bytes], Any] = import_module(module).sha256
        except ImportError:
            continue
        return algorithm
    from hashlib import sha256

    return sha256
