"""Write pictures of real runs in a terminal to docs/pictures, as SVG, for light and dark pages.

    python scripts/tools.py docs pictures [NAME ...]

`sync` and `verify` install ONNX Runtime for the CPU from the default index into a temporary folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from argparse import Namespace
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text

from common import ROOT, own_code

WIDTH = 64  # columns
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


def run_in_terminal(command: str, folder: Path) -> str:
    """Return what a command prints on a terminal.

    Its errors and its progress are left out. The names of this machine's folders are replaced.
    """
    line = f"stty cols {WIDTH} rows 50; {sys.executable} -m {command} 2> /dev/null"
    done = subprocess.run(
        ["script", "--quiet", "--command", line, os.devnull], cwd=folder,
        env=own_code(TERM="xterm-256color"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        text=True, check=True,
    )  # fmt: skip
    text = done.stdout.replace(str(folder), "~/project")
    return re.sub(rf"\s+{re.escape(sys.executable)}", " python3", text)


def picture(command: str, output: str, theme: TerminalTheme) -> str:
    """Return a terminal with a command and its output as an SVG that loads nothing."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"\x1b[1m$ {command}\x1b[0m\n{output}".rstrip() + "\n"))
    text = console.export_svg(title="", theme=theme, unique_id="terminal")
    return FONTS_AND_COMMENTS.sub("", text).replace(
        "Fira Code", "DejaVu Sans Mono, Menlo, Consolas"
    )


ARGUMENTS = {
    "names": {"nargs": "*", "metavar": "NAME", "help": ", ".join(COMMANDS)},
}


def main(arguments: Namespace) -> int:
    """Run the commands and write their pictures."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, installed = Path(temporary), Path(temporary, "installed")
        (folder / "train.log").write_text(LOG)
        installed.mkdir()
        run_in_terminal(PREPARED, installed)
        for name in arguments.names or COMMANDS:
            place = installed if name in ("sync", "verify") else folder
            output = run_in_terminal(COMMANDS[name], place)
            for variant, theme in THEMES.items():
                path = ROOT / "docs" / "pictures" / f"{name}-{variant}.svg"
                path.write_text(picture(COMMANDS[name], output, theme))
    return 0
