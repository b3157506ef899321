"""Kills of `gpuenv sync` at a few random points. scripts/kill_commands.py runs hundreds."""

from pathlib import Path

import kills


def test_sync_is_killed(tmp_path: Path) -> None:
    trials = kills.KillTrials(tmp_path)
    for point in kills.random_points(8, seed=1):
        trials.run(point)
    bad = {name: trials.counts[name] for name in kills.BAD_OUTCOMES}
    assert bad == dict.fromkeys(kills.BAD_OUTCOMES, 0)
    assert trials.counts["points"] == 8
