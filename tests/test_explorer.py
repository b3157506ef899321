"""`gpuenv matrix html`: its tables and, in a headless Chromium, its page."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import browser
from gpuenv import api
from gpuenv.compat.data import CompatibilityData
from gpuenv.errors import NoSolutionError
from gpuenv.index.factory import open_indexes
from gpuenv.model import IndexOptions, Request
from gpuenv.render import html
from gpuenv.resolve.answer_tables import AnswerTables

ROOT = Path(__file__).parent.parent
PLATFORM = "linux-x86_64"
needs_browser = pytest.mark.skipif(not browser.CHROMIUM, reason="Debian's chromium is missing")

# (framework, GPUs, driver, Python)
CHOICES = [
    ("torch", ["GTX 1080 Ti"], "580", "3.12"),
    ("torch", ["sm_120"], "570.86.10", "3.13"),
    ("torch", ["V100", "H100"], "580.65.06", "3.11"),
    ("torch", ["K80"], "470.256.02", "3.12"),
    ("torch", ["K80", "B200"], "535.183.01", "3.12"),
    ("torch", ["H100"], "", "3.10"),
    ("torch", ["none"], "", "3.12"),
    ("jax", ["V100"], "550.54.14", "3.12"),
    ("jax", ["H100"], "640", "3.12"),
    ("tensorflow", ["T4"], "470.256.02", "3.11"),
    ("tensorflow", ["T4"], "580", "3.15"),
    ("tensorflow", ["none"], "", "3.15"),
    ("cupy", ["sm_37"], "470", "3.12"),
    ("onnxruntime", ["V100"], "550.54.14", "3.12"),
]


@pytest.fixture(scope="module")
def tables():
    """Return the tables of one platform, as the page embeds them."""
    data = api.compatibility_data()
    snapshot, index = open_indexes(IndexOptions(offline=True), data.folder)
    document = AnswerTables(data, index, snapshot.environment).document([PLATFORM])
    return {"data": api.data_version(snapshot.version), **json.loads(json.dumps(document))}


@pytest.fixture(scope="module")
def page(tables, tmp_path_factory):
    """Yield the page in a browser."""
    folder = tmp_path_factory.mktemp("explorer")
    file = folder / "explorer.html"
    file.write_text(html.explorer_html(tables), encoding="utf-8")
    with browser.Browser(folder / "profile") as chromium:
        chromium.url = file.as_uri()
        chromium.look(width=1280, height=900)
        yield chromium
        assert chromium.errors == []
        assert chromium.outside_requests() == []


def test_the_tables_have_every_release_with_its_evidence(tables):
    frameworks = tables["platforms"][PLATFORM]["frameworks"]
    assert set(frameworks) == set(api.compatibility_data().frameworks())
    for framework in frameworks.values():
        for release in framework["releases"]:
            assert len(release["verdicts"]) == len(tables["capabilities"]) + 1
            assert release.get("evidence", "unknown") in ("scanned", "documented", "unknown")


def test_a_variant_that_a_release_lacks_is_in_the_tables(tables):
    """The solver passes over JAX 0.6.2 for CUDA 13: it has no extra for that."""
    releases = tables["platforms"][PLATFORM]["frameworks"]["jax"]["releases"]
    [release] = [one for one in releases if one["version"] == "0.6.2 (cuda13)"]
    for column in release["verdicts"][:-1]:  # the last one is of hosts without a GPU
        for _, _, reasons in tables["intervals"][column]:
            assert "no-such-extra" in [tables["reasons"][number][0] for number in reasons]


def test_the_page_is_one_small_file_without_addresses_to_load(tables):
    text = html.explorer_html(tables)
    assert len(text.encode()) < 2_000_000
    head = text[: text.index('id="tables"')]
    assert "src=" not in head.replace("script-src", "").replace("default-src", "")
    assert "url(" not in head
    assert "<link" not in head
    assert "</script" not in json.dumps(tables)


def solver_answer(framework, gpus, driver, python, platform=PLATFORM):
    host = api.describe(gpus=gpus, driver=driver or None, python=python, platform=platform)
    request = Request(frameworks=(framework,))
    try:
        plan = api.solve(request, host.replace(glibc=None), IndexOptions(offline=True))
    except NoSolutionError as error:
        reason = error.explanation.reasons[0]
        return {"refusal": [reason.code, reason.subject, reason.need, reason.have]}
    choice = plan.choices[0]
    skipped = {}
    for rejection in plan.skipped:
        reason = rejection.reasons[0]
        skipped[rejection.version] = [reason.code, reason.subject, reason.need, reason.have]
    return {"version": choice.version, "variant": choice.variant, "skipped": skipped}


EXPLORER_ANSWER = """((choice) => {
  const fields = (one) => [one.code, one.subject, one.need, one.have];
  const { host, error } = hostOf(choice);
  if (error) return { error };
  const { chosen, judged, refusal } = answer(host);
  if (!chosen) return { refusal: fields(refusal) };
  const reasons = judged.filter((one) => one.reasons.length)
    .map((one) => [one.release.version, fields(one.reasons[0])]);
  const { public: version, variant } = chosen.release;
  return { version, variant, reasons: Object.fromEntries(reasons) };
})"""


def explorer_answers(chromium, choices):
    """Return the page's answers to (framework, gpus, driver, python, platform)."""
    names = ("framework", "gpus", "driver", "python", "platform")
    texts = json.dumps([dict(zip(names, choice, strict=True)) for choice in choices])
    return chromium.evaluate(f"{texts}.map({EXPLORER_ANSWER})")


