"""From a checked body to requests for the engine: tokens, bounds, sampling.

Refuses what cannot run. Touches neither the engine nor the connection, and draws ids and seeds only
from what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engines.admission import context_refusal
from engines.api import EngineInfo, Request, Sampling
from harness.server.bodies import ChatBody, CompletionBody, GenerationBody
from harness.server.errors import ApiError, too_long
from harness.server.shapes import Endpoint
from harness.server.text import ChatTemplateRefused, ModelText

_SEED_BITS = 63


@dataclass(frozen=True, slots=True)
class Job:
    """One HTTP request, ready for the engine; `requests[i]` is the answer's choice i."""

    endpoint: Endpoint
    answer_id: str
    requests: tuple[Request, ...]
    stops: tuple[str, ...]
    min_tokens: int
    skip_special_tokens: bool
    return_token_ids: bool
    streams: bool
    include_usage: bool
    continuous_usage: bool

    @property
    def prompt_tokens(self) -> int:
        return sum(len(request.prompt_token_ids) for request in self.requests)


class JobReader:
    """Reads bodies for one engine. `draw_bits(n)` gives n random bits."""

    def __init__(self, text: ModelText, info: EngineInfo, draw_bits: Callable[[int], int]) -> None:
        self._text = text
        self._info = info
        self._draw_bits = draw_bits

    def completion(self, body: CompletionBody) -> Job:
        """Raises `ApiError`."""
        prompts = [self._text.encode(p) if isinstance(p, str) else p for p in body.prompt]
        return self._job("completions", body, prompts)

    def chat(self, body: ChatBody) -> Job:
        """Raises `ApiError`."""
        messages = [
            {"role": "system" if m.role == "developer" else m.role, "content": m.text}
            | ({} if m.name is None else {"name": m.name})
            for m in body.messages
        ]
        try:
            prompt = self._text.encode_chat(messages)
        except ChatTemplateRefused as error:
            raise ApiError(
                400, f"the model's chat template refuses these messages: {error}", param="messages"
            ) from error
        return self._job("chat", body, [prompt])

    def _job(
        self, endpoint: Endpoint, body: GenerationBody, prompts: Sequence[Sequence[int]]
    ) -> Job:
        for prompt in prompts:
            self._check(prompt, body)
        options = body.stream_options
        if options is not None and not body.stream:
            raise ApiError(
                400, "stream_options is for streams; give stream: true", param="stream_options"
            )
        prefix = "cmpl" if endpoint == "completions" else "chatcmpl"
        answer_id = f"{prefix}-{self._draw_bits(128):032x}"
        return Job(
            endpoint=endpoint,
            answer_id=answer_id,
            requests=tuple(
                self._request(f"{answer_id}-{place}", prompt, body)
                for place, prompt in enumerate(prompts)
            ),
            stops=tuple(body.stop),
            min_tokens=body.min_tokens,
            skip_special_tokens=body.skip_special_tokens,
            return_token_ids=bool(body.return_token_ids),
            streams=bool(body.stream),
            include_usage=options is not None and options.include_usage,
            continuous_usage=options is not None and options.continuous_usage_stats,
        )

    def _check(self, prompt: Sequence[int], body: GenerationBody) -> None:
        if not prompt:
            raise ApiError(400, "the prompt is empty; expected at least 1 token", param="prompt")
        vocabulary = self._info.model.vocab_size if self._info.model is not None else None
        if vocabulary is not None and max(prompt) >= vocabulary:
            raise ApiError(
                400,
                f"the prompt has the token id {max(prompt)}; expected ids below {vocabulary}",
                param="prompt",
            )
        limit = body.answer_limit
        if limit is not None and body.min_tokens > limit:
            raise ApiError(
                400,
                f"min_tokens is {body.min_tokens}; expected at most max_tokens, {limit}",
                param="min_tokens",
            )
        answer = max(limit or 1, body.min_tokens)
        if reason := context_refusal(len(prompt), answer, self._info.max_model_len):
            raise too_long(reason)

    def _request(self, name: str, prompt: Sequence[int], body: GenerationBody) -> Request:
        return Request(
            request_id=name,
            prompt_token_ids=tuple(prompt),
            max_tokens=body.answer_limit,
            sampling=self._sampling(body),
            ignore_eos=body.ignore_eos,
            stop_token_ids=tuple(body.stop_token_ids or ()),
            priority=body.clamped_priority,
            session=body.user or None,
            min_tokens=body.min_tokens,
        )

    def _sampling(self, body: GenerationBody) -> Sampling:
        """OpenAI's defaults. A request without a seed gets one of its own.

        With a seed, the answer to a prompt is always the same, whatever the request is called.
        """
        seed = self._draw_bits(_SEED_BITS) if body.seed is None else body.seed
        return Sampling(
            temperature=1.0 if body.temperature is None else body.temperature,
            top_p=1.0 if body.top_p is None else body.top_p,
            top_k=max(0, body.top_k or 0),
            seed=seed,
            noise_id=None if body.seed is None else "",
        )
