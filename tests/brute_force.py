"""The best combination of frameworks on a host, found without the solver, for the grid test.

Every release of every package is a candidate. A requirement is a set of candidates of another
package. A search narrows these sets until nothing changes, then takes one candidate after the
other, and goes back if a set becomes empty. It looks at all combinations before it answers that
there is none. The policy is the documented one: the first framework as new as possible, then the
second, and so on; among the builds of these versions, those without doubts.

As a script it runs the whole grid and prints the result:

    python tests/brute_force.py [PYTHON ...]
"""

import sys
from functools import cache

from packaging.specifiers import SpecifierSet
from packaging.version import Version

import raw_facts as raw

LIMIT = 50_000  # candidates tried in one search


class UndecidedError(Exception):
    """The search was given up: nothing is proved."""


class Way:
    """A release of a framework installed one way, such as jax 0.12.0 as jax[cuda12]."""

    __slots__ = ("carriers", "framework", "requires", "variant", "version")

    def __init__(self, framework, way, version):
        self.framework, self.variant, self.version = framework, str(way["variant"]), version
        self.carriers, self.requires = (
            way["carriers"],
            [raw.requirement(text) for text in way["requires"]],
        )


TOPICS = {
    "=CUDA major": ["11", "12", "13"],
    **{f"=owner of {folder}": sorted(name for name in raw.SLOTS if raw.SLOTS[name] == folder)
       for folder in raw.SLOTS.values()},
}  # fmt: skip


