"""`gpuenv matrix html`: its tables, its script in V8 and, in a headless Chromium, its page."""

import json
import random
from pathlib import Path

import pytest
from py_mini_racer import MiniRacer

from gpuenv import api
from gpuenv.compat.architectures import JETSON
from gpuenv.errors import InputError, NoSolutionError, OfflineError
from gpuenv.model import IndexOptions, Request
from gpuenv.render.values import reasons_json
from gpuenv_explorer import pages
from gpuenv_explorer.tables import Tables
from script_modules import load_script
from tables import data_file, each

site = load_script("prove.site")

PLATFORM = "linux-x86_64"
FIELDS = ("framework", "gpus", "driver", "python", "platform")
needs_browser = pytest.mark.skipif(not site.CHROMIUM, reason="Debian's chromium is missing")

# What the tests make of the tables: the whole takes a minute.
NAMES = (
    "torch", "onnxruntime", "vllm", "torchvision", "flash-attn", "nvidia-cudnn-cu12",
    "nvidia-cublas-cu12",
)  # fmt: skip
GPUS = ("GTX 1080 Ti", "V100", "H100", "sm_61", "sm_70", "sm_90")
DRIVERS = data_file("tables/explorer.json")["drivers"]  # fmt: skip
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.12", "3.13", "3.14", "3.15")


def tables_of(platforms, names, gpus):
    """Return the tables of some names and GPUs as the page embeds them."""
    hosts = [api.describe(gpus=[gpu], driver="580.65.06", python="3.12") for gpu in gpus]
    capabilities = {gpu.compute_capability for host in hosts for gpu in host.gpus}
    return json.loads(json.dumps(Tables(names, capabilities).document(platforms)))


@pytest.fixture(scope="module")
def tables():
    """Return tables of one platform."""
    return tables_of([PLATFORM], NAMES, GPUS)


class Script:
    """The script of the page without its form: V8 runs it, and no browser is needed."""

    def __init__(self, tables):
        self._engine = MiniRacer()
        content = json.dumps(json.dumps(tables))
        self._engine.eval(
            f"const content = {{textContent: {content}}};"
            "const document = {getElementById: () => content, querySelector: () => null};"
        )
        self._engine.eval((Path(pages.__file__).parent / "explorer.js").read_text())

    def evaluate(self, expression):
        """Return the value of an expression, as a page of Playwright does."""
        return json.loads(self._engine.eval(f"JSON.stringify({expression})"))


@pytest.fixture(scope="module")
def script(tables):
    """Return the script with tables of one platform."""
    return Script(tables)


@pytest.fixture(scope="module")
def page(tables, tmp_path_factory):
    """Yield the page in a browser."""
    folder = tmp_path_factory.mktemp("explorer")
    file = folder / "explorer.html"
    file.write_text(pages.explorer_html(tables), encoding="utf-8")
    with site.chromium_page() as (page, wrong):
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(file.as_uri())
        yield page
        assert not any(wrong.values()), wrong


# ---- the tables ----------------------------------------------------------------------------------


def rows_of(tables, name):
    return tables["platforms"][PLATFORM]["frameworks"][name]["releases"]


def test_the_tables_have_companions_and_cudnn_but_no_other_library(tables):
    libraries = tables["platforms"][PLATFORM]["libraries"]
    assert {*libraries} == {*NAMES} - {"torch", "onnxruntime", "nvidia-cublas-cu12"}


def test_the_tables_name_the_oldest_glibc_of_a_wheel(tables):
    """The files of recent releases are manylinux_2_28; a build without a file has none."""
    rows = rows_of(tables, "torch")
    assert next(row for row in rows if row["pythons"])["glibc"] == "2.28"
    assert all(row["glibc"] is None for row in rows if not row["pythons"])


LIBRARY_HOSTS = [
    ("sm_90", "580.65.06"), ("sm_90", "450.80.02"), ("sm_90", ""), ("sm_61", "580.65.06"),
    ("sm_70", "580.65.06"), ("sm_70", "590.44"), ("sm_61", "470.256.02"),
]  # fmt: skip


def test_a_library_is_accepted_where_the_solver_accepts_it(script):
    library = "nvidia-cudnn-cu12"
    for gpu, driver in LIBRARY_HOSTS:
        choice = fields_of((library, [gpu], driver, "3.12", PLATFORM))
        [answer] = script.evaluate(f"[{json.dumps(choice)}].map({LIBRARY_ANSWER})")
        host = api.describe(gpus=[gpu], driver=driver or None, python="3.12").replace(glibc=None)
        for version in list(answer)[3::8]:
            request = Request(requirements=(f"{library}=={version}",))
            try:
                api.solve(request, host, IndexOptions(offline=True), changes=False)
                is_solved = True
            except NoSolutionError:
                is_solved = False
            assert answer[version] == is_solved, (gpu, driver, version)


