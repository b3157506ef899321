"""Import what is installed beside the frameworks, and run what other packages want checked.

Imported, each in a child process, is every distribution with a library that links a framework or
CUDA, or that uses NumPy's C API, every one that requires a framework, if only with an extra or
through others, and every one that the compatibility data names as a companion or that the user
asked for. The loader's words become the evidence.

An import that succeeds proves little where a package hides that it cannot load a library. So the
libraries that the import left out are loaded, too (probes/companion.py). A failure of such a
library counts if it shows another framework or another CUDA than the installed one: a symbol of
theirs that is not there, or a library of which another version is there. Libraries of which a
package needs one (libtorchcodec_core4.so to _core8.so) differ in digits only.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from msgspec.structs import asdict

from ..binaries import elf
from ..distributions import Distribution
from ..loader_env import is_driver_library
from ..model import Check, Gpu, Value, first_texts, gpu_label
from ..probes.answers import CompanionAnswer, OwnCheck
from ..probes.operations import OPERATIONS, Operation
from ..requirements.versions import normalize_name
from .frameworks import failure_status
from .linkage import CUDA, Libraries, base_stem
from .runner import Outcome, RunProbe
from .survey import Survey, is_cuda_library, is_library

GROUP = "gpuenv.checks"
OWN_LIMIT = 60.0  # seconds for a check that another package brings
MOST_PROCESSES = 8
SHOWN = 3  # findings in the evidence of a failed import
NEED = 1 << 30  # bytes: an import of torch or TensorFlow takes about half of it
# Module that is imported first -> the libraries of it that an extension links.
_FRAMEWORKS = {
    "torch": re.compile(r"lib(torch|c10|shm\.)"),
    "tensorflow": re.compile(r"libtensorflow|_pywrap_tensorflow"),
    "jaxlib": re.compile(r"libjax"),
}
_NAME = re.compile(r"^\w[\w.-]*", re.MULTILINE)
_MODULE = re.compile(r"([A-Za-z_]\w*)(\.py|\.abi3\.so|\.cpython-(\d+)t?-.*\.so|\.so)")
_NOT_IMPORTED = {"benchmark", "benchmarks", "conftest", "doc", "docs", "example", "examples"}
_NOT_IMPORTED |= {"scripts", "setup", "test", "testing", "tests", "tools"}
# Texts of extensions: all that use NumPy's C API, those of NumPy 2's headers, and of any headers.
_TEXTS = (b"_ARRAY_API", b"numpy._core._multiarray_umath", b"numpy.core._multiarray_umath")
_ARRAYS, _NUMPY_2, _NUMPY = _TEXTS
_MISSING = re.compile(r"(\S+): cannot open shared object file")
# Symbols of torch, TensorFlow and XLA (C++ and C), of CUDA's libraries, and of the interpreter.
_SYMBOL = re.compile(
    r"undefined symbol: (_Z(T[ISV]|GV)?N?K?(2at|3c10|4c10d|5torch|6caffe2|10tensorflow|3tsl|3xla|"
    r"4absl|6google)|(_Z\d+)?THP|aoti_torch|torch_|TF_|_?_?cu[a-z]*[A-Z]|nccl[A-Z]|nv[a-z]*[A-Z]|"
    r"_?Py[A-Z_])"
)
_FFMPEG = re.compile(r"lib(avcodec|avdevice|avfilter|avformat|avutil|swresample|swscale)\.")
# What an import says on a host that has no GPU, display, network or library of the system.
_NO_GPU = re.compile(
    r"lib(cuda|nvidia-ml)\.so\S*: cannot open|no CUDA-capable device|No CUDA GPUs|NVIDIA driver|"
    r"driver version is insufficient|0 active drivers|CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice|"
    r"cudaErrorInsufficientDriver|NVML|cuInit|[Nn]o (visible )?GPU"
)
_NO_DISPLAY = re.compile(r"DISPLAY\b|[Dd]isplay name|X server|open display|\b(EGL|GLFW|GLX)\b")
_NO_LIBRARY = re.compile(r"\bOSError: [^|]*\b(library|shared object)\b[^|]*\bnot found")
_NO_NETWORK = re.compile(
    r"\b(URLError|Connection\w*Error|ConnectTimeout|gaierror|MaxRetryError)\b: |"
    r"\b(LocalEntryNotFoundError|OfflineModeIsEnabled)\b: |"  # of Hugging Face, which is not asked
    r"name resolution|Name or service not known|Network is unreachable"
)
# TensorFlow has this file system itself, so the import of its own dependency
# tensorflow-io-gcs-filesystem fails beside it, and nothing needs that import.
_NOT_NEEDED = re.compile(r"AlreadyExistsError: File system for \w+ already registered")
_BY_SETTING = re.compile(r"set the environment variable \w+=")
_NO_COMPILER = re.compile(r"C compiler|CalledProcessError.*(gcc|clang|cc\b)")
# Of a library that cannot be loaded: nothing follows; a part that only the system could have is
# missing, of one library or of each of several alternatives; it is not known; it must not be so.
_KINDS = ("pass", "optional", "system", "unknown", "fail")


class Companion(Value):
    """A distribution whose import is a check of its own.

    Attributes:
        name: of the distribution.
        version: of it.
        frameworks: modules that are imported first.
        modules: its modules.
        files: its libraries that link a framework or CUDA.
        suspects: its extension modules that were compiled for NumPy 1 and find NumPy 2.
        has_parts: whether its libraries link several frameworks. Each is for the users of one.
    """

    name: str
    version: str
    frameworks: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    has_parts: bool = False


def processes() -> int:
    """Return how many children may import at the same time, by the CPUs and the free memory."""
    free = NEED
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:
            free = int(re.findall(r"MemAvailable:\s+(\d+)", stream.read())[0]) << 10
    except (OSError, IndexError):  # a container may hide it
        pass
    return max(1, min(len(os.sched_getaffinity(0)), free // NEED, MOST_PROCESSES))


# ---- which distributions, and which of their modules --------------------------------------------


def _find_companions(
    survey: Survey,
    distributions: Sequence[Distribution],
    frameworks: Sequence[str],
    is_named: Callable[[str], bool],
    requested: Container[str],
) -> list[Companion]:
    """Return those of some distributions that are to be imported."""
    paths: dict[str, list[str]] = {row.name: [] for row in survey.distributions}
    folders = {row.name: row.folder + os.sep for row in survey.distributions}
    for file in survey.files:
        if file.path.startswith(folders[file.owner]):
            paths[file.owner].append(file.path.removeprefix(folders[file.owner]))
    dependents = _dependents(survey.distributions)
    companions = []
    for row in distributions:
        own = paths[row.name]
        chosen = row.name in OPERATIONS or row.name in dependents or row.name in requested
        chosen = chosen or is_named(row.name)
        if not chosen and not any(map(is_library, own)):
            continue
        modules = _top_modules(own, survey.interpreter["version"])
        if modules.keys().isdisjoint(frameworks):
            companion = _read(row, own, modules, survey)
            if companion.modules or companion.files:
                companions.append(companion)
            elif chosen and modules:
                top = [name for name in modules if "." not in name] or list(modules)
                own_named = [name for name in top if normalize_name(name) == row.name]
                companions.append(companion.replace(modules=tuple(own_named or top)))
    return companions


def _dependents(distributions: Sequence[Distribution]) -> set[str]:
    """Return those that require a framework, if only with an extra or through others.

    The metadata of an old distribution may hold anything, so only the names are read.
    """
    required = {
        row.name: set(map(normalize_name, _NAME.findall("\n".join(row.requires))))
        for row in distributions
    }
    found = {"torch", "tensorflow", "jax"} & required.keys()
    frameworks = set(found)
    while more := {name for name in required.keys() - found if required[name] & found}:
        found |= more
    return found - frameworks


def _read(
    row: Distribution, paths: Sequence[str], modules: Mapping[str, str], survey: Survey
) -> Companion:
    """Read the libraries of a distribution; the paths are relative to its folder.

    Its modules become those of its own name, and those with a library of interest; none without
    such a library.
    """
    version = survey.interpreter["version"]
    has_numpy_2 = not survey.versions.get("numpy", "0").startswith(("0", "1."))
    frameworks: set[str] = set()
    files, users, suspects = [], [], []
    for path in paths:
        module = _module(path, version)
        if not is_library(path) or {"test", "tests"} & set(path.split(os.sep)):
            continue
        if row.name.startswith("nvidia-") and not module:
            continue  # the check "closure" reads the libraries of NVIDIA
        place = os.path.join(row.folder, path)
        try:
            needed, texts = elf.read(place, names=False).needed, elf.find_texts(place, _TEXTS)
        except (OSError, elf.NotElfError):
            continue
        linked = {name for name in _FRAMEWORKS if any(map(_FRAMEWORKS[name].match, needed))}
        frameworks |= linked
        if linked or any(map(CUDA.match, needed)):
            files.append(path)
        if _ARRAYS in texts:
            users.append(path)
            if module and has_numpy_2 and _NUMPY in texts and _NUMPY_2 not in texts:
                suspects.append(module)
    return Companion(
        name=row.name,
        version=row.version,
        frameworks=tuple(sorted(frameworks & survey.versions.keys())),
        modules=_own_modules(row.name, modules, (*files, *users)),
        files=tuple(os.path.join(row.folder, path) for path in files),
        suspects=tuple(suspects) if row.name != "numpy" else (),
        has_parts=len(frameworks) > 1,
    )


def _own_modules(
    distribution: str, modules: Mapping[str, str], paths: Sequence[str]
) -> tuple[str, ...]:
    """Return the modules with the distribution's own name, then those with one of the paths."""
    if not paths:
        return ()
    own = [name for name in modules if normalize_name(name.replace(".", "-")) == distribution]
    for name, place in modules.items():
        if any(path == place or path.startswith(place + os.sep) for path in paths):
            own.append(name)
    return tuple(dict.fromkeys(own))


