"""The path of a command through the packages: api calls the stages, and no stage calls back."""

import json
import sys
from collections import defaultdict
from pathlib import Path

import forked
import gpuenv
from gpuenv.cli import main
from test_cli import command_environment, import_what_commands_use
from test_layering import LEVEL

PACKAGE = f"{Path(gpuenv.__file__).parent}/"
HOST = ["--gpu", "none", "--python", f"{sys.version_info[0]}.{sys.version_info[1]}"]
# The packages below these (model, requirements, compat and others) serve all stages.
STAGES = ("detect", "index", "resolve", "lock", "install", "verify", "render", "api")
# Functions that a caller passes down, and where: progress, and what ends an installation.
CALLBACKS = {
    ("install", "cli", "print_step"),
    ("install", "api", "prove_and_write"),
    ("api", "cli", "prove"),
    ("api", "cli", "print_paths"),
    ("verify", "api", "<lambda>"),
}


def package_of(frame):
    """Return the package of a frame or of its nearest caller in gpuenv; None if there is none."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return Path(frame.f_code.co_filename[len(PACKAGE) :]).parts[0].removesuffix(".py")
        frame = frame.f_back
    return None


def traced(arguments, result):
    """Return an entry point that writes the calls between packages to `result` as JSON."""
    calls = set()

    def note(frame, event, _argument):
        name = frame.f_code.co_name
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE) and name != "<module>":
            caller, called = package_of(frame.f_back), package_of(frame)
            if caller is not None and called is not None and caller != called:
                calls.add((caller, called, name))

    def enter():
        sys.setprofile(note)
        status = main(arguments)
        sys.setprofile(None)
        result.write_text(json.dumps([status, sorted(calls)]))

    return enter


def calls_of(arguments, folder):
    """Run a command; return (caller's package, called package, function) of its calls."""
    import_what_commands_use()
    result = folder / "calls.json"
    environment = command_environment(folder, {})
    process = forked.run(traced(arguments, result), ["gpuenv"], folder, environment)
    status, calls = json.loads(result.read_text())
    assert status == 0, process.stderr
    return {(caller, called, name) for caller, called, name in calls}


def test_a_command_enters_each_stage_from_at_most_two_packages(folder, server):
    server.add("alpha", "1.0", ["beta"])
    server.add("beta", "1.0")
    index = ["--index-url", server.url]
    installed = calls_of(["install", "alpha", "--target", "env", "-y", *HOST, *index], folder)
    verified = calls_of(["verify", "--target", "env", "--no-device"], folder)
    for calls, stages in ((installed, STAGES), (verified, ("detect", "lock", "verify", "api"))):
        callers = defaultdict(set)
        for caller, called, name in calls:
            if LEVEL[called] < LEVEL[caller]:
                callers[called].add(caller)
            else:
                assert (caller, called, name) in CALLBACKS
        entered = {stage: callers[stage] for stage in STAGES if callers[stage]}
        assert entered.keys() >= set(stages)
        assert all(len(packages) <= 2 for packages in entered.values()), entered
