"""Record and replay the regression corpus: requests to the command line, and the results of each.

    python scripts/tools.py prove corpus record [--code DIR] [--only GLOB]
    python scripts/tools.py prove corpus replay [--code DIR] [--only GLOB] [--sample] [--wording]

`tests/data/corpus/cases.toml` holds the requests. `record` runs them and writes the results:
`results.jsonl` (one line a case) and `files.json.xz` (the text of each written file, by its
sha256). `replay` runs them again and compares. DIR is the checkout whose code runs; the default is
the checkout of this script.

The script uses two things of gpuenv only: `gpuenv.cli.main(argv)` and environment variables. Each
case runs in a process of its own, which is forked, in a new folder, with fixed environment
variables, without a network, and without the cache of earlier answers. pip's default index is
replaced by a made-up one before gpuenv asks for it. Names of folders become placeholders, and so do
the digests in conda locks that depend on the folder of the channel.

What is compared:
    - the exit status and the bytes of each written file: exactly;
    - the JSON document: its structure and its values exactly, but sentences by their facts;
    - stdout and stderr: by their facts, or exactly if the case has `exact = true`.
The facts of a text are the words that hold a digit (versions, sm_90, file names) and the names in
quotation marks, in any order. A text with the same facts and other words is a difference of
wording: it is counted, and listed with --wording.

`tests/data/corpus/intended.toml` may name differences that are intended:
    [[intended]]
    case = "solve/torch/*"           # of case names; the default is all
    field = "json/skipped/*/have"    # of field names; the default is all
    why = "One sentence."
Intended differences are listed and do not fail. A full replay fails if an entry matches nothing.

Exit status: 0 no difference, 1 a difference, 2 the corpus or the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import lzma
import os
import platform
import re
import shlex
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from common import ROOT

DATA = ROOT / "tests" / "data"
CORPUS = DATA / "corpus"
INDEX_URL, FILE_HOST = "https://index.example/", "files.example"
TIMEOUT = 120  # seconds for one case
CRASHED = 99  # exit status of a case that raised an exception
SAMPLE_STEP = 32
SUBDIRS = ("linux-64", "noarch")
TIMESTAMP = 1_700_000_000_000  # of every conda package of the channel
# Keys of the JSON documents whose values are sentences for people.
SENTENCES = frozenset(
    [
        *("change", "detail", "evidence", "fix", "gives", "have", "hint", "message"),
        *("narrowed", "need", "sources", "text", "warnings"),
    ]
)
# Digests in conda locks that are computed over URLs, and so over the folder of the channel.
URL_DIGEST = re.compile(r"((?:content\\?\": \\?\"|linux-64: ))[0-9a-f]{64}")

Case = dict[str, Any]
Result = dict[str, Any]


class CorpusError(Exception):
    """The corpus or the arguments cannot be used."""


class Difference(NamedTuple):
    """One difference between the recorded and the new result of a case."""

    field: str
    recorded: str
    new: str
    wording: bool = False


# ---- the files of the corpus ------------------------------------------------------------------


class Corpus:
    """The cases, and the recorded results with the texts of the written files."""

    def __init__(self, folder: Path = CORPUS) -> None:
        self.folder = folder
        tables = tomllib.loads((folder / "cases.toml").read_text(encoding="utf-8"))
        self.cases: list[Case] = tables["case"]
        self.inputs: dict[str, str] = tables.get("inputs", {})
        self.results: dict[str, Result] = {}
        self.texts: dict[str, str] = {}
        names = Counter(case["name"] for case in self.cases)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise CorpusError(f"cases.toml names a case twice: {', '.join(twice)}")

    def load(self) -> None:
        """Read the recorded results."""
        path = self.folder / "results.jsonl"
        if not path.exists():
            raise CorpusError(f"{path.name} does not exist: run `corpus.py record` first")
        for line in path.read_text(encoding="utf-8").splitlines():
            result = json.loads(line)
            self.results[result["name"]] = result
        with lzma.open(self.folder / "files.json.xz", "rt", encoding="utf-8") as file:
            self.texts = json.load(file)

    def save(self) -> None:
        """Write the results in the order of the cases, with the texts that they refer to."""
        results = [self.results[case["name"]] for case in self.cases]
        lines = [json.dumps(result, ensure_ascii=True) for result in results]
        (self.folder / "results.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
        used = {digest for result in results for digest in result["files"].values()}
        texts = {digest: self.texts[digest] for digest in sorted(used)}
        data = json.dumps(texts, indent=0).encode()
        (self.folder / "files.json.xz").write_bytes(lzma.compress(data, preset=9))

    def text_of(self, reference: str) -> str:
        """Return the text of a written file, named as `case name:file name`."""
        name, _, file = reference.rpartition(":")
        try:
            return self.texts[self.results[name]["files"][file]]
        except KeyError:
            raise CorpusError(f"no recorded file {reference}") from None


def chosen(cases: Sequence[Case], only: str | None, sampled: bool) -> list[Case]:
    """Return the cases of a pattern, or the sample.

    The sample is, of each kind (the name up to the first slash), the first case and every
    thirty-second one after it, in the order of the file.
    """
    if only is not None:
        cases = [case for case in cases if fnmatchcase(case["name"], only)]
    if sampled:
        seen: Counter[str] = Counter()
        kept = []
        for case in cases:
            kind = kind_of(case["name"])
            if seen[kind] % SAMPLE_STEP == 0:
                kept.append(case)
            seen[kind] += 1
        cases = kept
    return list(cases)


def kind_of(name: str) -> str:
    """Return the part of a case's name that says what it is about."""
    return name.partition("/")[0]


