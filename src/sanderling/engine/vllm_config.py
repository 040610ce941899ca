"""Settings of the engine "vllm"."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

SERVED_MODEL = "policy"
"""Name under which a server serves the model."""


class VllmConfig(BaseModel):
    """Which vLLM server samples, and how one is started where none is named."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(
        "",
        description="base URL of a running server, such as http://127.0.0.1:8000; it must see weights_folder under the same "
        "path. Empty: one is started for the run and ended with it",
    )
    weights_folder: str = Field(
        "", description="where pushed weights are written for the server to read; empty: a temporary folder"
    )
    python: str = Field("", description="interpreter that has vLLM, where a server is started; empty: this one")
    arguments: tuple[str, ...] = Field((), description="further arguments of the server that is started")
    start_s: float = Field(600.0, gt=0, description="seconds until a started server must answer")
    request_s: float = Field(600.0, gt=0, description="seconds without a token after which a request has failed")
