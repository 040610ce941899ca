"""What is sent to the first process of a session for a command, and which scripts it can run without a new interpreter."""

from __future__ import annotations

import json
import marshal
import warnings
from functools import lru_cache
from typing import Any

from sanderling.sandbox.command_results import command_fields, cpu_limit
from sanderling.sandbox.protocol import Command, Kept, SandboxSpec, Start
from sanderling.sandbox.session import Session

_INTERPRETER = ("python3", "-I", "-S")
_TOOLS = "/tools/"


def encoded_request(session: Session, command: Command, spec: SandboxSpec) -> bytes:
    """Return the request for `command`; notes in `session` which scripts have been sent."""
    fields = command_fields(command, spec.limits)
    if spec.kept is Kept.PROCESSES:
        fields["limits"] = cpu_limit(fields.pop("cpu_s"))
        return json.dumps(fields).encode()
    script = warm_script(command, spec)
    code = None
    if script is not None and script[0] not in session.scripts:
        session.scripts.add(script[0])
        code = script[1]
    return _for_interpreter(fields, None if script is None else script[0], code)


def _for_interpreter(fields: dict[str, Any], script: str | None, code: bytes | None) -> bytes:
    ((_, *cpu_s),) = cpu_limit(fields["cpu_s"])
    env = {**fields["env"], "PWD": fields["cwd"]}
    return marshal.dumps((fields["argv"], env, fields["cwd"], fields["timeout_s"], tuple(cpu_s), script, code))


def warm_script(command: Command, spec: SandboxSpec) -> tuple[str, bytes] | None:
    """Return the path inside and the marshalled code of the script of a command that can begin warm, else None."""
    if command.start is not Start.WARM or command.env or command.argv[:3] != _INTERPRETER or len(command.argv) < 4:
        return None
    path = command.argv[3]
    source = spec.readonly.get(path.removeprefix(_TOOLS))
    if source is None or not path.startswith(_TOOLS):
        return None
    code = _compiled(path, source)
    return None if code is None else (path, code)


@lru_cache(maxsize=64)
def _compiled(path: str, source: bytes) -> bytes | None:
    """Compile for the sandbox's interpreter, which is the one that runs us. None where it would have something to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return marshal.dumps(compile(source, path, "exec", dont_inherit=True, optimize=0))
        except (SyntaxError, ValueError):
            return None