# ---- running a case ---------------------------------------------------------------------------


def prepare(code: Path) -> tuple[Callable[[Sequence[str]], int], tuple[str, str]]:
    """Import the code under test. Return its command line, and the hosts of pip's real index.

    Raises:
        CorpusError: if another gpuenv than that of `code` is imported.
    """
    os.environ.clear()  # settings of this machine must not take part, not even at import
    os.environ.update(environment(Path("/nowhere"), code))
    sys.path.insert(0, str(code / "resolver"))
    import gpuenv
    import gpuenv.cli

    if not Path(gpuenv.__file__).resolve().is_relative_to(code.resolve()):
        raise CorpusError(f"gpuenv was imported from {gpuenv.__file__}, not from {code}")
    # Imported here once, not in every child.
    import packaging.requirements  # noqa: F401
    import requests  # noqa: F401
    import resolvelib  # noqa: F401
    import rich  # noqa: F401

    return gpuenv.cli.main, use_made_up_index()


def use_made_up_index() -> tuple[str, str]:
    """Replace pip's built-in index, which gpuenv reads. Return the hosts of the real one."""
    from gpuenv.index import default_index

    url, files = default_index.builtin_index()
    default_index.builtin_index = lambda: (f"{INDEX_URL}simple", f"https://{FILE_HOST}")
    return urlsplit(url).netloc, urlsplit(files).netloc


def environment(folder: Path, code: Path) -> dict[str, str]:
    """Return all environment variables of a case."""
    proxy = "http://127.0.0.1:9"
    return {
        "COLUMNS": "100",
        "GPUENV_CACHE_DIR": str(folder / "cache"),
        "GPUENV_NO_MEMO": "1",
        "HOME": str(folder / "home"),
        "HTTP_PROXY": proxy,
        "HTTPS_PROXY": proxy,
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "PATH": str(folder / "bin"),
        "PIP_CONFIG_FILE": os.devnull,
        "PYTHONPATH": str(code / "resolver"),
        "RATTLER_CACHE_DIR": str(folder / "rattler"),
        "TZ": "UTC",
        "UV_NO_CONFIG": "1",
    }


