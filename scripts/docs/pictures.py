"""Write pictures of real runs in a terminal to docs/pictures, as SVG, for light and dark pages.

    python scripts/tools.py docs pictures [--width 64] [--to docs/pictures] [NAME ...]

`sync` and `verify` install ONNX Runtime for the CPU from the default index into a temporary folder.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

from common import ROOT

THEMES = {"light": DEFAULT_TERMINAL_THEME, "dark": SVG_EXPORT_THEME}
OLD_GPU = '--gpu "GTX 1080 Ti" --driver 580.65.06'
COMMANDS = {
    "solve": f"gpuenv solve torch {OLD_GPU} --python 3.12",
    "sync": "gpuenv sync --target .venv",
    "verify": "gpuenv verify --target .venv",
    "doctor": f"gpuenv doctor train.log {OLD_GPU}",
    "explain": 'gpuenv explain "torch==2.15.0" --gpu V100 --driver 580.65.06 --python 3.12',
}
PREPARED = "gpuenv solve onnxruntime --gpu none"  # the lock that sync installs
LOG = """\
Traceback (most recent call last):
  File "/home/ada/train.py", line 41, in <module>
    out = model(batch.to("cuda"))
torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device
NVIDIA GeForce GTX 1080 Ti with CUDA capability sm_61 is not compatible with this installation.
The current PyTorch install supports CUDA capabilities sm_75 sm_80 sm_86 sm_90 sm_100 sm_120.
"""
FONTS_AND_COMMENTS = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)


def run_in_terminal(command: str, folder: Path, width: int) -> str:
    """Return what a command prints on a terminal of some width.

    Its errors and its progress go to this process's stderr. The names of this machine's folders are
    replaced.
    """
    leader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    words = [sys.executable, "-m", *shlex.split(command)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "resolver"), "TERM": "xterm-256color"}
    with subprocess.Popen(
        words, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=terminal
    ):
        os.close(terminal)
        pieces = []
        while piece := _read(leader):
            pieces.append(piece)
    os.close(leader)
    text = b"".join(pieces).decode().replace("\r\n", "\n")
    text = text.replace(str(folder), "~/project")
    return re.sub(rf"\s+{re.escape(sys.executable)}", " python3", text)


def _read(leader: int) -> bytes:
    """Return the next output; Linux reports the end as an error."""
    try:
        return os.read(leader, 65536)
    except OSError:
        return b""


def picture(command: str, output: str, width: int, theme: str) -> str:
    """Return a terminal with a command and its output as an SVG that loads nothing."""
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"\x1b[1m$ {command}\x1b[0m\n{output}".rstrip() + "\n"))
    text = console.export_svg(title="", theme=THEMES[theme], unique_id="terminal")
    return FONTS_AND_COMMENTS.sub("", text).replace(
        "Fira Code", "DejaVu Sans Mono, Menlo, Consolas"
    )


def main(words: list[str]) -> None:
    """Run the commands and write their pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(COMMANDS))
    parser.add_argument("--width", type=int, default=64, help="columns of the terminal")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "pictures", help="a folder")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "train.log").write_text(LOG)
        (folder / "installed").mkdir()
        run_in_terminal(PREPARED, folder / "installed", arguments.width)
        for name in arguments.names or COMMANDS:
            place = folder / "installed" if name in ("sync", "verify") else folder
            output = run_in_terminal(COMMANDS[name], place, arguments.width)
            for theme in THEMES:
                text = picture(COMMANDS[name], output, arguments.width, theme)
                (arguments.to / f"{name}-{theme}.svg").write_text(text)
