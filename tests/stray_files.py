"""Files of another project, which lie in a folder and must change no result.

python3 tests/stray_files.py FOLDER
"""

import shutil
import sys
from pathlib import Path

LOCK = Path(__file__).parent / "data" / "locks" / "format-2.toml"
PROJECT = """
[project]
name = "stray"
version = "1"
dependencies = ["never-there==1"]

[tool.gpuenv.profiles.stray]
gpus = ["V100"]
driver = "550.54.14"
"""


def plant(folder):
    """Put a lock, a project, requirements and an environment that does not work into a folder."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(shutil.which("false") or "/bin/false")
    (folder / ".venv" / "pyvenv.cfg").write_text("home = /bin\nversion = 3.9.1\n")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "requirements.txt").write_text("never-there==1\n")
    shutil.copyfile(LOCK, folder / "pylock.toml")


if __name__ == "__main__":
    plant(Path(sys.argv[1]))