def run_case(
    case: Case, corpus: Corpus, main: Callable[[Sequence[str]], int], code: Path
) -> tuple[Result, dict[str, str]]:
    """Run one case, and return its result and the texts of the written files by their sha256."""
    with tempfile.TemporaryDirectory(prefix="gpuenv-corpus-") as name:
        folder = Path(name).resolve()
        for part in ("work", "home", "bin"):
            (folder / part).mkdir()
        if "channel" in case:
            write_channel(folder / "channel", case["channel"])
        inputs = input_files(case, corpus, folder)
        for path, text in inputs.items():
            place = folder / "work" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode())
        words = shlex.split(case["run"]) if isinstance(case["run"], str) else case["run"]
        status = in_child(words, main, folder, code)
        clean = placeholders(folder, code)
        out = (folder / "out").read_bytes().decode("utf-8", "replace")
        err = (folder / "err").read_bytes().decode("utf-8", "replace")
        texts = {}
        files = {}
        for path, content in written(folder / "work", inputs).items():
            text = clean(content)
            if "channel" in case:
                text = URL_DIGEST.sub(r"\1<DIGEST>", text)
            digest = hashlib.sha256(text.encode()).hexdigest()
            files[path], texts[digest] = digest, text
    result: Result = {"name": case["name"], "status": status}
    document = json_document(clean(out)) if "--json" in words else None
    if document is not None:
        result["json"] = document[0]
    else:
        result["stdout"] = clean(out).splitlines()
    result["stderr"] = clean(err).splitlines()
    result["files"] = files
    return result, texts


def input_files(case: Case, corpus: Corpus, folder: Path) -> dict[str, str]:
    """Return the files that the case starts with.

    `files` maps a path to a text, `inputs` a path to the name of a text that several cases use,
    `locks` a path to a file that another case wrote. `edit` is [path, old, new].
    """
    texts = dict(case.get("files", {}))
    for path, name in case.get("inputs", {}).items():
        texts[path] = corpus.inputs[name]
    for path, reference in case.get("locks", {}).items():
        texts[path] = corpus.text_of(reference).replace("<DIR>", str(folder))
    if "edit" in case:
        path, old, new = case["edit"]
        if old not in texts[path]:
            raise CorpusError(f"{case['name']}: {path} does not contain {old!r}")
        texts[path] = texts[path].replace(old, new, 1)
    return texts


def in_child(
    words: Sequence[str], main: Callable[[Sequence[str]], int], folder: Path, code: Path
) -> int:
    """Run the command line in a forked process, and return its exit status."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = CRASHED
        try:
            signal.alarm(TIMEOUT)
            for number, name in ((0, os.devnull), (1, folder / "out"), (2, folder / "err")):
                opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT)
                os.dup2(opened, number)
                os.close(opened)
            os.environ.clear()
            os.environ.update(environment(folder, code))
            time.tzset()
            os.chdir(folder / "work")
            sys.argv = ["gpuenv", *words]
            try:
                status = main(list(words))
            except SystemExit as stop:
                status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def placeholders(folder: Path, code: Path) -> Callable[[str], str]:
    """Return a function that replaces the names of folders of this machine."""
    names = {str(folder): "<DIR>", str(code.resolve()): "<CODE>"}
    names.update({sys.executable: "<PYTHON>", sys.prefix: "<PREFIX>"})
    order = sorted(names, key=len, reverse=True)

    def clean(text: str) -> str:
        for name in order:
            text = text.replace(name, names[name])
        return text

    return clean


def written(work: Path, inputs: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of the files that were written, changed or deleted."""
    texts = {}
    for path in sorted(path for path in work.rglob("*") if path.is_file()):
        name = str(path.relative_to(work))
        text = path.read_bytes().decode("utf-8", "backslashreplace")
        if inputs.get(name) != text:
            texts[name] = text
    texts.update({name: "<deleted>" for name in inputs if not (work / name).is_file()})
    return texts


def json_document(text: str) -> tuple[Any] | None:
    """Return the JSON document of a text in a tuple; None if the text is not one document."""
    try:
        return (json.loads(text),)
    except ValueError:
        return None


