"""What is known of the policy before it is loaded: folder, tokenizer, context length, stop tokens."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from roll_core.assembly.building import Builder
from roll_core.config.schema import RunConfig


class Policy:
    """The policy's files.

    Args:
        config: of the run.
        builder: finds the model.
    """

    def __init__(self, config: RunConfig, builder: Builder) -> None:
        self._config = config
        self._builder = builder

    @cached_property
    def folder(self) -> Path:
        """Its Hugging Face folder."""
        return self._builder.model(self._config.model.path, "model.path")

    @cached_property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder)

    @cached_property
    def context_length(self) -> int:
        """Longest sequence in tokens that it was made for."""
        config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        text = config.get("text_config", config)
        return int(text.get("max_position_embeddings", sys.maxsize))

    @cached_property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a response."""
        settings = self.folder / "generation_config.json"
        found = json.loads(settings.read_text(encoding="utf-8")).get("eos_token_id") if settings.is_file() else None
        ids = set(found if isinstance(found, list) else [] if found is None else [found])
        if self.tokenizer.eos_token_id is not None:
            ids.add(self.tokenizer.eos_token_id)
        return tuple(sorted(ids))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Token ids to text, special tokens left out."""
        text: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text
