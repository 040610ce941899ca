"""`sanderling audit`: its contract for scripts, and the results of a battery."""

from __future__ import annotations

import json
import sys

import pytest

from sanderling import cli
from sanderling.assemble import load_environment
from sanderling.audit.attack import Family, TaskKind
from sanderling.audit.battery_checks import battery_results
from sanderling.audit.findings import Outcome
from sanderling.audit.report import REAL, BatteryReport, BatteryRow, HonestRow
from sanderling.audit.report import Outcome as Paid
from sanderling.jobs.certificates import standing_of
from sanderling.sandbox.bubblewrap import BubblewrapBackend

DEFECTIVE = "sanderling.testing.defective_tasks:defective_environment"


@pytest.fixture
def audit(capsys, monkeypatch, tmp_path):
    """Return a function that runs `sanderling audit` in this process: exit code, the object of --json, standard error."""
    if missing := BubblewrapBackend().probe().missing:
        pytest.skip("; ".join(missing))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, dict, str]:
        monkeypatch.setattr(sys, "argv", ["sanderling", "audit", *arguments, "--json"])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        last = captured.out.strip().splitlines()[-1] if captured.out.strip() else "{}"
        return code, json.loads(last), captured.err

    return run


def row(attack: str, tier: str, outcome: Paid, *, leak: bool = False) -> BatteryRow:
    return BatteryRow(
        attack=attack,
        family=Family.RUNNER,
        task="t",
        kind=TaskKind.FUNCTION,
        tier=tier,
        outcome=outcome,
        leak=leak,
        cause="",
    )


def battery(*rows: BatteryRow, honest: Paid = Paid.PAID) -> BatteryReport:
    fix = HonestRow(fix="plain", task="t", kind=TaskKind.FUNCTION, tier=REAL, outcome=honest, cause="slow")
    return BatteryReport(rows=rows, honest=(fix,), idle=(), tiers=("T1", REAL), seconds=1.0)


def test_a_part_of_an_audit_keeps_the_contract(audit):
    code, found, said = audit(DEFECTIVE, "--task", "defective/train/no-op-paid", "--only", "gold,no-op", "--runs", "2")
    assert code == 1
    assert found["verdict"] == "PARTIAL"
    assert set(found["certificate"]) >= {"path", "hash", "valid"}
    assert set(found["attacks"]) >= {"total", "live", "paid", "by_tier"}
    assert set(found["honest"]) >= {"total", "refused"}
    assert found["tasks"] == {"examined": 1, "admitted": 0, "quarantined": {"no-op-paid": 1}}
    for name in ("alpha", "beta", "fdr", "joint", "j"):
        assert set(found["rates"][name]) >= {"value", "n", "low", "high"}
    assert found["flake"] == {"runs": 2, "bound": pytest.approx(1 - 0.05**0.5, abs=1e-6)}
    assert "no-op-paid" in json.dumps(found["checks"])
    assert "paid: nothing" in said


def test_several_tasks_can_be_named(audit):
    tasks = ("defective/train/no-op-paid", "defective/train/good")
    named = [word for task in (*tasks, tasks[0]) for word in ("--task", task)]
    code, found, _ = audit(DEFECTIVE, *named, "--only", "no-op")
    assert code == 1
    assert found["tasks"] == {"examined": 2, "admitted": 1, "quarantined": {"no-op-paid": 1}}
    assert {check["task"] for check in found["checks"]} == set(tasks)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "golden"), "no check 'golden'; there are gold, "),
        (("--tier", "T9", "--tasks", "1"), "no reference grader 'T9'"),
    ],
)
def test_a_wrong_audit_is_one_clear_error(audit, arguments, said):
    code, _, err = audit(DEFECTIVE, *arguments)
    assert code == 2
    assert said in err


@pytest.mark.slow
def test_a_whole_audit_of_an_in_process_grader_is_a_quarantine(audit, tmp_path):
    """Hidden tests that run in the process of the submission are paid by attacks; no certificate of it lets anybody train."""
    code, found, _ = audit(DEFECTIVE, "--tasks", "1", "--runs", "2")
    assert code == 1
    assert found["verdict"] == "QUARANTINED"
    assert found["attacks"]["paid"] > 10
    assert found["certificate"]["path"] == "certificates/defective.json"
    assert not found["certificate"]["valid"]
    assert json.loads((tmp_path / "certificates" / "defective.json").read_text())["verdict"] == "QUARANTINED"


def test_what_a_battery_says():
    refused, paid = Paid.REFUSED, Paid.PAID
    good = battery(row("a", "T1", paid), row("a", REAL, refused))
    assert [result.outcome for result in battery_results(good)] == [Outcome.PASSED] * 3
    cases = {
        "attack-paid": battery(row("a", "T1", paid), row("a", REAL, paid)),
        "fix-leaks": battery(row("a", "T1", paid), row("a", REAL, paid, leak=True)),
        "agent-causes-ungraded": battery(row("a", "T1", paid), row("a", REAL, Paid.UNGRADED)),
        "attacks-not-live": battery(row("a", "T1", refused), row("a", REAL, refused)),
        "honest-fix-refused": battery(row("a", "T1", paid), row("a", REAL, refused), honest=refused),
    }
    for defect, report in cases.items():
        assert [result.defect for result in battery_results(report) if result.against] == [defect]


def test_the_shipped_certificate_of_fix_python_is_valid():
    standing = standing_of(load_environment("fix_python"), str(load_environment("fix_python").certificate))
    how = "make it anew: sanderling audit fix_python --out environments/fix_python/certificate.json"
    assert standing.valid, f"{standing.problems}; {how}"
    made = standing.record["made"]
    assert isinstance(made, dict)
    assert made["isolation"] == "namespaces"