def _top_modules(paths: Iterable[str], version: Sequence[int]) -> dict[str, str]:
    """Return {module: its file or folder} of what a user of a distribution may import.

    Of a namespace these are the packages in it (google.protobuf). Private modules, tests and
    examples are left out.
    """
    found = {}
    for path in paths:
        if path.endswith((".py", ".so")):
            name = _module(path, version)
            is_package = os.path.basename(path).startswith("__init__.")
            is_inner = "." in name and path.endswith(".py") and not is_package
            if name and not is_inner:
                found[name] = os.path.dirname(path) if is_package else path
    packages = {name for name, place in found.items() if not os.path.splitext(place)[1]}
    modules = {}
    for name, place in found.items():
        parts = name.split(".")
        outer = {".".join(parts[:count]) for count in range(1, len(parts))}
        is_public = not any(part.startswith("_") or part in _NOT_IMPORTED for part in parts)
        if is_public and outer.isdisjoint(packages):
            modules[name] = place
    return modules


def _module(path: str, version: Sequence[int]) -> str:
    """Return the dotted name of the module in a file; "" if an interpreter cannot import it."""
    folder, file_name = os.path.split(path)
    match = _MODULE.fullmatch(file_name)
    if match is None or (match[3] and match[3] != f"{version[0]}{version[1]}"):
        return ""
    if match[2] == ".so" and match[1].startswith("lib"):
        return ""
    parts = folder.split(os.sep) if folder else []
    parts += [] if match[1] == "__init__" else [match[1]]
    return ".".join(parts) if all(map(str.isidentifier, parts)) else ""


