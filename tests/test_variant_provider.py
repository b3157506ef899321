"""The distribution gpuenv-variant-provider, with a stand-in for NVML."""

import importlib.metadata
import os
import sys

import pytest

from processes import run_program
from tables import ROOT, cases, data_file, each, read_data
from variant_maker import provider_answers, summary, transcript, with_values

CASES = data_file("variant_provider.toml")["case"]
CONFORMANCE = data_file("variant_conformance.toml")
PROVIDER = ROOT / "resolver" / "variant_provider"


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """{name of a case: the answers}, of one process with a driver and of one without."""
    folder = tmp_path_factory.mktemp("nvml")
    cases = [*CASES, *map(transcript, CONFORMANCE["provider"])]
    provider = "gpuenv_variant_provider:NvidiaProvider"
    return provider_answers(provider, cases, folder, pythonpath=str(PROVIDER))


@cases(CASES)
def test_what_all_visible_devices_run(case, answers):
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


@each("row", CONFORMANCE["provider"], ids=lambda row: row["name"])
def test_the_transcripts_of_the_reference(row, answers):
    """`reference` has the answers of nvidia-variant-provider, revision ffea5d3."""
    expected = row.get("own", row["reference"])
    assert (expected != row["reference"]) == bool(row.get("differs"))
    assert set(row.get("differs", ())) <= set(CONFORMANCE["reasons"])
    assert summary(answers[row["name"]][1]) == with_values(expected)


def test_a_variable_of_another_form_is_named():
    variables = {"NV_VARIANT_PROVIDER_FORCE_SM_ARCH": "hopper", "PYTHONPATH": str(PROVIDER)}
    code = "from gpuenv_variant_provider import NvidiaProvider as p; p.get_supported_configs()"
    command = [sys.executable, "-S", "-c", code]
    process = run_program(command, env={**os.environ, **variables}, status=1)
    assert (
        "NV_VARIANT_PROVIDER_FORCE_SM_ARCH has 'hopper', which is not of the form X.Y"
        in process.stderr
    )


def test_the_distribution_needs_nothing_and_names_its_provider():
    project = read_data(PROVIDER / "pyproject.toml")["project"]
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
