"""The packages of a lock as a bill of materials: CycloneDX 1.6 or SPDX 2.3, as JSON.

The same lock gives the same bytes. Packages have names of the form that both formats use, package
URLs (purl).
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from ..index.urls import is_http_url, without_credentials
from ..model import Lock, Pin, Value
from ..version import __version__

FORMATS = ("cyclonedx", "spdx")


class Component(Value):
    """A package: `requires` has the names of the components that it depends on."""

    name: str
    purl: str
    version: str = ""  # "" is any version
    url: str = ""
    sha256: str | None = None
    requires: tuple[str, ...] = ()


def lock_text(kind: str, lock: Lock) -> str:
    """Return the text of a bill of the packages that a lock installs.

    Args:
        kind: one of FORMATS.
        lock: the lock.
    """
    pins = [(pin, lock.conda) for pin in lock.pins]
    pins += [(pin, False) for pin in (lock.wheels.pins if lock.wheels else ())]
    parts = [_component(pin, conda) for pin, conda in pins]
    name = f"gpuenv-lock-{lock.digest[:16]}" if lock.digest else "gpuenv-lock"
    root = Component(
        name=name, purl=f"pkg:generic/{name}", requires=tuple(part.name for part in parts)
    )
    document = cyclonedx(root, parts) if kind == "cyclonedx" else _spdx(root, parts)
    return text_of(document)


def text_of(document: dict[str, Any]) -> str:
    """Return the text of a document."""
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def package_url(kind: str, name: str, version: str = "", **qualifiers: str) -> str:
    """Return the package URL (purl) of a package of a kind: pypi or conda."""
    at = f"@{quote(version, safe='')}" if version else ""
    asked = f"?{urlencode(sorted(qualifiers.items()))}" if qualifiers else ""
    return f"pkg:{kind}/{name}{at}{asked}"


def _component(pin: Pin, conda: bool) -> Component:
    wheel = pin.wheel
    if conda:
        channel = without_credentials(wheel.index)
        qualifiers = {"build": wheel.metadata["build"], "channel": channel}
    else:
        qualifiers = {"file_name": wheel.filename}
    kind = "conda" if conda else "pypi"
    return Component(
        name=wheel.name,
        version=wheel.version,
        purl=package_url(kind, wheel.name, wheel.version, **qualifiers),
        url=without_credentials(wheel.url) if is_http_url(wheel.url) else "",
        sha256=wheel.sha256,
        requires=pin.dependencies,
    )


def cyclonedx(root: Component, parts: Sequence[Component]) -> dict[str, Any]:
    """Return a document of CycloneDX 1.6, without the time at which it was made."""
    references = {part.name: part.purl for part in parts}
    document: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", **_described(root)}},
        "components": [{"type": "library", **_described(part)} for part in parts],
        "dependencies": [
            {
                "ref": part.purl,
                "dependsOn": sorted(
                    {references[name] for name in part.requires if name in references}
                ),
            }
            for part in (root, *parts)
        ],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, text_of(document))
    return {**document, "serialNumber": f"urn:uuid:{number}"}


def _described(part: Component) -> dict[str, Any]:
    described: dict[str, Any] = {"bom-ref": part.purl, "name": part.name, "purl": part.purl}
    if part.version:
        described["version"] = part.version
    if part.sha256:
        described["hashes"] = [{"alg": "SHA-256", "content": part.sha256}]
    if part.url:
        described["externalReferences"] = [{"type": "distribution", "url": part.url}]
    return described


def _spdx(root: Component, parts: Sequence[Component]) -> dict[str, Any]:
    """Return a document of SPDX 2.3. It must name a time: SOURCE_DATE_EPOCH, or now."""
    identifiers = {part.name: f"SPDXRef-Package-{i}" for i, part in enumerate((root, *parts))}
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    packages = []
    for part in (root, *parts):
        package: dict[str, Any] = {
            "SPDXID": identifiers[part.name],
            "name": part.name,
            "downloadLocation": part.url or "NOASSERTION",
            "filesAnalyzed": False,
            "externalRefs": [
                {
                    "referenceCategory": "PACKAGE-MANAGER",
                    "referenceType": "purl",
                    "referenceLocator": part.purl,
                }
            ],
        }
        if part.version:
            package["versionInfo"] = part.version
        if part.sha256:
            package["checksums"] = [{"algorithm": "SHA256", "checksumValue": part.sha256}]
        packages.append(package)
    depends = [
        (identifiers[part.name], "DEPENDS_ON", identifiers[name])
        for part in (root, *parts)
        for name in sorted(set(part.requires) & identifiers.keys() - {part.name})
    ]
    described = ("SPDXRef-DOCUMENT", "DESCRIBES", identifiers[root.name])
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": root.name,
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text_of({'p': packages}))}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "creators": [f"Tool: gpuenv-{__version__}"],
        },
        "packages": packages,
        "relationships": [
            {"spdxElementId": first, "relationshipType": kind, "relatedSpdxElement": second}
            for first, kind, second in (described, *depends)
        ],
    }
