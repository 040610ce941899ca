"""The verbs about credit: `credit list`, and what other modules add to `credit_app`."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import App, Parameter

credit_app = App(name="credit", help="Estimators: who among the actions of an episode gets its reward.")


@credit_app.command(name="list")
def list_estimators(*, json_: Annotated[bool, Parameter(name="--json", negative=())] = False) -> None:
    """Print the built-in estimators: what each needs, its equation and source, and whether its gradient is unbiased.

    Parameters
    ----------
    json_:
        Print one JSON object.
    """
    from sanderling.credit.catalogue import listed

    found = listed()
    if json_:
        print(json.dumps({"estimators": [line.as_json() for line in found]}))
        return
    for line in found:
        note = f" ({line.note})" if line.note else ""
        print(f"{line.name}{note}: one number per {line.about.level}; needs {', '.join(line.needs) or 'nothing'}")
        print(f"    {line.about.equation}    [{line.about.source}]")
        print(f"    gradient: {line.about.gradient}")
