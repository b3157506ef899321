"""The needs of libraries: gpuenv's reader against one like readelf, and what verify finds."""

import os
import struct
import time

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from gpuenv.binaries import elf
from gpuenv.distributions import Distribution
from gpuenv.verify.linkage import Libraries, closure_check
from gpuenv.verify.loader import Origins
from gpuenv.verify.survey import Survey
from native_build import build
from tables import each, on_linux

pytestmark = on_linux


class Site:
    """A packages' folder of stand-ins: {path: distribution}, as the survey tells it."""

    def __init__(self, folder):
        self.folder, self.libraries, self.requires = (folder, {}, {})

    def add(self, path, owner, *, names=(), needs=(), flags=()):
        """Write a library of `owner` with texts and needed libraries.

        `as_needed` are those of which there is a file.
        """
        texts = "\\0".join(names)
        made = build(
            "library_stub.c",
            os.path.basename(path),
            self.folder.parent / "native",
            defines=[f'NAMES="{texts}"'] if names else [],
            flags=["-Wl,--no-as-needed", *map(str, needs), *flags],
        )
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(made.read_bytes())
        self.own(path, owner)
        return place

    def own(self, path, owner):
        self.libraries[str(self.folder / path)] = owner
        self.requires.setdefault(owner, [])

    def check(self, *modules, env=None, deadline=60.0, system=None):
        rows = [
            Distribution(name=name, version="1.0", requires=tuple(needs))
            for name, needs in self.requires.items()
        ]
        survey = survey_of(*rows, libraries=self.libraries)
        end = time.monotonic() + deadline
        libraries = Libraries(survey, Origins(env or {}), end, system or {})
        return closure_check(libraries, modules)


def survey_of(*rows, libraries):
    interpreter = {}
    return Survey(interpreter=interpreter, distributions=rows, libraries=libraries)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


