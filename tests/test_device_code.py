"""The device code of files, wheels and environments, in `matrix scan`, verify and doctor."""

import io
import json
import struct
import sys
import time
import venv
import zipfile
from contextlib import suppress

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuenv
from examples import examples
from fatbin_maker import binary, library
from gpuenv.binaries import elf, environment
from gpuenv.binaries.device_code import DamagedFileError, read_file
from small_wheels import write_record
from tables import each, on_x86_64

pytestmark = on_x86_64
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
# As ptxas 12.9 (ABI 7 and 8) and 13.0 (ABI 8, attribute 9 of .nv.compat) write the header.
CUBINS = {
    "90": (51, 7, 0x5A055A, b""),
    "90a": (51, 7, 0x5A0D5A, b""),
    "103a": (65, 8, 0x600670A, b""),
    "100": (65, 8, 0x6006402, bytes.fromhex("020900000202010004 0b0800 0900000000000000")),
    "120a": (65, 8, 0x6007802, bytes.fromhex("040b0800 0209010000000000 02090100")),
}


def cubin(target):
    """Return an ELF file with the header of a cubin, and its section .nv.compat if there is one."""
    abi, version, flags, compat = CUBINS[target]
    names = b"\0.shstrtab\0.nv.compat\0"
    sections = [
        (0, 0, 0, 0),
        (1, 3, 64, len(names)),
        (11, 0x70000086, 64 + len(names), len(compat)),
    ]
    ident = b"\x7fELF" + bytes([2, 1, 1, abi, version]) + bytes(7)
    start = 64 + len(names) + len(compat)
    head = ident + struct.pack("<HHIQQQI6H", 2, 190, 1, 0, 0, start, flags, 64, 0, 0, 64, 3, 1)
    rows = [
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 1, 0)
        for name, kind, offset, size in sections
    ]
    return head + names + compat + b"".join(rows)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Libraries by the targets of their device code."""
    folder = tmp_path_factory.mktemp("made")
    images = {
        "80": [{"sass": "80", "size": 300_000}],
        "80 90": [{"sass": "80"}, {"sass": "90"}],
        "75 ptx": [{"sass": "75"}, {"ptx": "80", "language": "7.4"}],
    }
    sections = {name: {".nv_fatbin": binary(several)} for name, several in images.items()}
    return {
        "none": library(folder / "none.so", {".rodata": b"x"}),
        **{
            name: library(folder / f"{number}.so", made)
            for number, (name, made) in enumerate(sections.items())
        },
    }


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# ---- files ---------------------------------------------------------------------------------------


def dll(content, *, bits=0x20B):
    """Return a library of Windows with a section .nv_fatb and an import of cudart64_12.dll."""
    imports = struct.pack("<5I", 0, 0, 0, 0x2000 + 40, 0) + bytes(20) + b"cudart64_12.dll\0"
    optional = struct.pack("<H106xI", bits, 16) + struct.pack("<QQ", 0, 0x2000) + bytes(112)
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 64) + b"PE\0\0"
    head += struct.pack("<HH12xHH", 0x8664, 2, len(optional), 0x2022) + optional
    for name, address, offset, size in (
        (b".idata", 0x2000, 512, len(imports)),
        (b".nv_fatb", 0x4000, 1024, len(content)),
    ):
        head += struct.pack("<8sIIII16x", name, size, address, size, offset)
    return head.ljust(512, b"\0") + imports.ljust(512, b"\0") + content


def test_a_library_of_windows(tmp_path):
    images = binary([{"sass": "61"}, {"ptx": "90", "language": "8.0"}])
    path = put(tmp_path / "x.dll", dll(images))
    found = read_file(str(path))
    assert (found.sass, found.ptx) == ((("61", 1),), (("90", "8.0", 1),))
    for damaged in (dll(images, bits=0x10B), b"MZ", b"MZ".ljust(300, b"x"), dll(images)[:400]):
        with pytest.raises(DamagedFileError):
            read_file(str(put(tmp_path / "damaged.dll", damaged)))


def test_a_fat_binary_and_ptx_are_files_of_their_own(tmp_path):
    images = binary([{"sass": "90a"}, {"ptx": "90", "language": "8.0"}])
    found = read_file(str(put(tmp_path / "x.fatbin", images)))
    assert (found.sass, found.ptx) == ((("90a", 1),), (("90", "8.0", 1),))
    text = b"// made\n.version 8.5\n.target sm_90a, debug\n.address_size 64\n"
    found = read_file(str(put(tmp_path / "x.ptx", text)))
    assert found.ptx == (("90a", "8.5", 1),)
    assert read_file(str(put(tmp_path / "x.txt", b"a text"))) is None


@pytest.fixture(scope="module")
def originals(made, tmp_path_factory):
    """A folder with a file of each kind: 0, 1, 2, 3."""
    folder = tmp_path_factory.mktemp("originals")
    for number, data in enumerate((made["75 ptx"], made["80 90"], cubin("120a"), dll(b"x"))):
        put(folder / str(number), data)
    return folder


@given(
    st.integers(0, 3),
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 63), st.integers(0, 20_000), st.integers(-1500, -1)),
            st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]),
        ),
        max_size=6,
    ),
    st.integers(50, 150),
)
@settings(max_examples=examples(60), deadline=None)
def test_damage_of_any_kind_is_an_error_of_its_own(originals, kind, changes, percent):
    data = bytearray((originals / str(kind)).read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    del data[len(data) * percent // 100 :]
    path = put(originals / "damaged", bytes(data))
    with suppress(DamagedFileError):
        read_file(str(path))
    with suppress(elf.NotElfError):
        elf.read(str(path), names=True)


@each("change", ["sections", "names", "tags"])
def test_tables_without_an_end_cost_a_limited_time(change, made, tmp_path):
    """65,535 sections; a table of names and a dynamic section of 20 MB."""
    data = bytearray(made["none"])
    parsed = ELFFile(io.BytesIO(data))
    if change == "sections":
        data[60:62] = b"\xff\xff"
    else:
        name = ".shstrtab" if change == "names" else ".dynamic"
        header = parsed["e_shoff"] + 64 * parsed.get_section_index(name)
        fields = struct.pack("<QQ", len(data), 20_000_000)
        data[header + 24 : header + 40] = fields
        for number, segment in enumerate(parsed.iter_segments()):
            if segment["p_type"] == "PT_DYNAMIC":
                place = parsed["e_phoff"] + 56 * number
                data[place + 8 : place + 16] = fields[:8]
                data[place + 32 : place + 40] = fields[8:]
    data += b"\1" * 20_000_000
    path = put(tmp_path / "endless.so", bytes(data))
    begin = time.monotonic()
    with suppress(elf.NotElfError):
        elf.read(str(path), names=True)
    with suppress(DamagedFileError):
        read_file(str(path))
    assert time.monotonic() - begin < 10


# ---- matrix scan ---------------------------------------------------------------------------------


def test_scan_marks_what_cannot_run(made, tmp_path, call):
    path = put(tmp_path / "spam.so", made["80"])
    scan = f"matrix scan {path} --driver 580.65.06"
    out = call(f"{scan} --gpu H200", status=1).stdout
    assert f"{path} cannot run: rebuild it with TORCH_CUDA_ARCH_LIST=9.0" in out
    out = call(f"{scan} --gpu 'RTX 3090'").stdout
    assert "runs" in out and "cannot run" not in out
    out = call(f"{scan} --gpu 'RTX 3090' --gpu B200 --gpu H200", status=1).stdout
    assert "TORCH_CUDA_ARCH_LIST=9.0;10.0" in out


def test_scan_of_a_wheel_reads_its_members(made, tmp_path, call):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (("spam/_C.so", made["80"]), ("spam/_D.so", made["80 90"])):
            archive.writestr(name, data)
        archive.writestr("spam/none.so", made["none"])
    path = put(tmp_path / "spam-1.0-cp312-cp312-linux_x86_64.whl", buffer.getvalue())
    document = call(f"matrix scan {path} --gpu H100 --driver 580 --json").document
    assert (document["kind"], document["read"]) == ("wheel", 3)
    first, second = document["files"]
    assert (first["file"], first["distribution"], first["runs"]) == (
        "spam/_C.so",
        "spam 1.0",
        False,
    )
    assert first["optional"] == "other files of its distribution run"
    assert second["runs"] is True
    path.write_bytes(buffer.getvalue()[:-40])
    call(f"matrix scan {path} --gpu H100", status=2)


@each("name", ["gone.so", "text.so"])
def test_what_cannot_be_scanned_is_bad_input(name, tmp_path, call):
    put(tmp_path / "text.so", b"INPUT(libx.so.1)")
    call(f"matrix scan {tmp_path / name} --gpu H100", status=2)


# ---- environments --------------------------------------------------------------------------------


def distribution(site, name, files, texts=()):
    for path, data in files.items():
        put(site / path, data)
    write_record(site, name, "1.0", files, texts=texts)


@pytest.fixture(scope="module")
def env(tmp_path_factory, made):
    """An environment with extensions, a cubin, an editable project and libraries of NVIDIA."""
    folder = tmp_path_factory.mktemp("env")
    target, project = folder / "env", folder / "project"
    venv.create(target, symlinks=True)
    site = target / SITE
    distribution(site, "spam-ext", {"spam/_C.so": made["80"]})
    distribution(site, "eggs", {"eggs/_old.so": made["80"], "eggs/_new.so": made["80 90"]})
    distribution(site, "nvidia-ham", {"nvidia/ham/lib/libham.so.1": made["80"]})
    distribution(site, "fine", {"fine/_C.so": made["80 90"], "fine/tests/old.so": made["80"]})
    put(project / "toy/_C.so", made["80"])
    put(project / "build/lib/_C.so", made["80"])
    direct = json.dumps({"url": f"file://{project}", "dir_info": {"editable": True}})
    distribution(site, "toy", {}, {"direct_url.json": direct})
    put(site / "kernels/scale.cubin", cubin("90a").replace(b"\x5a\x0d\x5a", b"\x50\x05\x50"))
    yield target


def device_checks(env, gpu):
    host = gpuenv.describe(gpus=(gpu,), driver="580.65.06", platform="linux-x86_64")
    checks = gpuenv.verify(None, str(env), host, device=False)
    return {check.subject: check for check in checks if check.name == "device code"}


def test_verify_names_each_library_that_cannot_run(env):
    checks = device_checks(env, "H200")
    cubin_path = str(env / SITE / "kernels/scale.cubin")
    assert {subject: check.status for subject, check in checks.items()} == {
        "spam-ext 1.0": "fail",
        "toy 1.0": "fail",
        cubin_path: "fail",
        "eggs 1.0": "unknown",
    }
    spam = checks["spam-ext 1.0"].evidence
    assert spam.startswith(str(env / SITE / "spam/_C.so")) and "has sm_80;" in spam
    assert "compute capability 9.0 (H200): rebuild it with TORCH_CUDA_ARCH_LIST=9.0" in spam
    assert "project/toy/_C.so" in checks["toy 1.0"].evidence
    assert checks[cubin_path].evidence.endswith("rebuild it with nvcc -arch=sm_90")
    assert "eggs/_old.so" in checks["eggs 1.0"].evidence


def test_verify_passes_where_everything_runs(env):
    (check,) = device_checks(env, "A100").values()
    assert (check.status, check.subject) == ("pass", "")
    assert check.evidence == "7 files with device code run on A100"


def test_doctor_names_the_file_behind_no_kernel_image(env, tmp_path, call):
    text = (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
    )
    log = put(tmp_path / "log", text.encode())
    doctor = f"doctor {log} --gpu H200 --driver 580.65.06 --target {env} --json"
    verdict = call(doctor, status=1).document["verdicts"][0]
    assert verdict["cause"] == "gpu_too_new_for_build"
    evidence = "\n".join(verdict["evidence"])
    assert "spam/_C.so" in evidence and "sm_80" in evidence and "9.0" in evidence
    assert "spam-ext 1.0: rebuild it with TORCH_CUDA_ARCH_LIST=9.0" in verdict["fix"]
    assert "nvcc -arch=sm_90" in verdict["fix"]


def test_a_scan_ends_at_the_deadline(env):
    contents = environment.scan_environment(str(env), deadline=time.monotonic() - 1)
    assert not contents.complete and contents.files == ()
