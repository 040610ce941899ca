"""The log of episodes: whole records come back to the bit, a torn tail is no error, and nothing unusable is used."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace

import pytest
from hypothesis import given, settings

from sanderling.errors import RunFolderError
from sanderling.rollout.ledger import Ledger, Reception
from sanderling.rollout.recall import Recall
from sanderling.store.episode_log import EpisodeLog, Standing, files, find
from sanderling.store.member_records import member_from_json, member_to_json
from sanderling.testing import records, strategies
from sanderling.types import Member, StopReason, Ungraded

ACCOUNTS = {"submitted": 0, "graded": 0, "ungraded": 0, "running": 0, "retried": 0}


@given(strategies.members())
@settings(max_examples=10)
def test_a_member_comes_back_to_the_bit(member):
    back = member_from_json(json.loads(json.dumps(member_to_json(member))))
    assert records.difference(back, member) is None


def attempt(name: str, reward: float | None = 1.0, version: int = 0) -> tuple[Member, ...]:
    turn = records.turn(policy_version=version)
    trajectory = replace(records.trajectory(), id=name, group_id=name.rpartition("/")[0], turns=(turn,))
    if reward is None:
        lost = replace(trajectory, stop=StopReason.SANDBOX_LOST)
        return (replace(records.member(lost, None), verdict=Ungraded(cause="lost", phase="sandbox")),)
    return (records.member(trajectory, reward),)


def begun(folder, process: int = 1, step: int = 0, **ahead: str) -> Ledger:
    """Return a ledger with a log whose weights of version 0 are "w0"."""
    log = EpisodeLog(folder, process=process, behind=1)
    ledger = Ledger(log=log)
    ledger.note_weights(0, "w0")
    log.begin(Standing(step=step, weights={0: "w0"}, accounts=ACCOUNTS, reported=ACCOUNTS, ahead=ahead))
    return ledger


def resumed(folder, weights: dict[int, str], step: int = 0) -> Ledger:
    found = find(folder, step, 1)
    earlier = Recall(ended={name: list(logged) for name, logged in found.ended.items()}, weights=weights, retries=1)
    ledger = Ledger(log=EpisodeLog(folder, process=found.processes + 1, behind=1), earlier=earlier)
    ledger.restore(found.standings[-1])
    ledger.log.begin(ledger.standing(step))
    return ledger


def test_what_ended_is_recalled_and_counted_once_and_what_ran_runs_again(tmp_path):
    ledger = begun(tmp_path)
    for name in ("g/0.0", "g/1.0"):
        ledger.start(name)
    ledger.finish(attempt("g/0.0"))
    asyncio.run(ledger.durable())
    ledger.log.close()
    ledger = resumed(tmp_path, {0: "w0"})
    recalled = ledger.recall("g/0.0")
    assert records.difference(recalled, attempt("g/0.0")) is None
    assert ledger.recall("g/1.0") is None
    ledger.start("g/1.0")
    assert ledger.snapshot() == ACCOUNTS | {"submitted": 2, "graded": 1, "running": 1}
    assert find(tmp_path, 0, 1).lost == ("g/1.0",)


def test_accounts_of_untrained_groups_outlive_the_process(tmp_path):
    ledger = begun(tmp_path)
    for name in ("g/0.0", "g/1.0", "h/0.0"):
        ledger.start(name)
    ledger.finish(attempt("g/0.0"))
    ledger.finish(attempt("g/1.0", None))
    flow = ledger.close_step(1)
    assert flow == ACCOUNTS | {"submitted": 3, "graded": 1, "ungraded": 1, "running": 1}
    ledger.finish(attempt("h/0.0"))  # after the step's end, hence not in its accounts
    ledger.log.close()
    ledger = resumed(tmp_path, {0: "w0"}, step=1)
    assert ledger.snapshot() == ACCOUNTS | {"submitted": 3, "graded": 1, "ungraded": 1, "running": 1}
    for name in ("g/0.0", "g/1.0", "h/0.0"):
        assert ledger.recall(name) is not None
    assert ledger.snapshot() == ACCOUNTS | {"submitted": 3, "graded": 2, "ungraded": 1}
    assert ledger.close_step(2) == ACCOUNTS | {"graded": 1, "running": 0}


@pytest.mark.parametrize("resumes", [1, 2])  # a second process is killed before it ends a step
def test_accounts_of_what_can_not_be_recalled_are_taken_back(tmp_path, resumes):
    ledger = begun(tmp_path)
    ledger.start("g/0.0")
    ledger.start("g/1.0")
    ledger.finish(attempt("g/0.0"))
    ledger.close_step(1)
    ledger.log.close()
    files(tmp_path)[0][0].unlink()  # the record is lost, the accounts after step 1 are not
    for _ in range(resumes):
        ledger.log.close()
        ledger = resumed(tmp_path, {0: "w0"}, step=1)
        assert ledger.snapshot() == ACCOUNTS
    for name in ("g/0.0", "g/1.0"):
        assert ledger.recall(name) is None
        ledger.start(name)
        ledger.finish(attempt(name))
    assert ledger.close_step(2) == ACCOUNTS | {"graded": 1, "running": 0}, "each was submitted once over the whole run"


def test_where_the_log_is_gone_what_ran_is_ungraded():
    ledger = Ledger()
    accounts = ACCOUNTS | {"submitted": 5, "graded": 3, "running": 2}
    ledger.restore(Standing(step=1, weights={}, accounts=accounts, reported=accounts, ahead={}))
    assert ledger.snapshot() == ACCOUNTS | {"submitted": 5, "graded": 3, "ungraded": 2}
    assert ledger.close_step(2) == ACCOUNTS | {"ungraded": 2}


def test_what_other_weights_sampled_is_refused_and_logged(tmp_path):
    ledger = begun(tmp_path)
    ledger.note_weights(1, "w1")
    for version in (0, 1):
        ledger.start(f"g/{version}.0")
        ledger.finish(attempt(f"g/{version}.0", version=version))
    ledger.log.close()
    ledger = resumed(tmp_path, {0: "w0", 1: "another"})
    assert ledger.recall("g/0.0") is not None
    assert ledger.recall("g/1.0") is None
    assert ledger.refused == 1
    last = files(tmp_path)[-1][0].read_text().splitlines()[-1]
    assert json.loads(last)["kind"] == "refused"
    assert "version [1]" in json.loads(last)["reason"]


def test_what_failed_to_its_last_retry_is_tried_again(tmp_path):
    ledger = begun(tmp_path)
    for name in ("g/0.0", "g/0.1"):
        ledger.start(name)
        ledger.finish(attempt(name, None))
    ledger.log.close()
    ledger = resumed(tmp_path, {0: "w0"})
    assert ledger.recall("g/0.0") is not None
    assert ledger.recall("g/0.1") is None
    assert "tried again" in files(tmp_path)[-1][0].read_text()


def test_a_step_in_lockstep_is_recalled_as_a_whole_or_not_at_all(tmp_path):
    ledger = begun(tmp_path)
    for name, reward in (("g/0.0", 1.0), ("g/1.0", None), ("g/1.1", 0.0), ("h/0.0", 1.0)):
        ledger.start(name)
        ledger.finish(attempt(name, reward))
    ledger.log.close()
    ledger = resumed(tmp_path, {0: "w0"})
    ledger.require_whole(["g"], size=2)
    assert ledger.earlier.has("g/1.1")
    ledger.require_whole(["g", "h"], size=2)  # h/1 never ended
    assert not ledger.earlier.has("g/0.0")
    assert ledger.refused == 4


def test_a_second_result_of_an_attempt_is_refused(tmp_path):
    ledger = begun(tmp_path)
    ledger.start("g/0.0")
    assert ledger.finish(attempt("g/0.0")) is Reception.ACCEPTED
    assert ledger.finish(attempt("g/0.0", 0.0)) is Reception.REFUSED
    ledger.hand_over("g")
    assert ledger.finish(attempt("g/0.0", 0.0)) is Reception.REFUSED
    assert ledger.snapshot() == ACCOUNTS | {"submitted": 1, "graded": 1}


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_last_line_is_no_error(tmp_path, cut):
    ledger = begun(tmp_path)
    for name in ("g/0.0", "g/1.0"):
        ledger.start(name)
        ledger.finish(attempt(name))
    ledger.log.close()
    file = files(tmp_path)[0][0]
    os.truncate(file, file.stat().st_size - cut)
    found = find(tmp_path, 0, 1)
    assert set(found.ended) == {"g/0.0"}
    assert found.damaged == ()


def test_damage_inside_the_log_costs_that_record_only(tmp_path):
    ledger = begun(tmp_path)
    for name in ("g/0.0", "g/1.0"):
        ledger.start(name)
        ledger.finish(attempt(name))
    ledger.log.close()
    file = files(tmp_path)[0][0]
    lines = file.read_bytes().split(b"\n")
    lines[2] = lines[2][:-5] + b"#####"
    file.write_bytes(b"\n".join(lines))
    found = find(tmp_path, 0, 1)
    assert set(found.ended) == {"g/1.0"}
    assert len(found.damaged) == 1


def test_files_that_no_checkpoint_needs_are_removed(tmp_path):
    ledger = begun(tmp_path)
    for step in range(1, 8):
        ledger.close_step(step)
    ledger.log.prune(5)
    ledger.log.close()
    assert [step for _, step, _ in files(tmp_path)] == [3, 4, 5, 6, 7]  # tokens may be one update old


def test_a_disk_that_fails_is_said_to_whoever_waits(tmp_path):
    ledger = begun(tmp_path)
    os.close(ledger.log._file)
    with pytest.raises(RunFolderError, match="can't append to"):
        ledger.start("g/0.0")
    ledger.log._file, ledger.log._unsynced = -1, []
