"""The facts of the host and of checks, case by case: each threshold, table row and branch."""

import re

import pytest

import gpuenv
from gpuenv.compat.data import load
from gpuenv.compat.parts import known_builds
from gpuenv.doctor import check_facts, host_facts
from gpuenv.doctor.catalog import causes
from gpuenv.doctor.facts import (
    Case,
    is_absence,
    is_mostly_free,
    is_nearly_full,
    unsure_of,
    with_names,
)
from gpuenv.doctor.model import KINDS, PROBE_TESTS, TESTS, Fact
from gpuenv.errors import Reason
from gpuenv.model import Check, Gpu, Host, Problem
from gpuenv.verify import probe_tests

MIB = 1 << 20
GIB = 1 << 30
HOST = gpuenv.describe(
    gpus=["H100"], driver="550.54.14", python="3.12", platform="linux-x86_64", glibc="2.35"
)

Row = tuple[str, str, str]


def rows(facts: tuple[Fact, ...]) -> list[Row]:
    return [(fact.kind, fact.subject, fact.value) for fact in facts]


def results(facts: tuple[Fact, ...]) -> dict[str, str]:
    """Return the tests with their results."""
    return {fact.subject: fact.value for fact in facts if fact.kind == "test"}


def host_with(*gpus: Gpu, **changes: object) -> Host:
    return HOST.replace(gpus=gpus, **changes)


def gpu(**fields: object) -> Gpu:
    base: dict[str, object] = {"name": "NVIDIA H100", "compute_capability": (9, 0)}
    return HOST.gpus[0].replace(**base | fields)


# ---- memory -------------------------------------------------------------------------------------

MEMORY = [
    # free, total, result
    (0, 80 * GIB, "fail"),
    (600 * MIB - 1, 1 * GIB, "fail"),  # too little, although more than half is free
    (600 * MIB, 1 * GIB, "pass"),
    (600 * MIB, 2400 * MIB, "unknown"),  # a quarter exactly
    (600 * MIB + 1, 2400 * MIB, "pass"),
    (8 * GIB - 1, 80 * GIB, "fail"),  # below a tenth
    (8 * GIB, 80 * GIB, "unknown"),  # a tenth exactly
    (20 * GIB, 80 * GIB, "unknown"),
    (20 * GIB + 1, 80 * GIB, "pass"),
    (80 * GIB, 80 * GIB, "pass"),
]


@pytest.mark.parametrize(("free", "total", "result"), MEMORY)
def test_free_memory_is_judged_by_its_size_and_its_share(
    free: int, total: int, result: str
) -> None:
    assert host_facts.memory_status(free, total) == result
    assert is_nearly_full(free, total) is (result == "fail")
    assert is_mostly_free(free, total) is (free > total / 4)
    facts = host_facts.host_facts(host_with(gpu(memory_free=free, memory_total=total)))
    assert results(facts)["free-memory"] == result


def test_sizes_are_shown_in_mebibytes_and_percent() -> None:
    assert host_facts.memory_text(40 * MIB, 81920 * MIB) == "40 MiB free of 81920 MiB (0 %)"
    assert host_facts.memory_text(3 * MIB + 1, 4 * MIB) == "3 MiB free of 4 MiB (75 %)"
    assert host_facts.memory_text(MIB, MIB) == "1 MiB free of 1 MiB (100 %)"


def test_the_gpu_with_the_smallest_free_share_decides() -> None:
    small_but_free = gpu(memory_free=7 * GIB, memory_total=8 * GIB)
    large_but_full = gpu(memory_free=16 * GIB, memory_total=80 * GIB)
    for order in ((small_but_free, large_but_full), (large_but_full, small_but_free)):
        facts = host_facts.host_facts(host_with(*order))
        (test,) = [fact for fact in facts if fact.subject == "free-memory"]
        assert test.value == "unknown"
        assert (
            test.text == f"GPU {order.index(large_but_full)} has 16384 MiB free of 81920 MiB (20 %)"
        )


@pytest.mark.parametrize(("free", "total"), [(None, 80 * GIB), (GIB, None), (GIB, 0), (None, None)])
def test_unknown_memory_gives_no_fact(free: int | None, total: int | None) -> None:
    facts = host_facts.host_facts(host_with(gpu(memory_free=free, memory_total=total)))
    assert not {"free-bytes", "total-bytes"} & {fact.kind for fact in facts}
    assert "free-memory" not in results(facts)


def test_a_gpu_without_free_memory_is_known() -> None:
    facts = host_facts.host_facts(host_with(gpu(memory_free=0, memory_total=80 * GIB)))
    assert ("free-bytes", "0", "0") in rows(facts)
    assert ("total-bytes", "0", str(80 * GIB)) in rows(facts)


# ---- the host -----------------------------------------------------------------------------------


def test_a_detected_host_states_all_that_is_known() -> None:
    host = host_with(
        gpu(compute_mode="default"),
        gpu(name="Tesla V100", compute_capability=None),
        driver_cuda=(12, 4),
        sources=(("driver", "/proc/driver/nvidia/version"),),
        virtualization=None,
        problems=(),
    )
    facts = host_facts.host_facts(host)
    assert rows(facts) == [
        ("driver", "", "550.54.14"),
        ("driver-cuda", "", "12.4"),
        ("gpu", "0", "NVIDIA H100"),
        ("capability", "0", "9.0"),
        ("compute-mode", "0", "default"),
        ("gpu", "1", "Tesla V100"),
        ("test", "nvml", "pass"),
        ("container", "", "no"),
        ("wsl", "", "no"),
    ]
    assert [fact.where for fact in facts] == [
        "host: /proc/driver/nvidia/version",
        *["host: NVML"] * 6,
        *["host: /proc"] * 2,
    ]


def test_a_described_host_states_its_gpus_and_its_driver_only() -> None:
    host = host_with(
        gpu(),
        driver_cuda=None,
        sources=(("driver", "/proc"),),
        virtualization="container",
        problems=(Problem(code="no-gpu", detail="none"),),
    )
    facts = host_facts.host_facts(host, described=True)
    assert [fact.kind for fact in facts] == ["driver", "gpu", "capability"]
    assert {fact.where for fact in facts} == {"host: as described"}


