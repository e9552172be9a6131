"""What the reward model reads: the prompt and the response as its tokenizer's chat template, or as a pair of texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roll_core.types import Prompt
from roll_verifier_reward_model.settings import Overflow

_ATTEMPTS = 8
"""Cuts tried until a truncated response fits; a cut in the middle of a character may cost tokens."""


class PromptError(Exception):
    """The prompt cannot be shown to the model; `detail` is a word for it."""

    def __init__(self, detail: str, reason: str) -> None:
        super().__init__(reason)
        self.detail = detail


class ResponseTooLongError(Exception):
    """Prompt and response do not fit together."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of one prompt with its response, and whether the response was cut."""

    ids: tuple[int, ...]
    token_types: tuple[int, ...]
    """Which of two texts a token belongs to, for tokenizers that say so; else empty."""
    is_truncated: bool = False


def messages_of(prompt: Prompt | None, reference: Any) -> tuple[Mapping[str, Any], ...]:
    """The conversation before the response.

    Args:
        prompt: the task; where there is none,
        reference: `{"prompt": "…"}` or `{"prompt": [messages]}`.

    Raises:
        PromptError: neither says what was asked ("no_prompt"), or pictures belong to it ("media").
    """
    if prompt is not None:
        if prompt.media:
            raise PromptError("media", "the prompt has pictures or sound, which this verifier does not show the model")
        asked: Any = prompt.messages or prompt.text
    else:
        asked = reference.get("prompt") if isinstance(reference, Mapping) else None
    if isinstance(asked, str) and asked:
        return ({"role": "user", "content": asked},)
    if isinstance(asked, Sequence) and not isinstance(asked, str) and asked and all(map(_is_message, asked)):
        return tuple(asked)
    raise PromptError("no_prompt", 'no prompt with messages or text, and the reference is no {"prompt": ...}')


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" in value and "content" in value


class Encoder:
    """Turns prompts and responses into token ids.

    Args:
        tokenizer: the checkpoint's tokenizer.
        max_tokens: most tokens of prompt and response together.
        overflow: what is done with a response that does not fit.
    """

    def __init__(self, tokenizer: Any, max_tokens: int, overflow: Overflow) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._overflow = overflow
        self._has_template = getattr(tokenizer, "chat_template", None) is not None
        self._control = _control_pattern(tokenizer)

    def encode(self, messages: Sequence[Mapping[str, Any]], response: str) -> Encoded:
        """Token ids of a conversation with the response as its last message.

        Raises:
            PromptError: the prompt alone does not fit ("prompt_too_long"), or the template refuses it ("bad_prompt").
            ResponseTooLongError: the response does not fit and must not be cut.
        """
        text = self.neutral(response)
        encoded = self._encode(messages, text)
        if len(encoded.ids) <= self._max_tokens:
            return encoded
        empty = len(self._encode(messages, "").ids)
        if empty > self._max_tokens:
            raise PromptError("prompt_too_long", f"the prompt has {empty} tokens, the model takes {self._max_tokens}")
        if self._overflow == "refuse":
            reason = f"prompt and response have {len(encoded.ids)} tokens, the model takes {self._max_tokens}"
            raise ResponseTooLongError(reason)
        return self._cut(messages, text, self._max_tokens - empty)

    def neutral(self, text: str) -> str:
        """Text without lone surrogates, its control tokens ("<|im_end|>") broken up so that it cannot end its turn."""
        plain = text.encode("utf-8", "replace").decode("utf-8")
        return self._control.sub(r"\1 ", plain) if self._control is not None else plain

    def _encode(self, messages: Sequence[Mapping[str, Any]], text: str) -> Encoded:
        if self._has_template:
            rendered = self._render([*messages, {"role": "assistant", "content": text}])
            return _encoded(self._tokenizer(rendered, add_special_tokens=False, verbose=False))
        before = "\n\n".join(str(message["content"]) for message in messages)
        return _encoded(self._tokenizer(before, text, verbose=False))

    def _render(self, messages: list[Mapping[str, Any]]) -> str:
        from jinja2.exceptions import TemplateError

        try:
            return str(self._tokenizer.apply_chat_template(messages, tokenize=False))
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            reason = f"the model's chat template refuses the prompt: {type(error).__name__}: {error}"
            raise PromptError("bad_prompt", reason) from error

    def _cut(self, messages: Sequence[Mapping[str, Any]], text: str, room: int) -> Encoded:
        """The longest beginning of the response that fits."""
        ids = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        for _ in range(_ATTEMPTS):
            shorter = self._tokenizer.decode(ids[:room], skip_special_tokens=False) if room > 0 else ""
            encoded = self._encode(messages, self.neutral(shorter))
            excess = len(encoded.ids) - self._max_tokens
            if excess <= 0 and shorter:
                return Encoded(encoded.ids, encoded.token_types, is_truncated=True)
            if room <= 0:
                break
            room = max(0, room - excess)
        raise ResponseTooLongError(f"no beginning of the response fits into {self._max_tokens} tokens")


def _encoded(output: Mapping[str, Any]) -> Encoded:
    return Encoded(tuple(output["input_ids"]), tuple(output.get("token_type_ids", ())))


def _control_pattern(tokenizer: Any) -> re.Pattern[str] | None:
    """Matches the first character of every control token ("<|im_end|>"); a blank behind it makes it plain text."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    tokens = {*tokenizer.all_special_tokens, *(token.content for token in added if token.special)}
    longer = sorted((token for token in tokens if len(token) > 1), key=len, reverse=True)
    return re.compile(f"(?={'|'.join(map(re.escape, longer))})(.)", re.DOTALL) if longer else None
