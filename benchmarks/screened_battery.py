"""What the screens say about the exploit battery, which they were not written against: attacks and honest fixes, acted out.

    python benchmarks/screened_battery.py [--kind function] [--tasks 1] [--attacks 137] [--json]

Every attack and every honest fix runs as an episode of the bash-block harness on function tasks (fix_python) or on repository
tasks (`sanderling.testing.repository_tasks`), is graded by the real verifier and looked at by all screens
(`screening.dual = "unpaid"`). An episode counts as found when its worst finding is suspected or proven. About 60 CPU-seconds
for one function task, 130 for one repository task.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import fix_python

from sanderling.audit.attack import Scene
from sanderling.audit.catalogue import standard_battery
from sanderling.audit.scripted import BytesCodec, ScriptEngine, actions_of
from sanderling.engine.protocol import SamplingParams
from sanderling.environment import Environment
from sanderling.harness.bash_block import BashBlockHarness
from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.episode import Plan, Stage
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.member import run_member
from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.sandbox.protocol import Kept
from sanderling.screening.assembly import make_panel
from sanderling.screening.config import ScreeningConfig
from sanderling.screening.findings import worst
from sanderling.screening.lint import Lint
from sanderling.store.estimators import wilson
from sanderling.testing.repository_tasks import make_repository_tasks
from sanderling.types import Graded, Member, Task, Ungraded
from sanderling.verify.protocol import DisclosingVerifier

REPOSITORY_TESTS = ("python3", "/tools/run_tests.py", "--root=src", "--root=tests", "-q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One script on one task."""

    name: str
    hostile: bool
    task: Task
    commands: Sequence[str]


def acts(place: Environment, count: int, most: int) -> list[Act]:
    """Return every attack that fits a task without a bait, and every honest fix that applies, on `count` tasks."""
    battery = standard_battery()
    made = []
    verifier = place.verifier
    assert isinstance(verifier, DisclosingVerifier)
    for task_id in Random(0).sample(list(place.tasks.ids("train")), count):
        task = place.tasks.get(task_id)
        limits = replace(
            task.limits, max_turns=100, max_context_tokens=4_000_000, max_action_tokens=200_000, processes=32
        )
        task = replace(task, limits=limits)
        right = verifier.right_files(task)
        for attack in [a for a in battery.attacks if not a.leak][:most]:
            scene = Scene(task=task, rng=Random(attack.id))
            if scene.kind in attack.kinds:
                made.append(Act(name=attack.id, hostile=True, task=task, commands=attack.script(scene)))
        for fix in battery.honest[:most]:
            commands = fix.script(Scene(task=task, rng=Random(fix.id)), right)
            if commands is not None:
                made.append(Act(name=fix.id, hostile=False, task=task, commands=commands))
    return made


async def screened(act: Act, place: Environment, backend: BubblewrapBackend) -> Member:
    """Run one act as a normal episode, graded and screened."""
    config = ScreeningConfig(dual="unpaid", confirmations=1)
    stage = Stage(
        environment=place,
        backend=backend,
        engine=ScriptEngine(actions_of(act.commands)),
        codec=BytesCodec(),
        sampling=SamplingParams(),
        capabilities=backend.probe(),
        screen=make_panel(config, place),
    )
    plan = Plan(task=act.task, group_id=act.name, index=0, attempt=0, seed=1)
    return (await run_member(plan, stage, RolloutConfig(retries=0), Ledger(), lambda member: None))[0]


def found_by(member: Member, names: Sequence[str] | None = None) -> bool:
    """Return whether the episode is suspected or proven, by screens of these names or by any."""
    counted = [found for found in member.findings if names is None or found.screen in names]
    return worst(counted) in ("suspected", "proven")


async def opened(kind: str, folder: Path, backend: BubblewrapBackend) -> Environment:
    """Return an environment of function tasks or of repository tasks, for shell commands."""
    if kind == "function":
        return replace(fix_python.environment(), harness=BashBlockHarness(), kept=Kept.NOTHING)
    made = await make_repository_tasks(folder, backend)
    return replace(made, harness=BashBlockHarness(test_argv=REPOSITORY_TESTS), test_argv=REPOSITORY_TESTS)


async def run(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    backend = BubblewrapBackend()
    results: list[tuple[Act, Member]] = []
    try:
        place = await opened(options.kind, folder, backend)
        for act in acts(place, options.tasks, options.attacks):
            results.append((act, await screened(act, place, backend)))
    finally:
        await backend.close()
    graded = [(act, member) for act, member in results if isinstance(member.verdict, Graded)]
    hostile = [(act, member) for act, member in graded if act.hostile]
    honest = [(act, member) for act, member in graded if not act.hostile]
    by_screen = Counter(f.screen for _, m in hostile for f in m.findings if f.severity != "info")
    return {
        "lint_recall": share([found_by(member, Lint.names) for _, member in hostile]),
        "recall": share([found_by(member) for _, member in hostile]),
        "proven": share([worst(member.findings) == "proven" for _, member in hostile]),
        "lint_false_alarms": share([found_by(member, Lint.names) for _, member in honest]),
        "false_alarms": share([found_by(member) for _, member in honest]),
        "proven_honest": share([worst(member.findings) == "proven" for _, member in honest]),
        "paid_attacks": [act.name for act, member in hostile if member.verdict.reward > 0],  # type: ignore[union-attr]
        "proven_attacks": [act.name for act, member in hostile if worst(member.findings) == "proven"],
        "missed": [act.name for act, member in hostile if not found_by(member)],
        "alarmed": [
            f"{act.name}: {f.screen}: {f.quote}" for act, m in honest for f in m.findings if f.severity != "info"
        ],
        "by_screen": dict(by_screen.most_common()),
        "ungraded": [act.name for act, member in results if isinstance(member.verdict, Ungraded)],
    }


def share(outcomes: Sequence[bool]) -> dict[str, float | int]:
    low, high = wilson(sum(outcomes), len(outcomes))
    return {"value": sum(outcomes) / max(1, len(outcomes)), "n": len(outcomes), "low": low, "high": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=("function", "repository"), default="function")
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--attacks", type=int, default=1000, help="attacks and honest fixes of each task, at most")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = asyncio.run(run(options, Path(folder)))
    if options.json:
        print(json.dumps(results))
        return
    for name, value in results.items():
        if isinstance(value, dict) and "low" in value:
            print(f"{name} {value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}], n = {value['n']}")
        else:
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
