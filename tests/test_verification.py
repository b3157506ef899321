"""Verification of environments with planted faults: real interpreters, stand-ins for cuDNN."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from contextlib import suppress
from pathlib import Path

import pytest

import planting
from gpuenv.api import compatibility_data
from gpuenv.errors import InputError
from gpuenv.model import Choice, Gpu, Host, Needs, Python, Wheel
from gpuenv.verify.environment import verify
from gpuenv.verify.loader import Origins, variable_check
from native_build import build
from processes import program
from small_wheels import make_lock, write_record
from tables import cases, data_file, on_linux

HERE = (sys.version_info[0], sys.version_info[1])
TABLES = data_file("verification.toml")
CASES = TABLES["case"]
CUDNN = Path("nvidia/cudnn/lib")
MEMBERS = {
    "": "adv cnn graph ops",
    "graph": "engines_precompiled heuristic",
    "ops": "graph",
    "cnn": "ops graph",
    "adv": "ops graph",
    "engines_precompiled": "graph",
    "engines_runtime_compiled": "graph",
    "heuristic": "graph",
}
INSTALLED = {"nvidia-cudnn-cu13": "9.20.0.48", "nvidia-cublas": "13.0.0.19"}
CLEAN = {
    key: value for key, value in os.environ.items() if not key.startswith(("LD_", "PYTHON", "CUDA"))
}

pytestmark = on_linux


def file_name(member, version, *, full=False):
    stem = f"libcudnn_{member}" if member else "libcudnn"
    major, minor, patch = version // 10000, version // 100 % 100, version % 100
    return f"{stem}.so.{major}.{minor}.{patch}" if full else f"{stem}.so.{major}"


def member_file(native, member, version=92000, names="", defines=(), runpath="$ORIGIN"):
    """A compiled member of cuDNN; `names` are further members that its text names."""
    # Each a text of its own, as compilers leave them.
    texts = "".join(
        f"\\0libcudnn_{name}.so" for name in [*MEMBERS.get(member, "").split(), *names.split()]
    )
    kind = ["MAIN"] if member == "" else []
    options = [f"VERSION={version}", f'NAMES="{texts}"', *kind, *defines]
    flags = [f"-Wl,-rpath,{runpath}", "-Wl,--enable-new-dtags"]
    return build("cudnn_stub.c", file_name(member, version), native, defines=options, flags=flags)


def place(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copy(source, target)


def site_of(target):
    return target / "lib" / f"python{HERE[0]}.{HERE[1]}" / "site-packages"


def install(site, native, plants):
    """Install the stand-in distributions, with faults from before and after RECORD was written."""
    for member in MEMBERS:
        place(member_file(native, member), site / CUDNN / file_name(member, 92000))
    cublas = Path("nvidia/cu13/lib/libcublas.so.13")
    (site / cublas).parent.mkdir(parents=True)
    shutil.copy(build("library_stub.c", cublas.name, native), site / cublas)
    (site / "nvidia/__init__.py").touch()
    for plant in plants:
        if not plant.get("late"):
            apply(plant, site, native)
    owned = [CUDNN / name for name in sorted(os.listdir(site / CUDNN))]
    write_record(
        site,
        "nvidia-cudnn-cu13",
        INSTALLED["nvidia-cudnn-cu13"],
        [*owned, Path("nvidia/__init__.py")],
    )
    write_record(site, "nvidia-cublas", INSTALLED["nvidia-cublas"], [cublas])
    for plant in plants:
        if "claim" in plant:
            claim(plant, site)
        elif plant.get("late"):
            apply(plant, site, native)


def apply(plant, site, native):
    if "remove_folder" in plant:
        shutil.rmtree(site / plant["remove_folder"])
    elif "remove" in plant:
        (site / CUDNN / file_name(plant["remove"], 92000)).unlink()
    elif "member" in plant:
        options = {
            key: plant[key] for key in ("version", "names", "defines", "runpath") if key in plant
        }
        source = member_file(native, plant["member"], **options)
        place(source, site / CUDNN / file_name(plant["member"], 92000))
    elif "write" in plant:
        (site / plant["write"]).unlink(missing_ok=True)
        (site / plant["write"]).parent.mkdir(exist_ok=True)
        (site / plant["write"]).write_text(plant["text"])
    elif "append" in plant:
        with (site / plant["append"]).open("ab") as stream:
            stream.write(b"x")
    elif "flip" in plant:
        data = bytearray((site / plant["flip"]).read_bytes())
        data[len(data) // 2] ^= 1
        (site / plant["flip"]).write_bytes(data)


def claim(plant, site):
    """Another distribution is installed over a file of the first one."""
    (site / plant["claim"]).write_text(plant["text"])
    write_record(site, plant["by"], "9.0", [Path(plant["claim"])])


def outside_cudnn(spec, folder, native):
    """Another cuDNN in a folder of its own; the variable that leads there."""
    for member in spec["members"]:
        name = file_name(member, spec["version"], full=spec.get("full", False))
        place(member_file(native, member, spec["version"]), folder / name)
        if spec.get("full"):
            (folder / file_name(member, spec["version"])).symlink_to(name)
    if spec["via"] == "runpath":
        return {}
    if spec["via"] == "LD_PRELOAD":
        return {"LD_PRELOAD": ":".join(str(path) for path in sorted(folder.iterdir()))}
    return {"LD_LIBRARY_PATH": str(folder)}


def lock_of(pins, choices=()):
    wheels = [
        Wheel(name=name, version=version, filename=name, url=f"file:///{name}", sha256="0" * 64)
        for name, version in sorted(pins.items())
    ]
    lock = make_lock(*wheels).replace(needs=Needs(python=HERE), choices=tuple(choices))
    return lock.replace(host=host_of(1))


def host_of(devices, compute_mode=None):
    gpus = [
        Gpu(name=f"Stand-in {n}", compute_capability=(9, 0), index=n, compute_mode=compute_mode)
        for n in range(devices)
    ]
    return Host(python=Python(version=HERE), gpus=tuple(gpus))


def verified(target, lock=None, *, devices=0, device=False, compute_mode=None, **options):
    """Verify on a host with stand-ins for GPUs; the checks of rules are left out.

    `device` is as for verify; None does not give it.
    """
    data = compatibility_data()
    options = {"data": data, "frameworks": (), "env": CLEAN, "device": device, **options}
    if device is None:
        del options["device"]
    checks = verify(lock, str(target), host_of(devices, compute_mode), **options)
    return [check for check in checks if check.name != "rules"]


def require(checks, expected):
    """Fail unless each expected check is there once, with its texts, and all others passed."""
    left, said = list(checks), show(checks)
    for want in expected:
        name, subject = want.get("check"), want.get("subject")
        found = [
            one
            for one in left
            if name in (None, one.name)
            and (subject in (None, one.subject) or (subject and one.subject.startswith(subject)))
        ]
        assert [one.status for one in found] == [want["status"]], f"{want}\n{said}"
        missing = [text for text in want.get("has", ()) if text not in found[0].evidence]
        assert missing == [], said
        left.remove(found[0])
    assert {one.status for one in left} <= {"pass"}, said


def show(checks):
    return "\n".join(f"{one.status:8}{one.name} {one.subject}: {one.evidence}" for one in checks)


@cases(CASES)
def test_planted_faults(case, env, native, tmp_path):
    outside = tmp_path / "outside"
    plants = [dict(one) for one in case.get("plant", [])]
    for one in plants:
        if one.get("member") == case.get("outside", {}).get("of", "-"):
            one["runpath"] = f"{outside}:$ORIGIN"
    install(site_of(env), native, plants)
    variables = {**CLEAN, **case.get("env", {})}
    if "outside" in case:
        outside.mkdir()
        variables |= outside_cudnn(case["outside"], outside, native)
    devices = case.get("device", 0)
    if devices:
        libcuda = build("cuda_stub.c", "libcuda.so.1", native)
        variables = {"CUDA_STUB_DEVICES": str(devices), **variables}
        variables["LD_LIBRARY_PATH"] = str(libcuda.parent)
    before = planting.times(env)
    options = {"timeout": case.get("timeout", 60), "env": variables}
    checks = verified(env, lock_of(INSTALLED), devices=devices, device=bool(devices), **options)
    require(checks, json.loads(json.dumps(case["expect"]).replace("OUTSIDE", str(outside))))
    assert planting.times(env) == before


def test_an_interrupt_ends_a_hang(hanging_env):
    """Ctrl-C does not reach children in sessions of their own; they are ended without a timeout."""
    env, variables = hanging_env
    code = (
        "import signal, sys\n"
        # A shell may have started the tests with the signal ignored, which children inherit.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from gpuenv import Host, Python, verify\n"
        "verify(None, sys.argv[1], Host(python=Python(version=(3, 11))), timeout=500)\n"
    )
    variables["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", code, env]
    with subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL) as process:
        assert wait_until(lambda: hang_is_reached(variables["MARKER"]))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
    assert wait_until(lambda: running_with(variables["MARKER"]) == [])


def test_what_a_probe_leaves_behind_holds_up_nobody(env, native, tmp_path):
    """A process that a framework leaves behind keeps streams open; it is ended with the probe."""
    marker = f"marker-{os.getpid()}-{env}"
    body = "import subprocess\nsubprocess.Popen(['sleep', '600'])\n" + FAKE_TORCH
    test_a_framework({"body": body, "env": {"MARKER": marker}}, env, native, tmp_path)
    assert wait_until(lambda: running_with(marker) == [])


def wait_until(true):
    """Whether it comes true within half a minute."""
    for _ in range(600):
        if true():
            return True
        time.sleep(0.05)
    return False


def hang_is_reached(marker):
    """Whether a process with the marker has opened the library that hangs."""
    for process in running_with(marker):
        with suppress(OSError):  # it has ended
            if "heuristic" in Path(f"/proc/{process}/maps").read_text():
                return True
    return False


def running_with(marker):
    """The processes whose environment holds the marker."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if marker.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def test_versions_against_the_lock(env, native):
    install(site_of(env), native, [])
    lock = lock_of(
        {"nvidia-cudnn-cu13": "9.19.0.56", "nvidia-cublas": "13.0.0.19", "numpy": "2.4.0"}
    )
    checks = verified(env, lock)
    (versions,) = [one for one in checks if one.name == "versions"]
    assert versions.status == "fail"
    for text in ("nvidia-cudnn-cu13", "9.20.0.48", "9.19.0.56", "numpy 2.4.0 is not installed"):
        assert text in versions.evidence
    assert "cublas" not in versions.evidence
    (version,) = [one for one in checks if (one.name, one.subject) == ("cudnn", "version")]
    assert version.status == "fail"
    assert "9.19.0.56" in version.evidence


