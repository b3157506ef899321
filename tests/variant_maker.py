"""Variant wheels (PEP 825), the file that describes the variants of a release, and providers."""

import json
import os
import subprocess
import sys

import gpuenv
from index_server import make_wheel
from native_build import build, nvml_script

PEP_825 = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
PEP_850 = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
# What uv takes for the provider of NVIDIA that it has built in.
NVIDIA_PROVIDER = {
    "requires": ["nvidia-variant-provider>=0.0.1"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}


def metadata(variants, namespaces=("nvidia",), providers=None):
    """The content of variant.json or of NAME-VERSION-variants.json."""
    document = {
        "$schema": PEP_825 if providers is None else PEP_850,
        "default-priorities": {"namespace": list(namespaces)},
        "variants": variants,
    }
    if providers is not None:
        document["providers"] = providers
    return document


def make_variant(
    name,
    version,
    label,
    document=None,
    *,
    requires=(),
    files=None,
    tag="py3-none-any",
    build_number="",
):
    """Return (file name, content) of a wheel. Equal input gives equal bytes.

    `label` "" makes an ordinary wheel.
    """
    content = {f"{name}.py": f"label = {label!r}\n", **(files or {})}
    if label and document is not None:
        content[f"{name}-{version}.dist-info/variant.json"] = json.dumps(document)
    options = {"tag": tag, "label": label, "build_number": build_number}
    return make_wheel(name, version, requires, files=content, **options)


def write_variant(folder, *arguments, **options):
    """Write the wheel that `make_variant` returns into a folder."""
    filename, data = make_variant(*arguments, **options)
    (folder / filename).write_bytes(data)


def make_release(
    folder,
    name,
    version,
    variants,
    *,
    namespaces=("nvidia",),
    providers=None,
    files=None,
    described=True,
):
    """Write the wheels of a release; "" among the labels is an ordinary wheel.

    `files` are further files of the wheels, by label. Without `described` there is no
    NAME-VERSION-variants.json beside the wheels.
    """
    labels = {label: properties for label, properties in variants.items() if label}
    for label in variants:
        document = metadata({label: variants[label]}, namespaces, providers) if label else None
        own = (files or {}).get(label)
        write_variant(folder, name, version, label, document, files=own)
    if described:
        document = metadata(labels, namespaces, providers)
        (folder / f"{name}-{version}-variants.json").write_text(json.dumps(document))


# ---- data/variant_conformance.toml ---------------------------------------------------------------

SCHEMAS = {"825": PEP_825, "850": PEP_850}


def conformance_document(case):
    """Return the content of the metadata of a case of [[metadata]]."""
    if "text" in case:
        return str(case["text"])
    blas = {"fast": {"blas": {"library": ["mkl", "openblas"]}}, "null": {}}
    document = {
        "$schema": case.get("schema", "825"),
        "default-priorities": {
            "namespace": case.get("namespaces", ["blas"]),
            **case.get("priorities", {}),
        },
        "variants": case.get("variants", blas),
        **{key: case[key] for key in ("providers",) if key in case},
        **case.get("more", {}),
    }
    document["$schema"] = SCHEMAS.get(document["$schema"], document["$schema"])
    for key in case.get("without", ()):
        del document[key]
    return json.dumps(document)


def host_of(case):
    """Return the host that a case describes, with this interpreter."""
    host = gpuenv.describe(
        gpus=case["gpu"],
        driver=case.get("driver"),
        python=f"{sys.version_info[0]}.{sys.version_info[1]}",
        platform=case.get("platform", "linux-x86_64"),
        glibc="2.35",
    )
    return host.replace(cpu=tuple(case.get("cpu", ())))


def conformance_host(case):
    """Return the host of a case of [[choice]]."""
    return {"gpu": ["none"], **case.get("host", {})}


def conformance_metadata(case):
    """Return the metadata of a release of a case of [[choice]]."""
    providers = {}
    supported = case.get("supported", {})
    if supported:  # variantlib wants a provider for each namespace
        supported = {**{one: {"none": ["none"]} for one in case["namespaces"]}, **supported}
    for namespace, features in supported.items():
        providers[namespace] = {"static-properties": features}
        if len(features) > 1:  # several features need an order
            providers[namespace]["feature-order"] = list(features)
    providers.update(case.get("providers", {}))
    labels = {label: found for label, found in case["variants"].items() if label}
    return metadata(labels, case["namespaces"], providers or None)


def conformance_wheels(case):
    """Return (version, label, build) of the wheels of a case of [[choice]]."""
    default = [f"1.0 {label}".strip() for label in case["variants"]]
    wheels = []
    for text in case.get("wheels", default):
        version, label, number = [*text.split(" "), "", ""][:3]
        wheels.append((version, label, number))
    return wheels


def more_files(case):
    """Return the further files of the wheels of a case of [[choice]]."""
    return {path: text.encode() for path, text in case.get("files", {}).items()}


def make_conformance(folder, case):
    """Write the wheels of a case of [[choice]]; return the requirement that the user gives."""
    document, requires = conformance_metadata(case), case.get("requires", {})
    requirement = "demo"
    described = {case["metadata_only"]} if "metadata_only" in case else set()
    described.update(case.get("described", ()))
    for version, label, number in conformance_wheels(case):
        own = {**document, "variants": {label: case["variants"][label]}} if label else None
        filename, data = make_variant(
            "demo",
            version,
            label,
            None if case.get("bare") else own,
            requires=requires.get(label, ()),
            files={"demo_build.txt": number.encode(), **more_files(case)},
            tag=case.get("tag", "py3-none-any"),
            build_number=number,
        )
        wheel = f"{version} {label} {number}".strip()
        if wheel in case.get("broken", ()):
            data = b"no archive"
        if case.get("direct") == wheel:
            requirement = f"demo @ {(folder / filename).as_uri()}"
        (folder / filename).write_bytes(data)
        if label:
            described.add(version)
    for version in described if case.get("index") != "none" else ():
        content = case.get("index", json.dumps(document))
        (folder / f"demo-{version}-variants.json").write_text(content)
    for name in {text.partition(";")[0] for texts in requires.values() for text in texts}:
        if name != "missing":
            write_variant(folder, name.replace("-", "_"), "1.0", "")
    return requirement


# ---- providers -----------------------------------------------------------------------------------

FORCED = {
    "force_cuda": "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION",
    "force_sm": "NV_VARIANT_PROVIDER_FORCE_SM_ARCH",
}
# What an installer does: load the object that plugin-api names, and call its methods.
# The stand-in for NVML reads its script once, so each case is a process of its own.
_ASK = """
import importlib, json, os, sys, warnings
warnings.simplefilter("ignore")
module, name = sys.argv[1].split(":")
provider = getattr(importlib.import_module(module), name)

def answer():
    methods = (provider.get_all_configs, provider.get_supported_configs)
    try:
        return [{one.name: [one.values, one.multi_value] for one in method()} for method in methods]
    except Exception as error:
        kind = ValueError if isinstance(error, ValueError) else type(error)
        return [{}, {"error": kind.__name__}]

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


def provider_answers(provider, cases, folder, *, pythonpath):
    """Return {name of a case: what the provider knows and supports}, with a stand-in for NVML.

    `cases` are those of data/variant_provider.toml; a case without `gpus` has no driver.
    """
    nvml = build("nvml_stub.c", "libnvidia-ml.so.1", folder).parent
    found = {}
    for has_driver in (True, False):
        rows = [case for case in cases if ("gpus" in case) == has_driver]
        variables = []
        for number, case in enumerate(rows):
            script = folder / f"{number}.txt"
            script.write_text(nvml_script(_described(case)))
            variables.append({"NVML_STUB": str(script), **case.get("env", {})})
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("CUDA_")
        }
        environment |= {"PYTHONPATH": pythonpath, "LD_LIBRARY_PATH": str(nvml) * has_driver}
        process = subprocess.run(
            [sys.executable, "-c", _ASK, provider],
            env=environment,
            input=json.dumps(variables),
            capture_output=True,
            text=True,
            check=True,
        )
        names = [case["name"] for case in rows]
        found.update(zip(names, json.loads(process.stdout), strict=True))
    return found


def transcript(row):
    """Return a [[provider]] row of variant_conformance.toml as a case of variant_provider.toml."""
    case = {**row, "env": {FORCED[key]: row[key] for key in FORCED if key in row}}
    if "gpus" in row:
        case["gpus"] = [[gpu, f"GPU-{number}"] for number, gpu in enumerate(row["gpus"])]
    return case


def _described(case):
    gpus = []
    for capability, uuid, *instances in case.get("gpus", ()):
        gpu = {"name": "GPU", "cc": capability, "uuid": uuid}
        if instances:
            gpu["mig"] = [
                {"name": "MIG", "uuid": one, "gi": 1, "ci": number}
                for number, one in enumerate(instances)
            ]
        gpus.append(gpu)
    host = {"cuda": case.get("cuda", 0), "gpus": gpus}
    if "cuda_v1" in case:
        host["cuda_v1"] = case["cuda_v1"]
    if "fail" in case:
        host["fail"] = [[case["fail"], 999]]
    return host


def summary(supported):
    """Return what a provider supports, in the form of [[provider]] of variant_conformance.toml."""
    if "error" in supported:
        return dict(supported)
    found = {}
    for name, (values, _) in supported.items():
        key = name.removeprefix("cuda_version_").removesuffix("_bound").removesuffix("_arch")
        found[key] = {"lower": values[:1], "upper": values[-1:]}.get(key, values)
    return found


def with_values(answer):
    """Return an answer of [[provider]] in the form of `summary`.

    "89..88_real" means 89_real and 88_real.
    """
    if "error" in answer:
        return dict(answer)
    found = {key: [answer[key]] for key in ("lower", "upper") if key in answer}
    if "sm" in answer:
        found["sm"] = []
    for value in answer.get("sm", ()):
        numbers, _, kind = value.partition("_")
        first, _, last = numbers.partition("..")
        for number in range(int(first), int(last or first) - 1, -1):
            found["sm"].append(f"{number}_{kind}")
    return found
