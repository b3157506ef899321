"""Attestations of files (PEP 740): who has published a file, by signatures that sigstore records.

pypi-attestations checks them, with the root of trust that its sigstore has. So only the index is
asked. An attestation is about the sha256 of a file: the lock has it, so the file itself is not
needed.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import urljoin, urlsplit

from ..errors import InputError, NotAttestedError, error_text
from ..model import IndexOptions, Pin, Wheel
from ..serialize import canonical_json
from .http import OK, Transport
from .urls import is_http_url, last_part

_JSON = "application/vnd.pypi.simple.v1+json"
_SHOWN = 4  # files in a message


def attested_pins(pins: Sequence[Pin], options: IndexOptions) -> tuple[Pin, ...]:
    """Return pins with the publishers of their files.

    Args:
        pins: the packages of a lock.
        options: the options of the solve, which may have credentials.

    Raises:
        InputError: pypi-attestations is not installed.
        NotAttestedError: a file has no attestation, or one that does not hold.
        PackageIndexError: an index does not answer.
    """
    # sigstore warns for each file that it downloads no newer root of trust.
    logging.getLogger("sigstore").setLevel(logging.ERROR)
    if importlib.util.find_spec("pypi_attestations") is None:
        message = "pypi-attestations is not installed, which checks attestations"
        raise InputError(message, hint='install "gpuenv[attestations]"')
    attested, problems = [], []
    with Transport() as transport:
        for url in filter(None, (options.index_url, *options.extra_index_urls)):
            transport.login(url)
        for pin in pins:
            try:
                attested.append(pin.replace(publishers=publishers(pin.wheel, transport)))
            except NotAttestedError as error:
                problems.append(f"{pin.wheel.filename}: {error.message}")
    if problems:
        more = f"; and {len(problems) - _SHOWN} more files" if len(problems) > _SHOWN else ""
        message = f"{'; '.join(problems[:_SHOWN])}{more}"
        raise NotAttestedError(message, hint="leave out --require-attestations, or these packages")
    return tuple(attested)


def publishers(wheel: Wheel, transport: Transport) -> tuple[str, ...]:
    """Return who has published a file, each as the canonical JSON of a PEP 751 identity.

    Every attestation that the index serves for the file must hold.

    Args:
        wheel: a file of an index that serves JSON (PEP 691).
        transport: sends the requests.

    Raises:
        NotAttestedError: the index serves none for this sha256, or one does not hold.
        PackageIndexError: the index does not answer.
    """
    from pypi_attestations import AttestationError, AttestationType, Distribution, Provenance

    if wheel.sha256 is None:
        raise NotAttestedError("its index gives no sha256")
    url = _provenance_url(wheel, transport)
    reply = transport.get(url, f"the attestations of {wheel.filename}")
    if reply.status != OK:
        raise NotAttestedError(f"its attestations answer with status {reply.status}")
    try:
        provenance = Provenance.model_validate_json(reply.body)
        file = Distribution(name=wheel.filename, digest=wheel.sha256)
    except ValueError:
        raise NotAttestedError("its attestations do not follow PEP 740") from None
    identities = set()
    for bundle in provenance.attestation_bundles:
        identity = canonical_json(bundle.publisher.model_dump(exclude_none=True, mode="json"))
        for attestation in bundle.attestations:
            try:
                kind, _ = attestation.verify(bundle.publisher, file, offline=True)
            except AttestationError as error:
                message = f"an attestation does not hold: {error_text(error)}"
                raise NotAttestedError(message) from None
            if kind == AttestationType.PYPI_PUBLISH_V1:
                identities.add(identity)
    if not identities:
        raise NotAttestedError("no attestation says who has published it")
    return tuple(sorted(identities))


def _provenance_url(wheel: Wheel, transport: Transport) -> str:
    """Return where the index serves the attestations of a file."""
    if not is_http_url(wheel.index):
        raise NotAttestedError("it is of no index")
    page = f"{wheel.index.rstrip('/')}/{wheel.name}/"
    reply = transport.get(page, wheel.name, {"Accept": _JSON})
    try:
        rows = json.loads(reply.body)["files"] if reply.status == OK else []
        places = [row.get("provenance") for row in rows if _is_file(row, wheel)]
    except (ValueError, TypeError, LookupError, AttributeError):
        places = []
    if not places or not isinstance(places[0], str):
        raise NotAttestedError("its index serves no attestation of it")
    url = urljoin(reply.url, places[0])
    if urlsplit(url).scheme != urlsplit(page).scheme:
        raise NotAttestedError("the URL of its attestations has another scheme than its index")
    return url


def _is_file(row: dict[str, Any], wheel: Wheel) -> bool:
    named = row["filename"], row["hashes"].get("sha256")
    return named == (last_part(wheel.url), wheel.sha256)
