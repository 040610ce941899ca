"""The exploit battery: every attack acts in every task's sandbox, and each grader says what it would have paid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sanderling.audit.attack import Attack, Family, TaskKind
from sanderling.audit.honest import HonestFix
from sanderling.environment import Environment
from sanderling.errors import ConfigError
from sanderling.sandbox.protocol import SandboxBackend
from sanderling.types import JsonValue, Task
from sanderling.verify.protocol import Verifier

REAL = "real"  # name of the tier of the environment's own verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    """What acts: attacks, none of which may be paid, and honest fixes, all of which must be."""

    attacks: tuple[Attack, ...]
    honest: tuple[HonestFix, ...] = ()

    def __post_init__(self) -> None:
        names = [item.id for item in (*self.attacks, *self.honest)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"two parts of a battery have the id {twice[0]!r}; every id stands once")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatterySettings:
    """How a battery runs."""

    concurrency: int = 2  # episodes at once, gradings included
    # of each kind, the first ones: there reference graders judge as well, to show that an attack works. The grader under
    # audit judges on all tasks. None: they judge on all of them too.
    reference_tasks: int | None = 2
    seed: int = 0  # of the names that attacks choose and of the hidden inputs; another one gives unseen variants


class Outcome(StrEnum):
    """What a grader did with a submission."""

    PAID = "paid"
    REFUSED = "refused"
    UNGRADED = "ungraded"  # a failure of ours: neither paid nor refused, and a hole in the audit


@dataclass(frozen=True, slots=True, kw_only=True)
class BatteryRow:
    """One attack on one task, judged by one grader."""

    attack: str
    family: Family
    task: str
    kind: TaskKind
    tier: str  # `REAL` or a name of `graders`
    outcome: Outcome
    leak: bool
    cause: str  # what the grader gave as its reason; of an ungraded one, what failed

    @property
    def paid(self) -> bool:
        return self.outcome is Outcome.PAID


@dataclass(frozen=True, slots=True, kw_only=True)
class HonestRow:
    """One honest fix, or doing nothing (`style` "idle"), on one task, judged by one grader."""

    fix: str
    task: str
    kind: TaskKind
    tier: str
    outcome: Outcome
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`paid` of `graded`; ungraded ones stand in neither."""

    paid: int
    graded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatteryReport:
    """What the battery showed. Every number is a count over `rows`, `honest` or `idle`."""

    rows: tuple[BatteryRow, ...]
    honest: tuple[HonestRow, ...]
    idle: tuple[HonestRow, ...]  # doing nothing: nobody may pay it
    tiers: tuple[str, ...]  # the weak ones in the order of `graders`, `REAL` last
    seconds: float  # wall clock of the whole run

    def live(self) -> frozenset[str]:
        """Return the ids of attacks that at least one reference grader paid on at least one task."""
        return frozenset(row.attack for row in self.rows if row.paid and row.tier != REAL)

    def attacks(self) -> tuple[str, ...]:
        """Return the ids of all attacks that ran on at least one task, in their order."""
        return tuple(dict.fromkeys(row.attack for row in self.rows))

    def paid(self, tier: str = REAL) -> tuple[BatteryRow, ...]:
        """Return the attacks, leaks aside, that a grader paid."""
        return tuple(row for row in self.rows if row.paid and row.tier == tier and not row.leak)

    def leaks(self, tier: str = REAL) -> tuple[BatteryRow, ...]:
        """Return the leaks of the true fix that were found in the environment as it is, and paid."""
        return tuple(row for row in self.rows if row.paid and row.tier == tier and row.leak)

    def refused(self, tier: str = REAL) -> tuple[HonestRow, ...]:
        """Return the honest fixes that a grader refused."""
        return tuple(row for row in self.honest if row.tier == tier and row.outcome is Outcome.REFUSED)

    def ungraded(self) -> tuple[BatteryRow | HonestRow, ...]:
        """Return everything that has no verdict, with its cause."""
        everything = (*self.rows, *self.honest, *self.idle)
        return tuple(row for row in everything if row.outcome is Outcome.UNGRADED)

    def matrix(self) -> Mapping[str, Mapping[str, Share]]:
        """Return for each attack and tier on how many tasks it was paid."""
        counts: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
        for row in self.rows:
            counts[row.attack][row.tier].append(row.outcome)
        return {name: {tier: _share(seen) for tier, seen in tiers.items()} for name, tiers in counts.items()}

    def as_json(self) -> dict[str, JsonValue]:
        """Return the counts and the matrix: {"attacks": {"total", "live", "paid", "by_tier"}, "honest", "idle", ...}."""
        raise NotImplementedError


def _share(outcomes: Sequence[Outcome]) -> Share:
    paid = sum(outcome is Outcome.PAID for outcome in outcomes)
    return Share(paid=paid, graded=sum(outcome is not Outcome.UNGRADED for outcome in outcomes))


async def run_battery(
    environment: Environment,
    tasks: Sequence[Task],
    backend: SandboxBackend,
    *,
    graders: Mapping[str, Verifier],
    battery: Battery,
    settings: BatterySettings = BatterySettings(),
) -> BatteryReport:
    """Run every attack and honest fix that fits a task in a normal episode, and let every grader judge what it left.

    The environment's own verifier, the one under audit, is the tier `REAL` and judges everything on all tasks.

    Args:
        environment: its tools, tasks and verifier; the harness is replaced by bash blocks.
        tasks: of the environment, or of others with the same verifier.
        backend: where episodes and gradings run.
        graders: reference graders by tier, such as `sanderling.testing.weak_graders.reference_graders(environment)`.
        battery: what acts; `sanderling.audit.catalogue.standard_battery()` is the one that comes with us.
        settings: how many at once, how many tasks the reference graders judge, and the seed of names and hidden inputs.

    Raises:
        ConfigError: no task, or a verifier that doesn't give its right solution.
    """
    raise NotImplementedError
