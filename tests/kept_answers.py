"""Answers about the files of an environment that no test changes: each is found once, then kept."""

import hashlib
import json
import os

from gpuenv.verify.runner import Children, Outcome


def keep_in(folder):
    """Let the probes `interpreter` and `files` take their answers from the folder, if there.

    The folder is that of one environment. With "" every answer is found anew.
    """
    find = Children.run

    def run(self, probe, options, more=None):
        if not folder or probe not in {"interpreter", "files"}:
            return find(self, probe, options, more)
        text = json.dumps([probe, options.get("imports")])
        name = hashlib.sha256(text.encode()).hexdigest()
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

    Children.run = run
