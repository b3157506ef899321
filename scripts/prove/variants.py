"""Compare gpuenv's choice of variant wheels (PEP 825) with variantlib and uv.

    tools.py prove variants --variantlib PYTHON --uv EXE [--only PART] [--record FILE]

PYTHON is an interpreter that has variantlib; EXE is a uv with the preview wheel-variants. The parts
run on this machine and without a network. --record replaces the results of the parts that ran:

- order: random releases, whose metadata lists what suits the host. variantlib orders all of them,
  uv installs the first variant of some.
- grid: the packages and hosts of tests/data/variant_grid.toml. Variables give uv what it would
  detect: the driver's CUDA version and the highest compute capability of all devices.
- settings: the same, with the variables of `gpuenv env --for uv` if there are any.
- provider: variantlib loads gpuenv-variant-provider.
- cpu: the features of this machine's CPU by provider-variant-x86-64, which PYTHON must have, too.
- conformance: the cases of tests/data/variant_conformance.toml. --nvidia-provider names a checkout
  of nvidia-variant-provider (revision ffea5d3, with its submodule), which is asked as well.

--cases FILE.json writes order cases for the tests. Exit status: 1 if gpuenv is wrong anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gpuenv
from common import ROOT, write_record
from gpuenv import api
from gpuenv.api import tool_settings
from gpuenv.compat.variants import FEATURES, X86_64, suitable_values
from gpuenv.errors import InexpressibleError, NoSolutionError, PackageIndexError
from gpuenv.index import variants
from gpuenv.index.protocol import Index, Metadata
from gpuenv.model import IndexOptions, Request, Wheel
from gpuenv.requirements.target import TargetEnvironment, split_label
from gpuenv.resolve.wheel_variants import VariantChooser
from variant_grid import HOSTS, PACKAGES, describe, make_packages, pair, right_labels
from variant_maker import (
    conformance_document,
    conformance_host,
    conformance_metadata,
    host_of,
    make_conformance,
    make_release,
    make_variant,
    metadata,
    provider_answers,
    summary,
    transcript,
    with_values,
)

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
CASES = 60  # for the tests
PARTS = ("order", "grid", "settings", "provider", "cpu", "conformance")
# variantlib in a process of its own: it reads releases and writes the labels in its order.
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
# variantlib in a process of its own: it reads metadata and says whether it accepts it.
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
CONFORMANCE = ROOT / "tests" / "data" / "variant_conformance.toml"


# ---- the order -----------------------------------------------------------------------------------


def random_release(source: random.Random) -> dict[str, Any]:
    """Return the metadata of a release; providers list the values that suit the host."""
    namespaces = source.sample(["alpha", "beta", "gamma"], source.randint(1, 3))
    providers: dict[str, Any] = {}
    known: dict[str, dict[str, list[str]]] = {}
    for namespace in namespaces:
        features = source.sample(["f1", "f2", "f3"], source.randint(1, 3))
        known[namespace] = {feature: ["v1", "v2", "v3", "v4"] for feature in features}
        listed = {}
        for feature in features:
            listed[feature] = source.sample(known[namespace][feature], source.randint(1, 4))
        providers[namespace] = {"static-properties": listed}
        if len(features) > 1:  # required then
            providers[namespace]["feature-order"] = source.sample(features, len(features))
    labels: dict[str, Any] = {}
    for number in range(source.randint(2, 7)):
        properties = random_properties(source, known)
        if properties and properties not in labels.values():
            labels[f"label{number}"] = properties
    if source.random() < 0.5 or not labels:
        labels["null"] = {}
    return metadata(labels, namespaces, providers)


def random_properties(
    source: random.Random, known: Mapping[str, Mapping[str, Sequence[str]]]
) -> dict[str, dict[str, list[str]]]:
    """Return the properties of a variant."""
    properties: dict[str, dict[str, list[str]]] = {}
    for namespace, features in known.items():
        for feature, values in features.items():
            if source.random() < 0.5:
                some = sorted(source.sample(values, source.randint(1, 3)))
                properties.setdefault(namespace, {})[feature] = some
    return properties


class OneRelease(Index):
    """An index with the metadata of one release."""

    def __init__(self, release: variants.ReleaseVariants) -> None:
        self._release = release

    def files(self, name: str, environment: TargetEnvironment | None = None) -> tuple[Wheel, ...]:
        del environment
        return tuple(
            Wheel(
                name=name,
                version="1.0",
                filename=f"{name}-1.0-py3-none-any-{variant.label}.whl",
                url=f"https://files.test/{variant.label}",
                sha256=None,
            )
            for variant in self._release.variants
        )

    def metadata(self, wheel: Wheel) -> Metadata:
        del wheel
        return Metadata()

    def variants(self, wheels: Sequence[Wheel]) -> variants.ReleaseVariants:
        del wheels
        return self._release


def order_of(document: Mapping[str, Any]) -> list[str]:
    """Return the labels that suit the host, in gpuenv's order."""
    release = variants.parse(json.dumps(document).encode(), "demo")
    index = OneRelease(release)
    host = gpuenv.describe(gpus=["none"], python=PYTHON, platform="linux-x86_64", glibc="2.35")
    chooser = VariantChooser(host, api.compatibility_data(), index)
    labels = []
    for wheel in chooser.sort(index.files("demo")):
        judged = chooser.judged(wheel)
        if judged is not None and not judged.reasons:
            labels.append(split_label(wheel.filename)[1])
    return labels


