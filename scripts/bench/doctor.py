"""Measure the doctor's log reader: MB/s and peak memory by kind of log, each in its own process.

    python scripts/tools.py bench doctor [--former FILE] [MB] [KIND ...]

Logs are generated in memory, a block at a time, and this time is not counted. Times are CPU times,
so that other work on the machine matters little. The same run also measures copying the same blocks
(splitting them into lines and joining these, the least that a reader of lines can do) and, if
given, the log_reader.py of another release. For each, the output shows the rate, and how many times
faster the reader is. The last column is the process's peak memory in MiB.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import resource
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator

from common import TOOLS
from gpuenv.doctor.log_reader import read_log
from gpuenv.doctor.model import Fact

Read = Callable[[Iterator[bytes]], tuple[Fact, ...]]

CHUNK = 1 << 20
STEP = (
    "2026-03-04 05:{n:02}:07,890 epoch {n} step {n} loss 0.{m} lr 1e-4 mem 12.3GiB "
    "device=cuda:0 tokens/s {m}"
)
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
    "ERROR: Could not find a version that satisfies the requirement flask=={n} (from versions: "
    "1.0)",
    "NCCL INFO Channel {n}/24 : 0 1 2 3",
    "CUDA available: True, cuDNN version 9{n}, 8 GPUs",
    "Using device: cuda (NVIDIA GeForce RTX 4090, compute capability 8.9)",
    "I external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:465] Loaded cuDNN version 9{n}",
    "W bfc_allocator.cc:314] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.{n}GiB",
    "| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |",
    "[{n}.4] nvidia: module verification failed: signature and/or required key missing - tainting "
    "kernel",
    "[I:onnxruntime] Node placements: CUDAExecutionProvider: {n} nodes",
    "docker: Pulling from nvidia/cuda, Status: Downloaded newer image for "
    "nvidia/cuda:12.4.1-runtime",
)


def _lines(*forms: str) -> Callable[[random.Random], str]:
    return lambda chance: (
        chance.choice(forms).format(n=chance.randrange(60), m=chance.randrange(100_000)) + "\n"
    )


NCCL = (
    "comm 0x{p} rank {n} nranks 64 cudaDev {n} nvmlDev {n} busId {h}000 commId 0x{q} - Init "
    "COMPLETE",
    "Channel {n}/0 : {n}[{n}] -> {n}[{n}] [send] via NET/IB/{n}/GDRDMA comm 0x{p} nRanks 64",
    "AllReduce: opCount {h} sendbuff 0x{p} recvbuff 0x{p} count {m} datatype 7 op 0 root 0 comm "
    "0x{p} [nranks=64] "
    "stream 0x{p}",
    "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.{n}.{n}<0>",
    "Setting affinity for GPU {n} to {h},ffff0000,{h}ffffff",
    "GPU Direct RDMA Enabled for HCA {n} 'mlx5_{n}'",
    "Trees [0] {n}/-1/-1->{n}->-1 [1] {n}/-1/-1->{n}->-1",
    "Broadcast: {m} Bytes -> Algo 1 proto 0 time {m}.0 comm 0x{p}",
    "CUDA Dev {n}[{n}], Intel/AMD CPU, driver libcuda.so.1 dmabuf 0x{p} proxy {w}",
)
CUDNN = (
    "I! CuDNN (v92800 42) function cudnnBackendSetAttribute() called:",
    "i!     descriptor: type=cudnnBackendDescriptor_t; val=CUDNN_BACKEND_TENSOR_DESCRIPTOR "
    "(0x{p});",
    "i!     attributeName: type=cudnnBackendAttributeName_t; val=CUDNN_ATTR_TENSOR_DATA_TYPE "
    "(900);",
    "i!     arrayOfElements: location=host; addr=0x{p};",
    "i! Time: 2026-03-04T12:{n}:{n}.{m} (0d+0h+{n}m+{n}s since start)",
    "i! Process={m}; Thread={m}; GPU=0; Handle=0x{p}; StreamId=0x{p} (defaultStream).",
    "i!     workSpace: location=dev; addr=0x{p};",
    "i!     status: type=cudnnStatus_t; val=CUDNN_STATUS_SUCCESS (0); ptr=0x{p}",
    "w!     Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: heuristic {w} of engine 0x{p} is not "
    "supported",
)
STARTS = (
    "INFO 03-04 12:{n}:{n} [gpu_model_runner.py:{n}] Starting to load model org/{w} with CUDA "
    "graphs on cuda:{n} "
    "at 0x{p}",
    "(VllmWorker rank={n} pid={m}) INFO 03-04 12:{n}:{n} [custom_all_reduce.py:{n}] {w} NVIDIA "
    "driver cuDNN CUDA NCCL "
    "version 2.27.{n} device handle 0x{p}",
    "(EngineCore_DP{n} pid={m}) WARNING [cuda.py:{n}] CUDA memory of {w} allocated: {m} MiB, "
    "cudnn.benchmark {w}",
    "2026-03-04 12:{n}:{n}.{m}: I external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:{n}] "
    "Loaded cuDNN version "
    "9{n} for {w} handle 0x{p}",
    "2026-03-04 12:{n}:{n}.{m}: I tensorflow/core/common_runtime/gpu/gpu_device.cc:2019] Created "
    "device /job:{w}/task:"
    "{n}/device:GPU:{n} with {m} MB memory:  -> device: {n}, name: NVIDIA H100 80GB HBM3, pci bus "
    "id: 0000:{h}:00.0, "
    "compute capability: 9.0",
    "[W{m} ProcessGroupNCCL.cpp:{n}] Warning: {w} using GPU {n} to perform barrier; device driver "
    "runtime for rank {n}",
)
XLA = (
    "  %fusion.{m} = (f32[{n},{m}], bf16[{n}]) fusion(%{w}.{n}, %param_{n}.{m}), kind=kLoop, "
    'calls=%fused_computation.{m}, metadata=(op_name="jit({w})/jit(main)/dot_general" '
    'source_file="{w}.py")',
    "  %cudnn-conv.{m} = (f32[{n},{m}], u8[{m}]) custom-call(%{w}.{n}), "
    'custom_call_target="__cudnn$convForward"',
    "I0304 12:{n}:{n}.{m} {m} cuda_executor.cc:{n}] {w}: Allocated {m} bytes on GPU device at "
    "0x{p}; CUDA driver",
    "I0304 12:{n}:{n}.{m} {m} gpu_compiler.cc:{n}] module {w}: ptxas compiled for sm_90 with CUDA "
    "version 12.{n}",
)


def _named(prefix: str, *forms: str) -> Callable[[random.Random], str]:
    """Return a maker of lines with unique addresses and names, as ranks write them."""

    def line(chance: random.Random) -> str:
        return (prefix + chance.choice(forms)).format(
            n=chance.randrange(64),
            m=chance.randrange(1_000_000),
            h=f"{chance.getrandbits(8):02x}",
            p=f"{chance.getrandbits(48):012x}",
            q=f"{chance.getrandbits(64):016x}",
            w="".join(chance.choices("abcdefghijklmnop", k=9)),
        ) + "\n"

    return line


def _different(chance: random.Random) -> str:
    """Return a line of any kind with a unique name."""
    name = "".join(chance.choices("abcdefghijklmnop", k=12))
    return f"{name} " + _lines(*MIXED)(chance)


KINDS: dict[str, Callable[[random.Random], str]] = {
    "training": _lines(STEP),
    "same-error": _lines(FAULT),
    "long-lines": lambda chance: _lines(LONG)(chance)[:-1],
    "mixed": _lines(*MIXED),
    "mixed-long": lambda chance: _lines(*MIXED)(chance)[:-1] + " ",
    "all-different": _different,
    "nccl": _named("node-{h}-{n}:{m}:{m} [{n}] NCCL INFO ", *NCCL),
    "cudnn-calls": _named("", *CUDNN),
    "start-up": _named("", *STARTS),
    "xla": _named("", *XLA),
    "progress": lambda chance: _lines(STEP)(chance)[:-1] + "\r",
    "coloured": lambda chance: "\x1b[32mINFO\x1b[0m " + _lines(*MIXED)(chance),
}


def chunks(kind: str, size: int, spent: list[float]) -> Iterator[bytes]:
    """Yield a log of `size` bytes with a line break after every 8 MB.

    `spent[0]` is increased by the seconds that it took to make it.
    """
    chance = random.Random(1)  # noqa: S311  not for secrets
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


_read: Read = functools.partial(read_log)  # as `gpuenv doctor` reads


def _copied(stream: Iterator[bytes]) -> tuple[Fact, ...]:
    for chunk in stream:
        b"\n".join(chunk.split(b"\n"))
    return ()


def _former(path: str) -> Read:
    """Return read_log of another release's log_reader.py, with the other modules of this one."""
    module = types.ModuleType("gpuenv.doctor.former")
    module.__package__ = "gpuenv.doctor"
    with open(path, encoding="utf-8") as stream:
        exec(compile(stream.read(), path, "exec"), module.__dict__)  # noqa: S102  the user names it
    read: Read = functools.partial(module.read_log)
    return read


