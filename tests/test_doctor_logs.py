"""Logs without a GPU fault get no verdict; the reader survives any input in bounded memory."""

# ruff: noqa: S311  lines of logs are as long as they are; nothing secret is drawn
import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuenv.doctor.catalog import messages
from gpuenv.doctor.log_reader import MAX_FACTS, read_log
from gpuenv.doctor.stream import BLOCK
from gpuenv.doctor.verdicts import diagnose
from tables import data_file, each

TABLES = data_file("tables/doctor_logs.json")

# ---- logs with no GPU fault in them --------------------------------------------------------------

STAMPS = (
    "",
    "2026-03-04 05:06:07,890 ",
    "[rank{n}]: ",
    "(worker pid={n}) ",
    "web-1  | ",
    "\x1b[32mINFO\x1b[0m ",
    "{n}: ",
)
KINDS = {
    "compiler": (
        "g++ -O2 -Wall -c src/m{n}.cpp -o build/m{n}.o",
        "src/m{n}.cpp:{n}:{n}: warning: unused variable 'error' [-Wunused-variable]",
        "nvcc -gencode arch=compute_80,code=sm_80 -c kernel{n}.cu -o kernel{n}.o",
        "ptxas info    : Compiling entry function '_Z6kerneli' for 'sm_90'",
        "ptxas info    : Used {n} registers, 380 bytes cmem[0]",
        "/usr/bin/ld: warning: libfoo.so.{n}, needed by libbar.so, not found (try using -rpath)",
        "src/m{n}.c:{n}: error: expected ';' before 'return'",
        "/usr/bin/ld: m{n}.o: undefined reference to `frobnicate_{n}'",
        '-- Found CUDAToolkit: /usr/local/cuda/include (found version "12.4.131")',
        "-- Could NOT find CUDNN (missing: CUDNN_LIBRARY_PATH CUDNN_INCLUDE_PATH)",
        "CMake Warning: CUDA was not requested; built without it on purpose",
        "make[{n}]: *** [Makefile:{n}: all] Error 2",
    ),
    "web": (
        '10.0.0.{n} - - [10/Oct/2026:13:55:36] "GET /docs/cudnn/archive?error={n} HTTP/1.1" 404 '
        "2326",
        '10.0.0.{n} - - "GET /questions/no-kernel-image HTTP/1.1" 200 {n}',
        '[error] {n}#{n}: *{n} open() "/srv/www/favicon.ico" failed (2: No such file or directory)',
        "upstream timed out (110: Connection timed out) while reading response header from "
        "upstream",
        "nginx: worker process {n} exited on signal 9",
        "Out of memory: Killed process {n} (java) total-vm:{n}kB, anon-rss:{n}kB",
        "could not connect to server: Connection refused",
        "kernel: [{n}.123] eth0: link is not ready",
        "java.lang.OutOfMemoryError: Java heap space",
        "ERROR 1045 (28000): Access denied for user 'cuda'@'localhost'",
    ),
    "pip": (
        "Collecting nvidia-cudnn-cu12==9.10.2.21",
        "  Downloading nvidia_cublas_cu12-12.8.4.1-py3-none-manylinux_2_27_x86_64.whl (594.3 MB)",
        "Requirement already satisfied: torch in ./env/lib/python3.12/site-packages (2.{n}.0)",
        "Successfully installed torch-2.9.0 torchvision-0.24.0 nvidia-nccl-cu12-2.27.5",
        "ERROR: Could not find a version that satisfies the requirement flask=={n} (from versions: "
        "1.0)",
        "ERROR: No matching distribution found for flask=={n}",
        "WARNING: Running pip as the 'root' user can result in broken permissions",
        "Collecting torch==2.9.0+cpu",
        "Building wheel for numpy (pyproject.toml): finished with status 'error'",
        "Defaulting to user installation because normal site-packages is not writeable",
    ),
    "torch": (
        "epoch {n} step {n} loss 0.{n} error: 0.01 lr 1e-4 mem 12.3GiB device=cuda:0",
        "loss nan, skipping step {n}",
        "CUDA available: True, cuDNN version 9{n}, 8 GPUs",
        "CUDA available: False, running on CPU",
        "Using device: cuda (NVIDIA GeForce RTX 4090, compute capability 8.9)",
        "NCCL INFO Channel 00/24 : 0 1 2 3",
        "NCCL version 2.27.5+cuda12.9",
        "[W{n}] Warning: lr_scheduler.step() called before optimizer.step(). (function operator())",
        "Setting TORCH_CUDA_ARCH_LIST=8.0;9.0",
        "torch.backends.cudnn.benchmark = True",
        "max memory allocated: {n} MiB of 81559 MiB, {n} bytes free",
        "val error 0.{n}; failed cases: {n}; unknown tokens: {n}",
    ),
    "tensorflow": (
        "I tensorflow/core/util/port.cc:153] oneDNN custom operations are on. You may see slightly "
        "different results",
        "I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized "
        "to use available CPU",
        "W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find "
        "TensorRT",
        "E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:479] Unable to register cuFFT "
        "factory: Attempting to "
        "register factory for plugin cuFFT when one has already been registered",
        "E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:10575] Unable to register cuDNN "
        "factory: Attempting to "
        "register factory for plugin cuDNN when one has already been registered",
        "I external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:465] Loaded cuDNN version 9{n}",
        "I tensorflow/core/common_runtime/gpu/gpu_device.cc:2019] Created device "
        "/job:localhost/device:GPU:0 with {n} MB "
        "memory:  -> device: 0, name: NVIDIA A100, pci bus id: 0000:00:04.0, compute capability: "
        "8.0",
        "W tensorflow/core/common_runtime/bfc_allocator.cc:314] Allocator (GPU_0_bfc) ran out of "
        "memory trying to "
        "allocate 2.{n}GiB with freed_by_count=0. The caller indicates that this is not a failure",
        "I successful NUMA node read from SysFS had negative value (-1), but there must be at "
        "least one NUMA node",
        "{n}/1875 [=====>....] - ETA: 12s - loss: 0.{n} - accuracy: 0.98",
    ),
    "jax": (
        "INFO:jax._src.xla_bridge:Unable to initialize backend 'tpu': INTERNAL: Failed to open "
        "libtpu.so: libtpu.so: "
        "cannot open shared object file: No such file or directory",
        "INFO:jax._src.xla_bridge:Unable to initialize backend 'rocm': module 'jaxlib' has no "
        "attribute 'GpuAllocatorConfig'",
        "step {n}: loss=0.{n}, grad_norm=1.{n}, 2.1 steps/s",
        "WARNING: all log messages before absl::InitializeLog() is called are written to STDERR",
        "os.fork() was called. os.fork() is incompatible with multithreaded code, and JAX is "
        "multithreaded",
        "XLA_PYTHON_CLIENT_PREALLOCATE=false XLA_FLAGS=--xla_gpu_autotune_level=0",
    ),
    "smi": (
        "| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     "
        "|",
        "|   {n}  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    "
        "0 |",
        "| N/A   34C    P0             62W /  400W |   80{n}MiB /  81920MiB |      0%      Default "
        "|",
        "|    0   N/A  N/A     {n}      C   python                                     {n}MiB |",
        "|  No running processes found                                                             "
        "|",
    ),
    "kernel": (
        "[{n}.0123] usb 1-1: device descriptor read/64, error -110",
        "[{n}.4] nvidia: loading out-of-tree module taints kernel.",
        "[{n}.4] nvidia: module verification failed: signature and/or required key missing - "
        "tainting kernel",
        "[{n}.5] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06",
        "[{n}.6] nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver for UNIX platforms  "
        "580.65.06",
        "[{n}.7] EXT4-fs error (device sda1): ext4_find_entry: reading directory lblock 0",
        "[{n}.8] PM: suspend exit",
        "[{n}.9] systemd[1]: Started NVIDIA Persistence Daemon.",
        "[{n}.9] EDAC MC0: {n} CE memory read error on CPU_SrcID#0",
    ),
    "others": (
        "paddle: W gpu_resources.cc:119] Please NOTE: device: 0, GPU Compute Capability: 8.0, "
        "Driver API Version: 12.2",
        "W gpu_resources.cc:149] device: 0, cuDNN Version: 8.9.",
        "[I:onnxruntime] Node placements: CUDAExecutionProvider: {n} nodes",
        "[LightGBM] [Info] This is the GPU trainer!! Number of data points {n}",
        "llama_model_load: ggml ctx size = {n} MiB; offloaded 33/33 layers to GPU",
        "vllm: INFO Memory profiling takes 0.{n} seconds, total_gpu_memory(79.1GiB), # cuda "
        "blocks: {n}",
        "ggml_cuda_init: found 1 CUDA devices:",
        "xgboost: [0] validation-error:0.{n}",
        "docker: Pulling from nvidia/cuda, Status: Downloaded newer image for "
        "nvidia/cuda:12.4.1-runtime",
        "test_gpu_fallback.py::test_no_gpu PASSED [ {n}%]",
    ),
}


