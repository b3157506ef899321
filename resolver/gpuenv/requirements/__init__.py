"""The user's input: requirement files, project metadata, and what a target makes of them.

- parse: one requirement, checked for what a lock can hold
- files: requirement and constraint files, as pip reads them
- pyproject: [project] and [dependency-groups] of a pyproject.toml
- tool_tables: the tables of other tools in a pyproject.toml
- dockerfile: what a Dockerfile installs
- source_urls: URLs of folders and commits
- overrides: requirements that replace every other one on their names
- target: what wheels, markers and specifiers say to a host (PEP 425, 508)
- versions: names, versions and specifiers (PEP 503, 440)
- conda_versions: conda's versions and ranges
- conda_projects: environment.yml and pixi.toml
- conda_settings: conda's pins and overrides

Every mistake is one line that names the file and the line. What a lock cannot hold is refused, such
as credentials in the URL of a requirement.
"""
