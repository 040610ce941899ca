"""What is compared: an estimator with its settings, and what it is told besides the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sanderling.credit.catalogue import load_estimator
from sanderling.credit.protocol import needs_of
from sanderling.creditbench.gradients import Aggregation
from sanderling.creditbench.mdp import FiniteMdp
from sanderling.creditbench.records import CutRule, TurnPay
from sanderling.creditbench.values import ValueSource
from sanderling.errors import ConfigError
from sanderling.types import Signal

EXACT = "exact"  # the estimator that isn't one: it knows the process


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One row of the table."""

    estimator: str  # as `credit.estimator` names it, or `EXACT`
    note: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    aggregation: Aggregation = "sequence-sum"
    values: ValueSource = ValueSource.NONE
    pay: TurnPay = TurnPay.NONE
    cut: CutRule = CutRule.TRAIN

    @property
    def told_more(self) -> bool:
        """It is told what episodes and outcomes don't say: something about turns, continuations, or the process."""
        return self.estimator == EXACT or self.pay is not TurnPay.NONE or self.values is ValueSource.CONTINUATIONS


_CRITIC = Arm(
    estimator="turn-gae",
    settings={"lam": 0.95, "at_budget": "terminal"},
    values=ValueSource.HISTORY,
    note="GAE over turns, lambda 0.95, a learnt table of full histories",
)

ARMS: Mapping[str, Arm] = {
    "rloo": Arm(estimator="rloo", note="leave-one-out mean of the siblings"),
    "grpo": Arm(estimator="grpo", note="mean and deviation of the siblings"),
    "reinforce": Arm(estimator="reinforce", note="no baseline (control)"),
    "other-tasks": Arm(estimator="other-tasks", note="mean of the other group (control)"),
    "rloo-sequence-mean": Arm(
        estimator="rloo", aggregation="sequence-mean", note="RLOO, every episode weighs the same"
    ),
    "rloo-token-mean": Arm(estimator="rloo", aggregation="token-mean", note="RLOO, every token weighs the same"),
    "gigpo": Arm(estimator="gigpo", note="as published: deviations, discount 0.95"),
    "gigpo-discounted": Arm(estimator="gigpo-mean", settings={"gamma": 0.95}, note="GiGPO, mean only, discount 0.95"),
    "gigpo-mean": Arm(estimator="gigpo-mean", note="GiGPO, mean only, no discount"),
    "gigpo-step": Arm(
        estimator="gigpo-step", settings={"gamma": 0.95}, note="the step part of GiGPO alone, discount 0.95"
    ),
    "hgpo": Arm(estimator="hgpo-released", note="HGPO as released"),
    "group-value-gae": Arm(
        estimator="group-value-gae", settings={"gamma": 1.0, "lam": 0.5}, note="values of state groups, lambda 0.5"
    ),
    "critic": _CRITIC,
    "critic-observation": replace(
        _CRITIC, values=ValueSource.OBSERVATION, note="the same with a table of state keys instead of histories"
    ),
    "critic-bootstrap": replace(
        _CRITIC,
        settings={"lam": 0.95, "at_budget": "bootstrap"},
        note="the critic, with its value behind an episode that was cut",
    ),
    "mt-grpo": Arm(estimator="mt-grpo", pay=TurnPay.PAID, note="rewards per turn, as published"),
    "turn-return": Arm(
        estimator="turn-return", settings={"normalise": "none"}, pay=TurnPay.PAID, note="rewards per turn, return-to-go"
    ),
    "turn-credit": Arm(
        estimator="turn-credit", settings={"normalise": "none"}, pay=TurnPay.SCORED, note="telescoping scores of states"
    ),
    "continuations": Arm(
        estimator="turn-gae",
        settings={"lam": 0.0, "at_budget": "terminal"},
        values=ValueSource.CONTINUATIONS,
        note="values from 2 fresh continuations per turn (VinePPO); their turns count",
    ),
    "rloo-cut-masked": Arm(estimator="rloo", cut=CutRule.MASK, note="cut episodes in the baseline, without gradient"),
    "rloo-cut-dropped": Arm(estimator="rloo", cut=CutRule.DROP, note="cut episodes in no statistic"),
    "exact": Arm(estimator=EXACT, note="the exact advantage: what no estimator can know"),
}
"""Arms by name. Discounts and lambdas are those of the sources, or those that expectations are about."""

_OUTCOME = ("rloo", "grpo", "other-tasks")
_STATES = ("gigpo", "gigpo-discounted", "gigpo-mean", "gigpo-step", "hgpo", "group-value-gae")
_TURNS = ("mt-grpo", "turn-return", "turn-credit")

ARMS_OF: Mapping[str, tuple[str, ...]] = {
    "null": (*_OUTCOME, "reinforce", *_STATES, "critic", *_TURNS, "continuations", "exact"),
    "progress": (*_OUTCOME, *_STATES, "critic", *_TURNS, "continuations", "exact"),
    "nonce": (*_OUTCOME, *_STATES, "critic", "continuations", "exact"),
    "revisits": (*_OUTCOME, *_STATES, "critic", *_TURNS, "continuations", "exact"),
    "luck": (*_OUTCOME, *_STATES, "critic", "continuations", "exact"),
    "alias": (*_OUTCOME, *_STATES, "critic", "critic-observation", "continuations", "exact"),
    "alias-once": (*_OUTCOME, *_STATES, "critic", "critic-observation", "exact"),
    "lengths": (
        *_OUTCOME,
        "rloo-sequence-mean",
        "rloo-token-mean",
        "gigpo-discounted",
        "gigpo-mean",
        "critic",
        "exact",
    ),
    "truncation": (
        "rloo",
        "grpo",
        "rloo-cut-masked",
        "rloo-cut-dropped",
        "gigpo",
        "critic",
        "critic-bootstrap",
        "exact",
    ),
}
"""Which arms an environment is about."""


def arm_of(name: str, mdp: FiniteMdp) -> Arm:
    """Return the arm of that name, or for any other estimator one that is told what it needs.

    Raises:
        ConfigError: it needs what the environment doesn't have.
        PluginError: no such estimator.
    """
    arm = ARMS.get(name)
    if arm is None:
        needs = needs_of(load_estimator(name))
        if Signal.FORKS in needs:
            raise ConfigError(f"estimator {name!r} needs forks; the bench has episodes without forks")
        pay = TurnPay.PAID if Signal.TURN_REWARDS in needs else TurnPay.NONE
        pay = TurnPay.SCORED if Signal.TURN_SCORES in needs else pay
        learnt = needs & {Signal.TURN_VALUES, Signal.TOKEN_VALUES}
        arm = Arm(estimator=name, pay=pay, values=ValueSource.HISTORY if learnt else ValueSource.NONE)
    missing = {TurnPay.PAID: mdp.turn_rewards is None, TurnPay.SCORED: mdp.scores is None, TurnPay.NONE: False}
    if missing[arm.pay]:
        raise ConfigError(
            f"{name!r} needs turns that are {arm.pay.value}; environment {mdp.name!r} says nothing of turns"
        )
    return arm
