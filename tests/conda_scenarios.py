"""The scenarios of data/conda_scenarios.toml: the same steps with gpuenv alone and in a conda."""

import shlex
from itertools import starmap

import conda_channel
from conda_channel import row_of
from small_wheels import make_wheel
from tables import DATA, data_file

DOCUMENT = data_file("conda_scenarios.toml")
SCENARIOS = DOCUMENT["scenario"]
HOST = {
    "GPUENV_GPU": "H100",
    "GPUENV_DRIVER": "570.86.10",
    "GPUENV_GLIBC": "2.35",
    "GPUENV_PLATFORM": "linux-x86_64",
}


def make_channels(folder):
    """Make the two channels, and return what stands for their URLs."""
    packages, other = (starmap(row_of, DOCUMENT[table].items()) for table in ("packages", "other"))
    return {
        "CHANNEL": conda_channel.make(folder / "channel", [*conda_channel.records(), *packages]),
        "OTHER": conda_channel.make(folder / "other", other),
    }


def play(scenario, folder, channels, run, solver=""):
    """Run a scenario in an empty folder; `solver` is that of conda's settings.

    Return what is wrong, "" for nothing.
    """

    def filled(text):
        for name, url in channels.items():
            text = text.replace(name, url)
        return text

    for name, text in scenario.get("files", {}).items():
        whole = (DATA / "pixi_locks" / "7.lock").read_text() if text == "PIXI7" else text
        (folder / name).write_text(filled(whole))
    for wheel in scenario.get("wheels", ()):
        (folder / "wheels").mkdir(exist_ok=True)
        make_wheel(folder / "wheels", *wheel.split())
    settings = filled(scenario.get("settings", ""))
    if solver and "solver:" not in settings:
        settings += f"\nsolver: {solver}"
    (folder / "condarc").write_text(f"add_pip_as_python_dependency: false\n{settings}\n")
    env = {"CONDARC": str(folder / "condarc"), "GPUENV_BACKEND": "conda"}
    if scenario.get("described", True):
        env |= HOST
    if "channels:" not in settings:
        env["GPUENV_CHANNEL"] = channels["CHANNEL"]
    env |= scenario.get("env", {})
    status, printed = 0, ""
    for number, line in enumerate(scenario["run"], 1):
        words = shlex.split(filled(line))
        if words[0] == "solve" and "-o" not in words and "--help" not in words:
            words += ["-o", scenario.get("file", "lock")]
        own = {}
        while "=" in words[0]:
            name, _, own[name] = words.pop(0).partition("=")
        status, printed = run(words, folder, {**env, **own})
        if number < len(scenario["run"]) and status:
            return f"{line}: {status}: {printed}"
    return _wrong(scenario, status, printed, folder / scenario.get("file", "lock"))


def _wrong(scenario, status, printed, file):
    """Return how an outcome differs from what a scenario says."""
    text = file.read_text() if file.exists() else ""
    wrong = [f"status {status}"] * (status != scenario.get("status", 0))
    wrong += [f"says no {one!r}" for one in scenario.get("says", ()) if one not in printed]
    never = (*scenario.get("never", ()), "Traceback", "internal error")
    wrong += [f"says {one!r}" for one in never if one in printed]
    wrong += [f"has no {one!r}" for one in scenario.get("has", ()) if one not in text]
    wrong += [f"has {one!r}" for one in scenario.get("lacks", ()) if one in text]
    return f"{'; '.join(wrong)}: {printed}" if wrong else ""
