"""Write the compiled answers and index.json of the snapshot from its package files."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from gpuenv.model import Host, Python
from gpuenv.requirements.target import (
    FIRST_FREE_THREADED,
    PLATFORMS,
    PYTHONS,
    TargetEnvironment,
    fits,
    interpreter_tag,
    normalize_name,
    tag_orders,
)
from registry import write

# These differ between machines of one kind, so no answer is compiled for them.
OPEN = ("platform_release", "platform_version", "implementation_version")
MICROS = range(41)  # an answer that depends on the micro release of Python is not compiled either


def host(
    platform: str, version: tuple[int, int], free_threaded: bool = False, micro: int = 0
) -> Host:
    """Return the target that an answer is compiled for."""
    python = Python(
        version=version,
        free_threaded=free_threaded,
        full_version=f"{version[0]}.{version[1]}.{micro}",
    )
    if platform == "win-amd64":
        return Host(os="windows", machine="x86_64", python=python)
    return Host(os="linux", machine=platform.partition("-")[2], python=python)


def packages(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (path relative to the snapshot, content) of each package file, in a fixed order."""
    for path in sorted(glob.glob(os.path.join(folder, "*", "*.json"))):
        with open(path, encoding="utf-8") as file:
            yield os.path.relpath(path, folder).replace(os.sep, "/"), json.load(file)


def tag_triples(folder: str) -> list[str]:
    """Return every tag triple of the snapshot's wheels."""
    return sorted({tags for _, data in packages(folder) for tags in data["files"]})


def marker_texts(folder: str) -> list[str]:
    """Return the markers of the snapshot's requirements, but for those that only name an extra."""
    requires = {text for _, data in packages(folder) for row in data["metadata"] for text in row}
    markers = {text.partition("; ")[2] for text in requires} - {""}
    return sorted(text for text in markers if not re.fullmatch('extra == "[^"]*"', text))


def compile_fits(triples: list[str]) -> dict[str, str]:
    """Return {environment: the text for Answers}.

    The text has "" or "glibc rank glibc rank ..." for each triple, separated by commas.
    """
    texts: dict[str, str] = {}
    for version in PYTHONS:
        for free_threaded in (False, True)[: 1 + (version >= FIRST_FREE_THREADED)]:
            orders = tag_orders(version, free_threaded)
            for platform in PLATFORMS:
                target = host(platform, version, free_threaded)
                rows = (
                    " ".join(str(n) for fit in fits(target, orders, tags) for n in fit)
                    for tags in triples
                )
                texts[f"{interpreter_tag(version, free_threaded)}-{platform}"] = ",".join(rows)
    return texts


def compile_marker(marker: str, targets: list[list[TargetEnvironment]]) -> dict[str, int] | None:
    """Return {extra: bits}; None if targets of one kind have different answers.

    `targets` has a list for each bit.
    """
    if any(word in marker for word in OPEN):
        return None
    extras = {
        normalize_name(a or b)
        for a, b in re.findall(r'extra == "([^"]+)"|"([^"]+)" == extra', marker)
    }
    mentions = len(re.findall(r"\bextra\b", re.sub(r'"[^"]*"', "", marker)))
    if mentions != len(
        re.findall(r'\bextra == "[^"]+"|"[^"]+" == extra\b', marker)
    ):  # some other comparison
        return None
    bits_of_extra = {}
    for extra in ("", *sorted(extras)):
        bits_of_extra[extra] = 0
        for bit, same in enumerate(targets):
            answers = {target.marker(marker, (extra,) if extra else ()) for target in same}
            if len(answers) > 1:
                return None
            bits_of_extra[extra] |= answers.pop() << bit
    return {
        extra: bits
        for extra, bits in bits_of_extra.items()
        if not extra or bits != bits_of_extra[""]
    }


def compile_markers(markers: list[str]) -> dict[str, dict[str, int]]:
    """Return {marker: {extra: bits}}, for Answers."""
    targets = [
        [TargetEnvironment(host(platform, version, micro=micro)) for micro in MICROS]
        for version in PYTHONS
        for platform in PLATFORMS
    ]
    firsts = [same[:1] for same in targets]
    compiled = {
        marker: compile_marker(marker, targets if "full" in marker else firsts)
        for marker in markers
    }
    return {marker: bits for marker, bits in compiled.items() if bits is not None}


def rows(items: Iterator[str]) -> str:
    """Return the items as text, with one on each line."""
    return "\n" + ",\n".join(items) + "\n"


def dump(data: dict[str, Any]) -> str:
    """Return the compiled answers as text: an environment, a marker or a triple on each line."""
    parts = []
    for key, value in data.items():
        if isinstance(value, dict):
            inner = rows(
                f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in value.items()
            )
            parts.append(f"{json.dumps(key)}:{{{inner}}}")
        else:
            parts.append(f"{json.dumps(key)}:[{rows(map(json.dumps, value))}]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def compile_all(folder: str, date: str | None) -> None:
    """Write compiled.json and index.json. `date` None keeps the date that the snapshot has."""
    triples = tag_triples(folder)
    answers = {
        "tags": triples,
        "markers": compile_markers(marker_texts(folder)),
        "fits": compile_fits(triples),
    }
    write(os.path.join(folder, "compiled.json"), dump(answers))
    if date is None:
        with open(os.path.join(folder, "index.json"), encoding="utf-8") as file:
            date = json.load(file)["date"]
    digest = hashlib.sha256()
    counts: dict[str, dict[str, int]] = {}
    for path, data in packages(folder):
        with open(os.path.join(folder, path), "rb") as file:
            digest.update(path.encode() + b"\0" + file.read())
        files = sum(map(len, data["files"].values()))
        counts[path.removesuffix(".json")] = {"versions": len(data["versions"]), "files": files}
    index = {"date": date, "version": f"{date}+{digest.hexdigest()[:12]}", "packages": counts}
    write(os.path.join(folder, "index.json"), json.dumps(index, indent=1) + "\n")
