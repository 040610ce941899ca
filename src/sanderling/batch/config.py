"""Settings of the way from credit to micro-batches."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Aggregation = Literal["token-mean", "sequence-mean", "sequence-sum", "constant"]
Layout = Literal["padded", "packed", "shared"]


class BatchConfig(BaseModel):
    """How much each token weighs, and how rows are cut into micro-batches (which changes memory, no number)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    aggregation: Aggregation = "sequence-mean"
    """Weight of one trained token, over the whole batch of N trained tokens and B rollouts. "token-mean": 1/N (DAPO);
    "sequence-mean": 1/(B x tokens of its rollout) (GRPO paper); "sequence-sum": 1/B; "constant": 1/(B x
    constant_tokens) (Dr. GRPO). With token-mean a long failure weighs more than a short one, which over many turns teaches to
    give up early; that's why it isn't the default here."""
    constant_tokens: int | None = Field(default=None, ge=1)
    """Tokens by which "constant" divides: the most action tokens that a rollout can have. Needed by "constant" only."""
    count: Literal["members", "trained"] = "members"
    """Which rollouts make up B. "members": all that enter a baseline, also those whose own tokens get no gradient (GRPO
    paper, TRL). "trained": only rollouts with a trained token (verl). Excluded rollouts count in neither."""
    dead_groups: Literal["count", "drop"] = "count"
    """Whether groups whose advantages are all zero stay in N and B. They add nothing to the sum in either case: with
    "count" a step with fewer live groups is a smaller step, with "drop" it has the same size (DAPO's dynamic
    sampling)."""
    observations: Literal["masked", "trained"] = "masked"
    """"trained" puts a gradient on what the world wrote, with the advantage of the action that it answers. It is wrong: the
    policy gradient has no such term. It is here to measure what masking is worth (arXiv 2503.09516 reports 0.431 with and
    0.343 without masking on retrieval tasks)."""
    micro_batch_tokens: int = Field(default=4096, ge=1)
    """Largest number of computed tokens of one micro-batch, padding included. A single longer row makes one of its own.
    2048 to 4096 is fastest for small models on a CPU (less padding, better cache use); GPUs want more."""

    layout: Layout = "padded"
    """How the rows of a micro-batch lie in the forward pass. "padded": side by side, filled up to the longest; rows of like
    length stand together, so little is filled. "packed": one behind the other without padding, each with positions of
    its own and without a view of the others. "shared": packed, and what rows have in common from their first token on
    (the prompt of a group) is computed once. The numbers are the same up to float error; the model's attention must
    be replaceable, which is checked at the start."""

    @model_validator(mode="after")
    def _constant_needs_tokens(self) -> Self:
        if self.aggregation == "constant" and self.constant_tokens is None:
            raise ValueError(
                'aggregation "constant" divides by constant_tokens, which is None; '
                "set it to max_turns x max_action_tokens"
            )
        if self.aggregation != "constant" and self.constant_tokens is not None:
            raise ValueError(
                f'constant_tokens={self.constant_tokens} acts only with "constant", got aggregation={self.aggregation!r}'
            )
        return self