def measure(kind: str, size: int, former: str) -> None:
    """Measure one kind of log in this process and print the result."""
    read_log([b"CUDA error\n" * 10_000])  # loads the data and prepares the search
    sides: dict[str, Read] = {"read": _read, "copied": _copied}
    if former:
        sides["former"] = _former(former)
    rates, facts, peak = {}, {}, 0.0
    for side, read in sides.items():
        spent = [0.0]
        begin = time.process_time()
        facts[side] = read(chunks(kind, size, spent))
        rates[side] = size / 1e6 / (time.process_time() - begin - spent[0])
        peak = peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    compared = ""
    for side, rate in rates.items():
        if side != "read":
            compared += f" {side} {rate:6.0f} ({rates['read'] / rate:5.2f})"
    differ = " DIFFERENT FACTS" if former and facts["read"] != facts["former"] else ""
    count_text = f"{len(facts['read']):5} facts{differ}"
    print(f"{kind:14} {rates['read']:5.0f} MB/s{compared} {count_text} {peak:6.1f} MiB", flush=True)


def main(words: list[str]) -> int:
    """Measure all kinds of logs, or the named ones."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--former", default="", metavar="FILE", help="another log_reader.py")
    parser.add_argument("size", nargs="?", default=200, type=int, metavar="MB")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    given = parser.parse_args(words)
    if "GPUENV_BENCH_CHILD" in os.environ:
        measure(given.kinds[0], given.size * 1_000_000, given.former)
        return 0
    options = ["--former", given.former] if given.former else []
    for kind in given.kinds or KINDS:
        command = [sys.executable, TOOLS, "bench", "doctor", *options, str(given.size), kind]
        subprocess.run(command, env={**os.environ, "GPUENV_BENCH_CHILD": "1"}, check=True)
    return 0
