"""Answers about the files of an environment that no test changes: each is found once, then kept."""

import hashlib
import json
import os
from collections.abc import Mapping

from gpuenv.verify.runner import Children, Outcome


def keep_in(folder: str) -> None:
    """Let the probe `installed` take its answers from the folder if they are there.

    The folder is that of one environment. With "" every answer is found anew.
    """
    find = Children.run

    def run(
        self: Children,
        probe: str,
        options: Mapping[str, object],
        more: Mapping[str, str] | None = None,
    ) -> Outcome:
        if not folder or probe != "installed":
            return find(self, probe, options, more)
        name = hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path) as file:
                return Outcome(answer=json.load(file))
        outcome = find(self, probe, options, more)
        if not outcome.ended:
            with open(f"{path}.{os.getpid()}", "w") as file:
                json.dump(outcome.answer, file)
            os.replace(file.name, path)
        return outcome

    Children.run = run  # type: ignore[method-assign]
