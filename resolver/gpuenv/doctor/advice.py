"""States what the facts mean for a fix: owners of libraries, versions behind numbers, sizes.

Each function yields sentences that begin a fix. They say what must change and what would not help.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

from ..compat.architectures import sass_runs
from ..compat.data import load
from ..compat.evaluate import built_with
from ..requirements.versions import version_key
from .catalog import (
    Advice,
    advice_rows,
    broken_releases,
    compilers,
    cuda_of_ptx,
    gpus_of_shared_name,
    library_name,
    library_owner,
    linux_name,
    toolkit_driver,
)
from .facts import Case
from .model import Capability, Finding, version_tuple
from .rules import broken_release

# Packages that load cuDNN, the one whose releases most often differ from the others' first.
_USERS = ("ctranslate2", "onnxruntime-gpu", "tensorflow", "torch")
_MAX_OWNERS = 2  # libraries whose owners are named
# Symbols of libnvJitLink end with the CUDA version that added them: __nvJitLinkAddData_12_1.
_LINKER_SYMBOL = re.compile(r"nvJitLink\w{1,60}_(\d\d)_(\d{1,2})\b")
# Libraries of CUDA 8.0 to 10.2 have the whole version in their names.
_OLD_LIBRARY = re.compile(
    r"lib(?:cudart|cublas|cufft|curand|cusolver|cusparse|nvrtc)\.so\.(8\.0|9\.\d|10\.\d)"
)
# What pip did not find: the name, the release, its local version, and the releases that it found.
_NOT_FOUND = re.compile(
    r"satisfies the requirement ([\w.-]+)(?:\[[\w,]*\])?"
    r"(?:\s?(?:==|>=|~=)\s?([\d.]+)(?:\+(\w+))?)?[^()]{0,40}"
    r"\(from versions: (?!none)([\w.+ ,]+)(\)?)"
)
_Advice = Callable[[Case], Iterator[str]]


def advice(case: Case, cause: str) -> tuple[str, ...]:
    """Return what the facts add to the fix of a cause."""
    sentences: list[str] = []
    for function in _ADVICE.get(cause, ()):
        sentences += function(case)
    return tuple(dict.fromkeys(sentences))


def advice_row(case: Case, finding: Finding) -> Advice | None:
    """Return what the data says about the fix of a finding, or None."""
    gpus = [capability for capability, _gpu in case.gpu_capabilities()]
    shown = (*finding.facts, *case.of_kind("gpu"), *case.symptoms("jetson"))
    text = " " + " ".join(fact.text for fact in shown).lower()
    messages = {fact.value for fact in finding.facts}
    for row in advice_rows():
        if finding.cause not in row.causes:
            continue
        is_named = any(word in text for word in row.words) or not messages.isdisjoint(row.messages)
        if not is_named and (row.words or row.messages):
            continue
        if row.framework and not case.about("framework", row.framework):
            continue
        if row.below and not any(gpu < version_tuple(row.below) for gpu in gpus):
            continue
        if row.least and not any(gpu >= version_tuple(row.least) for gpu in gpus):
            continue
        torch = case.first("cuda-built", subject="torch")
        cuda = f" ({torch.value})" if torch and torch.value != "none" else ""
        return row.replace(says=row.says.replace("{cuda}", cuda))
    return None


# ---- libraries ----------------------------------------------------------------------------------


def _owners(case: Case) -> Iterator[str]:
    """Name the CUDA version and the package of the missing libraries."""
    names = [fact.subject for fact in case.of_kind("library-missing")]
    owned = [(name, owner) for name in names if (owner := library_owner(name))]
    named = {fact.major for fact in case.of_kind("cuda-built")}
    for name, owner in owned[:_MAX_OWNERS]:
        packages = owner.packages
        if "cudnn" not in name:
            last = f", up to CUDA {owner.last}" if owner.last else ""
            text = f"{name} is a library of CUDA {_alternatives(packages)}{last}; "
            yield f"{text}the package {_alternatives(packages.values())} has it."
            continue
        # The packages for the CUDA version that a log names, or all.
        _name, major = library_name(name)
        chosen = [packages[cuda] for cuda in packages if cuda in named] or packages.values()
        requirements = _alternatives([f"`{package}=={major}.*`" for package in chosen])
        rest = ", for the CUDA version of the build" if len(chosen) > 1 else ""
        yield f"{name} is a library of cuDNN {major}: {requirements} has it{rest}."
    for name in names:
        library = _OLD_LIBRARY.fullmatch(linux_name(name))
        if library is not None:
            yield (
                f"{name} is a library of CUDA {library[1]}, of which pip has no packages: "
                "conda's cudatoolkit has it, or use a newer release of the program."
            )
            return


def _users_of_cudnn(case: Case, *, is_other_installed: bool = False) -> Iterator[str]:
    """Say which releases load the major version of cuDNN that is missing, and which another one.

    Of the newest major version, this matters if another one is installed.
    """
    for fact in case.of_kind("library-missing"):
        library, major = library_name(fact.subject)
        if not library.startswith("libcudnn") or not major.isdigit():
            continue
        for older in (int(major), int(major) - 1)[: 1 + is_other_installed]:
            releases = [(name, _first_after_cudnn(name, older)) for name in _USERS]
            later = ", ".join(f"`{name}>={first}`" for name, first in releases if first)
            if later:
                yield (
                    f"{later} load cuDNN {older + 1}, and older releases load cuDNN {older}: "
                    "upgrade or downgrade, so that all packages load the same one."
                )
                return
        return


@cache  # a call takes 6 ms
def _first_after_cudnn(distribution: str, major: int) -> str:
    """Return the first release that loads the cuDNN after a major version; "" is unknown."""
    data, platform = load(), "linux-x86_64"
    releases = {release.version for release in data.releases(distribution, platform)}
    releases |= {*data.known_versions(distribution, platform)}
    loads = False
    for release in sorted(releases, key=version_key):
        cudnn = built_with(distribution, release, platform, data)[1]
        loads = loads or cudnn == (major,)
        if loads and cudnn == (major + 1,):
            return release
    return ""


def _alternatives(words: Iterable[str]) -> str:
    """Return "a", "a or b", or "a, b or c"."""
    *others, last = words
    return " or ".join(filter(None, (", ".join(others), last)))


def _broken_release(case: Case) -> Iterator[str]:
    """Say that a release uses no GPU whatever is installed, and which one to use."""
    package = broken_release(case)
    if package is not None:
        name, version = package.subject, package.value
        reason, instead = broken_releases()[name, version]
        yield f"{name} {version} is known to be broken: {reason}. Use {name} {instead}."


def _cuda_at_hand(case: Case) -> Iterator[str]:
    """Say what an installed toolkit, or an older driver, means for a missing library."""
    toolkit = case.first("toolkit")
    driver = case.first("driver-cuda")
    missing = case.first("library-missing")
    owner = library_owner(missing.subject) if missing else None
    if owner is None:
        return
    if driver is not None and int(driver.major) < min(map(int, owner.packages)):
        yield f"The driver supports CUDA up to {driver.value}: use a build for CUDA {driver.major}."
    elif toolkit is not None and toolkit.major in owner.packages:
        yield (
            f"CUDA {toolkit.value} is installed and has this library: do not install it again. "
            "Add its lib64 folder to LD_LIBRARY_PATH, or install the package."
        )
    elif toolkit is not None:
        yield (
            f"The installed CUDA {toolkit.value} does not have it, and another toolkit is not "
            f"needed: use a build of the framework for CUDA {toolkit.major}, or install the "
            "package."
        )


def _compiler_of_extension(case: Case) -> Iterator[str]:
    """Say which nvcc, or which build of torch, compiles an extension."""
    compiler = case.first("toolkit", subject="nvcc")
    build = case.first("cuda-built", subject="torch")
    if compiler is None or build is None or not case.about("says", "cuda_major_mismatch"):
        return
    major = compiler.major
    other_build = f", or use a build of torch for CUDA {major}"
    if version_tuple(_first_cuda_for(_capability(case))) > compiler.version:
        other_build = ""
    yield (
        "An extension is compiled with the CUDA of torch's build: set CUDA_HOME to a toolkit of "
        f"CUDA {build.value}{other_build}."
    )


def _linker_symbol(case: Case) -> Iterator[str]:
    """Say which libnvJitLink a missing symbol needs, and which package has an older one."""
    for missing in case.of_kind("symbol-missing"):
        symbol = _LINKER_SYMBOL.search(missing.text)
        owner = library_owner(f"libnvJitLink.so.{symbol[1]}") if symbol else None
        if symbol is not None and owner is not None:
            package = _alternatives(owner.packages.values())
            yield (
                f"The missing symbol is of libnvJitLink {symbol[1]}.{symbol[2]}, and an older one "
                f"is loaded: from another folder, or from an older {package} package, which "
                f"`pip install -U {package}` replaces."
            )
            return


# ---- driver -------------------------------------------------------------------------------------


def _driver_of_build(case: Case) -> Iterator[str]:
    """Say which CUDA version the driver supports, and which driver the build needs."""
    supported = case.first("driver-cuda")
    if supported is not None:
        yield f"The driver supports CUDA up to {supported.value}."
    for build in case.of_kind("cuda-built"):
        cuda = build.version
        floor = load().driver_floor((cuda[0], 0), "linux") if cuda else None
        if floor:
            yield f"A build for CUDA {build.value} needs driver {floor[0]} or newer."
            return


def _ptx(case: Case) -> Iterator[str]:
    """Say which CUDA version and which driver a version of PTX means."""
    for wanted in case.about("ptx", "wanted"):
        cuda = cuda_of_ptx(wanted.value)
        if cuda:
            driver = toolkit_driver(cuda)
            needed = f" (driver {driver} or newer)" if driver else ""
            yield f"PTX {wanted.value} is of CUDA {cuda}: what reads it must be as new{needed}."
    for known in case.about("ptx", "known"):
        cuda = cuda_of_ptx(known.value)
        if cuda:
            yield f"PTX {known.value}, the newest that is understood here, is of CUDA {cuda}."


def _compat(case: Case) -> Iterator[str]:
    """Say that a container brings another libcuda than the host's driver."""
    kernel = case.first("driver", subject="kernel")
    library = case.first("driver", subject="userspace")
    if kernel and library and kernel.value != library.value:
        yield (
            f"libcuda is of release {library.value}, and the kernel module is of {kernel.value}: "
            "the image brings its own libcuda (compat). A reboot does not help."
        )


