"""pip and uv resolve the same universes from a loopback index: the pins are the same.

Where they are not, the case says why under "pip" or "uv".
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from packaging.version import Version
from uv import find_uv_bin

from conftest import MadeOnce
from examples import examples
from gpuenv.errors import NoSolutionError
from index_server import IndexServer
from test_resolution import CASES, packages_at, solved, versions
from test_resolution_laws import faults
from universe import rows, serve

# pip resolves all cases in one process: starting it takes longer than what it does.
DRIVER = """
import json, sys
from pip._internal.cli.main import main
for job in json.load(open(sys.argv[1])):
    try:
        status = main(job["arguments"])
    except SystemExit as end:
        status = end.code
    print(json.dumps({"id": job["id"], "status": status}), file=sys.stderr)
"""
TODAY = [case for case in CASES if "target" not in case]
CHUNK = 45  # cases
ServerOf = Callable[[dict[str, Any]], IndexServer]
PipPins = Callable[[dict[str, Any]], dict[str, str] | None]


@pytest.fixture(scope="module")
def server_of() -> Iterator[ServerOf]:
    """Returns a loopback index with the universe of a case, one for each universe."""
    with ExitStack() as stack:
        found: dict[str, IndexServer] = {}

        def of(case: dict[str, Any]) -> IndexServer:
            key = json.dumps(case["packages"])
            if key not in found:
                server = found[key] = stack.enter_context(IndexServer())
                serve(server, packages_at(case, f"{server.base}/files/"))
            return found[key]

        yield of


def put(case: dict[str, Any], server: IndexServer, folder: Path) -> list[str]:
    """Writes the requirements and constraints of a case; -r FILE -c FILE."""
    base = f"{server.base}/files/"
    made = [row.made() for row in rows(packages_at(case, base))] if "hashes" in case else []
    digests = {file.filename: hashlib.sha256(file.data).hexdigest() for file in made}
    lines = []
    for text in case["requires"]:
        name = text.partition("=")[0]
        hashes = [f"--hash=sha256:{digests[one]}" for one in case.get("hashes", {}).get(name, ())]
        lines.append(" ".join([text.replace("{base}", base), *hashes]))
    folder.mkdir()
    (folder / "r.txt").write_text("\n".join(lines))
    (folder / "c.txt").write_text(
        "\n".join(text.replace("{base}", base) for text in case.get("constraints", ()))
    )
    return ["-r", str(folder / "r.txt"), "-c", str(folder / "c.txt")]


@pytest.fixture(scope="module")
def by_pip(request: pytest.FixtureRequest, server_of: ServerOf, made_once: MadeOnce) -> PipPins:
    """The pins of a case, None where pip refuses.

    One process resolves CHUNK of the cases that run, for all workers.
    """
    running = {item.name for item in request.session.items}
    cases = [case for case in TODAY if f"test_pip_resolves_the_same[{case['id']}]" in running]

    def pins_of(case: dict[str, Any]) -> dict[str, str] | None:
        number = cases.index(case) // CHUNK
        chunk = cases[number * CHUNK : (number + 1) * CHUNK]

        def ask(folder: Path) -> None:
            found = ask_pip(chunk, [server_of(one) for one in chunk], folder)
            (folder / "pins.json").write_text(json.dumps(found))

        answers = json.loads((made_once(f"pip-{number}", ask) / "pins.json").read_text())
        pins_of_case: dict[str, str] | None = answers[case["id"]]
        return pins_of_case

    return pins_of


def ask_pip(
    cases: Sequence[dict[str, Any]], servers: Sequence[IndexServer], root: Path
) -> dict[str, dict[str, str] | None]:
    """{case: its pins}, None where pip refuses."""
    jobs = []
    for number, (case, server) in enumerate(zip(cases, servers, strict=True)):
        folder = root / str(number)
        arguments = [
            "install",
            "--isolated",
            "--dry-run",
            "--ignore-installed",
            "--no-cache-dir",
            "--quiet",
            "--quiet",
        ]
        arguments += [
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
            "--index-url",
            server.url,
        ]
        arguments += [*put(case, server, folder), "--report", str(folder / "report.json")]
        for name in case.get("no_build", ()):
            arguments += ["--only-binary", name]
        arguments += ["--pre"] if case.get("pre") else []
        jobs.append(
            {"id": case["id"], "arguments": arguments, "report": str(folder / "report.json")}
        )
    (root / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, "-W", "ignore", "-c", DRIVER, str(root / "jobs.json")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"}
    )
    told = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"id"')]
    assert [one["id"] for one in told] == [job["id"] for job in jobs], done.stderr[-2000:]
    found: dict[str, dict[str, str] | None] = {}
    for job, one in zip(jobs, told, strict=True):
        report = Path(job["report"])
        assert (one["status"] == 0) == report.exists()
        found[job["id"]] = pins(json.loads(report.read_text())) if report.exists() else None
    return found


def pins(report: dict[str, Any]) -> dict[str, str]:
    found = [row["metadata"] for row in report["install"]]
    return {
        row["name"].lower().replace(".", "-").replace("_", "-"): row["version"] for row in found
    }


@pytest.mark.parametrize("case", TODAY, ids=[case["id"] for case in TODAY])
def test_pip_resolves_the_same(case: dict[str, Any], by_pip: PipPins) -> None:
    found = by_pip(case)
    if "pip" in case:
        assert found != case.get("pins")  # a difference that is settled, and still there
        return
    assert found == case.get("pins")


# ---- pip, on universes made by chance -----------------------------------------------------------

MADE = examples(40)
RANGES = [
    "",
    "",
    ">=1.1",
    "<2",
    "==1.0",
    "!=2.0",
    "~=1.0",
    ">=2,<4",
    "==2.*",
    ">2",
    "<=1.1",
    ">=1.0",
    ">=2",
]


def made(random: Random) -> dict[str, Any]:
    """A universe and a request. No release asks for its own package: pip goes in circles there."""
    names = "abcdef"[: random.randint(3, 6)]

    def need(others: Sequence[str]) -> str:
        return (
            random.choice(others) + random.choice(["", "", "", "", "[x]"]) + random.choice(RANGES)
        )

    packages = {
        name: {
            version: {
                "requires": [
                    need([other for other in names if other != name])
                    + random.choice(["", "", ' ; extra == "x"'])
                    for _ in range(random.choice([0, 0, 1, 1, 2, 3]))
                ],
                **({"yanked": True} if random.random() < 0.08 else {}),
            }
            for version in sorted(
                random.sample(["1.0", "1.1", "2.0", "2.1a1", "3.0"], random.randint(1, 5))
            )
        }
        for name in names
    }
    return {
        "packages": packages,
        "requires": sorted({need(names) for _ in range(random.randint(1, 3))}),
    }


def test_pip_resolves_what_is_made_by_chance_the_same(tmp_path: Path) -> None:
    random = Random(20)  # noqa: S311  no secret
    cases = [{"id": str(number), **made(random)} for number in range(MADE)]
    with ExitStack() as stack:
        servers = [stack.enter_context(IndexServer()) for _ in cases]
        for case, server in zip(cases, servers, strict=True):
            serve(server, case["packages"])
        found = ask_pip(cases, servers, tmp_path)
    mine = {case["id"]: ours(case) for case in cases}
    different = [case for case in cases if found[case["id"]] != mine[case["id"]]]
    # Which of two packages gives way is told by the order of the choices, which no rule fixes.
    assert len(different) <= MADE / 40
    for case in different:
        theirs, own = found[case["id"]], mine[case["id"]]
        assert theirs is not None and own is not None
        assert faults(case["packages"], own, case["requires"], []) == []
        assert any(Version(own[name]) > Version(theirs[name]) for name in set(own) & set(theirs))
    assert sum(one is not None for one in found.values()) > MADE / 4


def ours(case: dict[str, Any]) -> dict[str, str] | None:
    try:
        return versions(solved(case))
    except NoSolutionError:
        return None


# ---- uv ------------------------------------------------------------------------------------------

PLATFORMS = {"linux-x86_64": "x86_64-manylinux", "linux-aarch64": "aarch64-manylinux"}


def by_uv(case: dict[str, Any], server: IndexServer, folder: Path) -> dict[str, str] | None:
    """The pins of `uv pip compile`, None where it refuses."""
    target = case.get("target", {})
    arguments = put(case, server, folder)[1:]
    arguments += [
        "--no-header",
        "--no-annotate",
        "--no-cache",
        "--no-config",
        "--quiet",
        "--no-strip-markers",
    ]
    arguments += ["--no-strip-extras", "--index-url", server.url, "--resolution", "highest"]
    if target:
        platform, glibc = (
            target.get("platform", "linux-x86_64"),
            target.get("glibc", "2.28").replace(".", "_"),
        )
        named = (
            "x86_64-pc-windows-msvc"
            if platform == "win-amd64"
            else f"{PLATFORMS[platform]}_{glibc}"
        )
        arguments += ["--python-version", target["python"], "--python-platform", named]
    for name in case.get("no_build", ()):
        arguments += ["--only-binary", name]
    arguments += ["--prerelease", "allow" if case.get("pre") else "if-necessary-or-explicit"]
    command = [
        find_uv_bin(),
        "pip",
        "compile",
        *arguments,
        "--python",
        sys.executable,
        "--no-python-downloads",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    lines = [
        line.partition(" ;")[0].strip() for line in done.stdout.splitlines() if line[:1].isalnum()
    ]
    found = [line.split("==") for line in lines if "==" in line]
    pinned = {row[0].partition("[")[0]: row[1] for row in found}
    for line in (line for line in lines if " @ " in line):
        name, _, url = line.partition(" @ ")
        pinned[name.partition("[")[0]] = (
            url.rpartition("/")[2].split("-")[1].removesuffix(".tar.gz")
        )
    return pinned


# Each case is a process: all with a target, which pip cannot express whole, and a third of the
# others.
FOR_UV = [
    case for number, case in enumerate(CASES) if "target" in case or "uv" in case or number % 3 == 0
]


@pytest.mark.parametrize("case", FOR_UV, ids=[case["id"] for case in FOR_UV])
def test_uv_resolves_the_same(case: dict[str, Any], server_of: ServerOf, tmp_path: Path) -> None:
    found = by_uv(case, server_of(case), tmp_path / "case")
    if "uv" in case:
        assert found != case.get("pins")
        return
    assert found == case.get("pins")
