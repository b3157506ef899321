"""The programs for maintainers, in groups: data, docs, bench, prove and release.

    python scripts/tools.py                          lists the programs
    python scripts/tools.py GROUP NAME [ARGUMENT ...]

tools.toml is the list: what each program needs beyond this checkout, and the record that it writes.
A program is the module GROUP/NAME.py. Its docstring says what it does. Its `main` takes the
arguments and returns the exit status, or it has `add_arguments` and `prove` (see common.run_check).
"""

from __future__ import annotations

import ast
import importlib
import sys
import tomllib
from pathlib import Path

from common import run_check

SCRIPTS = Path(__file__).resolve().parent
TOOLS = tomllib.loads((SCRIPTS / "tools.toml").read_text(encoding="utf-8"))


def module_of(group: str, name: str) -> str:
    """Return the name of a program's module: ("prove", "full-disk") is prove.full_disk."""
    return f"{group}.{name.replace('-', '_')}"


def listing(groups: list[str]) -> str:
    """Return one line for each program of the groups: its name, what it does, what it needs."""
    lines = []
    for group in groups:
        lines.append(f"{group}:")
        for name, facts in TOOLS[group].items():
            path = SCRIPTS.joinpath(*module_of(group, name).split(".")).with_suffix(".py")
            summary = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0]
            needs = f" Needs {', '.join(facts['needs'])}." if "needs" in facts else ""
            lines.append(f"  {name:16} {summary}{needs}")
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Run a program, or list the programs; exit status 2 for one that does not exist."""
    group, name, *rest = [*words, "", ""][: max(2, len(words))]
    if name in TOOLS.get(group, {}):
        # argparse names the program as it was called.
        sys.argv = [f"tools.py {group} {name}", *rest]
        sys.path[:0] = [str(SCRIPTS.parent / "resolver"), str(SCRIPTS.parent / "tests")]
        program = importlib.import_module(module_of(group, name))
        if hasattr(program, "prove"):
            return run_check(program, rest)
        from gpuenv.errors import GpuEnvError

        try:
            return int(program.main(rest) or 0)
        except GpuEnvError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    if group and group not in TOOLS:
        print(f"tools.py: there is no group {group}; there are {', '.join(TOOLS)}", file=sys.stderr)
        return 2
    if name:
        print(f"tools.py: {group} has no program {name}; it has these:", file=sys.stderr)
    print(listing([group] if group else list(TOOLS)), file=sys.stderr if name else sys.stdout)
    return 2 if name else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
