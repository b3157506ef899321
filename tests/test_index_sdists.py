"""Source distributions and files at URLs: what is known of them without building anything."""

import hashlib
import io
import zipfile

import pytest

import small_wheels
from gpuenv.errors import InputError, OfflineError, PackageIndexError, UnusableFileError
from gpuenv.model import Requirement
from index_server import make_sdist, make_wheel
from indexes import find_links
from tables import data_file, each

TABLES = data_file("tables/index_sdists.json")

REQUIRES = ["alpha>=1", "beta ; extra == 'b'"]
EXPECTED = (
    Requirement(name="alpha", specifier=">=1"),
    Requirement(name="beta", marker='extra == "b"'),
)


@each("style", ["json", "html", "plain"])
@each("kind", [".tar.gz", ".zip"])
def test_an_index_lists_sdists_apart(style, kind, server, index_of):
    server.style = style
    server.add("demo", "1.0")
    file = server.add_sdist("demo", "2.0", REQUIRES, kind=kind, requires_python=">=3.9")
    index = index_of()
    assert [one.version for one in index.wheels("demo")] == ["1.0"]
    (sdist,) = index.sdists("demo")
    found = sdist.version, sdist.filename, sdist.requires_python
    assert found == ("2.0", file.filename, ">=3.9")
    assert sdist.sha256 == hashlib.sha256(file.data).hexdigest()
    asked = len(server.asked)
    for one in (index, index_of(offline=True)):
        assert one.dependencies(one.sdists("demo")[0]) == EXPECTED
        assert one.requires_python(one.sdists("demo")[0]) == ">=3.9"
    assert len(server.asked) == asked + 1


def test_a_folder_lists_sdists_apart(tmp_path, cache):
    for filename, data in (
        make_sdist("my-demo", "2.0", REQUIRES),
        make_wheel("my-demo", "1.0", ["gamma"]),
    ):
        (tmp_path / filename).write_bytes(data)
    links = find_links([str(tmp_path)], cache=cache)
    assert [one.version for one in links.wheels("my-demo")] == ["1.0"]
    (sdist,) = links.sdists("my-demo")
    assert links.dependencies(sdist) == EXPECTED
    assert find_links([str(tmp_path / sdist.filename)], cache=cache).sdists("my-demo") == (sdist,)


@each("options have", TABLES["what_only_a_build_would_tell_is_not_guessed"])
def test_what_only_a_build_would_tell_is_not_guessed(server, options, have, index_of):
    server.add_sdist("demo", "1.0", REQUIRES, **options)
    index = index_of()
    with pytest.raises(UnusableFileError) as error:
        index.dependencies(index.sdists("demo")[0])
    reason = error.value.reason
    assert (reason.code, reason.have) == ("needs-build", f"nothing is built here, and {have}")


DAMAGED = {
    "no archive": (b"not an archive", "not a gzip file"),
    "cut off": (make_sdist("demo", "1.0")[1][:-40], "Compressed file ended"),
}


@each("data message", DAMAGED)
def test_damaged_sdists_are_named(server, data, message, index_of):
    server.add_file("demo", "demo-1.0.tar.gz", data)
    index = index_of()
    text = rf"demo-1.0.tar.gz: needs a readable archive; it has none \({message}"
    with pytest.raises(UnusableFileError, match=text):
        index.dependencies(index.sdists("demo")[0])


def test_an_sdist_with_the_wrong_hash_is_not_read(server, index_of):
    server.add_sdist("demo", "1.0", REQUIRES)
    server.faults["/files/"] = ["tampered", "always"]
    index = index_of()
    with pytest.raises(PackageIndexError, match="wrong hash"):
        index.dependencies(index.sdists("demo")[0])


# ---- files at URLs -------------------------------------------------------------------------------


@each("kind", ["wheel", "sdist"])
@each("hashed", [True, False])
def test_a_file_at_a_url(server, kind, hashed, direct_of):
    add = server.add if kind == "wheel" else server.add_sdist
    file = add("my-demo", "1.0", REQUIRES, requires_python=">=3.8")
    digest = hashlib.sha256(file.data).hexdigest()
    url = f"{server.base}/files/{file.filename}"
    direct = direct_of()
    found = direct.direct("my-demo", f"{url}#sha256={digest}" if hashed else url)
    named = found.name, found.version, found.filename, found.url
    assert named == ("my-demo", "1.0", file.filename, url)
    assert (found.sha256, found.index) == (digest, "url")
    assert found.size == (None if hashed else len(file.data))
    assert direct.dependencies(found) == EXPECTED
    assert direct.requires_python(found) == ">=3.8"
    assert "/simple/my-demo/" not in server.paths()


def test_a_file_on_disk_by_its_url(tmp_path, direct_of):
    wheel = small_wheels.make_wheel(tmp_path, "demo", "1.0", REQUIRES)
    direct = direct_of()
    found = direct.direct("demo", wheel.url)
    size = (tmp_path / wheel.filename).stat().st_size
    assert (found.sha256, found.size) == (wheel.sha256, size)
    assert direct.dependencies(found) == EXPECTED
    with pytest.raises(InputError, match="the requirement names aaaa"):
        direct.direct("demo", f"{wheel.url}#sha256={'a' * 64}")
    with pytest.raises(InputError, match=r"demo-2\.0-py3-none-any\.whl cannot be read"):
        direct.direct("demo", (tmp_path / "demo-2.0-py3-none-any.whl").as_uri())


def test_an_archive_of_a_tree(server, direct_of):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        text = "[project]\nname = 'Far'\nversion = '3'\ndependencies = ['lib']\n"
        zipped.writestr("far-main/pyproject.toml", text)
    server.raw["/o/archive/main.zip"] = ("application/zip", archive.getvalue())
    url, direct = f"{server.base}/o/archive/main.zip", direct_of()
    found = direct.direct("", url)
    digest = hashlib.sha256(archive.getvalue()).hexdigest()
    assert (found.name, found.filename, found.sha256) == ("far", "far-3.zip", digest)
    assert direct.dependencies(found) == (Requirement(name="lib"),)
    with pytest.raises(InputError, match="the project there is Far"):
        direct_of().direct("near", url)


def test_what_a_url_cannot_be(server, direct_of):
    file = server.add("demo", "1.0")
    url = f"{server.base}/files/{file.filename}"
    with pytest.raises(InputError, match="the file belongs to demo"):
        direct_of().direct("other", url)
    with pytest.raises(InputError, match="names no wheel"):
        direct_of().direct("demo", f"{server.base}/files/demo.whl")
    with pytest.raises(OfflineError, match="has no #sha256="):
        direct_of(offline=True).direct("demo", url)
    with pytest.raises(PackageIndexError, match="answered with status 404"):
        direct_of().direct("demo", f"{server.base}/files/demo-9-py3-none-any.whl")
