"""What one node reports: the document of `verify --json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model import Check, Host
from ..serialize import to_plain
from .checks import checks_json


def verification_json(checks: Sequence[Check], host: Host) -> dict[str, Any]:
    """Return the document of `verify --json`, with what `gpuenv fleet verify` compares.

    "libraries" are the hashes of NVIDIA's libraries, by their path in the environment. "bits" are
    the hashes of the convolutions' results.
    """
    libraries = {}
    bits = []
    for check in checks:
        for code, subject, value in check.marks:
            if code == "library":
                libraries[subject] = value
            elif code == "bits":
                bits.append({"device": check.subject, "what": subject, "sha256": value})
    return {
        **checks_json(checks),
        "host": to_plain(host),
        "libraries": libraries,
        "bits": bits,
    }
