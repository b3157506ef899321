"""The distribution gpuenv-variant-provider, with a stand-in for NVML."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from native_build import build, nvml_script

CASES = tomllib.loads((Path(__file__).parent / "data" / "variant_provider.toml").read_text())["case"]
PROVIDER = Path(__file__).parent.parent / "variant_provider"
# What an installer does: load the object that plugin-api names, and call its methods.
# The stand-in reads its script once, so each case is a process of its own.
CODE = """
import json, os, sys
from gpuenv_variant_provider import NvidiaProvider

def answer():
    methods = (NvidiaProvider.get_all_configs, NvidiaProvider.get_supported_configs)
    return [{one.name: [one.values, one.multi_value] for one in method()} for method in methods]

answers = []
for variables in json.load(sys.stdin):
    reader, writer = os.pipe()
    if not os.fork():
        os.environ.update(variables)
        with open(writer, "w") as file:
            json.dump(answer(), file)
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        answers.append(json.load(file))
    os.wait()
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """{name of a case: the answers}, of one process with a driver and of one without."""
    folder = tmp_path_factory.mktemp("nvml")
    nvml = build("nvml_stub.c", "libnvidia-ml.so.1", folder).parent
    with_driver = [case for case in CASES if "gpus" in case]
    without = [case for case in CASES if "gpus" not in case]
    found: dict[str, Any] = {}
    for cases, libraries in ((with_driver, str(nvml)), (without, "")):
        variables = []
        for number, case in enumerate(cases):
            script = folder / f"{number}.txt"
            script.write_text(nvml_script(described(case)))
            variables.append({"NVML_STUB": str(script), **case.get("env", {})})
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
        environment |= {"PYTHONPATH": str(PROVIDER), "LD_LIBRARY_PATH": libraries}
        process = subprocess.run(
            [sys.executable, "-S", "-c", CODE],
            env=environment,
            input=json.dumps(variables),
            capture_output=True,
            text=True,
            check=True,
        )
        names = [case["name"] for case in cases]
        found.update(zip(names, json.loads(process.stdout), strict=True))
    return found


def described(case: dict[str, Any]) -> dict[str, Any]:
    gpus = []
    for capability, uuid, *instances in case.get("gpus", ()):
        gpu: dict[str, Any] = {"name": "GPU", "cc": capability, "uuid": uuid}
        if instances:
            gpu["mig"] = [
                {"name": "MIG", "uuid": one, "gi": 1, "ci": number}
                for number, one in enumerate(instances)
            ]
        gpus.append(gpu)
    return {"cuda": case.get("cuda", 0), "gpus": gpus}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_all_visible_devices_run(case: dict[str, Any], answers: dict[str, Any]) -> None:
    known, supported = answers[case["name"]]
    if "sm" not in case:
        assert supported == {}
        return
    assert list(supported) == ["cuda_version_lower_bound", "cuda_version_upper_bound", "sm_arch"]
    for name, (values, multi_value) in supported.items():
        assert set(values) <= set(known[name][0]) and multi_value == (name == "sm_arch")
    lower, upper, sm = (values for values, _ in supported.values())
    assert lower[: len(case["lower"])] == case["lower"] and "11" in lower
    assert upper[:2] == ["15.20", "15.19"] and not set(lower) & set(upper)
    assert sm[: len(case["sm"])] == case["sm"]
    assert set(case.get("has", ())) <= set(sm) and not set(case.get("lacks", ())) & set(sm)


def test_a_variable_of_another_form_is_named() -> None:
    variables = {"NV_VARIANT_PROVIDER_FORCE_SM_ARCH": "hopper", "PYTHONPATH": str(PROVIDER)}
    code = "from gpuenv_variant_provider import NvidiaProvider as p; p.get_supported_configs()"
    command = [sys.executable, "-S", "-c", code]
    process = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "NV_VARIANT_PROVIDER_FORCE_SM_ARCH has 'hopper', which is not of the form X.Y" in process.stderr


def test_the_distribution_needs_nothing_and_names_its_provider() -> None:
    project = tomllib.loads((PROVIDER / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []
    (group,) = project["entry-points"].values()
    module, _, name = group["nvidia"].partition(":")
    entry = importlib.metadata.EntryPoint("nvidia", f"{module}:{name}", "variant_plugins")
    sys.path.insert(0, str(PROVIDER))
    try:
        provider = entry.load()
    finally:
        sys.path.remove(str(PROVIDER))
    assert provider.namespace == "nvidia" and callable(provider.get_supported_configs)