# ---- devices ------------------------------------------------------------------------------------


def _code_for_new(case: Case) -> Iterator[str]:
    """Say which CUDA release is the first with code for the GPU, and what else may lack it.

    If a compiler refuses the GPU, say which compiler knows it, and what an older one can do.
    """
    refused = case.about("capability", "compiler")
    capability = refused[0].version if refused else _capability(case)
    cuda = _first_cuda_for(capability)
    if not refused:
        if cuda:
            name = _dotted(capability)
            yield f"A GPU of compute capability {name} needs a build for CUDA {cuda} or newer."
        yield from _other_binaries(case)
        return
    if cuda:
        yield f"The compiler of CUDA {cuda} is the first that knows sm_{_target(capability)}."
    first_of_major = f"{capability[0]}0"
    if capability[1] and sass_runs(first_of_major, (capability[0], capability[1])):
        yield (
            f"An older compiler can compile for sm_{first_of_major}: that code also runs on this "
            "GPU."
        )
    else:
        yield (
            "An older compiler can compile PTX for the newest architecture that it knows, such as "
            "compute_80: the driver compiles it for this GPU at the first start."
        )


def _code_for_old(case: Case) -> Iterator[str]:
    """Say which CUDA release is the first without code for the GPU, and what else may lack it.

    If a compiler refuses the GPU, say what helps.
    """
    refused = case.about("capability", "compiler")
    capability = refused[0].version if refused else _capability(case)
    later = (_dotted(cuda) for cuda, first, _ in compilers() if () < capability < first)
    cuda, target = next(later, ""), _target(capability)  # the first that does not compile for it
    if cuda and refused:
        yield (
            f"CUDA {cuda} and newer do not compile for sm_{target}. If the machine has a newer "
            f"GPU, remove {target} from the flags (-gencode, CMAKE_CUDA_ARCHITECTURES, "
            "TORCH_CUDA_ARCH_LIST); else use an older CUDA."
        )
    elif cuda:
        name = _dotted(capability)
        yield f"Builds for CUDA {cuda} or newer have no code for compute capability {name}."
    if not refused:
        yield from _other_binaries(case)