def require_agreement(expected, answer):
    """Fail if the page differs from the solver in a choice or in a release that was skipped."""
    reasons = answer.pop("reasons", {})
    skipped = expected.pop("skipped", {})
    assert answer == expected
    assert {version: reasons.get(version) for version in skipped} == skipped


@needs_browser
def test_the_page_answers_as_the_solver(page):
    page.open(page.url)
    answers = explorer_answers(page, [(*choice, PLATFORM) for choice in CHOICES])
    for choice, answer in zip(CHOICES, answers, strict=True):
        require_agreement(solver_answer(*choice), answer)


class OnlyCupy(CompatibilityData):
    """The data of CuPy alone: its tables are made in a second."""

    def all_frameworks(self):
        return [one for one in super().all_frameworks() if one.name == "cupy"]

    def libraries(self):
        return ()


@needs_browser
def test_doubts_about_a_library_that_no_build_pins_count(page, tmp_path):
    """On a B300, CuPy's cuBLAS 12.9 is to be avoided. So its build for CUDA 13 is chosen."""
    choice = ("cupy", ["sm_103"], "590.44", "3.12", "win-amd64")
    data = OnlyCupy(api.compatibility_data().folder)
    snapshot, index = open_indexes(IndexOptions(offline=True), data.folder)
    tables = AnswerTables(data, index, snapshot.environment).document(["win-amd64"])
    tables["platforms"][PLATFORM] = tables["platforms"]["win-amd64"]  # for the fields of the form
    file = tmp_path / "cupy.html"
    file.write_text(html.explorer_html({"data": "", **tables}), encoding="utf-8")
    page.open(file.as_uri())
    [answer] = explorer_answers(page, [choice])
    assert answer["variant"] == "cuda13x"
    require_agreement(solver_answer(*choice), answer)


@needs_browser
def test_gpu_names_are_read_as_the_program_reads_them(page):
    data = api.compatibility_data()
    names = [*data.gpu_names(), "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "1080 ti", "4090", "h100 pcie",
             "gtx1080ti", "A6000", "RTX 6000", "nonsense", "RTX A5000 24 GB"]  # fmt: skip
    capabilities = page.evaluate(
        f"{json.dumps(names)}.map((name) => tables.capabilities[parseGpu(name).capability] ?? null)"
    )
    for name, capability in zip(names, capabilities, strict=True):
        known = data.compute_capability(name)
        assert capability == (known and f"{known[0]}.{known[1]}"), name