def variantlib_orders(python: str, releases: Sequence[Mapping[str, Any]]) -> list[list[str] | None]:
    """Return the labels of each release in variantlib's order; None for refused metadata."""
    orders: list[list[str] | None] = ask_variantlib(python, ORDER, releases)
    return orders


def ask_variantlib(python: str, program: str, question: object) -> Any:
    """Return what a program prints as JSON that reads a question as JSON."""
    process = subprocess.run(
        [python, "-c", program],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(process.stdout)


def compare_order(
    arguments: argparse.Namespace, folder: Path
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the figures, and the cases: metadata with variantlib's order."""
    source = random.Random(arguments.seed)  # noqa: S311  the same releases each time
    releases = [random_release(source) for _ in range(arguments.releases)]
    expected = variantlib_orders(arguments.variantlib, releases)
    own = [order_of(release) for release in releases]
    same_first = 0
    for number, release in enumerate(releases[: arguments.installed]):
        links = folder / f"order{number}"
        links.mkdir()
        make_release(
            links,
            "demo",
            "1.0",
            release["variants"],
            namespaces=release["default-priorities"]["namespace"],
            providers=release["providers"],
        )
        label = uv_label(arguments.uv, "demo", links, {})
        same_first += label == (own[number] or ["no solution"])[0]
    cases = [
        {"metadata": release, "order": order}
        for release, order in zip(releases[:CASES], expected, strict=False)
    ]
    pairs = zip(own, expected, strict=True)
    figures = {
        "releases": len(releases),
        "same order as variantlib": sum(left == right for left, right in pairs),
        "installed by uv": arguments.installed,
        "same first variant as uv": same_first,
    }
    return figures, cases


# ---- uv ------------------------------------------------------------------------------------------


def uv_label(uv: str, package: str, links: Path, variables: Mapping[str, str]) -> str:
    """Return the label of the wheel that uv installs; "" for an ordinary one, or "no solution"."""
    with tempfile.TemporaryDirectory() as target:
        if not uv_installs(uv, package, links, target, variables):
            return "no solution"
        text = Path(target, f"{package}.py").read_text()
    return text.partition("'")[2].partition("'")[0]


def uv_installs(
    uv: str,
    requirement: str,
    links: Path,
    target: str,
    variables: Mapping[str, str],
    *,
    flags: Sequence[str] = (),
) -> bool:
    """Let uv install a requirement into a folder; return whether it did."""
    dropped = ("UV_", "NV_VARIANT_", "TPU_VARIANT_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    command = [uv, "pip", "install", "--quiet", "--no-cache", "--no-index", "--no-config"]
    command += ["--find-links", str(links), "--python", sys.executable, "--target", target]
    process = subprocess.run(
        [*command, "--preview-features", "wheel-variants", *flags, requirement],
        env={**environment, **variables},
        capture_output=True,
        check=False,
    )
    return process.returncode == 0


def detected_by_uv(name: str) -> dict[str, str]:
    """Return what stands for uv's own detection: the driver, and the newest of all devices.

    A driver that does not support a device does not list it.
    """
    row = HOSTS[name]
    if not row["gpus"] or row.get("refused"):
        return {}
    major, minor = max(map(pair, row["gpus"]))
    return {
        "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": row["cuda"],
        "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": f"{major}.{minor}",
    }


# ---- the grid ------------------------------------------------------------------------------------


def gpuenv_label(package: str, name: str, options: IndexOptions) -> str:
    """Return the label that gpuenv takes; "" for an ordinary wheel, or "no solution"."""
    request = Request(requirements=(package,))
    try:
        plan = gpuenv.solve(request, describe(name, PYTHON), options, changes=False)
    except NoSolutionError:
        return "no solution"
    return plan.variants[0].label if plan.variants else ""


def settings_for_uv(package: str, name: str, options: IndexOptions) -> dict[str, str] | None:
    """Return the variables of `gpuenv env --for uv`; None if it refuses."""
    request = Request(requirements=(package,))
    try:
        settings = tool_settings("uv", describe(name, PYTHON), request, options)
    except (InexpressibleError, NoSolutionError):
        return None
    return dict(settings.variables)


def compare_grid(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the figures of the grid."""
    links = folder / "grid"
    links.mkdir()
    make_packages(links)
    options = IndexOptions(no_index=True, find_links=(str(links),))
    wrong: list[dict[str, str]] = []
    grid = {"choices": 0, "gpuenv right": 0, "uv right": 0}
    for name in HOSTS:
        for package in PACKAGES:
            right = right_labels(package, name)
            best = next(iter(right), "no solution")
            own = gpuenv_label(package, name, options)
            theirs = uv_label(arguments.uv, package, links, detected_by_uv(name))
            grid["choices"] += 1
            grid["gpuenv right"] += own == best
            grid["uv right"] += theirs == best
            if theirs != best:
                kind = "does not run" if theirs not in right else "not the best"
                if theirs == "no solution":
                    kind = "no solution"
                wrong.append(
                    {"host": name, "package": package, "uv": theirs, "right": best, "kind": kind}
                )
    kinds: dict[str, int] = {}
    for row in wrong:
        kinds[row["kind"]] = kinds.get(row["kind"], 0) + 1
    return {**grid, "uv wrong, by kind": kinds, "uv wrong": wrong}


def compare_settings(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the figures of the settings for uv."""
    links = folder / "settings"
    links.mkdir()
    make_packages(links)
    options = IndexOptions(no_index=True, find_links=(str(links),))
    figures = {"choices": 0, "expressible": 0, "same choice by uv": 0}
    for name in HOSTS:
        for package in PACKAGES:
            figures["choices"] += 1
            variables = settings_for_uv(package, name, options)
            if variables is not None:
                figures["expressible"] += 1
                label = uv_label(arguments.uv, package, links, variables)
                figures["same choice by uv"] += label == gpuenv_label(package, name, options)
    return figures


# ---- the provider --------------------------------------------------------------------------------

LOAD = """
import json
from variantlib.plugins.loader import DictPluginLoader
with DictPluginLoader({"nvidia": "gpuenv_variant_provider:NvidiaProvider"}) as loader:
    (answer,) = loader.get_supported_configs().values()
print(json.dumps({one.name: one.values[:2] for one in answer.configs}))
"""


def load_provider(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the first values that variantlib gets from the provider for some devices."""
    folder = ROOT / "resolver" / "variant_provider"
    figures = {}
    for devices in ("9.0", "8.0,8.9", "7.0,9.0"):
        forced = {
            "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": "12.8",
            "NV_VARIANT_PROVIDER_FORCE_SM_ARCH": devices,
        }
        process = subprocess.run(
            [arguments.variantlib, "-c", LOAD],
            env={**os.environ, "PYTHONPATH": str(folder), **forced},
            capture_output=True,
            text=True,
            check=True,
        )
        figures[devices] = json.loads(process.stdout)
    return figures


READ_CPU = """
import json
from provider_variant_x86_64.plugin import X8664Plugin
configs = X8664Plugin().get_supported_configs(None)
print(json.dumps([X8664Plugin.all_features, {one.name: list(one.values) for one in configs}]))
"""


def compare_cpu(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return how many features of this CPU have equal values in the provider and in gpuenv."""
    known, theirs = json.loads(output([arguments.variantlib, "-c", READ_CPU]))
    host = gpuenv.detect()
    equal = 0
    for feature, values in theirs.items():
        asked = ["v1", "v2", "v3", "v4"] if feature == "level" else ["on"]
        equal += list(suitable_values(X86_64, feature, asked, host)) == values
    own = [feature for feature in FEATURES[X86_64] if feature != "level"]
    return {"features": len(theirs), "same values": equal, "same order of all": own == known}


# ---- the conformance material --------------------------------------------------------------------


def compare_conformance(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return how many cases each tool agrees with, and every difference with its reason."""
    data = tomllib.loads(CONFORMANCE.read_text())
    return {
        "choice": compare_choices(arguments, data["choice"], folder),
        "metadata": compare_metadata(arguments, data["metadata"], folder),
        "provider": compare_transcripts(arguments, data, folder),
    }


# A case with one of these keys is about more than metadata with lists: variantlib cannot be asked.
NOT_FOR_VARIANTLIB = {"described", "direct", "files", "index", "metadata_only", "providers"}
Answers = Mapping[str, tuple[object, object]]  # by tool: what is right, and its answer


def tally(cases: Sequence[tuple[Mapping[str, Any], Answers]]) -> dict[str, Any]:
    """Return how many answers of each tool are right, and why the others are not."""
    figures: dict[str, Any] = {"cases": len(cases)}
    for tool in ("gpuenv", "variantlib", "uv"):
        figures[tool] = {"asked": 0, "agrees": 0}
    differences = []
    for case, answers in cases:
        for tool, (right, answer) in answers.items():
            figures[tool]["asked"] += 1
            figures[tool]["agrees"] += answer == right
            if answer != right:
                why = case.get("differs", {}).get(tool, "unexplained")
                row = {"case": case["name"], "from": case["from"], "tool": tool}
                differences.append({**row, "answers": answer, "expected": right, "why": why})
    return {**figures, "differences": differences}


def compare_choices(
    arguments: argparse.Namespace, cases: Sequence[Mapping[str, Any]], folder: Path
) -> dict[str, Any]:
    """Return how many choices each tool agrees with."""
    asked = [case for case in cases if not NOT_FOR_VARIANTLIB & set(case)]
    documents = [conformance_metadata(case) for case in asked]
    names = [case["name"] for case in asked]
    orders = dict(zip(names, variantlib_orders(arguments.variantlib, documents), strict=True))
    rows: list[tuple[Mapping[str, Any], Answers]] = []
    for number, case in enumerate(cases):
        links = folder / f"conformance{number}"
        links.mkdir()
        requirement = make_conformance(links, case)
        expected = [case["chosen"], *case["installs"]]
        answers: dict[str, tuple[object, object]] = {
            "gpuenv": (expected, gpuenv_result(requirement, links, case)),
            "uv": (expected, uv_result(arguments.uv, requirement, links, case.get("uv", {}))),
        }
        if case["name"] in orders:
            labels = [label for label in case["order"] if label]
            answers["variantlib"] = (labels, orders[case["name"]])
        rows.append((case, answers))
    return tally(rows)


def compare_metadata(
    arguments: argparse.Namespace, cases: Sequence[Mapping[str, Any]], folder: Path
) -> dict[str, Any]:
    """Return how many decisions about metadata each tool agrees with.

    uv is asked to install a null variant beside the metadata.
    """
    texts = [conformance_document(case) for case in cases]
    answers = ask_variantlib(arguments.variantlib, ACCEPTS, texts)
    filename, data = make_variant("demo", "1.0", "null", metadata({"null": {}}, ["blas"]))
    rows: list[tuple[Mapping[str, Any], Answers]] = []
    for number, (case, text, theirs) in enumerate(zip(cases, texts, answers, strict=True)):
        links = folder / f"metadata{number}"
        links.mkdir()
        (links / filename).write_bytes(data)
        (links / "demo-1.0-variants.json").write_text(text)
        right = "refused" not in case
        with tempfile.TemporaryDirectory() as target:
            by_uv = uv_installs(arguments.uv, "demo", links, target, {})
        accepted = {"gpuenv": is_accepted(text), "variantlib": theirs, "uv": by_uv}
        rows.append((case, {tool: (right, answer) for tool, answer in accepted.items()}))
    return tally(rows)


def is_accepted(text: str) -> bool:
    """Return whether gpuenv accepts metadata."""
    try:
        variants.parse(text.encode(), "demo")
    except ValueError:
        return False
    return True


def gpuenv_result(requirement: str, links: Path, case: Mapping[str, Any]) -> list[str]:
    """Return the wheel of demo as "VERSION LABEL BUILD", and the other installed packages."""
    host = host_of(conformance_host(case))
    options = IndexOptions(no_index=True, find_links=(str(links),))
    try:
        plan = gpuenv.solve(Request(requirements=(requirement,)), host, options, changes=False)
    except NoSolutionError:
        return ["none"]
    except PackageIndexError:
        return ["error"]
    files = {pin.wheel.name: pin.wheel.filename for pin in plan.pins}
    ordinary, label = split_label(files.pop("demo"))
    _, version, *build = ordinary.removesuffix("-py3-none-any.whl").split("-")
    return [" ".join([version, label, *build]).strip(), *sorted(files)]


def uv_result(uv: str, requirement: str, links: Path, settings: Mapping[str, Any]) -> list[str]:
    """Return what uv installs, in the form of `gpuenv_result`."""
    variables, flags = settings.get("environment", {}), settings.get("flags", ())
    with tempfile.TemporaryDirectory() as target:
        if not uv_installs(uv, requirement, links, target, variables, flags=flags):
            return ["none"]
        versions = {}
        for path in Path(target).glob("*.dist-info"):
            name, _, version = path.name.removesuffix(".dist-info").partition("-")
            versions[name.replace("_", "-")] = version
        label = Path(target, "demo.py").read_text().split("'")[1]
        build = Path(target, "demo_build.txt").read_text()
    return [f"{versions.pop('demo')} {label} {build}".strip(), *sorted(versions)]


def compare_transcripts(
    arguments: argparse.Namespace, data: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Return how many answers of the two providers are equal, and why the others are not."""
    rows = data["provider"]
    cases = [transcript(row) for row in rows]
    home = str(ROOT / "resolver" / "variant_provider")
    own = provider_answers("gpuenv_variant_provider:NvidiaProvider", cases, folder, pythonpath=home)
    figures: dict[str, Any] = {"cases": len(rows), "same answer": 0, "differences": {}}
    figures["gpuenv as recorded"] = 0
    for row in rows:
        expected = row.get("own", row["reference"])
        figures["gpuenv as recorded"] += summary(own[row["name"]][1]) == with_values(expected)
        figures["same answer"] += expected == row["reference"]
        if expected != row["reference"]:
            figures["differences"][row["name"]] = row["differs"]
    figures["reasons"] = data["reasons"]
    if arguments.nvidia_provider:
        provider = "nvidia_variant_provider.plugin:NvidiaVariantPlugin"
        checkout = arguments.nvidia_provider
        theirs = provider_answers(provider, cases, folder, pythonpath=checkout)
        equal = [summary(theirs[row["name"]][1]) == with_values(row["reference"]) for row in rows]
        figures["reference as recorded"] = sum(equal)
    return figures


def main(words: list[str]) -> int:
    """Compare, print the figures, and write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--variantlib", required=True, metavar="PYTHON")
    parser.add_argument("--uv", required=True, metavar="EXE")
    parser.add_argument("--nvidia-provider", metavar="DIR")
    parser.add_argument("--only", choices=PARTS, action="append", metavar="PART")
    parser.add_argument("--record", metavar="FILE")
    parser.add_argument("--cases", metavar="FILE")
    parser.add_argument("--releases", type=int, default=2000)
    parser.add_argument("--installed", type=int, default=60)
    parser.add_argument("--seed", type=int, default=825)
    arguments = parser.parse_args(words)
    record = compare(arguments)
    write_record(record, arguments.record)
    return 0 if is_right(record) else 1


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the record with the parts that ran."""
    parts = arguments.only or PARTS
    record: dict[str, Any] = {}
    if arguments.record and Path(arguments.record).exists():
        record = json.loads(Path(arguments.record).read_text())
    record["versions"] = {
        "uv": output([arguments.uv, "--version"]).split()[1],
        "variantlib": output([arguments.variantlib, "-c", _VERSION]),
        "gpuenv": gpuenv.__version__,
    }
    with tempfile.TemporaryDirectory(prefix="variants-") as temporary:
        folder = Path(temporary)
        if "order" in parts:
            record["order"], cases = compare_order(arguments, folder)
            if arguments.cases:
                lines = ",\n".join(json.dumps(case) for case in cases)
                Path(arguments.cases).write_text(f"[\n{lines}\n]\n")
        if "grid" in parts:
            record["grid"] = compare_grid(arguments, folder)
        if "settings" in parts:
            record["settings"] = compare_settings(arguments, folder)
        if "provider" in parts:
            record["provider"] = load_provider(arguments)
        if "cpu" in parts:
            record["cpu"] = compare_cpu(arguments)
        if "conformance" in parts:
            record["conformance"] = compare_conformance(arguments, folder)
    return record


def is_right(record: Mapping[str, Any]) -> bool:
    """Return whether gpuenv is right everywhere, and uv takes the same with its settings."""
    pairs = [
        ("order", "releases", "same order as variantlib"),
        ("grid", "choices", "gpuenv right"),
        ("settings", "expressible", "same choice by uv"),
        ("cpu", "features", "same values"),
    ]
    for part, every, right in pairs:
        if part in record and record[part][every] != record[part][right]:
            return False
    return "conformance" not in record or is_conformant(record["conformance"])


def is_conformant(figures: Mapping[str, Any]) -> bool:
    """Return whether gpuenv agrees with every case, and each difference has a reason."""
    provider = figures["provider"]
    parts = (figures["choice"], figures["metadata"])
    explained = all(row["why"] != "unexplained" for part in parts for row in part["differences"])
    agrees = all(part["gpuenv"]["asked"] == part["gpuenv"]["agrees"] for part in parts)
    as_recorded = {provider["gpuenv as recorded"], provider.get("reference as recorded")}
    return explained and agrees and as_recorded <= {provider["cases"], None}


_VERSION = "import importlib.metadata as m; print(m.version('variantlib'))"


def output(command: Sequence[str]) -> str:
    """Return what a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