def _first_cuda_for(capability: Capability) -> str:
    """Return the first CUDA release that compiles for a GPU, or ""."""
    return next((_dotted(cuda) for cuda, _, last in compilers() if () < capability <= last), "")


def _target(capability: Capability) -> str:
    """Return "86" for (8, 6)."""
    return "".join(map(str, capability))


def _capability(case: Case) -> Capability:
    """Return the compute capability of the GPU that the facts name first; () for none."""
    known = case.gpu_capabilities()
    return next((capability for capability, fact in known if fact.subject != "compiler"), ())


def _shared_name(case: Case) -> Iterator[str]:
    """Name the GPUs that have the name that the log gives."""
    for fact in case.of_kind("gpu"):
        gpus = gpus_of_shared_name(fact.value)
        if gpus:
            yield (
                f"{fact.value} is the name of several GPUs: {_alternatives(gpus)}. "
                "`gpuenv detect` on its machine shows which one it is."
            )
            return


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _other_binaries(case: Case) -> Iterator[str]:
    """Say which other binaries may lack code for the GPU, if no environment was examined."""
    missing = [fact for fact in case.of_kind("architecture-missing") if fact.from_log]
    if missing and not case.of_kind("package") and not missing[0].subject:
        yield (
            "If the framework's build supports this GPU, another binary does not: an extension "
            "(flash-attn, xformers, your own), which is built again with TORCH_CUDA_ARCH_LIST, a "
            "cubin, or a CUDA library. CUDA_LAUNCH_BLOCKING=1 shows the call, and "
            "`gpuenv doctor LOG --target DIR` names the files without code for the GPU."
        )


