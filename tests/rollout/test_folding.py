"""Folding: the context begins anew with a summary; the segments of the episode share one verdict and count once."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from stages import TOKENIZER, run_group, stage

from sanderling.batch.checks import check_trained_once
from sanderling.batch.config import BatchConfig
from sanderling.batch.rows import assign_credit, training_rows
from sanderling.config import load_config
from sanderling.credit.episodes import episodes
from sanderling.credit.grpo import Grpo
from sanderling.errors import ConfigError
from sanderling.harness.folding import folded_prompt, with_folding
from sanderling.harness.summaries import Summaries
from sanderling.harness.tool_call_harness import ToolCallHarness
from sanderling.rollout.config import RolloutConfig
from sanderling.testing.chat_templates import KINDS
from sanderling.testing.engines import ScriptedEngine
from sanderling.testing.environments import FIX, calc_environment
from sanderling.testing.toy_tokenizer import ToyTokenizer
from sanderling.types import Gradient, Limits, StopReason

SUMMARY = "line 2 subtracts"
GOOD = ["show", "test", f"fold|{SUMMARY}", FIX, "submit"]
BAD = ["show", "submit"]


def _tool_calls() -> ToyTokenizer:
    kind = KINDS["hermes"]
    return ToyTokenizer(special_tokens=kind.special, eos=kind.end, chat_template=kind.template)


def _call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def play(summaries: Summaries, scripts: list[list[str]], *, chat: bool = False, limits: Limits | None = None):
    """Run one group in which member i follows script i; return it, the ledger and the engine."""
    tokenizer = _tool_calls() if chat else TOKENIZER
    turns: dict[str, int] = {}

    class _Engine(ScriptedEngine):
        async def generate(self, request):
            member = int(request.session.rpartition("/")[2].partition(".")[0])
            turn = turns[request.session] = turns.get(request.session, -1) + 1
            self.policy = lambda context: scripts[member][turn]
            return await super().generate(request)

    engine = _Engine(
        policy=lambda context: "", tokenizer=tokenizer, end_token=KINDS["hermes"].end if chat else "<|end|>"
    )
    environment = calc_environment(limits=limits or Limits(max_context_tokens=20_000))
    harness = ToolCallHarness(test_argv=("test",)) if chat else environment.harness
    environment = replace(environment, harness=with_folding(harness, summaries))
    parts = stage(engine, environment, tokenizer=tokenizer)
    group, ledger, _ = run_group(parts, RolloutConfig(), size=len(scripts))
    return group, ledger, engine, parts


def test_the_context_begins_anew_with_the_summary():
    group, ledger, engine, parts = play(Summaries.TRAINED, [GOOD])
    rows = [member.trajectory for member in group.members]
    assert [(row.id, len(row.turns), row.parent_id) for row in rows] == [("g/0.0", 3, None), ("g/0.0+1", 2, "g/0.0")]
    prompt = parts.environment.harness.prompt(parts.environment.tasks.get("calc/train/0"))
    anew = parts.codec.encode_prompt(folded_prompt(prompt, SUMMARY))
    assert rows[1].prompt_ids.tolist() == anew.tolist() == engine.calls[3].context_ids
    assert len(rows[0].turns[2].observation.token_ids) == 0
    assert rows[0].turns[2].action.text == f"fold|{SUMMARY}"
    assert {row.stop for row in rows} == {StopReason.SUBMITTED}
    assert [m.disposition.reward for m in group.members] == [1.0, 1.0], "the files stayed as they were"
    assert ledger.snapshot()["submitted"] == 1


def test_a_summary_that_is_not_trained_has_a_row_of_its_own():
    group, _, engine, _ = play(Summaries.UNTRAINED, [GOOD])
    rows = [member.trajectory for member in group.members]
    assert [len(row.turns) for row in rows] == [2, 1, 2]
    assert [m.disposition.gradient for m in group.members] == [Gradient.FULL, Gradient.NONE, Gradient.FULL]
    assert rows[1].prompt_ids.tolist() == rows[0].token_ids().tolist() == engine.calls[2].context_ids
    assert {m.disposition.reward for m in group.members} == {1.0}


@pytest.mark.parametrize("summaries", [Summaries.TRAINED, Summaries.UNTRAINED])
def test_the_segments_of_an_episode_count_once(summaries):
    group, _, _, _ = play(summaries, [GOOD, BAD, BAD])
    assert [episode.reward for episode in episodes(group)] == [1.0, 0.0, 0.0]
    credit = assign_credit([group], Grpo())
    advantages = {name: set(values.tolist()) for name, values in credit.items()}
    of_the_first = [values for name, values in advantages.items() if name.startswith("g/0.0")]
    assert all(values == of_the_first[0] for values in of_the_first), "all segments share one advantage"
    plain, _, _, _ = play(Summaries.TRAINED, [[text for text in GOOD if not text.startswith("fold")], BAD, BAD])
    assert assign_credit([plain], Grpo())["g/0.0"][0] == pytest.approx(next(iter(of_the_first[0])))
    rows = training_rows([group], credit, BatchConfig(aggregation="sequence-mean"))
    check_trained_once([group], rows)
    shares = np.zeros(3)
    for row in rows:
        shares[int(row.trajectory_id[2])] += row.weights.sum()
    assert shares == pytest.approx([1 / 3] * 3), "each episode has one share of the loss, however often it folded"
    trained = {row.trajectory_id for row in rows}
    summary_rows = {m.trajectory.id for m in group.members if m.disposition.gradient is Gradient.NONE}
    assert bool(summary_rows) == (summaries is Summaries.UNTRAINED)
    assert not summary_rows & {row.trajectory_id for row in rows if row.loss_mask.any()}
    assert trained >= {"g/0.0", "g/1.0", "g/2.0"}


def test_an_episode_goes_on_beyond_its_context():
    limits = Limits(max_context_tokens=700, max_turns=200)
    longer = (["show"] * 3 + [f"fold|{SUMMARY}"]) * 12 + [FIX, "submit"]
    group, _, _, _ = play(Summaries.TRAINED, [longer], limits=limits)
    assert group.members[0].trajectory.stop is StopReason.SUBMITTED
    assert len(group.members) == 13
    assert sum(len(m.trajectory.token_ids()) for m in group.members) > 3 * limits.max_context_tokens
    unfolded, _, _, _ = play(Summaries.TRAINED, [["show"] * 50], limits=limits)
    assert unfolded.members[0].trajectory.stop is StopReason.MAX_TOKENS


def test_folds_in_a_row_and_folds_first_keep_the_accounts():
    script = [f"fold|{SUMMARY}", "fold|it adds wrongly", "fold|", FIX, "submit"]
    for summaries in (Summaries.TRAINED, Summaries.UNTRAINED):
        group, _, _, _ = play(summaries, [script, BAD])
        turns = [turn for m in group.members if m.trajectory.id.startswith("g/0") for turn in m.trajectory.turns]
        assert [turn.action.text for turn in turns] == script
        assert turns[2].observation.bad_calls == ("missing_argument",)
        credit = assign_credit([group], Grpo())
        check_trained_once([group], training_rows([group], credit))


def test_tools_get_a_fold_tool():
    script = [
        _call("run_tests"),
        _call("fold", summary=SUMMARY),
        _call("replace", path="calc.py", old="a - b", new="a + b"),
    ]
    group, _, engine, _ = play(Summaries.TRAINED, [[*script, _call("submit")]], chat=True)
    rows = [member.trajectory for member in group.members]
    assert [len(row.turns) for row in rows] == [2, 2]
    assert group.members[0].disposition.reward == 1.0
    text = _tool_calls().decode_marked(np.array(engine.calls[2].context_ids))
    assert SUMMARY in text and '"name": "fold"' in text and "run_tests" not in text.rpartition("Files:")[2]


def test_folding_is_off_unless_asked_for():
    group, _, _, _ = play(Summaries.OFF, [["fold|x", "submit"]])
    assert len(group.members) == 1
    assert group.members[0].trajectory.turns[0].observation.bad_calls == ("unknown",)
    assert load_config([]).folding is Summaries.OFF
    assert load_config([], {"folding": "untrained"}).folding is Summaries.UNTRAINED
    with pytest.raises(ConfigError, match="folding"):
        load_config([], {"folding": "sometimes"})
