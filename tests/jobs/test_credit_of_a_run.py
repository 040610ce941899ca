"""Credit and losses in whole runs: what can't act is refused before anything starts, what can acts."""

import json
from dataclasses import replace

import pytest
from letter_runs import LETTERS, run_training

from sanderling.assemble import load_environment, load_policy_folder
from sanderling.config import load_config
from sanderling.errors import ConfigError
from sanderling.jobs.settings import check_credit, provided_signals
from sanderling.rollout.checks import check_one_row
from sanderling.testing.letters import LetterHarness, _Letters
from sanderling.testing.tiny_model import tiny_llama_folder
from sanderling.types import Signal

SMALL = {
    "steps": 3,
    "rollout.groups_per_step": 64,
    "rollout.group_size": 1,
    "evaluation.tasks": 2,
    "credit.estimator": "turn-gae",
    "critic.model": "head",
    "critic.warmup_steps": 1,
    "critic.learning_rate": 1e-2,
}


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return tiny_llama_folder(tmp_path_factory.mktemp("policy") / "tiny")


def config_of(**settings):
    return load_config((), {**LETTERS, **{key.replace("__", "."): value for key, value in settings.items()}})


def environment(provides=frozenset()):
    return replace(load_environment(LETTERS["environment"]), provides=provides)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"credit__estimator": "turn-gae"}, "needs turn values, which this run doesn't have"),
        ({"credit__estimator": "token-gae"}, "needs token values.*critic.model"),
        ({"credit__estimator": "mt-grpo"}, "needs turn rewards.*Environment.provides"),
        ({"credit__estimator": "turn-credit"}, "needs turn scores"),
        ({"credit__estimator": "tree-grpo"}, "needs forks"),
        (
            {"critic__model": "head", "critic__warmup_steps": 1},
            "critic.model = 'head' has no effect with credit.estimator = 'grpo'",
        ),
        (
            {"credit__estimator": "turn-gae", "critic__model": "head", "critic__warmup_steps": 8},
            "leaves none of 8 steps",
        ),
    ],
)
def test_what_cannot_act_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        check_credit(config_of(**settings), environment())


def test_a_group_of_one_is_refused_where_siblings_are_compared():
    for name in ("grpo", "gigpo", "opo", "reinforce++-baseline"):
        with pytest.raises(ConfigError, match="compares siblings"):
            config_of(credit__estimator=name, rollout__group_size=1)
    for name in ("reinforce", "other-tasks", "reinforce++", "turn-gae"):
        config_of(credit__estimator=name, rollout__group_size=1)


def test_what_a_run_provides():
    config = config_of(credit__estimator="turn-gae", critic__model="separate", rollout__group_size=1)
    found = provided_signals(config, environment(frozenset({Signal.TURN_REWARDS})))
    assert found == {Signal.STATE_KEYS, Signal.TURN_REWARDS, Signal.TURN_VALUES, Signal.TOKEN_VALUES}
    assert Signal.SIBLINGS in provided_signals(config_of(), environment())


def metrics_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_value_model_and_single_episodes(policy, tmp_path):
    config = load_config((), {**LETTERS, **SMALL, "policy": str(policy)})
    run_training(config, tmp_path / "run")
    first, second, third = metrics_of(tmp_path / "run")
    assert first["counts"]["updates"] == 0 and first["counts"]["dropped_critic_warmup"] > 0
    assert first["counts"]["trained"] == 0 and first["policy_version"] == 0
    assert second["counts"]["updates"] == 1 and third["policy_version"] == 2
    for report in (first, second, third):
        assert report["metrics"]["critic_loss"] >= 0.0 and "value_bias" in report["metrics"]
        dropped = sum(n for name, n in report["counts"].items() if name.startswith("dropped_"))
        assert report["counts"]["trained"] + dropped == report["counts"]["graded"] == 64
    assert first["metrics"]["value_mean"] == 0.0 and third["metrics"]["value_mean"] != 0.0


class _Paid(_Letters):
    """Pays each e at once, and says how many there were."""

    async def act(self, text):
        reply = await super().act(text)
        return replace(reply, reward=0.5 * text.count("e"), score=float(text.count("e")))


class PaidHarness(LetterHarness):
    def start(self, task, sandbox):
        return _Paid(sandbox)


def paid_environment():
    return replace(
        load_environment(LETTERS["environment"]),
        harness=PaidHarness(),
        provides=frozenset({Signal.TURN_REWARDS, Signal.TURN_SCORES}),
    )


def test_turn_rewards_reach_credit_and_store(policy, tmp_path):
    from sanderling.store.reader import RunReader

    settings = {
        **LETTERS,
        "policy": str(policy),
        "environment": f"{__file__}:paid_environment",
        "steps": 1,
        "evaluation.tasks": 2,
        "credit.estimator": "turn-return",
        "loss.surrogate": "gspo",
        "loss.clip_low": 3e-4,
        "loss.clip_high": 4e-4,
        "loss.kl_coefficient": 0.01,
    }
    run_training(load_config((), settings), tmp_path / "run")
    (report,) = metrics_of(tmp_path / "run")
    assert report["counts"]["updates"] == 1 and report["metrics"]["kl_to_reference"] == pytest.approx(0.0, abs=1e-6)
    turns = [t for m in RunReader(tmp_path / "run").rollouts(1).members() for t in m.trajectory.turns]
    assert any(t.reward > 0 for t in turns) and all(t.reward == 0.5 * t.score for t in turns)


class _Rewriting:
    """A transcript that begins a row after its second action."""

    def __init__(self, real):
        self._real, self._count = real, 0
        self.prompt_ids = real.prompt_ids

    def extend(self, action, observations):
        self._count += 1
        more = self._real.extend(action, observations)
        return more if self._count < 2 else replace(more, token_ids=more.token_ids[:0], new_prompt_ids=self.prompt_ids)


class _RewritingCodec:
    def __init__(self, real):
        self._real = real

    def __getattr__(self, name):
        return getattr(self._real, name)

    def open(self, prompt):
        return _Rewriting(self._real.open(prompt))


def test_a_loss_of_sequences_is_refused_where_episodes_get_several_rows(policy):
    tokenizer = load_policy_folder(str(policy)).tokenizer
    codec = environment().harness.codec(tokenizer)
    check_one_row(codec, tokenizer, "Write an e.")
    with pytest.raises(ConfigError, match="rewrites earlier turns"):
        check_one_row(_RewritingCodec(codec), tokenizer, "Write an e.")
