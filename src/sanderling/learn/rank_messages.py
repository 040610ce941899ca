"""What rank 0 of a learner and its workers say to each other. Tensors don't go this way but through `rank_group`.

    rank 0                          worker
    Setup                ->                         which model, which settings
                         <-         Loaded          with a digest of the weights that it found
    Join                 ->                         both enter the group
                         <-         Ready
    Score | Work         ->                         a share of the micro-batches
                         <-         Ready           then rank 0 spreads its weights
                         <-         Done | Failed
    AddUp                ->                         after Work, and only when no rank failed: gradients are summed at rank 0

A tensor is sent or awaited only by processes that have just said that they are there, so that a lost one is noticed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sanderling.batch.micro import MicroBatch
from sanderling.engine.torch_model import Attention, ModelDtype, load_model
from sanderling.learn.config import LearnerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a further process finds the model that a run starts with."""

    folder: Path
    dtype: ModelDtype = ModelDtype.AUTO
    attention: Attention = Attention.SDPA
    device: str = "cpu"

    def load(self) -> Any:
        """Return the model.

        Raises:
            ModelError: as `load_model` says.
        """
        return load_model(self.folder, dtype=self.dtype, attention=self.attention, device=self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLimits:
    """How long rank 0 waits for its workers."""

    start_s: float = 600.0
    """For a worker that loads the model, in seconds."""
    answer_s: float = 120.0
    """For an answer and for an exchange of tensors, in seconds; for a share of an update, `slower` times what rank 0 took for
    its own comes on top."""
    slower: float = 10.0
    """Shares are dealt out evenly, but other work may slow a worker down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    rank: int
    size: int
    source: ModelSource
    config: LearnerConfig
    threads: int
    meeting: Path  # folder in which the processes find each other
    answer_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Join:
    pass


@dataclass(frozen=True, slots=True)
class Ready:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    micros: Sequence[MicroBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    results: Sequence[Any]  # an entry per micro-batch of the share: log-probabilities, or sums of the loss
    touched: Sequence[bool]  # which parameters have a gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The share could not be computed. The worker goes on and forgets its gradient."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddUp:
    touched: Sequence[bool]  # which parameters have a gradient on any rank
