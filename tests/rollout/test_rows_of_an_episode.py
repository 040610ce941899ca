"""An episode whose context was rewritten: several rows, each what the engine received, that count as one."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from stages import run_group, stage

from sanderling.batch.checks import check_trained_once
from sanderling.batch.config import BatchConfig
from sanderling.batch.rows import assign_credit, training_rows
from sanderling.credit.episodes import episodes
from sanderling.credit.grpo import Grpo
from sanderling.credit.rloo import Rloo
from sanderling.errors import VerifierError
from sanderling.harness.tool_call_harness import ToolCallHarness
from sanderling.learn.loop import deal_out_rewards
from sanderling.learn.measure import disposition_counts, episode_metrics, row_metrics, solve_counts
from sanderling.rollout.config import RolloutConfig
from sanderling.testing.chat_templates import KINDS
from sanderling.testing.engines import ScriptedEngine
from sanderling.testing.environments import RuleVerifier, calc_environment
from sanderling.testing.toy_tokenizer import ToyTokenizer
from sanderling.types import Limits, StopReason, Ungraded

THOUGHT = "let me see</think>\n\n"


def _call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


FIX = _call("replace", path="calc.py", old="a - b", new="a + b")
GOOD = [THOUGHT + FIX, THOUGHT + _call("run_tests"), THOUGHT + _call("submit")]
BAD = [THOUGHT + _call("run_tests"), THOUGHT + _call("submit")]


def _tokenizer(kind: str) -> ToyTokenizer:
    chosen = KINDS[kind]
    return ToyTokenizer(special_tokens=chosen.special, eos=chosen.end, chat_template=chosen.template)


def play(kind: str, scripts: list[list[str]], *, limits: Limits | None = None, verifier: RuleVerifier | None = None):
    """Run one group in which member i follows script i; return the group, the ledger, the dropped ones and the engine."""
    tokenizer = _tokenizer(kind)
    turns: dict[str, int] = {}

    class _Engine(ScriptedEngine):
        async def generate(self, request):
            member = int(request.session.rpartition("/")[2].partition(".")[0])
            turn = turns[request.session] = turns.get(request.session, -1) + 1
            self.policy = lambda context: scripts[member][turn]
            return await super().generate(request)

    engine = _Engine(policy=lambda context: "", tokenizer=tokenizer, end_token=KINDS[kind].end)
    environment = calc_environment(limits=limits or Limits(max_context_tokens=20_000), verifier=verifier)
    environment = replace(environment, harness=ToolCallHarness(test_argv=("test",)))
    parts = stage(engine, environment, tokenizer=tokenizer)
    group, ledger, dropped = run_group(parts, RolloutConfig(retries=1), size=len(scripts))
    return group, ledger, dropped, engine


def test_each_row_is_what_the_engine_received():
    group, ledger, _, engine = play("thinking", [GOOD])
    rows = [member.trajectory for member in group.members]
    assert [row.id for row in rows] == ["g/0.0", "g/0.0+1", "g/0.0+2"]
    assert [(row.parent_id, row.forked_at) for row in rows] == [(None, None), ("g/0.0", 0), ("g/0.0", 0)]
    assert [len(row.turns) for row in rows] == [1, 1, 1]
    for row, call in zip(rows, engine.calls, strict=True):
        assert row.prompt_ids.tolist() == call.context_ids
    texts = [_tokenizer("thinking").decode_marked(row.token_ids()) for row in rows]
    assert [text.count("let me see") for text in texts] == [1, 1, 1], "only the thinking of the turn that is written"
    assert texts[2].count("<tool_response>") == 2
    assert {row.stop for row in rows} == {StopReason.SUBMITTED}
    assert {member.disposition for member in group.members} == {group.members[0].disposition}
    assert group.members[0].disposition.reward == 1.0
    assert ledger.snapshot() == {"submitted": 1, "graded": 1, "ungraded": 0, "running": 0, "retried": 0}


@pytest.mark.parametrize("kind", ["chatml", "hermes", "llama", "mistral", "gemma"])
def test_one_row_where_the_template_only_adds(kind):
    group, _, _, engine = play(kind, [GOOD])
    (member,) = group.members
    whole = member.trajectory.token_ids().tolist()
    assert len(engine.calls) == 3
    for call in engine.calls:
        assert call.context_ids == whole[: len(call.context_ids)]
    assert member.disposition.reward == 1.0
    assert [turn.action.text for turn in member.trajectory.turns] == GOOD


def _same_episodes():
    """Two groups of the same actions: the one in single rows, the other in a row per turn."""
    scripts = [GOOD, BAD, BAD, BAD]
    return play("hermes", scripts)[0], play("thinking", scripts)[0]


def test_an_episode_of_several_rows_counts_once_in_the_baseline():
    single, several = _same_episodes()
    assert (len(single.members), len(several.members)) == (4, 9)
    for estimator in (Grpo(), Grpo(normalise="none"), Rloo()):
        one, many = estimator(single), estimator(several)
        for member in several.members:
            root = member.trajectory.parent_id or member.trajectory.id
            assert many[member.trajectory.id].tolist() == [one[root][0]]


@pytest.mark.parametrize("aggregation", ["token-mean", "sequence-mean", "sequence-sum"])
def test_an_episode_of_several_rows_counts_once_in_the_loss(aggregation):
    single, several = _same_episodes()
    config = BatchConfig(aggregation=aggregation)
    rows = training_rows([several], assign_credit([several], Grpo()), config)
    plain = training_rows([single], assign_credit([single], Grpo()), config)
    check_trained_once([several], rows)
    assert (len(rows), len(plain)) == (9, 4)
    for root in plain:
        own = [row for row in rows if row.trajectory_id.partition("+")[0] == root.trajectory_id]
        for name in ("token_ids", "rollout_logprobs", "advantages", "weights"):
            joined = np.concatenate([getattr(row, name)[row.loss_mask] for row in own])
            assert np.array_equal(joined, getattr(root, name)[root.loss_mask]), name


def test_an_episode_of_several_rows_counts_once_in_every_number():
    single, several = _same_episodes()
    assert solve_counts([single]) == solve_counts([several]) == (1, 4)
    one, many = episode_metrics([single], []), episode_metrics([several], [])
    longer = {"context_tokens_mean", "context_tokens_max"}
    assert {key: value for key, value in one.items() if key not in longer} == {
        key: value for key, value in many.items() if key not in longer
    }
    assert one["turns_mean"] == 2.25 and one["tests_run_mean"] == 1.0
    rows = training_rows([several], assign_credit([several], Grpo()))
    assert disposition_counts([several], rows) == {"trained": 4}
    assert row_metrics(rows, [several], 0)["groups_trained"] == 1


def test_rewards_are_dealt_out_to_episodes():
    _, several = _same_episodes()
    seen = set()
    for seed in range(20):
        (dealt,) = deal_out_rewards([several], seed)
        seen.add(tuple(episode.reward for episode in episodes(dealt)))  # raises where rows of an episode differ
    assert {sum(rewards) for rewards in seen} == {1.0}
    assert len(seen) == 4


def test_a_retried_episode_keeps_all_of_its_rows():
    group, ledger, dropped, _ = play("thinking", [GOOD], verifier=RuleVerifier(crashes=1))
    assert [member.trajectory.id for member in dropped] == ["g/0.0", "g/0.0+1", "g/0.0+2"]
    assert {member.trajectory.stop for member in dropped} == {StopReason.VERIFIER_ERROR}
    assert all(isinstance(member.verdict, Ungraded) for member in dropped)
    assert [member.trajectory.id for member in group.members] == ["g/0.1", "g/0.1+1", "g/0.1+2"]
    assert ledger.snapshot() == {"submitted": 2, "graded": 1, "ungraded": 1, "running": 0, "retried": 1}
    assert episode_metrics([group], dropped)["members_excluded"] == 1
    assert VerifierError.__name__ not in group.members[0].trajectory.detail


def test_a_row_in_which_nothing_was_done_is_left_out():
    group, *_ = play("thinking", [GOOD], limits=Limits(max_turns=2, max_context_tokens=20_000))
    assert [len(member.trajectory.turns) for member in group.members] == [1, 1]
    assert {member.trajectory.stop for member in group.members} == {StopReason.MAX_TURNS}


def test_calls_in_a_row_that_can_not_be_read_end_the_episode():
    group, *_ = play("hermes", [["I give it a thought."] * 5])
    (member,) = group.members
    assert member.trajectory.stop is StopReason.FORMAT_ERROR
    assert member.disposition.reward == 0.0
    assert member.trajectory.usage.bad_calls == Limits().max_bad_calls
    mixed = ["<tool_call>", _call("run_tests")] * 4 + [_call("submit")]
    assert play("hermes", [mixed])[0].members[0].trajectory.stop is StopReason.SUBMITTED