def bits(mask):
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Problem:
    """The candidates on one host: GPU, driver, interpreter. `strict` refuses doubts."""

    def __init__(self, device, driver, python, *, strict):
        self.device, self.driver, self.python, self.strict = device, driver, python, strict
        self.cuda, self.majors = raw.driver_cuda(driver), raw.majors_of(driver)
        self.users = {}
        self._asks = {}
        self._all = {}
        self._ways = {}
        self.tried = 0

    # ---- candidates

    def all(self, name):
        """The candidates of a name that the host admits."""
        if name not in self._all:
            self._all[name] = sum(1 << i for i in range(self._count(name)) if self._admits(name, i))
        return self._all[name]

    def _count(self, name):
        if name[0] == "@":
            return len(self.ways(name[1:]))
        return (
            len(TOPICS[name])
            if name[0] == "="
            else len(raw.snapshot(name.partition("[")[0], self.python))
        )

    def _admits(self, name, number):
        if name[0] == "=":
            return name != "=CUDA major" or TOPICS[name][number] in self.majors
        if name[0] == "@":
            return self._way_works(self.ways(name[1:])[number])
        release = raw.snapshot(name.partition("[")[0], self.python)[number]
        bad = raw.known_bad(release.name, release.version, self.device, self.cuda)
        if "broken" in bad or ("avoid" in bad and self.strict):
            return False
        return release.name not in raw.ON_PATH or self.runs(release.name, release.version)

    def runs(self, name, version):
        how = raw.serves(name, version, self.device, self.cuda)
        return how is not None and not (how == "unknown" and self.strict)

    def _way_works(self, way):
        if not all(self.runs(name, way.version) for name in way.carriers):
            return False
        first = way.requires[0]
        release = next(
            one
            for one in raw.snapshot(raw.normal(first.name), self.python)
            if one.version == way.version
        )
        if release.yanked:
            return False
        # An extra that a release does not have brings nothing: JAX is then without device code.
        missing = [extra for extra in first.extras if not _has_extra(release, extra)]
        return not missing or (not self.strict and first.name in way.carriers)

    def ways(self, framework):
        """Every release and variant with device code, in the order of the solver's policy.

        The newest; of one release what SASS serves, then PTX; then the toolkit closest to the
        driver's; then the order of the data file.
        """
        if framework not in self._ways:
            found = []
            for place, way in enumerate(raw.FRAMEWORKS[framework]["way"]):
                if not way["carriers"] or raw.PLATFORM not in way.get("platforms", [raw.PLATFORM]):
                    continue
                name = raw.normal(raw.requirement(way["requires"][0]).name)
                versions = [release.version for release in raw.snapshot(name, self.python)]
                found += [
                    (self._place(way["carriers"], version), place, way, version)
                    for version in versions
                ]
            found.sort(key=lambda row: row[:2])
            found.sort(key=lambda row: Version(row[3]), reverse=True)
            self._ways[framework] = [Way(framework, way, version) for _, _, way, version in found]
        return self._ways[framework]

    def _place(self, carriers, version):
        how = min(
            (raw.serves(name, version, self.device, self.cuda) for name in carriers),
            key=raw.RANK.__getitem__,
        )
        texts = [raw.rows(name).get(version, {}).get("cuda") for name in carriers]
        toolkit = next((raw.pair(text) for text in texts if text), None)
        if toolkit is None:
            return 3, 0, 0
        gap = (toolkit[0] - self.cuda[0]) * 100 + toolkit[1] - self.cuda[1]
        return (0 if how == "sass" else 1 if how == "ptx" else 2), abs(gap), gap

    # ---- what they ask for

    def asks(self, name, number):
        """What a candidate asks for: name -> the set of candidates that will do."""
        key = name, number
        if key not in self._asks:
            if name[0] == "@":
                found = together(self._needs_of_way(self.ways(name[1:])[number]))
            else:
                found = asks_of_release(name, number, self.python)
            for other in found:
                self.users.setdefault(other, set()).add(name)
            self._asks[key] = found
        return self._asks[key]

    def _needs_of_way(self, way):
        for place, requirement in enumerate(way.requires):
            pinned = f"=={way.version}" if place == 0 else str(requirement.specifier)
            yield from fits(requirement, pinned, self.python)
        for carrier in way.carriers:
            yield from topic("CUDA major", raw.cuda_major(carrier, way.version))

    # ---- the search

    def narrowed(self, chosen, changed):
        """`chosen` without impossible candidates: their requirements, or those of others, fail."""
        chosen, queue = dict(chosen), set(changed)
        while queue:
            name = queue.pop()
            kept, common = 0, None
            known = self._asks
            for number in bits(chosen[name]):
                asks = known.get((name, number)) or self.asks(name, number)
                if not self._can_have(asks, chosen):
                    continue
                kept |= 1 << number
                if common is None:
                    common = dict(asks)
                elif common:
                    common = {
                        other: mask | asks[other] for other, mask in common.items() if other in asks
                    }
            if not kept:
                return None
            if kept != chosen[name]:
                chosen[name] = kept
                queue |= self.users.get(name, set()) & chosen.keys()
            for other, mask in (common or {}).items():
                left = chosen.get(other, self.all(other)) & mask
                if chosen.get(other) != left:
                    chosen[other] = left
                    queue |= {other} | (self.users.get(other, set()) & chosen.keys())
        return chosen

    def _can_have(self, asks, chosen):
        known = self._all
        for other, mask in asks.items():
            left = chosen.get(other)
            if left is None:
                left = known[other] if other in known else self.all(other)
            if not left & mask:
                return False
        return True

    def search(self, chosen, changed):
        """One candidate for every name that is needed, or None: there is no such choice."""
        narrowed = self.narrowed(chosen, changed)
        if narrowed is None:
            return None
        open_names = [name for name, mask in narrowed.items() if mask & (mask - 1)]
        if not open_names:
            return narrowed
        name = min(open_names, key=lambda one: (narrowed[one].bit_count(), one))
        for number in bits(narrowed[name]):
            self.tried += 1
            if self.tried > LIMIT:
                raise UndecidedError(f"{self.device} {self.driver}: {name}")
            touched = {name} | (self.users.get(name, set()) & narrowed.keys())
            found = self.search({**narrowed, name: 1 << number}, touched)
            if found is not None:
                return found
        return None

    def best(self, frameworks, versions=()):
        """The best releases and variants by the policy, None if no combination works.

        With `versions`, one for each framework, only variants of these versions.
        """
        self.tried = 0
        if raw.dropped(self.device, self.driver) or raw.too_new(self.device, self.driver):
            return None
        names = [f"@{name}" for name in frameworks]
        chosen = {name: self.all(name) for name in names}
        for name, version in zip(names, versions, strict=False):
            ways = self.ways(name[1:])
            for number in bits(chosen[name]):
                if ways[number].version != version:
                    chosen[name] &= ~(1 << number)
        if not all(chosen.values()) or self.search(chosen, set(names)) is None:
            return None
        for name in names:
            for number in bits(chosen[name]):
                fixed = {**chosen, name: 1 << number}
                if self.search(fixed, set(names)) is not None:
                    chosen = fixed
                    break
        return [self.ways(name[1:])[next(bits(chosen[name]))] for name in names]


