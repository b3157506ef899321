"""Requests in files and by URL over a live index on loopback: real processes and installs."""

import hashlib
import shlex
import sys
import tomllib

import small_wheels
from index_server import File, IndexServer, make_wheel
from processes import run_program
from tables import HERE, data_file, each, read_data
from test_cli import contents, run

TABLES = data_file("tables/asking.json")

CPU = f"--gpu none --python {HERE}"
NOWHERE = "http://127.0.0.1:1/simple"


def fill(server):
    server.add("alpha", "1.0", ["beta>=1"])
    server.add("alpha", "2.0", ["beta>=2", "extra-one ; extra == 'x'"])
    server.add("beta", "1.0")
    server.add("beta", "2.0")
    server.add("beta", "2.5")
    server.add("extra-one", "1.0")
    server.add_sdist("sources", "1.0", ["beta<2.5"])
    server.add_sdist("more-sources", "2.0", ["sources"])
    server.add_sdist("dynamic", "1.0", dynamic=["Requires-Dist"])


def lock_of(folder):
    return read_data(folder / "pylock.toml")


def pins(folder):
    return {package["name"]: package["version"] for package in lock_of(folder)["packages"]}


def digest(file):
    return hashlib.sha256(file.data).hexdigest()


def file_of(server, filename):
    return next(
        file for files in server.projects.values() for file in files if file.filename == filename
    )


def test_requirements_and_constraints(folder, server, command):
    (folder / "sub").mkdir()
    (folder / "sub" / "r.txt").write_text("alpha[x]  # what we need\n-c limits.txt\n")
    (folder / "sub" / "limits.txt").write_text("beta<2.5\nnothing==1\n")
    fill(server)
    command("solve -r sub/r.txt extra-one")
    assert pins(folder) == {"alpha": "2.0", "beta": "2.0", "extra-one": "1.0"}
    tool = lock_of(folder)["tool"]["gpuenv"]
    assert tool["requirements"] == ["extra-one", "alpha[x]"]
    assert tool["constraints"] == ["beta<2.5", "nothing==1"]
    command("sync pylock.toml --target env --no-verify")


def test_an_index_named_in_a_file(folder, server, command):
    fill(server)
    (folder / "r.txt").write_text("--index-url ${INDEX}/simple\nbeta\n")
    run(f"solve -r r.txt {CPU}", folder, INDEX=server.base)
    assert lock_of(folder)["packages"][0]["index"] == server.url
    command("solve -r r.txt", INDEX=server.base)
    clash = command("solve -r r.txt", INDEX="http://127.0.0.1:1", status=2)
    assert "r.txt:1: --index-url differs from the one of the command line" in clash.stderr


@each("lines arguments says", TABLES["mistakes_are_one_line"])
def test_mistakes_are_one_line(folder, lines, arguments, says):
    (folder / "r.txt").write_text("\n".join(lines))
    before = contents(folder)
    done = run(f"solve {arguments} {CPU} --index-url {NOWHERE}", folder, status=2)
    done.says_in_one_line(says)
    assert contents(folder) == before


# ---- projects ------------------------------------------------------------------------------------

PROJECT = """
[project]
name = "my-app"
requires-python = ">=3.9"
dependencies = ["beta<2.5"]
[project.optional-dependencies]
more = ["alpha"]
all = ["my-app[more]"]
[dependency-groups]
test = ["extra-one"]
"""


@each("arguments expected", TABLES["projects"])
def test_projects(folder, arguments, expected, server, command):
    (folder / "pyproject.toml").write_text(PROJECT)
    fill(server)
    command(f"solve {' '.join(arguments)}")
    assert pins(folder) == expected


def test_a_project_for_another_python(folder):
    (folder / "pyproject.toml").write_text(PROJECT.replace(">=3.9", ">=3.99"))
    done = run(f"solve {CPU} --index-url {NOWHERE}", folder, status=2)
    assert len(done.stderr.splitlines()) == 1
    assert (
        f"./pyproject.toml: the project needs Python >=3.99, and the target has Python {HERE}"
        in done.stderr
    )


# ---- hashes --------------------------------------------------------------------------------------


