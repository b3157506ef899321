"""Compile the C stand-ins for the driver's and other libraries.

The tests load them with the ordinary loader.
"""

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).parent / "native"


def build(
    source_name: str,
    soname: str,
    out_dir: Path,
    *,
    defines: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> Path:
    """Return the path of `soname`, compiled from tests/native/`source_name`, alone in a folder.

    Built once for each content of the source and options below `out_dir`, whoever else builds it at
    the same time.
    """
    source = NATIVE / source_name
    options = [*(f"-D{name}" for name in defines), *flags]
    key = hashlib.sha256(repr((soname, options)).encode() + source.read_bytes()).hexdigest()[:16]
    path = out_dir / f"{source.stem}-{key}" / soname
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{soname}.{os.getpid()}")
    command = [
        "gcc",
        "-std=gnu11",
        "-O1",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        f"-Wl,-soname,{soname}",
    ]
    subprocess.run([*command, *options, "-o", beside, source], check=True)
    beside.replace(path)
    return path


def nvml_script(host: Mapping[str, Any]) -> str:
    """Return the text that nvml_stub.c reads from the file named by NVML_STUB.

    The keys of a host are: `driver`, `cuda` (13000), `cuda_v1`, `nvml` (library release); `gpus`:
    name, cc "9.0", and optional uuid, bus, total, free (bytes), ecc, mode, mig (a list of name,
    uuid, gi, ci, total, free; its presence means that MIG mode is on); `fail`: [[function, code] or
    [function, code, GPU index]]; `hang`: [function].
    """
    lines = [
        ["driver", host.get("driver", "580.65.06")],
        ["cuda", host.get("cuda", 13000)],
        ["cuda_v1", host.get("cuda_v1", 99990)],
        ["nvml", host.get("nvml", "13.580.65.06")],
    ]
    for index, gpu in enumerate(host.get("gpus", [])):
        total = gpu.get("total", 80 << 30)
        mig = gpu.get("mig")
        uuid = gpu.get("uuid", f"GPU-{index:08d}-0000-4000-8000-000000000000")
        bus = gpu.get("bus", f"00000000:{index + 1:02X}:00.0")
        lines.append(
            ["gpu", gpu["name"], uuid, bus, *gpu["cc"].split("."), total, gpu.get("free", total)]
        )
        lines[-1] += [gpu.get("ecc", "-"), gpu.get("mode", "-"), "-" if mig is None else 1]
        for slot, it in enumerate(mig or []):
            size = it.get("total", 5 << 30)
            row = [
                it.get("slot", slot),
                it["name"],
                it["uuid"],
                it["gi"],
                it["ci"],
                size,
                it.get("free", size),
            ]
            lines.append(["mig", index, *row])
    lines += [["fail", *row, "-"][:4] for row in host.get("fail", [])]
    lines += [["hang", name] for name in host.get("hang", [])]
    return "".join("\t".join(map(str, line)) + "\n" for line in lines)