def test_a_host_without_a_gpu_has_no_nvml_test() -> None:
    host = host_with(driver=None, driver_cuda=None, virtualization=None, problems=())
    assert rows(host_facts.host_facts(host)) == [("container", "", "no"), ("wsl", "", "no")]


@pytest.mark.parametrize(
    ("virtualization", "container", "wsl", "words"),
    [
        (None, "no", "no", "in no container"),
        ("container", "yes", "no", "in a container"),
        ("wsl2", "no", "yes", "in WSL 2"),
        ("tegra", "no", "no", "on a Jetson"),
    ],
)
def test_where_the_process_runs(
    virtualization: str | None, container: str, wsl: str, words: str
) -> None:
    facts = host_facts.host_facts(host_with(virtualization=virtualization, problems=()))
    values = {fact.kind: fact for fact in facts}
    assert (values["container"].value, values["wsl"].value) == (container, wsl)
    assert values["container"].text.endswith(words)


PROBLEMS: dict[str, list[Row]] = {
    "no-gpu": [("pci-gpu", "", "0")],
    "driver-not-installed": [
        ("pci-gpu", "", "1"),
        ("module", "nvidia", "missing"),
        ("test", "nvml", "fail"),
        ("test", "libcuda", "fail"),
    ],
    "driver-not-loaded": [
        ("module", "nvidia", "absent"),
        ("status", "nvml", "NVML_ERROR_DRIVER_NOT_LOADED"),
        ("test", "nvml", "fail"),
    ],
    "driver-libraries-missing": [
        ("module", "nvidia", "loaded"),
        ("test", "nvml", "fail"),
        ("test", "libcuda", "fail"),
    ],
    "driver-libraries-broken": [("test", "nvml", "fail")],
    "driver-libraries-off-path": [("test", "libcuda", "fail")],
    "driver-library-mismatch": [
        ("status", "nvml", "NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
        ("test", "driver-versions", "fail"),
        ("test", "nvml", "fail"),
    ],
    "libcuda-missing": [("test", "libcuda", "fail")],
    "nvml-library-not-found": [
        ("status", "nvml", "NVML_ERROR_LIBRARY_NOT_FOUND"),
        ("test", "nvml", "fail"),
    ],
    "nvml-unknown-error": [("status", "nvml", "NVML_ERROR_UNKNOWN"), ("test", "nvml", "fail")],
    "nvml-error": [("test", "nvml", "fail")],
    "nvml-timeout": [("test", "nvml", "fail")],
    "no-permission": [
        ("status", "nvml", "NVML_ERROR_NO_PERMISSION"),
        ("device-node", "/dev/nvidiactl", "denied"),
        ("test", "device-open", "fail"),
    ],
    "gpu-lost": [("status", "nvml", "NVML_ERROR_GPU_IS_LOST"), ("test", "health", "fail")],
    "gpu-reset-required": [
        ("status", "nvml", "NVML_ERROR_RESET_REQUIRED"),
        ("test", "health", "fail"),
    ],
    "compute-prohibited": [("says", "gpu_busy_or_exclusive", "compute-prohibited")],
    "mig-no-instance": [("says", "gpu_busy_or_exclusive", "mig-no-instance")],
    "devices-hidden": [("test", "visible-devices", "fail")],
    "visible-device-missing": [("test", "visible-devices", "fail")],
    "visible-devices-repeated": [("test", "visible-devices", "fail")],
    "not-known-to-the-doctor": [],
}


@pytest.mark.parametrize(("code", "expected"), PROBLEMS.items(), ids=list(PROBLEMS))
def test_a_problem_of_the_detection_gives_its_facts(code: str, expected: list[Row]) -> None:
    problem = Problem(code=code, detail="the   detail\nof it")
    facts = host_facts.host_facts(host_with(driver=None, driver_cuda=None, problems=(problem,)))
    of_problem = [fact for fact in facts if fact.where == "host: detection"]
    assert [(fact.kind, fact.subject, fact.value) for fact in of_problem] == expected
    assert all(fact.text == f"{code}: the detail of it" for fact in of_problem)


def test_facts_use_the_vocabulary() -> None:
    for expected in PROBLEMS.values():
        for kind, subject, _value in expected:
            assert kind in KINDS
            assert kind != "test" or subject in TESTS
            assert kind != "says" or subject in causes()


def test_a_text_is_one_line_of_limited_length() -> None:
    fact = host_facts.fact("gpu", "0", "x", "host: NVML", " a\n b\t" + "c" * 400)
    assert fact.text == ("a b " + "c" * 400)[:300]
    assert not fact.from_log


@pytest.mark.parametrize(
    ("state", "result"), [("yes", "pass"), ("denied", "fail"), ("missing", None)]
)
def test_device_nodes(state: str, result: str | None) -> None:
    facts = host_facts.node_facts({"/dev/nvidiactl": state, "/dev/nvidia0": "yes"})
    assert ("device-node", "/dev/nvidiactl", state) in rows(facts)
    assert ("device-node", "/dev/nvidia0", "yes") in rows(facts)
    assert results(facts).get("device-open") == result


def test_another_device_node_is_no_test() -> None:
    assert results(host_facts.node_facts({"/dev/nvidia0": "denied"})) == {}


def test_variables_that_matter_are_facts() -> None:
    names = ["CUDA_HOME", "CUDNN_LOGLEVEL_DBG", "JAX_PLATFORMS", "LD_LIBRARY_PATH", "LD_PRELOAD",
             "NCCL_DEBUG", "NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES", "PYTORCH_ALLOC_CONF",
             "TF_CPP_MIN_LOG_LEVEL", "TORCH_CUDNN_V8_API_ENABLED", "XLA_FLAGS"]  # fmt: skip
    others = ["PATH", "HOME", "LD_DEBUG", "NVIDIA_X", "MY_CUDA_HOME", "CUDA", "TORCH_HOME"]
    env = dict.fromkeys([*others, *reversed(names)], "value")
    facts = host_facts.variable_facts(env)
    assert rows(facts) == [("variable", name, "value") for name in names]
    assert facts[0].where == "host: variable CUDA_HOME"


# ---- packages -----------------------------------------------------------------------------------


def test_libraries_of_cuda_are_facts_and_others_are_not() -> None:
    names = ["libcudnn.so.9", "libcublas.so.12", "libcudart.so.12", "libnvrtc.so.12",
             "libnccl.so.2", "libcusparse.so.12", "libcusolver.so.11", "libcufft.so.11",
             "libcurand.so.10", "libnvJitLink.so.12"]  # fmt: skip
    others = ["libtorch.so", "libcudnn.txt", "mylibcudnn.so"]
    paths = [f"/e/{name}" for name in [*others, *names]]
    facts = host_facts.package_facts([("torch", "2.13.0")], paths, ())
    assert rows(facts) == [
        ("package", "torch", "2.13.0"),
        *[("library-present", name, f"/e/{name}") for name in names],
    ]


def test_builds_state_their_cuda_and_their_cudnn() -> None:
    (build,) = known_builds([("torch", "2.13.0")], HOST.platform, load())
    assert build.cuda is not None and build.cudnn is not None
    cuda, cudnn = f"{build.cuda[0]}.{build.cuda[1]}", ".".join(build.cudnn.split(".")[:3])
    assert rows(host_facts.package_facts((), (), [build])) == [
        ("framework", "torch", "2.13.0"),
        ("cuda-built", "torch", cuda),
        ("test", "cuda-build", "pass"),
        ("cudnn-built", "torch", cudnn),
    ]
    cpu = build.replace(cuda=None, cudnn=None)
    assert rows(host_facts.package_facts((), (), [cpu])) == [
        ("framework", "torch", "2.13.0"),
        ("cuda-built", "torch", "none"),
    ]


PRESENCE = [
    # libraries of the environment, of the system, distributions, result
    ([], [], [], "fail"),
    (["/e/libcudnn.so.9"], [], [], "pass"),
    ([], ["/usr/lib/libcudnn.so.9"], [], "pass"),
    (["/e/libcublas.so.12"], [], [], "fail"),
    ([], [], [("nvidia-cudnn-cu12", "9.1")], None),  # the checks explain it
    ([], [], [("numpy", "2.0"), ("nvidia-cudnn-cu12", "9.1")], None),
    ([], [], [("nvidia-cublas-cu12", "12.1")], "fail"),
    (["/e/libcublas.so.12", "/e/libcudnn.so.9"], [], [], "pass"),
    (["/e/libcudnn.so.9"], [], [("nvidia-cudnn-cu12", "9.1")], "pass"),
]


@pytest.mark.parametrize(("own", "system", "distributions", "result"), PRESENCE)
def test_whether_a_cudnn_exists(
    own: list[str], system: list[str], distributions: list[tuple[str, str]], result: str | None
) -> None:
    facts = host_facts.presence_facts(own, system, distributions)
    assert results(facts).get("cudnn-present") == result
    assert [fact.value for fact in facts if fact.kind == "library-present"] == system


# ---- rules --------------------------------------------------------------------------------------

CUDA_BUILDS = known_builds([("torch", "2.13.0")], HOST.platform, load())
CUDNN = [("nvidia-cudnn-cu12", "9.10.2.21")]
FAILS = {
    "driver-cuda": "driver-runtime",
    "driver-floor": "driver-runtime",
    "gpu-needs-newer-driver": "driver-runtime",
    "ptx-needs-newer-driver": "driver-runtime",
    "no-code-for-device": "architecture",
    "jetson-wheel": "architecture",
    "cudnn-version": "cudnn-version",
    "cuda-variant": "companions",
    "extension-abi": "companions",
    "extension-cuda": "companions",
    "extension-release": "companions",
    "bad-pair": "companions",
    "cuda-major": "one-cuda-major",
    "two-owners": "one-cuda-major",
}
DOUBTS = {
    "code-unknown": "architecture",
    "device-unknown": "architecture",
    "build-unknown": "architecture",
    "library-unknown": "architecture",
    "driver-floor-unknown": "driver-runtime",
    "driver-unknown": "driver-runtime",
    "cudnn-version-unknown": "cudnn-version",
    "cudnn-unknown": "cudnn-version",
}
PASSES = {"driver-runtime": "pass", "architecture": "pass", "cudnn-version": "pass"}


def reason(code: str, need: str = "more", have: str = "less") -> Reason:
    return Reason(code=code, subject="torch 2.13.0 cu126", need=need, have=have)


@pytest.mark.parametrize(("code", "test"), FAILS.items())
def test_a_reason_fails_its_test(code: str, test: str) -> None:
    facts = host_facts.reason_facts([reason(code)], HOST, CUDA_BUILDS, CUDNN)
    assert results(facts) == PASSES | {test: "fail"}
    assert facts[0].text == "torch 2.13.0 cu126 needs more; found less"


@pytest.mark.parametrize(("code", "test"), DOUBTS.items())
def test_a_doubt_keeps_its_test_from_passing(code: str, test: str) -> None:
    facts = host_facts.reason_facts([reason(code)], HOST, CUDA_BUILDS, CUDNN)
    assert results(facts) == {name: "pass" for name in PASSES if name != test}


def test_a_reason_that_fails_no_test_hides_no_other_one() -> None:
    reasons = [reason("python-version"), reason("driver-cuda"), reason("code-unknown")]
    facts = host_facts.reason_facts(reasons, HOST, CUDA_BUILDS, CUDNN)
    assert results(facts) == {"driver-runtime": "fail", "cudnn-version": "pass"}


def test_without_reasons_the_rules_pass_for_what_is_known() -> None:
    def of(host: Host, builds: tuple[object, ...] = CUDA_BUILDS, pins: object = CUDNN) -> set[str]:
        facts = host_facts.reason_facts([], host, builds, pins)  # type: ignore[arg-type]
        return set(results(facts))

    assert of(HOST) == set(PASSES)
    assert of(HOST.replace(driver=None)) == {"architecture", "cudnn-version"}
    assert of(HOST.replace(gpus=())) == {"driver-runtime", "cudnn-version"}
    assert of(HOST, pins=[("nvidia-cublas-cu12", "12")]) == {"driver-runtime", "architecture"}
    assert of(HOST, pins=[("numpy", "2.0"), *CUDNN, ("jax", "0.4")]) == set(PASSES)
    assert of(HOST, builds=()) == set()
    cpu = CUDA_BUILDS[0].replace(cuda=None, cudnn=None)
    assert of(HOST, builds=(cpu,)) == set()
    assert of(HOST, builds=(cpu, CUDA_BUILDS[0])) == set(PASSES)


def test_a_cpu_build_fails_only_without_a_cuda_build() -> None:
    alone = host_facts.reason_facts([reason("cpu-build")], HOST, (), ())
    assert rows(alone) == [("test", "cuda-build", "fail"), ("cuda-built", "torch", "none")]
    beside = host_facts.reason_facts([reason("cpu-build")], HOST, CUDA_BUILDS, CUDNN)
    assert rows(beside)[0] == ("cuda-built", "torch", "none")
    assert results(beside) == PASSES


@pytest.mark.parametrize(
    ("have", "architectures"),
    [
        ("sm_70 sm_75 compute_75", "7.0 7.5"),
        ("sm_90a sm_100f compute_120", "9.0 10.0 12.0"),
        ("unknown architectures", None),
    ],
)
def test_missing_code_names_what_the_build_has(have: str, architectures: str | None) -> None:
    need = "code for compute capability 6.1 (GTX 1080)"
    facts = host_facts.reason_facts([reason("no-code-for-device", need, have)], HOST, (), ())
    by_kind = {fact.kind: fact for fact in facts}
    missing = by_kind["architecture-missing"]
    assert (missing.subject, missing.value) == ("torch", need)
    assert by_kind.get("architectures", Fact(kind="")).value == (architectures or "")


# ---- checks -------------------------------------------------------------------------------------

Marks = tuple[tuple[str, str, str], ...]


def check(name: str, subject: str, status: str, *marks: tuple[str, str, str]) -> Check:
    return Check(name=name, subject=subject, status=status, evidence="seen", marks=marks)


NO_CODE = ("no-code", "y.so", "9.0")
VARIABLES = check("loader", "variables", "fail")
CHECKS: list[tuple[str, list[Check], list[Row]]] = [
    ("variables", [check("loader", "variables", "fail")], [("test", "loader-path", "fail")]),
    ("other loader checks", [check("loader", "cache", "fail")], []),
    ("build", [check("build", "torch 2.13.0", "pass")], [("test", "cuda-build", "pass")]),
    ("glibc", [check("glibc", "", "fail")], [("test", "libc", "fail")]),
    ("unknown", [check("build", "torch", "unknown")], []),
    ("libraries", [check("cudnn", "libraries", "pass")], [("test", "cudnn-complete", "pass")]),
    ("unknown libraries", [check("cudnn", "libraries", "unknown")], []),
    (
        "no cuDNN",
        [check("cudnn", "libraries", "fail", ("none", "", ""))],
        [("test", "cudnn-present", "fail")],
    ),
    (
        "another release's symbol",
        [check("cudnn", "libraries", "fail", ("symbol", "libcudnn_cnn.so.9", "f"))],
        [("test", "one-folder", "fail")],
    ),
    (
        "a symbol, for a missing library",
        [
            check(
                "cudnn",
                "libraries",
                "fail",
                ("symbol", "libcudnn_cnn.so.9", "f"),
                ("missing", "libcudnn_ops.so.9", ""),
            ),
        ],
        [("test", "cudnn-complete", "fail")],
    ),
    (
        "a symbol, and a missing library of another kind",
        [
            check(
                "cudnn",
                "libraries",
                "fail",
                ("symbol", "libcudnn_cnn.so.9", "f"),
                ("missing", "libcublas.so.12", ""),
            ),
        ],
        [("test", "one-folder", "fail")],
    ),
    (
        "version",
        [check("cudnn", "version", "pass", ("version", "9.10.2", ""))],
        [("cudnn-loaded", "", "9.10.2"), ("test", "one-folder", "pass")],
    ),
    (
        "unknown version",
        [check("cudnn", "version", "unknown", ("version", "9.10.2", ""))],
        [("cudnn-loaded", "", "9.10.2")],
    ),
    ("origin", [check("cudnn", "origin", "fail")], [("test", "one-folder", "fail")]),
    (
        "a crash",
        [check("cudnn", "origin", "fail", ("crashed", "libcudnn.so.9", ""))],
        [("test", "cudnn-complete", "fail")],
    ),
    (
        "a crash because of another release",
        [
            check("cudnn", "libraries", "fail", ("symbol", "libcudnn_cnn.so.9", "f")),
            check("cudnn", "origin", "fail", ("crashed", "libcudnn.so.9", "")),
        ],
        [("test", "one-folder", "fail"), ("test", "one-folder", "fail")],
    ),
    (
        "a missing library behind the origin",
        [
            check("cudnn", "libraries", "fail", ("missing", "libcudnn_ops.so.9", "")),
            check("cudnn", "origin", "fail"),
        ],
        [("test", "cudnn-complete", "fail"), ("test", "cudnn-complete", "fail")],
    ),
    (
        "a missing library, and a good origin",
        [
            check("cudnn", "libraries", "fail", ("missing", "libcudnn_ops.so.9", "")),
            check("cudnn", "origin", "pass"),
        ],
        [("test", "cudnn-complete", "fail"), ("test", "one-folder", "pass")],
    ),
    (
        "no code in cuDNN",
        [check("cudnn", "device version", "fail")],
        [("architecture-missing", "cudnn", "seen"), ("test", "architecture", "fail")],
    ),
    ("code in cuDNN", [check("cudnn", "device version", "pass")], []),
    (
        "closure",
        [check("closure", "", "pass")],
        [("test", "libraries-resolve", "pass"), ("test", "one-cuda-major", "pass")],
    ),
    (
        "missing libraries",
        [
            check(
                "closure",
                "",
                "fail",
                ("missing", "libcublas.so.12", "torch, jax"),
                ("missing", "libcufft.so.11", "jax"),
                ("missing", "libcudnn_ops.so.9", "torch"),
            ),
        ],
        [
            ("library-missing", "libcublas.so.12", "torch"),
            ("library-missing", "libcufft.so.11", "jax"),
            ("library-missing", "libcudnn_ops.so.9", "torch"),
            ("test", "libraries-resolve", "fail"),
            ("test", "cudnn-complete", "fail"),
        ],
    ),
    (
        "the main library of cuDNN",
        [check("closure", "", "fail", ("missing", "libcudnn.so.9", "torch"))],
        [("library-missing", "libcudnn.so.9", "torch"), ("test", "libraries-resolve", "fail")],
    ),
    (
        "mixed, broken and outside",
        [
            check(
                "closure",
                "",
                "fail",
                ("mixed", "x", ""),
                ("broken", "y", ""),
                ("outside", "libcudnn.so.9", ""),
                ("outside", "libcublas.so.12", ""),
            ),
        ],
        [
            ("test", "one-cuda-major", "fail"),
            ("test", "environment", "fail"),
            ("test", "one-folder", "fail"),
            ("test", "libraries-resolve", "fail"),
        ],
    ),
    (
        "two owners of NVIDIA",
        [check("owners", "", "fail", ("two-owners", "a.txt", "nvidia-a jax"))],
        [("test", "one-cuda-major", "fail")],
    ),
    (
        "two other owners",
        [check("owners", "", "fail", ("two-owners", "a.txt", "x y"))],
        [("test", "environment", "fail")],
    ),
    ("files", [check("files", "torch", "fail")], [("test", "environment", "fail")]),
    (
        "a handle",
        [
            check(
                "cudnn handle", "GPU 0", "fail", ("status", "cudnn", "CUDNN_STATUS_NOT_INITIALIZED")
            )
        ],
        [
            ("status", "cudnn", "CUDNN_STATUS_NOT_INITIALIZED"),
            ("test", "fresh-process", "fail"),
        ],
    ),
    (
        "a good handle",
        [check("cudnn handle", "GPU 0", "pass", ("status", "cudnn", "x"))],
        [("test", "fresh-process", "pass")],
    ),
    (
        "a wrong convolution",
        [check("cudnn convolution", "GPU 0", "fail")],
        [("test", "float32-convolution", "fail")],
    ),
    (
        "a convolution with a foreign library",
        [check("cudnn convolution", "GPU 0", "fail", ("foreign", "/usr/lib/libcudnn.so.9", ""))],
        [("test", "one-folder", "fail")],
    ),
    (
        "a good device",
        [check("device", "GPU 0", "pass")],
        [
            ("test", name, "pass")
            for name in ("libcuda", "cuinit", "context", "fabric", "driver-versions")
        ],
    ),
    (
        "no driver",
        [check("device", "driver", "fail", ("no-driver", "", ""))],
        [("test", "libcuda", "fail")],
    ),
    (
        "no memory",
        [check("device", "GPU 0", "unknown", ("memory", "", ""))],
        [("test", "free-memory", "fail")],
    ),
    (
        "a status",
        [check("device", "GPU 0", "fail", ("status", "cuda", "CUDA_ERROR_UNKNOWN"))],
        [("status", "cuda", "CUDA_ERROR_UNKNOWN")],
    ),
    ("a check without facts", [check("rules", "torch", "fail")], []),
    (
        "a file without code for the device",
        [check("device code", "torch 2.8", "fail", ("no-code", "x.so", "7.5 8.0"), NO_CODE)],
        [
            ("architectures", "torch", "7.5 8.0"),
            ("architecture-missing", "torch", "seen"),
            ("test", "architecture", "fail"),
        ],
    ),
    (
        "a file that may not be needed",
        [check("device code", "torch 2.8", "pass", NO_CODE)],
        [("architectures", "torch", "9.0")],
    ),
    (
        "a file of unknown code",
        [
            check("device code", "torch 2.8", "pass", ("no-code", "x.so", "")),
            check("device code", "jax", "pass", ("other", "x.so", "9.0")),
            check("device code", "jax", "pass"),
        ],
        [],
    ),
    (
        "files of unknown code, of which the first one is told",
        [check("device code", "torch 2.8", "pass", NO_CODE, ("no-code", "z.so", "8.0"))],
        [("architectures", "torch", "9.0")],
    ),
    (
        "a symbol, for one of two missing libraries",
        [
            check(
                "cudnn",
                "libraries",
                "fail",
                ("symbol", "libcudnn_cnn.so.9", "f"),
                ("missing", "libcublas.so.12", ""),
                ("missing", "libcudnn_ops.so.9", ""),
            ),
        ],
        [("test", "cudnn-complete", "fail")],
    ),
    (
        "two owners of a file, of which one is NVIDIA's, after another file",
        [
            check(
                "owners",
                "",
                "fail",
                ("two-owners", "a.py", "x y"),
                ("two-owners", "b.h", "nvidia-b z"),
            ),
        ],
        [("test", "one-cuda-major", "fail")],
    ),
    (
        "two owners of a file, and none is NVIDIA's",
        [
            check(
                "owners", "", "fail", ("two-owners", "a.py", "x y"), ("other", "b.h", "nvidia-b z")
            )
        ],
        [("test", "environment", "fail")],
    ),
    (
        "a good convolution",
        [check("cudnn convolution", "GPU 0", "pass")],
        [("test", name, "pass") for name in ("float32-convolution", "other-stream", "one-folder")],
    ),
    (
        "the loader's variables come first",
        [check("libc", "", "fail"), check("glibc", "", "pass"), VARIABLES],
        [("test", "loader-path", "fail"), ("test", "libc", "pass")],
    ),
]


@pytest.mark.parametrize(
    ("checks", "expected"), [row[1:] for row in CHECKS], ids=[r[0] for r in CHECKS]
)
def test_a_check_gives_its_facts(checks: list[Check], expected: list[Row]) -> None:
    facts = check_facts.check_facts(checks)
    assert rows(facts) == expected
    assert all(fact.where.startswith("host: check") and fact.text for fact in facts)


RESULTS: dict[int, list[Row]] = {
    802: [("test", "fabric", "fail")],
    803: [("test", "driver-versions", "fail")],
    804: [("says", "compat_libcuda_misuse", "804")],
    34: [("test", "loader-path", "fail")],
    214: [("test", "health", "fail")],
    220: [("test", "health", "fail")],
    2: [],
    999: [],
}


@pytest.mark.parametrize("function", ["cuInit", "cuCtxCreate"])
@pytest.mark.parametrize(("number", "expected"), RESULTS.items())
def test_a_result_of_the_driver_gives_its_facts(
    function: str, number: int, expected: list[Row]
) -> None:
    failed = {"cuInit": "cuinit", "cuCtxCreate": "context"}[function]
    checks = [check("device", "GPU 0", "fail", ("result", function, str(number)))]
    assert rows(check_facts.check_facts(checks)) == [("test", failed, "fail"), *expected]


ROOTS = [
    (check("loader", "variables", "fail"), "loader-path"),
    (check("owners", "", "fail", ("two-owners", "a/libx.so.1", "x y")), "one-cuda-major"),
    (check("owners", "", "fail", ("two-owners", "a.h", "nvidia-a nvidia-b")), "one-cuda-major"),
    (check("owners", "", "fail", ("two-owners", "a.h", "nvidia-a x")), None),
    (check("files", "x", "fail", ("no-record", "x", "")), "environment"),
    (check("files", "x", "fail", ("twice", "x", "")), "environment"),
    (check("files", "x", "fail", ("changed", "x", "")), None),
    (check("files", "x", "fail", ("changed", "x", ""), ("twice", "x", "")), "environment"),
    (
        check("owners", "", "fail", ("two-owners", "a.h", "x y"), ("two-owners", "b.so", "x y")),
        "one-cuda-major",
    ),
    (check("loader", "variables", "pass"), None),
]


@pytest.mark.parametrize(("root", "test"), ROOTS)
def test_a_failure_that_follows_from_another_is_reported_as_that_one(
    root: Check, test: str | None
) -> None:
    follower = check("cudnn", "origin", "fail")
    unrelated = check("glibc", "", "fail")
    for checks in ([root, follower, unrelated], [follower, unrelated, root]):
        facts = check_facts.check_facts(checks)
        (of_follower,) = [fact for fact in facts if fact.where.endswith("cudnn origin")]
        assert of_follower.subject == (test or "one-folder")
        assert results(facts)["libc"] == "fail"


def test_a_pass_and_an_unrelated_failure_are_not_attributed() -> None:
    root = check("loader", "variables", "fail")
    checks = [root, check("cudnn", "origin", "pass"), check("build", "torch", "fail")]
    assert results(check_facts.check_facts(checks)) == {
        "loader-path": "fail",
        "one-folder": "pass",
        "cuda-build": "fail",
    }


CONSEQUENCES = {
    "cudnn-present": check("cudnn", "libraries", "fail", ("none", "", "")),
    "cudnn-complete": check("cudnn", "libraries", "fail"),
    "one-folder": check("cudnn", "origin", "fail"),
    "environment": check("closure", "", "fail", ("broken", "y", "")),
    "libraries-resolve": check("closure", "", "fail", ("outside", "x.so", "")),
}


@pytest.mark.parametrize(("test", "follower"), CONSEQUENCES.items())
def test_each_consequence_is_attributed(test: str, follower: Check) -> None:
    root = check("loader", "variables", "fail")
    assert set(results(check_facts.check_facts([follower]))) == {test}
    assert set(results(check_facts.check_facts([root, follower]))) == {"loader-path"}


def test_every_device_must_pass_the_convolution() -> None:
    devices = [check("device", f"GPU {number}", "pass") for number in (0, 1)]
    good, bad = (
        check("cudnn convolution", "GPU 0", "pass"),
        check("cudnn convolution", "GPU 1", "fail"),
    )

    def each(checks: list[Check]) -> str | None:
        return results(check_facts.check_facts(checks)).get("each-device")

    assert each([*devices, good, good]) == "pass"
    assert each([*devices, good, bad]) == "fail"
    assert each([*devices, good]) is None  # one was not tried
    assert each([*devices]) is None
    assert each([check("device", "driver", "pass"), devices[0], good]) == "pass"
    texts = [fact.text for fact in check_facts.check_facts([*devices, good, bad])]
    assert any("1 of 2 GPUs" in text for text in texts)


def test_files_pass_only_together() -> None:
    good = [check("owners", "", "pass"), check("files", "x", "pass")]
    assert results(check_facts.check_facts(good))["one-cuda-major"] == "pass"
    for status in ("fail", "unknown"):
        checks = [*good, check("closure", "", status)]
        assert "one-cuda-major" not in results(check_facts.check_facts(checks))


def test_the_worst_device_decides_a_probe_test() -> None:
    facts = check_facts.test_facts(
        [
            ("fresh-process", 0, "pass", "good"),
            ("fresh-process", 1, "unknown", "late"),
            ("fresh-process", 2, "fail", "bad"),
            ("other-stream", 0, "unknown", "late"),
            ("other-stream", 1, "pass", "good"),
        ]
    )
    assert [(fact.subject, fact.value, fact.text) for fact in facts] == [
        ("fresh-process", "fail", "GPU 2: bad"),
        ("other-stream", "unknown", "GPU 0: late"),
        ("each-device", "fail", "1 of 3 GPUs computed correctly in a fresh process"),
    ]
    passed = check_facts.test_facts([("fresh-process", 0, "pass", "good")])
    assert results(passed) == {"fresh-process": "pass", "each-device": "pass"}
    assert check_facts.test_facts([("one-folder", 0, "pass", "good")])[0].value == "pass"
    assert results(check_facts.test_facts([("one-folder", 0, "pass", "x")])) == {
        "one-folder": "pass"
    }


def test_the_probe_tests_are_those_of_verification() -> None:
    assert {*probe_tests.TESTS, "each-device"} == set(PROBE_TESTS) <= set(TESTS)


# ---- a case -------------------------------------------------------------------------------------


def fact(kind: str, value: str, subject: str = "", where: str = "host: x") -> Fact:
    return Fact(kind=kind, subject=subject, value=value, where=where, text=value)


def test_the_host_outranks_the_log_and_a_failure_a_pass() -> None:
    log = [fact("driver", "1", where="log line 1"), fact("gpu", "H100", where="log line 2")]
    host = [fact("driver", "2"), fact("test", "pass", "nvml"), fact("test", "fail", "nvml")]
    case = Case(log, host)
    assert [known.value for known in case.preferred("driver")] == ["2"]
    assert [known.value for known in case.preferred("gpu")] == ["H100"]
    assert case.failed("nvml") and not case.passed("nvml")
    assert case.untested(["nvml", "cuinit", "libcuda"]) == ("libcuda", "cuinit")


FAULTS = {
    "status": True,
    "says": True,
    "hints": True,
    "maybe": True,
    "symbol-missing": True,
    "architecture-missing": True,
    "out-of-memory": True,
    "libc-wanted": True,
    "xid": True,
    "cudnn-reason": True,
    "handle": True,
    "symptom launch": True,
    "symptom cuda-unavailable": False,
    "symptom compat-path": False,
    "symptom uvm-reloaded": False,
    "symptom suspended": False,
    "symptom growth": False,
    "symptom cuda-asked": False,
    "symptom took-cpu": False,
    "library-missing libcublas.so.12": True,
    "library-missing libfoo.so.1": False,
    "driver": False,
    "gpu": False,
}


@pytest.mark.parametrize(("stated", "is_fault"), FAULTS.items())
def test_a_fault_is_what_the_log_says_failed(stated: str, is_fault: bool) -> None:
    kind, _, subject = stated.partition(" ")
    in_log = fact(kind, "x", subject, where="log line 1")
    assert Case([in_log], ()).faults() == ([in_log] if is_fault else [])
    assert Case((), [fact(kind, "x", subject)]).faults() == []


def test_a_failed_test_of_the_host_is_a_fault() -> None:
    failed = fact("test", "fail", "nvml")
    assert Case((), [failed, fact("test", "pass", "cuinit")]).faults() == [failed]


SMI = [
    # (used and total MiB) of each GPU, free MiB of each GPU
    (["1000 8000", "8000 8000"], [7000, 0]),
    (["9000 8000"], [0]),
    (["0 8000"], [8000]),
    (["0 0"], []),
]


@pytest.mark.parametrize(("stated", "free"), SMI)
def test_memory_of_the_table_of_nvidia_smi(stated: list[str], free: list[int]) -> None:
    facts = [fact("smi-memory", value, where="log line 1") for value in stated]
    memory = Case(facts, ()).memory()
    assert [row.free for row in memory] == [size * MIB for size in free]
    assert [row.total for row in memory] == [8000 * MIB] * len(free)


def test_every_gpu_must_be_mostly_free() -> None:
    def case(*stated: str) -> Case:
        return Case([fact("smi-memory", value, where="log line 1") for value in stated], ())

    assert case("0 8000", "1000 8000").free_memory_fact() is not None
    assert case("0 8000", "7000 8000").free_memory_fact() is None
    assert case("7000 8000", "0 8000").free_memory_fact() is None


def test_memory_of_the_log_outweighs_the_host() -> None:
    host = [
        fact("free-bytes", str(60 * GIB), "0"),
        fact("total-bytes", str(80 * GIB), "0"),
        fact("test", "pass", "free-memory"),
    ]
    assert Case((), host).free_memory_fact() == host[0]
    full = [
        fact("free-bytes", str(20 * GIB), where="log line 3"),
        fact("total-bytes", str(80 * GIB), where="log line 3"),
    ]
    assert Case(full, host).free_memory_fact() is None
    smi = [fact("smi-memory", "80000 81920", where="log line 1")]
    assert Case(smi, host).free_memory_fact() is None
    assert Case(smi, host).memory()[0].free == 1920 * MIB
    assert Case(full[:1], host).free_memory_fact() == host[0]  # no total: no measurement


# ---- what is a fault, and what is absent --------------------------------------------------------


def logged(kind: str, subject: str = "", value: str = "", line: int = 1) -> Fact:
    return Fact(kind=kind, subject=subject, value=value, where=f"log line {line}", text="x")


def named_in_kinds(which: int) -> list[str]:
    """Return the symptoms that the description lists: 0 failures, 1 conditions."""
    lists = re.findall(r"\(([^()]*)\)", KINDS["symptom"])
    return re.split(r",\s+", lists[which])


# A line that looks like a failure is one only if nothing else explains it: `Case.unexplained`.
@pytest.mark.parametrize("name", sorted({*named_in_kinds(0)} - {"unexplained"}))
def test_a_symptom_of_a_failure_is_a_fault(name: str) -> None:
    assert Case([logged("symptom", name)], []).faults()
    assert not Case([], [Fact(kind="symptom", subject=name, where="host: x")]).faults()


@pytest.mark.parametrize("name", [*named_in_kinds(1), "unexplained"])
def test_a_condition_is_no_fault(name: str) -> None:
    assert not Case([logged("symptom", name)], []).faults()


@pytest.mark.parametrize(
    ("kind", "subject", "is_fault"),
    [
        ("status", "cuda", True),
        ("says", "driver_too_old", True),
        ("hints", "driver_too_old", True),
        ("maybe", "driver_too_old", True),
        ("symbol-missing", "cuda", True),
        ("architecture-missing", "torch", True),
        ("out-of-memory", "torch", True),
        ("libc-wanted", "GLIBC", True),
        ("xid", "", True),
        ("cudnn-reason", "cudnnCreate", True),
        ("handle", "null", True),
        ("library-missing", "libcudart.so.12", True),
        ("library-missing", "libnccl.so.2", True),
        ("library-missing", "nvcuda.dll", True),
        ("library-missing", "libnvinfer.so.8", False),
        ("library-missing", "libcurl.so.4", False),
        ("library-missing", "libfoo.so", False),
        ("told", "driver_too_old", False),
        ("suggests", "driver_too_old", False),
        ("gpu", "0", False),
        ("driver", "", False),
    ],
)
def test_the_kinds_of_faults(kind: str, subject: str, is_fault: bool) -> None:
    assert bool(Case([logged(kind, subject, "1")], []).faults()) is is_fault


def test_a_test_of_the_host_is_a_fault_if_it_failed() -> None:
    def result(value: str) -> Fact:
        return Fact(kind="test", subject="nvml", value=value, where="host: x")

    assert Case([], [result("fail")]).faults() == [result("fail")]
    assert Case([], [result("pass")]).faults() == Case([], [result("unknown")]).faults() == []


@pytest.mark.parametrize(
    ("kind", "subject", "value", "absent"),
    [
        ("pci-gpu", "", "0", True),
        ("pci-gpu", "", "1", False),
        ("module", "nvidia", "absent", True),
        ("module", "nvidia", "missing", True),
        ("module", "nvidia", "loaded", False),
        ("device-node", "/dev/nvidiactl", "missing", True),
        ("device-node", "/dev/nvidiactl", "denied", False),
        ("cuda-built", "torch", "none", True),
        ("cuda-built", "torch", "12.8", False),
        ("library-missing", "libcudnn.so.9", "", True),
        ("library-present", "libcudnn.so.9", "missing", False),
        *[("test", name, "fail", True) for name in ("nvml", "libcuda", "cuda-build")],
        *[("test", name, "fail", True) for name in ("cudnn-present", "cudnn-complete")],
        *[("test", name, "fail", True) for name in ("libraries-resolve", "environment")],
        ("test", "nvml", "pass", False),
        ("test", "cuinit", "fail", False),
    ],
)
def test_what_is_absent_on_the_host(kind: str, subject: str, value: str, absent: bool) -> None:
    fact = Fact(kind=kind, subject=subject, value=value, where="host: x")
    assert is_absence(fact) is absent
    assert not is_absence(logged(kind, subject, value))


def test_the_facts_of_a_case_are_chosen_by_origin() -> None:
    of_log, of_host = logged("gpu", "0", "a"), Fact(kind="gpu", subject="0", value="b", where="h")
    other = logged("gpu", "1", "c")
    case = Case([of_log, other], [of_host])
    assert case.of_kind("gpu") == [of_host, of_log, other]
    assert case.preferred("gpu") == [of_host] and Case([other], []).preferred("gpu") == [other]
    assert case.first("gpu") == of_host and case.first("gpu", value="a") is None
    assert case.first("gpu", subject="0") == of_host and case.first("gpu", subject="1") is None
    assert case.about("gpu", "1") == [other]
    assert case.of_kind("driver", "gpu") == [of_host, of_log, other]
    assert case.first("driver") is None


def test_the_worst_result_of_a_test_counts() -> None:
    def result(value: str, where: str) -> Fact:
        return Fact(kind="test", subject="nvml", value=value, where=f"host: {where}")

    every = [result(value, value) for value in ("unknown", "pass", "fail", "strange")]
    for facts in (every, every[::-1]):
        case = Case([], facts)
        assert case.failed("nvml") == every[2] and case.passed("nvml") is None
    case = Case([], [every[3], every[0], every[1]])
    assert case.passed("nvml") == every[1] and case.failed("nvml") is None
    twice = [result("fail", "first"), result("fail", "second")]
    assert Case([], twice).failed("nvml") == twice[0]
    assert case.untested(("nvml", "cuinit", "libcuda")) == ("libcuda", "cuinit")
    assert Case([], [every[0]]).untested(("nvml",)) == ("nvml",)


def test_the_memory_of_a_log_and_of_the_host() -> None:
    def sizes(free: int, total: int, line: int) -> list[Fact]:
        return [
            logged("free-bytes", "", str(free), line),
            logged("total-bytes", "", str(total), line),
        ]

    def shown(case: Case) -> list[tuple[int, int]]:
        return [(row.free, row.total) for row in case.memory()]

    on_host = [
        Fact(kind="free-bytes", subject="0", value="7", where="host: x"),
        Fact(kind="total-bytes", subject="0", value="9", where="host: y"),
        Fact(kind="free-bytes", subject="1", value="7", where="host: x"),
    ]
    table = [logged("smi-memory", "", "6 8"), logged("smi-memory", "", "9 8")]
    assert shown(Case([*sizes(1, 2, 1), *sizes(3, 4, 2), *table], on_host)) == [(1, 2), (3, 4)]
    assert shown(Case(table, on_host)) == [(2 * MIB, 8 * MIB), (0, 8 * MIB)]
    assert shown(Case([logged("smi-memory", "", "0 0")], on_host)) == [(7, 9)]
    assert (
        shown(Case([logged("free-bytes", "", "1", 1), logged("total-bytes", "", "2", 2)], [])) == []
    )
    assert shown(Case(sizes(1, 0, 1), [])) == []
    assert shown(Case([logged("free-bytes", "", "x"), logged("total-bytes", "", "2")], [])) == []


def test_the_memory_of_every_gpu_must_be_free() -> None:
    def row(free: int, line: int) -> list[Fact]:
        return [
            logged("free-bytes", "", str(free), line),
            logged("total-bytes", "", "100", line),
        ]

    passed = Fact(kind="test", subject="free-memory", value="pass", where="host: x")
    free, full = row(26, 1), row(25, 2)
    assert Case(free, [passed]).free_memory_fact() == free[0]
    assert Case([*free, *full], [passed]).free_memory_fact() is None
    assert Case([], [passed]).free_memory_fact() == passed
    assert Case([], []).free_memory_fact() is None


@pytest.mark.parametrize(
    ("wanted", "above_free", "above_total"),
    [("90", False, False), ("91", True, False), ("200", True, False), ("201", False, True)],
)
def test_an_allocation_that_no_gpu_holds(wanted: str, above_free: bool, above_total: bool) -> None:
    log = [
        logged("free-bytes", "", "90", 1),
        logged("total-bytes", "", "100", 1),
        logged("free-bytes", "", "50", 2),
        logged("total-bytes", "", "200", 2),
        logged("wanted-bytes", "", "x", 3),
        logged("wanted-bytes", "", wanted, 4),
    ]
    case = Case(log, [])
    assert case.failed_allocation(above_total=False) == (log[5] if above_free else None)
    assert case.failed_allocation(above_total=True) == (log[5] if above_total else None)
    assert Case(log[4:], []).failed_allocation(above_total=True) is None


def test_messages_that_suggest_a_cause() -> None:
    log = [logged("maybe", "a", "x"), logged("hints", "a", "y"), logged("says", "a", "z")]
    case = Case([*log, logged("hints", "b", "y")], [])
    assert unsure_of(case, "a") == [log[1], log[0]]
    assert with_names(case, "a", ("x", "z")) == [log[0]]