def test_the_page_is_one_small_file_without_addresses_to_load(tables):
    text = pages.explorer_html(tables)
    assert len(text.encode()) < 2_000_000
    head = text[: text.index('id="tables"')]
    assert "src=" not in head.replace("script-src", "").replace("default-src", "")
    assert "url(" not in head
    assert "<link" not in head
    assert "</script" not in json.dumps(tables)


# ---- the page and the solver ---------------------------------------------------------------------


def random_choices(count, seed, frameworks, gpus, platforms):
    """Return choices that `gpuenv solve` accepts."""
    chance = random.Random(seed)  # noqa: S311  # choices that can be repeated
    choices = []
    while len(choices) < count:
        number = chance.choice((0, 1, 1, 1, 1, 2, 2, 3))
        choice = (
            chance.choice(frameworks),
            [chance.choice(gpus) for _ in range(number)] or ["none"],
            chance.choice(DRIVERS) if number else "",
            chance.choice(PYTHONS),
            chance.choice(platforms),
        )
        try:
            host = api.describe(gpus=choice[1], platform=choice[-1])
        except InputError:
            continue  # such a GPU is not on that platform
        capabilities = set(host.capabilities)
        if len(capabilities) == 1 or capabilities.isdisjoint(JETSON):  # a Jetson has one GPU
            choices.append(choice)
    return choices


def shown_fields(reason):
    """Return the fields of a reason that the page shows, as the JSON documents have them."""
    [row] = reasons_json([reason])
    return [row[field] for field in ("code", "subject", "need", "have")]


def solver_answer(framework, gpus, driver, python, platform):
    """Return the version and variant of the solver, and all reasons against better releases."""
    host = api.describe(gpus=gpus, driver=driver or None, python=python, platform=platform)
    request, options = Request(frameworks=(framework,)), IndexOptions(offline=True)
    try:
        plan = api.solve(request, host.replace(glibc=None), options, changes=False)
    except NoSolutionError as error:
        return {"refusal": [shown_fields(reason) for reason in error.explanation.reasons]}
    choice = plan.choices[0]
    skipped = {
        rejection.version: [shown_fields(reason) for reason in rejection.reasons]
        for rejection in plan.skipped
    }
    return {"version": choice.version, "variant": choice.variant, "skipped": skipped}


EXPLORER_ANSWER = """((choice) => {
  const fields = (one) => one && [one.code, one.subject, one.need, one.have];
  const { host, error } = hostOf(choice);
  if (error) return { error };
  const { chosen, judged, refusal } = answer(host);
  if (!chosen) return { refusal: fields(refusal) };
  const reasons = judged.map((one) => [one.release.version, fields(one.reasons[0])]);
  const { public: version, variant } = chosen.release;
  return { version, variant, reasons: Object.fromEntries(reasons) };
})"""


LIBRARY_ANSWER = """((choice) => {
  const { judged } = answer(hostOf(choice).host);
  return Object.fromEntries(judged.map((one) => [one.release.version, one.tier >= 0]));
})"""

# The solver says of a request what no release has: files for an interpreter or a platform. The page
# says it of its best release.
WITHOUT_FILES = ("no-wheel-for-target", "platform", "cpu-build")
# The solver says of a release which package beside it does not suit, and which index has a build of
# which no file is known. The page knows its plans only.
ABOUT_DEPENDENCIES = (
    "no-wheel-for-target", "no-candidate", "no-version", "conflict", "no-offline-file",
)  # fmt: skip


def fields_of(choice):
    """Return a choice as the script reads it."""
    return dict(zip(FIELDS, choice, strict=True))


def explorer_answers(page_or_script, choices):
    """Return the answers of a page or its script to (framework, gpus, driver, python, platform)."""
    texts = json.dumps([fields_of(choice) for choice in choices])
    return page_or_script.evaluate(f"{texts}.map({EXPLORER_ANSWER})")


def require_agreement(expected, answer):
    """Fail if the page differs from the solver in a choice or in a release that was skipped.

    The page has one row for the builds of several indexes that share all facts, and no row for a
    release without a known build.
    """
    assert ("refusal" in expected) == ("refusal" in answer)
    if "refusal" in expected:
        reasons = expected["refusal"]
        assert answer["refusal"] in reasons or reasons[0][0] in WITHOUT_FILES
        return
    assert (answer["version"], answer["variant"]) == (expected["version"], expected["variant"])
    for version, reasons in expected["skipped"].items():
        if version in answer["reasons"] and reasons[0][0] not in ABOUT_DEPENDENCIES:
            assert answer["reasons"][version] in reasons


