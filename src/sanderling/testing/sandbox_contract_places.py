"""What a spec may add to a sandbox: variables for every command, and further paths of its places."""

from __future__ import annotations

from sanderling.sandbox.protocol import Command, SandboxBackend, SandboxSpec
from sanderling.testing.sandbox_check import SMALL, Check, contract, expect_equal


async def environment_of_spec(backend: SandboxBackend) -> None:
    """Variables of the spec reach every command; those of a command win."""
    sandbox = await backend.create(SandboxSpec(files={}, limits=SMALL, env={"ONE": "spec", "TWO": "spec"}))
    try:
        command = Command(argv=("sh", "-c", 'printf "%s %s" "$ONE" "$TWO"'), env={"TWO": "command"})
        expect_equal((await sandbox.exec(command)).stdout, b"spec command", "variables inside")
    finally:
        await sandbox.destroy()


async def links_lead(backend: SandboxBackend) -> None:
    """A link of the spec is a further path of its place: what is written through it is in the workspace."""
    links = {"/app": "/work", "/deep/er": "/work/a"}
    sandbox = await backend.create(SandboxSpec(files={"a/b": b"base"}, limits=SMALL, links=links))
    try:
        result = await sandbox.exec(Command(argv=("sh", "-c", "cat /app/a/b /deep/er/b; printf new > /app/c")))
        expect_equal(result.stdout, b"basebase", "files read through links")
        expect_equal(await sandbox.read_file("c"), b"new", "a file written through a link")
        expect_equal(await sandbox.list_files(), ("a/b", "c"), "files of the workspace")
        attempt = await sandbox.exec(Command(argv=("sh", "-c", "rm -f /app; ln -sfn /etc /app; ls /app/c")))
        expect_equal(attempt.stdout, b"/app/c\n", "a link after a command tried to replace it")
    finally:
        await sandbox.destroy()


CHECKS: tuple[Check, ...] = tuple(contract(run) for run in (environment_of_spec, links_lead))
