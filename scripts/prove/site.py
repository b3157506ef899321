"""Prove the documentation site in a headless Chromium.

    pip install ".[docs]"
    python scripts/tools.py prove site [--record docs/records/site.json]

- build: `docs site` in a network namespace that has no network.
- pages: each is opened from its file. axe-core finds nothing serious: on one page of each kind
  light and dark at 390 and 1280 px, on the others dark at 390 or light at 1280 px in turn. No page
  is wider than a window of 390 to 1600 px. The console has no error.
- links: every link leads to a file of the site, and to an element if it has a fragment.
- the explorer answers the questions of tests/data/explorer_questions.toml.
- a reader: the search, a skip link by the keyboard, the back button, the choice of dark mode.
- no page makes a request to the outside.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import tomllib
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from playwright.sync_api import TimeoutError

from common import ROOT, TOOLS
from prove.browser import Browser

WIDTHS = (390, 768, 1280, 1600)
LOOKS = ((390, True), (1280, False), (390, False), (1280, True))  # (width, dark)
EXPLORER = "what-runs.html#gpu=GTX+1080+Ti&driver=580"
# One page of each kind, and the views of the explorer.
KINDS = (
    "index.html", "rules.html", "reference/commands/solve.html", "reference/api-functions.html",
    EXPLORER,
    "what-runs.html#view=wheel&wheel=torch+2.13.0%2Bcu126",
    "what-runs.html#view=table&framework=vllm", "what-runs.html#view=charts",
)  # fmt: skip
LINKS_AND_IDS = """[
  [...document.querySelectorAll("a[href]")].map((link) => link.href),
  [...document.querySelectorAll("[id]")].map((element) => element.id),
]"""
SEARCHES = tomllib.loads((ROOT / "tests/data/site_searches.toml").read_text(encoding="utf-8"))


def look_at_pages(browser: Browser, site: Path) -> dict[str, Any]:
    """Open every page. Return what is wrong with it, and the links that lead nowhere."""
    wide, violations = [], []
    links: set[tuple[str, str]] = set()
    ids: dict[Path, set[str]] = {}
    names = sorted({*KINDS, *(str(file.relative_to(site)) for file in site.rglob("*.html"))})
    for number, name in enumerate(names):
        for width, dark in LOOKS if name in KINDS else LOOKS[number % 2 :][:1]:
            browser.look(width=width, height=900, dark=dark)
            browser.open(f"{site.as_uri()}/{name}")
            place = f"{name} {width} {'dark' if dark else 'light'}"
            violations += [[place, *rule] for rule in browser.violations()]
        for width in WIDTHS:
            browser.look(width=width, height=900)
            if browser.overflow() > 0:
                wide.append([name, width])
        urls, elements = browser.evaluate(LINKS_AND_IDS)
        links |= {(name, url) for url in urls if url.startswith("file:")}
        ids[site / name] = set(elements)
        print(f"{name}: {len(violations)} violations so far", flush=True)
    broken = sorted(link for link in links if not leads_somewhere(link[1], ids))
    return {
        "links": {"links": len(links), "broken": broken},
        "wider than the window": wide,
        "axe violations": violations,
        "pages": names,
    }


def leads_somewhere(url: str, ids: Mapping[Path, set[str]]) -> bool:
    """Return whether the file of a link exists, and the element that its fragment names."""
    parts = urlsplit(url)
    file, fragment = Path(unquote(parts.path)), unquote(parts.fragment)
    if not fragment or file not in ids:
        return file.is_file()
    return fragment in ids[file] or "=" in fragment  # a choice of the explorer


def has(browser: Browser, selector: str) -> bool:
    """Return whether the page has an element, at the latest after ten seconds."""
    try:
        browser.page.wait_for_selector(selector, state="attached", timeout=10_000)
    except TimeoutError:
        return False
    return True


def search(browser: Browser, site: Path) -> list[dict[str, object]]:
    """Type texts into the search."""
    rows = []
    for text, expected in SEARCHES.items():
        browser.open((site / "index.html").as_uri())
        browser.click("[data-md-component=search]")
        browser.type(text)
        # Only the links of results have a query. They are in a shadow root.
        result = "a[href*='?h=']"
        has(browser, result)
        links = browser.page.locator(result).all()[:3]
        first = [str(link.get_attribute("href")) for link in links]
        rows.append(
            {"text": text, "first": first, "right": any(expected in href for href in first)}
        )
    return rows


def wrong_answers(browser: Browser, site: Path) -> list[str]:
    """Ask the explorer the questions of real people. Return those whose answer is wrong."""
    wrong = []
    text = (ROOT / "tests/data/explorer_questions.toml").read_text(encoding="utf-8")
    for question in tomllib.loads(text)["question"]:
        fields = urlencode(question["fields"])
        browser.open(f"{site.as_uri()}/what-runs.html#{fields}")
        answer = browser.text("#answer")
        if not all(text in answer for text in question["answer"]):
            wrong.append(f"{question['thread']}: {answer.partition(chr(10))[0]}")
    return wrong


def read(browser: Browser, site: Path) -> dict[str, bool]:
    """Use the keyboard, a link, the back button and the choice of colors."""
    home, other = (site / "index.html").as_uri(), (site / "tutorial.html").as_uri()
    slate = "body[data-md-color-scheme=slate]"
    browser.open(home)
    browser.press("Tab")
    on_skip_link = "md-skip" in browser.evaluate("document.activeElement.className")
    browser.press("Enter")
    skipped = bool(browser.evaluate("location.hash"))

    browser.open(home)
    with browser.page.expect_navigation():
        browser.click("article a[href*=tutorial]")
    arrived = browser.page.url.startswith(other)
    browser.page.go_back()
    returned = browser.page.url.startswith(home)

    browser.look(width=1280, height=900, dark=True)
    follows = has(browser, slate)
    browser.look(width=1280, height=900)
    follows = follows and has(browser, "body[data-md-color-scheme=default]")
    for _ in range(2):  # light, then dark
        browser.click("[data-md-component=palette] label:not([hidden])")
    chosen = has(browser, slate)
    browser.open(other)
    return {
        "the first Tab reaches the skip link, and Enter follows it": on_skip_link and skipped,
        "a link and the back button work": arrived and returned,
        "the colors follow the system": follows,
        "dark mode that was chosen is kept on the next page": chosen and has(browser, slate),
    }


ARGUMENTS = {
    "--pictures": {"type": Path, "metavar": "DIR", "help": "write a picture of the explorer"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[object]]:
    """Build the site and run all parts. Return the record and the faults."""
    with tempfile.TemporaryDirectory() as temporary, Browser() as browser:
        site = Path(temporary) / "site"
        command = ["unshare", "-rn", sys.executable, str(TOOLS), "docs", "site", "--to", str(site)]
        start = time.monotonic()
        subprocess.run(command, check=True)
        seconds = round(time.monotonic() - start, 1)
        files = [file for file in site.rglob("*") if file.is_file()]
        pages = look_at_pages(browser, site)
        browser.look(width=1280, height=900)
        if arguments.pictures:
            browser.open(f"{site.as_uri()}/{EXPLORER}")
            browser.page.screenshot(path=arguments.pictures / "explorer.png")
        record: dict[str, Any] = {
            "browser": browser.version,
            "build without a network": {
                "seconds": seconds,
                "megabytes": round(sum(file.stat().st_size for file in files) / 1e6, 1),
            },
            "reader": read(browser, site),
            "search": search(browser, site),
            "wrong answers of the explorer": wrong_answers(browser, site),
            **pages,
            "console errors": browser.errors,
            "requests to the outside": browser.requests,
        }
    faults: list[object] = [*browser.errors, *browser.requests, *record["links"]["broken"]]
    faults += record["wider than the window"] + record["wrong answers of the explorer"]
    faults += [row for row in record["axe violations"] if row[1] in ("serious", "critical")]
    faults += [row for row in record["search"] if not row["right"]]
    faults += [what for what, is_right in record["reader"].items() if not is_right]
    return record, faults
