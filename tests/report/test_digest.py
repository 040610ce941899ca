"""Numbers of the report: pairs, families, accounts."""

from __future__ import annotations

import pytest

from sanderling.report.digest import (
    Decoding,
    Evaluation,
    Pairing,
    Rate,
    StepSummary,
    before_and_after,
    evaluations,
    family_of,
    pairing,
    smoothed,
    step_summaries,
    totals,
)
from sanderling.store.reader import RunReader
from sanderling.types import StepReport


def evaluation(label: str, rewards: dict[str, tuple[float, ...]], step: int | None = None) -> Evaluation:
    decoding = Decoding.GREEDY if label.endswith("greedy") else Decoding.SAMPLED
    rate = Rate(solved=1, graded=2)
    return Evaluation(label=label, step=step, decoding=decoding, rate=rate, excluded=0, by_family={}, rewards=rewards)


def test_tasks_are_paired_and_those_in_one_evaluation_only_left_out():
    before = evaluation("before", {"a": (0.0,), "b": (1.0,), "c": (0.0,), "d": (1.0, 0.0), "only": (1.0,)})
    after = evaluation("after", {"a": (1.0,), "b": (0.0,), "c": (0.0,), "d": (1.0, 1.0)})
    assert pairing(before, after) == Pairing(both=0, gained=2, lost=1, neither=1)
    assert pairing(before, evaluation("after", {"z": (1.0,)})) is None


@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 2 / 32), (8, 2, 2 * 56 / 1024), (3, 3, 1.0)]
)
def test_the_sign_test_by_hand(gained, lost, p):
    assert Pairing(both=4, gained=gained, lost=lost, neither=2).p_value == pytest.approx(p)


def test_before_and_after_compare_alike_decodings():
    found = [evaluation(label, {}) for label in ("before", "before-greedy", "step=000005", "after", "after-greedy")]
    assert [one.label for one in before_and_after(found, Decoding.GREEDY) if one] == ["before-greedy", "after-greedy"]
    assert [one.label for one in before_and_after(found, Decoding.SAMPLED) if one] == ["before", "after"]
    alone = before_and_after([evaluation("sampled", {})], Decoding.SAMPLED)
    assert alone[1] is None
    assert before_and_after([], Decoding.SAMPLED) == (None, None)


def test_families_come_from_labels_else_from_the_id():
    head = {"task_id": "env/train/clamp/boundary-3", "task_metadata": [("family", "off-by-one")]}
    assert family_of(head) == "off-by-one"
    assert family_of(head | {"task_metadata": None}) == "boundary"
    assert family_of({"task_id": "just-a-name", "task_metadata": []}) == "just-a-name"


def test_smoothing_pools_counts():
    steps = [StepSummary(step=i, rate=Rate(solved=i, graded=4), stops={}, total=4) for i in range(5)]
    assert smoothed(steps, 3)[1] == Rate(solved=0 + 1 + 2, graded=12)
    assert smoothed(steps, 3)[4] == Rate(solved=3 + 4, graded=8)


def test_counts_add_up_over_steps_and_levels_do_not():
    reports = [
        StepReport(step=i, policy_version=i, metrics={}, timing={}, counts={"submitted": 5, "running": 3})
        for i in (1, 2)
    ]
    assert totals(reports) == {"submitted": 10, "running": 3}


def test_the_summaries_are_what_is_on_disk(demo_run):
    reader = RunReader(demo_run)
    for summary in step_summaries(reader):
        rollouts = reader.rollouts(summary.step)
        rewards = [reward for group in rollouts.groups for reward in group.rewards()]
        assert summary.rate == Rate(solved=int(sum(rewards)), graded=len(rewards))
        assert summary.total == sum(summary.stops.values()) == 64
    found = evaluations(reader)
    assert [one.label for one in found if one.decoding is Decoding.SAMPLED] == ["before", "step=000006", "after"]
    assert sum(rate.graded for rate in found[0].by_family.values()) == found[0].rate.graded
