"""Dynamic programming: values, success and the exact policy gradient of a `FiniteMdp`.

The objective is J = P(goal within `eval_turns`), from a start drawn evenly. With logits l[view, action]

    dJ / dl[f, a] = sum_t sum_s P(s_t = s) 1[view(s, t) = f] pi(a | f) (Q_t(s, a) - V_t(s))

Source: the policy gradient theorem (Sutton et al., NIPS 1999), summed instead of sampled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sanderling.creditbench.mdp import FiniteMdp, FloatArray, softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Chances to reach the goal under one policy, with t turns done."""

    values: FloatArray  # (T + 1, S)
    action_values: FloatArray  # (T, S, A)

    def advantages(self) -> FloatArray:
        """Return (T, S, A): what one action is better than the policy's average."""
        return self.action_values - self.values[:-1, :, None]


def solve(mdp: FiniteMdp, policy: FloatArray, turns: int | None = None) -> Solution:
    """Return the values of `policy` (F, A) where an episode may have `turns` turns; default: those of the objective."""
    turns = mdp.eval_turns if turns is None else turns
    values = np.zeros((turns + 1, len(mdp.terminal)))
    action_values = np.zeros((turns, len(mdp.terminal), mdp.num_actions))
    values[turns, mdp.goal] = 1.0
    for t in reversed(range(turns)):
        action_values[t] = mdp.transitions @ values[t + 1]
        values[t] = (policy[mdp.views[:, t]] * action_values[t]).sum(-1)
        values[t, mdp.terminal] = 0.0
        values[t, mdp.goal] = 1.0
    return Solution(values=values, action_values=action_values)


def successes(mdp: FiniteMdp, policies: FloatArray) -> FloatArray:
    """Return J of each policy, (K,) for `policies` (K, F, A)."""
    values = np.zeros((len(policies), len(mdp.terminal)))
    values[:, mdp.goal] = 1.0
    for t in reversed(range(mdp.eval_turns)):
        worth = np.einsum("sax,kx->ksa", mdp.transitions, values)
        values = (policies[:, mdp.views[:, t]] * worth).sum(-1)
        values[:, mdp.terminal] = 0.0
        values[:, mdp.goal] = 1.0
    return values[:, list(mdp.starts)].mean(1)


def success(mdp: FiniteMdp, policy: FloatArray) -> float:
    """Return J, between 0 and 1."""
    return float(solve(mdp, policy).values[0, list(mdp.starts)].mean())


def policy_gradient(mdp: FiniteMdp, policy: FloatArray) -> FloatArray:
    """Return dJ/dlogits (F, A) of a tabular softmax policy (F, A)."""
    advantages = solve(mdp, policy).advantages()
    reached = np.zeros(len(mdp.terminal))
    reached[list(mdp.starts)] = 1.0 / len(mdp.starts)
    gradient = np.zeros((mdp.num_views, mdp.num_actions))
    for t in range(mdp.eval_turns):
        reached = reached * ~mdp.terminal
        chances = policy[mdp.views[:, t]]
        np.add.at(gradient, mdp.views[:, t], reached[:, None] * chances * advantages[t])
        reached = np.einsum("s,sa,sax->x", reached, chances, mdp.transitions)
    return gradient


def reference_policy(mdp: FiniteMdp, target: float, *, rate: float = 0.1, limit: int = 4000) -> FloatArray:
    """Return the first policy (F, A) on the ascent from the uniform one whose success is at least `target`.

    Ascends with steps of `rate` in the largest entry of the gradient. A policy half-way to the optimum is where
    estimators differ: at the start nothing succeeds, at the end nothing fails.

    Raises:
        ValueError: `target` isn't reached in `limit` steps.
    """
    logits = np.zeros((mdp.num_views, mdp.num_actions))
    for _ in range(limit):
        policy = softmax(logits)
        if success(mdp, policy) >= target:
            return policy
        gradient = policy_gradient(mdp, policy)
        logits += rate * gradient / np.abs(gradient).max()
    raise ValueError(f"{mdp.name}: success {success(mdp, policy):.3f} after {limit} steps, expected at least {target}")
