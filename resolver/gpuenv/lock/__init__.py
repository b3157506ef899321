"""Lock files: the text of a plan, reading it back, and what locks of other tools say.

pylock.py         Plan -> pylock.toml (PEP 751) with [tool.gpuenv], and back; pip requirements
conda_formats.py  conda's @EXPLICIT files and conda-lock.yml, written and read; pixi.lock, read
fields.py         the types of the fields that locks have; the numbers of the formats, the
                  migrations from older ones, and the refusal of newer ones
grammar.py        whether the texts of a package are names, versions, file names and URLs
host_fit.py       whether a lock fits a host
tool_settings.py  settings that make other tools take the same builds
tool_projects.py  a lock as tables for the projects of other tools
other_tools.py    locks that other tools wrote

docs/lock-format.md specifies the files.
"""
