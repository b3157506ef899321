"""The Python API: names, signatures, types and errors; the examples of docs/api.md; notebooks."""

import inspect
import re
import sys

import pytest

import gpuenv
from gpuenv.errors import InputError, argument_text
from processes import run_program
from tables import ROOT, data_file, each

PAGE = (ROOT / "docs" / "api.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
HOST = gpuenv.describe(gpus=["H100"], driver="580.65.06", python="3.12", glibc="2.35")

USES = data_file("api_uses.toml")


def test_the_examples_run(tmp_path):
    (tmp_path / "examples.py").write_text("\n".join(EXAMPLES))
    done = run_program(
        f"{sys.executable} examples.py",
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "resolver"), "GPUENV_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.stderr == ""
    first, *_ = lines = done.stdout.splitlines()
    assert first.startswith("torch 2.") and first.endswith("cu132")
    assert "gpus 'H1000' is not a known GPU" in lines
    assert "gpus must be several texts, not 'H100'" in lines
    assert lines[-1] == "gpu_too_new_for_build likely"


def test_signatures_show_the_fields():
    text = str(inspect.signature(gpuenv.Request))
    assert text.startswith("(*, frameworks: ") and "exclude_newer: " in text and "**" not in text
    assert "gpus" in inspect.signature(gpuenv.describe).parameters
    for name in gpuenv.__all__:
        value = getattr(gpuenv, name)
        if inspect.isfunction(value):
            signature = inspect.signature(value)
            assert signature.return_annotation is not inspect.Signature.empty
            assert all(one.annotation is not one.empty for one in signature.parameters.values())
            assert value.__doc__


@each("use says", USES["wrong_types"])
def test_wrong_types_are_caught(use, says):
    with pytest.raises(gpuenv.WrongTypeError, match=re.escape(says)) as caught:
        eval(use, {"gpuenv": gpuenv, "HOST": HOST})  # noqa: S307  of this repository
    assert isinstance(caught.value, TypeError) and isinstance(caught.value, gpuenv.InputError)
    assert caught.value.__notes__


def test_errors_name_arguments():
    assert argument_text("--gpu 'X': is unknown, --exclude-newer: too") == (
        "gpus 'X': is unknown, exclude_newer: too"
    )
    assert argument_text("type gpuenv solve --gpu H100") == "type gpuenv solve --gpu H100"
    error = InputError("--driver '1': is none", hint="leave --platform out")
    assert (str(error), error.__notes__) == ("driver '1': is none", ["leave platform out"])
    assert error.message.startswith("--driver")


def test_mypy_accepts_the_program_and_rejects_each_wrong_use(tmp_path):
    program, wrong = USES["program"], USES["wrong"]
    (tmp_path / "program.py").write_text(program + "\n".join(wrong) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "program.py"]
    done = run_program(
        [*command, "--cache-dir", str(ROOT / ".mypy_cache"), "--no-error-summary"],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "resolver"), "PATH": ""},
        status=1,
    )
    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line}
    first = program.count("\n") + 1
    assert lines == set(range(first, first + len(wrong))), done.stdout


def test_notebooks_show_values():
    plan = gpuenv.solve(
        gpuenv.Request(frameworks=("torch",)), HOST, gpuenv.IndexOptions(offline=True)
    )
    html = plan._repr_html_()
    assert html.startswith('<pre><span style="font-weight: bold">')
    assert "torch 2." in html and "nothing written" not in html
    check = gpuenv.Check(name="files", subject="", status="fail", evidence="a < b")
    html = gpuenv.model.Checks([check])._repr_html_()
    assert "a &lt; b" in html and "firebrick" in html
    assert gpuenv.model.Checks([check]) == (check,) and HOST._repr_html_() is None
