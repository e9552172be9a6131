"""A judge that runs in this process, served by a rollout backend."""

from __future__ import annotations

import asyncio
import secrets
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roll_core.errors import RollError
from roll_core.types import GenerateRequest, SamplingParams
from roll_verifier_judge.asking import JudgeRejectedError, Reply
from roll_verifier_judge.options import Sampling
from roll_verifier_judge.prompt import Message

if TYPE_CHECKING:
    from roll_core.contracts import RolloutBackend


class LocalClient:
    """Chat requests to a Hugging Face model through any installed rollout backend.

    The model is loaded with the first request. Only the chat template's own text is tokenised with special tokens;
    the contents of messages never become one, whatever they spell.

    Args:
        model: a folder, or the name of an installed model.
        backend: name of the rollout backend.
        options: its options.
    """

    def __init__(self, *, model: str, backend: str, options: Mapping[str, Any]) -> None:
        self._model = model
        self._backend_name = backend
        self._options = dict(options)
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._loaded: tuple[RolloutBackend, Any, tuple[int, ...]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_loaded")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    @property
    def is_structured(self) -> bool:
        """Never: rollout backends have no constrained decoding."""
        return False

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, schema: Mapping[str, Any] | None
    ) -> Reply:
        """Answer one request; many at once are decoded together.

        Raises:
            JudgeRejectedError: the model cannot be loaded, or the request is too long for it.
        """
        del schema  # free text is read
        try:
            backend, tokenizer, stops = await asyncio.to_thread(self._load)
            token_ids = encode(tokenizer, messages)
            parameters = SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_new_tokens=sampling.max_tokens,
                stop_token_ids=stops,
            )
            request = GenerateRequest(token_ids, parameters, sampling.seed, f"judge-{uuid.uuid4().hex}")
            completion = await backend.generate(request)
        except (RollError, OSError, ImportError) as error:
            raise JudgeRejectedError(f"the local judge '{self._model}' cannot answer: {error}") from error
        made = [int(token) for token in completion.token_ids]
        if made and made[-1] in stops:
            made.pop()
        text = str(tokenizer.decode(made, skip_special_tokens=False))
        return Reply(text, "length" if completion.finish_reason == "length" else "stop")

    async def close(self) -> None:
        """Free the model; a later request loads it again."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            await loaded[0].close()

    def _load(self) -> tuple[RolloutBackend, Any, tuple[int, ...]]:
        with self._lock:
            if self._loaded is None:
                from transformers import AutoTokenizer

                from roll_core.models import resolve_model
                from roll_core.plugin.host import Host

                host = Host.discover()
                folder: Path = resolve_model(self._model, host, place="judge.model")
                tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
                backend = host.build(
                    "rollout_backends",
                    self._backend_name,
                    self._options,
                    place="judge.backend_options",
                    model=folder,
                    seed=0,
                )
                self._loaded = backend, tokenizer, _stops(folder, tokenizer)
            return self._loaded


def _stops(folder: Path, tokenizer: Any) -> tuple[int, ...]:
    """Tokens that end a reply, out of the generation config and the tokenizer."""
    from transformers import GenerationConfig

    found: set[int] = set() if tokenizer.eos_token_id is None else {int(tokenizer.eos_token_id)}
    if (folder / "generation_config.json").is_file():
        ends = GenerationConfig.from_pretrained(folder).eos_token_id
        found.update([ends] if isinstance(ends, int) else ends or [])
    return tuple(sorted(found))


def encode(tokenizer: Any, messages: Sequence[Message]) -> tuple[int, ...]:
    """Token ids of a chat, in which no content yields a special token.

    The chat template is rendered around placeholders; what it writes is tokenised as usual, the contents are tokenised
    as plain text. A template that refuses a system message gets it at the head of the user's.

    Raises:
        JudgeRejectedError: the template refuses the messages, or loses one.
    """
    marks = [f"@{secrets.token_hex(8)}@" for _ in messages]
    shown = [{"role": m["role"], "content": mark} for m, mark in zip(messages, marks, strict=True)]
    rendered = _rendered(tokenizer, shown)
    ids: list[int] = []
    for mark, message in zip(marks, messages, strict=True):
        before, found, rendered = rendered.partition(mark)
        if not found:
            raise JudgeRejectedError("the local judge's chat template leaves out a message")
        ids += tokenizer(before, add_special_tokens=False)["input_ids"]
        ids += tokenizer(message["content"].strip(), add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return (*ids, *tokenizer(rendered, add_special_tokens=False)["input_ids"])


def _rendered(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    if tokenizer.chat_template is None:
        return "\n\n".join([*(message["content"] for message in messages), ""])
    from jinja2 import TemplateError

    def render(chat: list[dict[str, str]]) -> str:
        return str(tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False))

    try:
        return render(messages)
    except TemplateError:
        joined = "\n\n".join(message["content"] for message in messages)
        try:
            return render([{"role": "user", "content": joined}])
        except TemplateError as error:
            raise JudgeRejectedError(f"the local judge's chat template refuses a user message: {error}") from error
