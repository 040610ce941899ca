"""A visible test for one module: `python3 -P -s -S /tools/example.py`, in the agent's sandbox.

It runs solution.py, then example_test.py beside it with the same names, and prints `ok` or what stopped it:

    failed: assert add(2, 3) == 5
    ValueError in solution.py line 12

Exit code 0 if and only if it came to the end.
"""

import sys
import traceback

WIDTH = 160


def main():
    names = {"__name__": "solution"}
    sources = {}
    try:
        for name in ("solution.py", "example_test.py"):
            with open(name, encoding="utf-8") as file:  # noqa: PTH123
                sources[name] = file.read()
            exec(compile(sources[name], name, "exec"), names)
    except BaseException as error:
        print(described(error, sources)[:WIDTH])  # noqa: T201 - a program of its own
        sys.exit(1)
    print("ok")  # noqa: T201


def described(error, sources):
    """One line about what stopped it: the failed assertion, or the exception and its place."""
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__) if f.filename in sources]
    if isinstance(error, SyntaxError):
        frames.append((error.filename, error.lineno or 0))
    if not frames:
        return f"{type(error).__name__}: {error}"
    name, line = frames[-1]
    if name == "example_test.py" and isinstance(error, AssertionError):
        return f"failed: {sources[name].splitlines()[line - 1].strip()}"
    return f"{type(error).__name__} in {name} line {line}"


if __name__ == "__main__":
    main()
