"""HTML pages in one design (page.css): reports of JSON documents, and the compatibility explorer.

Each page is one file that needs no network. Reports need no script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from gpuenv import InputError
from gpuenv_fleet import text as fleet

TEMPLATE = "report.html.j2"
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
    _require_jinja("gpuenv report")
    import jinja2

    sections = []
    try:
        for name, document in documents:
            sections.append({"name": name, "kind": kind(document), **_section(document)})
        return _render(TEMPLATE, sections=sections, timeline=_timeline(documents))
    except (KeyError, TypeError, AttributeError, jinja2.UndefinedError) as error:
        raise InputError(f"a document lacks what its report shows: {error}") from None


def explorer_html(tables: Document) -> str:
    """Return the compatibility explorer, one page that needs no network.

    Args:
        tables: the document of resolve.answer_tables.

    Raises:
        InputError: jinja2 is not installed.
    """
    _require_jinja("gpuenv matrix html")
    with open(os.path.join(_FOLDER, "explorer.js"), encoding="utf-8") as file:
        script = file.read()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = json.dumps(tables, separators=(",", ":"), ensure_ascii=True)
    # Inside a script element, only "</script" and "<!--" have a meaning for a browser.
    return _render(
        "explorer.html.j2",
        script=script,
        digest=digest,
        tables=text.replace("<", "\\u003c"),
        data=tables["data"],
        frameworks=sorted(tables["platforms"]["linux-x86_64"]["frameworks"]),
        libraries=sorted(tables["platforms"]["linux-x86_64"]["libraries"]),
        pythons=[python["version"] for python in tables["pythons"]],
        platforms=list(tables["platforms"]),
        gpus=[name for name, _ in tables["gpus"]["names"]],
    )


def _require_jinja(command: str) -> None:
    """Raise InputError if jinja2, an optional dependency of gpuenv, is not installed."""
    try:
        import jinja2  # noqa: F401  # `_render` uses it
    except ImportError:
        hint = "pip install 'gpuenv[report]'"
        raise InputError(f"{command} needs jinja2", hint=hint) from None


def _render(template: str, **values: object) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return str(environment.get_template(template).render(values))


def _section(document: Document) -> dict[str, Any]:
    """Return what the template shows of a document."""
    section: dict[str, Any] = {"document": document}
    if kind(document) == "fleet-verify":
        section["outliers"] = [
            {**outlier, "text": fleet.outlier_text(outlier)} for outlier in document["outliers"]
        ]
        section["results"] = _worst_first(document)
        section["silent"] = fleet.by_reason(document["silent"])
        section["headline"] = fleet.verify_lines(document)[0]
    elif kind(document) == "fleet-solve":
        section["silent"] = fleet.by_reason(document["silent"])
        section["headline"] = fleet.solve_lines(document)[0]
        section["what_if"] = fleet.what_if_lines(document)
    elif kind(document) == "fleet-detect":
        section["silent"] = fleet.by_reason(document["silent"])
        section["headline"] = fleet.detect_lines(document)[0]
    section["classes"] = list(map(_class, document.get("classes", ())))
    return section


def _class(host_class: Document) -> dict[str, Any]:
    nodes = host_class["nodes"]
    return {"nodes": fleet.fold(nodes), "count": len(nodes), "host": fleet.host_text(host_class)}


def _worst_first(document: Document) -> list[Document]:
    """Return the results of the nodes: failed ones, then outliers, then the others."""
    outliers = {outlier["node"] for outlier in document["outliers"]}

    def order(result: Document) -> tuple[bool, bool, str]:
        return bool(result["ok"]), result["node"] not in outliers, str(result["node"])

    return [
        {**result, "outlier": result["node"] in outliers}
        for result in sorted(document["results"], key=order)
    ]


def _timeline(documents: Sequence[tuple[str, Document]]) -> dict[str, Any] | None:
    """Return the runs of `fleet verify` in their order, with the bars of a chart."""
    runs = [document for _, document in documents if kind(document) == "fleet-verify"]
    if len(runs) < 2:
        return None
    runs.sort(key=lambda run: str(run["time"]))
    most = max(run["nodes"] for run in runs) or 1
    bars = []
    for number, run in enumerate(runs):
        silent = len(run["silent"])
        failed = run["answered"] - run["passed"]
        outliers = len({outlier["node"] for outlier in run["outliers"]})
        counts = {"passed": run["passed"], "failed": failed, "silent": silent}
        bars.append(
            {
                "time": run["time"],
                **counts,
                "outliers": outliers,
                "x": number * (_BAR_WIDTH + 8),
                "parts": _parts(counts, most),
            }
        )
    width = len(bars) * (_BAR_WIDTH + 8)
    return {"bars": bars, "width": width, "height": _CHART_HEIGHT, "bar": _BAR_WIDTH}


def _parts(counts: Mapping[str, int], most: int) -> list[dict[str, Any]]:
    """Return the parts of a bar from the bottom up."""
    parts = []
    y = float(_CHART_HEIGHT)
    for name, count in counts.items():
        height = _CHART_HEIGHT * count / most
        y -= height
        parts.append({"name": name, "count": count, "y": round(y, 1), "height": round(height, 1)})
    return parts
