"""What requests a model can serve, and how far."""

from __future__ import annotations

from dataclasses import dataclass

from roll_core.errors import BackendError
from roll_core.types import GenerateRequest


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one loaded model."""

    max_length: int
    """Longest sequence in tokens, prompt and response together."""
    vocabulary: int

    def check(self, request: GenerateRequest) -> None:
        """Refuse what cannot be served.

        Raises:
            BackendError: the request is impossible; the message names it and says why.
        """
        problem = self._problem(request, (*request.token_ids, *request.prefix_ids))
        if problem:
            raise BackendError(f"request '{request.request_id}': {problem}")

    def new_tokens(self, request: GenerateRequest) -> int:
        """Tokens that may still be made for a request; not positive where there is nothing to do."""
        made = len(request.prefix_ids)
        room = self.max_length - len(request.token_ids) - made
        return min(request.sampling.max_new_tokens - made, room)

    def _problem(self, request: GenerateRequest, prompt: tuple[int, ...]) -> str:
        """What makes a request impossible, or an empty string."""
        sampling, most, vocabulary = request.sampling, self.max_length, self.vocabulary
        is_possible = sampling.temperature >= 0 and 0 < sampling.top_p <= 1 and sampling.top_k >= 0
        adapter = request.policy.adapter if request.policy else None
        problems = {
            "the prompt is empty": not prompt,
            f"the prompt has {len(prompt)} tokens, the model takes {most} with the response; shorten or drop it": (
                len(prompt) >= most and not request.prefix_ids
            ),
            f"the prompt holds a token outside the model's vocabulary of {vocabulary}": bool(prompt)
            and (min(prompt) < 0 or max(prompt) >= vocabulary),
            f"impossible sampling parameters: {sampling}": not is_possible or sampling.max_new_tokens < 0,
            "the local backend takes text only; use a backend with vision for prompts with media": bool(request.media),
            f"the local backend serves one set of weights, adapter '{adapter}' was asked for": adapter is not None,
        }
        return next((text for text, is_so in problems.items() if is_so), "")
