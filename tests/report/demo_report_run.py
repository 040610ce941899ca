"""A run folder as a run would leave it: a policy that learns, failures of ours, and an attack on whoever reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np

from sanderling.store.estimators import wilson
from sanderling.store.run_folder import RunFolder
from sanderling.testing import records
from sanderling.types import Group, Member, StepReport, StopReason, Task

CONFIG = """\
name = "fix-python"
seed = 7
steps = 60

[rollout]
group_size = 8
groups_per_step = 8
"""
ENVIRONMENT = {
    "sanderling": "0.1.0",
    "sandbox": {
        "name": "bubblewrap",
        "mode": "user",
        "isolation": "namespaces",
        "open_risks": ["the kernel is shared with the host", "memory is limited per process, not per tree"],
    },
}
FAMILIES = ("boundary", "operator", "return-value", "off-by-one", "condition", "call-argument")
SHOWN = """\
 1 | def clamp(value, low, high):
 2 |     '''Value, moved into [low, high].'''
 3 |     if value < low:
 4 |         return high
 5 |     if value > high:
 6 |         return high
 7 |     return value"""
FAILED = "clamp(-3, 0, 5)\n  expected 0\n  got      5\n1 of 3 passed"
ATTACK = "<script>alert('x')</script>\x1b[2J\u202egnitsop"


def task(index: int, split: str) -> Task:
    family = FAMILIES[index % len(FAMILIES)]
    name = f"fix_python/{split}/clamp_{index:03d}/{family}-{index % 3}"
    return Task(id=name, prompt=f"Fix the bug in clamp_{index:03d}.", base={}, metadata={"family": family})


def episode(rng: Random, task_id: str, id: str, skill: float) -> Member:
    """One episode of a policy that solves a share `skill` of its tasks."""
    solved = rng.random() < skill
    turns = [records.turn("show solution.py", SHOWN, logprob=-0.1)]
    stop = StopReason.SUBMITTED
    if rng.random() < 0.01:
        return records.member(records.trajectory(turns, id=id, task_id=task_id, stop=StopReason.SANDBOX_LOST), None)
    if solved:
        turns += [
            records.turn("test", FAILED),
            records.turn("set 4 | return low", "ok"),
            records.turn("test", "3 of 3 passed"),
        ]
        turns.append(records.turn("submit", ""))
    elif rng.random() < 0.45 * (1 - skill):
        stop = rng.choice([StopReason.MAX_TURNS, StopReason.MAX_TURNS, StopReason.FORMAT_ERROR, StopReason.MAX_TOKENS])
        turns += [records.turn("set 3 | if value <= low:", "ok"), records.turn(ATTACK, "no such call")] * 2
    else:
        turns += [records.turn("set 7 | return high", "ok"), records.turn("submit", "")]
    return records.member(records.trajectory(turns, id=id, task_id=task_id, stop=stop), float(solved))


def groups_of(rng: Random, split: str, indices: Sequence[int], size: int, skill: float, prefix: str) -> list[Group]:
    made = []
    for number, index in enumerate(indices):
        group_id, own = f"{prefix}-{number:05d}", task(index, split)
        # families differ in how hard they are
        chance = min(0.98, max(0.01, skill + 0.06 * (index % len(FAMILIES) - 2.5)))
        members = tuple(episode(rng, own.id, f"{group_id}/{i}.0", chance) for i in range(size))
        made.append(Group(id=group_id, task_id=own.id, members=members))
    return made


def report_of(step: int, groups: Sequence[Group], rng: Random) -> StepReport:
    members = [member for group in groups for member in group.members]
    rewards = np.concatenate([group.rewards() for group in groups])
    solved, graded = int(rewards.sum()), len(rewards)
    low, high = wilson(solved, graded)
    flat = sum(np.ptp(group.rewards()) == 0 for group in groups)
    skipped = sum(len(group.graded()) for group in groups if np.ptp(group.rewards()) == 0)
    return StepReport(
        step=step,
        policy_version=step,
        metrics={
            "solve_rate": solved / graded,
            "solve_rate_low": low,
            "solve_rate_high": high,
            "reward_mean": solved / graded,
            "turns_mean": float(np.mean([len(m.trajectory.turns) for m in members])),
            "action_tokens_mean": float(np.mean([m.trajectory.num_action_tokens for m in members])),
            "entropy": 0.9 * math.exp(-step / 40) + 0.25 + rng.gauss(0, 0.02),
            "approx_kl": abs(rng.gauss(0.004, 0.002)),
            "grad_norm": math.exp(rng.gauss(-0.2, 0.3)),
            "clip_fraction": abs(rng.gauss(0.01, 0.006)),
            "groups_zero_variance": float(flat),
            "groups_total": float(len(groups)),
            "logprob_gap_max": abs(rng.gauss(2e-6, 1e-6)),
        },
        timing={
            "rollout_s": rng.gauss(22, 2),
            "train_s": rng.gauss(14, 1),
            "push_s": 0.3,
            "store_s": 0.05,
            "step_s": rng.gauss(36.6, 2),
        },
        counts={
            "submitted": len(members),
            "graded": graded,
            "ungraded": len(members) - graded,
            "running": 0,
            "trained": graded - skipped,
            "dropped_zero_advantage": skipped,
        },
    )


def write_demo_run(path: Path, steps: int = 12, tasks: int = 60) -> Path:
    """Write the folder: 64 episodes a step, evaluations before and after by sampling and greedily."""
    rng = Random(5)
    held_out = {task(i, "held-out").id: task(i, "held-out") for i in range(tasks)}
    with RunFolder.at(path, CONFIG, ENVIRONMENT) as run:

        def evaluate(label: str, skill: float, step: int) -> None:
            groups = groups_of(rng, "held-out", range(tasks), 1, skill, "eval")
            run.write_evaluation(label, groups, step=step, tasks=held_out)

        evaluate("before", 0.17, 0)
        evaluate("before-greedy", 0.2, 0)
        for step in range(1, steps + 1):
            skill = 0.17 + 0.55 / (1 + math.exp(-(step / steps - 0.4) * 8))
            groups = groups_of(rng, "train", [rng.randrange(400) for _ in range(8)], 8, skill, f"train-{step:04d}")
            credit = {m.trajectory.id: [0.5] * len(m.trajectory.turns) for g in groups for m in g.graded()}
            run.write_rollouts(step, groups, advantages=credit)
            run.append_metrics(report_of(step, groups, rng))
            if step == steps // 2:
                evaluate(f"step={step:06d}", skill, step)
                run.append_event("sandbox_lost", detail="launcher did not answer")
        evaluate("after", 0.69, steps)
        evaluate("after-greedy", 0.73, steps)
        run.append_event("finished")
    return path
