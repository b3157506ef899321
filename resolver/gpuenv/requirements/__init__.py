"""What the user's own files ask for: requirement and constraint files as pip reads them, and a project's metadata.

Every mistake is one line that names the file and the line. Nothing that a lock cannot hold gets past here: editable,
local and version-control requirements, and credentials in the URL of a requirement, are refused.
"""

from __future__ import annotations

from .files import read_files
from .parse import Asked, requirement
from .pyproject import read_project

__all__ = ["Asked", "read_files", "read_project", "requirement"]
