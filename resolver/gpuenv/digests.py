"""sha256 without the import of hashlib, which loads OpenSSL and takes a tenth of the time of a whole solve."""

from __future__ import annotations


def sha256(data: bytes) -> str:
    """The sha256 of some bytes, in hexadecimal."""
    try:
        from _sha2 import sha256 as digest  # type: ignore[import-not-found,unused-ignore]  # CPython 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256 as digest  # type: ignore[import-not-found,unused-ignore]
        except ImportError:  # another Python
            from hashlib import sha256 as digest
    return str(digest(data).hexdigest())
