"""Corrections for a stale sampler, through the policy loss that training uses.

The loss is a plain sum over tokens, so its derivative by each token's log-probability is the coefficient with which that
token's score enters the gradient; nothing of a correction is written again here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sanderling.credit.catalogue import load_estimator
from sanderling.creditbench.gradients import logit_gradients, weighted_advantages
from sanderling.creditbench.mdp import BoolArray, FiniteMdp, FloatArray
from sanderling.creditbench.measurement import GROUP_SIZE, GROUPS_PER_UPDATE, PER_UPDATE, PIECE, Place
from sanderling.creditbench.quality import Quality, measure
from sanderling.creditbench.records import Recorder
from sanderling.loss.config import LossConfig

_NOW = "recompute"  # with one update per batch the policy at its start is the present one

CORRECTIONS: Mapping[str, LossConfig] = {
    "none": LossConfig(old_logprobs=_NOW),
    "importance": LossConfig(old_logprobs=_NOW, correction="full"),
    "importance-sequence": LossConfig(old_logprobs=_NOW, correction="full", correction_level="sequence"),
    "tis": LossConfig(old_logprobs=_NOW, correction="truncate", correction_high=2.0),
    "icepop": LossConfig(old_logprobs=_NOW, correction="mask", correction_low=0.5, correction_high=5.0),
    "ppo": LossConfig(),
    "cispo": LossConfig(surrogate="cispo"),
    "dis": LossConfig(surrogate="dis"),
    "k2.5": LossConfig(surrogate="k2.5", ratio_low=0.5, ratio_high=2.0, log_ratio_penalty=0.04),
    "opsm": LossConfig(old_logprobs=_NOW, correction="full", drift_bound=0.05),
}
"""By the names of docs/names.md and the literature; "ppo" is the clip around the stale sampler, "opsm" importance weights
without the drifted sequences of negative advantage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What a loss sees of some episodes; arrays are (N, T)."""

    now: FloatArray  # log-probabilities of the taken actions under the present policy
    sampler: FloatArray  # under the policy that took them
    weighted: FloatArray  # advantage times `weight`
    taken: BoolArray
    weight: float  # of one token, the same for all


def coefficients(tokens: Tokens, config: LossConfig) -> FloatArray:
    """Return -d loss / d logprob of each token, (N, T); zeros on turns that were not taken."""
    import torch

    from sanderling.loss.policy import TokenBatch, policy_loss

    taken = tokens.taken
    logprobs, sampler = torch.tensor(tokens.now[taken], requires_grad=True), torch.tensor(tokens.sampler[taken])
    batch = TokenBatch(
        old_logprobs=logprobs.detach() if config.old_logprobs == _NOW else sampler,
        rollout_logprobs=sampler,
        advantages=torch.tensor(tokens.weighted[taken]) / tokens.weight,
        weights=torch.full_like(sampler, tokens.weight),
        sequences=torch.tensor(np.nonzero(taken)[0]),
    )
    loss, _ = policy_loss(logprobs, None, batch, config)
    (by_logprob,) = torch.autograd.grad(loss, logprobs)
    out = np.zeros_like(tokens.weighted)
    out[taken] = -by_logprob.numpy()
    return out


def measure_corrections(
    mdp: FiniteMdp, sampled: FloatArray, now: FloatArray, updates: int, seed: int
) -> dict[str, Quality]:
    """Return the quality of RLOO's gradient at policy `now` (F, A) from episodes of `sampled` (F, A), by correction.

    Ratios of single tokens leave uncorrected which states the old policy led to, so that only whole sequences are exact.
    """
    sampler, target = Place(mdp=mdp, policy=sampled), Place(mdp=mdp, policy=now)
    rng, estimator = np.random.default_rng(seed), load_estimator("rloo")
    samples: dict[str, list[FloatArray]] = {name: [] for name in CORRECTIONS}
    turns: list[FloatArray] = []
    for first in range(0, updates, PIECE):
        walks = sampler.walks(min(PIECE, updates - first), rng)
        groups = Recorder(mdp=mdp, policies=sampled[None]).groups(walks, GROUP_SIZE)
        batches = [groups[i : i + GROUPS_PER_UPDATE] for i in range(0, len(groups), GROUPS_PER_UPDATE)]
        length = walks.states.shape[1]
        given = np.stack([weighted_advantages(batch, estimator, length, "sequence-sum") for batch in batches])
        views = mdp.views[walks.states, np.arange(length)]
        tokens = Tokens(
            now=np.log(now[views, walks.actions]),
            sampler=np.log(sampled[views, walks.actions]),
            weighted=given.reshape(len(walks), length),
            taken=walks.taken,
            weight=1.0 / PER_UPDATE,
        )
        for name, config in CORRECTIONS.items():
            found = logit_gradients(mdp, now, walks, coefficients(tokens, config).reshape(given.shape))
            samples[name].append(found.reshape(len(found), -1))
        turns.append(walks.lengths.reshape(-1, PER_UPDATE).sum(1).astype(np.float64))
    exact, spent = target.exact_gradient.ravel(), np.concatenate(turns)
    return {name: measure(np.concatenate(parts), exact, spent) for name, parts in samples.items()}
