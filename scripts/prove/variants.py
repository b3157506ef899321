"""Ask the reference implementations of variant wheels (PEP 825) what the tests expect of gpuenv.

    tools.py prove variants --variantlib PYTHON [--nvidia-provider DIR] [--cases FILE.json]

PYTHON is an interpreter that has variantlib and provider-variant-x86-64. tests/test_variants.py and
tests/test_variant_provider.py compare gpuenv with the same answers.

- order: variantlib orders the variants of random releases, whose metadata lists what suits the
  host. --cases writes them (tests/data/variant_order.json). gpuenv's order must be the same.
- choice, metadata: the cases of tests/data/variant_conformance.toml. A case says under "differs"
  why variantlib has another answer.
- cpu: the values of the features of this machine's CPU must be gpuenv's.
- provider: --nvidia-provider names a checkout of nvidia-variant-provider (revision ffea5d3, with
  its submodule), which must answer as the transcripts of the same file.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gpuenv
from common import ROOT
from gpuenv import api
from gpuenv.compat.variants import FEATURES, X86_64, suitable_values
from gpuenv.index.cache import Cache
from gpuenv.requirements.target import split_label
from gpuenv.resolve.wheel_variants import VariantChooser
from indexes import find_links
from variant_maker import (
    conformance_document,
    conformance_metadata,
    make_release,
    metadata,
    provider_answers,
    summary,
    transcript,
    with_values,
)

CONFORMANCE = ROOT / "tests" / "data" / "variant_conformance.toml"
# A case with one of these keys is about more than metadata with lists: variantlib cannot be asked.
NOT_FOR_VARIANTLIB = {"described", "direct", "files", "index", "metadata_only", "providers"}
# variantlib in a process of its own. It reads a question as JSON and prints its answers as JSON:
# the labels of each release in its order, or whether it accepts metadata.
ORDER = """
import json, sys
from variantlib.api import get_variants_by_priority
from variantlib.errors import ValidationError
orders = []
for document in json.load(sys.stdin):
    try:
        ordered = get_variants_by_priority(variants_json=document)
    except ValidationError as error:
        orders.append(None)
    else:
        orders.append([one.label for one in ordered if one.label in document["variants"]])
json.dump(orders, sys.stdout)
"""
ACCEPTS = """
import json, sys
from variantlib.errors import ValidationError
from variantlib.variants_json import VariantsJson
answers = []
for text in json.load(sys.stdin):
    try:
        VariantsJson(json.loads(text))
    except (ValidationError, ValueError):
        answers.append(False)
    else:
        answers.append(True)
json.dump(answers, sys.stdout)
"""
READ_CPU = """
import json
from provider_variant_x86_64.plugin import X8664Plugin
configs = X8664Plugin().get_supported_configs(None)
print(json.dumps([X8664Plugin.all_features, {one.name: list(one.values) for one in configs}]))
"""
VERSION = "import importlib.metadata as m, json; print(json.dumps(m.version('variantlib')))"


def ask(python: str, program: str, question: object = None) -> Any:
    """Return what a program prints as JSON that reads a question as JSON."""
    text = json.dumps(question)
    command = [python, "-c", program]
    return json.loads(
        subprocess.run(command, input=text, capture_output=True, check=True, text=True).stdout
    )


def random_release(source: random.Random) -> dict[str, Any]:
    """Return the metadata of a release; providers list the values that suit the host."""
    namespaces = source.sample(["alpha", "beta", "gamma"], source.randint(1, 3))
    providers: dict[str, Any] = {}
    for namespace in namespaces:
        features = source.sample(["f1", "f2", "f3"], source.randint(1, 3))
        values = {
            name: source.sample(["v1", "v2", "v3", "v4"], source.randint(1, 4)) for name in features
        }
        providers[namespace] = {"static-properties": values}
        if len(features) > 1:  # required then
            providers[namespace]["feature-order"] = source.sample(features, len(features))
    labels: dict[str, Any] = {}
    for number in range(source.randint(2, 7)):
        properties: dict[str, dict[str, list[str]]] = {}
        for namespace, provider in providers.items():
            for feature in provider["static-properties"]:
                if source.random() < 0.5:
                    some = source.sample(["v1", "v2", "v3", "v4"], source.randint(1, 3))
                    properties.setdefault(namespace, {})[feature] = sorted(some)
        if properties and properties not in labels.values():
            labels[f"label{number}"] = properties
    if source.random() < 0.5 or not labels:
        labels["null"] = {}
    return metadata(labels, namespaces, providers)


def orders_of_gpuenv(releases: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the labels of each release that suit the host, in gpuenv's order."""
    host = gpuenv.describe(gpus=["none"], python="3.12", platform="linux-x86_64", glibc="2.35")
    orders = []
    with tempfile.TemporaryDirectory() as folder:
        for number, release in enumerate(releases):
            make_release(
                Path(folder), f"order{number}", "1.0", release["variants"],
                namespaces=release["default-priorities"]["namespace"],
                providers=release["providers"],
            )  # fmt: skip
        links = find_links([folder], cache=Cache(f"{folder}/cache"))
        chooser = VariantChooser(host, api.compatibility_data(), links)
        for number in range(len(releases)):
            wheels = chooser.sort(links.wheels(f"order{number}"))
            judged = [(wheel, chooser.judged(wheel)) for wheel in wheels]
            suitable = [wheel for wheel, one in judged if one is not None and not one.reasons]
            orders.append([split_label(wheel.filename)[1] for wheel in suitable])
    return orders


