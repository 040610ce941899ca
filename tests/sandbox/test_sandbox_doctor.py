"""What is said where something is missing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sanderling.errors import SandboxUnavailable
from sanderling.sandbox import bubblewrap as bubblewrap_module
from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.sandbox.doctor import Check, examine, explain_namespace_failure
from sanderling.sandbox.protocol import SandboxSpec


def test_a_machine_without_bubblewrap_is_told_how_to_get_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(bubblewrap_module, "find_bubblewrap", lambda: None)
    backend = BubblewrapBackend(tmp_path)
    with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap"):
        asyncio.run(backend.create(SandboxSpec(files={})))
    asyncio.run(backend.close())
    capabilities = backend.probe()
    assert not capabilities.usable
    assert "apt-get install bubblewrap" in capabilities.missing[0]


def test_a_closed_backend_says_so(tmp_path: Path) -> None:
    backend = BubblewrapBackend(tmp_path)
    asyncio.run(backend.close())
    with pytest.raises(SandboxUnavailable, match="closed"):
        asyncio.run(backend.create(SandboxSpec(files={})))


def test_examine_runs_the_backends(bubblewrap, tmp_path: Path) -> None:
    checks = {check.name: check for check in examine(tmp_path)}
    assert checks["backend bubblewrap"].ok
    assert checks["backend bubblewrap"].detail.startswith("mode root" if os.geteuid() == 0 else "mode user")
    assert "isolation none" in checks["backend local"].detail
    assert all(check.remedy for check in checks.values() if not check.ok)
    assert list(tmp_path.glob("backend-*")) == []


def test_namespace_failures_name_a_way_out() -> None:
    assert "CAP_SYS_ADMIN" in explain_namespace_failure("unshare: Operation not permitted", "root")


def test_each_open_risk_stands_on_its_own_line(bubblewrap, tmp_path: Path) -> None:
    (local,) = [check for check in examine(tmp_path) if check.name == "backend local"]
    first, *risks = local.lines()
    assert first == "ok   backend local: mode plain, isolation none"
    assert len(risks) == len(local.open_risks) >= 3
    assert risks[0].startswith("     open: everything: ")
    assert all(risk in local.detail for risk in local.open_risks)
    assert set(local.as_json()) == {"name", "ok", "detail", "remedy"}
    broken = Check(name="x", ok=False, detail="missing", remedy="get it")
    assert broken.lines() == ["MISS x: missing", "     -> get it"]
