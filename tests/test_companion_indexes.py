"""The indexes of companions: stand-ins with the shapes of their pages, honest and hostile."""

import hashlib
import json
from urllib.parse import unquote, urljoin, urlsplit

import pytest

import forked
from gpuenv.__main__ import main
from gpuenv.api.data import compatibility_data
from gpuenv.compat import data as matrix
from index_server import make_sdist, make_wheel
from tables import ROOT, cases, data_file, read_data
from test_cli import command_environment, import_what_commands_use

TABLES = data_file("companion_indexes.toml")
HOST = ("--driver", "590.44.01", "--python", "3.12", "--glibc", "2.39",
        "--platform", "linux-x86_64")  # fmt: skip
TORCH = ("torch-2.8.0", "torch-2.9.1", "torch-2.15.0")


def file_of(stem, owner="", padding=0):
    """A source distribution, or a wheel whose METADATA names an owner."""
    name, version, *tags = stem.removesuffix(".tar.gz").split("-", 2)
    described = version
    if stem.endswith(".tar.gz"):
        return make_sdist(name, version, ["torch"])
    if "torch" in version or "pt" in version:  # as in wheels of flash-attn
        described = version.partition("+")[0]
    text = f"Metadata-Version: 2.1\nName: {owner or name}\nVersion: {described}\n"
    tag = "".join(tags) or "cp312-cp312-linux_x86_64"
    return make_wheel(name, version, tag=tag, metadata=text, padding=padding)


def page(shape, folder, files):
    """A page of files below a folder, and of links that nobody may follow."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files}
    links = {name: f"{folder}/{name.replace('+', '%2B')}" for name, _ in files}
    name, last = files[-1][0], files[-1][0].split("-")[1]
    for scheme, version in (
        ("file:///tmp", "97"),
        ("http://localhost:1", "98"),
        ("javascript:0/", "99"),
    ):
        other = name.replace(last, f"{version}.0+pt28cu128")
        links[other], hashes[other] = f"{scheme}/{other.replace('+', '%2B')}", "0" * 64
    if shape == "json":
        rows = [
            {"filename": name, "url": link, "hashes": {"sha256": hashes[name]}}
            for name, link in links.items()
        ]
        body = json.dumps({"meta": {"api-version": "1.0"}, "files": rows})
        return "application/vnd.pypi.simple.v1+json", body.encode()
    row = {
        "html": "<a href='{1}#sha256={2}'>{0}</a><br/>",
        "flat": "<a href='{1}'>{0}</a><br/>",
        "github": "<li><a href='{1}'><span>{0}</span></a> <span>sha256:{2}</span></li>",
    }[shape]
    lines = [row.format(name, link, hashes[name]) for name, link in links.items()]
    return "text/html", "\n".join(lines).encode()


@pytest.fixture
def solve(server, tmp_path):
    """Run `gpuenv solve`; every index of companions is on the server."""
    data = tmp_path / "matrix_data"
    data.mkdir()
    for path in (ROOT / "matrix_data").iterdir():
        if path.name != "tables.json":
            (data / path.name).symlink_to(path)
    tables = read_data(ROOT / "matrix_data" / "tables.json")
    for row in tables["indexes"]:
        # The index that fails in some cases is a host of its own: no other is left out with it.
        is_pyg = "//data.pyg.org/" in row["url"]
        base = server.base.replace("127.0.0.1", "localhost") if is_pyg else server.base
        row["url"] = row["url"].replace("https:/", base)
        row["files"] = [text.replace("https:/", server.base) for text in row.get("files", ())]
    (data / "tables.json").write_text(json.dumps(tables))

    import_what_commands_use()

    def entry_point():
        matrix.data_folder = lambda: str(data)
        compatibility_data.cache_clear()
        main()

    def run(command):
        gpu = "" if "--gpu" in command else "--gpu A100"
        words = ["gpuenv", "solve", *HOST, *f"{gpu} {command} --json".split()]
        environment = command_environment(tmp_path / "work", {"PIP_INDEX_URL": server.url})
        done = forked.run(entry_point, words, tmp_path, environment)
        lock = tmp_path / "pylock.toml"
        packages = read_data(lock)["packages"] if lock.exists() else []
        lock.unlink(missing_ok=True)
        return {**done.document, "status": done.returncode, "packages": packages}

    return run


def serve(server, case):
    """Serve a case, and hostile files beside."""
    stems = [stem for text in case["default"] for stem in (TORCH if text == "torch" else (text,))]
    for stem in stems:
        server.add_file(stem.split("-")[0].replace("_", "-"), *file_of(stem))
    for place in case["pages"]:
        files = [file_of(stem, padding=1) for stem in place["files"]]
        name = place["files"][0].split("-")[0]
        hostile = [file_of(f"{name}-96.0+pt28cu128", "numpy"), file_of("torch-99.0")]
        hostile += [file_of("torch-2.99.0+cu128"), file_of("numpy-99.0")]
        server.raw[f"/{place['url']}"] = page(place["shape"], place["folder"], [*hostile, *files])
        for filename, data in (*hostile, *files):
            path = urljoin(f"{server.base}/{place['url']}", f"{place['folder']}/{filename}")
            server.raw[unquote(urlsplit(path).path)] = ("application/octet-stream", data)


@cases(TABLES["case"])
def test_the_builds_of_an_index_are_chosen_for_the_host(server, solve, case):
    serve(server, case)
    for command, chosen in case["solves"].items():
        answer = solve(command)
        assert [f"{row['name']} {row['version']}" for row in answer["packages"]] == chosen, answer
        for row in answer["packages"]:
            (file,) = row.get("wheels") or (row["archive"],)
            _, data = server.answer(unquote(urlsplit(file["url"]).path)) or ("", b"")
            assert file["hashes"] == {"sha256": hashlib.sha256(data).hexdigest()}


@cases(TABLES["failure"])
def test_what_has_an_answer_without_an_index_does_not_need_it(server, solve, case):
    serve(server, {"default": ["torch", "torch_scatter-2.0.9"], "pages": []})
    link = f"<a href=files/{file_of('torch-2.8.0')[0]}>"
    server.raw["/links.html"] = ("text/html", link.encode())
    server.faults[case.get("below", "-")] = [case.get("fault", ""), "always"]
    server.headers = {"Location": "file:///etc/passwd"}
    solve("torch-scatter torch==2.8.0 --default-index-only")  # fills the cache
    other = server.url.replace("127.0.0.1", "localhost")
    answer = solve(case["command"].format(other=other, base=server.base))
    assert answer["status"] == case.get("status", 0)
    codes = [row["code"] for row in (*answer.get("warnings", ()), answer.get("error", ())) if row]
    assert codes == case.get("says", [])
    asked = {path.split("/")[1] for path in server.paths()} - {"simple", "files", "links.html"}
    assert bool(asked) == case.get("asked", False)
