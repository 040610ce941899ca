"""Certificates: what makes one valid, and what training does without."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from sanderling import jobs
from sanderling.audit.admission import Admission, Scope, TaskVerdict, Verdict
from sanderling.audit.certificate import Named, certificate, check_certificate, write_certificate
from sanderling.audit.findings import CheckResult, Outcome
from sanderling.audit.fingerprints import fingerprint
from sanderling.audit.intervals import counted
from sanderling.audit.rates import Judged
from sanderling.config import load_config
from sanderling.environment import Environment
from sanderling.errors import CertificateError
from sanderling.jobs.certificates import certificate_facts, check_isolation, require_certificate, standing_of
from sanderling.report.terminal import ProgressStyle
from sanderling.store.reader import RunReader
from sanderling.testing.environments import calc_environment, memory_backend
from sanderling.testing.letters import letter_environment
from sanderling.testing.tiny_model import tiny_llama_folder
from sanderling.types import Limits

RESULT = CheckResult(
    check="gold", outcome=Outcome.PASSED, task="calc/train/0", n=20, rate=counted(0, 20), reason="paid in 20 of 20 runs"
)


def written(path: Path, environment: Environment, verdict: Verdict = Verdict.ADMITTED) -> Path:
    """Write the certificate of an audit of one check."""
    admission = Admission(
        verdict=verdict,
        results=(RESULT,),
        tasks=(TaskVerdict(task="calc/train/0", defects=()),),
        judged=Judged(right=1, right_paid=1, wrong=20, wrong_paid=0),
        seconds=1.0,
    )
    named = Named(name="my.py:calc", settings={"path": "a b"}, backend="local")
    record = certificate(environment, admission, Scope(), named, memory_backend().probe())
    write_certificate(path, record)
    return path


def test_a_certificate_holds_for_the_environment_as_it_was(tmp_path):
    environment = calc_environment()
    path = written(tmp_path / "c.json", environment)
    standing = check_certificate(path, environment, isolation="none")
    assert standing.valid, standing.problems
    assert standing.as_json() == {"path": str(path), "hash": standing.digest, "valid": True, "problems": []}
    record = json.loads(path.read_text())
    assert record["hashes"] == fingerprint(environment).as_json()
    assert record["rates"]["alpha"]["n"] == 20
    assert record["checks"][0]["openenv"] == "semantic.oracle_max"
    replay = "sanderling audit my.py:calc --only=gold --task=calc/train/0 --seed=0 --backend=local"
    assert record["checks"][0]["replay"] == f"{replay} '--environment_settings.path=a b'"


def test_what_ends_a_certificate(tmp_path):
    environment = calc_environment()
    path = written(tmp_path / "c.json", environment)
    quarantined = written(tmp_path / "q.json", environment, Verdict.QUARANTINED)
    tampered = tmp_path / "t.json"
    tampered.write_text(quarantined.read_text().replace("QUARANTINED", "ADMITTED"))
    broken = tmp_path / "b.json"
    broken.write_text('{"digest": 1}')
    for place, now, said in (
        (path, calc_environment(count=5), "tasks are others"),
        (path, replace(environment, tools={"run": b"1"}), "tasks are others"),
        (path, replace(environment, verifier=letter_environment().verifier), "grader was changed"),
        (quarantined, environment, "QUARANTINED"),
        (tampered, environment, "changed after it was written"),
        (broken, environment, "can't be read"),
        (tmp_path / "none.json", environment, "no certificate"),
        (None, environment, "no certificate"),
    ):
        standing = check_certificate(place, now)
        assert not standing.valid
        assert said in standing.problems[0]
    assert "isolation" in check_certificate(path, environment, isolation="namespaces").problems[0]


def test_limits_of_a_run_are_no_other_tasks():
    assert fingerprint(calc_environment(limits=Limits(max_turns=3))) == fingerprint(calc_environment())


def test_the_certificate_beside_the_run_goes_before_the_shipped_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = written(tmp_path / "shipped.json", calc_environment())
    environment = replace(calc_environment(), certificate=shipped)
    assert standing_of(environment).path == shipped
    written(tmp_path / "certificates" / "calc.json", environment, Verdict.QUARANTINED)
    assert standing_of(environment).path == shipped  # the first valid one
    own = written(tmp_path / "certificates" / "calc.json", environment)
    assert standing_of(environment).path == own.relative_to(tmp_path)
    assert not standing_of(calc_environment(), "nowhere.json").valid


def trained(policy: str, run: str) -> RunReader:
    """Train letters for a step in the current directory."""
    overrides = {
        "environment": "sanderling.testing.letters:letter_environment",
        "sandbox.backend": "sanderling.testing.environments:memory_backend",
        "policy": policy,
        "engine.threads": 1,
        "steps": 1,
        "rollout.groups_per_step": 1,
        "rollout.group_size": 2,
        "evaluation.tasks": 1,
    }
    job = jobs.train(
        load_config([], overrides), Path(run), resume=False, stream=io.StringIO(), style=ProgressStyle.PLAIN
    )
    asyncio.run(job)
    return RunReader(Path(run))


def test_training_without_a_certificate_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CertificateError, match=r"no valid certificate at certificates/letters\.json.*sanderling audit"):
        trained("fix-python-tiny", "refused")
    assert not Path("refused").exists()


@pytest.mark.slow
def test_a_certified_run_says_by_what(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "certificates" / "letters.json", letter_environment())
    found = trained(str(tiny_llama_folder(tmp_path / "tiny")), "certified").environment()["certificate"]
    assert found["path"] == str(path.relative_to(tmp_path))
    assert found["digest"] == json.loads(path.read_text())["digest"]
    assert "valid, of" in Path("certified/report.html").read_text()


def test_a_certificate_is_for_one_kind_of_sandbox(tmp_path):
    environment = calc_environment()
    path = written(tmp_path / "c.json", environment)
    standing = require_certificate(load_config([], {"trust.file": str(path)}), environment)
    check_isolation(standing, "none")
    with pytest.raises(CertificateError, match="this run's sandboxes have 'namespaces'"):
        check_isolation(standing, "namespaces")
    assert certificate_facts(standing)["certificate"]["valid"]
