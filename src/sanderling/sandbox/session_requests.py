"""What is sent to the first process of a session for a command, and which scripts it can run without a new interpreter."""

from __future__ import annotations

import json
import marshal
import warnings
from functools import lru_cache
from typing import Any

from sanderling.sandbox.command_results import cpu_limit
from sanderling.sandbox.protocol import PYTHON, Command, Kept, SandboxSpec, Start
from sanderling.sandbox.session import Session

_TOOLS = "/tools/"


def encoded_request(session: Session, command: Command, fields: dict[str, Any], spec: SandboxSpec) -> bytes:
    """Return the request for a command with these `command_fields`; notes in `session` which scripts have been sent."""
    cpu_s = cpu_limit(fields["cpu_s"])
    if spec.kept is Kept.PROCESSES:
        return json.dumps({**fields, "limits": cpu_s}).encode()
    code = warm_code(command, spec)
    script = None if code is None else command.argv[len(PYTHON)]
    if script in session.scripts:
        code = None
    elif script is not None:
        session.scripts.add(script)
    [(_, soft, hard)] = cpu_s
    env = {**fields["env"], "PWD": fields["cwd"]}
    return marshal.dumps((fields["argv"], env, fields["cwd"], fields["timeout_s"], (soft, hard), script, code))


def warm_code(command: Command, spec: SandboxSpec) -> bytes | None:
    """Return the marshalled code of the script of a command that can begin warm, else None."""
    if command.start is not Start.WARM or command.env or command.argv[: len(PYTHON)] != PYTHON:
        return None
    path = next(iter(command.argv[len(PYTHON) :]), "")
    source = spec.readonly.get(path.removeprefix(_TOOLS)) if path.startswith(_TOOLS) else None
    return None if source is None else _compiled(path, source)


@lru_cache(maxsize=64)
def _compiled(path: str, source: bytes) -> bytes | None:
    """Compile for the sandbox's interpreter, which is the one that runs us. None where it would have something to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return marshal.dumps(compile(source, path, "exec", dont_inherit=True, optimize=0))
        except (SyntaxError, ValueError):
            return None