# ---- the checks of imports ----------------------------------------------------------------------


class Started(NamedTuple):
    """The children that were started: the imports, and the checks that other packages bring."""

    imports: Sequence[tuple[Companion, Future[Outcome]]] = ()
    own: Sequence[Future[Check]] = ()


def start(
    pool: ThreadPoolExecutor,
    run_probe: RunProbe,
    survey: Survey,
    *,
    frameworks: Sequence[str],
    is_named: Callable[[str], bool],
    requested: Container[str],
    devices: int,
    changed: Collection[str] | None,
) -> Started:
    """Start the imports and the checks of other packages.

    Args:
        pool: has as many threads as children may run at the same time.
        run_probe: runs a probe.
        survey: what is installed.
        frameworks: modules that have a probe of their own.
        is_named: whether the data names a distribution as a companion.
        requested: the distributions that the user asked for.
        devices: the number of GPUs; 0: none is touched.
        changed: the distributions that are imported; None is all.
    """
    imports, own = [], []
    use = {"device": devices > 0, "devices": devices}
    rows = [row for row in survey.distributions if changed is None or row.name in changed]
    found = _find_companions(survey, rows, frameworks, is_named, requested)
    # Those that import a framework, too, take longest, so they start first.
    for companion in sorted(found, key=lambda companion: not companion.frameworks):
        task = pool.submit(run_probe, "companion", {**asdict(companion), **use})
        imports.append((companion, task))
    for row in rows:
        if GROUP in row.read_text("entry_points.txt"):
            entries = importlib.metadata.Distribution.at(row.info).entry_points
            for entry in entries.select(group=GROUP):
                subject = f"{row.name} {entry.name}"
                own.append(pool.submit(_own_check, run_probe, subject, entry.value, use))
    return Started(imports, own)


