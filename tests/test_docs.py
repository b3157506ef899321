"""The pages of docs/: links, length, navigation, pictures, and lists that must be complete."""

import re

from gpuenv.compat import evaluate, rules
from tables import ROOT, read_data, together

DOCS = ROOT / "docs"
BESIDE_DOCS = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
PAGES = [*sorted(DOCS.rglob("*.md")), *BESIDE_DOCS]
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)]*))?\)")
CODE = re.compile(r"^```.*?^```$|^ {4}.*?$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
WORDS_IN_FIVE_MINUTES = 1_200
# Readers look up a row in these pages. Nobody reads them from the first to the last line.
LOOKED_UP = {"support.md", "CHANGELOG.md"}


def links(page):
    """Yield target and anchor of each link to another file or to an anchor."""
    for target, anchor in LINK.findall(CODE.sub("", page.read_text())):
        if "://" not in target:
            yield target, anchor


def anchors(page):
    """Return the anchors of headings that GitHub and the site spell in the same way."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"(?ms)^```.*?^```$", "", page.read_text()), re.M)
    texts = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {
        slug for text in texts if (slug := text.replace(" ", "-")) == re.sub(r"[-\s]+", "-", text)
    }


def is_target(page, target, anchor):
    """Return whether the file of a link exists, and the heading of a page that its anchor names."""
    path = page.parent / target if target else page
    is_page = path.suffix == ".md"  # the anchor of a picture names its theme
    return path.exists() and (not anchor or not is_page or anchor in anchors(path))


@together(PAGES)
def test_every_link_leads_to_a_page(page):
    for target, anchor in links(page):
        assert is_target(page, target, anchor), f"{target}#{anchor}"
        path = (page.parent / target).resolve()
        if target and page != ROOT / "README.md":
            assert path.is_relative_to(DOCS) or path in BESIDE_DOCS, f"{target} is not in the site"


@together(PAGES)
def test_a_page_is_read_in_five_minutes(page):
    words = re.findall(r"\S*\w\S*", re.sub(r"(?ms)^```.*?^```$|^ {4}.*?$", "", page.read_text()))
    assert page.name in LOOKED_UP or len(words) <= WORDS_IN_FIVE_MINUTES


def test_the_documentation_is_short():
    readme = (ROOT / "README.md").read_text()
    table = readme.partition("## Documentation")[2]
    assert len(readme.split()) <= 700 and len(re.findall(r"^\| [a-z].*\]\(", table, re.M)) <= 8
    assert sum(len(page.read_text().split()) for page in DOCS.rglob("*.md")) <= 22_000


def entries(nav):
    for part in nav:
        for value in part.values():
            yield from [value] if isinstance(value, str) else entries(value)


def test_nothing_assumes_that_gpuenv_is_on_an_index():
    """Until the first release, a page or a file for CI installs a clone, a wheel or an extra."""
    by_name = re.compile(
        r"(?:pip install (?!.*--no-index)(?:[^&\n`]* )?|uvx |pipx run )gpuenv(?: |$)", re.M
    )
    assert by_name.search("    pip install uv gpuenv\n") and by_name.search("uvx gpuenv solve")
    files = [*DOCS.glob("hooks/*"), *PAGES]
    assert [path for path in files if by_name.search(path.read_text())] == []


def test_the_navigation_of_the_site_has_every_page():
    config = read_data(DOCS / "zensical.toml")
    listed = list(entries(config["project"]["nav"]))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    pages = {page for page in pages if not page.startswith("causes/")} | {"causes/README.md"}
    pages |= {page.name for page in BESIDE_DOCS if page.name != "README.md"}
    assert sorted(listed) == sorted(pages)


def test_the_page_of_rules_has_every_rule_and_code():
    page = (DOCS / "rules.md").read_text()
    functions = [*(getattr(rules, name) for name in dir(rules)), evaluate.agreements]
    documented = " ".join(str(function.__doc__) for function in functions)
    codes = set(
        re.findall(r"\b[a-z]+(?:-[a-z]+)+\b", " ".join(re.findall(r"Codes?: ([^.(]*)", documented)))
    )
    assert len(codes) >= 20 and [code for code in sorted(codes) if f"`{code}`" not in page] == []
    assert [n for n in range(1, 12) if f"\n## R{n}: " not in page] == []


def test_the_page_of_variables_has_every_variable():
    page = (DOCS / "environment.md").read_text()
    read = re.compile(
        r"environ\S*\(\s*\"([A-Z_]+)\"|env(?:iron)?\[\"([A-Z_]+)\"\]|\"([A-Z_]+)\" in (?:os\.)?env"
    )
    found = set()
    for path in (ROOT / "resolver").rglob("*.py"):
        if not {"probes", "variant_provider"}.intersection(path.parts):
            found |= {name for match in read.findall(path.read_text()) for name in match if name}
    assert len(found) >= 15
    assert [name for name in sorted(found) if f"`{name}" not in page] == []
