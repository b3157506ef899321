"""Variant wheels (PEP 825), and the file that describes the variants of a release."""

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Properties = Mapping[str, Mapping[str, Sequence[str]]]

PEP_825 = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
PEP_850 = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
# What uv takes for the provider of NVIDIA that it has built in.
NVIDIA_PROVIDER = {
    "requires": ["nvidia-variant-provider>=0.0.1"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}


def metadata(
    variants: Mapping[str, Properties],
    namespaces: Sequence[str] = ("nvidia",),
    providers: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The content of variant.json or of NAME-VERSION-variants.json."""
    document: dict[str, Any] = {
        "$schema": PEP_825 if providers is None else PEP_850,
        "default-priorities": {"namespace": list(namespaces)},
        "variants": variants,
    }
    if providers is not None:
        document["providers"] = providers
    return document


def make_variant(
    name: str,
    version: str,
    label: str,
    document: Mapping[str, Any] | None = None,
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
    tag: str = "py3-none-any",
) -> tuple[str, bytes]:
    """(file name, content) of a wheel; `label` "" is an ordinary one. Same input, same bytes."""
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    content = {
        f"{name}.py": f"label = {label!r}\n".encode(),
        **(files or {}),
        f"{info}/METADATA": "\n".join([*lines, ""]).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    if label:
        content[f"{info}/variant.json"] = json.dumps(document).encode()
    rows = []
    for path, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}\n")
    content[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in content.items():
            archive.writestr(zipfile.ZipInfo(path), data)
    suffix = f"-{label}" if label else ""
    return f"{name}-{version}-{tag}{suffix}.whl", buffer.getvalue()


def make_release(
    folder: Path,
    name: str,
    version: str,
    variants: Mapping[str, Properties],
    *,
    namespaces: Sequence[str] = ("nvidia",),
    providers: Mapping[str, Any] | None = None,
    files: Mapping[str, Mapping[str, bytes]] | None = None,
    described: bool = True,
) -> None:
    """Write the wheels of a release; "" among the labels is an ordinary wheel.

    `files` are further files of the wheels, by label. Without `described` there is no
    NAME-VERSION-variants.json beside the wheels.
    """
    labels = {label: properties for label, properties in variants.items() if label}
    for label in variants:
        document = metadata({label: variants[label]}, namespaces, providers) if label else None
        own = (files or {}).get(label)
        filename, data = make_variant(name, version, label, document, files=own)
        (folder / filename).write_bytes(data)
    if described:
        document = metadata(labels, namespaces, providers)
        (folder / f"{name}-{version}-variants.json").write_text(json.dumps(document))
