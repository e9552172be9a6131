from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import Field

from roll_core.config.load import LoadedConfig, load_config
from roll_core.contracts import CONTEXT
from roll_core.errors import ConfigError, unknown_name
from roll_core.plugin.component import Component


@dataclass
class Grpo:
    eps: Annotated[float, Field(ge=0)] = 1e-6
    """Added to the spread."""
    scale: Literal["group", "batch"] = "group"


@dataclass
class Gae:
    lam: float = 0.95

    def requirements(self) -> frozenset[str]:
        return frozenset({"values"})


@dataclass
class Clip:
    clip_low: float = 0.2
    clip_high: float = 0.2

    def __post_init__(self) -> None:
        if self.clip_high < 0:
            raise ConfigError("clip_high must not be negative")


@dataclass
class Anchored:
    def requirements(self) -> frozenset[str]:
        return frozenset({"ref_logprobs"})


@dataclass
class Behaviour:
    def requirements(self) -> frozenset[str]:
        return frozenset({"old_logprobs", "rollout_logprobs"})


class Inner(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    depth: int = 1


class LaxOptions(pydantic.BaseModel):
    """A plugin author's model that forgot `extra="forbid"`."""

    strict: bool = False
    inner: Inner = Inner()
    tolerance: int | Literal["auto"] = "auto"


def source(path: str = "", rows: Any = None, split: str = "train") -> None: ...
def no_options() -> None: ...
def regex(pattern: str) -> None: ...
def ratio(domains: Any, sizes: Any, seed: int, total_steps: int, weights: dict[str, float] | None = None) -> None: ...
def strategy(setup: Any, micro_tokens: int = 4096) -> None: ...
def backend(model: Path, seed: int, max_concurrency: int = 64) -> None: ...


COMPONENTS: dict[str, list[Component]] = {
    "verifiers": [
        Component("math", no_options, config=LaxOptions),
        Component("json_fields", no_options),
        Component("regex", regex),
    ],
    "rewards": [Component("verdict", no_options), Component("format_boxed", no_options)],
    "filters": [Component("informative_groups", no_options)],
    "mixers": [Component("ratio", ratio)],
    "sources": [Component("dataset", source), Component("rows", source)],
    "advantages": [Component("grpo", Grpo), Component("gae", Gae)],
    "policy_losses": [
        Component("ppo_clip", Clip),
        Component("gspo", Clip),
        Component("anchored", Anchored),
        Component("behaviour", Behaviour),
    ],
    "rollout_backends": [Component("local", backend)],
    "train_strategies": [Component("local", strategy)],
    "trackers": [Component(name, no_options) for name in ("console", "jsonl", "parquet")],
}


class Catalogue:
    """Stands in for the plugin host."""

    def _find(self, kind: str, name: str) -> Component:
        found = {component.name: component for component in COMPONENTS[kind]}
        if name not in found:
            raise unknown_name(kind.removesuffix("s"), name, found)
        return found[name]

    def config_model(self, kind: str, name: str, place: str = "") -> type[pydantic.BaseModel]:
        return self._find(kind, name).config_model(CONTEXT.get(kind, ()))

    def build(self, kind: str, use: Any, options: Mapping[str, Any], *, place: str, **context: Any) -> Any:
        return self._find(kind, use).build(options, **context) if isinstance(use, str) else use

    def components(self, kind: str | None = None) -> list[tuple[str, str, Component]]:
        return [(k, "fake", c) for k, found in COMPONENTS.items() for c in found if kind in (None, k)]


ISSUE = """\
model: {path: smollm2-135m}
domains:
  math:  {data: math.jsonl, verifier: {use: math}, rewards: [{use: verdict}, {use: format_boxed, weight: 0.1}]}
  json:  {data: json.jsonl, verifier: {use: json_fields}}
mixer: {use: ratio, weights: {math: 0.6, json: 0.4}}
algorithm: {advantage: {use: grpo}, loss: {use: ppo_clip, clip_low: 0.2, clip_high: 0.28}, agg: token-mean}
filters: [{use: informative_groups}]
"""

SMALL = """\
model: {path: tiny}
domains:
  math:
    data: math.jsonl
    verifier: math
"""

Load = Callable[..., LoadedConfig]
Fail = Callable[..., str]


@pytest.fixture
def host() -> Catalogue:
    return Catalogue()


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: Catalogue) -> Load:
    """Load YAML text from `run.yaml` in the working directory, components checked."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, *overrides: str, host: Catalogue | None = host) -> LoadedConfig:
        Path("run.yaml").write_text(text, encoding="utf-8")
        return load_config(Path("run.yaml"), overrides, host=host)

    return run


@pytest.fixture
def fail(load: Load) -> Fail:
    """The message of the ConfigError that loading ends in."""

    def run(text: str, *overrides: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load(text, *overrides)
        return str(caught.value)

    return run


@pytest.fixture
def small() -> str:
    return SMALL


@pytest.fixture
def issue_yaml() -> str:
    return ISSUE
