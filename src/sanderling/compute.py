"""What computes in a run: the policy's model, the learner, the built-in engines, and how many threads each may use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sanderling.config import Config
from sanderling.engine.protocol import Engine


def make_model(config: Config, folder: Path, *, dtype: str) -> Any:
    """Load one copy of the policy's model, for the sampler or for the trainer.

    Raises:
        ModelError: the policy can't be loaded.
        ConfigError: the device is not there, or has no bfloat16 arithmetic and it is asked for.
    """
    from sanderling.engine.torch_model import Attention, ModelDtype, check_device, load_model

    check_device(config.engine.device, bfloat16="bfloat16" in (dtype, config.trainer.compute_dtype))
    return load_model(
        folder,
        dtype=ModelDtype(dtype),
        attention=Attention(config.engine.attention),
        device=config.engine.device,
    )


def make_learner(config: Config, folder: Path) -> Any:
    """Return the learner with the policy's weights, and with a value model where one is asked for. It has to be closed.

    Raises:
        ModelError, ConfigError: as `make_model` says.
        LearnerError: its further processes don't start.
    """
    from sanderling.engine.torch_model import Attention, ModelDtype
    from sanderling.learn.config import LearnerConfig
    from sanderling.learn.critic import Critic
    from sanderling.learn.learner import Learner
    from sanderling.learn.rank_messages import ModelSource

    settings = LearnerConfig(
        **dict(config.trainer.model_copy(update={"threads": trainer_threads(config)})),
        optimizer=config.optimizer,
        loss=config.loss,
        batch=config.batch,
        temperature=config.sampling.temperature,
    )
    model = make_model(config, folder, dtype=config.trainer.weight_dtype)
    source = ModelSource(
        folder=folder,
        dtype=ModelDtype(config.trainer.weight_dtype),
        attention=Attention(config.engine.attention),
        device=config.engine.device,
    )
    critic = Critic(model, config.critic) if config.critic.model != "none" else None
    return Learner(model, settings, critic, source)


def make_torch_engine(config: Config, folder: Path) -> Engine:
    """Return the built-in engine."""
    from sanderling.engine.torch_decoder import Prompts
    from sanderling.engine.torch_engine import TorchEngine

    model = make_model(config, folder, dtype=config.engine.dtype)
    return TorchEngine(
        model,
        max_batch=config.engine.max_batch,
        threads=threads(config),
        prompts=Prompts(config.engine.prompts),
    )


def make_vllm_engine(config: Config, folder: Path) -> Engine:
    """Return an engine over a vLLM server; where none is named, `start` starts one."""
    from sanderling.engine.vllm_engine import RunningServer, VllmEngine
    from sanderling.engine.vllm_server import StartedServer

    settings, dtype = config.engine.vllm, config.engine.dtype
    named = Path(settings.weights_folder) if settings.weights_folder else None
    if settings.url:
        server = RunningServer(settings.url)
    else:
        server = StartedServer(settings, dtype=dtype, device=config.engine.device)
        named = server.weights_folder
    return VllmEngine(server, folder=folder, weights_folder=named, dtype=dtype, request_s=settings.request_s)


def threads(config: Config) -> int:
    """Return the number of CPU threads that torch may use: all cores but one, which tools and event loop need."""
    return config.engine.threads or max(1, len(os.sched_getaffinity(0)) - 1)


def trainer_threads(config: Config) -> int:
    """Return the number of CPU threads for the trainer: all cores where nothing is sampled meanwhile."""
    alone = len(os.sched_getaffinity(0)) if config.rollout.max_staleness == 0 else threads(config)
    return config.trainer.threads or config.engine.threads or alone


def set_threads(config: Config) -> None:
    """Bound torch's threads and seed its generator; the sampler draws from streams of its own."""
    import torch

    torch.set_num_threads(threads(config))
    torch.manual_seed(config.seed)
