"""The metrics of Sanderling. Importing this module declares them."""

from __future__ import annotations

from sanderling.store.metrics import STOPS, Better, Kind, Metric, declare


def _one(name: str, unit: str, formula: str, better: Better = "neither", source: str = "") -> None:
    _declare("metrics", name, unit, formula, better, source)


def _time(name: str, formula: str, better: Better = "lower") -> None:
    _declare("timing", name, "s", formula, better)


def _count(name: str, formula: str, better: Better = "neither") -> None:
    _declare("counts", name, "1", formula, better)


def _declare(kind: Kind, name: str, unit: str, formula: str, better: Better, source: str = "") -> None:
    """Declare one metric; a name that ends in `_*` is a family, `_<stop>` one per stop reason."""
    if name.endswith("<stop>"):
        shown = Metric(
            name=name.removesuffix("<stop>"),
            kind=kind,
            unit=unit,
            formula=formula,
            better=better,
            source=source,
            prefix=True,
            values=STOPS,
        )
    else:
        family = name.endswith("*")
        shown = Metric(
            name=name.removesuffix("*"),
            kind=kind,
            unit=unit,
            formula=formula,
            better=better,
            source=source,
            prefix=family,
        )
    declare(shown)


_WILSON = "Wilson, JASA 22 (1927)"

# What the work earned. Members are those that enter the baseline; excluded ones are in no statistic.
_one("reward_mean", "reward", "mean reward of the graded members", "higher")
_one("reward_std", "reward", "population standard deviation of the graded members' rewards")
_one("solve_rate", "share", "members with reward 1 / graded members", "higher")
_one("solve_rate_low", "share", "lower end of the 95 % Wilson interval of solve_rate", "higher", _WILSON)
_one("solve_rate_high", "share", "upper end of the 95 % Wilson interval of solve_rate", "higher", _WILSON)
_one(
    "pass_at_k",
    "share",
    "groups with a solved member / groups: 1 - C(n-c, k) / C(n, k) at k = n graded members",
    "higher",
    "arXiv 2107.03374 eq. 1",
)

# Evaluations on tasks that are never trained on.
_one("eval_solve_rate", "share", "solved / graded episodes of the evaluation taken after this step", "higher")
_one("eval_solve_rate_low", "share", "lower end of its 95 % Wilson interval", "higher", _WILSON)
_one("eval_solve_rate_high", "share", "upper end of its 95 % Wilson interval", "higher", _WILSON)
_one("eval_seconds", "s", "wall clock of the evaluation taken after this step", "lower")
_one("eval_tasks", "episodes", "graded episodes of the evaluation")
_one("eval_reward_mean", "reward", "mean reward of the evaluation", "higher")
_one("eval_turns_mean", "turns", "mean turns per trajectory of the evaluation")
_one("eval_submitted_share", "share", "trajectories of the evaluation that ended with a submission / all", "higher")

# Shape of the episodes.
_one("turns_mean", "turns", "mean turns of the graded members")
_one("turns_max", "turns", "largest number of turns of a graded member")
_one("action_tokens_mean", "tokens", "mean number of sampled tokens per graded member")
_one("action_tokens_max", "tokens", "largest number of sampled tokens of a graded member")
_one("context_tokens_mean", "tokens", "mean length of prompt, actions and observations per graded member")
_one("context_tokens_max", "tokens", "longest such sequence")
_one("submitted_share", "share", "graded members that submitted / graded members", "higher")
_one("bad_call_share", "share", "malformed calls / turns, over the graded members", "lower")
_one("tests_run_mean", "runs", "mean number of visible test runs per graded member")
_one("refused_submissions", "trajectories", "graded members whose change held something that was refused", "lower")
_one("stop_<stop>", "share", "trajectories that ended so / all trajectories of the step, excluded ones too")

# Groups and rows.
_one("groups_total", "groups", "groups of the step")
_one(
    "groups_zero_variance", "groups", "groups whose graded members all earned the same: they carry no gradient", "lower"
)
_one("groups_trained", "groups", "groups with at least one trained row", "higher")
_one("members_excluded", "trajectories", "trajectories that enter no baseline", "lower")
_one("tokens_trained", "tokens", "action tokens with a loss mask of 1 in the step")
_one("rows_trained", "rows", "training rows with an advantage that isn't 0 at a trained token")
_one("rows_skipped_zero_advantage", "rows", "rows whose advantages are all zero: nothing to learn, not computed")
_one("advantage_mean", "advantage", "mean advantage over the trained tokens")
_one("advantage_std", "advantage", "population standard deviation of the advantages over the trained tokens")
_one("advantage_abs_mean", "advantage", "mean absolute advantage over the trained tokens")
_one("state_singleton_share", "share", "turns whose state group has one member / turns", "lower", "arXiv 2505.10978")
_one("state_group_mean", "turns", "mean size of the groups of turns that share a state", "higher", "arXiv 2505.10978")

