"""Tiny wheels with a module, a script and a correct RECORD; their locks; content of folders."""

import base64
import hashlib
import importlib.metadata
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuenv.lock import pylock
from gpuenv.model import Host, Lock, Needs, Pin, Python, Wheel
from index_server import provided

HERE = (sys.version_info[0], sys.version_info[1])


def record_of(files: Mapping[str, str | bytes], info: str) -> str:
    """The RECORD of a distribution with these files; `info` is its .dist-info folder."""
    rows = [f"{info}/RECORD,,\n"]
    for path, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}\n")
    return "".join(rows)


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    script: str | None = None,
    files: Mapping[str, str] | None = None,
) -> Wheel:
    """A wheel with the module NAME.py, and a program `script` that prints version and prefix."""
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    stem = f"{name.replace('-', '_')}-{version}.dist-info"
    module = name.replace("-", "_")
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    fields = [*(f"Requires-Dist: {text}" for text in requires), *provided(requires)]
    metadata += "".join(f"{field}\n" for field in fields)
    texts = {
        f"{module}.py": f"import sys\nversion = {version!r}\n"
        "def main():\n    print(version, sys.prefix)\n",
        f"{stem}/METADATA": metadata,
        f"{stem}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        **(files or {}),
    }
    if script is not None:
        texts[f"{stem}/entry_points.txt"] = f"[console_scripts]\n{script} = {module}:main\n"
    texts[f"{stem}/RECORD"] = record_of(texts, stem)
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in texts.items():
            archive.writestr(file, text)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Wheel(name=name, version=version, filename=path.name, url=path.as_uri(), sha256=sha256)


def make_lock(*wheels: Wheel) -> Lock:
    """A lock for the Python that runs the tests; it needs no GPU."""
    return Lock(
        pins=tuple(Pin(wheel=wheel) for wheel in wheels),
        needs=Needs(python=HERE, platform="linux-x86_64"),
        choices=(),
        host=Host(python=Python(version=HERE)),
        frameworks=(),
        digest="d" * 64,
    )


def write_lock(path: Path, lock: Lock) -> Path:
    path.write_text(pylock.dumps(lock))
    return path


def installed(target: Path) -> dict[str, str]:
    """Return {name: version} of the distributions in an environment.

    The environment has the release of Python that runs the tests.
    """
    site = target / "lib" / f"python{HERE[0]}.{HERE[1]}" / "site-packages"
    importlib.metadata.MetadataPathFinder().invalidate_caches()
    distributions = importlib.metadata.distributions(path=[str(site)])
    return {one.name: one.version for one in distributions}


def content(folder: Path) -> dict[str, bytes | str]:
    """What is in a folder: the bytes of each file, and where each link leads. {} without one."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = str(path.readlink())
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found
