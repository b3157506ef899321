"""A real conda, and a file:// channel of packages made by hand: no network is needed."""

import bz2
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
SITE = f"lib/python{HERE}/site-packages"
BASE = os.path.dirname(os.path.realpath(sys.executable))
ALONE = "include-system-site-packages = false\n"
FAKES = ("fake_arrays", "numpy", "torch")
_MISSING = "libcudnn.so.9: cannot open shared object file: No such file or directory"
BROKEN = f'raise ImportError("{_MISSING}")\n'


def fake_torch():
    """The files of a torch that can be imported."""
    texts = {name: (ROOT / "tests" / "fakes" / f"{name}.py").read_text() for name in FAKES}
    return {
        f"{SITE}/torch/__init__.py": texts.pop("torch"),
        **{f"{SITE}/{name}.py": text for name, text in texts.items()},
    }


PYTHON = (
    "python",
    f"{HERE}.0",
    "0",
    [],
    {"bin/python": f"-> {sys.executable}", "pyvenv.cfg": f"home = {BASE}\n{ALONE}"},
)


def packages():
    """A Python, a cuDNN, a good pytorch and a newer one that does not load."""
    return [
        PYTHON,
        ("cudnn", "9.10.2.21", "0", [], {"share/cudnn": "9.10.2"}),
        ("cudnn", "9.14.0.64", "0", [], {"share/cudnn": "9.14.0"}),
        ("cudnn", "9.20.0.48", "0", [], {"share/cudnn": "9.20.0"}),
        ("cuda-version", "12.9", "0", [], {"share/cuda-version": "12.9"}),
        ("cuda-version", "13.0", "0", [], {"share/cuda-version": "13.0"}),
        ("pytorch", "2.12.0", "0", ["python", "cudnn <9.20"], fake_torch()),
        (
            "pytorch",
            "2.13.0",
            "0",
            ["python", "cudnn >=9.20"],
            {f"{SITE}/torch/__init__.py": BROKEN},
        ),
        ("cowsay", "1.0", "0", [], {"share/cowsay": "moo"}),
    ]


def solvable():
    """Return builds for CUDA 12 and CUDA 13, named as on conda-forge; the second does not load."""
    tag = HERE.replace(".", "")
    python = f"python >={HERE},<{sys.version_info[0]}.{sys.version_info[1] + 1}.0a0"
    old = ["__cuda", python, "cuda-version >=12.9,<13", "cudnn >=9.10.1.4,<10.0a0"]
    new = ["__cuda", python, "cuda-version >=13.0,<14", "cudnn >=9.14.0.64,<10.0a0"]
    return [
        PYTHON,
        ("cuda-version", "12.9", "h4f385c5_3", [], {"share/cuda-version": "12.9"}),
        ("cuda-version", "13.0", "h4f385c5_3", [], {"share/cuda-version": "13.0"}),
        (
            "cudnn",
            "9.10.2.21",
            "hbcb9cd8_0",
            ["cuda-version >=12,<13.0a0"],
            {"share/cudnn": "9.10.2"},
        ),
        (
            "cudnn",
            "9.14.0.64",
            "hbcb9cd8_0",
            ["cuda-version >=13,<14.0a0"],
            {"share/cudnn": "9.14.0"},
        ),
        ("pytorch", "2.7.1", f"cuda129_mkl_py{tag}_h0000000_300", old, fake_torch()),
        (
            "pytorch",
            "2.9.1",
            f"cuda130_mkl_py{tag}_h0000000_300",
            new,
            {f"{SITE}/torch/__init__.py": BROKEN},
        ),
    ]


def make_channel(folder, rows):
    """The channel: one subfolder a platform, each with its repodata.json."""
    for subdir in ("linux-64", "noarch"):
        (folder / subdir).mkdir(parents=True)
        found = {}
        for name, version, build, depends, files in rows if subdir == "linux-64" else ():
            row = {"name": name, "version": version, "build": build, "depends": depends}
            row["build_number"] = int(build.rsplit("_", maxsplit=1)[-1])
            row.update(subdir=subdir, arch="x86_64", platform="linux", license="MIT")
            path = folder / subdir / f"{name}-{version}-{build}.tar.bz2"
            path.write_bytes(archive(row, files))
            data = path.read_bytes()
            hashes = {"md5": hashlib.md5(data, usedforsecurity=False).hexdigest()}
            hashes["sha256"] = hashlib.sha256(data).hexdigest()
            found[path.name] = {**row, **hashes, "size": len(data)}
        about = {
            "info": {"subdir": subdir},
            "packages": found,
            "packages.conda": {},
            "repodata_version": 1,
        }
        (folder / subdir / "repodata.json").write_text(json.dumps(about))


