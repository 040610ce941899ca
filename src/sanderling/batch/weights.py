"""Every denominator of the loss, as a weight per token: the loss is then a plain sum that no cut of the batch changes.

Loss aggregation of the literature, for N trained tokens and B rollouts in the whole batch:

    token-mean      sum_i sum_t l_it / N                      DAPO, arXiv 2503.14476, eq. 8
    sequence-mean   sum_i (sum_t l_it / L_i) / B              GRPO, arXiv 2402.03300, eq. 3
    sequence-sum    sum_i sum_t l_it / B
    constant        sum_i sum_t l_it / (B * L_max)            Dr. GRPO, arXiv 2503.20783, section 3.2

A rollout is an episode: several branches of it (after folding) share one place in B and one L_i.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sanderling.batch.config import BatchConfig
from sanderling.credit.episodes import Episode, episodes
from sanderling.credit.protocol import Credit
from sanderling.types import Gradient, Group


def is_dead(group: Group, credit: Credit) -> bool:
    """Return whether every turn of every graded member has advantage 0: the group says nothing about the policy."""
    return all(not np.any(credit[m.trajectory.id]) for m in group.graded())


def token_weights(groups: Sequence[Group], credit: Credit, config: BatchConfig) -> dict[str, float]:
    """Return the weight of one trained token, by id of each trajectory that is trained.

    Excluded members enter no denominator. Members whose gradient is NONE count in B when `config.count` is "members"
    and never in N, because none of their tokens is in the sum. Weights are positive; a batch without a trained token
    gives {}.
    """
    counted: list[Episode] = []
    for group in groups:
        if config.dead_groups == "count" or not is_dead(group, credit):
            counted += episodes(group)
    lengths = {e.id: e.num_trained_tokens for e in counted}
    tokens = sum(lengths.values())
    rollouts = len(counted) if config.count == "members" else sum(n > 0 for n in lengths.values())
    weights: dict[str, float] = {}
    for episode in counted:
        if lengths[episode.id] == 0:
            continue
        weight = _weight(config, tokens, rollouts, lengths[episode.id])
        for member in episode.members:
            if member.disposition.gradient is Gradient.FULL:
                weights[member.trajectory.id] = weight
    return weights


def _weight(config: BatchConfig, tokens: int, rollouts: int, own_tokens: int) -> float:
    match config.aggregation:
        case "token-mean":
            return 1.0 / tokens
        case "sequence-mean":
            return 1.0 / (rollouts * own_tokens)
        case "sequence-sum":
            return 1.0 / rollouts
        case "constant":
            assert config.constant_tokens is not None  # the configuration refuses "constant" without it
            return 1.0 / (rollouts * config.constant_tokens)
