"""Runs a script with the wall clock moved: `python3 shifted_clock.py SCRIPT [arguments]`, inside a grading sandbox.

SHIFTED_CLOCK_DAYS says by how much. `datetime` takes its Python form, whose `now` and `today` ask `time.time`; the C form can't
be moved from inside. Standard library only.
"""

import os
import sys
import time


def shift(days):
    """Move `time` and, as long as it isn't loaded, `datetime`."""
    seconds = days * 86_400.0
    clock, clock_ns = time.time, time.time_ns
    local, utc, text, table, form = time.localtime, time.gmtime, time.ctime, time.asctime, time.strftime

    def now():
        return clock() + seconds

    moved = {
        "time": now,
        "time_ns": lambda: clock_ns() + int(seconds * 1e9),
        "localtime": lambda at=None: local(now() if at is None else at),
        "gmtime": lambda at=None: utc(now() if at is None else at),
        "ctime": lambda at=None: text(now() if at is None else at),
        "asctime": lambda at=None: table(local(now()) if at is None else at),
        "strftime": lambda shape, at=None: form(shape, local(now()) if at is None else at),
    }
    for name, function in moved.items():
        setattr(time, name, function)
    if "datetime" not in sys.modules:
        sys.modules["_datetime"] = None  # ty: ignore[invalid-assignment]  that is how an import is forbidden


def from_environment():
    shift(float(os.environ.get("SHIFTED_CLOCK_DAYS", "0")))


def main():
    from runpy import run_path  # before the clock moves: it loads nothing that keeps a time

    from_environment()
    del sys.argv[0]
    run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
