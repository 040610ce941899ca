"""What must hold of credit per turn and per token, whatever the numbers are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.batch import assign_credit, training_rows
from sanderling.credit import ESTIMATORS, Gigpo, Grpo, MtGrpo, Reinforce, TokenGae, TurnCredit, TurnGae, load_estimator
from sanderling.credit.paths import paths
from sanderling.credit.turn_scores import score_changes, smeared
from sanderling.errors import InvariantViolation
from sanderling.testing import records
from sanderling.testing.group_files import fixture
from sanderling.types import StopReason, Values

numbers = st.integers(-8, 8).map(lambda n: n / 4)


def filled(group):
    """Every signal at every turn, so that any estimator can work."""
    members = []
    for i, m in enumerate(group.members):
        turns = tuple(
            replace(t, reward=0.1 * ((i + k) % 3), score=0.2 * ((i * k) % 4), state_key=t.state_key or f"s{k}")
            for k, t in enumerate(m.trajectory.turns)
        )
        members.append(
            replace(
                m,
                trajectory=replace(m.trajectory, turns=turns),
                values=m.values or Values(at_turns=np.zeros(len(turns))),
            )
        )
    return replace(group, members=tuple(members))


def in_two_rows(group, index, after):
    """The same episode with its turns from `after` on in a row of their own."""
    root = group.members[index]
    trajectory, values = root.trajectory, root.values
    tokens = sum(len(t.action.token_ids) for t in trajectory.turns[:after])

    def part(turns, token_part):
        return Values(at_turns=values.at_turns[turns], at_tokens=values.at_tokens[token_part], at_end=values.at_end)

    first = replace(
        root, trajectory=replace(trajectory, turns=trajectory.turns[:after]), values=part(slice(after), slice(tokens))
    )
    second = replace(
        root,
        trajectory=replace(
            trajectory, id=f"{trajectory.id}+1", parent_id=trajectory.id, forked_at=0, turns=trajectory.turns[after:]
        ),
        values=part(slice(after, None), slice(tokens, None)),
    )
    return replace(group, members=(*group.members[:index], first, second, *group.members[index + 1 :]))


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"compaction-gae", "tree-grpo", "tree-value"}))
def test_rows_of_an_episode_get_what_the_episode_gets(name):
    whole = filled(fixture("four_trajectories"))
    split = in_two_rows(whole, 1, 2)
    one, two = (assign_credit([g], load_estimator(name)) for g in (whole, split))
    assert np.concatenate([two["G/1.0"], two["G/1.0+1"]]) == pytest.approx(one["G/1.0"], abs=1e-12)
    for other in ("G/0.0", "G/2.0", "G/3.0"):
        assert two[other] == pytest.approx(one[other], abs=1e-12)


def group_of(rewards, lengths, keys=None, values=None):
    members = []
    for i, (reward, length) in enumerate(zip(rewards, lengths, strict=True)):
        turns = [records.turn("do", state_key=None if keys is None else keys(i, k)) for k in range(length)]
        made = records.member(records.trajectory(turns, id=f"g/{i}.0"), reward)
        counts = sum(len(t.action.token_ids) for t in turns)
        given = Values(at_turns=np.full(length, values or 0.0), at_tokens=np.full(counts, values or 0.0))
        members.append(replace(made, values=given))
    return replace(records.group([], id="g"), members=tuple(members))


some = st.lists(st.tuples(numbers, st.integers(1, 4)), min_size=2, max_size=5).map(
    lambda pairs: tuple(zip(*pairs, strict=True))
)


@settings(max_examples=10)
@given(some)
def test_gae_without_values_is_reinforce(pairs):
    group = group_of(*pairs)
    plain = Reinforce()(group)
    for name, advantages in TurnGae(lam=1.0)(group).items():
        assert advantages == pytest.approx(plain[name], abs=1e-12)
    for name, advantages in TokenGae(lam=1.0)(group).items():
        assert advantages == pytest.approx(np.full(len(advantages), plain[name][0]), abs=1e-12)


@settings(max_examples=10)
@given(some)
def test_gae_against_the_mean_of_the_group_is_mean_only(pairs):
    rewards, lengths = pairs
    group = group_of(rewards, lengths, values=float(np.mean(rewards)))
    mean_only = Grpo(normalise="none")(group)
    for name, advantages in TurnGae(lam=1.0)(group).items():
        assert advantages[0] == pytest.approx(mean_only[name][0], abs=1e-9)


@settings(max_examples=10)
@given(some)
def test_gigpo_with_unique_keys_is_the_episode_part(pairs):
    group = group_of(*pairs, keys=lambda i, k: f"{i}.{k}")
    for normalise in ("none", "std"):
        episode = Grpo(normalise=normalise)(group)
        for name, advantages in Gigpo(normalise=normalise)(group).items():
            assert advantages == pytest.approx(episode[name], abs=1e-9)


@settings(max_examples=10)
@given(st.lists(numbers, min_size=2, max_size=5), st.integers(1, 4))
def test_gigpo_with_keys_of_time_counts_the_episode_twice(rewards, length):
    group = group_of(rewards, [length] * len(rewards), keys=lambda i, k: f"{k}")
    episode = Grpo(normalise="none")(group)
    for name, advantages in Gigpo(normalise="none", gamma=1.0)(group).items():
        assert advantages == pytest.approx(2 * episode[name], abs=1e-9)


def test_without_weight_turn_rewards_and_scores_have_no_say():
    for estimator in (MtGrpo(turn_weight=0.0), TurnCredit(turn_weight=0.0)):
        group = filled(fixture("four_trajectories"))
        plain = Grpo()(group)
        for name, advantages in estimator(group).items():
            assert np.array_equal(advantages, plain[name])


@settings(max_examples=15)
@given(st.lists(numbers, min_size=1, max_size=6), st.floats(0, 1))
def test_smeared_changes_keep_their_sum(changes, gamma):
    credit = smeared(np.array(changes), gamma)
    assert credit.sum() == pytest.approx(sum(changes), abs=1e-9)


def test_changes_of_the_score_telescope():
    path, *_ = paths(fixture("turn_scores"))
    changes = score_changes(path, 0.2)
    assert changes.sum() == pytest.approx(1.0 - 0.2)
    gap = replace(path, turns=(path.turns[0], replace(path.turns[1], score=None), path.turns[2]))
    assert score_changes(gap, 0.2).tolist() == pytest.approx([0.1, 0.0, 0.7])


@settings(max_examples=10)
@given(some, st.floats(0, 1), st.floats(0.1, 1))
def test_a_cut_episode_worth_nothing_is_one_that_ended(pairs, lam, gamma):
    ended = group_of(*pairs, values=0.3)
    cut = replace(
        ended,
        members=tuple(
            replace(
                m,
                trajectory=replace(m.trajectory, stop=StopReason.MAX_TURNS),
                values=replace(m.values, at_end=0.0),
            )
            for m in ended.members
        ),
    )
    for kind in (TurnGae, TokenGae):
        estimator = kind(lam=lam, gamma=gamma)
        for name, advantages in estimator(cut).items():
            assert np.array_equal(advantages, estimator(ended)[name])


def test_credit_per_token_reaches_its_tokens():
    group = fixture("four_trajectories")
    credit = assign_credit([group], load_estimator("token-gae"))
    for row in training_rows([group], credit):
        assert row.advantages[row.loss_mask] == pytest.approx(credit[row.trajectory_id].astype(np.float32))
        assert not row.advantages[~row.loss_mask].any()
    wrong = {name: advantages[:-1] for name, advantages in credit.items()}
    wrong["G/2.0"] = credit["G/2.0"]  # one token per turn: both shapes are the same
    with pytest.raises(
        InvariantViolation, match=r"'G/1\.0' has 3 turns of 6 action tokens, its credit has shape \(5,\)"
    ):
        training_rows([replace(group, members=group.members[1:])], wrong)
