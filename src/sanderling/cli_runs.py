"""The verbs about runs: `runs check`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

runs_app = App(name="runs", help="Look after run folders.")


@runs_app.command(name="check")
def check_run_folder(run: Path, *, json_: Annotated[bool, Parameter(name="--json", negative=())] = False) -> None:
    """Check a run folder: accounts, tasks, schema, checkpoints, the log of episodes, and what killed processes left.

    Exit code 1 when something is wrong. Nothing is changed; a run that is going on may be checked.

    Parameters
    ----------
    run:
        The run folder.
    json_:
        Print one JSON object.
    """
    from sanderling.jobs.run_checks import check_run

    checks = check_run(run)
    ok = all(check.ok for check in checks)
    if json_:
        print(json.dumps({"run": str(run), "ok": ok, "checks": [check.as_json() for check in checks]}))
    else:
        for check in checks:
            print(f"{check.name}: {'ok' if check.ok else 'WRONG'}")
            for text in check.problems:
                print(f"  wrong: {text}")
            for text in check.notes:
                print(f"  note: {text}")
    if not ok:
        sys.exit(1)
