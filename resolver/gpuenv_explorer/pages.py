"""HTML pages in one design (page.css): reports of JSON documents, and the compatibility explorer.

Each page is one file that needs no network. Reports need no script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from gpuenv import InputError
from gpuenv_fleet import text as fleet

_FOLDER = os.path.dirname(__file__)
_CHART_HEIGHT = 120  # pixels
_BAR_WIDTH = 28

Document = Mapping[str, Any]


def kind(document: Document) -> str | None:
    """Return what a document is: fleet-detect, -solve or -verify, lock, verify or solve."""
    name = str(document.get("kind", ""))
    if name.startswith("fleet-") or name == "lock":
        return name
    if isinstance(document.get("checks"), list):
        return "verify"
    if isinstance(document.get("frameworks"), dict) and "packages" in document:
        return "solve"
    return None


def report_html(documents: Sequence[tuple[str, Document]]) -> str:
    """Return the report of documents.

    Args:
        documents: (name of the file, document), each of a known kind.

    Raises:
        InputError: jinja2 is not installed, or a document lacks a key.
    """
    jinja2 = _jinja2("gpuenv report")
    try:
        sections = [
            {"name": name, "kind": kind(document), "document": document, **_section(document)}
            for name, document in documents
        ]
        timeline = _timeline([document for _, document in documents])
        return _render(jinja2, "report.html.j2", sections=sections, timeline=timeline)
    except (KeyError, TypeError, AttributeError, jinja2.UndefinedError) as error:
        raise InputError(f"a document lacks what its report shows: {error}") from None


def explorer_html(tables: Document) -> str:
    """Return the compatibility explorer, one page that needs no network.

    Args:
        tables: the document of `tables.Tables`.

    Raises:
        InputError: jinja2 is not installed.
    """
    jinja2 = _jinja2("gpuenv matrix html")
    with open(os.path.join(_FOLDER, "explorer.js"), encoding="utf-8") as file:
        script = file.read()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = json.dumps(tables, separators=(",", ":"), ensure_ascii=True)
    shown = tables["platforms"]["linux-x86_64"]
    return _render(
        jinja2,
        "explorer.html.j2",
        script=script,
        digest=digest,
        # Inside a script element, only "</script" and "<!--" have a meaning for a browser.
        tables=text.replace("<", "\\u003c"),
        data=tables["data"],
        frameworks=sorted(shown["frameworks"]),
        libraries=sorted(shown["libraries"]),
        pythons=tables["pythons"],
        platforms=list(tables["platforms"]),
        gpus=[name for name, _ in tables["gpus"]["names"]],
    )


def _jinja2(command: str) -> ModuleType:
    """Return jinja2, an optional dependency. InputError if it is not installed."""
    try:
        import jinja2
    except ImportError:
        hint = "pip install 'gpuenv[report]'"
        raise InputError(f"{command} needs jinja2", hint=hint) from None
    return jinja2


def _render(jinja2: ModuleType, template: str, **values: object) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return str(environment.get_template(template).render(values))


def _section(document: Document) -> dict[str, Any]:
    """Return what the template shows of a document beside its own keys."""
    section: dict[str, Any] = {
        "classes": [
            {
                "nodes": fleet.fold(host_class["nodes"]),
                "count": len(host_class["nodes"]),
                "host": fleet.host_text(host_class),
            }
            for host_class in document.get("classes", ())
        ]
    }
    lines = {
        "fleet-detect": fleet.detect_lines,
        "fleet-solve": fleet.solve_lines,
        "fleet-verify": fleet.verify_lines,
    }.get(str(kind(document)))
    if lines is not None:
        section["headline"] = lines(document)[0]
        section["silent"] = fleet.nodes_by_text(document["silent"], fleet.reason_text)
    if kind(document) == "fleet-solve":
        section["what_if"] = fleet.what_if_lines(document)
    elif kind(document) == "fleet-verify":
        outliers = {outlier["node"] for outlier in document["outliers"]}
        section["outliers"] = [
            {**outlier, "text": fleet.outlier_text(outlier)} for outlier in document["outliers"]
        ]
        # Failed nodes first, then outliers, then the others.
        results = [{**row, "outlier": row["node"] in outliers} for row in document["results"]]
        results.sort(key=lambda row: (bool(row["ok"]), not row["outlier"], str(row["node"])))
        section["results"] = results
    return section


def _timeline(documents: Sequence[Document]) -> dict[str, Any] | None:
    """Return the runs of `fleet verify` in their order, with the bars of a chart."""
    runs = [document for document in documents if kind(document) == "fleet-verify"]
    if len(runs) < 2:
        return None
    runs.sort(key=lambda run: str(run["time"]))
    most = max(run["nodes"] for run in runs) or 1
    bars = []
    for number, run in enumerate(runs):
        failed = run["answered"] - run["passed"]
        counts = {"passed": run["passed"], "failed": failed, "silent": len(run["silent"])}
        parts, y = [], float(_CHART_HEIGHT)  # from the bottom up
        for name, count in counts.items():
            height = _CHART_HEIGHT * count / most
            y -= height
            place = {"y": round(y, 1), "height": round(height, 1)}
            parts.append({"name": name, "count": count, **place})
        outliers = len({outlier["node"] for outlier in run["outliers"]})
        x = number * (_BAR_WIDTH + 8)
        bars.append({"time": run["time"], **counts, "outliers": outliers, "x": x, "parts": parts})
    width = len(bars) * (_BAR_WIDTH + 8)
    return {"bars": bars, "width": width, "height": _CHART_HEIGHT, "bar": _BAR_WIDTH}
