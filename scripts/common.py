"""What the programs of this folder share: the checkout, and the records of docs/records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "scripts" / "tools.py"


def write_record(record: Mapping[str, object], file: str | Path | None) -> None:
    """Print a record as JSON, and write it to a file if one is named."""
    text = json.dumps(record, indent=1, ensure_ascii=False)
    print(text, flush=True)
    if file:
        Path(file).write_text(f"{text}\n", encoding="utf-8")
