"""Hosts and packages of variant wheels (data/variant_grid.toml), and which wheel is right where.

What is right is told from the device code in the wheels, by the rules of the CUDA C++ Programming
Guide, without gpuenv.
"""

import math

import gpuenv
from fatbin_maker import binary
from tables import data_file
from variant_maker import NVIDIA_PROVIDER, make_release

GRID = data_file("variant_grid.toml")
HOSTS = GRID["hosts"]
PACKAGES = GRID["packages"]
LIBRARIES = ["mkl", "openblas"]
NAMESPACES = ["nvidia", "blas"]
# The PTX language of each toolkit that the data names.
LANGUAGES = {
    "11.8": "7.8",
    "12.0": "8.0",
    "12.4": "8.4",
    "12.6": "8.5",
    "12.8": "8.7",
    "12.9": "8.8",
    "13.0": "9.0",
}


def pair(text):
    major, _, minor = text.partition(".")
    return int(major), int(minor)


# ---- the wheels ----------------------------------------------------------------------------------


def properties(variant):
    nvidia = {}
    if "lower" in variant:
        nvidia["cuda_version_lower_bound"] = [variant["lower"]]
    if "upper" in variant:
        nvidia["cuda_version_upper_bound"] = [variant["upper"]]
    if "sm" in variant:
        nvidia["sm_arch"] = sorted(variant["sm"])
    found = {"nvidia": nvidia} if nvidia else {}
    if "library" in variant:
        found["blas"] = {"library": [variant["library"]]}
    return found


def device_code(variant):
    """The SASS and the PTX in the libraries of a variant, and the toolkit of the PTX."""
    claims = variant.get("sm", [])
    sass = variant.get("sass", [one.removesuffix("_real") for one in claims if "_real" in one])
    ptx = [one.removesuffix("_virtual") for one in claims if "_virtual" in one]
    return sass, ptx, variant.get("toolkit", variant.get("lower", "12.0"))


def make_packages(folder, names=tuple(PACKAGES)):
    for name in names:
        files = {}
        for label, variant in PACKAGES[name].items():
            sass, ptx, toolkit = device_code(variant)
            images = [{"sass": target} for target in sass]
            images += [{"ptx": target, "language": LANGUAGES[toolkit]} for target in ptx]
            if images:
                files[label] = {f"{name}_kernels.fatbin": binary(images)}
        used = {label: properties(variant) for label, variant in PACKAGES[name].items()}
        namespaces = [one for one in NAMESPACES if any(one in found for found in used.values())]
        providers = {"nvidia": NVIDIA_PROVIDER}
        if "blas" in namespaces:
            providers["blas"] = {"static-properties": {"library": LIBRARIES}}
        make_release(
            folder, name, "1.0", used, namespaces=namespaces, providers=providers, files=files
        )


# ---- the hosts -----------------------------------------------------------------------------------


def visible(host):
    places = host.get("visible", range(len(host["gpus"])))
    return [pair(host["gpus"][place]) for place in places]


def describe(name, python):
    """The host as a process sees it."""
    row = HOSTS[name]
    seen = visible(row)
    gpus = [f"{major}.{minor}" for major, minor in seen] or ["none"]
    driver = row.get("driver") if seen else None
    platform = row.get("platform", "linux-x86_64")
    host = gpuenv.describe(gpus=gpus, driver=driver, python=python, platform=platform, glibc="2.35")
    if seen:
        assert host.driver_cuda == pair(row["cuda"]), name
    return host.replace(gpus=tuple(gpu.replace(mig=row.get("mig", False)) for gpu in host.gpus))


# ---- what is right -------------------------------------------------------------------------------


def runs(variant, host):
    """Whether a wheel runs on every visible device of a host, as its libraries are."""
    devices = visible(host)
    if not variant.get("sm") and "lower" not in variant and "upper" not in variant:
        return True
    if not devices or host.get("refused"):
        return False
    cuda = pair(host["cuda"])
    if "lower" in variant and cuda < pair(variant["lower"]):
        return False
    if "upper" in variant and cuda >= pair(variant["upper"]):
        return False
    sass, ptx, toolkit = device_code(variant)
    for device in devices:
        by_sass = any(_sass_runs(target, device) for target in sass)
        by_ptx = cuda >= pair(toolkit) and any(_ptx_runs(target, device) for target in ptx)
        if not by_sass and not by_ptx:
            return False
    return True


def _target(text):
    digits = text.rstrip("af")
    return (int(digits[:-1]), int(digits[-1])), text.removeprefix(digits)


def _sass_runs(target, device):
    made_for, suffix = _target(target)
    if suffix == "a":
        return made_for == device
    return made_for[0] == device[0] and made_for[1] <= device[1]


def _ptx_runs(target, device):
    return _target(target)[0] <= device


def right_labels(package, host):
    """The labels of the wheels that run, in the order of PEP 825; ordinary wheels come last."""
    row = HOSTS[host]
    fitting = [label for label, variant in PACKAGES[package].items() if runs(variant, row)]
    return sorted(fitting, key=lambda label: _sort_key(package, label, row))


def _sort_key(package, label, host):
    """Namespaces, features and values by their places; a missing property comes last."""
    variant = PACKAGES[package][label]
    keys = []
    if "lower" in variant:
        major, minor = pair(variant["lower"])
        keys.append((0, 0, -100 * major - minor))
    if "upper" in variant:
        major, minor = pair(variant["upper"])
        keys.append((0, 1, -100 * major - minor))
    if "sm" in variant:
        keys.append((0, 2, *min(_sm_keys(variant, visible(host)), default=(math.inf,))))
    if "library" in variant:
        keys.append((1, 0, LIBRARIES.index(variant["library"])))
    return (label == "", *keys, (math.inf,), label)


def _sm_keys(variant, devices):
    """The places of the values of sm_arch that suit a device: SASS first, then the newest."""
    keys = []
    for value in variant["sm"]:
        target, _, kind = value.partition("_")
        suits = _sass_runs if kind == "real" else _ptx_runs
        if any(suits(target, device) for device in devices):
            (major, minor), suffix = _target(target)
            keys.append((kind != "real", -100 * major - minor, -ord(suffix or "\0")))
    return keys