def test_a_lock_for_another_python(env):
    lock = lock_of({}).replace(needs=Needs(python=(3, HERE[1] + 1)))
    checks = verified(env, lock)
    (interpreter,) = [one for one in checks if one.name == "interpreter"]
    assert interpreter.status == "fail"
    assert f"3.{HERE[1] + 1}" in interpreter.evidence


def test_no_environment_there(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        verified(tmp_path / "none")
    with pytest.raises(InputError, match="no environment"):
        verified(tmp_path)


def test_an_interpreter_that_crashes(tmp_path):
    python = program(tmp_path / "python", "kill -ABRT $$")
    checks = verified(python)
    assert [(one.name, one.status) for one in checks] == [("interpreter", "fail")]
    assert "SIGABRT" in checks[0].evidence


def test_without_a_lock_what_is_installed_is_what_should_be(env, native):
    install(site_of(env), native, [])
    checks = verified(env)
    assert {one.status for one in checks} == {"pass"}, show(checks)
    assert "versions" not in {one.name for one in checks}


def test_no_device_where_one_is_wanted(env, native):
    install(site_of(env), native, [])
    lock = lock_of(INSTALLED)
    for host, expected in ((lock.host, [("device", "unknown")]), (host_of(0), [])):
        checks = verified(env, lock.replace(host=host), device=True)
        assert [(one.name, one.status) for one in checks if one.status != "pass"] == expected


def test_libraries_that_are_links_into_a_cache_are_the_environments(env, native):
    site = site_of(env)
    install(site, native, [])
    kept = env.parent / "cache"
    kept.mkdir()
    for path in sorted((site / CUDNN).iterdir()):
        path.rename(kept / path.name)
        path.symlink_to(kept / path.name)
    checks = verified(env, lock_of(INSTALLED))
    assert {one.status for one in checks} == {"pass"}, show(checks)


def test_packages_of_the_system_that_an_environment_sees_are_its_own(env, native):
    upper = env.parent / "upper"
    venv.create(upper, symlinks=True)
    engine = site_of(env) / CUDNN / "libcudnn_engines_precompiled.so.9"
    install(site_of(env), native, [])
    pins = install_torch(site_of(env))
    (site_of(upper) / "lower.pth").write_text(f"{site_of(env)}\n")
    variables = {**CLEAN, "FAKE_LIBRARIES": str(engine)}
    checks = verified(upper, lock_of(pins, [TORCH]), frameworks=FRAMEWORKS, env=variables)
    assert {one.status for one in checks} == {"pass"}, show(checks)


# ---- frameworks ----------------------------------------------------------------------------------

FAKES = Path(__file__).parent / "fakes"
FAKE_TORCH = (FAKES / "torch.py").read_text()


def install_torch(site, body=FAKE_TORCH):
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text(body)
    shutil.copy(FAKES / "fake_arrays.py", site)
    write_record(site, "torch", "2.13.0", [Path("torch/__init__.py")])
    return {**INSTALLED, "torch": "2.13.0"}


TORCH = Choice(
    framework="torch", version="2.13.0", variant="cu130", cuda=(13, 0), cudnn="9.20.0.48"
)
FRAMEWORKS = (("torch", "torch", "torch"),)


@cases(TABLES["framework"])
def test_a_framework(case, env, native, tmp_path):
    site, devices = site_of(env), str(case.get("devices", 0))
    body = case.get("body", FAKE_TORCH)
    for old, new in case.get("replace", {}).items():
        assert old in body
        body = body.replace(old, new)
    install(site, native, [])
    pins = install_torch(site, body)
    if case.get("numpy"):
        shutil.copy(FAKES / "numpy.py", site)
    variables = {"FAKE_DEVICES": devices, "CUDA_STUB_DEVICES": devices, "FAKE_RESULTS": str(native)}
    if case.get("engine"):
        variables["FAKE_LIBRARIES"] = str(site / CUDNN / "libcudnn_engines_precompiled.so.9")
    if case.get("elsewhere"):
        variables["FAKE_LIBRARIES"] = str(tmp_path / "system" / "libcudnn_ops.so.9")
        place(member_file(native, "ops", 91400), Path(variables["FAKE_LIBRARIES"]))
    if "devices" in case:
        variables["LD_LIBRARY_PATH"] = str(build("cuda_stub.c", "libcuda.so.1", native).parent)
    choice = TORCH.replace(**case.get("choice", {}))
    if case.get("cpu"):
        choice = choice.replace(cuda=None, cudnn=None)
    options = {"frameworks": FRAMEWORKS, "env": {**CLEAN, **variables, **case.get("env", {})}}
    options |= {"devices": case.get("devices", 0), "device": "devices" in case, "timeout": 60}
    checks = verified(env, lock_of(pins, [choice]), **options)
    bad = [one for one in checks if one.status != "pass"]
    assert [one.status for one in bad] == ([case["status"]] if "status" in case else []), show(bad)
    text = show(bad or checks)
    assert [part for part in case.get("says", ()) if part not in text] == []


def test_a_framework_without_a_probe_is_imported(env):
    site = site_of(env)
    (site / "odd.py").write_text("__version__ = '1.0'\n")
    write_record(site, "odd", "1.0", [Path("odd.py")])
    checks = verified(env, lock_of({"odd": "1.0"}), frameworks=[("odd", "odd", "none")])
    (check,) = [one for one in checks if (one.name, one.subject) == ("odd", "import")]
    assert check.status == "pass"
    assert "1.0" in check.evidence


@pytest.mark.parametrize("reason", ["the working folder", "PYTHONPATH"])
def test_what_programs_import_instead(reason, env, native, tmp_path, monkeypatch):
    """The working folder is only mentioned; with PYTHONPATH, all programs find its torch.py."""
    (tmp_path / "torch.py").write_text("raise ImportError('the wrong torch')\n")
    case = {"name": "", "status": "unknown", "says": [f"torch.py ({reason})"]}
    if reason == "PYTHONPATH":
        case["env"] = {reason: str(tmp_path)}
        with pytest.raises(AssertionError, match="the wrong torch"):
            test_a_framework(case, env, native, tmp_path)
    else:
        monkeypatch.chdir(tmp_path)
        test_a_framework(case, env, native, tmp_path)


def test_a_stub_of_the_driver_in_a_loader_variable(tmp_path):
    """The folder of a CUDA toolkit has a libcuda.so for linkers; with it no program finds a GPU."""
    stub = tmp_path / "toolkit" / "lib64" / "stubs" / "libcuda.so"
    stub.parent.mkdir(parents=True)
    stub.touch()
    folder = tmp_path / "front"
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(stub)
    check = variable_check("", Origins({"LD_LIBRARY_PATH": str(folder)}))
    assert (check.status, str(folder) in check.evidence) == ("fail", True)
    assert variable_check("", Origins({"LD_LIBRARY_PATH": str(stub.parent)})).status == "pass"
