"""Source distributions whose metadata only a build tells: solve, sync and download.

Each has its build backend in itself (index_server), so that a build asks no index for anything.
"""

import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path

from index_server import BACKEND
from processes import left_over, run_program, running
from small_wheels import make_wheel
from tables import data_file, each, on_linux
from test_asking import CPU, lock_of, pins
from test_cli import command_environment, contents, run

OLD = {"metadata_version": "2.1"}  # what a build tells is then not known from PKG-INFO


def builds_left(folder):
    """The folders of builds that are still there."""
    place = folder.parent / "cache" / "builds" / "running"
    return os.listdir(place) if place.exists() else []


def built(folder, target="env"):
    python = folder / target / "bin" / "python"
    return run_program([python, "-c", "import sources; print(sources.built)"]).stdout


@each("kind options", [(".tar.gz", OLD), (".zip", {"dynamic": ["Requires-Dist"]})])
def test_from_the_request_to_the_environment(folder, server, command, kind, options):
    server.add("app", "1.0", ["sources"])
    server.add("beta", "1.0")
    server.add_sdist("sources", "2.0", ["beta"], kind=kind, **options)
    done = command("solve app")
    assert "building metadata of sources 2.0: no wheel fits, and it" in done.stderr
    assert pins(folder) == {"app": "1.0", "beta": "1.0", "sources": "2.0"}
    (package,) = [one for one in lock_of(folder)["packages"] if one["name"] == "sources"]
    assert package["sdist"]["name"] == f"sources-2.0{kind}" and "wheels" not in package
    synced = command("sync pylock.toml --target env --no-verify")
    assert built(folder) == "True\n"
    # The backend has no hook for metadata: the wheel that told the metadata is kept.
    assert "building" not in synced.stderr
    asked = len(server.asked)
    assert "building" not in command("solve app --offline").stderr
    assert len(server.asked) == asked and builds_left(folder) == []


def test_where_no_network_is(folder, server, command):
    """A folder of downloads and a bundle have the wheel that was built."""
    server.add_sdist("sources", "2.0", **OLD)
    command("solve sources")
    download = "download pylock.toml -d files"
    command(download)
    wheel = folder / "files" / "sources-2.0-py3-none-any.whl"
    assert sorted(os.listdir(folder / "files")) == ["built.json", wheel.name]
    assert "0 files downloaded, 1 there already" in command(download).stdout
    wheel.unlink()
    assert "1 file downloaded, 0 there already" in command(download).stdout
    command("download pylock.toml --bundle env.pyz")
    asked, sync = len(server.asked), f"sync pylock.toml --no-index --no-verify {CPU}"
    for place, target in (("files", "env"), ("env.pyz", "env2")):
        empty = str(folder / "none")
        run(f"{sync} --target {target} --find-links {place}", folder, GPUENV_CACHE_DIR=empty)
        assert built(folder, target) == "True\n"
    make_wheel(folder / "files", "sources", "2.0")
    done = run(f"{sync} --target env3 --find-links files", folder, status=4)
    assert "wrong hash" in done.stderr
    assert not (folder / "env3").exists() and len(server.asked) == asked


# ---- what cannot be built ------------------------------------------------------------------------

BROKEN = data_file("tables/source_builds.json")["broken"]
BROKEN["another release"] = [
    {"backend": BACKEND.replace('{stem}-py3-none-any.whl"', 'other-1.0-py3-none-any.whl"')},
    "other-1.0-py3-none-any.whl",
]


@each("options says", BROKEN)
def test_one_that_cannot_be_built(folder, options, says, server, command):
    """The refusal names the cause."""
    server.add("sources", "1.0")
    server.add_sdist("sources", "2.0", **OLD, **options)
    done = command("solve sources>=2 --json", status=3)
    assert contents(folder) == {}
    (reason,) = done.document["reasons"]
    assert (reason["code"], reason["subject"]) == ("build-failed", "sources 2.0")
    assert says in f"needs {reason['need']}; {reason['have']}"
    server.add("app", "1.0", ["sources>=2"])
    assert ", for app; found" in command("solve app", status=3).stderr.replace("\n     ", "")
    assert "Traceback" not in done.stderr
    assert builds_left(folder) == []


def test_build_requirements_that_cannot_be_fetched(folder, server, command):
    server.faults["/simple/nowhere/"] = ["drop", "always"]
    options = BROKEN["a requirement that no index has"][0]
    server.add_sdist("sources", "2.0", **OLD, **options)
    done = command("solve sources", status=4, UV_HTTP_RETRIES="0")
    assert "build requirements (nowhere>3) cannot be installed" in done.stderr
    assert contents(folder) == {} and builds_left(folder) == []


