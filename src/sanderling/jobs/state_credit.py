"""What a run checks and says about states: whether they can be forked, and whether siblings ever meet in one."""

from __future__ import annotations

from dataclasses import dataclass

from sanderling.config import Config
from sanderling.credit.protocol import CreditEstimator, needs_of
from sanderling.errors import ConfigError
from sanderling.store.run_folder import RunFolder
from sanderling.types import Signal, StepReport

UNIQUE_SHARE = 0.7
"""Share of turns alone in their state from which on credit by states is called into question: less than a third is left."""


def check_fork_settings(config: Config, estimator: CreditEstimator) -> None:
    """Refuse forks that nothing would come of.

    Raises:
        ConfigError: values are measured that the estimator doesn't read, or that a negative control would not shuffle.
    """
    forks = config.rollout.forks
    if not forks.continuations or forks.use != "value":
        return
    if Signal.TURN_VALUES not in needs_of(estimator):
        raise ConfigError(
            f"rollout.forks.use = 'value' measures values that credit.estimator = {config.credit.estimator!r} doesn't read: "
            "they would cost turns for nothing; set credit.estimator = 'vine' or rollout.forks.use = 'tree'"
        )
    if config.critic.model != "none":
        raise ConfigError(
            f"critic.model = {config.critic.model!r} and rollout.forks.use = 'value' both say what states are worth; set "
            "critic.model = 'none' or rollout.forks.continuations = 0"
        )
    if config.control == "shuffled_rewards":
        raise ConfigError(
            "control = 'shuffled_rewards' deals out the rewards of episodes, and rollout.forks.use = 'value' measures others: "
            "something could be learnt from those; set rollout.forks.continuations = 0 for the control"
        )


@dataclass(slots=True)
class StateWatch:
    """Notices that states are unique where credit is by states, and says so once per run."""

    estimator_name: str
    estimator: CreditEstimator
    said: bool = False

    def note(self, report: StepReport, folder: RunFolder) -> str | None:
        """Return a line for the user, after it was put into the run's events; None: nothing to say."""
        share = report.metrics.get("state_singleton_share")
        if self.said or share is None or share < UNIQUE_SHARE or Signal.STATE_KEYS not in needs_of(self.estimator):
            return None
        self.said = True
        folder.append_event("states_unique", step=report.step, state_singleton_share=share)
        return (
            f"states are unique: {share:.0%} of the turns of step {report.step} share theirs with no other, and "
            f"{self.estimator_name} knows nothing about those but what the whole episode earned. Tell states apart less "
            "finely (Environment.states), sample more siblings (rollout.group_size), or use credit without states: rloo, a "
            "value model, or vine (docs/forking.md)"
        )
