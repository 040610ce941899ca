"""Scripts whose result has to be the same whether they begin warm or fresh: endings, output, limits, surroundings.

They are run as /tools/script.py with the arguments "a b" and "--c", standard input "input", and a workspace that holds
solution.py (`X = 1`).
"""

from __future__ import annotations

_TEXT = r"""
=== ok
import sys
print('ünï', sys.argv[1:])
print('err', file=sys.stderr)
=== reads its input
import sys
print(sys.stdin.read()[::-1], sys.stdin.buffer.read())
=== exception
def inner():
    return [][1]

print('before')
inner()
=== chained exception
try:
    1 / 0
except ZeroDivisionError as error:
    raise KeyError('a') from error
=== exit 3
raise SystemExit(3)
=== exit with words
import sys
print('a')
sys.exit('words')
=== exit with nothing
import sys
sys.exit()
=== exit out of range
import sys
sys.exit(1 << 40)
=== exit far out of range
import sys
sys.exit(1 << 70)
=== exit with a number of its own
import sys
class N(int):
    def __and__(self, other): raise RuntimeError
sys.exit(N(3))
=== exit that lies
class E(SystemExit):
    code = property(lambda self: 1 / 0)
raise E(3)
=== exit true
raise SystemExit(True)
=== exit -1
import sys
sys.exit(-1)
=== os._exit
import os
print('lost')
os._exit(5)
=== interrupted
raise KeyboardInterrupt
=== own signal
import os
os.kill(os.getpid(), 15)
=== abort
import os
os.abort()
=== broken pipe
import os, sys
r, w = os.pipe()
os.close(r)
os.write(w, b'x')
=== own hook
import sys
sys.excepthook = lambda *a: print('hook', a[0].__name__)
1 / 0
=== broken hook
import sys
def hook(*a): raise SystemExit(7)
sys.excepthook = hook
1 / 0
=== recursion
def down(): down()
try:
    down()
except RecursionError:
    print('deep')
=== syntax of another
compile('a b', 'x.py', 'exec')
=== flood
import sys
for n in range(200):
    sys.stdout.write('o' * 9999)
    sys.stderr.write('e' * 9999)
=== closes everything
import os
os.closerange(0, 1024)
=== closes with output
import os
print('held back')
os.close(1)
=== closed stdout
import sys
print('a')
sys.stdout.close()
=== no stdout
import sys
sys.stdout = None
print('a')
=== other stdout
import io, sys
sys.stdout = io.StringIO()
print('a')
=== two other stdouts
import io, sys
first = sys.stdout
first.write('held back')
sys.stdout = sys.__stdout__ = io.StringIO()
print('a')
=== odd type
class Meta(type):
    def __getattribute__(self, name): raise RuntimeError(name)
class A(metaclass=Meta): pass
a = A()
print('a')
=== exit functions
import atexit
atexit.register(print, 'first')
atexit.register(print, 'second')
print('body')
=== failing exit function
import atexit
atexit.register(int, 'x')
print('body')
=== thread
import threading, time

def late():
    time.sleep(0.2)
    print('late')

threading.Thread(target=late).start()
print('early')
=== daemon thread
import threading, time
threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
print('early')
=== open file
f = open('left.txt', 'w')
f.write('kept')
=== cyclic open file
f = open('left.txt', 'w')
f.write('kept')
d = {}
d['d'] = d
d['f'] = f
del f
=== open file of a module
import sys, types
m = sys.modules['m'] = types.ModuleType('m')
m.f = open('left.txt', 'w')
m.f.write('kept')
=== finalizer
class A:
    def __del__(self): print('gone', __name__)
a = A()
=== memory
data = []
for _ in range(40): data.append(bytearray(1 << 24))
print('no limit')
=== memory of many
import os, time
for _ in range(6):
    if os.fork() == 0:
        data = b'x' * (60 << 20)
        time.sleep(0.5)
        os._exit(0)
print('parent')
while True:
    try:
        os.wait()
    except OSError: break
=== processor
print('in', flush=True)
while True: pass
=== many processes
import os
try:
    for _ in range(100):
        if os.fork() == 0: os.execvp('sleep', ['sleep', '9'])
    print('no limit')
except OSError as e:
    print(e.errno)
=== children left behind
import os, time
for _ in range(3):
    if os.fork() == 0:
        time.sleep(9)
        open('late', 'w')
print('parent')
=== daemon left behind
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(9)
    os._exit(0)
os.wait()
print('parent')
=== orphans
import os, time
for _ in range(40):
    p = os.fork()
    if p == 0:
        os.fork()
        os._exit(0)
    os.waitpid(p, 0)
    time.sleep(0.004)
print('all')
=== prints a null
import sys
sys.stdout.buffer.write(bytes(range(256)))
=== imports the workspace
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, '')
import solution
print(solution.X, solution.__file__)
=== traceback in the workspace
exec(compile(open('solution.py').read(), 'solution.py', 'exec'))
X.no
=== finally of a generator
def generate():
    try:
        yield 1
    finally:
        print('closed')
kept = generate()
next(kept)
=== watched object
import _weakref, sys
class A: pass
a = A()
sys.watch = _weakref.ref(a, eval("lambda _: print('seen to go')", {}))
=== watched in a way of its own
import _weakref, sys
class A: pass
class Watch(_weakref.ref): pass
a = A()
sys.watch = Watch(a, eval("lambda _: print('seen to go')", {}))
=== watched through a proxy
import _weakref, sys
class A: pass
a = A()
sys.watch = _weakref.proxy(a, eval("lambda _: print('seen to go')", {}))
=== runs a program
import subprocess
print(subprocess.run(['sh', '-c', 'echo out; exit 3'], capture_output=True))
=== facts
import os, resource, signal, sys, json, gc, threading
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": repr(sys.flags), "name": __name__,
    "file": __file__, "main": sorted(vars(main)), "is main": vars(main) is globals(), "doc": __doc__,
    "loader": type(__loader__).__name__, "spec": repr(__spec__), "package": repr(__package__), "cached": repr(__cached__),
    "builtins": repr(__builtins__), "executable": sys.executable, "environment": dict(os.environ), "cwd": os.getcwd(),
    "streams": [repr(s) for s in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)],
    "errors": [s.errors for s in (sys.stdin, sys.stdout, sys.stderr)], "raw": [repr(sys.stdout.buffer.raw.name)],
    "buffering": [(s.line_buffering, s.write_through, s.newlines) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "seekable": [s.seekable() for s in (sys.stdin, sys.stdout, sys.stderr)], "filenos": sys.stdin.fileno(),
    "signals": [repr(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")},
    "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()],
    "leads": [os.getpid() == os.getsid(0) == os.getpgid(0)], "umask": os.umask(0), "nice": os.nice(0),
    "descriptors": sorted(os.listdir("/proc/self/fd"), key=int)[:3], "how many": len(os.listdir("/proc/self/fd")),
    "status": [line for line in open("/proc/self/status")
               if line.startswith(("Seccomp:", "NoNewPrivs", "Cap", "Groups", "SigBlk", "SigIgn", "SigCgt"))],
    "tracing": [sys.gettrace(), sys.getprofile(), sys.getrecursionlimit(), sys.getswitchinterval()],
    "collector": [gc.isenabled(), gc.get_threshold()], "memory": os.access("/proc/self/mem", os.R_OK),
    "threads": threading.active_count(), "hooks": [repr(sys.excepthook), repr(sys.displayhook), sys.unraisablehook.__name__],
    "score": open("/proc/self/oom_score_adj").read(), "others": len([n for n in os.listdir("/proc") if n.isdigit()]),
}, sort_keys=True, indent=1))
"""


def _scripts() -> dict[str, str]:
    sections = _TEXT.strip().removeprefix("=== ").split("\n=== ")
    return {name: script + "\n" for name, _, script in (section.partition("\n") for section in sections)}


WARM_SCRIPTS = _scripts()
"""Name to text. "memory of many" is cut by the kernel where it bounds whole trees; "processor" needs 1 s of `cpu_s`."""
