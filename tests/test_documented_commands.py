"""Every command of README.md, of the docs and of the help, as typed.

Each runs as far as it can on any machine. A command that installs gigabytes, needs conda or a
cluster, or asks an index is only parsed.
"""

import re
import shlex
import shutil
from typing import NamedTuple

import pytest

from gpuenv.cli import all_commands, load_command, parse_arguments
from small_wheels import make_wheel, write_files
from tables import ROOT, data_file, each, together
from test_cli import run

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A command in a block: indented or fenced, with a comment behind it.
COMMAND = re.compile(r"^(?:\$ )?(?:\S+/bin/)?(gpuenv [a-z].*?)(?:\s+#.*)?$")
# Why a command is parsed and not run, by the words that it has.
TABLES = data_file("tables/documented_commands.json")
PARSED_ONLY = TABLES["parsed_only"]
H100 = {"GPUENV_GPU": "H100", "GPUENV_DRIVER": "580.65.06", "GPUENV_OFFLINE": "1"}
CPU = {"GPUENV_GPU": "none"}


class Documented(NamedTuple):
    """A command, and the line that has it."""

    place: str
    text: str

    def words(self):
        """Return the arguments of gpuenv, without what the shell takes."""
        text = re.split(r" [|>]+ | 2>&1 |\)\"$", self.text)[0]
        return shlex.split(text)[1:]


def documented():
    found = []
    for page in PAGES:
        in_fence = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if line.startswith("```"):
                in_fence = not in_fence
            elif in_fence or line.startswith("    "):
                match = COMMAND.match(line.strip())
                if match and " [" not in match[1]:  # not the usage of a command
                    found.append(Documented(f"{page.name}:{number}", match[1]))
    return found


ALL = documented()
EXAMPLES = [
    Documented(f"help {name}", example[example.index("gpuenv ") :])
    for name in all_commands()
    for example, _ in load_command(name).EXAMPLES
]


def in_hooks():
    """Return the commands of the files for images, clusters and CI."""
    found = []
    for path in sorted((ROOT / "docs" / "hooks").iterdir()):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.search(r"(?:^|[\s/])(gpuenv (?:sync|verify|lock|solve|run) .*)$", line)
            if match and not line.lstrip().startswith("#"):
                found.append(Documented(f"{path.name}:{number}", match[1]))
    return found


def reason_not_to_run(command):
    words = set(command.words())
    return next((why for word, why in PARSED_ONLY.items() if word in words), "")


# Each command once, however many pages have it.
RUN = list({command.text: command for command in ALL if not reason_not_to_run(command)}.values())


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with all that the commands name: a lock, an environment, a project, a log."""
    folder = tmp_path_factory.mktemp("documented") / "work"
    (folder / "wheels").mkdir(parents=True)
    for version in ("1.0", "2.0"):
        make_wheel(folder / "wheels", "alpha", version)
    write_files(folder, TABLES["files"], {"CHANNEL": (folder / "channel").as_uri()})
    links = "--no-index --find-links wheels --gpu none"
    for requirement in ("alpha<2", "alpha"):
        run(f"solve {requirement} {links}", folder)
        sync = "sync pylock.toml --target env -y --gpu none"
        run(f"{sync} --find-links wheels", folder)
    run("lock", folder)
    for profile in ("h100", "v100"):
        shutil.copy(folder / "pylock.toml", folder / f"pylock.{profile}.toml")
    (folder / ".venv").symlink_to("env")
    described = "detect --gpu H100 --driver 580.65.06 -o"
    for name in ("ada.json", "grace.json", "host.json"):
        run(f"{described} {name}", folder)
    return folder


def environment(words):
    """Return variables that describe the host, which the page has and the test does not."""
    if "--project" in words:
        return {**CPU, "GPUENV_FIND_LINKS": "wheels"}
    if words[0] in ("solve", "explain", "env") and "--gpu" not in words:
        return H100
    host = {} if "ada.json" in words else CPU
    if words[0] in ("sync", "download"):
        return {**host, "GPUENV_FIND_LINKS": "wheels"}
    if words[0] == "init":
        return host
    return {}


def expected(words):
    """Return the exit statuses that the page describes."""
    if words[0] == "explain":
        return {0, 3}
    if words[0] == "doctor" or "--strict" in words:
        return {0, 1}
    return {0}


@together([*ALL, *EXAMPLES, *in_hooks()])
def test_a_documented_command_is_parsed(command):
    arguments = parse_arguments(command.words())
    assert callable(arguments.run)


@each("command", RUN, ids=lambda command: f"{command.place} {command.text}")
def test_a_documented_command_runs(command, prepared, tmp_path):
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder, symlinks=True)
    words = command.words()
    if words[:2] == ["init"]:
        (folder / "pyproject.toml").unlink()
    variables = environment(words)
    if words[0] in ("verify", "run", "doctor") and "--target" not in words:
        variables = {**variables, "VIRTUAL_ENV": str(folder / "env")}
    if words[0] == "why":
        words[1] = "alpha"  # the lock of the test has no cuDNN
    done = run(words, folder, status=None, **variables)
    assert done.returncode in expected(words), done.output
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr


def test_most_commands_run():
    texts = {command.text for command in ALL}
    assert len(texts) >= 100 and len(RUN) >= 0.5 * len(texts)
