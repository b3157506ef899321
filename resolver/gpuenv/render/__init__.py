"""Turn values into text for people and into JSON documents: the only place that builds sentences.

The modules offer `..._lines` (text) and `..._json` (the document of --json).

- text: lines with a meaning, and tables
- values: phrases that several modules share, above all the sentence of a reason
- refusals: why there is no solution, and which changes help
- plans: hosts, plans and errors
- changes: what commands do to an environment, and the line of progress
- checks: the checks of an environment, also in the formats of monitoring tools
- locks: locks of a project's profiles, and what speaks against a lock on a host
- trees: who requires whom in a lock, and what a new solve changes
- matrix: tables of the compatibility data, and files with device code
- doctor: verdicts, evidence and fixes
- notebook: HTML of values
- redact: reports without names of persons, machines and secrets (`gpuenv verify --bundle`)
"""
