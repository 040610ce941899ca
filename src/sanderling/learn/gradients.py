"""Micro-batches -> the gradient of a model, and the log-probabilities that it gives. Updates are made elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sanderling.batch.layout import FlatLayout
from sanderling.batch.micro import MicroBatch, micro_batches
from sanderling.engine.weights import fingerprint
from sanderling.errors import LearnerError
from sanderling.learn.adapters import additions
from sanderling.learn.config import LearnerConfig
from sanderling.learn.preparation import prepare
from sanderling.loss.corrections import old_share
from sanderling.loss.flat_attention import FlatRows, use_flat_attention
from sanderling.loss.logprobs import TokenScores, flat_token_scores, token_scores
from sanderling.loss.policy import LossSums, TokenBatch, policy_loss
from sanderling.types import Float32Array, TrainingRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A micro-batch of an update."""

    micro: MicroBatch
    old: Float32Array | None  # (N,) recomputed log-probabilities of its trained tokens; None: those of the sampler hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the gradient of one update is made of."""

    pieces: Sequence[Piece]
    scale: float  # factor on all weights of tokens
    update: int  # number of the update, from 0: the policy's version before it
    version_of_step: int  # the policy's version at the start of the step


class Passes(Protocol):
    """Whoever goes through the model for an update: this process alone (`Gradients`), or several (`ranks.Ranks`)."""

    def cut(self, rows: Sequence[TrainingRow]) -> list[MicroBatch]:
        """Return rows as micro-batches; how they are cut changes no number."""
        ...

    def logprobs(self, micros: Sequence[MicroBatch]) -> list[Float32Array]:
        """Return the log-probabilities (N,) of each micro-batch's trained tokens under the present weights."""
        ...

    def accumulate(self, work: Work) -> list[LossSums]:
        """Add the gradient of all pieces to `.grad` of this process's parameters; return the sums of each piece.

        Raises:
            LearnerError: a loss isn't finite, or a process was lost.
        """
        ...

    def close(self) -> None:
        """End what was started for it."""
        ...


class Gradients:
    """A causal language model, prepared for training, in this process.

    Args:
        model: in evaluation mode; it is changed as the settings say.
        config: of the learner.
    """

    def __init__(self, model: PreTrainedModel, config: LearnerConfig) -> None:
        self.config = config
        self._reference = _frozen_copy(model, config) if config.loss.kl_coefficient > 0.0 else None
        self.model = prepare(model, config)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device

    def cut(self, rows: Sequence[TrainingRow]) -> list[MicroBatch]:
        return micro_batches(rows, self.config.batch.micro_batch_tokens, self.config.batch.layout)

    @torch.no_grad()
    def logprobs(self, micros: Sequence[MicroBatch]) -> list[Float32Array]:
        return [self._score(micro, self.model).logprobs.float().cpu().numpy() for micro in micros]

    def accumulate(self, work: Work) -> list[LossSums]:
        return [self._accumulate(piece, work) for piece in work.pieces]

    def touched(self) -> list[bool]:
        """Return which parameters have a gradient."""
        return [parameter.grad is not None for parameter in self.parameters]

    def drop(self) -> None:
        """Forget the gradient."""
        for parameter in self.parameters:
            parameter.grad = None

    def close(self) -> None:
        """Nothing was started."""

    def fingerprint(self) -> str:
        """Return a digest of the weights, without low-rank additions."""
        added = additions(self.model)
        return fingerprint({name: t for name, t in self.model.state_dict().items() if name not in added})

    def _accumulate(self, piece: Piece, work: Work) -> LossSums:
        scores = self._score(piece.micro, self.model)
        loss, sums = policy_loss(scores.logprobs, scores.entropy, self._columns(piece, work), self.config.loss)
        if not torch.isfinite(loss):
            raise LearnerError(
                f"update {work.update}: the loss is {sums.loss} in the micro-batch of trajectories "
                f"{', '.join(piece.micro.trajectory_ids)}; no update was made. Expected finite log-probabilities and advantages"
            )
        loss.backward()
        return sums

    def _columns(self, piece: Piece, work: Work) -> TokenBatch:
        """Return the columns of the trained tokens in row-major order of the mask, as `token_scores` gives them."""
        micro, mask = piece.micro, piece.micro.loss_mask
        rollout = self._move(micro.rollout_logprobs[mask])
        batch = TokenBatch(
            old_logprobs=rollout,
            rollout_logprobs=rollout,
            advantages=self._move(micro.advantages[mask]),
            weights=self._move(micro.weights[mask]) * work.scale,
            sequences=self._move(np.nonzero(mask)[0]) if self.config.loss.needs_sequences else None,
            old_share=self._old_share(self._move(micro.policy_versions[mask]), work),
            reference_logprobs=self._reference_logprobs(micro),
        )
        return batch if piece.old is None else replace(batch, old_logprobs=self._move(piece.old))

    def _old_share(self, versions: Tensor, work: Work) -> Tensor | None:
        if self.config.loss.old_logprobs != "interpolate":
            return None
        return old_share(versions, old=work.version_of_step, present=work.update + 1)

    @torch.no_grad()
    def _reference_logprobs(self, micro: MicroBatch) -> Tensor | None:
        return None if self._reference is None else self._score(micro, self._reference).logprobs

    def _score(self, micro: MicroBatch, model: nn.Module) -> TokenScores:
        """Score the trained tokens of a micro-batch with the policy, or with a model that was prepared like it."""
        token_ids = self._move(micro.token_ids).to(torch.int64)
        mask = self._move(micro.loss_mask)
        temperature, entropy = self.config.temperature, self.config.loss.needs_entropy
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.compute_dtype == "bfloat16"):
            if micro.flat is None:
                return token_scores(model, token_ids, mask, temperature=temperature, entropy_gradient=entropy)
            return flat_token_scores(
                model,
                self._flat(micro.flat),
                self._move(micro.flat.predictors),
                token_ids[mask],
                temperature=temperature,
                entropy_gradient=entropy,
            )

    def _flat(self, layout: FlatLayout) -> FlatRows:
        return FlatRows(
            token_ids=self._move(layout.token_ids).to(torch.int64),
            positions=self._move(layout.positions).to(torch.int64),
            blocks=layout.blocks,
        )

    def _move(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.device)


def _frozen_copy(model: PreTrainedModel, config: LearnerConfig) -> PreTrainedModel:
    """Return the policy that the run starts from, laid out like the one that is trained."""
    copy = deepcopy(model).requires_grad_(False)
    if config.batch.layout != "padded":
        use_flat_attention(copy)
    return copy
