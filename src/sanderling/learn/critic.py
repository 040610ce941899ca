"""The value model: what will an episode still earn from here on? Groups -> groups with values; targets -> better values.

V_t is read from the hidden state that predicts action token t, so it knows everything before the token and nothing of it.
Observations are read and never judged: values and targets stand at action tokens only. Where a row ends, the state behind its
last token gives the value of what was left behind, which an estimator may put behind a limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from sanderling.credit.episodes import own_turns
from sanderling.credit.protocol import Credit, LearnsValues
from sanderling.errors import LearnerError, ModelError
from sanderling.learn.critic_config import CriticConfig
from sanderling.types import Group, Member, Trajectory, Values

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where the values of a trajectory are read, as positions in its tokens."""

    tokens: NDArray[np.intp]  # (A,) of the hidden state before each action token
    turns: NDArray[np.intp]  # (n_turns,) index into `tokens` of each turn's first action token


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lesson:
    """What one trajectory teaches."""

    trajectory: Trajectory
    positions: NDArray[np.intp]  # (n,)
    targets: FloatArray  # (n,)
    before: FloatArray  # (n,) values that stood there when the targets were made


class Critic:
    """A value model beside a policy."""

    def __init__(self, policy: PreTrainedModel, config: CriticConfig) -> None:
        """Make the model; its layer starts at 0, so that all values do.

        Raises:
            ModelError: the policy has no model below its head that gives hidden states.
        """
        self.config = config
        model = policy if config.model == "head" else deepcopy(policy).eval()
        self._trunk = _trunk(model)
        device = next(model.parameters()).device
        self._head = nn.Linear(int(model.config.get_text_config().hidden_size), 1).to(device)
        nn.init.zeros_(self._head.weight)
        nn.init.zeros_(self._head.bias)
        self._own_trunk = config.model == "separate"
        if self._own_trunk:
            _choose_trained(self._trunk, config)
        trunk = [p for p in self._trunk.parameters() if p.requires_grad] if self._own_trunk else []
        self._parameters = [*self._head.parameters(), *trunk]
        self._optimizer = torch.optim.AdamW(self._parameters, lr=config.learning_rate, weight_decay=0.0)

    def warming_up(self, step: int) -> bool:
        """Return whether the policy has to wait in this step (counted from 1)."""
        return step <= self.config.warmup_steps

    @torch.no_grad()
    def valued(self, groups: Sequence[Group]) -> list[Group]:
        """Return the groups with values at all graded members."""
        members = [m for group in groups for m in group.graded() if m.trajectory.turns]
        found: dict[str, Values] = {}
        for part in self._cut([m.trajectory for m in members]):
            predicted = self._predict(part).double().cpu().numpy()
            for values, trajectory in zip(predicted, part, strict=True):
                found[trajectory.id] = _values(trajectory, values)
        return [replace(g, members=tuple(_with_values(m, found) for m in g.members)) for g in groups]

    def step(self, groups: Sequence[Group], estimator: LearnsValues) -> dict[str, float]:
        """Bring the values nearer to what the estimator's targets say; return what happened, by declared name.

        Args:
            groups: as `valued` returned them.
            estimator: its targets are per turn or per action token; those of turns shared with a parent are the parent's.

        Raises:
            LearnerError: the loss isn't finite; the update is not made.
        """
        targets = {name: t for group in groups for name, t in estimator.targets(group, self.config.lam).items()}
        lessons = [_lesson(m, targets) for group in groups for m in group.graded() if m.trajectory.turns]
        lessons = [lesson for lesson in lessons if len(lesson.positions)]
        if not lessons:
            return {}
        losses = [self._update(lessons) for _ in range(self.config.updates_per_step)]
        wanted = np.concatenate([lesson.targets for lesson in lessons])
        before = np.concatenate([lesson.before for lesson in lessons])
        spread = float(wanted.var())
        metrics = {
            "critic_loss": losses[0],
            "value_mean": float(before.mean()),
            "value_target_mean": float(wanted.mean()),
            "value_bias": float((before - wanted).mean()),
        }
        explained = {"value_explained_variance": 1.0 - float((wanted - before).var()) / spread} if spread > 0.0 else {}
        return metrics | explained

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        trunk = self._trunk.state_dict() if self._own_trunk else {}
        return {"head": self._head.state_dict(), "trunk": trunk, "optimizer": self._optimizer.state_dict()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over a `state()`.

        Raises:
            KeyError, RuntimeError, ValueError: it belongs to another model.
        """
        self._head.load_state_dict(state["head"])
        if self._own_trunk:
            self._trunk.load_state_dict(state["trunk"])
        self._optimizer.load_state_dict(state["optimizer"])

    def _update(self, lessons: Sequence[_Lesson]) -> float:
        """Make one update on all lessons; return the mean squared error before it."""
        count = sum(len(lesson.positions) for lesson in lessons)
        by_id = {lesson.trajectory.id: lesson for lesson in lessons}
        self._optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for part in self._cut([lesson.trajectory for lesson in lessons]):
            predicted = self._predict(part)
            loss = torch.zeros((), device=predicted.device)
            for values, trajectory in zip(predicted, part, strict=True):
                lesson = by_id[trajectory.id]
                wanted = torch.from_numpy(lesson.targets).to(predicted)
                loss = (
                    loss
                    + ((values[torch.from_numpy(lesson.positions).to(predicted.device)] - wanted) ** 2).sum() / count
                )
            if not torch.isfinite(loss):
                raise LearnerError(
                    f"the value model's loss is {float(loss)} on trajectories {', '.join(t.id for t in part)}; no update was "
                    "made. Lower critic.learning_rate, or look for rewards that aren't finite"
                )
            loss.backward()
            total += float(loss.detach())
        nn.utils.clip_grad_norm_(self._parameters, self.config.max_grad_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return total

    def _predict(self, part: Sequence[Trajectory]) -> Tensor:
        """Return what is expected behind each token (B, L); beyond a trajectory's end it means nothing."""
        sequences = [trajectory.token_ids() for trajectory in part]
        ids = np.zeros((len(part), max(map(len, sequences))), dtype=np.int64)
        for row, sequence in zip(ids, sequences, strict=True):
            row[: len(sequence)] = sequence
        tokens = torch.from_numpy(ids).to(self._head.weight.device)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._own_trunk):
            hidden = self._trunk(input_ids=tokens, use_cache=False).last_hidden_state
        return self._head(hidden.float()).squeeze(-1)

    def _cut(self, trajectories: Sequence[Trajectory]) -> Iterator[list[Trajectory]]:
        """Yield trajectories of like length together; which ones has no say in the result."""
        part: list[Trajectory] = []
        longest = 0
        for trajectory in sorted(trajectories, key=lambda t: (-len(t.token_ids()), t.id)):
            longest = longest or len(trajectory.token_ids())
            if part and longest * (len(part) + 1) > self.config.micro_batch_tokens:
                yield part
                part, longest = [], len(trajectory.token_ids())
            part.append(trajectory)
        if part:
            yield part


