"""The report for a bug tracker names no person, no machine and no secret, and keeps the rest."""

import json
import os
import re
import venv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuenv.render import redact
from tables import data_file, each
from test_cli import run

DATA = data_file("bundle.json")
NAMES = redact.Names(
    users=("alice", "Alice Example", "Alice", "Example"),
    hosts=("gpu17.cluster.example.org", "gpu17", "cluster.example.org"),
    homes=("/data/people/alice",),
    versions=frozenset({"9.20.0.48"}),
)


# ---- no planted secret stays in a report --------------------------------------------------------

ALNUM = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
word = st.text("bcdfghjkmnpqrstvwxz", min_size=6, max_size=12).map(lambda text: f"Qy{text}")
token = st.one_of(
    st.tuples(
        st.sampled_from(["ghp_", "gho_", "hf_", "glpat-", "nvapi-", "sk-"]),
        st.text(ALNUM, min_size=20),
    ).map("".join),
    st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", min_size=16, max_size=16).map(
        lambda text: f"AKIA{text}"
    ),
    st.text(ALNUM, min_size=36, max_size=80)
    .filter(lambda text: bool(re.search("[0-9]", text) and not text.isdigit()))
    .filter(lambda text: any(char.isalpha() for char in text)),
)
byte = st.integers(0, 255)
quad = st.tuples(st.sampled_from([10, 172, 192]), byte, byte, byte).map(
    lambda parts: ".".join(map(str, parts))
)
uuid = st.uuids().map(str)
# Pairs of a secret and a text that contains it.
planted = st.one_of(
    st.tuples(word, word).map(
        lambda pair: (pair[0], f"https://{pair[1]}:{pair[0]}@index.example/simple")
    ),
    word.map(lambda secret: (secret, f"https://index.example/simple?a=1&sig={secret}")),
    word.map(lambda secret: (secret, f"https://{secret}.example.net/simple")),
    st.tuples(
        word,
        st.sampled_from(["TOKEN=", "MY_SECRET: ", "db_password = ", "--api-key ", "X-Api-Key: "]),
    ).map(lambda pair: (pair[0], pair[1] + pair[0])),
    st.tuples(word, st.sampled_from(["/home/", "/Users/", "C:\\Users\\"])).map(
        lambda pair: (pair[0], pair[1] + pair[0])
    ),
    token.map(lambda secret: (secret, secret)),
    quad.map(lambda secret: (secret, secret)),
    word.map(lambda secret: (secret, f"{secret}@mail.example.org")),
    uuid.map(lambda secret: (secret, f"GPU-{secret}")),
    uuid.map(lambda secret: (secret, f"MIG-{secret}")),
    st.sampled_from(["alice", "gpu17", "/data/people/alice"]).map(lambda secret: (secret, secret)),
)
around = st.sampled_from(["", " ", "\n", "'", '"', "(", ")", ", ", "; "])


def data_with(secret_text, before, after, place):
    text = f"{before}{secret_text}{after}"
    places = {
        "evidence": {"checks": [{"name": "cudnn", "evidence": text}]},
        "key": {"variables": {text: "1"}},
        "deep": [[{"host": {"problems": [{"detail": text}]}}]],
        "plain": text,
    }
    return places[place]


@given(planted, around, around, st.sampled_from(["evidence", "key", "deep", "plain"]))
def test_no_planted_secret_survives(pair, before, after, place):
    secret, text_with_secret = pair
    value = data_with(text_with_secret, before, after, place)
    data = value if isinstance(value, dict) else {"value": value}
    sections = [("Section", [f"line {text_with_secret} end"])]
    text = redact.report(f"title {text_with_secret}", sections, data, NAMES)
    assert secret not in text


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_json_of_any_report_can_be_read(line, value):
    text = redact.report("title", [("Section", [line])], {"value": value}, NAMES)
    fences = [
        line_of_text for line_of_text in text.split("\n") if re.fullmatch("`{3,}json", line_of_text)
    ]
    document = text[text.rindex(fences[-1]) + len(fences[-1]) + 1 :].rpartition(
        "\n" + fences[-1][:-4]
    )[0]
    assert json.loads(document) == {"value": redact.scrubbed(value, NAMES)}


def test_only_relevant_variables_are_reported():
    env, reported = DATA["variables"]
    assert redact.variables(env) == reported


def test_secret_fields_and_identifiers_of_devices_are_removed():
    data, cleaned = DATA["fields"]
    assert redact.clean(data, NAMES) == cleaned


# ---- the command --------------------------------------------------------------------------------


@pytest.fixture
def env_folder(tmp_path):
    (tmp_path / "work").mkdir()
    target = tmp_path / "work" / "env"
    venv.create(target, symlinks=True)
    return target


def test_the_report_of_an_environment(env_folder):
    folder = env_folder.parent
    (folder / "report.md").write_text("an old one")
    planted = {
        "USER": "qyalice",
        "HOSTNAME": "qyhost.qydomain.example",
        "HOME": str(folder),
        "CUDA_VISIBLE_DEVICES": "GPU-8932f937",
        "NVIDIA_API_KEY": "qykey",
        "CONDA_CHANNELS": "https://u:qypass@h.example/t/x",
        "OTHER": "qyother",
    }
    done = run("verify --no-device --target env --bundle report.md --json", folder, **planted)
    text = (folder / "report.md").read_text()
    document = json.loads(text[text.index("```json") + 7 : text.rindex("```")])
    assert document["checks"] and document["ok"] is done.document["ok"]
    assert document["variables"]["CUDA_VISIBLE_DEVICES"] == "UUID"
    assert "interpreter" in text.partition("## Host")[0]
    assert "~/env/bin/python" in text
    for secret in ("qy", "8932f937", str(folder), os.uname().nodename):
        assert secret not in text
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@each("path", ["no/where/report.md", "env"])
def test_an_unwritable_path_is_an_error_before_any_check(env_folder, path):
    done = run(f"verify --no-device --target env --bundle {path}", env_folder.parent, status=2)
    done.says_in_one_line(path)


@each("case", DATA["cases"], ids=[case["text"][:40] for case in DATA["cases"]])
def test_private_texts_are_replaced_and_others_stay(case):
    text = redact.scrubbed(case["text"], NAMES)
    for gone in case.get("gone", []):
        assert gone not in text, text
    for left in case.get("left", []):
        assert left in text, text
    assert redact.scrubbed(text, NAMES) == text
