"""Requirement files and projects as pip reads them, and one line for each mistake."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from pip._internal.exceptions import InstallationError

from examples import examples
from gpuenv.errors import InputError
from gpuenv.requirements.files import read_files
from gpuenv.requirements.pyproject import read_project
from tables import cases, data_file

CASES = data_file("requirements.json")
PROJECTS = data_file("projects.json")


def put(folder, files, encoding="utf-8"):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode(encoding))


def plain(asked):
    """What is not left at its default, as JSON has it, without the origins."""
    stated = json.loads(json.dumps(asked.non_defaults()))
    stated.pop("origins", None)
    return stated


@cases(CASES)
def test_files(case, tmp_path, monkeypatch):
    put(tmp_path, case["files"], case.get("encoding", "utf-8"))
    monkeypatch.chdir(tmp_path)
    for name, value in case.get("environ", {}).items():
        monkeypatch.setenv(name, value)

    def read():
        return read_files(case.get("requirements", ["r.txt"]), case.get("constraints", ()))

    if "asked" in case:
        assert plain(read()) == case["asked"]
        return
    with pytest.raises(InputError) as error:
        read()
    told = f"{error.value.message}; {error.value.hint}"
    assert "\n" not in told
    for text in case["says"]:
        assert text in told
    for text in case.get("hides", ()):
        assert text not in told


def by_pip(path, *, constraint=False):
    """(requirement, whether it is a constraint, its hashes) as pip's own reader has them."""
    from pip._internal.network.session import PipSession
    from pip._internal.req.req_file import parse_requirements

    with PipSession() as session:
        return [
            (
                str(Parsed(row.requirement)),
                row.constraint,
                tuple(sorted((row.options or {}).get("hashes", {}).get("sha256", []))),
            )
            for row in parse_requirements(path, session, constraint=constraint)
        ]


COMPARED = [
    case
    for case in CASES
    if "asked" in case
    and len(case.get("requirements", ["r.txt"])) == 1
    and not any(word in case["name"] for word in ("alone", "--all-releases", "--find-links"))
]


@cases(COMPARED)
def test_pip_reads_the_same(case, tmp_path, monkeypatch):
    put(tmp_path, case["files"], case.get("encoding", "utf-8"))
    monkeypatch.chdir(tmp_path)
    for name, value in case.get("environ", {}).items():
        monkeypatch.setenv(name, value)
    rows = by_pip(case.get("requirements", ["r.txt"])[0])
    for constraint, key in ((False, "requirements"), (True, "constraints")):
        assert [row[0] for row in rows if row[1] is constraint] == case["asked"].get(key, [])


NAMES = st.sampled_from(["numpy", "scipy[a]", "foo-bar"])
PIECES = st.sampled_from(
    ["", ">=1", ">=1,<2", " ~= 1.4", "==2.*", " ; python_version > '3'", "  # a comment",
     " # ${X}", "#no", " \\", "\\",
     "\t", " ;sys_platform=='linux'", "\r"]
)  # fmt: skip
LINES = st.one_of(
    st.tuples(NAMES, PIECES, PIECES).map("".join),
    st.sampled_from(
        ["", "# comment", "#\\", "  ", "--pre", "--prefer-binary", "-r other.txt", " -c limits.txt"]
    ),
)


@settings(
    max_examples=examples(50), deadline=None, derandomize=True, suppress_health_check=[*HealthCheck]
)
@given(st.lists(LINES, max_size=6).map("\n".join))
def test_any_file_is_read_as_pip_reads_it(tmp_path, text):
    put(tmp_path, {"r.txt": text, "other.txt": "other==1\n", "limits.txt": "numpy<9\n"})
    path = str(tmp_path / "r.txt")
    try:
        ours = read_files([path])
    except InputError as error:
        if "needs a line of its own" not in str(error):  # pip passes over such an option
            with pytest.raises((InstallationError, InvalidRequirement)):
                by_pip(path)
        return
    rows = by_pip(path)
    assert [row[0] for row in rows if not row[1]] == list(ours.requirements)
    assert [row[0] for row in rows if row[1]] == list(ours.constraints)


