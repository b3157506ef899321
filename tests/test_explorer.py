"""`gpuenv matrix html`: its tables, its script in V8 and, in a headless Chromium, its page."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from py_mini_racer import MiniRacer

import browser
from gpuenv import api
from gpuenv.compat.data import CompatibilityData
from gpuenv.errors import NoSolutionError
from gpuenv.index.multi_index import open_indexes
from gpuenv.model import IndexOptions, Request
from gpuenv.render.values import reasons_json
from gpuenv.resolve.answer_tables import AnswerTables
from gpuenv_explorer import pages

ROOT = Path(__file__).parent.parent
PLATFORM = "linux-x86_64"
CHOICES = tomllib.loads((ROOT / "tests/data/explorer_choices.toml").read_text())["choice"]
FIELDS = ("framework", "gpus", "driver", "python", "platform")
needs_browser = pytest.mark.skipif(not browser.CHROMIUM, reason="Debian's chromium is missing")


# The keys of each release of a framework in the tables, and those of facts that may be unknown.
KEYS = {
    "alone", "cpu", "glibc", "missing", "no_wheel", "place", "public", "pythons", "variant",
    "verdicts", "version",
}  # fmt: skip
OPTIONAL = {"cuda", "cudnn", "evidence", "source"}


class DataOf(CompatibilityData):
    """The data of some frameworks, without libraries: the tables of one are made in a second."""

    names = ()

    def all_frameworks(self):
        return [framework for framework in super().all_frameworks() if framework.name in self.names]

    def libraries(self):
        return ()


def tables_of(platforms, frameworks=()):
    """Return the tables as the page embeds them: of some frameworks, or of everything."""
    data = api.compatibility_data()
    if frameworks:
        data = DataOf(data.folder)
        data.names = frameworks
    snapshot, index = open_indexes(IndexOptions(offline=True), data.folder)
    document = AnswerTables(data, index, snapshot.environment).document(platforms)
    return {"data": api.data_version(snapshot.version), **json.loads(json.dumps(document))}


@pytest.fixture(scope="module")
def tables():
    """Return all tables of one platform."""
    return tables_of([PLATFORM])


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
        """Return the value of an expression, as `browser.Browser.evaluate` does."""
        return json.loads(self._engine.eval(f"JSON.stringify({expression})"))


@pytest.fixture(scope="module")
def script(tables):
    """Return the script with all tables of one platform."""
    return Script(tables)


@pytest.fixture(scope="module")
def page(tables, tmp_path_factory):
    """Yield the page in a browser."""
    folder = tmp_path_factory.mktemp("explorer")
    file = folder / "explorer.html"
    file.write_text(pages.explorer_html(tables), encoding="utf-8")
    with browser.Browser(folder / "profile") as chromium:
        chromium.url = file.as_uri()
        chromium.look(width=1280, height=900)
        chromium.open(chromium.url)
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
            assert set(release) - OPTIONAL == KEYS


def test_the_tables_name_the_oldest_glibc_of_a_wheel(tables):
    """The files of recent releases are manylinux_2_28; a build without a file has none."""
    releases = tables["platforms"][PLATFORM]["frameworks"]["torch"]["releases"]
    newest = next(release for release in releases if release["pythons"])
    assert newest["glibc"] == "2.28"
    assert all(release["glibc"] is None for release in releases if not release["pythons"])


LIBRARY_HOSTS = [
    ("sm_90", "580.65.06"), ("sm_90", "450.80.02"), ("sm_90", ""), ("sm_52", "580.65.06"),
    ("sm_70", "580.65.06"), ("sm_120", "570.86.10"), ("sm_100", "525.60.13"),
    ("sm_35", "470.256.02"), ("sm_103", "590.44"),
]  # fmt: skip


@pytest.mark.parametrize("library", ["nvidia-cudnn-cu12", "nvidia-cudnn-cu13"])
def test_a_library_is_accepted_where_the_solver_accepts_it(script, library):
    for gpu, driver in LIBRARY_HOSTS:
        choice = fields_of((library, [gpu], driver, "3.12", PLATFORM))
        [answer] = script.evaluate(f"[{json.dumps(choice)}].map({LIBRARY_ANSWER})")
        host = api.describe(gpus=[gpu], driver=driver or None, python="3.12").replace(glibc=None)
        for version in list(answer)[3::8]:
            request = Request(requirements=(f"{library}=={version}",))
            try:
                api.solve(request, host, IndexOptions(offline=True))
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


def shown_fields(reason):
    """Return the fields of a reason that the page shows, as the JSON documents have them."""
    [row] = reasons_json([reason])
    return [row[field] for field in ("code", "subject", "need", "have")]


def solver_answer(framework, gpus, driver, python, platform):
    host = api.describe(gpus=gpus, driver=driver or None, python=python, platform=platform)
    request = Request(frameworks=(framework,))
    try:
        plan = api.solve(request, host.replace(glibc=None), IndexOptions(offline=True))
    except NoSolutionError as error:
        reason = error.explanation.reasons[0]
        return {"refusal": shown_fields(reason)}
    choice = plan.choices[0]
    skipped = {}
    for rejection in plan.skipped:
        reason = rejection.reasons[0]
        skipped[rejection.version] = shown_fields(reason)
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


LIBRARY_ANSWER = """((choice) => {
  const { judged } = answer(hostOf(choice).host);
  const isAccepted = (one) => one.reasons.every((reason) => reason.doubt);
  return Object.fromEntries(judged.map((one) => [one.release.version, isAccepted(one)]));
})"""


def fields_of(choice):
    """Return a choice as the script reads it."""
    return dict(zip(FIELDS, choice, strict=True))


def explorer_answers(page_or_script, choices):
    """Return the answers of a page or its script to (framework, gpus, driver, python, platform)."""
    texts = json.dumps([fields_of(choice) for choice in choices])
    return page_or_script.evaluate(f"{texts}.map({EXPLORER_ANSWER})")


def require_agreement(expected, answer):
    """Fail if the page differs from the solver in a choice or in a release that was skipped."""
    reasons = answer.pop("reasons", {})
    skipped = expected.pop("skipped", {})
    assert answer == expected
    assert {version: reasons.get(version) for version in skipped} == skipped


def choices_on(platform):
    """Return the choices on a platform as tuples."""
    choices = [tuple(choice[field] for field in FIELDS) for choice in CHOICES]
    return [choice for choice in choices if choice[-1] == platform]


def require_answers(page_or_script, choices):
    """Fail if a page or its script answers a choice differently from the solver."""
    answers = explorer_answers(page_or_script, choices)
    for choice, answer in zip(choices, answers, strict=True):
        require_agreement(solver_answer(*choice), answer)


@needs_browser
def test_the_page_answers_as_the_solver(page):
    require_answers(page, choices_on(PLATFORM))


def test_the_script_answers_as_the_solver(script):
    require_answers(script, choices_on(PLATFORM))


@pytest.mark.parametrize(
    ("platform", "frameworks"),
    [
        ("linux-aarch64", ("jax", "onnxruntime", "tensorflow", "torch")),
        ("win-amd64", ("cupy", "jax", "tensorflow", "torch")),
    ],
)
def test_the_script_answers_as_the_solver_on_other_platforms(platform, frameworks):
    tables = tables_of([platform], frameworks)
    tables["platforms"][PLATFORM] = tables["platforms"][platform]  # for the fields of the form
    require_answers(Script(tables), choices_on(platform))


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
    expected = solver_answer("torch", ["gtx1080ti"], "580", "3.12", PLATFORM)
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


def test_without_jinja_the_command_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['jinja2'] = None; from gpuenv_explorer import pages;"
        " from gpuenv.errors import InputError\n"
        "try: pages.explorer_html({})\n"
        "except InputError as error: print(error, error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "gpuenv matrix html needs jinja2" in done.stdout
    assert "gpuenv[report]" in done.stdout
