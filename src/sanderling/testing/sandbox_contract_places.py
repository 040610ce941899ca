"""What a spec may add to a sandbox: variables for every command, an order of sets, and further paths of its places."""

from __future__ import annotations

from sanderling.sandbox.protocol import PYTHON, Command, Kept, SandboxBackend, SandboxSpec, Start
from sanderling.testing.sandbox_check import SMALL, Check, contract, expect, expect_equal


async def environment_of_spec(backend: SandboxBackend) -> None:
    """Variables of the spec reach every command; those of a command win."""
    sandbox = await backend.create(SandboxSpec(files={}, limits=SMALL, env={"ONE": "spec", "TWO": "spec"}))
    try:
        command = Command(argv=("sh", "-c", 'printf "%s %s" "$ONE" "$TWO"'), env={"TWO": "command"})
        expect_equal((await sandbox.exec(command)).stdout, b"spec command", "variables inside")
    finally:
        await sandbox.destroy()


async def order_of_sets(backend: SandboxBackend) -> None:
    """Every Python of every sandbox walks sets of strings in one order, begun warm too; a spec may ask for another."""
    script = {"walk.py": b"print(*{chr(97 + number) for number in range(20)})"}
    seen = []
    for seed, kept, start in (
        (None, Kept.NOTHING, Start.FRESH),
        (None, Kept.INTERPRETER, Start.WARM),
        ("1", Kept.NOTHING, Start.FRESH),
        ("1", Kept.INTERPRETER, Start.WARM),
    ):
        env = {} if seed is None else {"PYTHONHASHSEED": seed}
        sandbox = await backend.create(SandboxSpec(files={}, readonly=script, limits=SMALL, kept=kept, env=env))
        try:
            seen.append((await sandbox.exec(Command(argv=(*PYTHON, "/tools/walk.py"), start=start))).stdout)
        finally:
            await sandbox.destroy()
    expect_equal(len(seen[0].split()), 20, "elements of the set")
    expect_equal((seen[1], seen[3]), (seen[0], seen[2]), "the order in which a warm script walks a set")
    expect(seen[0] != seen[2], "the seed of the spec doesn't change the order of sets")


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


CHECKS: tuple[Check, ...] = tuple(contract(run) for run in (environment_of_spec, order_of_sets, links_lead))
