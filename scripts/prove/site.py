#!/usr/bin/env python3
"""Prove the documentation site in a headless Chromium. Write docs/records/site.json.

    pip install ".[docs]"
    python scripts/tools.py prove site [--record FILE]

- build: scripts/docs/site.py in a network namespace that has no network.
- pages: each is opened from its file. axe-core, which npm fetches, finds nothing: on one page of
  each kind light and dark at 390 and 1280 px, on the others dark at 390 or light at 1280 px in
  turn. No page is wider than a window of 390 to 1600 px. The console has no error.
- links: every link leads to a file of the site, and to an element if it has a fragment.
- a reader: the search, a skip link by the keyboard, the back button, the choice of dark mode.
- no page makes a request to the outside.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from common import ROOT, TOOLS, write_record
from prove.browser import AXE, Browser, fetch_axe

WIDTHS = (390, 768, 1280, 1600)
LOOKS = ((390, True), (1280, False), (390, False), (1280, True))  # (width, dark)
# One page of each kind.
KINDS = (
    "index.html", "rules.html", "reference/commands/solve.html", "reference/api-functions.html",
    "what-runs.html",
)  # fmt: skip
LINKS_AND_IDS = """[
  [...document.querySelectorAll("a[href]")].map((link) => link.href),
  [...document.querySelectorAll("[id]")].map((element) => element.id),
]"""
# The results are in a shadow root.
RESULTS = """[...document.querySelectorAll("*")].filter((one) => one.shadowRoot)
  .flatMap((one) => [...one.shadowRoot.querySelectorAll("a[href]")]).map((link) => link.href)"""
SCHEME = "document.body.dataset.mdColorScheme"
# Search text: the page of the first result.
SEARCHES = {
    "driver floor": "rules.html",
    "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH": "causes/",
    "slurm": "guides/cluster.html",
    "jupyter": "guides/notebooks.html",
    "air gap": "guides/air-gap.html",
    "1080 Ti": "support.html",
    "rollback": "reference/commands/rollback.html",
    "GPUENV_CONFIG_FILE": "environment.html",
}


def build(site: Path) -> dict[str, object]:
    """Build the site without a network."""
    start, used = time.monotonic(), processor_seconds()
    subprocess.run(
        ["unshare", "-rn", sys.executable, TOOLS, "docs", "site", "--to", site], check=True
    )
    files = [file for file in site.rglob("*") if file.is_file()]
    return {
        "seconds": round(time.monotonic() - start, 1),
        "seconds of processor time": round(processor_seconds() - used, 1),
        "megabytes": round(sum(file.stat().st_size for file in files) / 1e6, 1),
    }


def processor_seconds() -> float:
    """Return the processor time of all child processes that ended."""
    times = os.times()
    return times.children_user + times.children_system


class Pages:
    """Pages that different readers look at, and what is wrong with them.

    Attributes:
        wide: the pages that are wider than the window.
        violations: the rules of axe-core that a page violates.
    """

    def __init__(self, page: Browser, site: Path, axe: str) -> None:
        self._page, self._site, self._axe = page, site, axe
        self._links: list[tuple[str, str]] = []
        self._ids: dict[Path, set[str]] = {}
        self.wide: list[object] = []
        self.violations: list[object] = []

    def look(self, name: str) -> None:
        """Look at a page, and note what is wrong and where its links lead."""
        page, file = self._page, self._site / name
        turn = len(self._ids) % 2
        for width, dark in LOOKS if name in KINDS else LOOKS[turn : turn + 1]:
            page.look(width=width, height=900, dark=dark)
            page.open(file.as_uri())
            place = f"{name} {width} {'dark' if dark else 'light'}"
            self.violations += [[place, *rule] for rule in page.violations(self._axe)]
        for width in WIDTHS:
            page.look(width=width, height=900)
            if page.overflow() > 0:
                self.wide.append([name, width])
        urls, elements = page.evaluate(LINKS_AND_IDS)
        self._links += [(name, url) for url in urls]
        self._ids[file] = set(elements)

    def links(self) -> dict[str, object]:
        """Compare each link of the pages with the files and the elements that exist."""
        internal = {(name, url) for name, url in self._links if is_file(url)}
        outside = {url for _, url in self._links if not is_file(url)}
        broken = sorted(link for link in internal if not leads_somewhere(link[1], self._ids))
        return {"links": len(internal), "links to the outside": len(outside), "broken": broken}


def is_file(url: str) -> bool:
    """Return whether a link leads to a file."""
    return url.startswith("file:")


def leads_somewhere(url: str, ids: Mapping[Path, set[str]]) -> bool:
    """Return whether the file of a link exists, and the element that its fragment names."""
    parts = urlsplit(url)
    file = Path(unquote(parts.path))
    if not parts.fragment or file not in ids:
        return file.is_file()
    return unquote(parts.fragment) in ids[file] or "=" in parts.fragment  # a choice of the explorer


def wait_for(page: Browser, expression: str) -> Any:
    """Return the first value of an expression that is true; the last one after ten seconds."""
    end = time.monotonic() + 10
    while not (value := page.evaluate(expression)) and time.monotonic() < end:
        time.sleep(0.05)
    return value


def prove_search(page: Browser, site: Path) -> list[dict[str, object]]:
    """Type texts into the search."""
    rows = []
    for text, expected in SEARCHES.items():
        page.open((site / "index.html").as_uri())
        page.click("[data-md-component=search]")
        page.type(text)
        start = time.monotonic()
        results = wait_for(page, RESULTS)
        seconds = round(time.monotonic() - start, 2)
        first = results[0].removeprefix(f"{site.as_uri()}/") if results else None
        right = bool(first) and first.startswith(expected)
        rows.append({"text": text, "first": first, "seconds": seconds, "right": right})
    return rows


def prove_ways(page: Browser, site: Path) -> dict[str, bool]:
    """Use the keyboard, a link and the back button."""
    home, other = (site / "index.html").as_uri(), (site / "tutorial.html").as_uri()
    page.open(home)
    page.press("Tab")
    on_skip_link = "md-skip" in page.evaluate("document.activeElement.className")
    page.press("Enter")
    skipped = bool(page.evaluate("location.hash"))

    page.open(home)
    page.follow("article a[href*=tutorial]")
    arrived = page.evaluate("location.href").startswith(other)
    page.back()
    returned = page.evaluate("location.href").startswith(home)
    return {
        "the first Tab reaches the skip link, and Enter follows it": on_skip_link and skipped,
        "a link and the back button work": arrived and returned,
    }


def prove_colors(page: Browser, site: Path) -> dict[str, bool]:
    """Change the colors of the system, and then choose others by hand."""
    page.open((site / "index.html").as_uri())
    follows = []
    for dark, scheme in ((True, "slate"), (False, "default")):
        page.look(width=1280, height=900, dark=dark)
        follows.append(bool(wait_for(page, f"{SCHEME} === '{scheme}'")))
    for _ in range(2):  # light, then dark
        page.click("[data-md-component=palette] label:not([hidden])")
    chosen = bool(wait_for(page, f"{SCHEME} === 'slate'"))
    page.open((site / "tutorial.html").as_uri())
    kept = bool(wait_for(page, f"{SCHEME} === 'slate'"))
    return {
        "the colors follow the system": all(follows),
        "dark mode that was chosen is kept on the next page": chosen and kept,
    }


def main(words: list[str]) -> int:
    """Run all parts. Return 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", type=Path, default=ROOT / "docs/records/site.json")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        site = folder / "site"
        figures = build(site)
        names = sorted(str(file.relative_to(site)) for file in site.rglob("*.html"))
        with Browser(folder / "profile") as page:
            pages = Pages(page, site, fetch_axe(folder))
            for name in names:
                pages.look(name)
                print(f"{name}: {len(pages.violations)} violations so far", flush=True)
            page.look(width=1280, height=900)
            record: dict[str, Any] = {
                "date": date.today().isoformat(),
                "browser": page.call("Browser.getVersion")["product"],
                "build without a network": figures,
                "reader": prove_ways(page, site) | prove_colors(page, site),
                "search": prove_search(page, site),
                "links": pages.links(),
                "wider than the window": pages.wide,
                "axe": {"version": AXE, "violations": pages.violations},
                "console errors": page.errors,
                "requests to the outside": page.outside_requests(),
                "pages": names,
            }
    write_record(record, arguments.record)
    return 0 if is_proved(record) else 1


def is_proved(record: Mapping[str, Any]) -> bool:
    """Return whether a record has no failure; axe-core's minor and moderate rules are none."""
    serious = [rule for rule in record["axe"]["violations"] if rule[1] in ("serious", "critical")]
    failures = [
        *record["console errors"], *record["requests to the outside"], *record["links"]["broken"],
        *record["wider than the window"], *serious,
    ]  # fmt: skip
    search_is_right = all(row["right"] for row in record["search"])
    return not failures and search_is_right and all(record["reader"].values())
