"""Stop strings, looked for here because vLLM looks at new tokens only and a resumed response has older ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_CONTEXT_TOKENS = 8
"""Tokens decoded before the earliest one that can be part of a stop string."""


class StopText:
    """Looks for stop strings at the end of a response.

    Args:
        folder: model folder; its tokenizer is loaded when first needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizer: Any = None

    def cut(self, before: list[int], tokens: list[int], stops: tuple[str, ...]) -> int | None:
        """How many of the new `tokens` belong to the response when a stop string is in it, else None.

        Args:
            before: response tokens made earlier.
            tokens: new ones.
            stops: the strings.
        """
        if self._tokenizer is None:
            from transformers import AutoTokenizer

            self._tokenizer = AutoTokenizer.from_pretrained(self._folder, local_files_only=True)
        reach = max(len(stop.encode()) for stop in stops) + _CONTEXT_TOKENS  # a token holds at least one byte
        response = [*before[-reach:], *tokens]
        start = len(response) - len(tokens)
        for count in range(1, len(tokens) + 1):
            end = start + count
            text = self._tokenizer.decode(response[max(0, end - reach) : end], skip_special_tokens=False)
            if any(stop in text for stop in stops):
                return count
        return None
