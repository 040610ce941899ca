"""Trees of forked episodes: each leaf is an episode with its own reward, turns before a fork belong to all leaves behind it.

    tree-grpo (arXiv 2509.21240)   A_leaf = compare R over all leaves + compare R over the leaves of its tree
    tree-value (arXiv 2506.11902)   A_segment = mean R behind the segment - mean R behind the segments beside it

A segment is a run of turns without a fork inside. A shared turn is trained once, in the row of the episode that was forked; it
gets the mean over the leaves behind it, which is what training it once per leaf would sum to, divided by their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from sanderling.credit.comparison import Normalise, compared
from sanderling.credit.episodes import settled
from sanderling.credit.paths import FloatArray, Path, paths, per_turn
from sanderling.credit.protocol import About, Credit, Needs
from sanderling.credit.turn_rewards import outcomes
from sanderling.types import Branching, Group, Signal

Leaves = tuple[int, ...]


class Forest:
    """The episodes of a group as leaves of trees."""

    def __init__(self, gathered: Sequence[Path]) -> None:
        self.gathered = gathered
        rows = {name: i for i, path in enumerate(gathered) for name in path.places}
        self.parents = [_parent(path, rows) for path in gathered]
        self.children: list[list[int]] = [[] for _ in gathered]
        for i, parent in enumerate(self.parents):
            if parent is not None:
                self.children[parent].append(i)

    def tree(self, i: int) -> int:
        """Return the first episode of the tree in which leaf i hangs."""
        while (parent := self.parents[i]) is not None:
            i = parent
        return i

    def behind(self, i: int, k: int) -> Leaves:
        """Return the leaves that go through turn k of path i, in order."""
        while (parent := self.parents[i]) is not None and k < self.gathered[i].first_own:
            i, k = parent, int(self._shared_row(i, parent)[k])
        return tuple(sorted({i, *self._forked_after(i, k)}))

    def _forked_after(self, i: int, k: int) -> list[int]:
        """Return the leaves that were forked from path i behind its turn k, and those forked from them; -1: all."""
        found = []
        for child in self.children[i]:
            row, shared = self._shared_row(child, i), self.gathered[child].first_own
            last = int(row[shared - 1]) if shared else int(row[0]) - 1 if len(row) else -1
            if last >= k:
                same = np.flatnonzero(row[:shared] == k)
                found += [child, *self._forked_after(child, int(same[0]) if len(same) else -1)]
        return found

    def _shared_row(self, child: int, parent: int) -> NDArray[np.intp]:
        """Return the places in the parent's path of the turns of the row that the child was forked from."""
        row = self.gathered[child].episode.members[0].trajectory.parent_id
        return self.gathered[parent].places[row or ""]


def _parent(path: Path, rows: dict[str, int]) -> int | None:
    root = path.episode.members[0].trajectory
    return rows.get(root.parent_id or "") if root.branching is Branching.FORK else None


class TreeGrpo(BaseModel):
    """Settings of the estimator, and the estimator itself: call it with a group."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset({Signal.SIBLINGS, Signal.FORKS})
    about: ClassVar[About] = About(
        equation="A_leaf = z(R over all leaves) + z(R over the leaves of the tree); shared turns get the mean of their leaves",
        source="arXiv 2509.21240",
        gradient='biased: the mean of a tree depends on the actions before its forks; "std" as GRPO',
    )

    normalise: Normalise = "std"
    """How rewards are compared, among all leaves and in a tree."""
    eps: float = Field(default=0.0, ge=0.0)
    """Added to each deviation."""
    tree_weight: float = Field(default=1.0, ge=0.0)
    """Weight of the comparison inside a tree."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in deviations ("std") or units of the reward."""
        gathered = paths(group)
        forest, rewards = Forest(gathered), outcomes(gathered)
        whole = compared(rewards, self.normalise, eps=self.eps)
        trees = np.array([forest.tree(i) for i in range(len(gathered))])
        for tree in set(trees.tolist()):
            leaves = np.flatnonzero(trees == tree)
            whole[leaves] += self.tree_weight * compared(rewards[leaves], self.normalise, eps=self.eps)
        return per_turn(gathered, [_means(forest, i, whole) for i in range(len(gathered))])


class TreeValue(BaseModel):
    """Settings of the estimator, and the estimator itself: call it with a group."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs: ClassVar[Needs] = frozenset({Signal.SIBLINGS, Signal.FORKS})
    about: ClassVar[About] = About(
        equation="A = mean R of the leaves behind the segment - mean R of the leaves beside it (or of all behind its start)",
        source='arXiv 2506.11902, its local part; against = "both": with the global part',
        gradient='"others": unbiased where forks are made without regard to rewards: what lies beside a segment does not '
        'depend on its actions; "all": smaller by the share of the leaves beside; nothing beside a segment: it gets 0',
    )

    baseline: Literal["others", "all"] = "others"
    """Whether the leaves behind the segment itself are left out of what it is compared with."""
    against: Literal["parent", "both"] = "parent"
    """Compared with what starts where the segment does, or with that and with all leaves of the group."""

    def __call__(self, group: Group) -> Credit:
        """Return (n_turns,) advantages per graded member, in units of the reward."""
        gathered = paths(group)
        forest, rewards = Forest(gathered), settled(outcomes(gathered))
        return per_turn(gathered, [self._path(forest, i, rewards) for i in range(len(gathered))])

    def _path(self, forest: Forest, i: int, rewards: FloatArray) -> FloatArray:
        everyone: Leaves = tuple(range(len(rewards)))
        before = own = everyone
        advantages = np.zeros(len(forest.gathered[i].turns))
        for k in range(len(advantages)):
            leaves = forest.behind(i, k)
            if leaves != own:
                before, own = own, leaves
            advantages[k] = self._difference(own, before, rewards)
            if self.against == "both":
                advantages[k] += self._difference(own, everyone, rewards)
        return advantages

    def _difference(self, own: Leaves, before: Leaves, rewards: FloatArray) -> float:
        beside = [j for j in before if j not in own] if self.baseline == "others" else list(before)
        return float(rewards[list(own)].mean() - rewards[beside].mean()) if beside else 0.0


def _means(forest: Forest, i: int, advantages: FloatArray) -> FloatArray:
    """Return the mean advantage of the leaves behind each turn of path i, (K,)."""
    return np.array([advantages[list(forest.behind(i, k))].mean() for k in range(len(forest.gathered[i].turns))])