def require_answers(page_or_script, choices):
    """Fail if a page or its script answers a choice differently from the solver."""
    answers = explorer_answers(page_or_script, choices)
    for choice, answer in zip(choices, answers, strict=True):
        expected = solver_answer(*choice)
        try:
            require_agreement(expected, answer)
        except AssertionError as error:
            raise AssertionError(choice, expected, answer) from error


def test_the_script_answers_as_the_solver(script):
    frameworks = ("torch", "torch", "onnxruntime")
    require_answers(script, random_choices(60, 1, frameworks, GPUS, [PLATFORM]))


@each(
    "platform framework gpus",
    [
        ("linux-aarch64", "jax", ("V100", "Jetson AGX Orin", "Jetson AGX Thor")),
        ("win-amd64", "cupy", ("RTX 5090", "V100")),
    ],
)
def test_the_script_answers_as_the_solver_on_other_platforms(platform, framework, gpus):
    tables = tables_of([platform], [framework], gpus)
    tables["platforms"][PLATFORM] = tables["platforms"][platform]  # for the fields of the form
    require_answers(Script(tables), random_choices(20, 2, [framework], gpus, [platform]))


@needs_browser
def test_the_page_answers_as_the_solver(page):
    require_answers(page, random_choices(5, 3, ["torch"], GPUS, [PLATFORM]))


def test_gpu_names_are_read_as_the_program_reads_them(script):
    data = api.compatibility_data()
    names = [*data.gpu_names(), "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "1080 ti", "4090", "h100 pcie",
             "gtx1080ti", "A6000", "RTX 6000", "nonsense", "RTX A5000 24 GB"]  # fmt: skip
    capabilities = script.evaluate(
        f"{json.dumps(names)}.map((name) => tables.capabilities[parseGpu(name).capability] ?? null)"
    )
    for name, capability in zip(names, capabilities, strict=True):
        known = data.compute_capability(name)
        assert capability == (known and f"{known[0]}.{known[1]}"), name


def visit(page, fragment=""):
    site.open_anew(page, page.url.partition("#")[0] + fragment)


@needs_browser
def test_a_choice_by_keyboard_a_link_and_the_back_button(page):
    visit(page)
    keyboard = page.keyboard
    keyboard.press("Tab")  # the link to the answer
    keyboard.press("Tab")
    keyboard.insert_text("gtx1080ti")
    keyboard.press("Tab")
    keyboard.insert_text("580")
    keyboard.press("Enter")
    title = page.inner_text("#answer-title")
    expected = solver_answer("torch", ["gtx1080ti"], "580", "3.12", PLATFORM)
    assert title.startswith(f"torch {expected['version']}")
    assert "gpuenv solve --framework torch --gpu gtx1080ti --driver 580" in page.inner_text(
        "#command"
    )
    link = page.evaluate("location.href")
    assert link.endswith("#gpu=gtx1080ti&driver=580")

    page.evaluate("document.querySelector('[data-view=table]').focus()")
    keyboard.press("Enter")
    assert page.evaluate("location.hash").endswith("view=table")
    assert "torch" in page.inner_text("#table caption")
    page.go_back()
    assert page.inner_text("#answer-title") == title

    site.open_anew(page, link)
    assert page.inner_text("#answer-title") == title
    assert page.evaluate("document.getElementById('gpu').value") == "gtx1080ti"


@needs_browser
def test_the_search_for_a_wheel_and_the_way_to_it_from_the_table(page):
    visit(page, "#view=wheel")
    page.click("#wheel")
    page.keyboard.insert_text("torch==2.4.1")
    assert page.inner_text("#wheel-answer h3").startswith("torch 2.4.1")
    row = page.evaluate(
        "[...document.querySelectorAll('#wheel-answer tbody tr')].find((row) =>"
        " row.cells[0].innerText === '9.0').innerText"
    )
    assert "SASS" in row
    assert "525.60.13 or newer" in row
    visit(page, "#view=table&framework=vllm")
    page.click("#table tbody a")
    assert page.inner_text("#wheel-answer h3").startswith("vllm ")
    visit(page, "#view=charts")
    assert page.evaluate("document.querySelectorAll('#charts svg[role=img]').length") >= 3


@needs_browser
@each(
    "fragment text",
    data_file("tables/explorer.json")["wrong_inputs"],
)
def test_wrong_input_is_reported(page, fragment, text):
    visit(page, f"#{fragment}")
    assert text in page.inner_text("#problem")


def test_without_the_snapshot_there_is_no_page(monkeypatch):
    """An index of the user replaces the snapshot, and no index is asked over a network."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(OfflineError):
        tables_of([PLATFORM], ["cupy"], ["H100"])