def test_hashes(folder, server, command):
    fill(server)
    alpha, beta = (
        file_of(server, f"{name}-py3-none-any.whl") for name in ("alpha-2.0", "beta-2.0")
    )
    line = f"alpha==2.0 --hash=sha256:{digest(alpha)}"
    (folder / "r.txt").write_text(f"{line}\nbeta==2.0 \\\n  --hash=sha256:{digest(beta)}\n")
    done = command("solve -r r.txt")
    assert pins(folder) == {"alpha": "2.0", "beta": "2.0"}
    before = contents(folder)
    (folder / "r.txt").write_text(line)
    done = command("solve -r r.txt", status=2)
    assert "hash-checking mode: the requirements have no hash of beta 2.5" in done.stderr
    (folder / "r.txt").write_text(f"alpha==2.0 --hash=sha256:{'0' * 64}\n")
    done = command("solve -r r.txt --json", status=3)
    assert {reason["code"] for reason in done.document["reasons"]} >= {"hash"}
    assert lock_of(folder)["packages"] == tomllib.loads(before["pylock.toml"].decode())["packages"]


# ---- source distributions ------------------------------------------------------------------------


@each("flags", ["--no-build", "--no-build-package Sources", "--only-binary :all:"])
def test_builds_that_are_not_allowed(folder, server, command, flags):
    fill(server)
    done = command(f"solve sources --json {flags}", status=3)
    (reason,) = done.document["reasons"]
    assert (reason["code"], reason["subject"]) == ("only-sdist", "sources 1.0")
    assert "leave out --no-build: gives sources 1.0" in done.stderr
    assert contents(folder) == {}


@each("installer", ["uv", "pip"])
def test_a_source_distribution_that_is_allowed(tmp_path, folder, installer, server, command):
    fill(server)
    command("solve sources --allow-sdist Sources")  # without effect
    assert pins(folder) == {"beta": "2.0", "sources": "1.0"}
    lock = lock_of(folder)
    (package,) = [one for one in lock["packages"] if one["name"] == "sources"]
    assert package["sdist"]["name"] == "sources-1.0.tar.gz"
    assert package["sdist"]["hashes"]["sha256"] == digest(file_of(server, "sources-1.0.tar.gz"))
    assert "wheels" not in package
    caches = {"UV_CACHE_DIR": str(tmp_path / "uv"), "PIP_NO_CACHE_DIR": "1"}
    caches["UV_HTTP_RETRIES"] = "0"  # uv waits between its attempts at a bad file
    sync = f"sync pylock.toml --no-verify --installer {installer} --target"
    command(f"{sync} env", **caches)
    built = [folder / "env" / "bin" / "python", "-c", "import sources; print(sources.built)"]
    assert run_program(built).stdout == "True\n"
    other = make_wheel("beta", "2.0", padding=9)[1]
    server.projects["sources"] = [
        File("sources-1.0.tar.gz", other)
    ]  # another file under the name that was locked
    caches["GPUENV_CACHE_DIR"] = str(tmp_path / "empty")  # without the wheel that was built
    command(f"{sync} env2", **caches, status=4)
    assert not (folder / "env2").exists()


@each("options", TABLES["a_release_with_bad_metadata_is_passed_over"])
@each("metadata", ["hashed", None])
def test_a_release_with_bad_metadata_is_passed_over(folder, options, metadata, server, command):
    server.metadata = metadata
    server.add("demo", "1.0")
    server.add("demo", "2.0", **options)
    command("solve demo")
    assert pins(folder) == {"demo": "1.0"}
    done = command("solve demo>=2 --json", status=3)
    assert {reason["code"] for reason in done.document["reasons"]} >= {"bad-metadata"}
    assert "demo-2.0-py3-none-any.whl" in done.stderr


# ---- files at URLs -------------------------------------------------------------------------------


