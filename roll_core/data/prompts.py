"""Turns the rows of one domain into prompts.

Rows are rendered and tokenized when they are drawn, not before: a set of a million rows costs nothing at start, and
a prompt takes far less time than the rollouts made from it. What must not surface in the middle of a run is checked at
construction: the first rows strictly (a wrong column name or template shows there), then on until one prompt fits, so
that an empty domain is an error before training. Later rows that cannot be used are left out, logged and counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roll_core.config.schema import DataConfig
from roll_core.contracts import Source
from roll_core.data.rows import Content, RowError, RowReader
from roll_core.errors import DataError
from roll_core.types import Message, Prompt

CHECKED_ROWS = 16
"""Rows at the start of a set in which anything malformed is an error."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why a row is not used: `reason` is "too_long" or "bad_row"."""

    reason: str
    detail: str
    tokens: int = 0


class PromptBuilder:
    """Renders the rows of one domain and leaves out those that cannot be used.

    With `chat`, a row becomes the messages [system, examples as user and assistant turns, filled template as user]
    and is rendered through the tokenizer's chat template. A prompt column that holds a list of messages takes the
    place of the last turn; its own system message, if any, goes before `system`. Without `chat`, the text is system,
    examples (`user` and `assistant` end to end) and filled template, separated by blank lines, behind the tokenizer's
    beginning-of-sequence token where it adds one.

    Args:
        domain: name of the domain.
        data: how a row becomes a prompt.
        source: the rows.
        tokenizer: a Hugging Face tokenizer.
        max_prompt_tokens: longer prompts are left out.
        id_prefix: begins the ids of rows without an id column; the domain's name by default.
        key: key of the domain's config that `data` stands under, for errors.

    Raises:
        DataError: the set is empty, a column is missing, one of the first rows is malformed, the tokenizer has no
            chat template, or no prompt fits.
    """

    def __init__(
        self,
        domain: str,
        data: DataConfig,
        source: Source,
        tokenizer: Any,
        *,
        max_prompt_tokens: int,
        id_prefix: str | None = None,
        key: str = "data",
    ) -> None:
        self.domain = domain
        self.data = data
        self.max_prompt_tokens = max_prompt_tokens
        self._id_prefix = domain if id_prefix is None else id_prefix
        self._source = source
        self._tokenizer = tokenizer
        self._place = f"domains.{domain}.{key}"
        self._reader = RowReader(data, self._place)
        self._rows = len(source) if data.limit is None else min(len(source), data.limit)
        self._left_out: dict[int, LeftOut] = {}
        self._prefix = () if data.chat else self._beginning()
        self._check()

    def __len__(self) -> int:
        """Number of rows, those left out included."""
        return self._rows

    @property
    def left_out(self) -> Mapping[int, LeftOut]:
        """Rows found unusable so far, by index."""
        return self._left_out

    @property
    def left_out_counts(self) -> dict[str, int]:
        """Number of rows found unusable so far, by reason."""
        return dict(Counter(row.reason for row in self._left_out.values()))

    def build(self, index: int) -> Prompt | None:
        """The prompt of a row, or None when it is left out (`left_out[index]` says why)."""
        if index in self._left_out:
            return None
        try:
            return self._build(index)
        except RowError as error:
            self._leave_out(index, LeftOut("bad_row", str(error)))
            return None

    def usable(self) -> Iterator[tuple[int, Prompt]]:
        """All prompts that fit with the index of their row, in the order of the rows."""
        for index in range(self._rows):
            prompt = self.build(index)
            if prompt is not None:
                yield index, prompt

    def question(self, index: int) -> str:
        """What row `index` asks, without system message and examples; used to compare sets.

        Raises:
            RowError: the row is malformed.
        """
        content = self._reader.content(self._row(index), index)
        return content if isinstance(content, str) else "\n".join(str(m.get("content")) for m in content)

    def _check(self) -> None:
        if self._rows == 0:
            raise DataError(f"{self._place}: the data set of domain '{self.domain}' holds no rows")
        if self.data.chat and not getattr(self._tokenizer, "chat_template", None):
            raise DataError(
                f"{self._place}: the model's tokenizer has no chat template; set 'chat: false' to continue raw text, "
                "or train a chat model"
            )
        checked = min(CHECKED_ROWS, self._rows)
        fits = [self._build(index) is not None for index in range(checked)]
        if any(fits) or any(self.build(index) is not None for index in range(checked, self._rows)):
            return
        raise self._nothing_left()

    def _nothing_left(self) -> DataError:
        lengths = [row.tokens for row in self._left_out.values() if row.reason == "too_long"]
        bad = [row.detail for row in self._left_out.values() if row.reason == "bad_row"]
        parts = [f"{self._place}: no usable prompt is left of {self._rows} rows"]
        if lengths:
            parts.append(
                f"{len(lengths)} are longer than the limit of {self.max_prompt_tokens} tokens (shortest "
                f"{min(lengths)}, longest {max(lengths)}): raise batch.max_prompt_tokens or shorten the template"
            )
        if bad:
            parts.append(f"{len(bad)} are malformed, the first: {bad[0]}")
        return DataError("; ".join(parts))

    def _leave_out(self, index: int, row: LeftOut) -> None:
        first = all(other.reason != row.reason for other in self._left_out.values())
        self._left_out[index] = row
        logger.log(
            logging.WARNING if first else logging.DEBUG,
            "%s: row %d is left out (%s): %s%s",
            self._place,
            index,
            row.reason,
            row.detail,
            "; further ones are only counted" if first else "",
        )

    def _build(self, index: int) -> Prompt | None:
        """The prompt of a row, None where it is too long; a malformed row raises `RowError`."""
        row = self._row(index)
        content = self._reader.content(row, index)
        reference = self._reader.reference(row, index)
        id_ = self._reader.id(row, index)
        messages: tuple[Message, ...] = ()
        if self.data.chat:
            messages = self._messages(content)
            text = self._render(messages, index)
        else:
            text = self._raw_text(str(content))
        token_ids = (*self._prefix, *self._tokenizer(text, add_special_tokens=False)["input_ids"])
        if len(token_ids) > self.max_prompt_tokens:
            detail = f"{len(token_ids)} tokens, the limit is {self.max_prompt_tokens}"
            self._leave_out(index, LeftOut("too_long", detail, len(token_ids)))
            return None
        return Prompt(
            id=f"{self._id_prefix}/{index}" if id_ is None else id_,
            domain=self.domain,
            messages=messages,
            text=None if self.data.chat else text,
            token_ids=token_ids,
            reference=reference,
            info=self._reader.rest(row),
        )

    def _row(self, index: int) -> Mapping[str, Any]:
        row = self._source[index]
        if not isinstance(row, Mapping):
            raise RowError(f"{self._place}: row {index} is {type(row).__name__}, not a mapping of columns")
        return row

    def _messages(self, content: Content) -> tuple[Message, ...]:
        own: tuple[Message, ...] = ({"role": "user", "content": content},) if isinstance(content, str) else content
        system: tuple[Message, ...] = ()
        if own[0]["role"] == "system":
            system, own = own[:1], own[1:]
        elif self.data.system is not None:
            system = ({"role": "system", "content": self.data.system},)
        shown: list[Message] = []
        for example in self.data.examples:
            shown.append({"role": "user", "content": example.user})
            shown.append({"role": "assistant", "content": example.assistant})
        return (*system, *shown, *own)

    def _render(self, messages: tuple[Message, ...], index: int) -> str:
        try:
            text = self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
        except Exception as error:  # a template raises whatever it likes
            roles = ", ".join(str(m["role"]) for m in messages)
            raise RowError(
                f"{self._place}: the tokenizer's chat template refuses row {index} (roles: {roles}): {error}"
            ) from error
        return str(text)

    def _raw_text(self, question: str) -> str:
        shown = [example.user + example.assistant for example in self.data.examples]
        system = [] if self.data.system is None else [self.data.system]
        return "\n\n".join([*system, *shown, question])

    def _beginning(self) -> tuple[int, ...]:
        """The beginning-of-sequence token, where the tokenizer puts one before raw text."""
        bos = getattr(self._tokenizer, "bos_token_id", None)
        return (bos,) if bos is not None and list(self._tokenizer("")["input_ids"])[:1] == [bos] else ()
