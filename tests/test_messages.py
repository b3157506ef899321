"""Every kind of message, made by the functions of render, against the recorded text.

tests/data/messages.json holds {name, lines} for each message. To record new texts after a wording
was changed on purpose: `python tests/test_messages.py`, and read the difference.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuenv.compat.catalog import Entry, Release, Variant
from gpuenv.doctor.catalog import Cause
from gpuenv.doctor.diagnosis import Examination
from gpuenv.doctor.model import Diagnosis, Fact, Verdict
from gpuenv.doctor.origin import find_origin
from gpuenv.doctor.remedy import Remedy
from gpuenv.errors import (
    Change,
    Explanation,
    GpuEnvError,
    HostMismatchError,
    InputError,
    NoSolutionError,
    PackageIndexError,
    Reason,
)
from gpuenv.install.inplace_install import Step
from gpuenv.loader_env import Shadow
from gpuenv.model import (
    Check,
    Choice,
    Code,
    Gpu,
    Host,
    Lock,
    Needs,
    Pin,
    Plan,
    Problem,
    Python,
    Rejection,
    Request,
    Wheel,
)
from gpuenv.project.init import Beginning
from gpuenv.project.profiles import Comparison, Difference, Profile, Project, State
from gpuenv.render import changes as render_changes
from gpuenv.render import checks, doctor, locks, matrix, plans, refusals, values
from gpuenv.verify.probe_tests import Shown

RECORDED = Path(__file__).parent / "data" / "messages.json"
PLATFORM = "linux-x86_64"

# The left column of the table of sentences that were replaced, and other unclear wording.
REPLACED = (
    "No set of releases does",
    "Of what was chosen",
    "at hand",
    "anew",
    "whatever is kept",
    "who means to deceive",
    "have no index has the package",
    "that the data knows; have",
    "; have ",
    "by what is seen here",
    "the one thing to do",
    "nothing stands before",
    "known to be bad",
    "do the locks say",
    "taken out",
    "put behind",
    "is of both",
    "or the like",
    "between alike",
    "how it is known",
)


# ---- small values -------------------------------------------------------------------------------


GPU = Gpu(
    name="H100",
    compute_capability=(9, 0),
    index=0,
    memory_total=85_000_000_000,
    memory_free=80_000_000_000,
)
PYTHON = Python(version=(3, 12))
HOST = Host(
    python=Python(version=(3, 12), full_version="3.12.3", executable="/usr/bin/python3"),
    gpus=(GPU,),
    driver="550.54.14",
    driver_cuda=(12, 4),
    glibc=(2, 35),
    virtualization="container",
)
NO_GPU = Host(python=PYTHON)
WITHOUT_GPU = NO_GPU.replace(problems=(Problem(code="no-gpu", detail="no GPU"),))
UNKNOWN = Host(
    python=Python(version=(3, 14), free_threaded=True),
    gpus=(Gpu(name="Card", compute_capability=None, mig=True),),
    problems=(
        Problem(code="no-nvml", detail="libnvidia-ml.so.1 is not found", hint="install the driver"),
    ),
)
CHOICE = Choice(
    framework="torch",
    version="2.15.0",
    variant="cu132",
    cuda=(13, 2),
    cudnn="9.26.0.51",
    evidence="scanned",
)
DOCUMENTED = Choice(
    framework="jax", version="0.11.2", variant="cuda13", cuda=(13, 0), cudnn="9.8.0.87"
)
NEEDS = Needs(
    driver="580.65.06",
    compute_capabilities=((8, 0), (9, 0)),
    glibc=(2, 28),
    python=(3, 12),
    platform=PLATFORM,
)


def pin(name: str, version: str, size: int | None) -> Pin:
    file = f"{name}-{version}-py3-none-any.whl"
    wheel = Wheel(name=name, version=version, filename=file, url=file, sha256="ab", size=size)
    return Pin(wheel=wheel)


PINS = (pin("torch", "2.15.0", 900_000_000), pin("numpy", "2.3.5", None))


def reason(code: str, subject: str = "torch 2.15.0", need: str = "x", have: str = "y") -> Reason:
    return Reason(code=code, subject=subject, need=need, have=have, source="a source")


FLOOR = reason(
    "driver-floor", need="driver 580.65.06 or newer for CUDA 13.2", have="driver 550.54.14"
)
AVOID = reason(
    "known-avoid",
    "nvidia-cublas-cu12 12.8.4.1",
    "a release that is not known to be bad",
    "many of its kernels free memory too early",
)
UNKNOWN_RELEASE = reason(
    "library-unknown",
    "nvidia-cublas 13.10.0.20",
    "a release that the data knows",
    "not in the compatibility data",
)

# (code, subject, need, have) of each kind of reason.
REASONS = (
    ("bad-pair", "a 1.0", "only one of a and b: they crash together", "b 2.0"),
    (
        "build-unknown",
        "jax 0.7.1 (cuda13)",
        "a release that the data knows",
        "not in the compatibility data",
    ),
    (
        "code-unknown",
        "torch 2.14.0",
        "code for compute capability 8.9 (RTX 4090)",
        "unknown architectures",
    ),
    ("conda-closure", "pytorch 2.10.0", "a closure", "nothing provides libfoo 2"),
    ("conflict", "torchvision 0.20.0", "torch==2.5.0", "torch==2.15.0, as requested"),
    ("conflict", "torch 2.15.0", "dependencies that fit the other requirements", "none do"),
    ("cpu-build", "torch 2.13.0+cpu", "a CUDA build", "a CPU build"),
    ("cpu-lock", "lock", "a host without a GPU, for which it was locked", "H100"),
    ("cuda-build", "pytorch 2.10.0 (cuda130)", "an NVIDIA GPU", "a host without a GPU"),
    (
        "cuda-libraries",
        "tensorflow >=2.5,<2.11, for CUDA on win-amd64,",
        "CUDA 11.2 and cuDNN 8.1 installed separately",
        "no wheel that requires them",
    ),
    (
        "cuda-libraries-unknown",
        "cupy 13.6.0 (cuda12x)",
        "the extra ctk, which brings its CUDA libraries",
        "a release without it",
    ),
    ("cuda-major", "torch 2.15.0", "CUDA 13", "tensorflow 2.21.0 (cuda), which needs CUDA 12"),
    (
        "cuda-variant",
        "torch 2.15.0",
        "torch built for cu132",
        "torchvision 0.20.0, which needs torch built for cu124",
    ),
    (
        "cudnn-unknown",
        "torch 2.15.0",
        "cuDNN 9.26.0.51 or a newer release of its major",
        "none in the environment: the system's is loaded if there is one",
    ),
    ("cudnn-version", "torch 2.15.0", "cuDNN 9.26 or a newer 9.x", "cuDNN 9.1.0"),
    ("device", "lock", "compute capability 8.0, 9.0", "V100, 7.0"),
    (
        "device-unknown",
        "lock",
        "compute capability 8.0, 9.0",
        "Card, of unknown compute capability",
    ),
    (
        "driver-branch-unknown",
        "driver",
        "a driver branch that the data knows (R615 or older)",
        "driver 999.10",
    ),
    ("driver-cuda", "torch 2.15.0", "a driver for CUDA 13", "a driver for CUDA 12.4"),
    ("driver-floor", "torch 2.15.0", "driver 580.65.06 or newer for CUDA 13.2", "driver 550.54.14"),
    ("driver-unknown", "lock", "driver 580.65.06 or newer", "no driver found"),
    ("extra-unknown", "jax 0.6.2", "the extra cuda13", "ci, cuda, cuda12"),
    (
        "file-owner",
        "nvidia-cudnn-cu13 9.26.0.51",
        "no nvidia-cudnn-cu12, whose folder nvidia/cudnn it writes into",
        "jax 0.11.2, which needs it",
    ),
    ("glibc", "lock", "glibc 2.28 or newer", "glibc 2.17"),
    ("glibc-unknown", "lock", "glibc 2.28 or newer", "unknown"),
    (
        "gpu-dropped-by-driver",
        "V100",
        "a driver of branch R580 or older for compute capability 7.0",
        "driver 595.45.04",
    ),
    (
        "gpu-needs-newer-driver",
        "RTX 5090",
        "a driver of branch R570 or newer",
        "driver 550.54.14",
    ),
    (
        "jetson-wheel",
        "torch 2.15.0",
        "a wheel for JetPack from NVIDIA's Jetson index (Orin)",
        "a wheel for Arm servers (sm_80 sm_90 sm_100 sm_110 sm_120)",
    ),
    (
        "extension-release",
        "flash-attn 2.8.3+cu12torch2.8cxx11abitrue",
        "torch 2.8, for which it was built",
        "torch 2.9.1",
    ),
    (
        "extension-cuda",
        "torch-scatter 2.1.2+pt28cu118",
        "torch for CUDA 11, for which it was built",
        "torch 2.8.0+cu129 for CUDA 12",
    ),
    (
        "extension-abi",
        "flash-attn 2.8.2+cu12torch2.6cxx11abitrue",
        "torch with CXX11_ABI=1, for which it was built",
        "torch 2.6.0 with CXX11_ABI=0",
    ),
    ("gpu-unused", "torch 2.13.0+cpu", "no GPU", "one, which stays unused"),
    ("hash", "numpy==2.3.5", "a file with sha256 ab", "numpy-2.3.5.whl with sha256 cd"),
    (
        "index-unknown",
        "torch",
        "releases that the index snapshot leaves out",
        "no answer within 20 s",
    ),
    (
        "known-avoid",
        "nvidia-cublas-cu12 12.8.4.1",
        "a release that is not known to be bad",
        "many of its kernels free memory too early",
    ),
    (
        "known-broken",
        "nvidia-cudnn-cu12 9.10.0.56",
        "a release that is not known to be bad",
        "it has no code for Turing",
    ),
    (
        "library-unknown",
        "nvidia-cublas 13.10.0.20",
        "a release that the data knows",
        "not in the compatibility data",
    ),
    ("lock-edited", "lock", "the content that was locked", "edited content"),
    ("lock-environment", "lock", 'python_version == "3.12"', "linux-x86_64, Python 3.11"),
    ("lock-missing", "pylock.v100.toml", "to be locked", "it is missing"),
    ("lock-python", "lock", "Python ==3.12.*", "Python 3.11"),
    ("needs-gpu", "cupy 14.2.0 (cuda13x)", "a GPU", "a host without one"),
    (
        "no-code-for-device",
        "torch 2.15.0",
        "code for compute capability 7.0 (V100)",
        "sm_75 sm_80 sm_90",
    ),
    ("no-gpu", "lock", "an NVIDIA GPU", "no visible GPU"),
    ("no-release", "pytorch", "pytorch ==2.9.0", "2.10.0, 2.8.0"),
    (
        "no-such-extra",
        "jax 0.6.2 (cuda13)",
        "the extra cuda13, which brings its CUDA libraries",
        "a release without it",
    ),
    ("no-version", "torch", "torch==9.0", "2.0.0 to 2.15.0"),
    (
        "no-wheel",
        "torch 2.15.0+cu126",
        "a wheel for cp312 on linux-x86_64",
        "none in the index data",
    ),
    (
        "no-wheel-for-target",
        "torch",
        "a wheel for CPython 3.8 on linux-x86_64",
        "cp310-cp310-linux_x86_64",
    ),
    ("not-in-index", "nosuch", "a wheel", "not found on any index"),
    ("only-sdist", "old", "a wheel", "only source distributions: 1.0"),
    ("platform", "lock", "linux-x86_64", "linux-aarch64"),
    (
        "ptx-needs-newer-driver",
        "torch 2.15.0",
        "a driver for CUDA 13.2 to compile its PTX for B200",
        "a driver for CUDA 13.0",
    ),
    ("python", "lock", "Python 3.12", "Python 3.11"),
    ("requires-python", "numpy 2.5.5", "Python >=3.12", "Python 3.11"),
    ("two-cudnn", "nvidia-cudnn-cu12", "one cuDNN in a prefix", "cudnn 9.10.2.21 of conda"),
    ("two-owners", "nvidia/cudnn", "one owner", "nvidia-cudnn-cu12 9.1 and nvidia-cudnn-cu13 9.2"),
    ("virtual-package", "pytorch 2.10.0", "__cuda >=13.0", "__cuda 12.4"),
    (
        "yanked",
        "torch==2.0.1",
        "a release that is not yanked, or one that == names",
        "yanked: 2.0.1",
    ),
)


def plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "request": Request(frameworks=("torch",)),
        "host": HOST,
        "pins": PINS,
        "choices": (CHOICE, DOCUMENTED),
        "needs": NEEDS,
    }
    return Plan(**{**fields, **changes})


def lock(**changes: Any) -> Lock:
    fields: dict[str, Any] = {
        "pins": PINS,
        "needs": NEEDS,
        "choices": (CHOICE,),
        "host": HOST,
        "frameworks": ("torch",),
        "data": "2026-01-01",
    }
    return Lock(**{**fields, **changes})


def check(name: str, subject: str, status: str, evidence: str) -> Check:
    return Check(name=name, subject=subject, status=status, evidence=evidence)


CHECKS = (
    check("interpreter", "", "pass", "cpython 3.12.3"),
    check("torch", "import", "pass", "torch 2.15.0, CUDA 13.2"),
)
FAILED = (*CHECKS, check("cudnn", "libraries", "fail", "libcudnn_ops.so.9 is missing"))
NO_DEVICE = (*CHECKS, check("device", "", "unknown", "nothing ran on a GPU"))


def cause(identifier: str, title: str, fix: str, scope: str, *, root: bool = False) -> Cause:
    return Cause(
        id=identifier,
        title=title,
        layer="driver",
        rank=1,
        scope=scope,
        root=root,
        solve=False,
        proves=(),
        refutes=(),
        fix=fix,
    )


CAUSES = {
    "driver_too_old": cause(
        "driver_too_old",
        "The driver is too old for the build",
        "Install driver 580.65.06 or newer.",
        "host",
        root=True,
    ),
    "lib_shadowing": cause(
        "lib_shadowing", "Another library shadows one", "Remove the entry.", "environment"
    ),
    "program_error": cause("program_error", "The program fails", "Read its log.", "program"),
    "cudnn_init_failed_unknown": cause(
        "cudnn_init_failed_unknown", "cuDNN did not start", "", "host"
    ),
}
TESTS = {"fresh-process": "cuDNN starts in a fresh process", "nvml": "nvmlInit succeeds"}
ENTRY = Shadow(variable="LD_LIBRARY_PATH", entry="/opt/cudnn/lib64", libraries=("libcudnn.so.9",))


def verdict(cause: str, confidence: str = "proved") -> Verdict:
    evidence = ("log line 2: CUDNN_STATUS_NOT_INITIALIZED",)
    return Verdict(cause=cause, confidence=confidence, evidence=evidence, fix=CAUSES[cause].fix)


def diagnosed(*verdicts: Verdict, name: str = "train.log", **changes: Any) -> list[str]:
    fields: dict[str, Any] = {
        "diagnosis": Diagnosis(verdicts=verdicts),
        "host": HOST,
        "target": "/srv/env",
        "checks": (),
        "test_results": (),
        "remedy": None,
        "shadows": (),
        "origin": find_origin((), HOST) if name else None,
    }
    examination = Examination(**{**fields, **changes})
    return doctor.doctor_lines(examination, CAUSES, TESTS, name, verbose=True)


def many_reasons(code: str, count: int) -> list[Reason]:
    reasons = []
    for minor in range(count, 0, -1):
        have = f"sm_{minor}0"
        reasons.append(reason(code, f"torch 2.{minor}.0", "code for compute capability 9.0", have))
    return reasons


def state(status: str, **changes: Any) -> list[str]:
    fields: dict[str, Any] = {"profile": "h100", "path": "pylock.h100.toml", "status": status}
    return locks.states_lines([State(**{**fields, **changes})])


def variant(**changes: Any) -> Variant:
    fields: dict[str, Any] = {
        "distribution": "torch",
        "version": "2.15.0+cu132",
        "variant": "cu132",
        "platform": PLATFORM,
        "cuda": "13.2",
        "cudnn": "9.26.0.51",
        "code": Code(sass=("90",), ptx=(), evidence="scanned", source="torch.whl", some=("100",)),
        "indexes": ("default",),
        "requires_python": ">=3.10",
        "bad": ("avoid", "it leaks memory", "issue list"),
    }
    return Variant(**{**fields, **changes})


RELEASE = Release(version="2.15.0", variants=(variant(),))
TORCH = Entry(
    name="torch", kind="framework", distributions=("torch",), on_path=True, releases=(RELEASE,)
)
CUDNN = Entry(name="nvidia-cudnn-cu13", kind="library", distributions=(), on_path=True, releases=())
CHANGE = Change(change="driver 580.65.06", gives="torch 2.15.0")
PROFILES = (
    Profile(name="h100", python="3.12"),
    Profile(name="ci", python="3.12"),
)
PROJECT = Project(path="pyproject.toml", folder="", profiles=PROFILES)


# ---- the messages -------------------------------------------------------------------------------


def error_messages() -> dict[str, list[str]]:
    explanation = Explanation(subject="torch==2.15.0", reasons=(FLOOR, AVOID), changes=(CHANGE,))
    hopeless = Explanation(
        subject="nosuch", reasons=(reason("two-owners", "a", "one owner", "b and c"),)
    )
    missing = reason("not-in-index", "nosuch", "a wheel", "not found on any index")
    unknown = Explanation(subject="nosuch", reasons=(missing,))
    errors: dict[str, GpuEnvError] = {
        "input": InputError("--gpu H1000: not known", hint="give a name such as H100"),
        "index": PackageIndexError("the index did not answer", hint="try again, or use --offline"),
        "no solution": NoSolutionError(explanation),
        "no solution, nothing helps": NoSolutionError(hopeless),
        "no solution, an unknown package": NoSolutionError(unknown),
        "host mismatch": HostMismatchError("the lock does not fit this host", (FLOOR,)),
    }
    return {f"error: {name}": plans.error_lines(error) for name, error in errors.items()}


def refusal_messages() -> dict[str, list[str]]:
    explanation = Explanation(subject="torch==2.15.0", reasons=(FLOOR,), changes=(CHANGE,))
    owners = [
        reason("two-owners", folder, "one owner", "a 1 and b 2")
        for folder in ("nvidia/cudnn", "nvidia/nccl")
    ]
    shared = [FLOOR, FLOOR.replace(subject="torch 2.14.1"), FLOOR.replace(subject="torch 2.14.0")]
    needs = many_reasons("no-code-for-device", 8)
    several = [one.replace(need=f"{one.need}.{place}") for place, one in enumerate(needs)]
    groups = [reason("conflict", f"p{place} 1", "a", "b") for place in range(5)]
    return {
        "explain: impossible": refusals.impossible_lines(explanation, HOST),
        "explain: possible": refusals.possible_lines(
            plan(
                skipped=(Rejection(name="torch", version="2.15.0", reasons=(FLOOR,)),),
                warnings=(AVOID,),
            )
        ),
        "explain: no framework": refusals.possible_lines(plan(choices=())),
        "explain: two builds": refusals.reason_lines(shared[:2], 9),
        "explain: three builds": refusals.reason_lines(shared, 9),
        "explain: owners of two folders": refusals.reason_lines(owners, 9),
        "explain: facts drawn together": refusals.reason_lines(needs, 3),
        "explain: first and last fact": refusals.reason_lines(several, 3),
        "explain: too many facts": refusals.reason_lines(groups, 3),
        "lock: would not work": locks.lock_check_lines("pylock.toml", "gpuenv", 2, [FLOOR], HOST),
        "lock: may not work": locks.lock_check_lines(
            "pylock.toml", "uv", 2, [UNKNOWN_RELEASE], HOST
        ),
        "lock: works": locks.lock_check_lines("pylock.toml", "uv", 1, [AVOID], HOST),
    }


def plan_messages() -> dict[str, list[str]]:
    rejections = tuple(
        Rejection(name="torch", version=f"2.{minor}.0", reasons=(FLOOR, AVOID))
        for minor in range(15, 10, -1)
    )
    steps = [
        Step(name="torch", old=None, new="2.15.0"),
        Step(name="numpy", old="1.0", new="2.3.5"),
        Step(name="old", old="1.0", new=None),
    ]
    unknown_driver = plan(host=NO_GPU, choices=(), pins=PINS[:1])
    return {
        "host": plans.host_lines(HOST),
        "host: no GPU": plans.host_lines(NO_GPU),
        "host: unknown facts": plans.host_lines(UNKNOWN),
        "solve": plans.plan_lines(plan(skipped=rejections, warnings=(AVOID,)), "pylock.toml"),
        "solve -v": plans.plan_lines(plan(skipped=rejections), "pylock.toml", verbose=True),
        "solve: nothing written": plans.solution_lines(plan(), (), next_step="gpuenv solve torch"),
        "solve: unknown driver": plans.plan_lines(unknown_driver, "pylock.toml"),
        "pip install": render_changes.step_lines(plan(), steps, dry=False),
        "pip install: dry run": render_changes.step_lines(plan(), steps, dry=True),
        "pip install: nothing": render_changes.step_lines(
            plan(choices=(), warnings=(AVOID,)), (), dry=False
        ),
    }


def lock_messages() -> dict[str, list[str]]:
    changes = Comparison(
        packages=(("numpy", "2.3.4", "2.3.5"), ("added", None, "1.0"), ("gone", "2.0", None)),
        files=("torch",),
    )
    fresh = State(profile="h100", path="pylock.h100.toml", status="fresh")
    driver = Difference(key="driver", was="550.54.14", now="580.65.06")
    text_list = Difference(key="frameworks", was=("torch",), now=("torch>=2.9",))
    long_list = Difference(key="requirements", was=("a",), now=("b", "c", "d", "e"))
    begun = Beginning(
        path="pyproject.toml",
        addition='[tool.gpuenv]\nframeworks = ["torch"]\n\n[tool.gpuenv.profiles.h100]\ngpu = '
        '"H100"\n',
        frameworks=("torch",),
        profiles=("h100",),
        python="3.12",
    )
    old = lock(data="2025-12-01", needs=NEEDS.replace(driver=None, compute_capabilities=()))
    stale = fresh.replace(status="stale", differences=(driver,))
    return {
        "lock: new": locks.lock_lines("pylock.toml", None, lock(), Comparison(), [AVOID]),
        "lock: changed": locks.lock_lines("pylock.toml", old, lock(), changes, ()),
        "lock: fresh": state("fresh", newer_data="2026-02-01"),
        "lock: missing": state("missing"),
        "lock: stale": state("stale", differences=(driver, text_list, long_list)),
        "lock: tampered": state("tampered", detail="pylock.h100.toml: was edited"),
        "lock: unreadable": state("unreadable", detail="pylock.h100.toml: is not TOML"),
        "init": locks.beginning_lines(begun, [HOST]),
        "init: no GPU": locks.beginning_lines(begun, [NO_GPU]),
        "sync": locks.chosen_lines(PROJECT, PROFILES[:1], fresh),
        "sync: two fit": locks.chosen_lines(PROJECT, PROFILES, stale),
    }


def check_messages() -> dict[str, list[str]]:
    preload = Shadow(variable="LD_PRELOAD", entry="/a/libcudnn.so.9", libraries=("libcudnn.so.9",))
    names = tuple(f"lib{letter}.so" for letter in "abcde")
    return {
        "verify": checks.summary_lines(CHECKS),
        "verify: failed": checks.summary_lines(FAILED, next_step="gpuenv doctor --target env"),
        "verify: unknown": checks.summary_lines(NO_DEVICE),
        "verify -v": checks.check_lines(CHECKS),
        "verify -v: failed": checks.check_lines(FAILED, next_step="gpuenv doctor --target env"),
        "verify -v: unknown": checks.check_lines(NO_DEVICE),
        "hook: ok": [checks.hook_line(CHECKS, HOST, 3.14, device=True)],
        "hook: no GPU used": [checks.hook_line(CHECKS[:1], HOST, 3.14, device=False)],
        "hook: failed": [checks.hook_line((*FAILED, *FAILED), HOST, 3.14, device=True)],
        "hook: unknown": [checks.hook_line(NO_DEVICE, HOST, 3.14, device=True)],
        "hook: nothing checked": [checks.hook_line((), HOST, 0.0, device=True)],
        "run: removed": render_changes.shadow_lines([ENTRY], "/srv/env"),
        "run: removed, several libraries": render_changes.shadow_lines(
            [ENTRY.replace(libraries=names)], "/srv/env"
        ),
        "run: behind": render_changes.shadow_lines([ENTRY.replace(kept=True)], "/srv/env"),
        "run: preload": render_changes.shadow_lines([preload], "/srv/env"),
    }


def doctor_messages() -> dict[str, list[str]]:
    old = verdict("driver_too_old")
    unsettled = Diagnosis(
        abstained=True,
        verdicts=(verdict("cudnn_init_failed_unknown", "possible"),),
        failures=verdict("cudnn_init_failed_unknown").evidence,
        next_tests=("nvml", "fresh-process"),
    )
    solved = Remedy(
        asked=("torch==2.13.0",),
        command=("gpuenv", "install", "--target", "a b"),
        choices=(CHOICE,),
    )
    changes = Remedy(asked=("torch",), changes=(("driver 580.65.06", "torch 2.15.0"),))
    failure = Remedy(asked=("torch",), failure="no release of torch has a wheel")
    result = Shown(test="nvml", device=0, status="pass", evidence="nvmlInit returns 0")
    return {
        "doctor: root": diagnosed(old),
        "doctor: remedy": diagnosed(old, remedy=solved),
        "doctor: no remedy": diagnosed(old, remedy=failure),
        "doctor: changes help": diagnosed(old, remedy=changes),
        "doctor: loader": diagnosed(
            verdict("lib_shadowing", "likely"),
            verdict("program_error", "possible"),
            shadows=(ENTRY,),
        ),
        "doctor: program": diagnosed(verdict("program_error"), test_results=(result,)),
        "doctor: abstained": diagnosed(diagnosis=unsettled, test_results=()),
        "doctor: nothing in the log": diagnosed(checks=CHECKS),
        "doctor: no GPU": diagnosed(
            host=WITHOUT_GPU, origin=find_origin((), WITHOUT_GPU), target=None
        ),
        "doctor: other host": diagnosed(
            origin=find_origin((Fact(kind="driver", value="470.57.02"),), HOST), target=None
        ),
        "doctor: other environment": diagnosed(
            other_environment="the log names torch 2.1, and the environment has 2.9.0"
        ),
        "doctor: a check failed": diagnosed(checks=FAILED),
        "doctor: no log": diagnosed(name="", checks=CHECKS, host=NO_GPU),
        "doctor: host only": diagnosed(name="", target=None),
    }


def matrix_messages() -> dict[str, list[str]]:
    return {
        "matrix list": matrix.entries_lines((TORCH, CUDNN)),
        "matrix show": matrix.entry_lines(TORCH, PLATFORM),
        "matrix show: no release": matrix.entry_lines(CUDNN, PLATFORM),
        "matrix show: release": matrix.release_lines("torch", RELEASE, PLATFORM),
    }


def reason_messages() -> dict[str, list[str]]:
    messages: dict[str, list[str]] = {}
    for code, subject, need, have in REASONS:
        text = values.reason_text(reason(code, subject, need, have))
        messages.setdefault(f"reason: {code}", []).append(text)
    missing = reason("not-in-index", "nosuch", "a wheel", "not found on any index")
    of_torch = missing.replace(dependent="torch 2.15.0")
    messages["reason: not-in-index"].append(values.reason_text(of_torch))
    return messages


KINDS: tuple[Callable[[], dict[str, list[str]]], ...] = (
    reason_messages,
    error_messages,
    refusal_messages,
    plan_messages,
    lock_messages,
    check_messages,
    doctor_messages,
    matrix_messages,
)


def all_messages() -> dict[str, list[str]]:
    messages: dict[str, list[str]] = {}
    for kind in KINDS:
        messages |= kind()
    return messages


# ---- the tests ----------------------------------------------------------------------------------


MESSAGES = all_messages()
RECORDS = {record["name"]: record["lines"] for record in json.loads(RECORDED.read_text())}


def test_every_message_is_recorded() -> None:
    assert list(MESSAGES) == list(RECORDS)


@pytest.mark.parametrize("name", MESSAGES)
def test_the_text_of_a_message(name: str) -> None:
    assert MESSAGES[name] == RECORDS[name]


def is_table(name: str) -> bool:
    """Return whether columns align the lines of a message, so that double spaces are right."""
    return name.startswith(
        ("matrix list", "matrix show", "host", "init", "solve", "verify", "doctor")
    )


def sentences(lines: list[str]) -> list[str]:
    """Return the lines with those joined that `refusals.wrapped` has parted."""
    whole: list[str] = []
    indent = 0
    for line in lines:
        own = len(line) - len(line.lstrip())
        if whole and own == indent + 4:
            whole[-1] += f" {line.strip()}"
        else:
            whole.append(line)
            indent = own
    return whole


@pytest.mark.parametrize("name", MESSAGES)
def test_the_grammar_of_a_message(name: str) -> None:
    assert MESSAGES[name]
    for line in sentences(MESSAGES[name]):
        text = line.strip()
        assert line.isascii()
        assert line == line.rstrip()
        assert is_table(name) or "  " not in text
        assert not text.endswith((" ;", ";", ",", " :"))
        assert " ;" not in text and " ," not in text and "None" not in text
        doubled = re.search(r"\b([A-Za-z]+) \1\b", text)
        assert doubled is None, doubled
        assert [phrase for phrase in REPLACED if phrase in text] == []
    first = MESSAGES[name][0]
    assert name.startswith("explain: ") or first == first.lstrip()


def record() -> None:
    rows = [{"name": name, "lines": lines} for name, lines in MESSAGES.items()]
    RECORDED.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    record()
    sys.exit(0)
