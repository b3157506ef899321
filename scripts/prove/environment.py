"""Verify an environment that gpuenv did not make, add faults to a copy, and record the results.

    python scripts/tools.py prove environment --environment EXE --date 2026-11-21 --record
    docs/hosts/h200-frameworks.json
        [--shadow DIR] [--old-cudnn DIR] [--other-wheel FILE]

Every step is a process of the command line, timed as a whole; nothing is asked of a network, and no
setting of a GPU is changed. The copy shares its files with the environment by hard links: a fault
replaces a file, and never writes into one. `--shadow` is a folder with another cuDNN, `--old-cudnn`
one with files of an older release. `--other-wheel` is a companion's wheel for another torch: it
takes the place of the installed one. UUIDs are left out.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from common import ROOT
from prove.host import without_uuids

HERE = str(ROOT)
MIB = 1 << 20


class Prover:
    """The steps of one run, and their record."""

    def __init__(self, folder: str, python: str) -> None:
        self.folder, self.python, self.rows = folder, python, list[dict[str, Any]]()

    def verify(
        self, name: str, *flags: str, python: str = "", source: str = HERE, **environment: str
    ) -> None:
        """Run `gpuenv verify` with changed variables or from a changed copy of the sources."""
        words = ["verify", "--python", python or self.python, *flags]
        path = os.pathsep.join([os.path.join(source, "resolver"), os.environ.get("PYTHONPATH", "")])
        variables = {**os.environ, **environment, "PYTHONPATH": path}
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "gpuenv", *words, "--json"],
            cwd=self.folder, env=variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = round(time.perf_counter() - start, 2)
        try:
            document = json.loads(done.stdout)
        except ValueError:
            document = {"stderr": done.stderr[-2000:]}
        row: dict[str, Any] = {"step": name, "command": ["gpuenv", *words], "exit": done.returncode}
        if environment:
            row["environment"] = environment
        self.rows.append({**row, "seconds": seconds, "document": document})
        print(
            f"{name}: exit {done.returncode}, {seconds} s {done.stderr.strip()[-300:]}", flush=True
        )
        for check in document.get("checks", ()):
            if check["status"] != "pass":
                evidence = check["evidence"][:260]
                print(
                    f"   {check['status']} {check['name']} {check['subject']}: {evidence}",
                    flush=True,
                )

    def cost(self, name: str, *flags: str, bare: list[str], runs: int = 9) -> None:
        """Measure whole processes in turn: a verification, and a process that does nothing."""
        times: dict[str, list[float]] = {"verify": [], "bare": []}
        verify = [
            sys.executable,
            "-m",
            "gpuenv",
            "verify",
            "--python",
            self.python,
            *flags,
            "--json",
        ]
        for _ in range(runs):
            for label, command in (("verify", verify), ("bare", bare)):
                start = time.perf_counter()
                subprocess.run(command, cwd=self.folder, capture_output=True, check=False)
                times[label].append(round(time.perf_counter() - start, 3))
        middle = {label: statistics.median(values) for label, values in times.items()}
        self.rows.append(
            {"step": name, "command": ["gpuenv", *verify[3:]], "exit": 0, "seconds_of": times}
        )
        print(f"{name}: verify {middle['verify']:.2f} s, bare {middle['bare']:.2f} s", flush=True)


def copied(python: str, folder: str, name: str, *patterns: str) -> str:
    """Return the interpreter of a hard-linked copy of an environment, or of some packages of it."""
    target = os.path.join(folder, name)
    if not patterns:
        prefix = os.path.dirname(os.path.dirname(python))
        subprocess.run(["cp", "-al", prefix, target], check=True)
        return os.path.join(target, "bin", "python")
    subprocess.run([python, "-m", "venv", "--without-pip", target], check=True)
    for pattern in patterns:
        subprocess.run(
            ["cp", "-al", *glob.glob(os.path.join(packages(python), pattern)), packages(target)],
            check=True,
        )
    return os.path.join(target, "bin", "python")


def packages(environment: str) -> str:
    """Return the folder of packages of an environment, given its folder or its interpreter."""
    if not os.path.isdir(environment):
        environment = os.path.dirname(os.path.dirname(environment))
    return glob.glob(os.path.join(environment, "lib", "python*", "site-packages"))[0]


def replaced(path: str, content: str | None) -> Callable[[], None]:
    """Put a copy of another file, or nothing, in the place of one; gives what takes it back."""
    os.rename(path, path + ".kept")
    if content is not None:
        shutil.copy(content, path)

    def back() -> None:
        os.rename(path + ".kept", path)

    return back


def tampered(folder: str, name: str, script: str, old: str, new: str) -> str:
    """Return a copy of the sources of which one probe is changed."""
    root = os.path.join(folder, name)
    for part in ("resolver", "matrix_data"):
        shutil.copytree(os.path.join(HERE, part), os.path.join(root, part))
    path = os.path.join(root, "resolver", "gpuenv", "probes", script)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.count(old) != 1:
        sys.exit(f"{script} has {text.count(old)} places such as {old!r}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(old, new))
    return root


FILL = """
import sys, torch
free, total = torch.cuda.mem_get_info()
leave = int(sys.argv[1])
held = []
for step in (1 << 30, 64 << 20, 4 << 20):
    while torch.cuda.mem_get_info()[0] > leave + step:
        held.append(torch.empty(step, dtype=torch.uint8, device="cuda"))
