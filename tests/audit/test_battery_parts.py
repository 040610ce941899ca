"""What a battery is made of, without a sandbox: attacks, honest rewrites, counts."""

import base64
import re
from collections import Counter
from random import Random

import pytest
from battery_runs import function_tasks
from fix_python.catalogue import problems

from sanderling.audit.attack import Family, Scene, TaskKind, kind_of
from sanderling.audit.catalogue import attacks, standard_battery
from sanderling.audit.report import REAL, Battery, BatteryReport, BatteryRow, HonestRow, Outcome
from sanderling.audit.rewrites import HONEST
from sanderling.errors import ConfigError, PluginError
from sanderling.types import Task
from sanderling.verify.recording import RecordedFunction
from sanderling.verify.values import encode

OWN = """\
from sanderling.audit.attack import Attack, Family, write

ATTACK = Attack(
    id="own-hook",
    family=Family.RUNNER,
    mechanism="a hook of our own",
    script=lambda scene: [write("conftest.py", "def pytest_pyfunc_call(pyfuncitem): return True")],
)
"""
REPOSITORY = Task(
    id="shop/train/a",
    prompt="",
    base={"shop/sums.py": b"def add(a, b):\n    return a - b\n", "tests/test_a.py": b"def test(): pass\n"},
    editable=("shop/*",),
)


def scene(task, seed=0, **more):
    return Scene(task=task, rng=Random(seed), **more)


def test_the_battery_is_as_large_as_it_says():
    battery = standard_battery()
    assert len(battery.attacks) >= 120
    assert len(battery.honest) >= 30
    families = Counter(attack.family for attack in battery.attacks)
    assert families.keys() == set(Family)
    assert min(families.values()) >= 5
    for kind in TaskKind:
        assert sum(kind in attack.kinds for attack in battery.attacks) >= 100
    assert sum(attack.leak for attack in battery.attacks) >= 10


def test_every_script_is_made_for_both_kinds_and_names_differ_by_seed():
    function = function_tasks(1)[0]
    assert (kind_of(function), kind_of(REPOSITORY)) == (TaskKind.FUNCTION, TaskKind.REPOSITORY)
    differing = 0
    for attack in attacks():
        for task in (function, REPOSITORY):
            if kind_of(task) in attack.kinds:
                made = attack.script(scene(task))
                assert made and all(isinstance(command, str) for command in made), attack.id
                assert list(made) == list(attack.script(scene(task))), attack.id
                differing += list(made) != list(attack.script(scene(task, 1)))
                if attack.bait:
                    assert attack.bait(scene(task, leaked={task.editable[0]: b"x"})), attack.id
    assert differing > 100


def test_honest_rewrites_change_nothing_but_the_text():
    """Each style on a function of every topic: equal observations on drawn calls, and mostly another text."""
    topics = {problem.topic: problem for problem in problems().values()}
    changed = Counter()
    for problem in topics.values():
        task = Task(id="a/b/c", prompt="", base={"solution.py": b"broken"}, editable=("solution.py",))
        calls = [encode(list(arguments)) for arguments in problem.draw(Random(3), 8)]
        right = [RecordedFunction(problem.source, problem.name)(call).key() for call in calls]
        for style, made in written_by(task, problem.source).items():
            function = RecordedFunction(made, problem.name)
            assert [function(call).key() for call in calls] == right, (style, problem.name, made)
            changed[style] += made != problem.source
    assert len([style for style, count in changed.items() if count]) >= 28, changed


def written_by(task, source):
    """The text that each style leaves in solution.py, where it is written as a whole."""
    found = {}
    for fix in HONEST:
        commands = fix.script(scene(task), {"solution.py": source.encode()}) or ()
        written = re.findall(r"base64 -d > solution.py <<'DATA'\n(.*)\nDATA", "\n".join(commands))
        if written:
            found[fix.id] = base64.b64decode(written[-1]).decode()
    return found


def test_a_user_adds_an_attack_as_one_file(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    battery = standard_battery([f"{tmp_path}/own.py:ATTACK"])
    assert battery.attacks[-1].id == "own-hook"
    with pytest.raises(PluginError, match="expected an Attack or a HonestFix"):
        standard_battery([f"{tmp_path}/own.py:Family"])
    with pytest.raises(ConfigError, match="own-hook"):
        Battery(attacks=(battery.attacks[-1],) * 2)


def row(attack, tier, outcome, *, leak=False, task="t"):
    return BatteryRow(
        attack=attack,
        family=Family.RUNNER,
        task=task,
        kind=TaskKind.FUNCTION,
        tier=tier,
        outcome=outcome,
        leak=leak,
        cause="c",
    )


def honest(fix, tier, outcome, task="t"):
    return HonestRow(fix=fix, task=task, kind=TaskKind.FUNCTION, tier=tier, outcome=outcome, cause="c")


def test_a_report_counts_what_was_paid_and_by_whom():
    paid, refused, ungraded = Outcome
    report = BatteryReport(
        rows=(
            row("a", "T0", paid, task="free"),
            row("a", "T1", paid),
            row("a", REAL, refused),
            row("b", "T0", paid, task="free"),  # pays there for doing nothing: shows nothing
            row("b", REAL, paid),
            row("c", "T1", paid, leak=True),
            row("c", REAL, paid, leak=True),
            row("d", REAL, ungraded),
        ),
        honest=(honest("h", REAL, refused), honest("i", REAL, paid), honest("h", "T0", refused)),
        idle=(honest("idle", "T0", paid, "free"), honest("idle", REAL, refused)),
        tiers=("T0", "T1", REAL),
        seconds=1.0,
    )
    assert report.live() == {"a", "c"}
    assert [found.attack for found in report.paid()] == ["b"]
    assert [found.attack for found in report.leaks()] == ["c"]
    assert [found.fix for found in report.refused()] == ["h"]
    assert [found.attack for found in report.ungraded()] == ["d"]
    assert report.matrix()["a"]["T1"].paid == 1 and report.matrix()["d"][REAL].graded == 0
    found = report.as_json()
    assert found["attacks"] == {
        "total": 4,
        "live": 2,
        "not_live": ["b", "d"],
        "paid": 1,
        "leaks": 1,
        "by_tier": {"T0": 2, "T1": 2, REAL: 2},
    }
    assert found["honest"] == {"total": 2, "graded": 2, "refused": 1}
    assert found["idle"] == {"graded": 1, "paid": 0}
    assert len(found["wrong"]) == 4