def together(needs):
    """name -> the candidates that meet all needs of that name."""
    found = {}
    for name, mask in needs:
        found[name] = found.get(name, -1) & mask
    return found


@cache
def asks_of_release(name, number, python):
    """What a release asks for, the same on every host with that interpreter."""
    return together(needs_of_release(name, number, python))


def needs_of_release(name, number, python):
    if name[0] == "=":
        return
    base, _, extra = name.rstrip("]").partition("[")
    release = raw.snapshot(base, python)[number]
    if extra:
        yield base, 1 << number
    else:
        yield from topic("CUDA major", raw.cuda_major(base, release.version))
        if base in raw.SLOTS:
            yield from topic(f"owner of {raw.SLOTS[base]}", base)
    for requirement in raw.asked_by(release, extra, python):
        yield from fits(requirement, cudnn_range(release, requirement), python)


def fits(requirement, specifier, python):
    name = raw.normal(requirement.name)
    mask = matching(name, specifier, python)
    yield name, mask
    for extra in requirement.extras:
        yield f"{name}[{raw.normal(extra)}]", mask


def topic(name, value):
    if value is not None:
        yield f"={name}", 1 << TOPICS[f"={name}"].index(value)


@cache
def _has_extra(release, extra):
    texts = [str(one.marker) for one in release.requires if one.marker is not None]
    return any(f'extra == "{extra}"' in text for text in texts)


@cache
def matching(name, specifier, python):
    """The candidates of a name in a range; yanked ones only if the range pins one."""
    releases, range_ = raw.snapshot(name, python), SpecifierSet(specifier)
    found = [i for i, one in enumerate(releases) if range_.contains(one.version, prereleases=True)]
    kept = [i for i in found if not releases[i].yanked]
    return sum(1 << i for i in kept or (found if specifier.startswith("==") else []))


def cudnn_range(release, requirement):
    """R4: a cuDNN range admits the major that the wheel was built with, and no older minor."""
    text, built = str(requirement.specifier), raw.built_cudnn(release.name, release.version)
    if not requirement.name.startswith("nvidia-cudnn-") or built is None or text.startswith("=="):
        return text
    return ",".join(filter(None, (text, f">={built[0]}.{built[1]}", f"<{built[0] + 1}")))


@cache
def problem(device, driver, python, *, strict):
    """The problem of a host, with what it has looked up for other sets of frameworks."""
    return Problem(device, driver, python, strict=strict)


def best(device, driver, python, frameworks):
    """(the best combination, whether it needs no doubt to pass); (None, False) if there is none."""
    newest = problem(device, driver, python, strict=False).best(frameworks)
    if newest is None:
        return None, False
    versions = [way.version for way in newest]
    sure = problem(device, driver, python, strict=True).best(frameworks, versions)
    return (newest, False) if sure is None else (sure, True)


def main(arguments):
    """Runs the grid and prints the counts, then each case that is not as it should be."""
    import grid

    pythons = [raw.pair(text) for text in arguments] or [(3, 12)]
    counts = {}
    for case in grid.cases(pythons):
        verdict, lines = grid.judged(*case)
        counts[verdict] = counts.get(verdict, 0) + 1
        if lines:
            print(verdict, *case)
            print(*(f"    {line}" for line in lines), sep="\n", flush=True)
    print(", ".join(f"{verdict}: {count}" for verdict, count in sorted(counts.items())))
    return 0 if counts.keys() <= {"solved", "refused"} else 1


if __name__ == "__main__":
    sys.path.insert(0, str(raw.DATA.parent / "resolver"))
    sys.exit(main(sys.argv[1:]))
