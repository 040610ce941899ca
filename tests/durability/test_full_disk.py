"""A disk that is full or read-only is one clear error, and what was logged before stays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sanderling.errors import RunFolderError
from sanderling.rollout.ledger import Ledger
from sanderling.store.episode_log import EpisodeLog, Standing, find
from sanderling.store.run_folder import RunFolder
from sanderling.testing import records

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_ends_the_log_with_whole_records_before_it(disk):
    log = EpisodeLog(disk / "episodes", process=1, behind=0)
    ledger = Ledger(log=log)
    ledger.note_weights(0, "w0")
    log.begin(Standing(step=0, weights={0: "w0"}, accounts=ledger.snapshot(), reported={}, ahead={}))
    accepted = []
    with pytest.raises(
        RunFolderError, match=r"can't append to .*000000\.01\.jsonl: No space left on device; free space"
    ):
        for number in range(10_000):
            name = f"g/{number}.0"
            ledger.start(name)
            trajectory = replace(records.trajectory(), id=name, group_id="g", turns=(records.turn(),))
            ledger.finish((records.member(trajectory),))
            accepted.append(name)
    log.close()
    assert len(accepted) > 10
    assert set(find(disk / "episodes", 0, 0).ended) == set(accepted)


def test_a_read_only_disk_is_said_before_anything_starts(disk):
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(RunFolderError, match="Read-only file system; that file system is read-only"):
        RunFolder.at(disk / "run", "seed = 0\n", {})