def _trunk(model: PreTrainedModel) -> nn.Module:
    trunk = model.base_model
    if trunk is model or not isinstance(trunk, nn.Module):
        raise ModelError(f"{type(model).__name__} has no model below its head, so no hidden states for a value model")
    return trunk


def _choose_trained(trunk: nn.Module, config: CriticConfig) -> None:
    for name, parameter in trunk.named_parameters():
        parameter.requires_grad_(config.train == "all" or (config.train == "no-attention" and "attn" not in name))


def _places(trajectory: Trajectory) -> _Places:
    tokens: list[int] = []
    turns = []
    at = len(trajectory.prompt_ids)
    for turn in trajectory.turns:
        turns.append(len(tokens))
        tokens += range(at - 1, at - 1 + len(turn.action.token_ids))
        at += len(turn.action.token_ids) + len(turn.observation.token_ids)
    return _Places(tokens=np.array(tokens, dtype=np.intp), turns=np.array(turns, dtype=np.intp))


def _values(trajectory: Trajectory, predicted: FloatArray) -> Values:
    places = _places(trajectory)
    at_tokens = predicted[places.tokens]
    return Values(
        at_turns=at_tokens[places.turns],
        at_tokens=at_tokens,
        at_end=float(predicted[len(trajectory.token_ids()) - 1]),
    )


def _with_values(member: Member, found: Mapping[str, Values]) -> Member:
    values = found.get(member.trajectory.id)
    return member if values is None else replace(member, values=values)


def _lesson(member: Member, targets: Credit) -> _Lesson:
    """Return where the member's own turns have targets, and which."""
    trajectory, values = member.trajectory, member.values
    assert values is not None and values.at_tokens is not None  # `valued` gave both
    wanted, places = targets[trajectory.id], _places(trajectory)
    shared = len(trajectory.turns) - len(own_turns(trajectory))
    if len(wanted) == len(trajectory.turns):
        positions, before, first = places.tokens[places.turns], values.at_turns, shared
    else:
        positions, before = places.tokens, values.at_tokens
        first = int(places.turns[shared]) if shared < len(trajectory.turns) else len(positions)
    return _Lesson(trajectory=trajectory, positions=positions[first:], targets=wanted[first:], before=before[first:])
