"""Tiny wheels with a module, a script and a correct RECORD; their locks; content of folders."""

import hashlib
import importlib.metadata
import sys

import index_server
from gpuenv.lock import pylock
from gpuenv.model import Host, Lock, Needs, Pin, Python, Wheel

HERE = (sys.version_info[0], sys.version_info[1])


def make_wheel(folder, name, version, requires=(), *, script=None, files=None, **options):
    """A wheel with the module NAME.py, and a program `script` that prints version and prefix."""
    module = name.replace("-", "_")
    code = f"import sys\nversion = {version!r}\ndef main():\n    print(version, sys.prefix)\n"
    files = {f"{module}.py": code, **(files or {})}
    if script is not None:
        points = f"[console_scripts]\n{script} = {module}:main\n"
        files[f"{module}-{version}.dist-info/entry_points.txt"] = points
    filename, data = index_server.make_wheel(name, version, requires, files=files, **options)
    path = folder / filename
    path.write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    return Wheel(name=name, version=version, filename=filename, url=path.as_uri(), sha256=sha256)


def write_record(site, name, version, paths=(), *, requires=(), texts=()):
    """Write the dist-info of a distribution that owns these files, given relative to `site`.

    `texts` are further files of the dist-info.
    """
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    own = {"METADATA": "\n".join([*lines, ""]), **dict(texts)}
    files = {str(path): (site / path).read_bytes() for path in paths}
    files |= {f"{info}/{file}": text for file, text in own.items()}
    own["RECORD"] = index_server.record_of(files, info)
    for file in own:
        (site / info / file).unlink(missing_ok=True)  # it can be a link to a shared file
    write_files(site / info, own)


def write_files(folder, files, replaced=()):
    """Write files, {path: text}, with the folders above them. `replaced` has {text: other text}."""
    for name, content in files.items():
        text = content
        for old, new in dict(replaced).items():
            text = text.replace(old, new)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def replace_in(path, old, new):
    """Replace the first place of a text in a file, which has it."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def make_lock(*wheels):
    """A lock for the Python that runs the tests; it needs no GPU."""
    return Lock(
        pins=tuple(Pin(wheel=wheel) for wheel in wheels),
        needs=Needs(python=HERE, platform="linux-x86_64"),
        choices=(),
        host=Host(python=Python(version=HERE)),
        frameworks=(),
        digest="d" * 64,
    )


def write_lock(path, lock):
    path.write_text(pylock.dumps(lock))
    return path


def installed(target):
    """Return {name: version} of the distributions in an environment.

    The environment has the release of Python that runs the tests.
    """
    site = target / "lib" / f"python{HERE[0]}.{HERE[1]}" / "site-packages"
    importlib.metadata.MetadataPathFinder().invalidate_caches()
    distributions = importlib.metadata.distributions(path=[str(site)])
    return {one.name: one.version for one in distributions}


def contents(folder):
    """What is in a folder: the bytes of each file, and where each link leads. {} without one."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = str(path.readlink())
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found