# The update. Sums run over trained tokens; r = exp(logprob now - logprob at sampling).
_one("loss", "loss", "sum of weight * per-token objective, negated; mean over the step's updates")
_one("grad_norm", "1", "2-norm of the whole gradient before clipping; mean over the step's updates")
_one("entropy", "nats", "mean entropy of the policy's next-token distribution at trained positions")
_one(
    "clip_fraction",
    "share",
    "trained tokens whose ratio was clipped / trained tokens",
    "lower",
    "arXiv 1707.06347 eq. 7",
)
_one("approx_kl", "nats", "mean of (r - 1) - log r: estimate of KL(sampler || policy)", "lower", "arXiv 1707.06347")
_one(
    "kl_to_reference",
    "nats",
    "mean of (q - 1) - log q, q = reference / policy probability",
    "lower",
    "arXiv 2402.03300",
)
_one("ratio_max", "1", "largest r of a trained token", "lower")
_one("ratio_mean", "1", "mean r over the trained tokens")
_one("critic_loss", "reward²", "mean squared error of the value model before the step's first update", "lower")
_one("value_mean", "reward", "mean value at the places that have targets")
_one("value_target_mean", "reward", "mean target of the value model (lambda-return)")
_one("value_bias", "reward", "mean of value minus target")
_one(
    "value_explained_variance",
    "1",
    "1 - variance of (target - value) / variance of the targets, before the step's updates",
    "higher",
)
_one("learning_rate", "1", "learning rate of the step's last optimiser update")
_one("padding_ratio", "1", "padded tokens computed / real tokens computed", "lower")

# Do sampler and trainer compute the same thing?
_one("logprob_gap_max", "nats", "largest |trainer's - sampler's log-probability| under the same weights", "lower")
_one("logprob_gap_mean", "nats", "mean of that gap over the sampled tokens compared", "lower")
_one("staleness_max", "updates", "largest policy version trained from minus version that sampled, over tokens", "lower")
_one("staleness_mean", "updates", "mean of it over the trained tokens", "lower")
_one("kv_reuse_share", "share", "context tokens served from a kept KV cache / context tokens sent", "higher")
_one("tokens_per_s", "tokens/s", "sampled tokens / engine_busy_s", "higher")
_one("memory_rss_mb", "MiB", "resident memory of the trainer's process after the step", "lower")

# Time. Phases overlap where they are asynchronous, so they need not add up to step_s.
_time("sample_s", "wall clock with at least one request in the engine")
_time("tools_s", "wall clock with at least one tool running")
_time("grade_s", "wall clock with at least one grading under way")
_time("rollout_s", "wall clock of sampling, tools and grading together")
_time("train_s", "wall clock of loss, gradient and optimiser")
_time("critic_s", "wall clock of the value model: predicting and learning")
_time("push_s", "wall clock of handing the weights to the engine")
_time("store_s", "wall clock of writing rollouts and metrics")
_time("checkpoint_s", "wall clock of writing the checkpoint")
_time("eval_s", "wall clock of the evaluation after the step")
_time("step_s", "wall clock of the whole step")
_time("episodes_sandbox_s", "sum over the step's episodes of the time to get their sandboxes")
_time("episodes_sample_s", "sum over the step's episodes of the time in the engine, waiting included")
_time("episodes_tools_s", "sum over the step's episodes of the time in tools")
_time("episodes_grade_s", "sum over the step's episodes of the time of grading")
_time("engine_busy_s", "wall clock in which the engine computed", "neither")
_time("sandbox_wait_s", "sum over episodes of the wait for a sandbox")

# Counts add up: submitted = graded + ungraded + running; graded = trained + dropped_<reason>.
_count("submitted", "episodes handed to the scheduler for this step, every attempt")
_count("graded", "of them with a verdict that holds a number")
_count("ungraded", "of them lost to a failure of ours", "lower")
_count("running", "of them still under way when the step was cut")
_count("trained", "graded ones of which at least one token was trained")
_count("dropped_*", "graded ones of which none was trained, by reason")
_count("rows", "training rows of the step")
_count("live_rows", "rows that were computed: some token is trained and has an advantage that isn't 0")
_count("skipped_zero_advantage", "rows whose advantages are all 0: nothing to learn, not computed")
_count("skipped_untrained", "rows without a trained token")
_count("trained_tokens", "action tokens of the live rows, counted once per step")
_count("micro_batches", "pieces in which the rows were computed, over all updates")
_count("updates", "optimiser updates of the step")
_count("retried", "ungraded ones that were tried again under a new attempt number", "lower")
_count("findings_*", "findings of the screens, by severity", "lower")