print("full", torch.cuda.mem_get_info()[0], flush=True)
sys.stdin.read()
"""


def filled(prover: Prover, leave: int) -> None:
    """Verify while another process holds all memory of the first device but `leave` MiB."""
    child = subprocess.Popen(
        [prover.python, "-c", FILL, str(leave * MIB)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(child.stdout.readline().strip() if child.stdout else "", flush=True)
    prover.verify(f"{leave} MiB left on the card", "--framework", "torch")
    child.send_signal(signal.SIGKILL)
    child.wait()


def faults(prover: Prover, copy: str, shadow: list[str], old: str | None) -> None:
    """Add, verify and remove each fault."""
    folder = packages(copy)
    cudnn = os.path.join(folder, "nvidia", "cudnn", "lib")
    prover.verify("the copy, untouched", "--framework", "torch", python=copy)
    for path in shadow:
        front = f"{path}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        prover.verify("another cuDNN in front", "--framework", "torch", LD_LIBRARY_PATH=front)
        member = sorted(glob.glob(os.path.join(path, "libcudnn_cnn.so.9*")))[-1]
        back = replaced(os.path.join(cudnn, "libcudnn_cnn.so.9"), os.path.realpath(member))
        prover.verify("a sub-library swapped", "--framework", "torch", python=copy)
        back()
    back = replaced(os.path.join(cudnn, "libcudnn_cnn.so.9"), None)
    prover.verify("a sub-library removed", "--framework", "torch", python=copy)
    back()
    if old is not None:
        backs = []
        for name in sorted(os.listdir(old)):
            own = os.path.join(cudnn, name)
            if name.startswith("libcudnn") and os.path.exists(own):
                backs.append(replaced(own, os.path.join(old, name)))
        prover.verify("an old cuDNN under jax", "--framework", "jax", python=copy)
        for back in backs:
            back()
    prover.verify("a device that is not there", "--framework", "torch", CUDA_VISIBLE_DEVICES="7")


# Text that makes torchvision keep all boxes; the wrong result of an operation.
WRONG_NMS = """
_right = nms


def nms(boxes, scores, iou_threshold):
    return _right(boxes, scores, 1.0)
