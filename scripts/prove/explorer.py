"""Prove the page of `gpuenv matrix html` in a headless Chromium.

    python scripts/tools.py prove explorer [--choices 2000] [--seed N] [--pictures docs/pictures]
        [--record FILE]

- agreement: random choices; version, variant and first reasons equal those of the solver.
- questions: tests/data/explorer_questions.toml, typed into the form.
- axe: axe-core on each view and on a report, light and dark, 390 and 1280 px
  wide. No page may be wider than the screen.
- The page has one size, no error on the console, and no request to another address.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import test_explorer
from common import ROOT
from gpuenv import api
from gpuenv.cli import main as gpuenv
from prove.browser import Browser

PLATFORMS = ("linux-x86_64",) * 4 + ("linux-aarch64", "win-amd64")
VIEWS = ("", "&view=wheel&wheel=torch+2.13.0%2Bcu126", "&view=table&framework=vllm", "&view=charts")
EXAMPLE = "#gpu=GTX+1080+Ti&driver=580"


def disagreements(page: Browser, count: int, seed: int) -> list[str]:
    """Compare random choices of all frameworks and GPUs with the solver."""
    data = api.compatibility_data()
    targets = [f"sm_{major}{minor}" for major, minor in data.capabilities()]
    gpus = (*data.gpu_names(), *targets * 8)
    choices = test_explorer.random_choices(count, seed, data.frameworks(), gpus, PLATFORMS)
    page.open(page.url)
    found = []
    answers = test_explorer.explorer_answers(page, choices)
    for choice, answer in zip(choices, answers, strict=True):
        expected = test_explorer.solver_answer(*choice)
        try:
            test_explorer.require_agreement(expected, answer)
        except AssertionError:
            found.append(f"{choice}: {answer} instead of {expected}")
    return found


def wrong_answers(page: Browser) -> list[str]:
    """Answer the real questions in the form, and return those whose answer is wrong."""
    text = (ROOT / "tests/data/explorer_questions.toml").read_text(encoding="utf-8")
    found = []
    for question in tomllib.loads(text)["question"]:
        page.open(page.url)
        for name, value in question["fields"].items():
            if name == "framework":  # a list of choices
                page.evaluate(
                    "(() => { const field = document.forms[0].elements.framework;"
                    f" field.value = {json.dumps(value)};"
                    " field.dispatchEvent(new Event('change', { bubbles: true })); })()"
                )
            else:
                page.click(f"[name={name}]")
                page.type(value)
        answer = page.text("#answer")
        if not all(text in answer for text in question["answer"]):
            found.append(f"{question['thread']}: {answer.splitlines()[0]}")
    return found


def violations(page: Browser, report: str) -> list[str]:
    """Run axe-core on every view of the explorer, and on a report."""
    places = {view or "answer": f"{page.url}{EXAMPLE}{view}" for view in VIEWS}
    found = []
    for name, url in {**places, "report": report}.items():
        for width in (390, 1280):
            for dark in (False, True):
                page.look(width=width, height=900, dark=dark)
                page.open(url)
                place = f"{name} {width} {'dark' if dark else 'light'}"
                found += [f"{place}: {violation}" for violation in page.violations()]
                if page.overflow():
                    found.append(f"{place}: the page is wider than the screen")
    page.look(width=1280, height=900)
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the choices and the picture."""
    parser.add_argument("--choices", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pictures", type=Path, metavar="DIR")


def prove(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Open the page in a browser."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, report = folder / "explorer.html", folder / "report.html"
        gpuenv(["matrix", "html", "-o", str(file)])
        gpuenv(["report", str(ROOT / "tests/data/locks/format-1.toml"), "-o", str(report)])
        with Browser() as page:
            page.url = file.as_uri()
            page.look(width=1280, height=800)
            page.open(f"{page.url}{EXAMPLE}")
            if arguments.pictures:
                page.page.screenshot(path=arguments.pictures / "explorer.png")
            faults = disagreements(page, arguments.choices, arguments.seed)
            faults += wrong_answers(page)
            faults += violations(page, report.as_uri())
            faults += [f"console: {error}" for error in page.errors]
            faults += [f"request: {request}" for request in page.requests]
            record = {
                "browser": page.version,
                "bytes": file.stat().st_size,
                "choices": arguments.choices,
                "seed": arguments.seed,
                "faults": faults,
            }
    return record, faults
