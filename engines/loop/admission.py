"""What a loop refuses at the door: requests that could never run, whoever else is there."""

from __future__ import annotations

from dataclasses import dataclass

from engines.admission import answer_bound, context_refusal
from engines.api import Request
from engines.loop.kv.api import KVCache


@dataclass(frozen=True, slots=True)
class Door:
    """The bounds that one request alone must respect, in tokens; the memory tells its own."""

    max_model_len: int
    cache: KVCache
    max_request_len: int | None = None
    longest_because: str = ""

    def max_tokens(self, request: Request) -> int:
        """The answer's bound: its own, or for `None` all that the bounds leave."""
        longest = min(self.max_model_len, self.cache.longest_request)
        if self.max_request_len is not None:
            longest = min(longest, self.max_request_len)
        return answer_bound(request, longest)

    def refusal(self, request: Request) -> str:
        """Why it can never run, with the numbers; empty when it can.

        The last token is never fed back, so a request of P + n tokens holds P + n - 1 positions.
        """
        prompt, answer = len(request.prompt_token_ids), self.max_tokens(request)
        total = prompt + answer
        if reason := context_refusal(prompt, answer, self.max_model_len):
            return reason
        if reason := self.cache.shortage(total - 1):
            return f"prompt {prompt} + max_tokens {answer} {reason}"
        if self.max_request_len is not None and total > self.max_request_len:
            because = f" ({self.longest_because})" if self.longest_because else ""
            return (
                f"prompt {prompt} + max_tokens {answer} = {total} tokens exceed the "
                f"{self.max_request_len} that the policy can serve{because}"
            )
        return ""
