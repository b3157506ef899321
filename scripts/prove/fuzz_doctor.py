"""Fuzz the log reader and the parser of cuDNN's logs: no crash, and no run over a second.

    python scripts/tools.py prove fuzz-doctor [RUNS] [SEED]

A run generates a log from pieces of real messages and lines: cut, repeated, joined with noise,
color codes and arbitrary bytes. Most are short; one in a thousand is long and adversarial. The log
is read once, in one piece or in chunks, as a short log or as a long one. Every ten seconds the
number of runs, the rate and the slowest run are printed. A crash prints the number of its run.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time

from gpuenv.doctor.catalog import messages
from gpuenv.doctor.cudnn_calls import HandleTracker
from gpuenv.doctor.judge import diagnose
from gpuenv.doctor.log_reader import LogReader
from gpuenv.doctor.model import Fact
from gpuenv.doctor.stream import blocks, cleaned
from gpuenv.verify.cudnn_log import calls, reasons

CUDNN = (
    "E! CuDNN (v92800 42) function cudnnCreate() "
    "called:", "e!     Error: CUDNN_STATUS_INTERNAL_ERROR; Reason: ",
    "w!     Warning: CUDNN_STATUS_SUCCESS; Reason: cuDNN Library configuration is set to "
    "AUTO.", "ptrDesc->finalize()",
    "Unable to load any of {libcudnn_ops.so.9.1.0, "
    "libcudnn_ops.so.9}", "!a.b::c->d()", "_status_x", "I! ",
    "\nError: CUDNN_STATUS_BAD_PARAM; Reason: a.b.c()\nError: CUDNN_STATUS_BAD_PARAM; "
    "Reason: ", "Please make sure ",
    "i! Time: 2026-03-04T05:06:07.890 (0d+0h+0m+1s since "
    "start)", "i!     handle: type=cudnnHandle_t; streamId=0x7f;",
    "I! CuDNN (v91900 56) function cudnnBackendExecuteInternal() called:\n"
    "i! ", "function cudnnDestroy() called:",
    "i!     handle: type=cudnnHandle_t; "
    "val=NULL_PTR;", "Process=1; Thread=2; GPU=0; Handle=0x1a; StreamId=0x2.\n",
    "Process=1; Thread=3; GPU=0; Handle=0x1a; StreamId=(nil) "
    "(defaultStream).\n", "; Handle=0x", "() called:",
    "Process=4; Thread=4; GPU=0; Handle=0x1a; StreamId=0x2.\n",
    "Process=1; Thread=2; GPU=NULL; Handle=NULL; StreamId=NULL.\n",
)  # fmt: skip
LINES = (
    "[rank3]: RuntimeError: cuDNN error: "
    "CUDNN_STATUS_INTERNAL_ERROR", "n1:123:456 [3] NCCL INFO Channel 00/24 : 0 1",
    "| NVIDIA-SMI 580.65.06   Driver Version: 580.65.06      CUDA Version: 13.0     "
    "|", "8MiB /  81920MiB |      0%",
    "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the "
    "bus.", "NVIDIA H100 80GB HBM3, compute capability 9.0",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.1 GiB of "
    "which 1.2 GiB is "
    "free", "libcudnn_ops.so.9: cannot open shared object file: No such file or directory",
    "Loaded runtime CuDNN library: 8.0.5 but source was compiled with: "
    "8.1.0.", "Collecting nvidia-cudnn-cu12==9.1.0",
)  # fmt: skip
NOISE = (
    "\n", "\r\n", "\r", " ", "\t", "\x1b[1;31m", "\\u001b[0m", "^[[0m", "'", '"', "(", "((", ")",
    "{", ".so.9", "/",
    "::", "9.1.0", "->", "undefined symbol: ", "0" * 30, "A" * 300, " " * 300, "lib" * 50,
    "a.b" * 60, "\0", "\ufffd",
    "\u212a", "\u00e9", "\x1b", "0x7f3a", "_" * 90, "- " * 40,
)  # fmt: skip
LONG = 1000  # one run in LONG is long
SLOW = 1.0  # seconds


class Maker:
    """Generates logs."""

    def __init__(self) -> None:
        self.pieces = [needle.decode() for message in messages() for needle in message.needles]
        self.pieces += [
            message.pattern.replace("\\", "").replace("(?:", "") for message in messages()
        ]
        self.pieces += [*CUDNN, *LINES, *LINES, *LINES]

    def log(self, chance: random.Random) -> bytes:
        """Return a log of up to 40 pieces, or random bytes."""
        draw = chance.random()
        if draw < 0.05:
            return chance.randbytes(chance.randrange(400))
        if draw > 1 - 1 / LONG:
            return self.long(chance)
        parts = []
        for _ in range(chance.randrange(1, 40 if draw > 0.9 else 8)):
            piece = chance.choice(self.pieces if chance.random() < 0.6 else NOISE)
            cut = chance.random()
            if cut < 0.3 and piece:
                at = chance.randrange(len(piece))
                piece = (
                    piece[at:] if cut < 0.2 else piece[:at] + chance.choice(NOISE) + piece[at + 1 :]
                )
            parts.append(piece * (chance.randrange(1, 50) if cut > 0.98 else 1))
            if chance.random() < 0.4:
                parts.append("\n")
        return "".join(parts).encode("utf-8", "replace")

    def long(self, chance: random.Random) -> bytes:
        """Return a few pieces, repeated up to a megabyte, with or without line breaks."""
        count = chance.randrange(1, 5)
        sources = (self.pieces if chance.random() < 0.5 else NOISE for _ in range(count))
        pieces = [chance.choice(source) for source in sources]
        end = chance.choice(("", "", "\n", " "))
        once = (end.join(pieces) + end).encode("utf-8", "replace") or b"x"
        return once * (chance.choice((20_000, 200_000, 1_000_000)) // len(once) + 1)


def run(log: bytes, chance: random.Random) -> None:
    """Read a log as the doctor does, and as verification does."""
    reader = LogReader(small=0 if chance.random() < 0.5 else 1 << 15)
    size = chance.choice((len(log) or 1, len(log) or 1, chance.randrange(1, 200) + len(log) // 500))
    handles = HandleTracker()
    chunks = cleaned(log[at : at + size] for at in range(0, len(log), size))
    for block, more, begin, end in blocks(chunks):
        handles.read(block[begin:end], reader.line)
        reader.read(block, more, begin, end)
    facts: tuple[Fact, ...] = (*reader.facts.values(), *handles.facts.values())
    diagnose(facts, ())
    text = log.decode("utf-8", "replace")
    reasons(text)
    calls(text)


class Progress:
    """The progress of the runs, printed every ten seconds, also during a slow run."""

    def __init__(self) -> None:
        self.number = self.over = self.which = 0
        self.slowest = 0.0
        self.begin = self.started = time.monotonic()
        signal.signal(signal.SIGALRM, lambda *_ignored: self.show())
        signal.setitimer(signal.ITIMER_REAL, 10, 10)

    def show(self) -> None:
        """Print the number of runs, the rate and the slowest run."""
        now = time.monotonic()
        rate = self.number / (now - self.begin)
        lasting = ""
        if now - self.started > SLOW:
            lasting = f", run {self.number} for {now - self.started:.0f} s"
        slowest = f"slowest {self.slowest * 1000:.0f} ms (run {self.which})"
        print(f"{self.number} runs, {rate:.0f}/s, {slowest}{lasting}", flush=True)

    def note(self, number: int, spent: float) -> None:
        """Count a finished run that took `spent` seconds."""
        self.number, self.started = number + 1, time.monotonic()
        self.over += spent > SLOW
        self.slowest, self.which = max((self.slowest, self.which), (spent, number))


def main(words: list[str]) -> int:
    """Run the fuzzer. Return 1 if a run was too slow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="?", type=int, default=10_000)
    parser.add_argument("seed", nargs="?", type=int, default=1)
    arguments = parser.parse_args(words)
    runs, seed = arguments.runs, arguments.seed
    maker, progress = Maker(), Progress()
    for number in range(runs):
        chance = random.Random(seed * 1_000_000_007 + number)  # noqa: S311  not for secrets
        log = maker.log(chance)
        started = time.process_time()
        try:
            run(log, chance)
        except Exception:
            print(f"run {number} of seed {seed} failed", file=sys.stderr)
            raise
        progress.note(number, time.process_time() - started)
    progress.show()
    print(f"{runs} runs of seed {seed}: no crash, {progress.over} over {SLOW:.0f} s")
    return int(progress.over > 0)
