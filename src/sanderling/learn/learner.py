"""Training rows -> gradients -> new weights. The gradients may come from several processes, the update is made by this one;
the loop around it lives elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sanderling.batch.checks import check_cut
from sanderling.batch.micro import MicroBatch, has_trained_tokens, is_live
from sanderling.errors import CheckpointError, ConfigError, LearnerError
from sanderling.learn.adapters import additions, load_additions, merged_weights
from sanderling.learn.config import LearnerConfig, OptimizerConfig
from sanderling.learn.critic import Critic
from sanderling.learn.gradients import Gradients, Passes, Piece, Work
from sanderling.learn.rank_messages import ModelSource
from sanderling.learn.ranks import Ranks, share_of_threads
from sanderling.learn.tally import LearnerReport, StepTally
from sanderling.types import Float32Array, TrainingRow


class Learner:
    """A causal language model, its optimiser, and the number of updates that were made.

    The model stays in evaluation mode: dropout would make the trainer's policy another one than the sampler's.

    Args:
        model: the policy that the run starts with; it is changed as the settings say.
        config: all settings.
        critic: of the same model; saved and restored with it.
        source: from where further processes load the same model; needed with `config.processes` above 1.

    Raises:
        ConfigError: a setting asks for what the model, the installation or the machine lacks.
        LearnerError: a further process could not be started.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: LearnerConfig | None = None,
        critic: Critic | None = None,
        source: ModelSource | None = None,
    ) -> None:
        self.config = config or LearnerConfig()
        self.critic = critic
        self._own = Gradients(model.eval(), self.config)
        self.model = self._own.model
        self.policy_version = 0  # optimiser updates since the start of the run
        self._version_of_step = 0  # of the weights at the start of the present step
        self._parameters = self._own.parameters
        self._optimizer = _optimizer(self._parameters, self.config.optimizer)
        self._threads = share_of_threads(self.config)
        self._passes = _passes(self._own, source)

    def step(self, rows: Sequence[TrainingRow]) -> LearnerReport:
        """Make the updates of one step and return what happened.

        Rows whose advantages are all zero are skipped when the loss has no other term, because their gradient is
        zero; the weights of the other rows already carry the whole batch's denominators. Without any live row nothing
        changes: no update, no decay, no move of the schedule.

        Raises:
            LearnerError: loss or gradient isn't finite, or a process was lost. The update is not made; earlier updates of
                the same step stand.
        """
        trained = [row for row in rows if has_trained_tokens(row)]
        live = trained if self.config.loss.has_other_terms else [row for row in trained if is_live(row)]
        tally = StepTally(
            rows_trained=len(live),
            rows_skipped_zero_advantage=len(trained) - len(live),
            tokens_trained=sum(int(row.loss_mask.sum()) for row in live),
            learning_rate=self.config.optimizer.rate(self.policy_version),
            has_reference=self.config.loss.kl_coefficient > 0.0,
        )
        if not live:
            return tally.report(live)
        with _threads(self._threads):
            self._update_from(live, tally)
        return tally.report(live)

    def _update_from(self, live: list[TrainingRow], tally: StepTally) -> None:
        old = _scored(self._passes, live) if self.config.loss.old_logprobs == "recompute" else None
        self._version_of_step = self.policy_version
        for indices, scale in self._minibatches(len(live)):
            part = [live[i] for i in indices]
            self._update(part, None if old is None else [old[i] for i in indices], scale, tally)

    def logprobs(self, rows: Sequence[TrainingRow]) -> list[Float32Array]:
        """Return the log-probabilities of each row's trained tokens under the current weights, (L,), 0 off the mask.

        This process does it alone, with the threads of all: the others wait.
        """
        with _threads(self.config.threads):
            return _scored(self._own, rows)

    def close(self) -> None:
        """End the further processes; without any, nothing happens."""
        self._passes.close()

    def weights(self) -> dict[str, Tensor]:
        """Return the policy's weights under the Hugging Face names of the plain model, for the engine.

        The tensors are the live ones, but for weights with a low-rank addition: those are added up into new ones.
        """
        return merged_weights(self.model)

    def save_model(self, folder: Path) -> None:
        """Write the policy as a Hugging Face model folder; low-rank additions are added up into the weights."""
        if self.config.lora.rank == 0:
            self.model.save_pretrained(folder)
        else:
            self.model.save_pretrained(folder, state_dict=self.weights())

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs besides the model's weights: optimiser, low-rank additions, number of updates,
        random state, value model."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return {
            "additions": additions(self.model),
            "optimizer": self._optimizer.state_dict(),
            "policy_version": self.policy_version,
            "rng": {"cpu": torch.get_rng_state(), "cuda": cuda},
            "critic": None if self.critic is None else self.critic.state(),
        }

    def load_state(self, state: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Take over a `state()` and the model's weights.

        With low-rank additions, `weights` are only looked at by the sampler: the trainer's own are those of the policy that
        the run started from, which a checkpoint doesn't change.

        Raises:
            CheckpointError: they belong to a model of another shape.
        """
        try:
            if self.config.lora.rank:
                load_additions(self.model, state["additions"])
            else:
                self._load_weights(weights)
            self._optimizer.load_state_dict(state["optimizer"])
            if self.critic is not None:
                self.critic.load_state(state["critic"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(f"the checkpoint doesn't fit this model: {error}") from error
        self.policy_version = int(state["policy_version"])
        torch.set_rng_state(state["rng"]["cpu"])
        if torch.cuda.is_available() and len(state["rng"]["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(state["rng"]["cuda"])

    def _load_weights(self, weights: Mapping[str, Tensor]) -> None:
        missing, unexpected = self.model.load_state_dict(weights, strict=False)
        lacking = self._not_tied(missing, weights)
        if unexpected or lacking:
            raise ValueError(f"unknown weights {unexpected}, missing weights {lacking}")

    def _not_tied(self, missing: Sequence[str], loaded: Mapping[str, Tensor]) -> list[str]:
        """Return the missing names that don't share their storage with a loaded one (a file holds tied weights once)."""
        own = self.model.state_dict()
        known = {own[name].data_ptr() for name in loaded if name in own}
        return [name for name in missing if own[name].data_ptr() not in known]

    def _minibatches(self, live_rows: int) -> Iterator[tuple[Sequence[int], float]]:
        """Yield the rows of each update and the factor on their weights."""
        parts = min(self.config.minibatches_per_step, live_rows)
        for _ in range(self.config.epochs_per_step):
            if parts == 1:
                yield range(live_rows), 1.0
                continue
            order = np.random.default_rng((self.config.seed, self.policy_version)).permutation(live_rows)
            for part in range(parts):
                yield [int(i) for i in order[part::parts]], float(parts)

    def _update(
        self, rows: Sequence[TrainingRow], old: Sequence[Float32Array] | None, scale: float, tally: StepTally
    ) -> None:
        settings = self.config.optimizer
        self._optimizer.zero_grad(set_to_none=True)
        try:
            micros = self._passes.cut(rows)
            check_cut(rows, micros)
            pieces = [Piece(micro=micro, old=_of_micro(micro, rows, old)) for micro in micros]
            work = Work(pieces=pieces, scale=scale, update=self.policy_version, version_of_step=self._version_of_step)
            for micro, sums in zip(micros, self._passes.accumulate(work), strict=True):
                tally.add(micro, sums)
            norm = nn.utils.clip_grad_norm_(self._parameters, settings.max_grad_norm or float("inf"))
            if not torch.isfinite(norm):
                raise LearnerError(
                    f"update {self.policy_version}: gradient norm is {float(norm)} though the loss is finite; no update was "
                    "made. Lower the learning rate or look for log-probabilities of -inf in the rollouts"
                )
            rate = settings.rate(self.policy_version)
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            self._optimizer.step()
        finally:
            self._optimizer.zero_grad(set_to_none=True)
        self.policy_version += 1
        tally.end_update(grad_norm=float(norm), learning_rate=rate)


def _scored(passes: Passes, rows: Sequence[TrainingRow]) -> list[Float32Array]:
    """Return the log-probabilities of each row's trained tokens, (L,), 0 off the mask."""
    found = [np.zeros(len(row.token_ids), dtype=np.float32) for row in rows]
    micros = passes.cut(rows)
    for micro, values in zip(micros, passes.logprobs(micros), strict=True):
        start = 0
        for i in micro.row_indices:
            mask = rows[i].loss_mask
            stop = start + int(mask.sum())
            found[i][mask] = values[start:stop]
            start = stop
    return found


def _of_micro(
    micro: MicroBatch, rows: Sequence[TrainingRow], values: Sequence[Float32Array] | None
) -> Float32Array | None:
    """Return the values of a micro-batch's trained tokens, (N,), of those that rows have."""
    return None if values is None else np.concatenate([values[i][rows[i].loss_mask] for i in micro.row_indices])


@contextmanager
def _threads(count: int) -> Generator[None]:
    """Let torch use `count` CPU threads meanwhile, 0: as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _passes(own: Gradients, source: ModelSource | None) -> Passes:
    if own.config.processes == 1:
        return own
    if source is None:
        raise ConfigError(
            f"processes is {own.config.processes}, but the learner doesn't know from where further ones load the model; give "
            "it a `source`, or set processes to 1"
        )
    return Ranks(own, source)


def _optimizer(parameters: Sequence[nn.Parameter], config: OptimizerConfig) -> torch.optim.AdamW:
    fused = parameters[0].device.type in ("cpu", "cuda")  # one kernel for all parameters instead of a loop over them
    return torch.optim.AdamW(
        parameters,
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=fused,
    )