def write_channel(folder: Path, names: Sequence[str]) -> None:
    """Write the index of a conda channel from files of records. A solve needs no packages."""
    rows = [row for name in names for row in json.loads((DATA / name).read_text())["records"]]
    for subdir in SUBDIRS:
        packages = {}
        for row in rows:
            file = f"{row['name']}-{row['version']}-{row['build']}.conda"
            md5 = hashlib.md5(file.encode(), usedforsecurity=False).hexdigest()
            made_up = {"sha256": hashlib.sha256(file.encode()).hexdigest(), "md5": md5}
            made_up |= {"size": 1000 + len(file), "timestamp": TIMESTAMP}
            if row["subdir"] == subdir:
                packages[file] = {**row, **made_up}
        about = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": packages}
        (folder / subdir).mkdir(parents=True)
        (folder / subdir / "repodata.json").write_text(json.dumps({**about, "repodata_version": 1}))


# ---- comparison -------------------------------------------------------------------------------

INDEX_DATE = "index data of "  # the line changes with every snapshot
_WORD = re.compile(r"[^\s<>=!~,;()\[\]{}'\"`|*]+")
_QUOTED = re.compile(
    r"(?:(?<=[\s(\[=:])|^)(['\"`])([^'\"`\n]{1,80})\1(?=[\s.,;:)\]?!]|$)", re.MULTILINE
)


def facts(text: str) -> Counter[str]:
    """Return the words of a text that hold a digit, and the names in quotation marks."""
    words = (word.strip(".:/-") for word in _WORD.findall(text))
    words_with_digits = Counter(
        word for word in words if any(character.isdigit() for character in word)
    )
    words_with_digits.update(f"'{match[2]}'" for match in _QUOTED.finditer(text))
    return words_with_digits


def compare(
    recorded: Result, new: Result, texts: Mapping[str, str], exact: bool
) -> list[Difference]:
    """Return the differences between two results of a case. `texts` has their written files."""
    differences = []
    if recorded["status"] != new["status"]:
        differences.append(Difference("status", str(recorded["status"]), str(new["status"])))
    if "json" in recorded and "json" in new:
        differences += compare_values(recorded["json"], new["json"], "json", sentence=False)
    elif "json" in recorded or "json" in new:
        shown = [json.dumps(result.get("json", result.get("stdout"))) for result in (recorded, new)]
        differences.append(Difference("json", *shown))
    else:
        differences += compare_text(recorded["stdout"], new["stdout"], "stdout", exact)
    differences += compare_text(recorded["stderr"], new["stderr"], "stderr", exact=False)
    for name in sorted({*recorded["files"], *new["files"]}):
        before, after = recorded["files"].get(name), new["files"].get(name)
        if before is None or after is None:
            states = ["not written" if digest is None else "written" for digest in (before, after)]
            differences.append(Difference(f"files/{name}", *states))
        elif before != after:
            differences += compare_files(texts[before], texts[after], f"files/{name}")
    return differences


def compare_text(
    recorded: Sequence[str], new: Sequence[str], field: str, exact: bool
) -> Iterator[Difference]:
    """Yield the difference between two texts, given by their lines, if there is one."""
    recorded, new = (
        [line for line in lines if not line.startswith(INDEX_DATE)] for lines in (recorded, new)
    )
    if recorded == new:
        return
    before, after = "\n".join(recorded), "\n".join(new)
    wording = not exact and facts(before) == facts(after)
    yield Difference(field, before, after, wording)


