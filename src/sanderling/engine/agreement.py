"""Do sampler and trainer mean the same by a log-probability? Checked at start-up on the same weights, and while running.

Every importance ratio of the loss rests on it: with equal weights trainer / sampler must be 1 on each sampled token. A
sampler that cuts to a nucleus renormalises over the kept mass S while a plain trainer does not, so that every ratio is S
(constant 0.8 for probabilities .5, .3, .2 at top-p .8) and the loss is wrong without a sign of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from sanderling.engine.protocol import Engine, SampleRequest, SamplingParams
from sanderling.errors import ConfigError
from sanderling.types import Action, Int32Array

TOLERANCE_FLOAT32 = 1e-4
"""Largest difference of log-probabilities that rounding explains in float32; bfloat16 needs about 0.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An action and the context that it was sampled in."""

    context_ids: Int32Array  # (T,)
    action: Action


TrainerLogprobs = Callable[[Sequence[Sample]], Sequence[NDArray[np.floating]]]
"""The trainer's log-probabilities of each sample's action tokens, one array (T,) per sample, computed as for the loss."""


class AgreementVerdict(StrEnum):
    """What the differences look like."""

    AGREES = "agrees"
    NUCLEUS = "nucleus"  # the ratios are kept masses: the sampler renormalised over the top-p set, the trainer didn't
    TEMPERATURE = "temperature"  # a temperature other than 1 is set and the values differ
    DIFFERS = "differs"
    NO_TOKENS = "no_tokens"  # nothing to compare


class OnMismatch(StrEnum):
    """What to do at start-up where sampler and trainer disagree."""

    REFUSE = "refuse"
    ALLOW = "allow"  # train with the ratios as they are: only with a loss that corrects for them


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Sampler against trainer over n action tokens; differences are trainer minus sampler, in nats."""

    max_abs: float
    mean_abs: float
    mean_ratio: float  # exp of the mean difference: 1.0 where they agree, S under a nucleus of mass S
    n: int
    verdict: AgreementVerdict

    @property
    def agrees(self) -> bool:
        return self.verdict is AgreementVerdict.AGREES


def logprob_agreement(
    samples: Sequence[Sample],
    trainer_logprobs: TrainerLogprobs,
    params: SamplingParams,
    *,
    tolerance: float = TOLERANCE_FLOAT32,
    worst: float = 1.0,
) -> Agreement:
    """Compare the recorded log-probabilities of sampled tokens with the trainer's, under the same weights.

    They agree where the differences are at most `tolerance` on average and at most `worst` times that on every token. Only
    action tokens enter. Samples whose action straddles a weight update don't belong here.

    Raises:
        ConfigError: the trainer's function returned arrays of another number or length than the actions.
    """
    recorded = [np.asarray(sample.action.rollout_logprobs, dtype=np.float64) for sample in samples]
    computed = [np.asarray(values, dtype=np.float64) for values in trainer_logprobs(samples)]
    sizes, expected = [len(values) for values in computed], [len(values) for values in recorded]
    if sizes != expected:
        raise ConfigError(
            f"the trainer returned log-probabilities of lengths {sizes}; expected {expected}, one per token"
        )
    difference = np.concatenate([c - r for c, r in zip(computed, recorded, strict=True)] or [np.zeros(0)])
    if difference.size == 0:
        return Agreement(max_abs=0.0, mean_abs=0.0, mean_ratio=1.0, n=0, verdict=AgreementVerdict.NO_TOKENS)
    finite = bool(np.isfinite(difference).all())
    return Agreement(
        max_abs=float(np.abs(difference).max()) if finite else math.inf,
        mean_abs=float(np.abs(difference).mean()) if finite else math.inf,
        mean_ratio=float(np.exp(difference.mean())) if finite else math.nan,
        n=difference.size,
        verdict=_verdict(difference, params, (tolerance, worst * tolerance)) if finite else AgreementVerdict.DIFFERS,
    )


def _verdict(difference: NDArray[np.float64], params: SamplingParams, bounds: tuple[float, float]) -> AgreementVerdict:
    on_average, tolerance = bounds
    sizes = np.abs(difference)
    if sizes.max() <= tolerance and sizes.mean() <= on_average:
        return AgreementVerdict.AGREES
    # A kept mass lies between top_p and 1, so all the differences of a nucleus lie between log(top_p) and 0.
    within = difference.min() >= math.log(params.top_p) - tolerance and difference.max() <= tolerance
    if params.top_p < 1.0 and within:
        return AgreementVerdict.NUCLEUS
    if params.temperature not in (0.0, 1.0):
        return AgreementVerdict.TEMPERATURE
    return AgreementVerdict.DIFFERS


def require_agreement(
    agreement: Agreement, params: SamplingParams, *, on_mismatch: OnMismatch = OnMismatch.REFUSE
) -> Agreement:
    """Return the agreement, or refuse to start on a mismatch.

    Raises:
        ConfigError: sampler and trainer disagree and `on_mismatch` is REFUSE; the message gives ratio and remedy.
    """
    if agreement.agrees or on_mismatch is OnMismatch.ALLOW:
        return agreement
    raise ConfigError(_explain(agreement, params))


def _explain(agreement: Agreement, params: SamplingParams) -> str:
    numbers = (
        f"over {agreement.n} tokens under the same weights the ratio trainer/sampler is {agreement.mean_ratio:.4f} on "
        f"average (expected 1) and log-probabilities differ by up to {agreement.max_abs:.3g}"
    )
    match agreement.verdict:
        case AgreementVerdict.NUCLEUS:
            return (
                f"top_p is {params.top_p}: {numbers}. The sampler renormalises over the kept mass "
                f"({agreement.mean_ratio:.4f}) and the trainer doesn't, so every importance ratio is off by it. Set top_p to "
                "1.0, or set on_mismatch to 'allow' if the loss corrects for it"
            )
        case AgreementVerdict.TEMPERATURE:
            return (
                f"temperature is {params.temperature}: {numbers}. The trainer must divide its logits by the sampler's "
                "temperature before the softmax (dividing log-probabilities is not the same), or set temperature to 1.0"
            )
        case AgreementVerdict.NO_TOKENS:
            return "no token was sampled for the start-up check; give it at least one context that leaves room for an action"
        case _:
            return (
                f"sampler and trainer disagree: {numbers}. Check that both hold the same weights, dtype and attention code, "
                "and that the trainer reads the log-probability of token t at the logits of token t - 1"
            )


async def check_at_startup(  # noqa: PLR0913 - two parties and their bounds
    engine: Engine,
    contexts: Sequence[Int32Array],
    params: SamplingParams,
    trainer_logprobs: TrainerLogprobs,
    *,
    on_mismatch: OnMismatch = OnMismatch.REFUSE,
    tolerance: float = TOLERANCE_FLOAT32,
    worst: float = 1.0,
) -> Agreement:
    """Sample one action per context and compare; engine and trainer must hold the same weights.

    Raises:
        ConfigError: they disagree and `on_mismatch` is REFUSE.
        EngineError: the engine failed.
    """
    requests = [
        SampleRequest(session=f"start-up check {i}", context_ids=context, params=params, seed=i)
        for i, context in enumerate(contexts)
    ]
    actions = await engine.generate_many(requests)
    for request in requests:
        engine.end_session(request.session)
    samples = [Sample(context_ids=c, action=a) for c, a in zip(contexts, actions, strict=True)]
    agreement = logprob_agreement(samples, trainer_logprobs, params, tolerance=tolerance, worst=worst)
    return require_agreement(agreement, params, on_mismatch=on_mismatch)
