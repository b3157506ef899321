"""Finds binaries beside the framework that have no code for a GPU of this machine.

If the framework serves the GPU and a program still finds no kernel image, another binary has none:
an extension, a cached kernel, a program. They are looked for where such files lie.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from ..binaries.device_code import DamagedFileError, read_file
from ..binaries.environment import CodeFile
from ..binaries.served import judge
from ..compat.architectures import parse_target, show_code
from ..compat.data import CompatibilityData
from ..model import Host
from .host_facts import fact
from .model import Fact

_SECONDS = 5.0  # for all folders
_MOST_FILES = 2000
_MOST_NAMED = 4  # binaries that are named
_DEPTH = 4  # folders below a folder
_CODE = re.compile(r"\.(?:so(?:\.\d+)*|pyd|dll|cubin|fatbin|ptx)$")
# Folders of caches: the variable that names one, and the default.
_CACHES = (
    ("TORCH_EXTENSIONS_DIR", "~/.cache/torch_extensions"),
    ("TRITON_CACHE_DIR", "~/.triton/cache"),
    ("CUPY_CACHE_DIR", "~/.cupy/kernel_cache"),
    ("JAX_COMPILATION_CACHE_DIR", "~/.cache/jax"),
    ("NUMBA_CACHE_DIR", "~/.cache/numba"),
    ("TORCHINDUCTOR_CACHE_DIR", "/tmp/torchinductor"),  # noqa: S108  where it really is
)
_SKIPPED = frozenset({".git", ".venv", "venv", "site-packages", "node_modules", "__pycache__"})


def other_binary_facts(
    host: Host, data: CompatibilityData, *, named: Iterable[str], env: Mapping[str, str]
) -> tuple[Fact, ...]:
    """Return a fact for each binary that cannot run on a GPU of the host.

    Its subject says what the GPU or the driver is for that binary: newer, older, or driver.

    Args:
        named: files that the log names.
        env: the variables of the process.
    """
    deadline = time.monotonic() + _SECONDS
    files: list[CodeFile] = []
    for number, path in enumerate(_candidates(named, env)):
        if number >= _MOST_FILES or time.monotonic() > deadline:
            break
        try:
            images = read_file(path)
        except (OSError, DamagedFileError):
            continue
        if images is not None and (images.sass or images.ptx):
            files.append(CodeFile(path=path, images=images))
    facts = []
    for row in [row for row in judge(files, host, data) if row.reasons][:_MOST_NAMED]:
        targets = (*(row.code.sass or ()), *(row.code.ptx or ()))
        newest = max((parse_target(target)[0] for target in targets), default=(0, 0))
        capabilities = filter(None, host.capabilities)
        subject = "newer" if any(capability > newest for capability in capabilities) else "older"
        if any("driver" in reason.code for reason in row.reasons):
            subject = "driver"
        text = f"another binary, {row.file.path}, has {show_code(row.code)}: {row.hint}"
        facts.append(fact("other-binary", subject, row.file.path, "host: files", text))
    return tuple(facts)


def _candidates(named: Iterable[str], env: Mapping[str, str]) -> Iterator[str]:
    """Yield files that may have device code, each once: those of the log come first."""
    seen = set()
    caches = [env.get(variable) or os.path.expanduser(default) for variable, default in _CACHES]
    existing = [path for path in named if os.path.isfile(path)]
    folders = dict.fromkeys([*map(os.path.dirname, existing), os.getcwd(), *caches])
    for path in chain(existing, *map(_files, folders)):
        # What nvcc makes has no ending.
        is_program = "." not in os.path.basename(path) and os.access(path, os.X_OK)
        if path not in seen and (is_program or _CODE.search(path)):
            seen.add(path)
            yield path


def _files(folder: str) -> Iterator[str]:
    base = folder.rstrip("/").count("/")
    for parent, folders, names in os.walk(folder):
        is_deep = parent.count("/") - base >= _DEPTH
        folders[:] = [] if is_deep else sorted(set(folders) - _SKIPPED)
        for name in sorted(names):
            yield os.path.join(parent, name)