def checks(started: Started, libraries: Libraries, gpus: Sequence[Gpu]) -> list[Check]:
    """Return the checks "import", "operation" and "check", when the children have ended."""
    found, not_run = [], []
    for companion, future in started.imports:
        outcome = future.result()
        status, evidence = _judge(companion, outcome, libraries, len(gpus))
        found.append(Check("import", companion.name, status, evidence, seconds=outcome.seconds))
        operation = OPERATIONS.get(companion.name)
        if operation is not None and not gpus:
            not_run.append(f"{operation.__name__} of {companion.name}")
        elif operation is not None and outcome.answer and "operation" in outcome.answer:
            wrong = outcome.answer["operation"]
            found.append(_operation_check(companion.name, operation, wrong, gpus))
    if not_run:
        evidence = f"not run, because no GPU is used: {', '.join(not_run)}"
        found.append(Check("operation", "", "unknown", evidence))
    return [*found, *[future.result() for future in started.own]]


def _operation_check(
    name: str, operation: Operation, wrong: Sequence[str], gpus: Sequence[Gpu]
) -> Check:
    """Check the results of an operation: for each device "", or what is wrong."""
    texts = [f"{gpu_label(gpus, number)}: {text}" for number, text in enumerate(wrong) if text]
    if not texts:
        return Check("operation", name, "pass", f"{operation.__name__}, GPUs: {len(wrong)}")
    evidence = f"{operation.__name__}, {first_texts(texts)}"
    status = "unknown" if all(map(_NO_COMPILER.search, texts)) else failure_status(evidence)
    return Check("operation", name, status, evidence)


def _judge(
    companion: Companion, outcome: Outcome, libraries: Libraries, devices: int
) -> tuple[str, str]:
    """Return the status and the evidence of an import."""
    if outcome.answer is None:
        by_kernel = outcome.failure.startswith("killed by SIGKILL")
        return "unknown" if by_kernel else "fail", outcome.failure
    answer: CompanionAnswer = outcome.answer
    if "framework" in answer:
        return "unknown", f"not tried: {answer['framework']}"
    loads = _load_findings(answer["loads"], libraries, has_device=devices > 0)
    if companion.has_parts and not answer["failures"]:
        loads = [("unknown" if kind == "fail" else kind, text) for kind, text in loads]
    texts = [f"{name}: {text}" for name, text in answer["failures"].items()]
    texts = [text for text in texts if not _NOT_NEEDED.search(text)]
    if answer["numpy"] and not texts:
        texts.append(answer["numpy"])
    if texts or any(kind == "fail" for kind, _ in loads):
        return _judge_failure(texts, loads, has_device=devices > 0)
    loaded = sum(not words for words in answer["loads"].values())
    texts = [f"{companion.version}: {', '.join(companion.modules)}"]
    texts += [f"{loaded} libraries loaded"] if loaded else []
    if "setting" in answer:
        texts.append(f"set {answer['setting']}, because TensorFlow is not installed")
    is_known = {kind for kind, _ in loads}.isdisjoint(("unknown", "system"))
    status = "pass" if is_known and "setting" not in answer else "unknown"
    return status, first_texts([*texts, *[text for _, text in loads]])