def archive(row, files):
    """Return a package in conda's first format: the JSON documents below info, and the files."""
    paths = []
    for path, text in sorted(files.items()):
        link = text.startswith("-> ")
        data = b"" if link else text.encode()
        kind = "softlink" if link else "hardlink"
        digest = hashlib.sha256(data).hexdigest()
        paths.append(
            {"_path": path, "path_type": kind, "sha256": digest, "size_in_bytes": len(data)}
        )
    info = {
        "info/index.json": json.dumps(row),
        "info/files": "".join(f"{path}\n" for path in sorted(files)),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, text in [*info.items(), *files.items()]:
            member = tarfile.TarInfo(path)
            data = text.encode()
            if text.startswith("-> "):
                member.type, member.linkname, data = tarfile.SYMTYPE, text.removeprefix("-> "), b""
            member.size, member.mode = len(data), 0o755 if path.startswith("bin/") else 0o644
            tar.addfile(member, io.BytesIO(data))
    return bz2.compress(out.getvalue())


def contents(prefix):
    """path -> (kind, mode, content) of all that is in a folder."""
    found = {}
    for path in sorted(prefix.rglob("*")):
        if path.is_symlink():
            one = ("link", 0, os.readlink(path).encode())
        elif path.is_dir():
            one = ("folder", path.stat().st_mode, b"")
        else:
            one = ("file", path.stat().st_mode, path.read_bytes())
        found[str(path.relative_to(prefix))] = one
    return found


class Conda:
    """A real conda with this gpuenv as its plugin; settings and caches are in a folder."""

    def __init__(self, executable, folder):
        self.executable, self.folder = executable, folder
        self.plugins = folder / "plugins"
        self.plugins.mkdir()
        shutil.copytree(
            ROOT / "resolver" / "gpuenv",
            self.plugins / "gpuenv",
            ignore=shutil.ignore_patterns("*.pyc"),
        )
        shutil.copytree(
            ROOT / "matrix_data", self.plugins / "gpuenv" / "matrix_data", ignore=_not_shipped
        )
        shutil.copy(ROOT / "resolver" / "gpuenv_conda_plugin.py", self.plugins)
        info = self.plugins / "gpuenv-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuenv\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text("[conda]\ngpuenv = gpuenv_conda_plugin\n")
        make_channel(folder / "channel", packages())
        make_channel(folder / "solvable", solvable())
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
        self.info = json.loads(self.run("info", "--json").stdout)
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
        code = (
            "import importlib.util, sys\n"
            "print(*[name for name in sys.argv[1:] if not importlib.util.find_spec(name)])"
        )
        done = subprocess.run(
            [self.python, "-c", code, *modules], capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    def run(self, *arguments, typed="", **env):
        """One command of conda's; `typed` is what the user answers."""
        return subprocess.run(
            [self.executable, *arguments],
            env={**self.env, **env},
            cwd=self.folder,
            input=typed,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def python_runs(self, code, *arguments, timeout=300):
        """Run code in conda's interpreter, with gpuenv."""
        command = [self.python, "-c", code, *arguments]
        return subprocess.run(
            command,
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def break_torch(self, prefix):
        """Replace torch in one environment. Unlink the file first: the package cache shares it."""
        path = prefix / SITE / "torch" / "__init__.py"
        path.unlink()
        path.write_text(BROKEN)

    def create(self, name, specs):
        """An environment of the channel's packages, made while gpuenv's check is off."""
        done = self.run(
            "create", "--yes", "--name", name, *specs, CONDA_PLUGINS_GPUENV_VERIFY="off"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return self.folder / "envs" / name


def _not_shipped(folder, names):
    return [name for name in names if name in {"scans", "__pycache__"}]


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
