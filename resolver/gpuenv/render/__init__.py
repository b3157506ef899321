"""Turn values into text for people and into JSON documents: the only place that builds sentences.

Each module serves one command or one kind of value, and offers `..._lines` (text) and `..._json`
(the document of --json). Some are short because each command has a module of its own.

- values: phrases that several modules share, above all the sentence of a reason
- text: lines with a meaning, and tables
- plans: hosts, plans and errors
- checks: the checks of an environment
- progress: what a command is doing
- refusals: why there is no solution, and which changes help
- locks: locks of a project's profiles, and what speaks against a lock on a host
- matrix: tables of the compatibility data (`gpuenv matrix`)
- code_files: files with device code (`gpuenv matrix scan`)
- doctor: verdicts, evidence and fixes (`gpuenv doctor`)
- pip: changes to an installed environment (`gpuenv pip install`)
- run: changed loader variables (`gpuenv run`)
- node_report: what one node reports (`gpuenv verify --json` and its other formats)
- hook: the one line of `gpuenv verify --hook`
- redact: reports without names of persons, machines and secrets (`gpuenv verify --bundle`)
"""