def ordinary(seed: int) -> str:
    """A log of one kind or of several mixed, with prefixes; its lines repeat with other numbers."""
    chance = random.Random(seed)
    kinds = [sorted(KINDS)[seed % len(KINDS)], *chance.sample(sorted(KINDS), chance.randrange(3))]
    lines = [line for kind in kinds for line in KINDS[kind]]
    stamp = chance.choice(STAMPS)
    return "\n".join(
        (stamp + chance.choice(lines)).replace("{n}", str(chance.randrange(1000)))
        for _ in range(chance.randrange(3, 200))
    )


@pytest.mark.parametrize("seed", range(90))
def test_a_log_without_a_fault_gets_no_verdict(seed: int) -> None:
    found = diagnose(read_log([ordinary(seed)], with_failure=True), ())
    assert (found.verdicts, found.abstained) == ((), False), ordinary(seed)


def test_the_ordinary_logs_are_not_empty_of_words_that_messages_have() -> None:
    """The test above could fail: the reader does find needles in those logs, and facts, too."""
    text = "\n".join(ordinary(seed) for seed in range(45))
    assert (
        sum(needle.decode() in text for message in messages() for needle in message.needles) >= 30
    )
    assert {fact.kind for fact in read_log([text])} >= {"driver", "gpu", "package", "capability"}


