"""Batteries on real sandboxes, for the tests of this folder."""

import fix_python

from sanderling.audit.battery import BatterySettings, run_battery
from sanderling.audit.catalogue import standard_battery
from sanderling.audit.report import Battery
from sanderling.testing.weak_graders import reference_graders


def chosen(*names):
    """The parts of the standard battery whose ids begin with one of the names."""
    whole = standard_battery()
    return Battery(
        attacks=tuple(attack for attack in whole.attacks if attack.id.startswith(names)),
        honest=tuple(fix for fix in whole.honest if fix.id.startswith(names)),
    )


def function_tasks(count):
    """Tasks of fix_python whose bug shows in the visible tests, spread over the functions."""
    tasks = fix_python.environment().tasks
    shown = [name for name in tasks.ids("train") if tasks.get(name).metadata["visible"] == "fails"]
    return [tasks.get(name) for name in shown[:: max(1, len(shown) // count)][:count]]


async def battery_on(environment, tasks, backend, battery, *, tiers=(), seed=0):
    """Run a battery with the reference graders of these tiers (none named: all)."""
    graders = {name: grader for name, grader in reference_graders(environment).items() if name in tiers or not tiers}
    settings = BatterySettings(concurrency=3, seed=seed)
    return await run_battery(environment, tasks, backend, graders=graders, battery=battery, settings=settings)
