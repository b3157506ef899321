"""Files of another project, in the working folder of the tests, above it and at home."""

import os
import subprocess
import sys
from pathlib import Path

from small_wheels import content
from stray_files import plant

ROOT = Path(__file__).parent.parent
# Tests that take a lock, a project or an environment of their working folder, if one lies there.
TESTS = (
    "test_conda_answers.py",
    "test_host_conditions.py",
)


def test_stray_files_change_no_result_and_no_test_changes_them(tmp_path: Path) -> None:
    working, home = tmp_path / "above" / "clone", tmp_path / "home"
    for folder in (working.parent, working, home):
        folder.mkdir()
        plant(folder)
    before = content(tmp_path)
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-c", str(ROOT / "pyproject.toml"), *(str(ROOT / "tests" / one) for one in TESTS)]
    done = subprocess.run(
        command,
        cwd=working,
        env={**variables, "HOME": str(home), "GPUENV_TEST_SAMPLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert content(tmp_path) == before
