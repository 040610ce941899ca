"""The visible tests: runs solution.py on the calls of examples.json and prints a report of at most 160 characters.

    ok 2 of 4
    clamp(5, 0, 3) = 5 want 3
    clamp(9, 0, 3) raised IndexError line 4 want 3

Lies at /tools/visible.py in the agent's sandbox. Exit code 0 if and only if every call gave the right result. It runs
once or more in every episode, so it starts fast: no import beyond what the interpreter has loaded anyway.
"""

import sys
from _signal import ITIMER_PROF, ITIMER_REAL, SIGALRM, SIGPROF, setitimer, signal  # ty: ignore[import-not-found]  `signal` itself costs 3 ms (enum)

CALL_CPU_S = 0.1
CALL_S = 1.0  # for a call that sleeps
CALL_WIDTH, VALUE_WIDTH = 34, 16  # characters of a call and of a value that are shown
LINE_WIDTH = 74
LINES = 2  # failing calls that are shown


class Timeout(BaseException):
    """One call took too long. Not an Exception, so that no `except Exception` of the solution catches it."""


class Printed:
    """Stands in for standard output while the solution runs."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        if len(self.text) < 20_000:
            self.text += text
        return len(text)

    def flush(self):
        pass


def cut_off(signum, frame):
    raise Timeout


def decode(data):
    """The Python value of an encoded one (the encoding of sanderling.verify.values, as far as examples use it)."""
    if type(data) is list:
        return [decode(item) for item in data]
    if type(data) is not dict:
        return data
    ((kind, inner),) = data.items()
    if kind == "float":
        return float(inner)
    if kind == "dict":
        return {decode(key): decode(item) for key, item in inner}
    if kind == "bytes":
        return bytes.fromhex(inner)
    return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](decode(item) for item in inner)


def same(got, want):
    """Equal in value and in the exact type of every part."""
    if type(got) is not type(want):
        return False
    if type(want) in (list, tuple):
        return len(got) == len(want) and all(map(same, got, want))
    if type(want) is dict:
        types = {(type(key), key) for key in got} == {(type(key), key) for key in want}
        return types and all(same(got[key], want[key]) for key in want)
    if type(want) is float:
        return repr(got) == repr(want)
    return got == want


def shown(value):
    """The text of a value, also where Python refuses to write it: a whole number of thousands of digits."""
    try:
        return repr(value)
    except ValueError:
        return "a huge number"


def cut(text, width):
    return text if len(text) <= width else text[: width - 2] + ".."


def load():
    """The namespace of solution.py, or a line that says why there is none."""
    namespace = {"__name__": "solution"}
    try:
        with open("solution.py", encoding="utf-8") as file:  # noqa: PTH123  (pathlib costs 8 ms)
            text = file.read()
        exec(compile(text, "solution.py", "exec"), namespace)
    except BaseException as error:
        return f"error: {type(error).__name__}{place(error)}"
    return namespace


def place(error):
    """The line of solution.py in which an exception arose, as it is shown."""
    line = getattr(error, "lineno", None)
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "solution.py":
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" line {line}" if line else ""


def run(function, example):
    """One call: None if it was right, else what was wrong with it. Raises Timeout."""
    arguments, after = decode(example["call"]), decode(example["arguments"])
    raised, value, where = None, None, ""
    out = sys.stdout = Printed()
    limit(CALL_CPU_S, CALL_S)
    try:
        value = function(*arguments)
    except Timeout:
        raise
    except BaseException as error:
        raised, where = type(error).__name__, place(error)
    finally:
        limit(0, 0)
        sys.stdout = sys.__stdout__
    want_raised = example["raised"] and example["raised"].rpartition(".")[2]
    want = decode(example["value"])
    if raised != want_raised or (raised is None and not same(value, want)):
        seen = f"raised {raised}{where}" if raised else f"= {cut(shown(value), VALUE_WIDTH)}"
        return f"{seen} want {want_raised or cut(repr(want), VALUE_WIDTH)}"
    if out.text != example["printed"]:
        return f"printed {cut(shown(out.text), VALUE_WIDTH)} want {cut(repr(example['printed']), VALUE_WIDTH)}"
    for got, right in zip(arguments, after):  # noqa: B905  (equally long)
        if not same(got, right):
            return f"left {cut(shown(got), VALUE_WIDTH)} want {cut(repr(right), VALUE_WIDTH)}"
    return None


def limit(cpu_s, wall_s):
    setitimer(ITIMER_PROF, cpu_s, cpu_s)
    setitimer(ITIMER_REAL, wall_s, wall_s)


def report(function, name, calls):
    """The lines to print. After a call that does not end, no further one is tried."""
    passed, failures = 0, []
    for example in calls:
        call = cut(f"{name}({', '.join(map(repr, decode(example['call'])))})", CALL_WIDTH)
        try:
            wrong = run(function, example)
        except Timeout:
            limit(0, 0)
            failures.append(f"{call} timeout")
            break
        if wrong is None:
            passed += 1
        else:
            failures.append(f"{call} {wrong}")
    return [f"ok {passed} of {len(calls)}", *(cut(line, LINE_WIDTH) for line in failures[:LINES])], passed == len(calls)


def main():
    # JSON as it is written here is a Python expression; a parser would cost 7 ms. The file is the agent's own.
    with open("examples.json", encoding="utf-8") as file:  # noqa: PTH123
        examples = eval(file.read(), {"null": None, "true": True, "false": False})
    signal(SIGPROF, cut_off)
    signal(SIGALRM, cut_off)
    name = examples["function"]
    limit(CALL_CPU_S, CALL_S)
    namespace = load()
    limit(0, 0)
    if type(namespace) is str:
        lines, passed = [namespace], False
    elif name not in namespace:
        lines, passed = [f"error: no function {name}"], False
    else:
        lines, passed = report(namespace[name], name, examples["calls"])
    sys.stdout = sys.__stdout__
    print("\n".join(lines)[:160], flush=True)  # noqa: T201
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
