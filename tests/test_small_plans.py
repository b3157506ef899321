"""Plans and refusals of small made-up universes, word for word, on hosts with and without GPUs."""

import gpuenv
from gpuenv.compat import data
from gpuenv.compat.user_rows import NO_ROWS
from gpuenv.errors import NoSolutionError
from gpuenv.model import Request, show_pair
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve import solver
from tables import cases, data_file
from universe import Universe

CONTENT = data_file("small_plans.toml")
DATA = data.load()


def packages_of(case):
    """The packages of a case: a release that is a list has these requirements."""
    packages = {}
    for name, releases in case["packages"].items():
        packages[name] = {
            version: {"requires": release} if isinstance(release, list) else release
            for version, release in releases.items()
        }
    return packages


def data_of(case):
    """The shipped data, with the user's own rows that a case has."""
    return data.load(user_rows=NO_ROWS.replace(rows=case["rows"])) if "rows" in case else DATA


def request_of(case):
    return Request(
        frameworks=tuple(case.get("frameworks", ())),
        requirements=tuple(case.get("requires", ())),
        constraints=tuple(case.get("constraints", ())),
        no_build=tuple(case.get("no_build", ())),
        overrides=tuple(case.get("overrides", ())),
        no_binary=tuple(case.get("no_binary", ())),
        default_index_only=case.get("default_index_only", False),
        preferences=tuple(case.get("preferences", {}).items()),
        builds=tuple(case.get("builds", {}).items()),
        pre=case.get("pre", False),
        hashes=tuple((name, tuple(found)) for name, found in case.get("hashes", {}).items()),
    )


def answer(case):
    """The lines of a plan or of a refusal."""
    given = {"gpus": [], "python": "3.12", "platform": "linux-x86_64", "glibc": "2.28"}
    facts = {name: fact for name, fact in (given | case.get("host", {})).items() if fact != ""}
    try:
        plan = solver.solve(
            request_of(case),
            gpuenv.describe(**facts),
            data_of(case),
            Universe(packages_of(case)),
            TargetEnvironment,
            changes=case.get("changes", False),
        )
    except NoSolutionError as refusal:
        explanation = refusal.explanation
        lines = [f"no solution for {explanation.subject}"]
        lines += [f"reason {text(reason)}" for reason in explanation.reasons]
        return lines + [f"change {one.change}: {one.gives}" for one in explanation.changes]
    return list(plan_lines(plan, with_missing=case.get("with_missing", False)))


def plan_lines(plan, *, with_missing):
    """The lines of a plan. Builds without a wheel are left out, but for `with_missing`.

    A case without a range in its request would list newer releases of the data.
    """
    for pin in plan.pins:
        requires = f" requires {', '.join(pin.dependencies)}" if pin.dependencies else ""
        yield f"pin {pin.wheel.name} {pin.wheel.version}{requires}"
    for one in plan.choices:
        cuda = f", CUDA {show_pair(one.cuda)}" if one.cuda else ""
        cudnn = f", cuDNN {one.cudnn}" if one.cudnn else ""
        sass = f", sass {' '.join(one.sass)}" if one.sass else ""
        ptx = f", ptx {' '.join(one.ptx)}" if one.ptx else ""
        yield f"choice {one.framework} {one.version} {one.variant}{cuda}{cudnn}{sass}{ptx}"
    for variant in plan.variants:
        yield f"variant {variant.name} {variant.label}"
    if plan.host.gpus or plan.needs.glibc:
        yield f"needs {needs_text(plan.needs)}"
    for skipped in plan.skipped:
        for reason in skipped.reasons:
            if with_missing or reason.code not in ("no-wheel", "no-offline-file"):
                yield f"skipped {skipped.name} {skipped.version}: {text(reason)}"
    for warning in plan.warnings:
        yield f"warning {text(warning)}"


def needs_text(needs):
    devices = " ".join(map(show_pair, needs.compute_capabilities))
    cuda = show_pair(needs.cuda) if needs.cuda else "none"
    glibc = f", glibc {show_pair(needs.glibc)}" if needs.glibc else ""
    return f"driver {needs.driver or 'none'}, CUDA {cuda}, devices {devices or 'any'}{glibc}"


def text(reason):
    need = f"{reason.need}, for {reason.dependent}" if reason.dependent else reason.need
    return f"{reason.code} {reason.subject}: {need}; {reason.have}"


@cases(CONTENT["case"])
def test_an_answer_word_for_word(case):
    assert answer(case) == case["answer"].splitlines()
