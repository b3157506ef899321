"""A real conda, and a file:// channel of packages made by hand: no network is needed."""

import os
import shutil
import sys
import tomllib

import pytest

import conda_channel
from conda_channel import SITE
from processes import run_program, words_of
from tables import DATA, HERE, ROOT

LOADS = ("2.7.1", "2.12.0")  # the releases of pytorch that can be imported
FAKES = ("fake_arrays", "numpy", "torch")
_MISSING = "libcudnn.so.9: cannot open shared object file: No such file or directory"
BROKEN = f'raise ImportError("{_MISSING}")\n'
TORCH = f"{SITE}/torch/__init__.py"


def make_channels(folder):
    """Make the channels of conda_stand_in.toml, each in a folder of its name."""
    text = (DATA / "conda_stand_in.toml").read_text()
    text = text.replace("PYTHON", HERE).replace("TAG", HERE.replace(".", ""))
    for channel, packages in tomllib.loads(text).items():
        rows = []
        for package, depends in packages.items():
            rows.append(conda_channel.row_of(package, depends))
            if rows[-1]["name"] == "pytorch":
                rows[-1]["files"] = torch_files(loads=rows[-1]["version"] in LOADS)
        conda_channel.make(folder / channel, rows)


def torch_files(*, loads):
    """The files of a torch that can be imported, or of one that lacks cuDNN."""
    if not loads:
        return {TORCH: BROKEN}
    texts = {name: (ROOT / "tests" / "fakes" / f"{name}.py").read_text() for name in FAKES}
    return {TORCH: texts.pop("torch"), **{f"{SITE}/{name}.py": texts[name] for name in texts}}


class Conda:
    """A real conda with this gpuenv as its plugin; settings and caches are in a folder."""

    def __init__(self, executable, folder):
        self.executable, self.folder = executable, folder
        self.plugins, left_out = folder / "plugins", shutil.ignore_patterns("scans", "__pycache__")
        package = self.plugins / "gpuenv"
        shutil.copytree(ROOT / "resolver" / "gpuenv", package, ignore=left_out)
        shutil.copytree(ROOT / "matrix_data", package / "matrix_data", ignore=left_out)
        shutil.copy(ROOT / "resolver" / "gpuenv_conda_plugin.py", self.plugins)
        info = self.plugins / "gpuenv-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuenv\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text("[conda]\ngpuenv = gpuenv_conda_plugin\n")
        make_channels(folder)
        settings = [f"channels: ['file://{folder}/channel']", "notify_outdated_conda: false"]
        # The stand-in of Python needs no pip, as the classic solver would have it.
        settings.append("add_pip_as_python_dependency: false")
        (folder / "condarc").write_text("\n".join([*settings, ""]))
        clean = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("CONDA", "PYTHON", "GPUENV_"))
        }
        self.env = {
            **clean,
            "HOME": str(folder),
            "PYTHONPATH": str(self.plugins),
            "CONDARC": str(folder / "condarc"),
            "CONDA_PKGS_DIRS": str(folder / "pkgs"),
            "CONDA_ENVS_DIRS": str(folder / "envs"),
        }
        self.info = self.run("info --json").document
        self.python = os.path.join(self.info["root_prefix"], "bin", "python")
        self.solver = os.environ.get("GPUENV_TEST_CONDA_SOLVER", self.solvers()[0])
        with (folder / "condarc").open("a") as file:
            file.write(f"solver: {self.solver}\n")

    def solvers(self):
        """The solvers that it can be configured with, the one that tests take first."""
        needs = {
            "rattler": ["conda_rattler_solver"],
            "libmamba": ["libmambapy", "conda_libmamba_solver"],
            "classic": [],
        }
        return [name for name, modules in needs.items() if not self.lacks(*modules)]

    def lacks(self, *modules):
        """Those of the modules that conda's Python does not have."""
        names = "name for name in sys.argv[1:] if not importlib.util.find_spec(name)"
        code = f"import importlib.util, sys; print(*[{names}])"
        return run_program([self.python, "-c", code, *modules]).stdout.split()

    def run(self, command, *, typed="", status=0, **env):
        """One command of conda's; `typed` is what the user answers."""
        words = [self.executable, *words_of(command)]
        env = {**self.env, **env}
        return run_program(words, 300, status=status, env=env, cwd=self.folder, input=typed)

    def python_runs(self, code, *arguments, timeout=300):
        """Run code in conda's interpreter, with gpuenv."""
        command = [self.python, "-c", code, *arguments]
        return run_program(command, timeout, env=self.env, cwd=self.folder)

    def break_torch(self, prefix):
        """Replace torch in one environment. Unlink the file first: the package cache shares it."""
        (prefix / TORCH).unlink()
        (prefix / TORCH).write_text(BROKEN)

    def create(self, name, specs):
        """An environment of the channel's packages, made while gpuenv's check is off."""
        off = {"CONDA_PLUGINS_GPUENV_VERIFY": "off"}
        self.run(f"create --yes --name {name} {specs}", **off)
        return self.folder / "envs" / name


def real_conda(folder):
    """Return the conda of GPUENV_TEST_CONDA, otherwise that of PATH. Skip the test without one."""
    executable = os.environ.get("GPUENV_TEST_CONDA") or shutil.which("conda")
    if executable is None:
        pytest.skip("no conda: GPUENV_TEST_CONDA names none and none is on PATH")
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("the channel's packages are for linux-64")
    one = Conda(executable, folder)
    lacking = one.lacks("packaging", "pip", "pynvml", "requests", "resolvelib", "rich", "yaml")
    if lacking:
        pytest.skip(f"conda's Python lacks what gpuenv needs: {', '.join(lacking)}")
    return one