def compare_values(recorded: Any, new: Any, field: str, sentence: bool) -> Iterator[Difference]:
    """Yield the differences between two JSON values. `sentence`: a key of SENTENCES is above."""
    if isinstance(recorded, dict) and isinstance(new, dict):
        for key in sorted({*recorded, *new}):
            place = f"{field}/{key}"
            if key not in recorded:
                yield Difference(place, "no such key", json.dumps(new[key]))
            elif key not in new:
                yield Difference(place, json.dumps(recorded[key]), "no such key")
            else:
                inner = sentence or key in SENTENCES
                yield from compare_values(recorded[key], new[key], place, inner)
    elif isinstance(recorded, list) and isinstance(new, list):
        if len(recorded) == len(new):
            for number, pair in enumerate(zip(recorded, new, strict=True)):
                yield from compare_values(*pair, f"{field}/{number}", sentence)
        else:
            yield Difference(field, _lines(recorded), _lines(new))
    elif type(recorded) is not type(new) or recorded != new:
        texts = isinstance(recorded, str) and isinstance(new, str)
        free = sentence and texts and (" " in recorded or " " in new)
        if free:
            yield from compare_text([recorded], [new], field, exact=False)
        else:
            yield Difference(field, json.dumps(recorded), json.dumps(new))


def _lines(values: Sequence[Any]) -> str:
    return "\n".join(json.dumps(value) for value in values)


def compare_files(recorded: str, new: str, field: str) -> list[Difference]:
    """Return the differences between two written files: one for each key whose lines differ.

    A key is what is before `=` or `:` in a line. Long lines are split first, so that a difference
    in the one line of JSON of a conda lock is told by its key, too.
    """
    by_key: dict[str, tuple[list[str], list[str]]] = {}
    changes = difflib.unified_diff(_split(recorded), _split(new), n=0, lineterm="")
    for line in changes:
        if line.startswith(("---", "+++", "@@")):
            continue
        match = re.match(r"[\s#{\\\"-]*([\w.-]+)[\\\"]*\s*[=:]", line[1:])
        removed, added = by_key.setdefault(match[1] if match else "text", ([], []))
        (removed if line[0] == "-" else added).append(line[1:])
    if not by_key:  # the files differ only in the ends of lines
        by_key["text"] = ([repr(recorded[-80:])], [repr(new[-80:])])
    return [
        Difference(f"{field}/{key}", "\n".join(removed), "\n".join(added))
        for key, (removed, added) in by_key.items()
    ]