def _judge_failure(
    texts: Sequence[str], loads: Sequence[tuple[str, str]], *, has_device: bool
) -> tuple[str, str]:
    """Return the status and the evidence of failures of imports and of libraries.

    Imports fail on a host that lacks something, whatever is installed; libraries do not.
    """
    said = " ".join(texts)
    failed = [text for kind, text in loads if kind == "fail"]
    if failed:
        further = [text for text in failed if text.partition(": ")[2] not in said]
        return "fail", first_texts([*texts, *further], shown=SHOWN)
    of_host = [_NO_DISPLAY, _NO_NETWORK, _NO_LIBRARY, _BY_SETTING]
    of_host += [] if has_device else [_NO_GPU]
    lacks_library = any(kind == "system" for kind, _ in loads) and _MISSING.search(said)
    if lacks_library or any(pattern.search(said) for pattern in of_host):
        return "unknown", first_texts([*[text for _, text in loads], *texts], shown=SHOWN)
    return "fail", first_texts(texts, shown=SHOWN)


def _load_findings(
    loads: Mapping[str, str | None], libraries: Libraries, *, has_device: bool
) -> list[tuple[str, str]]:
    """Return (kind, text) of libraries that cannot be loaded.

    What a package may load later in another way is left out.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for path, words in loads.items():
        kind, reason = "pass", ""
        if words:
            kind, reason = _load_kind(path, words, libraries, has_device=has_device)
        said = (words or "").removeprefix(f"{path}: ").partition(": No such file")[0]
        text = f"{os.path.basename(path)}: {said}{reason}"
        groups.setdefault(re.sub(r"[0-9]+", "#", path), []).append((kind, text))
    findings: dict[str, tuple[str, str]] = {}
    for alternatives in groups.values():
        kind, text = min(alternatives, key=lambda finding: _KINDS.index(finding[0]))
        if kind == "system" and len(alternatives) == 1:
            kind = "optional"
        if kind != "pass":
            findings.setdefault(kind if kind in ("optional", "system") else text, (kind, text))
    return list(findings.values())


def _load_kind(path: str, words: str, libraries: Libraries, *, has_device: bool) -> tuple[str, str]:
    """Return one of _KINDS, by the loader's words, and what is to be added to them."""
    missing = _MISSING.search(words)
    if missing is None:
        unknown_symbol = "undefined symbol" in words and not _SYMBOL.search(words)
        undecided = unknown_symbol or words.startswith("killed by") or "static TLS" in words
        return "unknown" if undecided else "fail", ""
    stems = set(map(base_stem, libraries.places))
    has_cuda = any(map(is_cuda_library, libraries.places))
    kinds = {}
    # The loader names the first that is missing only.
    for name in {missing[1], *libraries.absent(path)} - libraries.places.keys():
        of_framework = any(pattern.match(name) for pattern in _FRAMEWORKS.values())
        if is_driver_library(name):
            kinds[name] = "fail" if has_device else "unknown"
        elif of_framework or name.startswith("libpython"):
            kinds[name] = "unknown" if "cuda" in name and not has_cuda else "fail"
        elif base_stem(name) in stems:  # of another version
            kinds[name] = "fail"
        else:
            kinds[name] = "unknown" if CUDA.match(name) else "system"
    kind = max(kinds.values(), key=_KINDS.index, default="pass")
    others = sorted(name for name in kinds if kinds[name] == "fail" and name != missing[1])
    reason = f"; also not found: {', '.join(others)}" if others else ""
    if kind == "system" and any(map(_FFMPEG.match, kinds)):
        reason += "; FFmpeg is not installed, which no package here brings"
    return kind, reason


# ---- checks of other packages -------------------------------------------------------------------


def _own_check(
    run_probe: RunProbe, subject: str, entry: str, options: Mapping[str, object]
) -> Check:
    """Run a check that a package brings, in a child process with a time limit of its own."""
    outcome = run_probe("check", {"entry": entry, **options}, limit=OWN_LIMIT)
    status, text = "fail", outcome.failure
    if outcome.answer is not None:
        answer: OwnCheck = outcome.answer
        status, text = answer["status"], answer["evidence"]
    return Check("check", subject, status, " ".join(text.split())[:1000], seconds=outcome.seconds)
