"""Families of requirement sets over made-up universes, each with one difficulty.

Many are built around a hidden solution: the releases of the solution require nothing that another
release of the solution does not meet. A refusal of such a set is wrong by construction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from universe import BASE

HIGHEST = 200  # releases of one package


@dataclass(frozen=True, kw_only=True)
class RequirementSet:
    """A request on a universe.

    Attributes:
        first: packages that are decided first, as frameworks are.
        solution: a hidden solution: every pin, and possibly packages that nothing needs. None if
            none is known.
    """

    packages: dict
    requires: Sequence[str]
    constraints: Sequence[str] = ()
    first: Sequence[str] = ()
    solution: dict[str, str] | None = None


# ---- parts ---------------------------------------------------------------------------------------


def few(random, highest):
    """Return a number from 1 to `highest`; small ones are more frequent."""
    return int(highest ** random.random())


def numbered(count):
    """Return versions: 1.0, 2.0 and so on."""
    return [f"{number}.0" for number in range(1, count + 1)]


def range_with(random, version):
    """Return a random range that contains a version such as 5.0."""
    number = int(version.partition(".")[0])
    low, high = random.randint(1, number), number + random.randint(1, 3)
    ranges = ["", f">={low}", f"<{high}", f">={low},<{high}", f"=={version}", f"!={high}.0"]
    return random.choice(ranges)


def tight_range(random, version):
    """Return a narrow range that contains a version such as 5.0."""
    number = int(version.partition(".")[0])
    return random.choice([f"=={version}", f"<={number}.0", f">={number},<{number + 2}"])


def planted(random, counts, targets, most_needs=3):
    """Return a set with a hidden solution.

    Args:
        random: the source of chance.
        counts: how many releases each package has.
        targets: the places of the packages that a package may require.
        most_needs: how many requirements a release has at most.
    """
    names = [f"p{place}" for place in range(len(counts))]
    versions = [numbered(count) for count in counts]
    hidden = [some[few(random, len(some)) - 1] for some in versions]
    tightness = random.choice([0, 0.3, 0.6, 0.9])
    packages = {}
    for place, name in enumerate(names):
        others = targets(place)
        packages[name] = {}
        for version in versions[place]:
            needs = []
            for other in random.sample(others, min(len(others), random.randint(0, most_needs))):
                wanted = random.choice(versions[other])
                if version == hidden[place]:
                    wanted = hidden[other]
                make_range = tight_range if random.random() < tightness else range_with
                needs.append(names[other] + make_range(random, wanted))
            packages[name][version] = {"requires": needs}
    roots = {0, *random.sample(range(len(names)), min(len(names), random.randint(1, 4)))}
    requires = [names[place] + range_with(random, hidden[place]) for place in sorted(roots)]
    solution = dict(zip(names, hidden, strict=True))
    return RequirementSet(packages=packages, requires=requires, solution=solution)


# ---- by shape ------------------------------------------------------------------------------------


def chain(random):
    """Build a chain of up to 30 packages, each of which requires some of the next three."""
    depth = random.randint(2, 30)
    counts = [few(random, 20) for _ in range(depth)]
    return planted(random, counts, lambda place: range(place + 1, min(place + 4, depth)))


def wide(random):
    """Build up to 60 packages that require any later ones."""
    width = random.randint(2, 60)
    counts = [few(random, 40) for _ in range(width)]
    return planted(random, counts, lambda place: range(place + 1, width), random.randint(1, 6))


def many_releases(random):
    """Build few packages with up to 200 releases."""
    width = random.randint(2, 6)
    counts = [few(random, HIGHEST) for _ in range(width)]
    return planted(random, counts, lambda place: range(place + 1, width))


def circles(random):
    """Build packages that require each other in circles."""
    width = random.randint(2, 20)
    counts = [few(random, 12) for _ in range(width)]
    everyone = range(width)
    return planted(random, counts, lambda place: [one for one in everyone if one != place], 4)


def decided_first(random):
    """Build a planted set with packages that are decided first and never replaced."""
    made = random.choice([chain, wide, circles, shared])(random)
    names = sorted(made.packages)
    first = random.sample(names, random.randint(1, min(4, len(names))))
    return RequirementSet(
        packages=made.packages,
        requires=[*made.requires, *first],
        first=first,
        solution=made.solution,
    )


# ---- by conflict ---------------------------------------------------------------------------------


def dead_ends(random):
    """Build a package whose newest releases need what does not exist, some levels below."""
    count, depth = few(random, HIGHEST), random.randint(1, 4)
    extra = random.choice(["", "[x]"])
    marker = random.choice(["", "; extra == 'x'"]) if extra else ""
    missing = random.choice(["c>=2", "missing"])
    names = ["a", *(f"b{level}" for level in range(1, depth)), "c"]
    packages = {"a": {"1.0": {}}, "c": {"1.0": {}}}
    for level in range(1, depth):
        need = missing if level == depth - 1 else names[level + 1]
        packages[names[level]] = {
            version: {"requires": [need]} for version in numbered(random.choice([1, 1, 2, 9]))
        }
    first_need = missing if depth == 1 else names[1]
    for version in numbered(count + 1)[1:]:
        packages["a"][version] = {"requires": [f"{first_need}{marker}"]}
    requires = [f"a{extra}", *random.choice([[], ["c"], ["other"]])]
    packages["other"] = {version: {"requires": ["a"]} for version in numbered(few(random, 20))}
    solution = {"a": "1.0", "c": "1.0", "other": numbered(len(packages["other"]))[-1]}
    return RequirementSet(packages=packages, requires=requires, solution=solution)


def diamond(random):
    """Build packages whose releases divide the releases of one other package."""
    sides = random.randint(2, 4)
    limit = random.randint(2, 9)
    packages = {"c": {version: {} for version in numbered(10)}}
    names = [f"s{side}" for side in range(sides)]
    for side, name in enumerate(names):
        need = f"c<{limit}" if side % 2 else f"c>={limit}"
        count = few(random, 60 if sides == 2 else 20)
        packages[name] = {version: {"requires": [need]} for version in numbered(count)}
    requires = list(names)
    if random.random() < 0.5:
        return RequirementSet(packages=packages, requires=requires)
    for name in names:
        packages[name]["0.5"] = {"requires": random.choice([[], ["c"], ["c>=1"]])}
    return RequirementSet(packages=packages, requires=requires)


def triple(random):
    """Build three packages of which any two, but not all three, fit together."""
    leaf = {"d": {version: {} for version in numbered(3)}}
    names = ["a", "b", "c"]
    needs = ["d!=1.0", "d!=2.0", "d!=3.0"]
    for name, need in zip(names, needs, strict=True):
        count = few(random, 12)
        leaf[name] = {version: {"requires": [need]} for version in numbered(count)}
        if random.random() < 0.6:
            leaf[name]["0.1"] = {}
    requires = random.sample(names, 3)
    if random.random() < 0.5:
        leaf["top"] = {"1.0": {"requires": requires}, "0.1": {"requires": requires[1:]}}
        requires = ["top"]
    return RequirementSet(packages=leaf, requires=requires)


def lockstep(random):
    """Build a circle whose releases must all be of one number; few numbers close the circle."""
    length, count = random.randint(2, 8), few(random, 30)
    names = [f"p{place}" for place in range(length)]
    closing = random.choice([None, random.randint(1, count)])
    packages = {}
    for place, name in enumerate(names):
        following = names[(place + 1) % length]
        packages[name] = {}
        for number in range(1, count + 1):
            wanted = number
            if place == length - 1 and number != closing:
                wanted = number + 1
            packages[name][f"{number}.0"] = {"requires": [f"{following}=={wanted}.0"]}
    solution = None
    if closing is not None:
        solution = dict.fromkeys(names, f"{closing}.0")
    return RequirementSet(packages=packages, requires=[names[0]], solution=solution)


def shared(random):
    """Build many packages that all limit a few shared ones."""
    users, common = random.randint(2, 12), random.randint(1, 4)
    counts = [few(random, 15) for _ in range(users)] + [few(random, 40) for _ in range(common)]
    made = planted(
        random, counts, lambda place: range(users, users + common) if place < users else (), common
    )
    requires = [f"p{place}" for place in range(users)]
    return RequirementSet(packages=made.packages, requires=requires, solution=made.solution)


def back_and_forth(random):
    """Build packages whose newest releases exclude the newest of those that were pinned before."""
    width, count = random.randint(2, 8), random.randint(2, 12)
    names = [f"p{place}" for place in range(width)]
    packages = {name: {"1.0": {}} for name in names}
    for place, name in enumerate(names):
        for number in range(2, count + 1):
            other = names[(place + random.randint(1, width - 1)) % width]
            limit = random.choice([f"<{number}", f"<={number}", f"=={number - 1}.0"])
            packages[name][f"{number}.0"] = {"requires": [other + limit]}
    requires = random.sample(names, random.randint(1, width))
    return RequirementSet(
        packages=packages, requires=requires, solution=dict.fromkeys(names, "1.0")
    )


def given_up(random):
    """Build packages that limit others, and packages decided later that exclude these limits."""
    early, limited, late = (range(random.randint(1, 4)) for _ in range(3))
    with_extra = ["", "[x]"]
    limits = ["<2", "==1.0", "==2.0", ">=2,<3", "==3.0b1", "!=3.0", ">=2"]
    packages = {}
    for place in limited:
        packages[f"c{place}"] = {}
        for version in ["1.0", "2.0", "3.0b1", "3.0"]:
            needs = random.choice([[], [], [], ["missing"], ["missing; extra == 'x'"]])
            release = {"requires": needs, "yanked": random.random() < 0.2}
            packages[f"c{place}"][version] = release
    for place in early:
        packages[f"a{place}"] = {}
        for version in numbered(3):
            need = f"c{random.choice(limited)}{random.choice(with_extra)}{random.choice(limits)}"
            packages[f"a{place}"][version] = {"requires": [need][: random.randint(0, 1)]}
    for place in late:
        needs = [f"a{random.choice(early)}<{random.randint(2, 3)}"]
        packages[f"z{place}"] = {"1.0": {"requires": needs}}
        user = f"c{random.choice(limited)}{random.choice(with_extra)}"
        packages[f"b{place}"] = {
            version: {"requires": [user][: random.randint(0, 1)]} for version in numbered(2)
        }
    requires = [name for name in packages if name[0] != "c" or random.random() < 0.2]
    return RequirementSet(packages=packages, requires=requires)


def coloring(random):
    """Build a graph to color with three colors: every release excludes its color for neighbors."""
    nodes = random.randint(4, 24)
    names = [f"p{place}" for place in range(nodes)]
    colors = {name: random.choice("123") for name in names}
    is_planted = random.random() < 0.6
    needs = {name: [] for name in names}
    for _ in range(int(nodes * random.uniform(1.5, 2.6))):
        one, other = random.sample(names, 2)
        if not is_planted or colors[one] != colors[other]:
            needs[one].append(other)
    packages = {}
    for name in names:
        packages[name] = {
            f"{color}.0": {"requires": [f"{other}!={color}.0" for other in needs[name]]}
            for color in "123"
        }
    solution = None
    if is_planted:
        solution = {name: f"{color}.0" for name, color in colors.items()}
    return RequirementSet(packages=packages, requires=names, solution=solution)


def pigeonholes(random):
    """Build n packages that each take one of n or n - 1 places, a place for one only."""
    pigeons = random.randint(2, 5)
    holes = pigeons - random.choice([0, 1])
    packages = {f"hole{hole}": {} for hole in range(holes)}
    for hole in range(holes):
        packages[f"hole{hole}"] = {version: {} for version in numbered(pigeons)}
    for pigeon in range(pigeons):
        packages[f"pigeon{pigeon}"] = {
            f"{hole + 1}.0": {"requires": [f"hole{hole}=={pigeon + 1}.0"]} for hole in range(holes)
        }
    requires = [f"pigeon{pigeon}" for pigeon in range(pigeons)]
    return RequirementSet(packages=packages, requires=requires)


# ---- by feature ----------------------------------------------------------------------------------

RANGES = [
    "",
    "",
    "",
    ">=2",
    "<2",
    "<3",
    "==1.0",
    "==2.0",
    "!=2.0",
    ">=2,<4",
    "==2.*",
    "~=1.0",
    ">3",
]
MARKERS = [
    "; python_version < '3'",
    "; python_version >= '3.9'",
    "; sys_platform == 'linux'",
    "; sys_platform == 'win32'",
    "; extra == 'x'",
    "; extra == 'y'",
    "; extra == 'x' and python_version >= '3.9'",
]


def free(
    random,
    *,
    names="abcd",
    versions=("1.0", "2.0", "3.0"),
    ranges=RANGES,
    extras=("",),
    markers=("",),
    yanked=0,
    itself=False,
):
    """Return a small set without a plan. A complete search decides whether it has a solution."""
    packages = {}
    for name in names:
        others = names if itself else names.replace(name, "")
        packages[name] = {}
        for version in sorted(random.sample(list(versions), random.randint(1, len(versions)))):
            needs = []
            for _ in range(random.choice([0, 0, 1, 1, 2, 3])):
                need = random.choice(others) + random.choice(extras) + random.choice(ranges)
                needs.append(need + random.choice(markers))
            packages[name][version] = {"requires": needs}
            if random.random() < yanked:
                packages[name][version]["yanked"] = True
    requires = [
        random.choice(names) + random.choice(extras) + random.choice(ranges)
        for _ in range(random.randint(1, 3))
    ]
    return RequirementSet(packages=packages, requires=requires)


def plain(random):
    """Build a small set of plain requirements."""
    return free(random, names="abcdef"[: random.randint(2, 6)], versions=numbered(4))


def extras(random):
    """Build packages with extras that require each other, and that some releases lack."""
    return free(
        random, extras=["", "[x]", "[y]", "[x,y]"], markers=["", "; extra == 'x'", "; extra == 'y'"]
    )


def itself(random):
    """Build packages that require themselves, with other extras or in other versions."""
    return free(
        random,
        names="abc",
        extras=["", "[x]", "[y]", "[x,y]"],
        markers=["", "; extra == 'x'", "; extra == 'y'"],
        itself=True,
    )


def markers(random):
    """Build requirements with markers, and releases for another Python."""
    made = free(random, extras=["", "[x]", "[y]"], markers=["", *MARKERS])
    for releases in made.packages.values():
        for release in releases.values():
            if random.random() < 0.15:
                release["python"] = random.choice([">=3.13", "<3.12", ">=3.9"])
    return made


def admission(random):
    """Build pre-releases and yanked releases, and requirements that admit them."""
    ranges = [*RANGES, ">=2.0a1", "==3.0b1", ">=3.0b1", "<=3.0b1", "==2.0a1"]
    versions = ["1.0", "2.0a1", "2.0", "3.0b1", "3.0"]
    return free(random, names="abc", versions=versions, ranges=ranges, yanked=0.2)


def constraints(random):
    """Build a small set with constraints of the user."""
    made = free(random, extras=["", "", "[x]"], markers=["", "", "; extra == 'x'"])
    limits = [
        random.choice("abcd") + random.choice(["<3", ">=2", "!=3.0", "==1.0", "<=2.0"])
        for _ in range(random.randint(1, 3))
    ]
    return RequirementSet(packages=made.packages, requires=made.requires, constraints=limits)


def urls(random):
    """Build requirements on the file at a URL beside ranges."""
    at_url = [f" @ {BASE}b-{version}-py3-none-any.whl" for version in numbered(3)]
    made = free(random)
    made.packages["b"] = {version: made.packages["b"].get(version, {}) for version in numbered(3)}
    for name, releases in made.packages.items():
        for release in releases.values():
            if name != "b" and random.random() < 0.3:
                release["requires"] = [*release["requires"], "b" + random.choice(at_url)]
    requires = list(made.requires)
    if random.random() < 0.3:
        requires.append("b" + random.choice(at_url))
    return RequirementSet(packages=made.packages, requires=requires)


def everything(random):
    """Build a small set with extras, markers, pre-releases, yanked releases and constraints."""
    made = free(
        random,
        names="abcde"[: random.randint(2, 5)],
        versions=["1.0", "1.1", "2.0", "2.1a1", "3.0"],
        ranges=[*RANGES, ">=2.1a1"],
        extras=["", "", "[x]", "[x,y]"],
        markers=["", "", *MARKERS],
        yanked=0.1,
        itself=True,
    )
    limits = random.choice([[], ["a<3"], ["b>=1.1", "a!=2.0"]])
    first = random.sample(sorted(made.packages), random.choice([0, 0, 1, 2]))
    requires = [*made.requires, *first]
    return RequirementSet(
        packages=made.packages, requires=requires, constraints=limits, first=first
    )


GENERATORS = (
    chain,
    wide,
    many_releases,
    circles,
    decided_first,
    dead_ends,
    diamond,
    triple,
    lockstep,
    shared,
    back_and_forth,
    given_up,
    coloring,
    pigeonholes,
    plain,
    extras,
    itself,
    markers,
    admission,
    constraints,
    urls,
    everything,
)


FAMILIES = {generator.__name__: generator for generator in GENERATORS}


def requirement_set(family, seed, number):
    """Return a set of a family; the same seed and number give the same set."""
    return FAMILIES[family](Random(f"{family} {seed} {number}"))  # noqa: S311  no secret
