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

import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from playwright.sync_api import ConsoleMessage, Page, Request, TimeoutError, sync_playwright

from common import TOOLS, read_toml

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
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
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SEARCHES = read_toml("tests/data/site_searches.toml")


@contextmanager
def chromium_page() -> Iterator[tuple[Page, dict[str, list[str]]]]:
    """Yield a page in a headless Chromium, and what went wrong in it so far.

    That is the errors and warnings of its console, with exceptions that nothing caught, and the
    URLs that it asked for and that are no file.
    """
    wrong: dict[str, list[str]] = {"console errors": [], "requests to the outside": []}

    def note_message(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong["console errors"].append(message.text)

    def note_request(request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:", "about:")):
            wrong["requests to the outside"].append(request.url)

    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=CHROMIUM).new_page()
        page.on("console", note_message)
        page.on("pageerror", lambda error: wrong["console errors"].append(str(error)))
        page.on("request", note_request)
        yield page, wrong


def open_anew(page: Page, url: str) -> None:
    """Open a page anew, also if only the fragment differs, and wait until it is loaded."""
    page.goto("about:blank")
    page.goto(url)


def look_at_pages(page: Page, site: Path) -> tuple[list[str], int, dict[str, list[Any]]]:
    """Open every page. Return the pages, the number of links, and what is wrong."""
    from axe_playwright_python.sync_playwright import Axe  # the tests do not need it

    axe = Axe()
    wide, serious = [], []
    links: set[tuple[str, str]] = set()
    ids: dict[Path, set[str]] = {}
    names = sorted({*KINDS, *(str(file.relative_to(site)) for file in site.rglob("*.html"))})
    for number, name in enumerate(names):
        for width, dark in LOOKS if name in KINDS else LOOKS[number % 2 :][:1]:
            scheme = "dark" if dark else "light"
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            open_anew(page, f"{site.as_uri()}/{name}")
            for rule in axe.run(page, options={"preload": False}).response["violations"]:
                if rule["impact"] in ("serious", "critical"):
                    examples = [node["html"][:120] for node in rule["nodes"][:2]]
                    serious.append([f"{name} {width} {scheme}", rule["id"], examples])
        page.emulate_media(color_scheme="light")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate(OVERFLOW) > 0:
                wide.append([name, width])
        urls, elements = page.evaluate(LINKS_AND_IDS)
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


def wrong_results(page: Page, site: Path) -> list[str]:
    """Type texts into the search. Return those whose first results lack the page."""
    wrong = []
    for text, expected in SEARCHES.items():
        open_anew(page, f"{site.as_uri()}/index.html")
        page.click("[data-md-component=search]")
        page.keyboard.insert_text(text)
        # Only the links of results have a query. They are in a shadow root.
        result = "a[href*='?h=']"
        with suppress(TimeoutError):
            page.wait_for_selector(result, state="attached", timeout=10_000)
        first = [link.get_attribute("href") for link in page.locator(result).all()[:3]]
        if not any(expected in str(href) for href in first):
            wrong.append(f"{text}: {first}")
    return wrong


def wrong_answers(page: Page, site: Path) -> list[str]:
    """Ask the explorer the questions of real people. Return those whose answer is wrong."""
    wrong = []
    for question in read_toml("tests/data/explorer_questions.toml")["question"]:
        fields = urlencode(question["fields"])
        open_anew(page, f"{site.as_uri()}/what-runs.html#{fields}")
        answer = page.inner_text("#answer")
        if not all(text in answer for text in question["answer"]):
            wrong.append(f"{question['thread']}: {answer.partition(chr(10))[0]}")
    return wrong


ARGUMENTS = {
    "--pictures": {"type": Path, "metavar": "DIR", "help": "write a picture of the explorer"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Build the site and run all parts. Return the record and the faults."""
    with tempfile.TemporaryDirectory() as temporary, chromium_page() as (page, noted):
        site = Path(temporary) / "site"
        command = ["unshare", "-rn", sys.executable, str(TOOLS), "docs", "site", "--to", str(site)]
        start = time.monotonic()
        subprocess.run(command, check=True)
        seconds = round(time.monotonic() - start, 1)
        files = [file for file in site.rglob("*") if file.is_file()]
        pages, links, wrong = look_at_pages(page, site)
        page.set_viewport_size({"width": 1280, "height": 900})
        wrong["wrong results of the search"] = wrong_results(page, site)
        wrong["wrong answers of the explorer"] = wrong_answers(page, site)
        if arguments.pictures:
            open_anew(page, f"{site.as_uri()}/{EXPLORER}")
            page.screenshot(path=arguments.pictures / "explorer.png")
        wrong |= noted
        megabytes = round(sum(file.stat().st_size for file in files) / 1e6, 1)
        build = {"seconds": seconds, "megabytes": megabytes}
        record = {
            "browser": page.context.browser.version,
            "build without a network": build,
            "links": links,
        }
    faults = [f"{what}: {one}" for what, several in wrong.items() for one in several]
    return {**record, "pages": pages, **wrong}, faults
