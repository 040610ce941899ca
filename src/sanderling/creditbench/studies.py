"""The parts of the bench by name: environments with frozen policies, and studies of learning curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sanderling.creditbench.arms import ARMS, ARMS_OF, arm_of
from sanderling.creditbench.corrections import CORRECTIONS, measure_corrections
from sanderling.creditbench.environments import ENVIRONMENTS, careful_or_gamble, rooms
from sanderling.creditbench.exact import reference_policy
from sanderling.creditbench.learning import Learner
from sanderling.creditbench.losses import measure_losses
from sanderling.creditbench.mdp import FiniteMdp
from sanderling.creditbench.measurement import Place, measure_arms
from sanderling.creditbench.quality import Quality
from sanderling.errors import ConfigError

STALE, LOSSY = "stale-sampler", "lossy"

QUESTIONS: Mapping[str, str] = {
    **{name: environment.question for name, environment in ENVIRONMENTS.items()},
    STALE: "revisits, sampled by the policy of success 0.1 for that of 0.5; RLOO through the policy loss",
    LOSSY: "careful play is long and gambling short; 5 % of the episodes are lost through no fault of the policy; RLOO",
}
"""What is measured with frozen policies, and what it asks."""


def measure_environment(name: str, estimators: Sequence[str], updates: int | None, seed: int) -> dict[str, Quality]:
    """Return the quality of each arm in one environment.

    Args:
        name: a key of `QUESTIONS`.
        estimators: arms, or any credit estimator; empty: those that the environment is about. The rows of
            "stale-sampler" are corrections and those of "lossy" are rules: there it is not read.
        updates: batches of 16 episodes; None: the environment's own number.
        seed: of everything that is drawn.

    Raises:
        ConfigError: no such environment, or an estimator that can't act in it.
    """
    if name == STALE:
        mdp = rooms()
        return measure_corrections(mdp, reference_policy(mdp, 0.1), reference_policy(mdp, 0.5), updates or 1000, seed)
    if name == LOSSY:
        mdp = careful_or_gamble(LOSSY, max_turns=24)
        return measure_losses(Place(mdp=mdp, policy=reference_policy(mdp, 0.5)), updates or 2000, seed)
    if name not in ENVIRONMENTS:
        raise ConfigError(f"no environment {name!r} in the credit bench; it has {', '.join(QUESTIONS)}")
    environment = ENVIRONMENTS[name]
    mdp = environment.build()
    place = Place(mdp=mdp, policy=reference_policy(mdp, environment.success))
    arms = {arm: arm_of(arm, mdp) for arm in estimators or ARMS_OF[name]}
    return measure_arms(place, arms, updates or environment.updates, seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Learning curves in one process; all learners have the same number of environment turns."""

    make: Callable[[], FiniteMdp]
    learners: Mapping[str, Learner]  # the first is what the others are compared with
    turns: int
    question: str


def _arms(*names: str) -> dict[str, Learner]:
    return {name: Learner(arm=ARMS[name]) for name in names}


def _stale(lag: int) -> Study:
    rloo = Learner(arm=ARMS["rloo"], lag=lag)
    return Study(
        make=rooms,
        learners={name: replace(rloo, correction=name) for name in CORRECTIONS},
        turns=12_000,
        question=f"revisits with a sampler that is {lag} updates behind; RLOO and corrections",
    )


STUDIES: Mapping[str, Study] = {
    "truncation": Study(
        make=lambda: careful_or_gamble("truncation", max_turns=6),
        learners=_arms("rloo", "grpo", "rloo-cut-masked", "rloo-cut-dropped", "critic", "critic-bootstrap", "exact"),
        turns=15_000,
        question="what to do with episodes that the limit cut, where the policy is used with a larger one",
    ),
    "revisits": Study(
        make=rooms,
        learners=_arms("rloo", "gigpo", "mt-grpo", "turn-credit", "exact"),
        turns=12_000,
        question="whether a dense reward for every step forward leads to the goal",
    ),
    "stale-4": _stale(4),
    "stale-16": _stale(16),
}
"""What is learnt, by name."""