"""


def companion_faults(prover: Prover, copy: str, wheels: list[str]) -> None:
    """Verify everything in the copy, and then with faults of what is beside torch."""
    site = packages(copy)
    prover.verify("everything in the copy", python=copy)
    boxes = os.path.join(site, "torchvision", "ops", "boxes.py")
    back = replaced(boxes, boxes + ".kept")
    with open(boxes, "a", encoding="utf-8") as file:
        file.write(WRONG_NMS)
    prover.verify("an operation of torchvision that is wrong", python=copy)
    back()
    for library in sorted(glob.glob(os.path.join(site, "torchaudio", "lib", "libtorchaudio*.so"))):
        back = replaced(library, None)
        prover.verify("a library of torchaudio that is hidden", python=copy)
        back()
    for wheel in wheels:
        name = os.path.basename(wheel).split("-")[0]
        other = copied(copy, prover.folder, f"other-{name}")
        place = packages(other)
        for path in glob.glob(os.path.join(place, f"{name}*")):
            if re.fullmatch(rf"{name}(\.libs|-[0-9].*\.dist-info)?", os.path.basename(path)):
                shutil.rmtree(path)
        shutil.unpack_archive(wheel, place, "zip")
        prover.verify(f"{os.path.basename(wheel)} in its place", python=other)


def imports_cost(prover: Prover) -> None:
    """Measure a whole verification, and the probe of torch with the imports that it makes."""
    checks = prover.rows[0]["document"]["checks"]
    modules = [
        check["evidence"].split(": ")[1].partition(";")[0].split(", ")[0]
        for check in checks
        if check["name"] == "import" and check["status"] == "pass"
    ]
    each = f"xargs -P {os.cpu_count()} -I NAME {prover.python} -c 'import NAME'"
    bare = f"printf '%s\\n' {' '.join(modules)} | {each}"
    prover.cost("cost of everything", bare=["sh", "-c", bare], runs=3)


def broken_children(prover: Prover) -> None:
    """Verify with children that hang, abort, or use a wrong reference."""
    loaded = "        self.torch = module\n"
    right = "    return [value / (UNIT * UNIT)"
    torch = ("--framework", "torch")
    for name, script, old, new, flags in (
        ("a wrong reference", "_reference.py", right, f"    sums[4711] += 64\n{right}", ()),
        (
            "a child that hangs",
            "torch.py",
            loaded,
            f"{loaded}        __import__('time').sleep(999)\n",
            (*torch, "--timeout", "12"),
        ),
        (
            "a child that aborts",
            "torch.py",
            loaded,
            f"{loaded}        __import__('os').abort()\n",
            torch,
        ),
    ):
        source = tampered(prover.folder, name.replace(" ", "-"), script, old, new)
        prover.verify(name, *flags, source=source)


def main(words: list[str]) -> None:
    """Run the steps and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--environment", required=True, help="its interpreter")
    parser.add_argument("--date", required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--shadow", action="append", default=[])
    parser.add_argument("--old-cudnn")
    parser.add_argument("--other-wheel", action="append", default=[])
    parser.add_argument(
        "--clean-only", action="store_true", help="no faults: for a host with several devices"
    )
    parser.add_argument(
        "--companions", action="store_true", help="only faults of what is beside the frameworks"
    )
    arguments = parser.parse_args(words)
    python = arguments.environment
    folder = tempfile.mkdtemp(
        dir=os.path.dirname(os.path.dirname(os.path.dirname(python)))
    )  # hard links need it
    try:
        prover = Prover(folder, python)
        detected = subprocess.run(
            [sys.executable, "-m", "gpuenv", "detect", "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        prover.verify("verify")
        prover.verify("verify again")
        if not arguments.companions:
            prover.verify(
                "cuDNN without a framework",
                python=copied(python, folder, "bare", "nvidia", "nvidia_[!m]*"),
            )
        if arguments.companions:
            imports_cost(prover)
            companion_faults(prover, copied(python, folder, "copy"), arguments.other_wheel)
        elif not arguments.clean_only:
            probes = os.path.join(HERE, "resolver", "gpuenv", "probes")
            probe = [os.path.join(probes, name) for name in ("_run.py", "torch.py")]
            options = json.dumps({"import_name": "torch", "device": True, "devices": 1})
            prover.cost(
                "cost of torch", "--framework", "torch", bare=[python, "-B", "-I", *probe, options]
            )
            faults(prover, copied(python, folder, "copy"), arguments.shadow, arguments.old_cudnn)
            broken_children(prover)
            filled(prover, 120)
            filled(prover, 700)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record = {"date": arguments.date, "host": json.loads(detected.stdout), "steps": prover.rows}
    text = json.dumps(without_uuids(record), indent=1)
    prefix = os.path.dirname(os.path.dirname(python))
    text = text.replace(folder, "WORK").replace(prefix, "ENVIRONMENT").replace(HERE, "CHECKOUT")
    with open(arguments.record, "w", encoding="utf-8") as file:
        file.write(text + "\n")
