"""Cost of a turn late in a long episode against one early in it: a scripted episode of thousands of turns.

    python benchmarks/long_episode.py [--turns 2000] [--early 10] [--chat]

Everything of an episode but the model and the sandbox's processes is real: episode loop, harness, codec, record, checks; then
credit, training rows and the Parquet files. The engine answers at once and doesn't look at the context, so what is left
is what a turn costs us. Seconds are CPU seconds of this process; the figure of a turn is the median over the turns around it.
With --chat the template is rendered whole each turn, so there a late turn costs more: folding is what bounds it. Memory
is what Python and numpy hold (tracemalloc, in a pass of its own).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sanderling.batch.checks import check_trained_once
from sanderling.batch.rows import assign_credit, training_rows
from sanderling.credit.grpo import Grpo
from sanderling.engine.protocol import SampleRequest, SamplingParams
from sanderling.harness.tool_call_harness import ToolCallHarness
from sanderling.rollout.episode import Episode, Plan, Stage, run_episode
from sanderling.store.run_folder import RunFolder
from sanderling.testing.chat_templates import KINDS
from sanderling.testing.environments import calc_environment, memory_backend
from sanderling.testing.toy_tokenizer import ToyTokenizer
from sanderling.types import (
    Action,
    Disposition,
    Graded,
    Gradient,
    Group,
    Limits,
    Member,
    Membership,
    StopReason,
)

WINDOW = 9  # turns on either side that a turn's figure is the median of


@dataclass(slots=True)
class Writer:
    """An engine that says the same thing each turn; `seen` is called with the number of the turn."""

    token_ids: np.ndarray
    seen: Callable[[int], None]
    policy_version: int = 0
    turns: int = 0

    async def generate(self, request: SampleRequest) -> Action:
        self.seen(self.turns)
        self.turns += 1
        count = len(self.token_ids)
        return Action(
            token_ids=self.token_ids,
            rollout_logprobs=np.full(count, -0.1, dtype=np.float32),
            policy_versions=np.zeros(count, dtype=np.int32),
            text="",
            finish_reason="stop",
        )

    async def generate_many(self, requests: Sequence[SampleRequest]) -> list[Action]:
        return [await self.generate(request) for request in requests]

    def end_session(self, session: str) -> None:
        return

    async def update_weights(self, state: Mapping[str, Any], version: int) -> str:
        return ""

    def fingerprint(self) -> str:
        return ""

    async def close(self) -> None:
        return


def play(turns: int, chat: bool, seen: Callable[[int], None]) -> Episode:
    """Run one episode of so many turns, each of which lists or prints files."""
    limits = Limits(max_turns=turns, max_context_tokens=10**7, episode_s=1e6)
    environment = calc_environment(limits=limits)
    if chat:
        kind = KINDS["hermes"]
        tokenizer = ToyTokenizer(special_tokens=kind.special, eos=kind.end, chat_template=kind.template)
        environment = replace(environment, harness=ToolCallHarness(test_argv=("test",)))
        text = '<tool_call>\n{"name": "read_file", "arguments": {"path": "calc.py"}}\n</tool_call>'
        end = tokenizer.special_id(kind.end)
    else:
        tokenizer = ToyTokenizer()
        text, end = "show calc.py", tokenizer.special_id("<|end|>")
    backend = memory_backend()
    stage = Stage(
        environment=environment,
        backend=backend,
        engine=Writer(np.array([*tokenizer.encode(text), end], dtype=np.int32), seen),
        codec=environment.harness.codec(tokenizer),
        sampling=SamplingParams(),
        capabilities=backend.probe(),
    )
    plan = Plan(task=environment.tasks.get("calc/train/0"), group_id="g", index=0, attempt=0, seed=0)
    return asyncio.run(run_episode(plan, stage, take_submission=frozenset()))


def turn_seconds(turns: int, chat: bool) -> tuple[Episode, list[float]]:
    """Return the episode, and the CPU seconds from each model call to the next one."""
    moments: list[float] = []
    episode = play(turns, chat, lambda turn: moments.append(time.process_time()))
    return episode, np.diff(moments).tolist()


def turn_bytes(turns: int, chat: bool) -> list[int]:
    """Return what is held at each model call."""
    held: list[int] = []
    tracemalloc.start()
    try:
        play(turns, chat, lambda turn: held.append(tracemalloc.get_traced_memory()[0]))
    finally:
        tracemalloc.stop()
    return held


def around(values: Sequence[float], turn: int) -> float:
    return statistics.median(values[max(0, turn - WINDOW) : turn + WINDOW])


def after_the_episode(episode: Episode, folder: Path, step: int) -> float:
    """Return the CPU seconds per turn of credit, training rows and files, for a group of the episode and a failed one."""
    began = time.process_time()
    members = [_member(episode, 0, 1.0), _member(episode, 1, 0.0)]
    group = Group(id="g", task_id=episode.trajectory.task_id, members=tuple(members))
    credit = assign_credit([group], Grpo())
    rows = training_rows([group], credit)
    check_trained_once([group], rows)
    with RunFolder.at(folder, "", {}) as run:
        run.write_rollouts(step, [group], advantages=credit)
    return (time.process_time() - began) / (2 * len(episode.trajectory.turns))


def _member(episode: Episode, index: int, reward: float) -> Member:
    fate = Disposition(
        membership=Membership.MEMBER, reward=reward, gradient=Gradient.FULL, reason=StopReason.MAX_TURNS.value
    )
    trajectory = replace(episode.trajectory, id=f"g/{index}.0")
    return Member(trajectory=trajectory, verdict=Graded(reward=reward), disposition=fate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--early", type=int, default=10)
    parser.add_argument(
        "--chat", action="store_true", help="tool calls through a chat template, which is rendered each turn"
    )
    asked = parser.parse_args()
    turn_seconds(50, asked.chat)  # imports and caches
    episode, seconds = turn_seconds(asked.turns, asked.chat)
    held = turn_bytes(asked.turns, asked.chat)
    early, late = around(seconds, asked.early), around(seconds, asked.turns - WINDOW - 1)
    half = asked.turns // 2
    grown = [(held[half - 1] - held[19]) / (half - 20), (held[-1] - held[half]) / (len(held) - half - 1)]
    with tempfile.TemporaryDirectory() as folder:
        few, _ = turn_seconds(asked.early, asked.chat)
        after_the_episode(few, Path(folder), 1)
        small = statistics.median(after_the_episode(few, Path(folder), step) for step in range(2, 9))
        large = after_the_episode(episode, Path(folder), 9)
    record = {
        "turns": asked.turns,
        "harness": "tool calls through a chat template" if asked.chat else "line editor",
        "context_tokens": len(episode.trajectory.token_ids()),
        "turn_early_ms": round(1e3 * early, 4),
        "turn_late_ms": round(1e3 * late, 4),
        "ratio": round(late / early, 3),
        "bytes_per_turn_first_half": round(grown[0]),
        "bytes_per_turn_second_half": round(grown[1]),
        "memory_ratio": round(grown[1] / grown[0], 3),
        f"stored_ms_per_turn_of_{asked.early}": round(1e3 * small, 4),
        f"stored_ms_per_turn_of_{asked.turns}": round(1e3 * large, 4),
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
