"""The program that calls what an agent wrote, inside the grading sandbox: `python3 -P -s -S observer.py`.

It reads one JSON request from standard input and answers with one JSON line per call on a copy of standard output that is
made before the agent's code is loaded. It knows inputs only. Nothing here is trusted: the agent's code runs in the same
process and may change all of it, but it can't know what the right answers are.

    request   {"file", "function", "ready", "calls": [{"nonce", "arguments"}], "done", "call_cpu_s", "call_s"}
    answers   {"nonce": ready}
              {"nonce", "value", "raised", "arguments", "printed"}    one per call, in order
              {"nonce", "cut_off": true}                              the call did not end: no further one is made
              {"nonce": ready, "failed": "SyntaxError"}               the file could not be loaded
              {"nonce": done}

Standard library only; `values.py` lies beside it.
"""

import json
import os
import signal
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

MAX_PRINTED = 20_000


class CutOff(BaseException):
    """A call took too long. Not an Exception, so that no `except Exception` catches it."""


class Printed:
    """Stands in for standard output and keeps the beginning of what is printed."""

    def __init__(self):
        self.parts = []
        self.room = MAX_PRINTED

    def write(self, text):
        if type(text) is not str:
            raise TypeError("write() needs a str")
        if self.room > 0:
            self.parts.append(text[: self.room])
            self.room -= len(text)
        return len(text)

    def flush(self):
        pass


def load_values():
    """The module beside this file; nothing is put on the path."""
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100,PTH120
    module = ModuleType("values")
    SourceFileLoader("values", os.path.join(folder, "values.py")).exec_module(module)  # noqa: PTH118
    return module


def cut_off(signum, frame):
    raise CutOff


def limit(cpu_s, wall_s):
    """Raise CutOff after so much time, again and again while it is caught; 0 stops that."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s, wall_s)


def send(channel, answer):
    data = (json.dumps(answer, separators=(",", ":")) + "\n").encode()
    while data:
        data = data[os.write(channel, data) :]


def load_function(request):
    with open(request["file"], "rb") as file:  # noqa: PTH123
        source = file.read()
    namespace = {"__name__": "solution", "__file__": request["file"]}
    exec(compile(source, request["file"], "exec"), namespace)
    return namespace[request["function"]]


def observe(values, function, call, request):
    """The answer to one call. Raises CutOff."""
    arguments = values.decode(call["arguments"])
    value, raised = None, None
    printed = sys.stdout = Printed()
    try:
        limit(request["call_cpu_s"], request["call_s"])
        try:
            value = function(*arguments)
        finally:
            limit(0, 0)
    except CutOff:
        raise
    except BaseException as error:
        raised = values.type_name(type(error))
    finally:
        sys.stdout = sys.stderr
    return {
        "nonce": call["nonce"],
        "value": values.encode(value),
        "raised": raised,
        "arguments": values.encode(arguments),
        "printed": "".join(printed.parts),
    }


def answer_all(channel, values, request):
    """Load the file and answer call after call; return the exit code."""
    limit(request["call_cpu_s"], request["call_s"])
    try:
        function = load_function(request)
    except BaseException as error:
        limit(0, 0)
        send(channel, {"nonce": request["ready"], "failed": type(error).__name__})
        return 3
    limit(0, 0)
    for call in request["calls"]:
        try:
            answer = observe(values, function, call, request)
        except CutOff:
            limit(0, 0)
            send(channel, {"nonce": call["nonce"], "cut_off": True})
            return 4
        send(channel, answer)
    send(channel, {"nonce": request["done"]})
    return 0


def main():
    values = load_values()
    request = json.loads(sys.stdin.buffer.read())
    channel = os.dup(1)
    os.dup2(2, 1)  # what the agent's code writes to descriptor 1 ends up with its errors, not among the answers
    sys.stdout = sys.stderr
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGPROF, cut_off)
    signal.signal(signal.SIGALRM, cut_off)
    send(channel, {"nonce": request["ready"]})
    code = answer_all(channel, values, request)
    os._exit(code)  # threads and exit handlers of the agent's code don't get a turn


if __name__ == "__main__":
    main()
