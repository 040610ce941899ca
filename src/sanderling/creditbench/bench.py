"""The whole bench: every environment and study, side by side on the machine's cores, and what they say together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any

from sanderling.creditbench.arms import ARMS
from sanderling.creditbench.expectations import Checked, check, expectations, unearned
from sanderling.creditbench.learning import Curves, Effort, paired_difference, tuned_curves
from sanderling.creditbench.quality import Quality
from sanderling.creditbench.studies import QUESTIONS, STUDIES, measure_environment
from sanderling.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a bench run measures."""

    environments: Sequence[str] = tuple(QUESTIONS)
    studies: Sequence[str] = tuple(STUDIES)
    estimators: Sequence[str] = ()  # empty: those that each environment is about
    updates: int | None = None  # None: each environment's own number
    curve_seeds: int = 16
    seed: int = 5
    processes: int = 1

    def check(self) -> None:
        """Raise ConfigError where a name isn't one of the bench's."""
        for kind, names, known in (
            ("environment", self.environments, QUESTIONS),
            ("study", self.studies, STUDIES),
        ):
            for name in names:
                if name not in known:
                    raise ConfigError(f"no {kind} {name!r} in the credit bench; it has {', '.join(known)}")
        if self.updates is not None and self.updates < 24:
            raise ConfigError(f"updates = {self.updates}, expected at least 24: intervals need so many blocks")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """What was measured, by environment or study and arm."""

    plan: Plan
    wall_s: float
    qualities: Mapping[str, Mapping[str, Quality]]
    curves: Mapping[str, Mapping[str, Curves]]
    checked: Sequence[Checked] = field(default_factory=tuple)
    unearned: Sequence[str] = field(default_factory=tuple)  # arms of the null environment that know too much

    def as_json(self) -> dict[str, Any]:
        return {
            "environments": {
                name: {arm: quality.as_json() for arm, quality in arms.items()} for name, arms in self.qualities.items()
            },
            "learning": {name: _study_json(arms) for name, arms in self.curves.items()},
            "expectations": [one.as_json() for one in self.checked],
            "unearned_in_null": list(self.unearned),
            "seed": self.plan.seed,
            "wall_s": round(self.wall_s, 1),
        }


def run_bench(plan: Plan, said: Callable[[str], None] = lambda _: None) -> BenchResult:
    """Measure everything in the plan; `said` gets a line when a part is done. Equal plans give equal numbers.

    Raises:
        ConfigError: a name in the plan is unknown, or an estimator can't act in an environment.
    """
    plan.check()
    began = time.monotonic()
    done = _measured(plan, lambda line: said(f"{line}, {time.monotonic() - began:.0f} s"))
    qualities = {name: found for (name, learner), found in done.items() if not learner}
    curves: dict[str, dict[str, Curves]] = {}
    for (name, learner), found in done.items():
        if learner:
            curves.setdefault(name, {})[learner] = found
    told_more = {name: arm.told_more for name, arm in ARMS.items()}
    return BenchResult(
        plan=plan,
        wall_s=time.monotonic() - began,
        qualities=qualities,
        curves=curves,
        checked=[check(one, qualities, curves) for one in expectations()],
        unearned=unearned(qualities.get("null", {}), told_more),
    )


def _measured(plan: Plan, said: Callable[[str], None]) -> dict[tuple[str, str], Any]:
    """Return what each part found, in the order of the plan: (environment, "") or (study, learner)."""
    work: dict[tuple[str, str], Callable[[], Any]] = {
        (name, ""): partial(measure_environment, name, tuple(plan.estimators), plan.updates, plan.seed)
        for name in plan.environments
    }
    work |= {
        (name, learner): partial(_curves, name, learner, plan.curve_seeds, plan.seed)
        for name in plan.studies
        for learner in STUDIES[name].learners
    }

    def tell(number: int, part: tuple[str, str]) -> None:
        said(f"{number}/{len(work)} {' '.join(part).strip()}")

    if plan.processes == 1:
        found = {}
        for number, (part, call) in enumerate(work.items(), start=1):
            found[part] = call()
            tell(number, part)
        return found
    with ProcessPoolExecutor(plan.processes, mp_context=get_context("spawn")) as pool:
        parts: dict[Future[Any], tuple[str, str]] = {pool.submit(call): part for part, call in work.items()}
        try:
            for number, future in enumerate(as_completed(parts), start=1):
                future.result()
                tell(number, parts[future])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        return {part: future.result() for future, part in parts.items()}


def _curves(study: str, learner: str, seeds: int, seed: int) -> Curves:
    """Runs in a process of its own; names travel, because processes are made of functions."""
    chosen = STUDIES[study]
    return tuned_curves(chosen.make(), chosen.learners[learner], Effort(turns=chosen.turns, seeds=seeds), seed)


def _study_json(arms: Mapping[str, Curves]) -> dict[str, Any]:
    reference = next(iter(arms.values()))
    out = {}
    for name, curves in arms.items():
        difference, half = paired_difference(curves.areas, reference.areas)
        out[name] = {
            "area": float(curves.areas.mean()),
            "difference": difference,
            "interval": [difference - half, difference + half],
            "final": float(curves.finals.mean()),
            "rate": curves.rate,
            "seeds": len(curves.areas),
        }
    return out
