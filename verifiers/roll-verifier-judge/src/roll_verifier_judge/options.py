"""Options of the components."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from roll_verifier_judge.scales import LabelScale, Scale, read_scale


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=())


class Sampling(_Options):
    """How the judge draws its reply."""

    temperature: float = Field(default=0.0, ge=0)
    """A reply without a verdict is asked for again at 0.5 when this is 0, since the same would come back."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling."""
    max_tokens: int = Field(default=1024, ge=1)
    """Tokens of a reply, thinking included; a reply that is cut off holds no verdict."""
    seed: int = 0
    """Attempt k is sent with `seed + k`."""


class Limits(_Options):
    """How an endpoint is treated."""

    concurrency: int = Field(default=32, ge=1)
    """Requests under way at once."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    """Rate limit of this process; none when left out."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Seconds one request may take."""
    retries: int = Field(default=5, ge=0)
    """Further tries after a lost connection, a time-out, or status 408, 409, 425, 429 or 5xx."""
    max_wait_s: float = Field(default=60.0, gt=0)
    """Longest pause before a further try; an endpoint that asks for a longer one is given up."""


class Criterion(_Options):
    """One criterion of a rubric."""

    name: str = Field(min_length=1)
    """What the judge calls it."""
    text: str = ""
    """What it demands."""
    weight: float = Field(default=1.0, gt=0)
    """Share in the score, relative to the other criteria."""
    verdicts: dict[str, float] = Field(default_factory=lambda: {"no": 0.0, "yes": 1.0}, min_length=2)
    """Score in [0, 1] of each verdict that is allowed."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_scores(self.verdicts)
        return self


class ControlItem(_Options):
    """A response whose quality is known."""

    question: str = ""
    """The task."""
    response: str
    """What is judged."""
    reference: str | None = None
    """The reference answer, where the judge gets one."""
    rubric: str | None = None
    """The rubric, where the judge gets one."""


class Controls(_Options):
    """Known answers that are judged along with the others, to notice a judge that has gone wrong."""

    every: int = Field(default=50, ge=0)
    """A bad and a good control accompany the first judged response and every so many after it; 0 switches them off."""
    window: int = Field(default=20, ge=1)
    """How many of the latest controls the failure rate is taken over."""
    max_failure_rate: float = Field(default=0.2, ge=0, le=1)
    """A higher rate raises the alarm."""
    on_failure: Literal["warn", "error"] = "warn"
    """`error` turns verdicts into errors (detail "controls_failed") until the rate is back within the bound."""
    good: tuple[ControlItem, ...] = ()
    """Must score at least 0.5. Without any, the task's own reference is judged as a response."""
    bad: tuple[ControlItem, ...] = ()
    """Must score below 0.5. Without any, answers without content and pleas for full marks are judged on the task."""


class AskOptions(_Options):
    """How the judge is reached and asked; common to both components."""

    model: str = Field(min_length=1)
    """Name of the model at the endpoint; without `base_url`, a Hugging Face folder or an installed model's name."""
    base_url: str | None = None
    """An OpenAI-compatible endpoint ("http://127.0.0.1:8000/v1"); without it the model runs in this process."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key."""
    structured: Literal["auto", "on", "off"] = "auto"
    """Ask the endpoint for JSON of a schema (`response_format`); `auto` does without where it refuses."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Members added to every request; null takes one out (say, {max_tokens: null, max_completion_tokens: 2000})."""
    sampling: Sampling = Sampling()
    """How replies are drawn."""
    limits: Limits = Limits()
    """Concurrency, rate and retries."""
    attempts: int = Field(default=3, ge=1)
    """How often the judge is asked for one verdict before it counts as a failure of the judge."""
    cache: Path | None = None
    """Folder in which replies with a verdict are kept, for this process and others; none when left out."""
    backend: str = "local"
    """Rollout backend that serves a model without `base_url`."""
    backend_options: dict[str, Any] = Field(default_factory=dict)
    """Its options."""
    instructions: str | None = None
    """How to judge, in place of the built-in text."""
    max_chars: int = Field(default=16_000, ge=100)
    """Characters of a response that are shown to the judge: more are cut out of its middle."""
    controls: Controls = Controls()
    """Known answers in every batch."""

    @property
    def deadline_s(self) -> float:
        """Seconds one verdict may take: every attempt with one pause."""
        return self.attempts * (self.limits.timeout_s + self.limits.max_wait_s)

    @model_validator(mode="after")
    def _check_endpoint(self) -> Self:
        if self.base_url is None and self.api_key_env is not None:
            raise ValueError("api_key_env needs a base_url")
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must begin with http:// or https://, got '{self.base_url}'")
        return self


class JudgeOptions(AskOptions):
    """Options of `judge`."""

    scale: dict[str, Any] = Field(default_factory=lambda: {"type": "number", "min": 0, "max": 10})
    """What is asked for: number (min, max, key, integer), bool (key) or label (labels, key)."""
    scores: dict[str, float] = Field(default_factory=dict)
    """Score in [0, 1] of each label of a label scale."""
    rubric: str | tuple[Criterion, ...] | None = None
    """Criteria for every task: a text, or a list of which the score is the weighted mean (`scale` is then unused)."""
    exact: bool = True
    """Accept an answer that is the reference itself without asking the judge."""
    hedging: bool = True
    """Refuse several final answers where the reference is one exact value, without asking the judge."""

    @model_validator(mode="after")
    def _check_scale(self) -> Self:
        scale = self.read_scale()
        if isinstance(scale, LabelScale):
            if set(self.scores) != set(scale.labels):
                raise ValueError(f"scores must name every label ({', '.join(scale.labels)}), got {list(self.scores)}")
            _check_scores(self.scores)
        elif self.scores:
            raise ValueError("scores belong to a label scale")
        return self

    def read_scale(self) -> Scale:
        """The scale of tasks without a list of criteria."""
        scale = read_scale(self.scale)
        if self.scale.get("type") == "rubric":
            raise ValueError("a rubric scale is made of `rubric`, a list of criteria")
        return scale


class PairwiseOptions(AskOptions):
    """Options of `pairwise_judge`."""

    on_disagreement: Literal["tie", "undecided"] = "tie"
    """What becomes of verdicts that depend on the order: a tie (0.5), or no score."""


def _check_scores(scores: dict[str, float]) -> None:
    if not all(0 <= score <= 1 for score in scores.values()):
        raise ValueError(f"scores lie in [0, 1], got {scores}")
