"""From credit to gradients: what one update would do to the logits, for many updates at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sanderling.batch.config import BatchConfig
from sanderling.batch.rows import assign_credit
from sanderling.batch.weights import token_weights
from sanderling.credit.protocol import Credit, CreditEstimator
from sanderling.creditbench.mdp import FiniteMdp, FloatArray
from sanderling.creditbench.sampling import Walks
from sanderling.types import Group

Aggregation = Literal["token-mean", "sequence-mean", "sequence-sum"]


def weighted_advantages(
    batch: Sequence[Group], estimator: CreditEstimator, turns: int, aggregation: Aggregation
) -> FloatArray:
    """Return weight times advantage of each turn of one update's groups, (N, turns); 0 where nothing is trained.

    Credit and weights are those that a run would get, so that aggregation, excluded and untrained members count in the
    same way.
    """
    credit = assign_credit(batch, estimator)
    weights = token_weights(batch, credit, BatchConfig(aggregation=aggregation))
    scaled = {name: weight * credit[name] for name, weight in weights.items()}
    return by_turn(batch, scaled, turns)


def by_turn(batch: Sequence[Group], credit: Credit, turns: int) -> FloatArray:
    """Return the credit of all members in order as one array (N, turns), with zeros behind the end and where none is."""
    members = [member for group in batch for member in group.members]
    out = np.zeros((len(members), turns))
    for row, member in zip(out, members, strict=True):
        if (given := credit.get(member.trajectory.id)) is not None:
            row[: len(given)] = given
    return out


def logit_gradients(mdp: FiniteMdp, policies: FloatArray, walks: Walks, coefficients: FloatArray) -> FloatArray:
    """Return sum_i sum_t c_it d log pi(a_it) / d logits for each update, (U, F, A).

    Args:
        mdp: the process.
        policies: (U, F, A) at which the gradient is taken, or (F, A) for all.
        walks: N episodes, N / U of each update, neighbours together.
        coefficients: (U, N / U, T), zero on turns that were not taken.
    """
    updates = len(coefficients)
    views = mdp.views[walks.states, np.arange(walks.states.shape[1])].reshape(coefficients.shape)
    place = np.arange(updates)[:, None, None] * mdp.num_views + views
    place = place * mdp.num_actions + walks.actions.reshape(coefficients.shape)
    size = updates * mdp.num_views * mdp.num_actions
    direct = np.bincount(place.ravel(), coefficients.ravel(), minlength=size)
    direct = direct.reshape(updates, mdp.num_views, mdp.num_actions)
    return direct - policies * direct.sum(-1, keepdims=True)
