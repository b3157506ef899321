"""The doctor's reader of logs: MB/s and peak memory by kind of log, each in a process of its own.

    python scripts/bench_doctor.py [MB] [KIND ...]

Logs are made in memory, a block at a time; the time to make them is not counted. Seconds are those of the processor,
so that other work on the machine matters little. The last column is the process's peak memory in MiB, with Python's.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from gpuenv.doctor import read_log

CHUNK = 1 << 20
STEP = "2026-03-04 05:{n:02}:07,890 epoch {n} step {n} loss 0.{m} lr 1e-4 mem 12.3GiB device=cuda:0 tokens/s {m}"
FAULT = "[rank{n}]: RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR in call {m}"
LONG = "loss 0.{m} of step {n}: the model's device has memory left, an error of {m}; "
MIXED = (
    STEP,
    "src/m{n}.cpp:{n}:{n}: warning: unused variable 'error' [-Wunused-variable]",
    "nvcc -gencode arch=compute_80,code=sm_80 -c kernel{n}.cu -o kernel{n}.o",
    "/usr/bin/ld: warning: libfoo.so.{n}, needed by libbar.so, not found (try using -rpath)",
    "-- Could NOT find CUDNN (missing: CUDNN_LIBRARY_PATH CUDNN_INCLUDE_PATH)",
    '10.0.0.{n} - - [10/Oct/2026:13:55:36] "GET /docs/cudnn/archive?error={m} HTTP/1.1" 404 2326',
    "Out of memory: Killed process {n} (java) total-vm:{m}kB, anon-rss:{m}kB",
    "Collecting nvidia-cudnn-cu12==9.{n}.2.21",
    "ERROR: Could not find a version that satisfies the requirement flask=={n} (from versions: 1.0)",
    "NCCL INFO Channel {n}/24 : 0 1 2 3",
    "CUDA available: True, cuDNN version 9{n}, 8 GPUs",
    "Using device: cuda (NVIDIA GeForce RTX 4090, compute capability 8.9)",
    "I external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:465] Loaded cuDNN version 9{n}",
    "W bfc_allocator.cc:314] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.{n}GiB",
    "| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |",
    "[{n}.4] nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "[I:onnxruntime] Node placements: CUDAExecutionProvider: {n} nodes",
    "docker: Pulling from nvidia/cuda, Status: Downloaded newer image for nvidia/cuda:12.4.1-runtime",
)


def _lines(*forms: str) -> Callable[[random.Random], str]:
    return lambda chance: chance.choice(forms).format(n=chance.randrange(60), m=chance.randrange(100_000)) + "\n"


def _different(chance: random.Random) -> str:
    """A line of any kind with a name that no other line has."""
    name = "".join(chance.choices("abcdefghijklmnop", k=12))
    return f"{name} " + _lines(*MIXED)(chance)


KINDS: dict[str, Callable[[random.Random], str]] = {
    "training": _lines(STEP),
    "same-error": _lines(FAULT),
    "long-lines": lambda chance: _lines(LONG)(chance)[:-1],
    "mixed": _lines(*MIXED),
    "mixed-long": lambda chance: _lines(*MIXED)(chance)[:-1] + " ",
    "all-different": _different,
    "progress": lambda chance: _lines(STEP)(chance)[:-1] + "\r",
    "coloured": lambda chance: "\x1b[32mINFO\x1b[0m " + _lines(*MIXED)(chance),
}


def chunks(kind: str, size: int, spent: list[float]) -> Iterator[bytes]:
    """So many bytes, a line break after every 8 MB; `spent` gets the seconds that it took to make them."""
    chance = random.Random(1)  # noqa: S311  nothing secret is drawn
    for number in range(size // CHUNK):
        begin = time.process_time()
        parts: list[str] = []
        length = 0
        while length < CHUNK:
            parts.append(KINDS[kind](chance))
            length += len(parts[-1])
        raw = "".join(parts).encode()[: CHUNK - 1] + (b"\n" if number % 8 == 7 else b" ")
        spent[0] += time.process_time() - begin
        yield raw


def measure(kind: str, size: int) -> None:
    """One kind, in this process."""
    read_log([b"CUDA error"])  # reads the data
    spent = [0.0]
    begin = time.process_time()
    facts = read_log(chunks(kind, size, spent))
    seconds = time.process_time() - begin - spent[0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{kind:14} {size / 1e6:6.0f} MB {size / 1e6 / seconds:7.0f} MB/s {len(facts):5} facts {peak:6.1f} MiB")


def main() -> int:
    """All kinds, or those that are named."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 200) * 1_000_000
    kinds = sys.argv[2:] or list(KINDS)
    if "GPUENV_BENCH_CHILD" in os.environ:
        measure(kinds[0], size)
        return 0
    for kind in kinds:
        command = [sys.executable, __file__, str(size // 1_000_000), kind]
        subprocess.run(command, env={**os.environ, "GPUENV_BENCH_CHILD": "1"}, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