@needs_browser
def test_a_choice_by_keyboard_a_link_and_the_back_button(page):
    page.open(page.url)
    page.press("Tab")  # the link to the answer
    page.press("Tab")
    page.type("gtx1080ti")
    page.press("Tab")
    page.type("580")
    page.press("Enter")
    title = page.text("#answer-title")
    expected = solver_answer("torch", ["gtx1080ti"], "580", "3.12")
    assert title.startswith(f"torch {expected['version']}")
    assert "gpuenv solve --framework torch --gpu gtx1080ti --driver 580" in page.text("#command")
    link = page.evaluate("location.href")
    assert link.endswith("#gpu=gtx1080ti&driver=580")

    page.evaluate("document.querySelector('[data-view=table]').focus()")
    page.press("Enter")
    assert page.evaluate("location.hash").endswith("view=table")
    assert "torch" in page.text("#table caption")
    page.back()
    assert page.text("#answer-title") == title

    page.open(link)
    assert page.text("#answer-title") == title
    assert page.evaluate("document.getElementById('gpu').value") == "gtx1080ti"


@needs_browser
def test_the_search_for_a_wheel_and_the_way_to_it_from_the_table(page):
    page.open(f"{page.url}#view=wheel")
    page.click("#wheel")
    page.type("torch==2.4.1")
    assert page.text("#wheel-answer h3").startswith("torch 2.4.1")
    row = page.evaluate(
        "[...document.querySelectorAll('#wheel-answer tbody tr')].find((row) =>"
        " row.cells[0].innerText === '9.0').innerText"
    )
    assert "SASS" in row
    assert "525.60.13 or newer" in row
    page.open(f"{page.url}#view=table&framework=vllm")
    page.click("#table tbody a")
    assert page.text("#wheel-answer h3").startswith("vllm ")
    page.open(f"{page.url}#view=charts")
    assert page.evaluate("document.querySelectorAll('#charts svg[role=img]').length") >= 3


@needs_browser
@pytest.mark.parametrize(
    ("fragment", "text"),
    [
        ("gpu=nonsense", "not a known GPU"),
        ("gpu=H100&driver=12.4", "looks like a CUDA version"),
        ("gpu=GH200", "exists on linux-aarch64 only"),
        ("gpu=H100&gpu=none", "cannot be combined"),
    ],
)
def test_wrong_input_is_reported(page, fragment, text):
    page.open(f"{page.url}#{fragment}")
    assert text in page.text("#problem")


def test_the_record_of_the_proof_has_no_failure():
    record = json.loads((ROOT / "docs" / "records" / "explorer.json").read_text())
    assert len({part["seed"] for part in record["agreement"]}) >= 2
    for part in record["agreement"]:
        assert part["choices"] >= 2000
        assert part["differences"] == []
    assert record["axe"]["violations"] == []
    assert record["console errors"] == record["requests"] == []
    assert record["figures"]["bytes"] < 2_000_000
    assert record["figures"]["first answer after the load, ms"] < 200
    questions = tomllib.loads((ROOT / "tests/data/explorer_questions.toml").read_text())["question"]
    assert [one["thread"] for one in record["questions"]] == [one["thread"] for one in questions]
    assert all(one["right"] and one["estimated seconds"] < 20 for one in record["questions"])


def test_without_jinja_the_command_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['jinja2'] = None; from gpuenv.render import html;"
        " from gpuenv.errors import InputError\n"
        "try: html.explorer_html({})\n"
        "except InputError as error: print(error, error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "gpuenv matrix html needs jinja2" in done.stdout
    assert "gpuenv[report]" in done.stdout
