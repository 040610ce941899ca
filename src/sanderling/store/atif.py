"""Export of stored trajectories as ATIF 1.8 documents: one JSON file per trajectory, with token ids and log-probabilities.

A step of the agent is one turn. Its `prompt_token_ids` are the whole context that the engine was given, its
`completion_token_ids` the ids that were sampled, `logprobs` their log-probabilities under the distribution sampled from: what a
trainer needs, without encoding any text again.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sanderling import __version__
from sanderling.errors import RunFolderError
from sanderling.store.atif_model import (
    AtifAgent,
    AtifFinalMetrics,
    AtifMetrics,
    AtifObservation,
    AtifResult,
    AtifStep,
    AtifTrajectory,
)
from sanderling.store.failures import failed
from sanderling.store.reader import Rollouts, RunReader
from sanderling.store.tables import clean_text
from sanderling.types import Graded, Int32Array, Member, Turn


def export_atif(run: RunReader, out: Path, sources: Sequence[str] | None = None) -> int:
    """Write every trajectory of a run, excluded ones too, as `out/<source>/<trajectory id>.json`; return their number.

    Args:
        run: the run.
        out: folder, made when missing. Files of the same names are replaced.
        sources: names of rollout folders, such as "step=000012" or "eval=after"; None: all of them.

    Raises:
        RunFolderError: no such rollouts, a damaged file, or `out` can't be written.
    """
    known = run.sources()
    for source in sources or ():
        if source not in known:
            raise RunFolderError(f"{run.path} has no rollouts {source!r}; it has {', '.join(known) or 'none'}")
    count = 0
    for source in known if sources is None else sources:
        folder = out / source
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for document in documents(run, run.read(source)):
                name = str((document.extra or {})["trajectory_id"]).replace("/", "__")
                (folder / f"{name}.json").write_text(document.model_dump_json(exclude_none=True), "utf-8")
                count += 1
        except OSError as error:
            raise error if isinstance(error, RunFolderError) else failed("write", folder, error) from error
    return count


def documents(run: RunReader, rollouts: Rollouts) -> Iterator[AtifTrajectory]:
    """Yield the documents of one rollout folder, in the order of its members."""
    config = tomllib.loads(run.config_text())
    agent = AtifAgent(
        name="sanderling",
        version=__version__,
        model_name=config.get("policy"),
        extra={"environment": config["environment"]} if "environment" in config else None,
    )
    for member in rollouts.members():
        yield atif_of(member, rollouts, agent, run.path.resolve().name)


def atif_of(member: Member, rollouts: Rollouts, agent: AtifAgent, session_id: str) -> AtifTrajectory:
    """Return the document of one trajectory."""
    item = member.trajectory
    prompt = rollouts.task_prompts.get(item.task_id, "")
    advantages = rollouts.advantages.get(item.id, (None,) * len(item.turns))
    first = AtifStep(step_id=1, source="user", message=clean_text(prompt))
    steps, context = [first], [item.prompt_ids]
    for number, turn in enumerate(item.turns):
        steps.append(_step(number + 2, turn, np.concatenate(context), advantages[number]))
        context += [turn.action.token_ids, turn.observation.token_ids]
    calls = [step.metrics for step in steps if step.metrics is not None]
    return AtifTrajectory(
        session_id=session_id,
        trajectory_id=f"{rollouts.source}/{item.id}",
        agent=agent,
        steps=steps,
        final_metrics=AtifFinalMetrics(
            total_prompt_tokens=sum(call.prompt_tokens or 0 for call in calls),
            total_completion_tokens=item.num_action_tokens,
            total_steps=len(steps),
            extra=_outcome(member),
        ),
        extra=_labels(member, rollouts),
    )


def _step(number: int, turn: Turn, context: Int32Array, advantage: float | None) -> AtifStep:
    action, seen = turn.action, turn.observation
    about_result = {
        "source": seen.source,
        "exit_code": seen.exit_code,
        "duration_s": seen.duration_s,
        "omitted_bytes": seen.omitted_bytes,
        "token_ids": seen.token_ids.tolist(),
    }
    return AtifStep(
        step_id=number,
        source="agent",
        message=clean_text(action.text),
        observation=AtifObservation(results=[AtifResult(content=clean_text(seen.text), extra=about_result)]),
        metrics=AtifMetrics(
            prompt_tokens=len(context),
            completion_tokens=len(action.token_ids),
            prompt_token_ids=context.tolist(),
            completion_token_ids=action.token_ids.tolist(),
            logprobs=action.rollout_logprobs.tolist(),
            extra={"policy_versions": action.policy_versions.tolist(), "finish_reason": action.finish_reason},
        ),
        llm_call_count=1,
        extra={"reward": turn.reward, "state_key": turn.state_key, "advantage": advantage},
    )


def _outcome(member: Member) -> dict[str, Any]:
    """Return what became of the work. An ungraded trajectory has no reward, and no 0 in its place."""
    verdict, fate = member.verdict, member.disposition
    decided = {"membership": fate.membership.value, "gradient": fate.gradient.value, "reason": fate.reason}
    outcome: dict[str, Any] = {"stop": member.trajectory.stop.value, "disposition": {**decided, "reward": fate.reward}}
    if isinstance(verdict, Graded):
        evidence = None if verdict.evidence is None else dataclasses.asdict(verdict.evidence)
        return {**outcome, "reward": verdict.reward, "components": dict(verdict.components), "evidence": evidence}
    return {**outcome, "ungraded": {"cause": clean_text(verdict.cause), "phase": verdict.phase}}


def _labels(member: Member, rollouts: Rollouts) -> dict[str, Any]:
    item = member.trajectory
    metadata: Mapping[str, str] = rollouts.task_metadata.get(item.task_id, {})
    return {
        "trajectory_id": item.id,
        "task_id": item.task_id,
        "task_metadata": dict(metadata),
        "group_id": item.group_id,
        "attempt": item.attempt,
        "parent_id": item.parent_id,
        "forked_at": item.forked_at,
        "branching": item.branching.value,
        "isolation": item.isolation,
        "detail": clean_text(item.detail),
        "step": rollouts.step,
        "findings": [dataclasses.asdict(finding) for finding in member.findings],
    }
