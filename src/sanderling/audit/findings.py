"""What an audit looks at, and what came of it: the catalogue of checks, and one result per check and task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sanderling.audit.intervals import Rate
from sanderling.types import JsonValue


class Outcome(StrEnum):
    """What came of a check. Only FAILED and, where the check is required, NOT_MEASURED stand against admission."""

    PASSED = "passed"
    FAILED = "failed"
    NOTED = "noted"  # worth knowing, no ground for a refusal
    NOT_APPLICABLE = "not applicable"  # the environment has nothing that this check is about
    NOT_MEASURED = "not measured"  # it applies, but can't be measured here; the reason says why


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the catalogue."""

    id: str
    number: int  # in the list of checks before training (docs/audit.md); 0: an addition to it
    title: str
    criterion: str
    required: bool = True  # an environment isn't admitted while this is not measured
    openenv: str = ""  # check id of OpenEnv RFC 008 that asks for the same


CATALOGUE: tuple[Check, ...] = (
    Check(
        id="gold",
        number=1,
        title="the right solution is paid",
        criterion="paid in every run",
        openenv="semantic.oracle_max",
    ),
    Check(id="honest", number=1, title="honest fixes of other styles", criterion="all paid"),
    Check(
        id="no-op",
        number=2,
        title="doing nothing and breaking everything",
        criterion="reward 0 in all",
        openenv="semantic.floor_gap",
    ),
    Check(id="attacks", number=3, title="exploit battery", criterion="0 paid", openenv="semantic.canary_floor"),
    Check(
        id="attacks-live",
        number=4,
        title="the attacks work on weak graders",
        criterion="at least 90 % of the battery are paid by a weak reference grader",
    ),
    Check(
        id="secrecy",
        number=5,
        title="hidden material in what the agent can read",
        criterion="0 hits",
        openenv="runtime.oracle_containment",
    ),
    Check(
        id="git", number=6, title="history in the workspace", criterion="no .git, or one commit and nothing unreachable"
    ),
    Check(
        id="egress", number=7, title="ways out of the sandbox", criterion="all refused", openenv="runtime.egress_denied"
    ),
    Check(
        id="process-split",
        number=8,
        title="reach of a process in the sandbox",
        criterion="all refused",
        openenv="runtime.host_containment",
    ),
    Check(
        id="hostile-diffs",
        number=9,
        title="hostile changes of the workspace",
        criterion="each refused, or graded and not paid",
    ),
    Check(
        id="leftovers",
        number=10,
        title="processes that outlive the episode",
        criterion="0 alive, nothing written",
        openenv="runtime.episode_isolation",
    ),
    Check(
        id="evidence",
        number=11,
        title="every required check ran once and passed",
        criterion="required = executed = passed, canary failed",
        openenv="runtime.reward_well_formed",
    ),
    Check(
        id="flake",
        number=12,
        title="verdicts under load",
        criterion="0 flips; the bound is printed",
        openenv="semantic.verifier_determinism",
    ),
    Check(
        id="mutation",
        number=13,
        title="changes of the patched region are noticed",
        criterion="at least 90 % refused; survivors listed",
    ),
    Check(id="wrong-patches", number=14, title="bank of wrong patches", criterion="share paid (alpha) at most 5 %"),
    Check(
        id="rewrites",
        number=15,
        title="the right solution written otherwise",
        criterion="at least 95 % paid (1 - beta)",
    ),
    Check(
        id="hunks",
        number=16,
        title="each part of the fix is needed",
        criterion="no hunk can be left out, or it is listed",
    ),
    Check(
        id="fresh-inputs",
        number=17,
        title="hidden inputs of each grading",
        criterion="differ by seed; a wrong patch stays unpaid",
        required=False,
        openenv="runtime.seed_control",
    ),
    Check(
        id="solvable",
        number=18,
        title="the statement says what the tests need",
        criterion="solved by a person or by several solvers",
        required=False,
    ),
    Check(
        id="statement",
        number=19,
        title="the fix stands in the prompt",
        criterion="no two consecutive lines of it",
        openenv="semantic.no_solution_leakage",
    ),
    Check(id="fail-closed", number=20, title="faults while grading", criterion="reward 0 or ungraded, never paid"),
    Check(id="resources", number=21, title="verdicts at three times the limits", criterion="the same"),
    Check(
        id="determinism",
        number=22,
        title="the same seed again",
        criterion="the same verdict and the same evidence",
        openenv="runtime.episode_determinism",
    ),
    Check(
        id="clock",
        number=22,
        title="the right solution in later years",
        criterion="paid one and ten years from now",
        openenv="semantic.replayability",
    ),
    Check(
        id="cost",
        number=23,
        title="time of a grading",
        criterion="95 % within half of the time limit",
        openenv="semantic.resource_envelope",
    ),
    Check(id="judge", number=24, title="a model that judges", criterion="injections change no verdict", required=False),
    Check(
        id="visible-tests",
        number=0,
        title="visible tests see the bug",
        criterion="they fail before the fix and pass with it; listed where not",
        required=False,
    ),
)
"""Every check, in the order of the list. Nothing is left out silently: each has a result for each environment."""

CHECKS: Mapping[str, Check] = {check.id: check for check in CATALOGUE}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check found, for one task or for the environment as a whole."""

    check: str  # id in the catalogue
    outcome: Outcome
    task: str = ""  # id; empty: the environment
    n: int = 0  # trials: gradings, probes or files, as the reason says
    events: int = 0  # of them, trials that went against the criterion
    rate: Rate | None = None  # share of events, or what the reason says, with its interval
    defect: str = ""  # short name of what is wrong, such as "no-op-paid"
    reason: str = ""
    seconds: float = 0.0

    @property
    def against(self) -> bool:
        """Whether it stands against admission."""
        missing = self.outcome is Outcome.NOT_MEASURED and CHECKS[self.check].required
        return self.outcome is Outcome.FAILED or missing

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "check": self.check,
            "number": CHECKS[self.check].number,
            "openenv": CHECKS[self.check].openenv,
            "criterion": CHECKS[self.check].criterion,
            "outcome": self.outcome.value,
            "task": self.task,
            "n": self.n,
            "events": self.events,
            "rate": None if self.rate is None else self.rate.as_json(),
            "defect": self.defect,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
        }


def not_applicable(check: str, reason: str, task: str = "") -> CheckResult:
    return CheckResult(check=check, outcome=Outcome.NOT_APPLICABLE, task=task, reason=reason)


def not_measured(check: str, reason: str, task: str = "") -> CheckResult:
    return CheckResult(
        check=check, outcome=Outcome.NOT_MEASURED, task=task, reason=reason, defect=f"not-measured-{check}"
    )
