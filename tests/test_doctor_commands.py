"""gpuenv parses the commands in the doctor's answers; those of other programs exist."""

import re
import shlex
import shutil
import subprocess

from packaging.requirements import InvalidRequirement, Requirement

from gpuenv import cli
from gpuenv.compat.data import load
from gpuenv.doctor import catalog
from gpuenv.doctor.catalog import advice_rows, areas, causes
from tables import data_file, together
from test_doctor_advice import CASES, examined

TABLE = data_file("doctor_commands.toml")
PROGRAMS = TABLE["programs"]
PLACEHOLDERS = {"LOG": "train.log", "DIR": "env"}


def texts():
    """All that an answer may say: the data, and the sentences that facts add to it."""
    for cause in causes().values():
        yield from (cause.fix, *cause.proves, *cause.refutes)
    yield from (area.fix for area in areas().values())
    yield from (row.says for row in advice_rows())
    for case in CASES["case"]:
        for verdict in examined(case["log"]).diagnosis.verdicts:
            yield from verdict.advice


def commands():
    quoted = {command for text in texts() for command in re.findall("`([^`]+)`", text)}
    shown = {test.command for test in catalog.tests().values()}
    yield from sorted((quoted | shown) - {"", *TABLE["names"]})


def simple_commands(command):
    """The commands of a pipeline, without what is set or run before them."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words = []
    for word in [*lexer, "|"]:
        if not set(word) <= set("|;&"):
            words.append(word)
            continue
        while words and (words[0] == "sudo" or "=" in words[0]):
            words = words[1:]
        if words:
            yield words
        words = []


def is_requirement(command):
    """Return whether a word is a requirement that a known release meets."""
    try:
        requirement = Requirement(command)
    except InvalidRequirement:
        return False
    if not requirement.specifier:
        return False
    versions = set(load().known_versions(requirement.name, "linux-x86_64"))
    versions |= {release.version for release in load().releases(requirement.name, "linux-x86_64")}
    assert not versions or any(map(requirement.specifier.contains, versions)), command
    return True


def parsed_by_gpuenv(words):
    words = [PLACEHOLDERS.get(word, word) for word in words]
    for given in (words, [*words, "python"]):  # `gpuenv run` stands for itself and a program
        try:
            cli.parse_arguments(given)
        except SystemExit:
            continue
        return True
    return False


@together(commands())
def test_a_command_of_an_answer_can_be_typed(command):
    if is_requirement(command):
        return
    for program, *words in simple_commands(command):
        if program == "gpuenv":
            assert parsed_by_gpuenv(words)
            continue
        options = {word.partition("=")[0] for word in words if word.startswith("-")}
        if program == "ls":
            options = {f"-{letter}" for word in options for letter in word[1:]}
        if program == "env":  # what follows is another command
            options = {word for word in options if word == "-u"}
        assert options <= set(PROGRAMS[program].get("options", ()))
        for word in words if program == "pip" else ():
            if re.search("[<>=]=?[0-9]", word) and not word.startswith("-"):
                Requirement(word)


@together([(name, row) for name, row in PROGRAMS.items() if "help" in row])
def test_the_programs_that_are_installed_have_these_options(row):
    name, program = row
    words = shlex.split(program["help"])
    if shutil.which(words[0]) is None or (
        name in ("pip", "python") and not shutil.which("python3")
    ):
        return
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    shown = done.stdout + done.stderr
    if shown.count("\n") < 3:  # a program that does not work here
        return
    for option in program["options"]:
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", shown), option


def test_each_program_of_the_table_is_used():
    used = {
        words[0] for command in commands() if not is_requirement(command)
        for words in simple_commands(command)
    }  # fmt: skip
    assert used - {"gpuenv"} == set(PROGRAMS)
