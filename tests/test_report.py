"""`gpuenv report`: one HTML file that shows what its documents say, and requests nothing."""

import json
import re
from html.parser import HTMLParser

import pytest

from small_wheels import write_files
from tables import data_file, each

TABLES = data_file("tables/report.json")

VOID = {"meta", "link", "br", "img", "input", "hr"}
VERIFY = TABLES["verify"]
LATER = TABLES["later"]
SOLVE = TABLES["solve"]
DETECT = TABLES["detect"]
ONE_HOST = TABLES["one_host"]
ONE_NODE = TABLES["one_node"]


class Tags(HTMLParser):
    """Checks that each tag is closed, and collects attributes and the ids of elements."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.attributes = []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag == "li" and self.open[-1] != "li":
            return
        assert self.open.pop() == tag


@pytest.fixture
def report(tmp_path, call):
    """report(NAME=document): the ended command, and the text of the report."""

    def command(**documents):
        write_files(tmp_path, {f"{name}.json": json.dumps(one) for name, one in documents.items()})
        paths = [tmp_path / f"{name}.json" for name in documents]
        done = call("report", *paths, "-o", tmp_path / "out.html", "--json")
        return done, (tmp_path / "out.html").read_text()

    return command


def test_a_report_of_all_kinds_is_one_closed_document(report, tmp_path):
    hosts = {"hosts": DETECT, "node": ONE_NODE, "one": ONE_HOST}
    done, text = report(first=VERIFY, later=LATER, solve=SOLVE, **hosts)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    ids = {value for name, value in tags.attributes if name == "id"}
    links = {value for name, value in tags.attributes if name == "href"}
    assert links == {"#first.json-n1", "#first.json-n2", "#later.json-n1", "#later.json-n2"}
    assert {f"#{one}" for one in ids} >= links
    assert done.document == {"path": str(tmp_path / "out.html"), "bytes": len(text.encode())}


def test_nothing_is_requested_from_outside(report):
    _, text = report(first=VERIFY, solve=SOLVE, one=ONE_HOST)
    assert re.findall(r"https?:|//[a-z]|url\(|@import|<script|<link|<img|src=", text) == []
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text


def test_what_it_shows(report):
    _, text = report(first=VERIFY, later=LATER, solve=SOLVE)
    shown = " ".join(re.sub(r"<[^>]*>", " ", text.partition("<body>")[2]).split())
    assert "NOT verified: 2 of 4 nodes passed" in shown
    assert "n1 0 driver is 550, and 580 on 2 nodes of its class" in shown
    assert "&lt;b&gt;changed&lt;/b&gt;" in shown
    assert "n3: no answer in 9 s" in shown
    assert "with driver 590.00 on 3 nodes (n[0-2]): torch 2.16.0 instead of 2.15.0 on 3" in shown
    timeline = re.findall(r"<td>(2026\S+)</td>((?:<td class=\"number\">\d+</td>\s*)+)", text)
    assert [(time, re.findall(r">(\d+)<", cells)) for time, cells in timeline] == [
        (VERIFY["time"], ["2", "1", "1", "1"]),
        (LATER["time"], ["3", "1", "0", "1"]),
    ]
    # The failed nodes come first, then the outliers.
    assert re.findall(r'<details id="first.json-(n\d)"', text) == ["n2", "n1", "n0"]


@each("content message", TABLES["bad_input_is_one_line"])
def test_bad_input_is_one_line(tmp_path, call, content, message):
    path, output = tmp_path / "a.json", tmp_path / "out.html"
    path.write_text(content)
    call(f"report {path} -o {output}", status=2).says_in_one_line(message)
    assert not output.exists()


def test_without_jinja2(tmp_path, call, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "jinja2", None)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ONE_NODE))
    done = call(f"report {path} -o", str(tmp_path / "out.html"), status=2)
    assert "gpuenv report needs jinja2; pip install 'gpuenv[report]'" in done.stderr
