"""`sanderling audit ENV --policy FOLDER`: the part of the verb that looks at policies."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from sanderling.cli_running import run_job

if TYPE_CHECKING:
    from sanderling.jobs.integrity import IntegrityRequest


def report_policies(request: IntegrityRequest, *, as_json: bool) -> None:
    """Run the policies and print the table, or one JSON object as the last line."""
    from sanderling.audit.integrity_report import table
    from sanderling.jobs.integrity import audit_policies

    stream = sys.stderr if as_json else sys.stdout

    def show(line: str) -> None:
        print(line, file=stream, flush=True)

    report = run_job(audit_policies(request, show))
    print(json.dumps(report.as_json()) if as_json else "\n".join(table(report)))
