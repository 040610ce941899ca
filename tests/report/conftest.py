from __future__ import annotations

from pathlib import Path

import pytest
from demo_report_run import write_demo_run


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo_run(tmp_path_factory.mktemp("runs") / "2026-01-15-fix-python-7f3a")
