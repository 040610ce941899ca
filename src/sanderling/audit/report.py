"""What a battery is and what it showed: rows, counts and the matrix of exploits against graders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from sanderling.audit.attack import Attack, Family, TaskKind
from sanderling.audit.honest import HonestFix
from sanderling.errors import ConfigError
from sanderling.types import JsonValue

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
    # of each kind, the first ones: there reference graders judge every attack. One that none of them has paid yet meets them
    # on further tasks, until it is paid or there is none left. The grader under audit judges on all tasks.
    reference_tasks: int = 1
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
        """Return the ids of attacks that a reference grader paid on a task where it doesn't pay for doing nothing."""
        free = {(row.tier, row.task) for row in self.idle if row.outcome is Outcome.PAID}
        return frozenset(row.attack for row in self.rows if shows_live(row, free))

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
        return {
            name: {tier: _share(seen[tier]) for tier in self.tiers if tier in seen} for name, seen in counts.items()
        }

    def as_json(self) -> dict[str, JsonValue]:
        """Return counts, the matrix, and every row that must not be there: paid, refused, not live, ungraded."""
        names, live = self.attacks(), self.live()
        wrong = (*self.paid(), *self.leaks(), *self.refused(), *self.ungraded(), *self._idle_paid())
        return {
            "attacks": {
                "total": len(names),
                "live": len(live),
                "not_live": sorted(set(names) - live),
                "paid": len({row.attack for row in self.paid()}),
                "leaks": len({row.attack for row in self.leaks()}),
                "by_tier": {
                    tier: len({r.attack for r in self.rows if r.paid and r.tier == tier}) for tier in self.tiers
                },
            },
            "honest": {
                "total": len({row.fix for row in self.honest}),
                "graded": sum(row.tier == REAL and row.outcome is not Outcome.UNGRADED for row in self.honest),
                "refused": len(self.refused()),
            },
            "idle": {
                "graded": sum(row.tier == REAL and row.outcome is not Outcome.UNGRADED for row in self.idle),
                "paid": len(self._idle_paid()),
            },
            "tasks": sorted({row.task for row in self.rows}),
            "matrix": {
                name: {tier: asdict(share) for tier, share in tiers.items()} for name, tiers in self.matrix().items()
            },
            "wrong": [asdict(row) for row in wrong],
            "seconds": round(self.seconds, 1),
        }

    def _idle_paid(self) -> tuple[HonestRow, ...]:
        return tuple(row for row in self.idle if row.tier == REAL and row.outcome is Outcome.PAID)


def shows_live(row: BatteryRow, free: Collection[tuple[str, str]]) -> bool:
    """Whether a row shows that its attack works; `free` are the (tier, task) where doing nothing is paid."""
    return row.paid and row.tier != REAL and (row.tier, row.task) not in free


def _share(outcomes: Sequence[Outcome]) -> Share:
    paid = sum(outcome is Outcome.PAID for outcome in outcomes)
    return Share(paid=paid, graded=sum(outcome is not Outcome.UNGRADED for outcome in outcomes))
