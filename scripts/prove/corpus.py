"""Record and replay the regression corpus: requests to the command line, and the results of each.

    python scripts/tools.py prove corpus record [--only GLOB]
    python scripts/tools.py prove corpus replay [--only GLOB] [--sample]

`tests/data/corpus/cases.toml` holds the requests. `record` runs them and writes the results:
`results.jsonl` (one line a case) and `files.json.xz` (the text of each written file, by its
sha256). `replay` runs them again and compares everything: exit status, output and written files.
After an intended change, record again and review the difference.

Each case runs in a process of its own, which is forked, in a new folder, with fixed environment
variables, without a network, and without the cache of earlier answers. pip's default index is
replaced by a made-up one before gpuenv asks for it. Names of folders become placeholders, and so do
the digests in conda locks that depend on the folder of the channel.

Exit status: 0 no difference, 1 a difference, 2 the corpus or the arguments cannot be used.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import lzma
import os
import platform
import re
import shlex
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import forked
from common import ROOT, read_json, read_toml

DATA = ROOT / "tests" / "data"
CORPUS = DATA / "corpus"
INDEX_URL, FILE_HOST = "https://index.example/", "files.example"
SAMPLE_STEP = 32
SUBDIRS = ("linux-64", "noarch")
TIMESTAMP = 1_700_000_000_000  # of every conda package of the channel
# Digests in conda locks that are computed over URLs, and so over the folder of the channel.
URL_DIGEST = re.compile(r"((?:content\\?\": \\?\"|linux-64: ))[0-9a-f]{64}")

Case = dict[str, Any]
Result = dict[str, Any]


class CorpusError(Exception):
    """The corpus or the arguments cannot be used."""


class Corpus:
    """The cases, and the recorded results. In memory, a result has the texts of its files."""

    def __init__(self, folder: Path = CORPUS) -> None:
        self.folder = folder
        tables = read_toml(folder / "cases.toml")
        self.cases: list[Case] = tables["case"]
        self.inputs: dict[str, str] = tables.get("inputs", {})
        self.results: dict[str, Result] = {}

    def load(self) -> None:
        """Read the recorded results."""
        with lzma.open(self.folder / "files.json.xz", "rt", encoding="utf-8") as file:
            texts = json.load(file)
        for line in (self.folder / "results.jsonl").read_text(encoding="utf-8").splitlines():
            result = json.loads(line)
            files = {name: texts[digest] for name, digest in result["files"].items()}
            self.results[result["name"]] = {**result, "files": files}

    def save(self) -> None:
        """Write the results in the order of the cases, and the texts of files by their sha256."""
        lines, texts = [], {}
        for result in (self.results[case["name"]] for case in self.cases):
            digests = {}
            for name, text in result["files"].items():
                digests[name] = hashlib.sha256(text.encode()).hexdigest()
                texts[digests[name]] = text
            lines.append(json.dumps({**result, "files": digests}))
        (self.folder / "results.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
        data = json.dumps(texts, indent=0, sort_keys=True).encode()
        (self.folder / "files.json.xz").write_bytes(lzma.compress(data, preset=9))

    def chosen(self, only: str = "*", *, sampled: bool = False) -> list[Case]:
        """Return the cases of a pattern, or a sample of them.

        The sample is, of each kind (the name up to the first slash), the first case and every
        thirty-second one after it, in the order of the file.
        """
        kinds: Counter[str] = Counter()
        kept = []
        for case in self.cases:
            if fnmatchcase(case["name"], only):
                kind = case["name"].partition("/")[0]
                if not sampled or kinds[kind] % SAMPLE_STEP == 0:
                    kept.append(case)
                kinds[kind] += 1
        return kept

    def input_files(self, case: Case, folder: Path) -> dict[str, str]:
        """Return the files that a case starts with.

        `files` maps a path to a text, `inputs` a path to the name of a text that several cases
        use, `locks` a path to CASE:FILE, a file that another case wrote. `edit` is
        [path, old, new].
        """
        texts = dict(case.get("files", {}))
        for path, name in case.get("inputs", {}).items():
            texts[path] = self.inputs[name]
        for path, reference in case.get("locks", {}).items():
            name, _, file = reference.rpartition(":")
            texts[path] = self.results[name]["files"][file].replace("<DIR>", str(folder))
        if "edit" in case:
            path, old, new = case["edit"]
            if old not in texts[path]:
                raise CorpusError(f"{case['name']}: {path} does not contain {old!r}")
            texts[path] = texts[path].replace(old, new, 1)
        return texts


# ---- running a case ---------------------------------------------------------------------------


def environment(folder: Path) -> dict[str, str]:
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
        "PYTHONPATH": str(ROOT / "resolver"),
        "RATTLER_CACHE_DIR": str(folder / "rattler"),
        "TZ": "UTC",
        "UV_NO_CONFIG": "1",
    }


def use_made_up_index() -> tuple[str, str]:
    """Replace pip's built-in index, which gpuenv reads. Return the hosts of the real one."""
    from gpuenv.index import default_index

    url, files = default_index.builtin_index()
    default_index.builtin_index = lambda: (f"{INDEX_URL}simple", f"https://{FILE_HOST}")
    return urlsplit(url).netloc, urlsplit(files).netloc


