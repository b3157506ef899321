"""SHA-256 of texts. Files are hashed with hashlib, which is faster for much data.

CPython's own module of the hash is imported, as the standard library's `random` does. hashlib loads
OpenSSL, which takes a twentieth of a solve.
"""

from __future__ import annotations

try:
    from _sha2 import sha256  # type: ignore[import-not-found]  # CPython 3.12
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]  # CPython 3.11
    except ImportError:
        from hashlib import sha256


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, as 64 hexadecimal digits."""
    digest: str = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return digest
