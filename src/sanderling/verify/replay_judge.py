"""Runs a hidden test on answers instead of on a function: `python3 -S /tools/replay_judge.py`, in a sandbox of its own.

The test is code that calls one function and asserts what it likes about the results. It never meets the function that an
agent wrote: first it runs on the right one, and the calls that it makes are noted; the same calls are then made elsewhere;
and here it runs again, with what was seen there handed out call by call. Its assertions decide, tolerances included.

    request   {"gold", "test", "function", "seed", "calls": null | [arguments], "answers": null | [[observed]]}
    answer    {"calls": [arguments], "answers": [observed], "error": text | null}    where no calls were given: recorded ones
              {"errors": [text | null]}                                              else one per list of answers: null = passed

Values are encoded as in `values.py`, which lies beside this file. Standard library only.
"""

import json
import os
import random
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

MOST_CALLS = 5_000


class Unusable(Exception):
    """The test does something that can't be replayed."""


class Diverged(Exception):
    """The test made another call than before."""


class RaisedElsewhere(Exception):
    """The function raised an exception of this name where it ran."""


def load_values():
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100,PTH120
    module = ModuleType("values")
    SourceFileLoader("values", os.path.join(folder, "values.py")).exec_module(module)  # noqa: PTH118
    return module


class Recorder:
    """Calls the right function and notes arguments and results."""

    def __init__(self, values, function):
        self.values = values
        self.function = function
        self.calls = []
        self.answers = []

    def __call__(self, *arguments, **keywords):
        if keywords:
            raise Unusable(f"it calls the function with keywords ({', '.join(keywords)})")
        if len(self.calls) >= MOST_CALLS:
            raise Unusable(f"it makes more than {MOST_CALLS} calls")
        encoded = self.values.encode(list(arguments))
        if self.values.has_opaque(encoded):
            raise Unusable("it passes a value of an unknown type")
        self.calls.append(encoded)
        value, raised = None, None
        try:
            value = self.function(*arguments)
            return value
        except Exception as error:
            raised = self.values.type_name(type(error))
            raise
        finally:
            answer = {
                "value": self.values.encode(value),
                "raised": raised,
                "arguments": self.values.encode(list(arguments)),
            }
            self.answers.append(answer)


class Replayer:
    """Hands out answers in the order of the calls."""

    def __init__(self, values, calls, answers):
        self.values = values
        self.rest = list(zip(calls, answers))[::-1]  # noqa: B905

    def __call__(self, *arguments, **keywords):
        encoded = self.values.encode(list(arguments))
        if keywords or not self.rest:
            raise Diverged
        call, answer = self.rest.pop()
        if not self.values.same(call, encoded):
            raise Diverged
        if answer["raised"] is not None:
            raise RaisedElsewhere(answer["raised"])
        for argument, after in zip(arguments, self.values.decode(answer["arguments"])):  # noqa: B905
            change_in_place(argument, after)
        return self.values.decode(answer["value"])


def change_in_place(argument, after):
    """Make a mutable argument what the call left behind."""
    if type(argument) is not type(after):
        return
    if type(argument) is list:
        argument[:] = after
    elif type(argument) in (dict, set):
        argument.clear()
        argument.update(after)


def run_test(request, make):
    """Run the test on `make(right function)`; return that object and what stopped the test, None where nothing did."""
    module = {"__name__": "solution"}
    random.seed(request["seed"])
    exec(compile(request["gold"], "solution.py", "exec"), module)
    subject = make(module[request["function"]])
    names = {**module, "__name__": "hidden_test", request["function"]: subject}
    random.seed(request["seed"])
    try:
        exec(compile(request["test"], "hidden_test.py", "exec"), names)
    except BaseException as error:
        return subject, f"{type(error).__name__}: {error}"[:200]
    return subject, None


def main():
    values = load_values()
    request = json.loads(sys.stdin.buffer.read())
    channel, sys.stdout = sys.stdout, sys.stderr
    if request["calls"] is None:
        recorder, error = run_test(request, lambda function: Recorder(values, function))
        answer = {"calls": recorder.calls, "answers": recorder.answers, "error": error}
    else:
        errors = [
            run_test(request, lambda _, given=given: Replayer(values, request["calls"], given))[1]
            for given in request["answers"]
        ]
        answer = {"errors": errors}
    channel.write(json.dumps(answer, separators=(",", ":")) + "\n")
    channel.flush()


if __name__ == "__main__":
    main()