def compare_order(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Compare the order of random releases."""
    source = random.Random(arguments.seed)  # noqa: S311  the same releases each time
    releases = [random_release(source) for _ in range(arguments.releases)]
    expected = ask(arguments.variantlib, ORDER, releases)
    pairs = list(zip(releases, expected, strict=True))
    if arguments.cases:
        lines = [json.dumps({"metadata": release, "order": order}) for release, order in pairs[:60]]
        arguments.cases.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    own = []
    for start in range(0, len(releases), 100):  # a large folder of wheels is slow
        own += orders_of_gpuenv(releases[start : start + 100])
    other = [
        f"order of {release}: {order} instead of {right}"
        for (release, right), order in zip(pairs, own, strict=True)
        if order != right
    ]
    return {"releases": len(releases), "other order": len(other)}, other


def compare_conformance(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Compare variantlib with the cases of the conformance material."""
    data = tomllib.loads(CONFORMANCE.read_text())
    asked = [case for case in data["choice"] if not NOT_FOR_VARIANTLIB & set(case)]
    documents = [conformance_metadata(case) for case in asked]
    right = [[label for label in case["order"] if label] for case in asked]
    right += ["refused" not in case for case in data["metadata"]]
    texts = [conformance_document(case) for case in data["metadata"]]
    answers = ask(arguments.variantlib, ORDER, documents)
    answers += ask(arguments.variantlib, ACCEPTS, texts)
    record: dict[str, Any] = {"choices": len(asked), "metadata": len(texts), "differences": {}}
    faults = []
    for case, expected, answer in zip([*asked, *data["metadata"]], right, answers, strict=True):
        why = case.get("differs", {}).get("variantlib")
        if answer != expected:
            record["differences"][case["name"]] = why
        if (answer != expected) != (why is not None):
            faults.append(f"{case['name']}: {answer} instead of {expected}; differs: {why}")
    return record, faults


def compare_cpu(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Compare the values of the features of this CPU."""
    known, theirs = ask(arguments.variantlib, READ_CPU)
    host = gpuenv.detect()
    faults = []
    for feature, values in theirs.items():
        asked = ["v1", "v2", "v3", "v4"] if feature == "level" else ["on"]
        own = list(suitable_values(X86_64, feature, asked, host))
        if own != values:
            faults.append(f"CPU feature {feature}: {own} instead of {values}")
    if [feature for feature in FEATURES[X86_64] if feature != "level"] != known:
        faults.append("the features of CPUs have another order")
    return {"features": len(theirs)}, faults


def compare_provider(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Compare NVIDIA's provider with its recorded answers."""
    rows = tomllib.loads(CONFORMANCE.read_text())["provider"]
    provider = "nvidia_variant_provider.plugin:NvidiaVariantPlugin"
    cases = [transcript(row) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.nvidia_provider
        answers = provider_answers(provider, cases, Path(folder), pythonpath=path)
    faults = [
        f"transcript {row['name']}: {answers[row['name']]}"
        for row in rows
        if summary(answers[row["name"]][1]) != with_values(row["reference"])
    ]
    return {"cases": len(rows)}, faults


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the reference implementations are."""
    parser.add_argument("--variantlib", required=True, metavar="PYTHON")
    parser.add_argument("--nvidia-provider", metavar="DIR")
    parser.add_argument("--cases", metavar="FILE", type=Path)
    parser.add_argument("--releases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=825)


def prove(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Compare all parts that can be asked."""
    record: dict[str, Any] = {"variantlib": ask(arguments.variantlib, VERSION)}
    parts = {"order": compare_order, "conformance": compare_conformance, "cpu": compare_cpu}
    if arguments.nvidia_provider:
        parts["provider"] = compare_provider
    faults = []
    for name, compare in parts.items():
        record[name], more = compare(arguments)
        faults += more
    return record, faults