# ---- one fault in all that -----------------------------------------------------------------------

FAULT = "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version"


@pytest.mark.parametrize("seed", range(15))
def test_a_fault_is_found_in_an_ordinary_log(seed: int) -> None:
    lines = ordinary(seed).split("\n")
    at = len(lines) // 2
    broken = FAULT.replace("version is insufficient", "\x1b[1mversion is insuffi\x1b[0mcient")
    lines.insert(at, f"[rank3]: \x1b[31m{broken}\x1b[0m")
    (first, *_rest) = diagnose(read_log(["\n".join(lines)]), ()).verdicts
    assert first.cause == "driver_too_old"
    assert first.evidence[0].startswith(f"log line {at + 1}: ")


@pytest.mark.parametrize("size", [1, 100, BLOCK - 1, BLOCK + 1, 10**7])
def test_where_chunks_end_is_no_matter(size: int) -> None:
    lines = ["an ordinary line of a log, with nothing in it"] * 4000
    lines[3000] = FAULT
    raw = "\n".join(lines).encode()
    facts = read_log(raw[at : at + size] for at in range(0, len(raw), size))
    assert [(fact.subject, fact.where) for fact in facts] == [("driver_too_old", "log line 3001")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-8-sig"])
def test_a_log_of_windows_is_read(encoding: str) -> None:
    (fact,) = read_log([("words\r\n" * 9 + FAULT + "\r\n").encode(encoding)])
    assert (fact.subject, fact.where) == ("driver_too_old", "log line 10")


def test_a_fault_between_repeated_lines_is_found() -> None:
    """What a log says a million times does not hide what it says once."""
    again = [f"cuDNN error: CUDNN_STATUS_INTERNAL_ERROR in call {n}" for n in range(5000)]
    again.insert(4000, "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.")
    assert diagnose(read_log(["\n".join(again)]), ()).verdicts[0].cause == "gpu_hardware_fault"


# ---- bounds --------------------------------------------------------------------------------------


def endless(line: bytes, size: int) -> Iterator[bytes]:
    block = line * (BLOCK // len(line) + 1)
    for _ in range(size // len(block)):
        yield block


@pytest.mark.parametrize(
    "line",
    [
        b"x" * 999,
        FAULT.encode() + b"\n",
    ],
)
def test_memory_is_bounded(line: bytes) -> None:
    """A log that is 400 kB longer takes no more memory."""
    read_log(endless(line, 2 * BLOCK))  # makes the tables, which stay in memory
    peaks = []
    for size in (400_000, 800_000):
        tracemalloc.start()
        facts = read_log(endless(line, size))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(facts) <= MAX_FACTS
    assert peaks[1] < peaks[0] + 300_000 and max(peaks) < 14_000_000


PARTS = sorted({needle.decode() for message in messages() for needle in message.needles})
PIECES = st.one_of(
    st.sampled_from(PARTS),
    st.text(max_size=20),
    st.sampled_from(
        [
            "\n",
            " ",
            "\x1b[31m",
            "'",
            "(",
            "9.1.0",
            "undefined symbol: ",
            "/",
            ".so.9",
            "0" * 40,
            "\r",
            "\0",
        ]
    ),
    st.sampled_from([message.pattern[:60] for message in messages()]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=60).map("".join))
def test_any_text_is_read(text: str) -> None:
    found = diagnose(read_log([text]), ())
    assert all(verdict.evidence for verdict in found.verdicts)
    assert not (found.abstained and not found.next_tests and found.outside is None)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=8))
def test_any_bytes_are_read(chunks: list[bytes]) -> None:
    assert len(read_log(chunks)) <= MAX_FACTS


def years(log: str) -> list[str]:
    facts = read_log([f"{log}\nCUDA error: no kernel image is available"])
    return sorted(fact.value for fact in facts if fact.kind == "year")


@each("log expected", TABLES["years"])
def test_years(log: str, expected: list[str]) -> None:
    assert years(log) == expected


def test_a_late_date_is_not_read() -> None:
    assert years("noise of a log\n" * 4000 + "2018-10-05 end") == []