def test_reading_agrees_with_another_reader(site):
    lower = site.add("nvidia/b/lib/liblower.so.3", "nvidia-b")
    upper = site.add(
        "nvidia/a/lib/libupper.so.2",
        "nvidia-a",
        needs=[lower],
        names=["libplain.so", "libcublas.so.13"],
        flags=["-Wl,-rpath,$ORIGIN:$ORIGIN/../../b/lib"],
    )
    with upper.open("rb") as stream:
        tags = list(ELFFile(stream).get_section_by_name(".dynamic").iter_tags())
    found = elf.read(str(upper), names=True)
    assert list(found.needed) == [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
    assert found.soname == "libupper.so.2"
    assert [":".join(found.runpath)] == [
        tag.runpath for tag in tags if tag.entry.d_tag == "DT_RUNPATH"
    ]
    assert found.rpath == ()
    assert found.names == ("libcublas.so.13", "libplain.so")


def test_libraries_that_the_system_must_have(site, tmp_path):
    """What the data says that a release opens, although no text of its libraries names it."""
    system = {"tensorflow": ["libcudart.so.11.0", "libcudnn.so.8"]}
    check = site.check(system=system)
    assert (check.status, check.evidence) == (
        "fail",
        "missing: libcudart.so.11.0, opened by name by tensorflow, is not found; "
        "missing: libcudnn.so.8, opened by name by tensorflow, is not found",
    )
    folder = tmp_path / "cuda-11.2"
    folder.mkdir()
    (folder / "libcudart.so.11.0").touch()
    env = {"LD_LIBRARY_PATH": str(folder)}
    assert "libcudart" not in site.check(system=system, env=env).evidence
    (folder / "libcudnn.so.8").touch()
    assert site.check(system=system, env=env).status == "pass"


def test_names_are_whole_texts(site):
    texts = [
        "cannot open libcublas.so.13",
        "/usr/lib/libcublas.so.12",
        "libcublas.so.11 is old",
        "libx.so.%d",
    ]
    assert elf.read(str(site.add("libt.so.1", "nvidia-t", names=texts)), names=True).names == ()


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_damage_gives_an_answer_or_one_error(data, tmp_path_factory):
    """Whatever the headers hold, reading ends within bounds, with a result or NotElfError."""
    folder = tmp_path_factory.mktemp("damage")
    whole = bytearray(build("library_stub.c", "libd.so.1", folder.parent / "native").read_bytes())
    sections = struct.unpack_from("<Q", whole, 40)[0]
    for _ in range(data.draw(st.integers(1, 4))):
        # The ELF header, the program headers, or the section headers.
        place = data.draw(st.integers(16, 1000) | st.integers(sections, len(whole) - 8))
        whole[place : place + 8] = struct.pack("<Q", data.draw(st.integers(0, 2**64 - 1)))
    path = folder / "libd.so.1"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        assert elf.read(str(path), names=True).path == str(path)
    except (elf.NotElfError, OSError):
        pass


# ---- the judgement -------------------------------------------------------------------------------


def cudnn(site, *, members=("ops", "cnn"), named=("ops", "cnn")):
    """A main library that opens its members by their names without version."""
    lib = "nvidia/cudnn/lib"
    site.add(
        f"{lib}/libcudnn.so.9", "nvidia-cudnn-cu13", names=[f"libcudnn_{name}.so" for name in named]
    )
    for name in members:
        site.add(
            f"{lib}/libcudnn_{name}.so.9",
            "nvidia-cudnn-cu13",
            names=["libcuda.so.1", "libcask_profile.so"],
        )


def test_a_member_that_is_named_and_not_there(site):
    cudnn(site, named=("ops", "cnn", "tensor_ir"))
    found = site.check()
    assert found.status == "fail"
    assert (
        found.evidence
        == "missing: libcudnn_tensor_ir.so.9, opened by name by libcudnn.so.9, is not found"
    )


def test_what_the_path_does_without_is_unknown(site):
    """Only a library that neither cuDNN nor a framework reaches opens it."""
    cudnn(site)
    site.add(
        "nvidia/nvshmem/lib/libnvshmem_host.so.3", "nvidia-nvshmem-cu13", names=["libnccl.so.2"]
    )
    found = site.check()
    assert (found.status, "missing: libnccl.so.2" in found.evidence) == ("unknown", True)


def test_a_library_that_is_needed_and_only_outside(site, tmp_path):
    other = Site(tmp_path / "toolkit").add("libcublas.so.13", "toolkit")
    cudnn(site)
    site.add("nvidia/cusolver/lib/libcusolver.so.12", "nvidia-cusolver", needs=[other])
    site.requires["nvidia-cusolver"] = ["nvidia-cublas"]
    taken = site.check(env={"LD_LIBRARY_PATH": str(other.parent)})
    assert taken.status == "fail"
    assert taken.evidence == (
        "outside: libcublas.so.13, needed by libcusolver.so.12, is not in the environment; the "
        "loader takes "
        f"{other} (nvidia-cusolver requires nvidia-cublas, not installed)"
    )
    assert (
        "missing: libcublas.so.13, needed by libcusolver.so.12, is not found"
        in site.check().evidence
    )


def test_a_library_beside_the_recorded_ones_is_there(site):
    cudnn(site, named=("ops", "cnn", "ext"))
    extra = site.add("nvidia/cudnn/lib/libcudnn_ext.so.9", "nobody")
    del site.libraries[str(extra)]
    assert site.check().status == "pass"


def test_a_systems_library_that_is_nowhere(site, tmp_path):
    """A missing library matters on the path. A plug-in that is opened by name may lack its own."""
    absent = Site(tmp_path / "other").add("libodd.so.7", "system")
    cudnn(site, named=("ops", "cnn", "ext"))
    plugin = ["libcufile_rdma.so.1"]
    site.add("nvidia/cufile/lib/libcufile.so.0", "nvidia-cufile", names=plugin)
    site.add("nvidia/cufile/lib/libcufile_rdma.so.1", "nvidia-cufile", needs=[absent])
    site.add("nvidia/cudnn/lib/libcudnn_ext.so.9", "nvidia-cudnn-cu13", names=["libcufile.so.0"])
    assert site.check().status == "pass"
    site.add("nvidia/cudnn/lib/libcudnn_cnn.so.9", "nvidia-cudnn-cu13", needs=[absent])
    assert (
        site.check().evidence == "missing: libodd.so.7, needed by libcudnn_cnn.so.9, is not found"
    )


def frameworks(site, *, both):
    """A framework whose library needs cuBLAS of CUDA 12, and of CUDA 13 if `both`."""
    twelve = site.add("nvidia/cublas/lib/libcublas.so.12", "nvidia-cublas-cu12")
    thirteen = site.add("nvidia/cu13/lib/libcublas.so.13", "nvidia-cublas")
    own = site.add(
        "torch/lib/libtorch_cuda.so", "torch", needs=[twelve, thirteen] if both else [twelve]
    )
    site.add("torch/_C.cpython-312-x86_64-linux-gnu.so", "torch", needs=[own])


def test_two_cuda_majors_for_one_framework(site):
    frameworks(site, both=True)
    found = site.check("torch")
    assert found.status == "fail"
    assert found.evidence == (
        "mixed: torch reaches libcublas.so.12 and libcublas.so.13 (of nvidia-cublas and "
        "nvidia-cublas-cu12)"
    )


def test_two_cuda_majors_that_nobody_needs_both(site):
    frameworks(site, both=False)
    found = site.check("torch")
    assert found.status == "pass"
    assert found.evidence.endswith(
        "two CUDA majors are installed, and nothing needs both: nvidia-cublas, nvidia-cublas-cu12"
    )


def test_a_frameworks_library_that_is_missing(site):
    frameworks(site, both=False)
    (site.folder / "nvidia/cublas/lib/libcublas.so.12").unlink()
    assert (
        "missing: libcublas.so.12, needed by libtorch_cuda.so, is not found"
        in site.check("torch").evidence
    )
    assert site.check().status == "pass"  # nobody's path


def test_a_linkers_script_is_no_broken_library(site):
    cudnn(site)
    for name in ("libnccl.so", "libnccl.so.2"):
        (site.folder / "nvidia/cudnn/lib" / name).write_text("GROUP ( libnccl.so.2 )\n")
        site.own(f"nvidia/cudnn/lib/{name}", "nvidia-nccl-cu13")
    found = site.check()
    assert (
        found.evidence == f"broken: {site.folder}/nvidia/cudnn/lib/libnccl.so.2: it is no ELF file"
    )


def test_no_time_is_no_pass(site):
    cudnn(site)
    found = site.check(deadline=-1)
    assert (found.status, found.evidence) == ("unknown", "not all files were read in time")


def test_nothing_of_cuda(site):
    assert site.check("torch").status == "pass"


@each("tags", ["--disable-new-dtags", "--enable-new-dtags"])
def test_the_loader_takes_a_library_of_rpath_first_and_of_runpath_last(site, tmp_path, tags):
    other = Site(tmp_path / "a").add("libcublas.so.13", "toolkit")
    variable = Site(tmp_path / "b").add("libcublas.so.13", "toolkit")
    cudnn(site)
    site.add(
        "nvidia/cusolver/lib/libcusolver.so.12",
        "nvidia-cusolver",
        needs=[other],
        flags=[f"-Wl,{tags},-rpath,{other.parent}"],
    )
    found = site.check(env={"LD_LIBRARY_PATH": str(variable.parent)})
    taken = other if tags == "--disable-new-dtags" else variable
    assert found.marks == (("outside", "libcublas.so.13", str(taken)),)
    found = site.check()
    assert found.marks == (("outside", "libcublas.so.13", str(other)),)


# ---- one library does not hide another one -------------------------------------------------------


def test_a_name_that_is_left_out_does_not_hide_the_next_one(site):
    """Names are sorted, so the library of the driver comes first."""
    site.add(
        "nvidia/cudnn/lib/libcudnn.so.9",
        "nvidia-cudnn-cu13",
        names=["libcuda.so.1", "libnccl.so.2"],
    )
    assert site.check().marks == (("missing", "libnccl.so.2", "libcudnn.so.9"),)


DEFAULT_FOLDERS = [
    "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/lib64", "/usr/lib64", "/lib", "/usr/lib",
]  # fmt: skip


def test_the_default_folders_of_the_loader_are_searched_in_its_order(site, monkeypatch):
    """No system has a library of this name. The first folder that has it counts."""
    name, exists = "libcublas_of_a_test.so.99", os.path.exists
    cudnn(site, members=(), named=())
    site.add("nvidia/cufft/lib/libcufft.so.12", "nvidia-cufft", names=[name])
    present = [f"{folder}/{name}" for folder in DEFAULT_FOLDERS]
    monkeypatch.setattr(os.path, "exists", lambda path: str(path) in present or exists(path))
    while present:
        assert site.check().marks == (("outside", name, present[0]),)
        del present[0]
    assert site.check().marks == (("missing", name, "libcufft.so.12"),)