@each("installer", ["uv", "pip"])
def test_a_wheel_by_its_url(folder, installer, server, command):
    with IndexServer() as other:
        fill(server)
        file = other.add("alpha", "1.5+mine", ["beta<2"])
        url = f"{other.base}/files/{file.filename.replace('+', '%2B')}"
        command(f"solve 'alpha @ {url}#sha256={digest(file)}' alpha>=1")
        assert pins(folder) == {"alpha": "1.5+mine", "beta": "1.0"}
        package = lock_of(folder)["packages"][0]
        assert package["archive"] == {"url": url, "hashes": {"sha256": digest(file)}}
        assert "index" not in package
        assert "/simple/alpha/" not in server.paths() + other.paths()
        sync = f"sync pylock.toml --target env --no-verify --installer {installer}"
        command(f"{sync} --extra-index-url {other.url}")
        (folder / "r.txt").write_text(f"{url}\n")
        command("solve -r r.txt -o pylock.b.toml")
        archive = read_data(folder / "pylock.b.toml")["packages"][0]["archive"]
        assert archive["hashes"]["sha256"] == digest(file)


def test_pip_installs_a_lock_with_a_wheel_by_its_url(folder, server, command):
    fill(server)
    file = file_of(server, "alpha-1.0-py3-none-any.whl")
    command(f"solve 'alpha @ {server.base}/files/{file.filename}'")
    pip = f"{sys.executable} -m pip install --isolated --dry-run --ignore-installed --no-deps"
    files = "--no-index --no-cache-dir --quiet -r pylock.toml --report -"
    rows = run_program(f"{pip} {files}", cwd=folder).document["install"]
    assert {row["metadata"]["name"]: row["metadata"]["version"] for row in rows} == pins(folder)


# ---- one index for each package ------------------------------------------------------------------


def test_what_supplied_each_wheel_is_in_the_lock(folder, server, command):
    """Four indexes: the default, an extra one, a folder and a URL.

    Each also has a newer release of a package that another one supplies.
    """
    (folder / "links").mkdir()
    with IndexServer() as extra, IndexServer() as elsewhere:
        server.add("public", "1.0", ["theirs", "linked", "direct"])
        extra.add("theirs", "1.0")
        for name in ("linked", "direct"):
            extra.add(name, "99.0")
        for name in ("theirs", "linked", "direct"):
            server.add(name, "99.0")
        small_wheels.make_wheel(folder / "links", "linked", "1.0")
        url = f"{elsewhere.base}/files/{elsewhere.add('direct', '1.0').filename}"
        flags = f"--extra-index-url {extra.url} --find-links links"
        command(f"solve public 'direct @ {url}' {flags}")
        packages = {package["name"]: package for package in lock_of(folder)["packages"]}
        assert {package["version"] for package in packages.values()} == {"1.0"}
        assert packages["public"]["index"] == server.url
        assert packages["theirs"]["index"] == extra.url
        assert not {"index"} & {*packages["linked"], *packages["direct"]}
        assert packages["linked"]["wheels"][0]["url"].startswith("file://")
        assert packages["direct"]["archive"]["url"] == url
        assert {"/simple/linked/", "/simple/direct/"}.isdisjoint(extra.paths())
        assert "/simple/theirs/" not in server.paths()


def test_a_framework_index_supplies_the_framework_only(folder):
    """torch's own index has numpy, sympy and more, but they come from the default index."""
    asked = "solve --framework torch==2.13.0+cu126 numpy torchvision --python 3.12"
    run(f"{asked} --gpu V100 --driver 580.65.06 --glibc 2.28", folder)
    indexes = {}
    for package in lock_of(folder)["packages"]:
        indexes.setdefault(package["index"], set()).add(package["name"])
    own = {index: names for index, names in indexes.items() if index.endswith("/whl/cu126")}
    (names,) = own.values()
    assert {"torch", "torchvision"} <= names <= {"torch", "torchvision", "triton"}
    assert len(indexes) == 2


def test_the_proposed_command_names_where_files_without_https_come_from(folder, server, command):
    links = folder / "wheels"
    links.mkdir()
    small_wheels.make_wheel(links, "local-one", "1.0", ["alpha"])
    fill(server)
    done = command("solve local-one --find-links wheels")
    proposed = shlex.split(done.stdout.splitlines()[-1].removeprefix("next: gpuenv "))
    assert proposed == [
        *["sync", "pylock.toml", "--target", ".venv"],
        *["--find-links", "wheels", "--extra-index-url", server.url],
    ]
    run([*proposed[:4], "--gpu", "none"], folder, status=2)
    run([*proposed, "--gpu", "none"], folder)
