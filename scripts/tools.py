"""The programs for maintainers, in groups: data, docs, bench, prove and release.

    python scripts/tools.py                          lists the programs
    python scripts/tools.py GROUP NAME [ARGUMENT ...]

tools.toml is the list: what each program needs beyond this checkout, and the record that it writes.
A program is the module GROUP/NAME.py. Its docstring says what it does, and ARGUMENTS has those of
argparse by name. It has `main(arguments)`, which does all and returns the exit status, or
`prove(arguments)`, which returns a record and a list of faults (common.run_check).
"""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from pathlib import Path

from common import read_toml, run_check

SCRIPTS = Path(__file__).resolve().parent
TOOLS = read_toml(SCRIPTS / "tools.toml")


def listing(groups: list[str]) -> str:
    """Return one line for each program of the groups: its name, what it does, what it needs."""
    lines = []
    for group in groups:
        lines.append(f"{group}:")
        for name, facts in TOOLS[group].items():
            path = SCRIPTS / group / f"{name.replace('-', '_')}.py"
            summary = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0]
            needs = f" Needs {', '.join(facts['needs'])}." if "needs" in facts else ""
            lines.append(f"  {name:16} {summary}{needs}")
    return "\n".join(lines)


def run(group: str, name: str, words: list[str]) -> int:
    """Run a program with the words behind its name. Return its exit status."""
    sys.path[:0] = [str(SCRIPTS.parent / "resolver"), str(SCRIPTS.parent / "tests")]
    program = importlib.import_module(f"{group}.{name.replace('-', '_')}")
    parser = argparse.ArgumentParser(
        f"tools.py {group} {name}", description=program.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    options = dict(getattr(program, "ARGUMENTS", {}))
    if hasattr(program, "prove"):
        options["--record"] = {"metavar": "FILE", "type": Path, "help": "write the results to FILE"}
    for argument, settings in options.items():
        parser.add_argument(argument, **settings)
    arguments = parser.parse_args(words)
    try:
        if hasattr(program, "prove"):
            return run_check(program, arguments)
        return int(program.main(arguments) or 0)
    except Exception as error:
        # Python alone, which is enough for some programs, cannot import gpuenv.
        if "gpuenv.errors" not in sys.modules or not isinstance(
            error, sys.modules["gpuenv.errors"].GpuEnvError
        ):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2


def main(words: list[str]) -> int:
    """Run a program, or list the programs; exit status 2 for one that does not exist."""
    group, name, *rest = [*words, "", ""][: max(2, len(words))]
    if name in TOOLS.get(group, {}):
        return run(group, name, rest)
    if group and group not in TOOLS:
        print(f"tools.py: there is no group {group}; there are {', '.join(TOOLS)}", file=sys.stderr)
        return 2
    if name:
        print(f"tools.py: {group} has no program {name}; it has these:", file=sys.stderr)
    print(listing([group] if group else list(TOOLS)), file=sys.stderr if name else sys.stdout)
    return 2 if name else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
