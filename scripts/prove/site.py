"""Prove the documentation site in a headless Chromium.

    pip install ".[docs]"
    python scripts/tools.py prove site [--record docs/records/site.json]

- build: `docs site` in a network namespace that has no network.
- pages: each is opened from its file. axe-core finds nothing serious: on one page of each kind
  light and dark at 390 and 1280 px, on the others dark at 390 or light at 1280 px in turn. No page
  is wider than a window of 390 to 1600 px. The console has no error.
- links: every link leads to a file of the site, and to an element if it has a fragment.
- the explorer answers the questions of tests/data/explorer_questions.toml.
- the search finds the pages of tests/data/site_searches.toml.
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
from contextlib import suppress
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


def look_at_pages(browser: Browser, site: Path) -> tuple[list[str], int, dict[str, list[Any]]]:
    """Open every page. Return the pages, the number of links, and what is wrong."""
    wide, serious = [], []
    links: set[tuple[str, str]] = set()
    ids: dict[Path, set[str]] = {}
    names = sorted({*KINDS, *(str(file.relative_to(site)) for file in site.rglob("*.html"))})
    for number, name in enumerate(names):
        for width, dark in LOOKS if name in KINDS else LOOKS[number % 2 :][:1]:
            browser.look(width=width, height=900, dark=dark)
            browser.open(f"{site.as_uri()}/{name}")
            place = f"{name} {width} {'dark' if dark else 'light'}"
            found = [rule for rule in browser.violations() if rule[0] in ("serious", "critical")]
            serious += [[place, *rule] for rule in found]
        for width in WIDTHS:
            browser.look(width=width, height=900)
            if browser.overflow() > 0:
                wide.append([name, width])
        urls, elements = browser.evaluate(LINKS_AND_IDS)
        links |= {(name, url) for url in urls if url.startswith("file:")}
        ids[site / name] = set(elements)
        print(f"{name}: {len(serious)} violations so far", flush=True)
    broken = sorted(link for link in links if not leads_somewhere(link[1], ids))
    wrong = {"broken links": broken, "wider than the window": wide, "axe violations": serious}
    return names, len(links), wrong


def leads_somewhere(url: str, ids: Mapping[Path, set[str]]) -> bool:
    """Return whether the file of a link exists, and the element that its fragment names."""
    parts = urlsplit(url)
    file, fragment = Path(unquote(parts.path)), unquote(parts.fragment)
    if not fragment or file not in ids:
        return file.is_file()
    return fragment in ids[file] or "=" in fragment  # a choice of the explorer


def wrong_results(browser: Browser, site: Path) -> list[str]:
    """Type texts into the search. Return those whose first results lack the page."""
    wrong = []
    for text, expected in SEARCHES.items():
        browser.open(f"{site.as_uri()}/index.html")
        browser.click("[data-md-component=search]")
        browser.type(text)
        # Only the links of results have a query. They are in a shadow root.
        result = "a[href*='?h=']"
        with suppress(TimeoutError):
            browser.page.wait_for_selector(result, state="attached", timeout=10_000)
        first = [link.get_attribute("href") for link in browser.page.locator(result).all()[:3]]
        if not any(expected in str(href) for href in first):
            wrong.append(f"{text}: {first}")
    return wrong


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


ARGUMENTS = {
    "--pictures": {"type": Path, "metavar": "DIR", "help": "write a picture of the explorer"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Build the site and run all parts. Return the record and the faults."""
    with tempfile.TemporaryDirectory() as temporary, Browser() as browser:
        site = Path(temporary) / "site"
        command = ["unshare", "-rn", sys.executable, str(TOOLS), "docs", "site", "--to", str(site)]
        start = time.monotonic()
        subprocess.run(command, check=True)
        seconds = round(time.monotonic() - start, 1)
        files = [file for file in site.rglob("*") if file.is_file()]
        pages, links, wrong = look_at_pages(browser, site)
        browser.look(width=1280, height=900)
        wrong["wrong results of the search"] = wrong_results(browser, site)
        wrong["wrong answers of the explorer"] = wrong_answers(browser, site)
        if arguments.pictures:
            browser.open(f"{site.as_uri()}/{EXPLORER}")
            browser.page.screenshot(path=arguments.pictures / "explorer.png")
        wrong |= {"console errors": browser.errors, "requests to the outside": browser.requests}
        megabytes = round(sum(file.stat().st_size for file in files) / 1e6, 1)
        build = {"seconds": seconds, "megabytes": megabytes}
        record = {"browser": browser.version, "build without a network": build, "links": links}
    faults = [f"{what}: {one}" for what, several in wrong.items() for one in several]
    return {**record, "pages": pages, **wrong}, faults
