"""Training rows -> gradients -> new weights. One process, one model; the loop around it lives elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sanderling.batch.checks import check_cut
from sanderling.batch.layout import FlatLayout
from sanderling.batch.micro import MicroBatch, has_trained_tokens, is_live, micro_batches
from sanderling.errors import CheckpointError, LearnerError
from sanderling.learn.adapters import additions, load_additions, merged_weights
from sanderling.learn.config import LearnerConfig, OptimizerConfig
from sanderling.learn.critic import Critic
from sanderling.learn.preparation import prepare
from sanderling.learn.tally import LearnerReport, StepTally
from sanderling.loss.corrections import old_share
from sanderling.loss.flat_attention import FlatRows, use_flat_attention
from sanderling.loss.logprobs import TokenScores, flat_token_scores, token_scores
from sanderling.loss.policy import TokenBatch, policy_loss
from sanderling.types import Float32Array, TrainingRow


class Learner:
    """A causal language model, its optimiser, and the number of updates that were made.

    The model stays in evaluation mode: dropout would make the trainer's policy another one than the sampler's.
    """

    def __init__(
        self, model: PreTrainedModel, config: LearnerConfig | None = None, critic: Critic | None = None
    ) -> None:
        self.config = config or LearnerConfig()
        self.critic = critic  # of the same model; saved and restored with it
        self._reference = _frozen_copy(model.eval(), self.config) if self.config.loss.kl_coefficient > 0.0 else None
        self.model = prepare(model.eval(), self.config)
        self.policy_version = 0  # optimiser updates since the start of the run
        self._version_of_step = 0  # of the weights at the start of the present step
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._device = self._parameters[0].device
        self._optimizer = _optimizer(self._parameters, self.config.optimizer)

    def step(self, rows: Sequence[TrainingRow]) -> LearnerReport:
        """Make the updates of one step and return what happened.

        Rows whose advantages are all zero are skipped when the loss has no other term, because their gradient is
        zero; the weights of the other rows already carry the whole batch's denominators. Without any live row nothing
        changes: no update, no decay, no move of the schedule.

        Raises:
            LearnerError: loss or gradient isn't finite. The update is not made; earlier updates of the same step stand.
        """
        trained = [row for row in rows if has_trained_tokens(row)]
        live = trained if self.config.loss.has_other_terms else [row for row in trained if is_live(row)]
        tally = StepTally(
            rows_trained=len(live),
            rows_skipped_zero_advantage=len(trained) - len(live),
            tokens_trained=sum(int(row.loss_mask.sum()) for row in live),
            learning_rate=self.config.optimizer.rate(self.policy_version),
            has_reference=self._reference is not None,
        )
        if not live:
            return tally.report(live)
        with _threads(self.config.threads):
            self._update_from(live, tally)
        return tally.report(live)

    def _update_from(self, live: list[TrainingRow], tally: StepTally) -> None:
        old = self.logprobs(live) if self.config.loss.old_logprobs == "recompute" else None
        self._version_of_step = self.policy_version
        for indices, scale in self._minibatches(len(live)):
            part = [live[i] for i in indices]
            self._update(part, None if old is None else [old[i] for i in indices], scale, tally)

    def logprobs(self, rows: Sequence[TrainingRow]) -> list[Float32Array]:
        """Return the log-probabilities of each row's trained tokens under the current weights, (L,), 0 off the mask."""
        with _threads(self.config.threads), torch.no_grad():
            return self._logprobs(rows)

    def _logprobs(self, rows: Sequence[TrainingRow]) -> list[Float32Array]:
        found = [np.zeros(len(row.token_ids), dtype=np.float32) for row in rows]
        for micro in self._cut(rows):
            values = self._score(micro).logprobs.float().cpu().numpy()
            start = 0
            for i in micro.row_indices:
                mask = rows[i].loss_mask
                stop = start + int(mask.sum())
                found[i][mask] = values[start:stop]
                start = stop
        return found

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
            micros = self._cut(rows)
            check_cut(rows, micros)
            for micro in micros:
                self._accumulate(micro, self._columns(micro, rows, old, scale), tally)
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

    def _accumulate(self, micro: MicroBatch, columns: TokenBatch, tally: StepTally) -> None:
        scores = self._score(micro)
        loss, sums = policy_loss(scores.logprobs, scores.entropy, columns, self.config.loss)
        if not torch.isfinite(loss):
            raise LearnerError(
                f"update {self.policy_version}: the loss is {sums.loss} in the micro-batch of trajectories "
                f"{', '.join(micro.trajectory_ids)}; no update was made. Expected finite log-probabilities and advantages"
            )
        loss.backward()
        tally.add(micro, sums)

    def _cut(self, rows: Sequence[TrainingRow]) -> list[MicroBatch]:
        return micro_batches(rows, self.config.batch.micro_batch_tokens, self.config.batch.layout)

    def _score(self, micro: MicroBatch, model: PreTrainedModel | None = None) -> TokenScores:
        """Score the trained tokens of a micro-batch with the policy, or with a model that was prepared like it."""
        model = self.model if model is None else model
        token_ids = torch.from_numpy(micro.token_ids).to(self._device, torch.int64)
        mask = torch.from_numpy(micro.loss_mask).to(self._device)
        temperature, entropy = self.config.temperature, self.config.loss.needs_entropy
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self.config.compute_dtype == "bfloat16"):
            if micro.flat is None:
                return token_scores(model, token_ids, mask, temperature=temperature, entropy_gradient=entropy)
            predictors = torch.from_numpy(micro.flat.predictors).to(self._device)
            return flat_token_scores(
                model,
                self._flat(micro.flat),
                predictors,
                token_ids[mask],
                temperature=temperature,
                entropy_gradient=entropy,
            )

    def _flat(self, layout: FlatLayout) -> FlatRows:
        return FlatRows(
            token_ids=torch.from_numpy(layout.token_ids).to(self._device, torch.int64),
            positions=torch.from_numpy(layout.positions).to(self._device, torch.int64),
            blocks=layout.blocks,
        )

    def _columns(
        self, micro: MicroBatch, rows: Sequence[TrainingRow], old: Sequence[Float32Array] | None, scale: float
    ) -> TokenBatch:
        """Return the columns of the trained tokens in row-major order of the mask, as `token_scores` gives them."""
        mask = micro.loss_mask

        def move(values: np.ndarray) -> Tensor:
            return torch.from_numpy(values).to(self._device)

        rollout = move(micro.rollout_logprobs[mask])
        batch = TokenBatch(
            old_logprobs=rollout,
            rollout_logprobs=rollout,
            advantages=move(micro.advantages[mask]),
            weights=move(micro.weights[mask]) * scale,
            sequences=move(np.nonzero(mask)[0]) if self.config.loss.needs_sequences else None,
            old_share=self._old_share(move(micro.policy_versions[mask])),
            reference_logprobs=self._reference_logprobs(micro),
        )
        if old is None:
            return batch
        recomputed = np.concatenate([old[i][rows[i].loss_mask] for i in micro.row_indices])
        return replace(batch, old_logprobs=move(recomputed))

    def _old_share(self, versions: Tensor) -> Tensor | None:
        if self.config.loss.old_logprobs != "interpolate":
            return None
        return old_share(versions, old=self._version_of_step, present=self.policy_version + 1)

    @torch.no_grad()
    def _reference_logprobs(self, micro: MicroBatch) -> Tensor | None:
        return None if self._reference is None else self._score(micro, self._reference).logprobs


def _frozen_copy(model: PreTrainedModel, config: LearnerConfig) -> PreTrainedModel:
    """Return the policy that the run starts from, laid out like the one that is trained."""
    copy = deepcopy(model).requires_grad_(False)
    if config.batch.layout != "padded":
        use_flat_attention(copy)
    return copy


@contextmanager
def _threads(count: int) -> Generator[None]:
    """Let torch use `count` CPU threads meanwhile, 0: as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
