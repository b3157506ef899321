"""Fuzzes the reader of logs and the parser of cuDNN's logs: no crash, no run over a second.

    python scripts/fuzz_doctor.py [RUNS] [SEED]

A run is a made-up log: pieces of real messages, cut, repeated, joined with noise and colour codes, and bytes of any
kind. The slowest run and the number of runs are printed; a crash prints the log's seed.
"""

from __future__ import annotations

import random
import sys
import time

from gpuenv.doctor import diagnose, read_log
from gpuenv.doctor.catalogue import messages
from gpuenv.verification.evidence import reasons

CUDNN = (
    "E! CuDNN (v92800 42) function cudnnCreate() called:", "e!     Error: CUDNN_STATUS_INTERNAL_ERROR; Reason: ",
    "w!     Warning: CUDNN_STATUS_SUCCESS; Reason: cuDNN Library configuration is set to AUTO.", "ptrDesc->finalize()",
    "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9}", "!a.b::c->d()", "_status_x", "I! ",
)  # fmt: skip
NOISE = (
    "\n", "\r\n", " ", "\t", "\x1b[1;31m", "\\u001b[0m", "'", '"', "(", "((", ")", "{", ".so.9", "/", "9.1.0", "::",
    "->", "undefined symbol: ", "0" * 30, "A" * 300, " " * 300, "lib" * 50, "a.b" * 60, "\0", "\ufffd",
)  # fmt: skip


def made(chance: random.Random, pieces: list[str]) -> bytes:
    """A log of up to 40 pieces, or raw bytes; one in ten is long."""
    if chance.random() < 0.05:
        return chance.randbytes(chance.randrange(400))
    parts = []
    for _ in range(chance.randrange(1, 40 if chance.random() < 0.1 else 8)):
        piece = chance.choice(pieces if chance.random() < 0.6 else NOISE)
        begin = chance.randrange(len(piece)) if chance.random() < 0.3 else 0
        parts.append(piece[begin:] * (1 if chance.random() < 0.95 else chance.randrange(1, 200)))
    return "".join(parts).encode("utf-8", "replace")


def main() -> int:
    """Runs them."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    pieces = [needle.decode() for message in messages() for needle in message.needles]
    pieces += [message.pattern.replace("\\", "").replace("(?:", "") for message in messages()] + list(CUDNN)
    slowest, begin = 0.0, time.monotonic()
    for run in range(runs):
        log = made(random.Random(seed * 1_000_003 + run), pieces)  # noqa: S311  nothing secret is made
        started = time.perf_counter()
        try:
            diagnose(read_log([log]), ())
            reasons(log.decode("utf-8", "replace"))
        except Exception:
            print(f"run {run} of seed {seed} failed", file=sys.stderr)
            raise
        slowest = max(slowest, time.perf_counter() - started)
    print(f"{runs} runs in {time.monotonic() - begin:.0f} s, the slowest {slowest * 1000:.1f} ms")
    return int(slowest > 1)


if __name__ == "__main__":
    sys.exit(main())