# ---- packages ---------------------------------------------------------------------------------


def _offered_releases(case: Case) -> Iterator[str]:
    """Say why pip did not find a release, by the releases that it lists, oldest first."""
    hints = case.about("hints", "install_resolution_failure")
    not_found = next(filter(None, (_NOT_FOUND.search(fact.text) for fact in hints)), None)
    if not_found is None:
        return
    # Without `end`, the list of the releases is cut off.
    name, version, local, offered, end = not_found.groups(default="")
    if local.startswith("cu") and name.startswith("torch"):
        yield f"Builds with +{local} are on PyTorch's own index, not on the default index."
        return
    if not version:
        return
    releases = offered.split(", ")
    oldest, newest = releases[0], releases[-1]
    if version_tuple(version) < version_tuple(oldest):
        yield (
            f"{oldest} is the oldest {name} for this Python and this system: use an older Python, "
            f"or a newer {name}."
        )
    elif end and version_tuple(version) > version_tuple(newest):
        yield (
            f"{newest} is the newest {name} for this Python and this system: a newer one may need "
            "a newer Python, or it is not on this index."
        )


# ---- memory -------------------------------------------------------------------------------------


def _sizes(case: Case) -> Iterator[str]:
    """State how much memory the program asked for, and how much was free."""
    wanted = case.first("wanted-bytes")
    rows = case.memory()
    if wanted is None or not rows:
        return
    row = rows[0]
    yield (
        f"The program asked for {_gib(int(wanted.value))}; {_gib(row.free)} of {_gib(row.total)} "
        "were free."
    )


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB"


_ADVICE: Mapping[str, Sequence[_Advice]] = {
    "cuda_lib_missing": (_broken_release, _owners, _cuda_at_hand),
    "cuda_major_mismatch": (_owners, _cuda_at_hand, _compiler_of_extension),
    "mixed_cuda_wheels": (_owners,),
    "cudnn_missing": (_owners, _users_of_cudnn),
    "cudnn_sublib_missing": (_owners, _users_of_cudnn),
    "cudnn_major_mismatch": (_owners, partial(_users_of_cudnn, is_other_installed=True)),
    "driver_too_old": (_driver_of_build, _ptx),
    "compat_libcuda_misuse": (_compat,),
    "lib_shadowing": (_linker_symbol,),
    "gpu_too_new_for_build": (_code_for_new,),
    "gpu_too_old_for_build": (_shared_name, _code_for_old),
    "out_of_memory_masked": (_sizes,),
    "install_resolution_failure": (_offered_releases,),
}