def run_case(case: Case, corpus: Corpus) -> Result:
    """Run one case, and return its result."""
    from gpuenv.__main__ import main as entry_point

    with tempfile.TemporaryDirectory(prefix="gpuenv-corpus-") as name:
        folder = Path(name).resolve()
        work = folder / "work"
        for part in (work, folder / "home", folder / "bin"):
            part.mkdir()
        if "channel" in case:
            write_channel(folder / "channel", case["channel"])
        inputs = corpus.input_files(case, folder)
        for path, text in inputs.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_bytes(text.encode())
        words = shlex.split(case["run"]) if isinstance(case["run"], str) else case["run"]
        done = forked.run(entry_point, ["gpuenv", *words], work, environment(folder))
        files = {}
        for path, content in written(work, inputs).items():
            files[path] = with_placeholders(content, folder)
            if "channel" in case:
                files[path] = URL_DIGEST.sub(r"\1<DIGEST>", files[path])
    result: Result = {"name": case["name"], "status": done.returncode}
    output = with_placeholders(done.stdout, folder)
    try:
        if "--json" not in words:
            raise ValueError
        result["json"] = json.loads(output)
    except ValueError:
        result["stdout"] = output.splitlines()
    result["stderr"] = with_placeholders(done.stderr, folder).splitlines()
    result["files"] = files
    return result


def with_placeholders(text: str, folder: Path) -> str:
    """Replace the names of folders of this machine, the longest first."""
    names = {str(folder): "<DIR>", str(ROOT): "<CODE>"}
    names.update({sys.executable: "<PYTHON>", sys.prefix: "<PREFIX>"})
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, names[name])
    return text


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


def write_channel(folder: Path, names: Sequence[str]) -> None:
    """Write the index of a conda channel from files of records. A solve needs no packages."""
    rows = [row for name in names for row in read_json(DATA / name)["records"]]
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


# ---- commands ---------------------------------------------------------------------------------


def differences(recorded: Result, new: Result) -> list[tuple[str, list[str]]]:
    """Return what differs between two results of a case: (name, lines of a unified diff).

    The name is status, stdout, stderr or that of a written file.
    """

    def parts(result: Result) -> dict[str, str]:
        if "json" in result:
            output = json.dumps(result["json"], indent=1, sort_keys=True)
        else:
            output = "\n".join(result["stdout"])
        shown = {"status": str(result["status"]), "stdout": output}
        shown["stderr"] = "\n".join(result["stderr"])
        return shown | {f"files/{name}": text for name, text in result["files"].items()}

    before, after = parts(recorded), parts(new)
    found = []
    for name in sorted({*before, *after}):
        old, young = before.get(name, "<not written>"), after.get(name, "<not written>")
        if old != young:
            lines = difflib.unified_diff(
                old.splitlines(keepends=True), young.splitlines(keepends=True), n=0
            )
            found.append((name, [repr(line) for line in list(lines)[2:] if line[0] != "@"]))
    return found


def record(corpus: Corpus, only: str, secret: Sequence[str]) -> int:
    """Run the cases and keep their results.

    Raises:
        CorpusError: if a case crashes, or if a result names a host of `secret` or something of
            this machine.
    """
    if only != "*":
        corpus.load()
    machine = ("<PYTHON>", "<PREFIX>", tempfile.gettempdir() + "/gpuenv", platform.python_version())
    for case in corpus.chosen(only):
        result = run_case(case, corpus)
        text = json.dumps(result)
        if named := [word for word in (*secret, *machine) if word in text]:
            raise CorpusError(f"{case['name']}: the result names {', '.join(named)}")
        if result["status"] < 0 or "Traceback (most recent call last):" in result["stderr"]:
            raise CorpusError(f"{case['name']} crashed:\n" + "\n".join(result["stderr"]))
        corpus.results[case["name"]] = result
    corpus.save()
    print(f"{len(corpus.cases)} cases recorded")
    return 0


def replay(corpus: Corpus, only: str, *, sampled: bool) -> int:
    """Run the cases, compare their results with the recorded ones, and print the differences."""
    corpus.load()
    started = time.monotonic()
    cases = corpus.chosen(only, sampled=sampled)
    if not cases:
        raise CorpusError(f"no case is named {only}")
    count = failed = 0
    for case in cases:
        name = case["name"]
        if name not in corpus.results:
            raise CorpusError(f"{name} has no recorded result: `prove corpus record --only {name}`")
        found = differences(corpus.results[name], run_case(case, corpus))
        count, failed = count + len(found), failed + bool(found)
        for part, lines in found:
            print(f"DIFFERENT: {name} {part}", *lines, sep="\n    ", flush=True)
    seconds = time.monotonic() - started
    print(f"{len(cases)} cases in {seconds:.0f} s: {count} differences in {failed} cases")
    return int(count > 0)


ARGUMENTS = {
    "command": {"choices": ("record", "replay")},
    "--corpus": {"type": Path, "default": CORPUS, "help": "the folder of the corpus"},
    "--only": {"metavar": "GLOB", "default": "*", "help": "only cases with such a name"},
    "--sample": {"action": "store_true", "help": "replay only some of each kind"},
}


def main(arguments: Namespace) -> int:
    """Run `record` or `replay`."""
    os.environ.clear()  # settings of this machine must not take part, not even at import
    os.environ.update(environment(Path("/nowhere")))
    time.tzset()
    try:
        hosts = use_made_up_index()
        corpus = Corpus(arguments.corpus.resolve())
        if arguments.command == "record":
            return record(corpus, arguments.only, hosts)
        return replay(corpus, arguments.only, sampled=arguments.sample)
    except CorpusError as error:
        print(f"corpus: {error}", file=sys.stderr)
        return 2
