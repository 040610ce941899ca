"""Invariants 1, 3, 5 and 6 of the way from groups to micro-batches. Cheap: numpy only, linear in the tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sanderling.batch.micro import MicroBatch, has_trained_tokens
from sanderling.batch.rows import assign_credit
from sanderling.credit.episodes import own_turns
from sanderling.credit.protocol import AcrossGroups, Credit, CreditEstimator
from sanderling.errors import InvariantViolation
from sanderling.types import Gradient, Group, Membership, TrainingRow, Trajectory

_COLUMNS = ("loss_mask", "turn_of_token", "rollout_logprobs", "policy_versions", "advantages", "weights")
_ZERO_OFF_MASK = ("rollout_logprobs", "policy_versions", "advantages", "weights")


def check_token_lists(trajectory: Trajectory) -> None:
    """Check that every sampled token has one finite log-probability, at most 0, and one version (invariant 1).

    Raises:
        InvariantViolation: names the trajectory and the turn.
    """
    for index, turn in enumerate(trajectory.turns):
        action = turn.action
        lengths = (len(action.token_ids), len(action.rollout_logprobs), len(action.policy_versions))
        where = f"invariant 1, trajectory {trajectory.id}, turn {index}"
        if len(set(lengths)) != 1:
            raise InvariantViolation(
                f"{where}: {lengths[0]} ids, {lengths[1]} log-probabilities, {lengths[2]} versions; expected as many of each"
            )
        if not np.all(np.isfinite(action.rollout_logprobs) & (action.rollout_logprobs <= 1e-6)):
            raise InvariantViolation(
                f"{where}: log-probabilities {action.rollout_logprobs}; expected finite numbers of at most 0"
            )


def check_row(row: TrainingRow) -> None:
    """Check that a row's columns have one length and are zero off the mask (invariant 1).

    Raises:
        InvariantViolation: names the trajectory and the column.
    """
    length = len(row.token_ids)
    for name in _COLUMNS:
        if (shape := getattr(row, name).shape) != (length,):
            raise InvariantViolation(
                f"invariant 1, row of trajectory {row.trajectory_id}: {name} has shape {shape}, expected ({length},)"
            )
    for name in _ZERO_OFF_MASK:
        if np.any(getattr(row, name)[~row.loss_mask]):
            raise InvariantViolation(
                f"invariant 1, row of trajectory {row.trajectory_id}: {name} isn't zero outside the loss mask"
            )
    if length and row.loss_mask[0]:
        raise InvariantViolation(
            f"row of trajectory {row.trajectory_id} trains its first token, which nothing predicts"
        )


def check_trained_once(groups: Sequence[Group], rows: Sequence[TrainingRow]) -> None:
    """Check that each sampled token is trained at most once, and exactly once unless its member isn't (invariant 3).

    Call it with the rows of whole groups, before any are left out for having no advantage. Groups that
    `dead_groups="drop"` left out must not be among `groups`.

    Raises:
        InvariantViolation: names the trajectory and how many of its tokens are trained.
    """
    found: Counter[str] = Counter(row.trajectory_id for row in rows)
    twice = [trajectory_id for trajectory_id, count in found.items() if count > 1]
    if twice:
        raise InvariantViolation(f"invariant 3: trajectories {', '.join(twice)} have more than one row")
    trained = {row.trajectory_id: int(row.loss_mask.sum()) for row in rows}
    for group in groups:
        for member in group.members:
            own = sum(len(turn.action.token_ids) for turn in own_turns(member.trajectory))
            expected = own if member.disposition.gradient is Gradient.FULL else 0
            got = trained.pop(member.trajectory.id, 0)
            if got != expected:
                raise InvariantViolation(
                    f"invariant 3, trajectory {member.trajectory.id}: {got} tokens are trained, expected {expected} "
                    f"(gradient {member.disposition.gradient.value}, reason {member.disposition.reason!r})"
                )
    if trained:
        raise InvariantViolation(
            f"invariant 3: rows of trajectories that are in no group: {', '.join(sorted(trained))}"
        )


def check_excluded_inert(groups: Sequence[Group], credit: Credit, estimator: CreditEstimator) -> None:
    """Check that the credit is what it would be if the excluded members had never existed (invariant 5).

    Args:
        groups: of the whole step.
        credit: of all of them.
        estimator: gave it.

    Raises:
        InvariantViolation: names the first trajectory whose advantages an excluded member changed.
    """
    affected = [group for group in groups if len(group.graded()) < len(group.members)]
    if not affected:
        return
    again = groups if isinstance(estimator, AcrossGroups) else affected
    without = assign_credit([replace(group, members=group.graded()) for group in again], estimator)
    for group in again:
        _check_inert(group, credit, without)


def _check_inert(group: Group, credit: Credit, without: Credit) -> None:
    for member in group.members:
        name, fate = member.trajectory.id, member.disposition
        if fate.membership is not Membership.MEMBER:
            if name in credit:
                raise InvariantViolation(
                    f"invariant 5, trajectory {name} is {fate.membership.value} ({fate.reason}) and got credit {credit[name]}"
                )
        elif not np.array_equal(credit[name], without[name]):
            raise InvariantViolation(
                f"invariant 5, trajectory {name}: advantages {credit[name]}, without the excluded members {without[name]}"
            )


def check_cut(rows: Sequence[TrainingRow], micros: Sequence[MicroBatch]) -> None:
    """Check that the cut lost and repeated nothing: each trained row's columns stand in exactly one micro-batch
    (invariant 6).

    The loss is a sum over trained tokens of something that depends on a token's row only, so this makes it
    independent of the cut.

    Raises:
        InvariantViolation: names the trajectory.
    """
    places: dict[int, list[tuple[MicroBatch, int]]] = {i: [] for i, row in enumerate(rows) if has_trained_tokens(row)}
    for micro in micros:
        for place, index in enumerate(micro.row_indices):
            places.setdefault(index, []).append((micro, place))
    for micro in micros:
        _check_flat(micro)
    for index, found in places.items():
        row = rows[index]
        if len(found) != 1:
            raise InvariantViolation(
                f"invariant 6, trajectory {row.trajectory_id}: its row is in {len(found)} micro-batches, expected 1"
            )
        micro, place = found[0]
        for name in ("token_ids", "loss_mask", "rollout_logprobs", "policy_versions", "advantages", "weights"):
            padded = getattr(micro, name)[place]
            kept, cut = padded[: micro.lengths[place]], getattr(row, name)
            rest = cut[micro.lengths[place] :] if name != "token_ids" else ()
            # A NaN compares with itself here: refusing it is the loss's business, which names it.
            floating = cut.dtype.kind == "f"
            same = np.array_equal(kept, cut[: len(kept)], equal_nan=floating)
            if not same or np.any(np.nan_to_num(rest)) or np.any(padded[len(kept) :]):
                raise InvariantViolation(
                    f"invariant 6, trajectory {row.trajectory_id}: {name} differs between row and micro-batch"
                )


def _check_flat(micro: MicroBatch) -> None:
    """Check that each trained token is predicted from the token before it, at that token's place in its own row."""
    if micro.flat is None:
        return
    before = micro.loss_mask[:, 1:]
    rows, positions = np.nonzero(before)
    predictors = micro.flat.predictors
    if predictors.shape != rows.shape:
        raise InvariantViolation(
            f"invariant 6: {len(rows)} trained tokens and {len(predictors)} places that predict them"
        )
    wrong = (micro.flat.token_ids[predictors] != micro.token_ids[:, :-1][before]) | (
        micro.flat.positions[predictors] != positions
    )
    if wrong.any():
        name = micro.trajectory_ids[rows[np.flatnonzero(wrong)[0]]]
        raise InvariantViolation(
            f"invariant 6, trajectory {name}: a trained token isn't predicted from the one before it"
        )
