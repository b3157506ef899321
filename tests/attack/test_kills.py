"""Kills of `gpuenv sync` at a few random points. `tools.py prove kill-commands` runs hundreds."""

import json
from pathlib import Path

from script_modules import load_script

kills = load_script("prove.kills")


def test_sync_is_killed(tmp_path: Path) -> None:
    trials = kills.KillTrials(tmp_path)
    for point in kills.random_points(4, seed=1):
        trials.run(point)
    bad = {name: trials.counts[name] for name in kills.BAD_OUTCOMES}
    assert bad == dict.fromkeys(kills.BAD_OUTCOMES, 0)
    assert trials.counts["points"] == 4


def test_the_records_show_no_failure() -> None:
    records = Path(__file__).parents[2] / "docs" / "records"
    killed = json.loads((records / "kill-commands.json").read_text())
    assert killed["total"]["points"] == 300
    assert [killed["total"][name] for name in kills.BAD_OUTCOMES] == [0] * len(kills.BAD_OUTCOMES)
    stress = json.loads((records / "stress-sync.json").read_text())
    assert (stress["processes"], stress["rounds"], stress["targets"]) == (16, 50, 4)
    assert (stress["failures"], stress["wrong targets"]) == (0, 0)
    full = json.loads((records / "full-disk.json").read_text())
    for row in full["commands"].values():
        assert row["failed"] and not row["partial states"] and not row["unclear"]