@cases(PROJECTS)
def test_projects(case, tmp_path):
    (tmp_path / "pyproject.toml").write_text(case["text"])

    def read():
        return read_project(str(tmp_path), case.get("extras", ()), case.get("groups", ()))

    if "asked" in case:
        assert plain(read()) == case["asked"]
        return
    with pytest.raises(InputError) as error:
        read()
    assert "\n" not in error.value.message
    for text in case["says"]:
        assert text in error.value.message


def test_each_requirement_has_its_place(tmp_path):
    put(tmp_path, {"r.txt": "numpy\n-r s.txt\n", "s.txt": "\nscipy>=1\n"})
    places = dict(read_files([str(tmp_path / "r.txt")]).origins)
    assert places == {"numpy": f"{tmp_path}/r.txt:1", "scipy>=1": f"{tmp_path}/s.txt:2"}


# ---- files at URLs -------------------------------------------------------------------------------

AT_URLS = {
    "/team/r.txt": "-r sub/more.txt\n-c /limits.txt\napp\n",
    "/team/sub/more.txt": "base>=1\n",
    "/limits.txt": "base<2\n",
    "/loop.txt": "app\n-r loop.txt\n",
}


@pytest.fixture
def files(server, folder, monkeypatch):
    """A server of requirement files and of their packages, and its flags."""
    monkeypatch.chdir(folder)
    for path, text in AT_URLS.items():
        server.raw[path] = ("text/plain", text.encode())
    server.add("app", "1.0")
    for version in ("1.0", "2.0"):
        server.add("base", version)
    return server


def test_files_at_urls(files, folder, call):
    """Relative names in them are relative to their URL, as in pip."""
    url = f"{files.base}/team/r.txt"
    local = folder / "local.txt"
    local.write_text(f"-r {url}\n")
    rows = by_pip(url)
    flags = ["--index-url", files.url, "--gpu", "none", "--format", "requirements"]
    for path in (url, local, local.as_uri()):
        text = call("solve", "-r", path, *flags).stdout
        assert "app==1.0" in text and "base==1.0" in text
    assert [row[:2] for row in rows] == [("base>=1", False), ("base<2", True), ("app", False)]


def test_a_file_at_a_url_that_cannot_be_read(files, call):
    solve = ["solve", "--index-url", files.url, "--gpu", "none", "-r"]
    done = call(*solve, f"{files.base}/none.txt", status=4)
    done.says_in_one_line(f"{files.base}/none.txt", "status 404")
    done = call(*solve, f"{files.base}/loop.txt", status=2)
    loop = f"{files.base}/loop.txt"
    done.says_in_one_line(f"{loop}:2: {loop} leads back to itself")
    files.asked.clear()
    call(*solve, f"{files.base}/team/r.txt", "--offline", status=4).says_in_one_line("--offline")
    assert not files.asked
    files.user = ("u", "secret")
    secret = files.base.replace("://", "://u:secret@")
    done = call(*solve, f"{secret}/loop.txt", status=2)
    assert "leads back to itself" in done.stderr and "secret" not in done.stderr
    files.raw["/loop.txt"] = ("text/plain", f"-r {secret}/loop.txt".encode())
    done = call(*solve, f"{secret}/loop.txt", status=2)
    assert "leads back to itself" in done.stderr and "secret" not in done.stderr


def test_a_file_that_is_read_without_https_is_named(files, call, monkeypatch):
    """The server is the proxy for the host of the URL."""
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, files.base)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    url = "http://a.test/r.txt"
    files.raw[url] = ("text/plain", b"app\n")
    done = call(f"solve --index-url {files.url} --gpu none --dry-run -r {url}")
    assert (
        done.stderr == f"warning: {url} is read without https: anybody on the way can change it\n"
    )
