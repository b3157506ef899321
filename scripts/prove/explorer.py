#!/usr/bin/env python3
"""Prove the page of `gpuenv matrix html` in a headless Chromium. Write docs/records/explorer.json.

    python scripts/tools.py prove explorer [--choices 2000] [--seeds 1 2]
        [--pictures docs/pictures] [--only-agreement]

- agreement: random choices for each seed; version, variant and first reasons equal those of the
  solver. The first choices are typed into the form.
- axe: axe-core on each view and on a report, light and dark, 390 and 1280 px
  wide.
- questions: tests/data/explorer_questions.toml, typed into the form. The seconds that a person
  needs are an estimate by the keystroke-level model (Card, Moran, Newell 1980). No person was
  timed.
- figures: size, first paint, blocking time and time of an answer, from the browser's own protocol.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tomllib
from datetime import date
from pathlib import Path

import test_explorer
from common import ROOT, write_record
from gpuenv import api
from gpuenv.cli import main as main_of_gpuenv
from prove.browser import Browser

PLATFORMS = ("linux-x86_64",) * 4 + ("linux-aarch64", "win-amd64")
VIEWS = ("", "&view=wheel&wheel=torch+2.13.0%2Bcu126", "&view=table&framework=vllm", "&view=charts")
SECONDS_PER_KEY, SECONDS_PER_FIELD = 0.28, 1.35 + 1.1  # typing; thinking and pointing
TYPED = 25  # choices that are typed into the form


def random_choices(count: int, seed: int) -> list[tuple[str, list[str], str, str, str]]:
    """Return choices of all frameworks and GPUs."""
    data = api.compatibility_data()
    targets = [f"sm_{major}{minor}" for major, minor in data.capabilities()]
    gpus = (*data.gpu_names(), *targets * 8)
    return test_explorer.random_choices(count, seed, data.frameworks(), gpus, PLATFORMS)


def prove_agreement(page: Browser, count: int, seed: int) -> dict[str, object]:
    """Compare random choices with the solver."""
    choices = random_choices(count, seed)
    page.open(page.url)
    answers = test_explorer.explorer_answers(page, choices)
    differences, refused, passed_over = [], 0, 0
    for number, (choice, answer) in enumerate(zip(choices, answers, strict=True)):
        expected = test_explorer.solver_answer(*choice)
        refused += "refusal" in expected
        passed_over += len(expected.get("skipped", ()))
        if number < TYPED:
            type_choice(page, choice)
            title = page.text("#answer-title")
            if expected.get("version", "No release") not in title:
                differences.append([choice, title])
        try:
            test_explorer.require_agreement(expected, answer)
        except AssertionError:
            differences.append([choice, expected, answer])
        if number % 200 == 199:
            print(f"{number + 1} choices, {len(differences)} differences", flush=True)
    return {
        "choices": count,
        "seed": seed,
        "typed into the form": min(TYPED, count),
        "refused": refused,
        "reasons of passed-over releases compared": passed_over,
        "differences": differences,
    }


def type_choice(page: Browser, choice: tuple[str, list[str], str, str, str]) -> None:
    """Fill the form as a user does."""
    framework, gpus, driver, python, platform = choice
    fields = {"gpu": ", ".join(gpus), "driver": driver}
    selects = {"framework": framework, "python": python, "platform": platform}
    page.open(page.url)
    for name, value in selects.items():
        page.evaluate(
            f"(() => {{ const field = document.forms[0].elements.{name};"
            f" field.value = {json.dumps(value)};"
            " field.dispatchEvent(new Event('change', { bubbles: true })); })()"
        )
    for name, value in fields.items():
        page.click(f"[name={name}]")
        page.type(value)
    page.press("Enter")


def prove_questions(page: Browser) -> list[dict[str, object]]:
    """Answer the real questions in the form."""
    content = (ROOT / "tests/data/explorer_questions.toml").read_text()
    results = []
    for question in tomllib.loads(content)["question"]:
        fields = question["fields"]
        page.open(page.url)
        clicks = []
        for name, value in fields.items():
            if name == "framework":
                page.evaluate(
                    "(() => { const field = document.forms[0].elements.framework;"
                    f" field.value = {json.dumps(value)};"
                    " field.dispatchEvent(new Event('change', { bubbles: true })); })()"
                )
                clicks.append(f"choose {value}")
            else:
                page.click(f"[name={name}]")
                page.type(value)
                clicks.append(f"click {name}, type {value}")
        answer = page.text("#answer")
        keys = sum(len(value) for name, value in fields.items() if name != "framework")
        results.append({
            "thread": question["thread"],
            "asks": question["asks"],
            "clicks": clicks,
            "answer": answer.splitlines()[0],
            "right": all(text in answer for text in question["answer"]),
            "estimated seconds": round(len(clicks) * SECONDS_PER_FIELD + keys * SECONDS_PER_KEY, 1),
        })  # fmt: skip
    return results


def prove_axe(page: Browser, report: str) -> dict[str, object]:
    """Run axe-core on every view of the explorer, and on a report."""
    places = {view or "answer": f"{page.url}#gpu=GTX+1080+Ti&driver=580{view}" for view in VIEWS}
    places["report"] = report
    violations, pages = [], 0
    for name, url in places.items():
        for width in (390, 1280):
            for dark in (False, True):
                page.look(width=width, height=900, dark=dark)
                page.open(url)
                pages += 1
                place = f"{name} {width} {'dark' if dark else 'light'}"
                violations += [[place, *violation] for violation in page.violations()]
    page.look(width=1280, height=900)
    return {"pages": pages, "violations": violations}


FIGURES = """(async () => {
  while (!performance.getEntriesByType("paint").length) {
    await new Promise((done) => setTimeout(done, 50));
  }
  const paint = performance.getEntriesByType("paint").at(-1)?.startTime;
  const { loadEventEnd } = performance.getEntriesByType("navigation")[0];
  const choice = readChoice("gpu=GTX+1080+Ti&driver=580");
  const start = performance.now();
  show(choice);
  const first = performance.now() - start;
  const times = [];
  for (const gpu of ["H100", "V100", "K80", "B200", "RTX 3060"]) {
    const before = performance.now();
    show({ ...choice, gpus: [gpu] });
    times.push(performance.now() - before);
  }
  return { paint, load: loadEventEnd, first, later: Math.max(...times) };
})()"""


def measure(page: Browser, size: int) -> dict[str, object]:
    """Return figures like those of Lighthouse: medians of five loads."""
    loads, widths = [], {}
    for _ in range(5):
        page.open(page.url)
        loads.append(page.evaluate(FIGURES))
    for width in (390, 768, 1280, 1600):
        page.look(width=width, height=900)
        page.open(f"{page.url}#gpu=GTX+1080+Ti&driver=580")
        widths[str(width)] = page.overflow()
    page.look(width=1280, height=900)
    page.open(f"{page.url}#gpu=GTX+1080+Ti&driver=580")
    protocol = page.page.context.new_cdp_session(page.page)
    protocol.send("Performance.enable")
    metrics = {
        metric["name"]: metric["value"]
        for metric in protocol.send("Performance.getMetrics")["metrics"]
    }
    names = {
        "first contentful paint": "paint",
        "load": "load",
        "first answer after the load": "first",
        "slowest of five later answers": "later",
    }
    figures = {
        f"{text}, ms": round(sorted(load[key] for load in loads)[2], 1)
        for text, key in names.items()
    }
    return {
        "bytes": size,
        **figures,
        "layout shift": page.evaluate(
            "new Promise((done) => { let sum = 0; const add = (list) => { for (const one of"
            " list.getEntries()) sum += one.value; }; new PerformanceObserver(add).observe({"
            " type: 'layout-shift', buffered: true }); setTimeout(() => done(sum), 200); })"
        ),
        "JavaScript heap, MB": round(metrics["JSHeapUsedSize"] / 1e6, 1),
        "elements": int(metrics["Nodes"]),
        "horizontal overflow of the page by width, px": widths,
    }


def take_pictures(page: Browser, folder: Path) -> None:
    """Take the picture of the README."""
    folder.mkdir(parents=True, exist_ok=True)
    page.look(width=1280, height=800, dark=False)
    page.open(f"{page.url}#gpu=GTX+1080+Ti&driver=580")
    page.page.screenshot(path=folder / "explorer.png")


def main(words: list[str]) -> int:
    """Run all parts. Return 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--choices", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--only-agreement", action="store_true", help="keep the rest of the record")
    parser.add_argument("--record", type=Path, default=ROOT / "docs/records/explorer.json")
    arguments = parser.parse_args(words)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, report = folder / "explorer.html", folder / "report.html"
        start = time.process_time()
        main_of_gpuenv(["matrix", "html", "-o", str(file)])
        seconds = round(time.process_time() - start, 1)
        lock = ROOT / "tests/data/locks/format-1.toml"
        main_of_gpuenv(["report", str(lock), "-o", str(report)])
        with Browser() as page:
            page.url = file.as_uri()
            page.look(width=1280, height=900)
            page.open(page.url)
            if arguments.pictures:
                take_pictures(page, arguments.pictures)
            agreement = [prove_agreement(page, arguments.choices, seed) for seed in arguments.seeds]
            if arguments.only_agreement:
                record = json.loads(arguments.record.read_text()) | {"agreement": agreement}
            else:
                record = {
                    "date": date.today().isoformat(),
                    "browser": page.version,
                    "seconds of processor time to make the page": seconds,
                    "figures": measure(page, file.stat().st_size),
                    "questions": prove_questions(page),
                    "axe": prove_axe(page, report.as_uri()),
                    "agreement": agreement,
                    "console errors": page.errors,
                    "requests": page.requests,
                }
    write_record(record, arguments.record)
    wrong = [question for question in record["questions"] if not question["right"]]
    different = any(part["differences"] for part in record["agreement"])
    failed = (
        different or record["axe"]["violations"] or wrong
        or record["console errors"] or record["requests"]
    )  # fmt: skip
    return 1 if failed else 0
