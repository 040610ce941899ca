"""Which training task comes when: an endless, reproducible order, and what a resumed run needs to go on in it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

from sanderling.environment import Environment
from sanderling.errors import CheckpointError, ConfigError, RunStopped
from sanderling.rollout.config import LimitOverrides, TaskOrder
from sanderling.rollout.seeds import derive
from sanderling.types import Group, Limits, Membership, Task

LEAST_SHARE = 0.1
"""Of its tasks, a kind keeps this many at least: what can't be learnt now may be learnt later."""


class TaskStream:
    """Tasks by position, 0, 1, 2, ... Each epoch is its own shuffle of the whole split.

    In the uniform order every task comes once per epoch. In the adaptive order, tasks are passed over at random by their
    kind (`Environment.task_kind`): a group whose episodes are all paid or all unpaid has no advantage and teaches nothing, so
    a kind comes in proportion to the share of its groups that were mixed (reward variance as learnability: arXiv 2408.15099).
    The share is estimated from the groups that were trained so far, (mixed + 1) / (groups + 2).
    """

    def __init__(
        self,
        environment: Environment,
        split: str,
        *,
        seed: int,
        limits: LimitOverrides | None = None,
        order: TaskOrder = TaskOrder.UNIFORM,
        set_aside: Set[str] = frozenset(),
    ) -> None:
        """Tasks with ids in `set_aside` are passed over; it may grow while the run goes on.

        Raises:
            ConfigError: the split holds no task.
        """
        self.environment = environment
        self.seed = seed
        self._limits = limits or LimitOverrides()
        self._kind = environment.task_kind if order is TaskOrder.ADAPTIVE else ""
        self._ids = tuple(environment.tasks.ids(split))
        if not self._ids:
            raise ConfigError(f"environment {environment.name!r} has no task in split {split!r}")
        self._set_aside = set_aside
        self._epoch = lru_cache(maxsize=2)(self._shuffled)
        self._place = 0  # in the order of all epochs, of the next task that is looked at
        self._places: list[int] = []  # of the tasks at positions first, first + 1, ...
        self._first = 0
        self._seen: dict[str, tuple[int, int]] = {}  # kind: groups, mixed ones

    @property
    def limits(self) -> Limits:
        """The limits of one of its tasks, with the run's in place of its own."""
        return self._at(0).limits

    @property
    def empty(self) -> bool:
        """Whether all tasks are set aside."""
        return bool(self._set_aside) and all(name in self._set_aside for name in self._ids)

    def task(self, position: int) -> Task:
        """Return the task at a position, counted over all epochs; not below the last one told to `observe`.

        Raises:
            RunStopped: all tasks are set aside.
        """
        while len(self._places) <= position - self._first:
            self._places.append(self._draw())
        return self._at(self._places[position - self._first])

    def observe(self, groups: Sequence[Group]) -> None:
        """Take in the groups at the next positions, as they come to the trainer."""
        for group in groups:
            kind = self._kind_of(self.environment.tasks.get(group.task_id))
            seen, mixed = self._seen.get(kind, (0, 0))
            rewards = {m.disposition.reward for m in group.roots() if m.disposition.membership is Membership.MEMBER}
            self._seen[kind] = (seen + 1, mixed + (len(rewards) > 1))

    def state(self, position: int) -> dict[str, Any]:
        """Return, as JSON, where the stream stands when the groups before `position` are trained; forget these.

        Tasks that were drawn for later positions are part of it: with other counts they would be drawn otherwise.
        """
        self._places = self._places[position - self._first :]
        self._first = position
        seen = {kind: list(counts) for kind, counts in self._seen.items()}
        return {"position": position, "drawn": list(self._places), "next": self._place, "seen": seen}

    def restore(self, state: Any) -> None:
        """Go on from a `state`.

        Raises:
            CheckpointError: it is none.
        """
        try:
            self._first, self._place = int(state["position"]), int(state["next"])
            self._places = [int(place) for place in state["drawn"]]
            self._seen = {str(kind): (int(seen), int(mixed)) for kind, (seen, mixed) in state["seen"].items()}
        except (TypeError, KeyError, ValueError) as error:
            raise CheckpointError(f"the checkpoint's place in the data can't be read: {state!r}") from error

    def _draw(self) -> int:
        if self.empty:
            raise RunStopped(
                f"the run stopped itself: all {len(self._ids)} tasks are quarantined and nothing is left to train on. Its "
                "state is saved; screening.readmitted takes tasks back"
            )
        while True:
            place = self._place
            self._place += 1
            if self._id_at(place) in self._set_aside:
                continue
            chance = Random(derive(self.seed, "pass-over", place)).random()
            if not self._kind or chance < self._share(self._kind_of(self._at(place))):
                return place

    def _share(self, kind: str) -> float:
        most = max([0.5, *(_mixed_share(*counts) for counts in self._seen.values())])
        return max(LEAST_SHARE, _mixed_share(*self._seen.get(kind, (0, 0))) / most)

    def _kind_of(self, task: Task) -> str:
        return task.metadata.get(self._kind, "") if self._kind else ""

    def _at(self, place: int) -> Task:
        return with_limits(self.environment.tasks.get(self._id_at(place)), self._limits)

    def _id_at(self, place: int) -> str:
        epoch, index = divmod(place, len(self._ids))
        return self._epoch(epoch)[index]

    def _shuffled(self, epoch: int) -> list[str]:
        ids = list(self._ids)
        Random(derive(self.seed, "order", epoch)).shuffle(ids)
        return ids


def with_limits(task: Task, overrides: LimitOverrides) -> Task:
    """Return the task with the run's limits in place of its own."""
    values: dict[str, Any] = overrides.as_overrides()
    return replace(task, limits=replace(task.limits, **values)) if values else task


def _mixed_share(groups: int, mixed: int) -> float:
    return (mixed + 1) / (groups + 2)