def _split(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        lines += re.split(r"(?<=,) (?=\\?\")", line) if len(line) > 300 else [line]
    return lines


class Intended:
    """The intended differences, and which of them were met."""

    def __init__(self, path: Path) -> None:
        self.entries: list[dict[str, str]] = []
        if path.exists():
            self.entries = tomllib.loads(path.read_text(encoding="utf-8")).get("intended", [])
        for entry in self.entries:
            unknown = set(entry) - {"case", "field", "why"}
            if unknown or not entry.get("why") or len(entry) < 2:
                raise CorpusError(f"{path.name}: needs `why`, and `case` or `field`: {entry}")
        self.counts = [0] * len(self.entries)

    def match(self, name: str, field: str) -> str | None:
        """Return why a difference is intended; None if it is not."""
        reason = None
        for number, entry in enumerate(self.entries):
            in_case = fnmatchcase(name, entry.get("case", "*"))
            if in_case and fnmatchcase(field, entry.get("field", "*")):
                self.counts[number] += 1
                reason = reason or entry["why"]
        return reason

    def unused(self) -> list[dict[str, str]]:
        """Return the entries that match nothing."""
        pairs = zip(self.entries, self.counts, strict=True)
        return [entry for entry, count in pairs if not count]


# ---- commands ---------------------------------------------------------------------------------


def record(
    corpus: Corpus,
    main: Callable[[Sequence[str]], int],
    code: Path,
    only: str | None,
    secret: Sequence[str],
) -> int:
    """Run the cases and keep their results.

    Raises:
        CorpusError: if a case crashes, or if a result names a host of `secret` or something of
            this machine.
    """
    if only is not None:
        corpus.load()
    machine = ("<PYTHON>", "<PREFIX>", tempfile.gettempdir() + "/gpuenv", platform.python_version())
    for case in chosen(corpus.cases, only, sampled=False):
        result, texts = run_case(case, corpus, main, code)
        for text in (json.dumps(result), *texts.values()):
            named = [word for word in (*secret, *machine) if word in text]
            if named:
                raise CorpusError(f"{case['name']}: the result names {', '.join(named)}")
        if result["status"] == CRASHED or result["status"] < 0:
            raise CorpusError(f"{case['name']} crashed:\n" + "\n".join(result["stderr"]))
        corpus.results[case["name"]] = result
        corpus.texts.update(texts)
    corpus.save()
    print(f"{len(corpus.cases)} cases recorded")
    return 0


def replay(
    corpus: Corpus, main: Callable[[Sequence[str]], int], code: Path, arguments: argparse.Namespace
) -> int:
    """Run the cases, compare their results with the recorded ones, and print the differences."""
    corpus.load()
    intended = Intended(corpus.folder / "intended.toml")
    started = time.monotonic()
    cases = chosen(corpus.cases, arguments.only, arguments.sample)
    if not cases:
        raise CorpusError(f"no case is named {arguments.only}")
    counts: Counter[str] = Counter()
    for case in cases:
        name = case["name"]
        if name not in corpus.results:
            raise CorpusError(f"{name} has no recorded result: `corpus.py record --only {name}`")
        result, texts = run_case(case, corpus, main, code)
        every = {**corpus.texts, **texts}
        differences = compare(corpus.results[name], result, every, case.get("exact", False))
        failed = False
        for difference in differences:
            why = intended.match(name, difference.field)
            if why is not None:
                counts["intended"] += 1
                print(f"intended: {name} {difference.field}: {why}")
            elif difference.wording:
                counts["wording"] += 1
                if arguments.wording:
                    show("wording", name, difference)
            else:
                counts["different"] += 1
                failed = True
                show("DIFFERENT", name, difference)
        counts["failed"] += failed
    unused = intended.unused() if len(cases) == len(corpus.cases) else []
    for entry in unused:
        print(f"UNUSED: no difference matches this entry of intended.toml: {json.dumps(entry)}")
    print(
        f"{len(cases)} cases in {time.monotonic() - started:.0f} s: "
        f"{counts['different']} differences in {counts['failed']} cases, "
        f"{counts['intended']} intended, {counts['wording']} of wording only, "
        f"{len(unused)} unused entries of intended.toml"
    )
    return 1 if counts["different"] or unused else 0


def show(label: str, name: str, difference: Difference) -> None:
    """Print one difference: facts that are missing or new, then the changed lines."""
    print(f"{label}: {name} {difference.field}")
    if not difference.wording:
        before, after = facts(difference.recorded), facts(difference.new)
        for sign, words in (("missing", before - after), ("new", after - before)):
            if words:
                print(f"    {sign} facts: {' '.join(sorted(words.elements()))}")
    lines = difflib.ndiff(difference.recorded.splitlines(), difference.new.splitlines())
    for line in lines:
        if line[0] in "-+":
            print(f"    {line}")


def main(words: list[str]) -> int:
    """Run `record` or `replay`."""
    parser = argparse.ArgumentParser(description="record or replay the regression corpus")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("record", "replay"):
        command = commands.add_parser(name)
        command.add_argument("--code", type=Path, default=ROOT, help="the checkout whose code runs")
        command.add_argument("--corpus", type=Path, default=CORPUS, help="the folder of the corpus")
        command.add_argument("--only", metavar="GLOB", help="only the cases with such a name")
        if name == "replay":
            command.add_argument("--sample", action="store_true", help="only a sample of each kind")
            command.add_argument("--wording", action="store_true", help="list changes of wording")
    arguments = parser.parse_args(words)
    try:
        code = arguments.code.resolve()
        corpus = Corpus(arguments.corpus.resolve())
        command_line, hosts = prepare(code)
        if arguments.command == "record":
            return record(corpus, command_line, code, arguments.only, hosts)
        return replay(corpus, command_line, code, arguments)
    except CorpusError as error:
        print(f"corpus.py: {error}", file=sys.stderr)
        return 2
