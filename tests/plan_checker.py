"""Every rule against a finished plan, from the raw facts alone, without the solver's data."""

from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename

import raw_facts as raw


def contradictions(plan, device, driver, python):
    """What is wrong with a plan for one GPU, a line each; [] if nothing is."""
    pins = plan.versions
    cuda = raw.driver_cuda(driver)
    doubts = {reason.code for reason in plan.warnings}
    return [
        *(["R7: the driver has dropped the GPU"] if raw.dropped(device, driver) else []),
        *(["R9: the driver is older than the GPU"] if raw.too_new(device, driver) else []),
        *majors(pins, driver),
        *code(pins, device, cuda, doubts),
        *bad(pins, device, cuda, doubts),
        *cudnn(pins),
        *owners(pins),
        *files(plan, python),
        *closure(plan, pins, python),
    ]


def majors(pins, driver):
    """R1, and one CUDA major for all."""
    found = {
        major: name for name, version in pins.items() if (major := raw.cuda_major(name, version))
    }
    if len(found) != 1:
        yield f"CUDA majors: {found}"
    for major in found:
        if major not in raw.majors_of(driver):
            yield f"R1: driver {driver} does not run CUDA {major}"


def code(pins, device, cuda, doubts):
    """R2 and R3: every library that counts serves the device; what is not known is told."""
    on_path = sorted(raw.ON_PATH & pins.keys())
    if not raw.CARRIERS & pins.keys():
        yield "no pin carries device code"
    for name in on_path:
        how = raw.serves(name, pins[name], device, cuda)
        if how is None:
            yield f"R3: {name} {pins[name]} does not serve {device} with CUDA {cuda}"
        if how == "unknown" and not any(one.endswith("-unknown") for one in doubts):
            yield (
                f"R3: whether {name} {pins[name]} serves {device} is not known, "
                "and the plan does not say so"
            )


def bad(pins, device, cuda, doubts):
    for name, version in pins.items():
        found = raw.known_bad(name, version, device, cuda)
        if found & {"broken", "unsupported"} or ("avoid" in found and "known-avoid" not in doubts):
            yield f"R4: {name} {version} is known to be bad: {found}"


def cudnn(pins):
    """R4: the one cuDNN has the major that each framework was built with, and no older minor."""
    names = [name for name in pins if name.startswith("nvidia-cudnn-")]
    if len(names) > 1:
        yield f"two cuDNN: {names}"
    for name, version in pins.items():
        built = raw.built_cudnn(name, version)
        for one in names if built else ():
            have = raw.pair(pins[one])
            if built and (have[0] != built[0] or have < built):
                yield f"R4: {name} {version} was built with cuDNN {built}, the plan has {pins[one]}"


def owners(pins):
    """R5, for every library that a scanned wheel installs, and for folders with one owner."""
    found = {}
    for name, version in pins.items():
        for path in (*raw.owned(name, version), *([raw.SLOTS[name]] if name in raw.SLOTS else ())):
            found.setdefault(path, set()).add(name)
    for path, names in sorted(found.items()):
        if len(names) > 1:
            yield f"R5: {path} belongs to {sorted(names)}"


def files(plan, python):
    """R8: each file fits the target, and is what the snapshot has of that release."""
    for wheel in (pin.wheel for pin in plan.pins):
        known = {one.version: one for one in raw.snapshot(wheel.name, python)}.get(wheel.version)
        if known is None or (known.filename, known.sha256) != (wheel.filename, wheel.sha256):
            yield f"{wheel.filename} is not the snapshot's best file of that release"
        elif known.yanked:
            yield f"{wheel.filename} was taken back"
        if not any(str(tag) in raw.tags(python) for tag in parse_wheel_filename(wheel.filename)[3]):
            yield f"{wheel.filename} does not fit CPython {python}"


def closure(plan, pins, python):
    """Every requirement of every pin is fulfilled, and every pin is required."""
    queue = []
    for choice in plan.choices:
        ways = raw.FRAMEWORKS[choice.framework]["way"]
        way = next(one for one in ways if one["variant"] in (choice.variant, "*"))
        queue += [("the request", raw.requirement(text)) for text in way["requires"]]
        if pins.get(raw.normal(queue[-len(way["requires"])][1].name)) != choice.version:
            yield f"{choice.framework} {choice.version} is told and not pinned"
    seen = set()
    while queue:
        parent, need = queue.pop()
        name = raw.normal(need.name)
        if name not in pins:
            yield f"{parent} needs {need}, which is not pinned"
            continue
        if not SpecifierSet(str(need.specifier)).contains(pins[name], prereleases=True):
            yield f"{parent} needs {need}, pinned is {pins[name]}"
        release = {one.version: one for one in raw.snapshot(name, python)}.get(pins[name])
        for extra in ("", *need.extras):
            if (name, extra) not in seen and release is not None:
                seen.add((name, extra))
                queue += [
                    (f"{name} {pins[name]}", one) for one in raw.asked_by(release, extra, python)
                ]
    for name in sorted(pins.keys() - {name for name, _ in seen}):
        yield f"{name} is pinned and nothing needs it"