def test_a_refusal_builds_for_a_short_time(server, command, monkeypatch):
    monkeypatch.setattr("gpuenv.index.multi_index.FURTHER_BUILDS", 0.0)
    server.add("beta", "1.0")
    server.add_sdist("sources", "2.0", **OLD)
    assert "building" not in command("solve beta==9 sources", status=3).stderr


def test_an_older_release_in_place_of_one_that_cannot_be_built(folder, server, command):
    server.add("sources", "1.0")
    server.add("app", "1.0", ["sources>=2"])
    server.add("app", "0.9", ["sources"])
    server.add_sdist("sources", "2.0", **OLD, **BROKEN["an error"][0])
    warnings = command("solve sources app --json").document["warnings"]
    assert {(one["code"], one["subject"], one["need"]) for one in warnings} == {
        ("newer-not-built", "sources 1.0", "2.0"),
        ("newer-not-built", "app 0.9", "1.0"),
    }


def test_an_archive_that_is_none(folder, server, command):
    server.add("sources", "1.0")
    server.add_file("sources", "sources-2.0.tar.gz", b"not an archive")
    done = command("solve sources")
    assert pins(folder) == {"sources": "1.0"}
    text = done.text
    assert "not the newest release: sources 1.0 (2.0 needs a readable archive" in text


@each("filters", [True, False])
def test_an_archive_that_leads_elsewhere(folder, filters, monkeypatch, server, command):
    """Also where Python has no filter for archives, as before 3.11.4."""
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("sources-2.0/pyproject.toml", "../../../../escaped"):
            member = tarfile.TarInfo(name)
            archive.addfile(member, io.BytesIO())
    server.add_file("sources", "sources-2.0.tar.gz", buffer.getvalue())
    done = command("solve sources", status=3)
    assert "outside the destination" in done.text
    assert not list(folder.parent.rglob("escaped"))


def test_only_some_of_the_releases_that_fail_are_tried(folder, server, command):
    for number in range(1, 8):
        server.add_sdist("sources", f"{number}.0", **OLD, backend="raise ValueError('no')")
    assert len(re.findall("building", command("solve sources", status=3).stderr)) == 3


def test_a_failed_build_leaves_the_environment(folder, server, command):
    marker = folder / "broken"
    backend = f"import os\nif os.path.exists({str(marker)!r}): raise ValueError('broken now')\n"
    hook = "\ndef prepare_metadata_for_build_wheel(folder, settings=None):\n    import os, shutil\n"
    hook += "    os.mkdir(folder + '/sources-2.0.dist-info')\n"
    hook += "    shutil.copy('PKG-INFO', folder + '/sources-2.0.dist-info/METADATA')\n"
    hook += "    return 'sources-2.0.dist-info'\n"
    server.add("app", "1.0", ["sources"])
    server.add_sdist("sources", "2.0", **OLD, backend=backend + BACKEND + hook)
    command("solve app")
    (folder / "env").mkdir()
    marker.touch()
    before = contents(folder)
    done = command("sync pylock.toml --target env --no-verify", status=4)
    assert "sources 2.0, for app, cannot be built" in done.stderr
    assert "raise ValueError('broken now')" in done.stderr  # the end of the output
    assert contents(folder) == before
    marker.unlink()
    command("sync pylock.toml --target env --no-verify")
    assert built(folder) == "True\n"
    assert builds_left(folder) == []


def test_a_build_that_takes_too_long(folder, server, command):
    before = running()
    sleep = "import subprocess; subprocess.Popen(['sleep', '60']).wait()"
    server.add_sdist("sources", "2.0", **OLD, backend=sleep)
    done = command("solve sources", GPUENV_BUILD_TIMEOUT="1", status=3)
    assert "longer than its time limit" in done.text
    done = command("solve sources", GPUENV_BUILD_TIMEOUT="soon", status=2)
    assert "GPUENV_BUILD_TIMEOUT=soon: is no number of seconds" in done.stderr
    assert left_over(before, 5) == [] and builds_left(folder) == []


def test_a_build_gets_no_settings_of_installers(folder, server, command):
    names = "PIP_INDEX_URL", "UV_INDEX_PRIVATE_PASSWORD", "GPUENV_TOKEN", "PYTHONPATH"
    backend = f"import os\nassert not set({names}) & set(os.environ)\nassert os.environ['OWN']\n"
    server.add_sdist("sources", "2.0", **OLD, backend=backend + BACKEND)
    values = dict.fromkeys(names[1:3], "secret") | {"OWN": "1"}
    command("solve sources", **values)


# What has begun -> a file that is there then
BEGUN = {
    "watcher": "cache/builds/running/*",
    "environment": "cache/builds/running/*/environment",
    "backend": "work/backend",
}


