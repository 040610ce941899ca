"""Corrections for a stale sampler, through the policy loss that training uses.

The loss is a plain sum over tokens, so its derivative by each token's log-probability is the coefficient with which that
token's score enters the gradient; nothing of a correction is written again here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sanderling.credit.catalogue import load_estimator
from sanderling.creditbench.gradients import logit_gradients, weighted_advantages
from sanderling.creditbench.mdp import FiniteMdp, FloatArray
from sanderling.creditbench.measurement import GROUP_SIZE, GROUPS_PER_UPDATE, PER_UPDATE, PIECE, Place
from sanderling.creditbench.quality import Quality, measure
from sanderling.creditbench.records import Recorder
from sanderling.loss.config import LossConfig

ANY = 1e9

CORRECTIONS: Mapping[str, LossConfig] = {
    "none": LossConfig(old_logprobs="recompute"),
    "importance": LossConfig(old_logprobs="recompute", correction="truncate", correction_high=ANY),
    "truncated 2": LossConfig(old_logprobs="recompute", correction="truncate", correction_high=2.0),
    "truncated 1.28": LossConfig(old_logprobs="recompute", correction="truncate", correction_high=1.28),
    "masked 0.5-5": LossConfig(old_logprobs="recompute", correction="mask", correction_low=0.5, correction_high=5.0),
    "masked 0.2-4": LossConfig(old_logprobs="recompute", correction="mask", correction_low=0.2, correction_high=4.0),
    "clipped": LossConfig(old_logprobs="rollout"),
}
"""With one update per batch the proximal policy is the current one, so that the ratio to it is 1 and the correction is all.
"truncated 2" is TIS, "truncated 1.28" is CISPO's bound, "masked 0.5-5" is IcePop's and "masked 0.2-4" one of DIS; "clipped"
is PPO's clip around the stale sampler."""


def coefficients(now: FloatArray, sampler: FloatArray, weighted: FloatArray, config: LossConfig) -> FloatArray:
    """Return -d loss / d logprob of each token, shaped as the arguments.

    Args:
        now: log-probabilities of the taken actions under the current policy.
        sampler: the same under the policy that took them.
        weighted: weight times advantage, 0 where nothing is trained.
        config: the loss.
    """
    import torch

    from sanderling.loss.policy import TokenBatch, policy_loss

    trained = weighted != 0
    logprobs = torch.tensor(now[trained], requires_grad=True)
    old = logprobs.detach() if config.old_logprobs == "recompute" else torch.tensor(sampler[trained])
    batch = TokenBatch(
        old_logprobs=old,
        rollout_logprobs=torch.tensor(sampler[trained]),
        advantages=torch.tensor(weighted[trained]),
        weights=torch.ones(len(old), dtype=torch.float64),
    )
    if not trained.any():
        return np.zeros_like(weighted)
    loss, _ = policy_loss(logprobs, None, batch, config)
    (by_logprob,) = torch.autograd.grad(loss, logprobs)
    out = np.zeros_like(weighted)
    out[trained] = -by_logprob.numpy()
    return out


def measure_corrections(
    mdp: FiniteMdp, sampled: FloatArray, now: FloatArray, updates: int, seed: int
) -> dict[str, Quality]:
    """Return the quality of RLOO's gradient at policy `now` (F, A) from episodes of `sampled` (F, A), by correction.

    Single-token ratios leave what an old policy met on its way uncorrected, so that none of them is exact.
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
        new, old = (np.log(p[views, walks.actions]).reshape(given.shape) for p in (now, sampled))
        for name, config in CORRECTIONS.items():
            found = logit_gradients(mdp, now, walks, coefficients(new, old, given, config))
            samples[name].append(found.reshape(len(found), -1))
        turns.append(walks.lengths.reshape(-1, PER_UPDATE).sum(1).astype(np.float64))
    exact, spent = target.exact_gradient.ravel(), np.concatenate(turns)
    return {name: measure(np.concatenate(parts), exact, spent) for name, parts in samples.items()}