@on_linux
@each(
    "begun sent",
    [
        ("watcher", signal.SIGKILL),
        ("environment", signal.SIGKILL),
        ("environment", signal.SIGINT),
        ("backend", signal.SIGKILL),
        ("backend", signal.SIGTERM),
    ],
)
def test_a_killed_build_leaves_nothing(folder, begun, sent, server):
    """`begun` is what has begun when the signal comes; the backend starts a process of its own."""
    marker = folder / "backend"
    backend = f"open({str(marker)!r}, 'w').close()\nimport subprocess\n"
    seconds = f"97.{os.getpid()}"  # of this test only
    backend += f"subprocess.Popen(['sleep', '{seconds}']).wait()"
    server.add_sdist("sources", "2.0", **OLD, backend=backend)
    words = f"-m gpuenv solve sources {CPU} --index-url {server.url}".split()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options = {"cwd": folder, "env": command_environment(folder, {}), **quiet}
    with subprocess.Popen([sys.executable, *words], **options) as process:
        end = time.monotonic() + 60
        while time.monotonic() < end and not any(folder.parent.glob(BEGUN[begun])):
            time.sleep(0.002)
        process.send_signal(sent)
        assert process.wait(30) != 0
    while time.monotonic() < end and (builds_left(folder) or _is_running(seconds)):
        time.sleep(0.02)
    assert builds_left(folder) == [] and not _is_running(seconds)


def _is_running(argument):
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", argument.encode()]:
                return True
    return False


# ---- what may be built ---------------------------------------------------------------------------


def test_wheels_that_are_not_taken(folder, server, command):
    server.add("sources", "2.0")
    server.add_sdist("sources", "1.0", **OLD)
    done = command("solve sources --no-binary Sources")
    assert pins(folder) == {"sources": "1.0"}
    done = command("solve sources>=2 --no-binary :all:", status=3)
    assert "sources>=2 needs a source distribution" in done.text


def test_nothing_is_built_that_is_not_allowed(folder, server, command):
    (folder / "r.txt").write_text("--only-binary sources\napp\n")
    (folder / "pyproject.toml").write_text(
        '[tool.gpuenv]\nno-build = true\nrequirements = ["app"]\npython = "3.12"\n'
        "[tool.gpuenv.profiles.cpu]\ngpu = 'none'\n"
    )
    server.add("sources", "1.0")
    server.add("app", "1.0", ["sources"])
    server.add_sdist("sources", "2.0", **OLD, backend="raise ValueError")
    for flags in ("app --no-build", "-r r.txt"):
        done = command(f"solve {flags}")
        assert "building" not in done.stderr
        assert pins(folder) == {"app": "1.0", "sources": "1.0"}
        text = done.text
        assert "not the newest release: sources 1.0 (2.0 needs a wheel; found only a" in text
    config = (folder / "pyproject.toml").read_text()
    changed = config.replace("no-build", f'index-url = "{server.url}"\nno-build')
    (folder / "pyproject.toml").write_text(changed)
    text = run("lock", folder).text
    assert "not the newest release: sources 1.0" in text
    assert "building" not in command("solve sources>=2 --no-build", status=3).stderr
    lock = (folder / "pylock.cpu.toml").read_text()
    assert 'no-build = [\n    ":all:",\n]' in lock


def test_a_wheel_of_another_machine_is_no_download(folder, server, command):
    tag = BACKEND.replace("py3-none-any", "cp39-cp39-win_amd64")
    server.add_sdist("sources", "2.0", **OLD, backend=tag)
    command("solve sources")
    done = command("download pylock.toml -d files", status=2)
    assert "was built on this machine, and the lock is for another one" in done.stderr
    assert [name for name in os.listdir(folder / "files") if name[0] != "."] == []


def test_a_placeholder_and_a_prerelease_are_no_way_out(folder, server, command):
    """Where every real release fails, older kinds of releases do not take its place."""
    for name, other in (("held", "0.0.0"), ("early", "0.3.1.dev5")):
        server.add(name, other)
        server.add_sdist(name, "1.0", **OLD, backend="raise ValueError('no good')")
        assert "ValueError: no good" in command(f"solve {name}", status=3).stderr
        command(f"solve {name}=={other}")
        assert pins(folder) == {name: other}


def test_the_cache_of_builds_is_cleaned(folder, server, command):
    server.add_sdist("sources", "2.0", **OLD)
    command("solve sources")
    kept = list((folder.parent / "cache" / "builds" / "wheels").rglob("*.whl"))
    assert [path.name for path in kept] == ["sources-2.0-py3-none-any.whl"]
    assert zipfile.is_zipfile(kept[0])
    run("cache clean", folder)
    assert list((folder.parent / "cache").iterdir()) == []
