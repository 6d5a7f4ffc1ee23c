"""The contract between what arrives, what serves it and what measures it.

Everything that crosses a package border is defined here and nowhere else: requests, the
sources that hand them out, the sinks that take the results, the engines between them, and the
error that a user sees. No torch, no I/O, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, runtime_checkable

RequestId = str
Status = Literal["ok", "rejected", "failed", "timeout", "cancelled"]
FinishReason = Literal["length", "stop"]
CountedBy = Literal["usage", "ids", "tokenizer", "events"]
StallCause = Literal["preemption", "prefill", "token_budget", "compute"]
JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]


class CbbenchError(Exception):
    """A user's mistake or a broken surrounding, told in one sentence.

    The message says what was got, what was expected and what to do. The command line prints it
    without a traceback and exits with 2.
    """


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen; `temperature == 0` is greedy and ignores the rest.

    Noise is keyed by the seed, the request's id and the position; a `noise_id` stands in for the
    id, so that requests with the same one and the same seed draw the same.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    noise_id: str | None = None


GREEDY: Final = Sampling()


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a workload, drawn before the run; every engine gets the same object.

    `scheduled_s` is the arrival in seconds from the run's t0. `max_tokens` of `None` means up to
    the engine's context. With `ignore_eos` the answer has exactly `max_tokens` tokens. No token at
    which it would stop is chosen among the first `min_tokens`.
    """

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    max_tokens: int | None
    scheduled_s: float = 0.0
    sampling: Sampling = GREEDY
    ignore_eos: bool = True
    stop_token_ids: tuple[int, ...] = ()
    priority: int = 0
    request_class: str = ""
    session: str | None = None
    min_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RequestStats:
    """What an engine knows about a request that has ended; `None` where it cannot know.

    The four durations add up to `end - scheduled`. The positions are those executed for the
    first time (METRICS.md's ledger); a request that did not end `ok` has them moved to
    `discarded` by whoever sums them up.
    """

    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    preempted_s: float | None = None
    num_preemptions: int | None = None
    num_steps: int | None = None
    max_stall_cause: StallCause | None = None
    first_time_prompt: int = 0
    first_time_output: int = 0
    prefix_hit_tokens: int | None = None
    sent_s: float | None = None  # of a client that pushes, just before writing; pulled: None
    later_hit_tokens: int = 0  # first computed by others, found in the cache after a preemption
    num_prefill_steps: int | None = None  # of its steps, those up to the first token
    preempted_from_s: Sequence[float] = ()  # when it was preempted and when it had work again;
    preempted_until_s: Sequence[float] = ()  # as many of one as of the other
    served_prompt_tokens: int | None = None  # a server's own count of the prompt
    counted_by: CountedBy | None = None  # over HTTP: who says how many tokens there were
    swapped_tokens: int | None = None  # cache positions copied to the host and back, both counted


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a request. `reason` is a sentence for everything that is not `ok`.

    `token_counts` are the tokens of each of its token events, where these were known only at the
    end; `None` where the events were right.
    """

    request_id: RequestId
    status: Status
    finish_reason: FinishReason | None = None
    reason: str = ""
    stats: RequestStats = RequestStats()
    token_counts: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class StepRow:
    """One engine step, as `steps.parquet` stores it. Times in seconds from t0, or durations.

    `prompt`, `output`, `recomputed`, `padding`, `rejected_draft`, `past_stop` count executed
    positions and add up to everything the step computed; `positions` counts that apart from them,
    from what the executor was given. `update_s` is the engine's bookkeeping after the computation.
    `useful_rows` of `slots` rows belonged to a live request. `tokens_held` of `tokens_reserved`
    cache positions hold a token; the rest of them is lost inside blocks that are begun and to
    reservation beyond those. What is lost to fragmentation is free, and useless to who waits.
    """

    step: int
    start_s: float
    end_s: float
    compute_s: float
    schedule_s: float
    pack_s: float
    copy_s: float
    num_running: int
    num_waiting: int
    slots: int
    useful_rows: int
    prefill_tokens: int
    decode_tokens: int
    prompt: int
    output: int
    recomputed: int = 0
    padding: int = 0
    rejected_draft: int = 0
    past_stop: int = 0
    tokens_held: int | None = None
    tokens_reserved: int | None = None
    blocks_used: int | None = None
    blocks_cached: int | None = None
    blocks_free: int | None = None
    preemptions: int = 0
    update_s: float = 0.0
    positions: int | None = None
    lost_inside_blocks: int | None = None
    lost_to_reservation: int | None = None
    lost_to_fragmentation: int | None = None

    @property
    def executed(self) -> int:
        """All positions that the step computed."""
        return (
            self.prompt
            + self.output
            + self.recomputed
            + self.padding
            + self.rejected_draft
            + self.past_stop
        )


@dataclass(frozen=True, slots=True)
class StepEvents:
    """What one step delivered, at one instant.

    `request_ids[i]` received the tokens `token_ids[i]` (at least one) at `time_s`. A request may
    be in `finished` in the same batch as its last tokens; tokens come first.
    """

    time_s: float
    request_ids: Sequence[RequestId] = ()
    token_ids: Sequence[Sequence[int]] = ()
    finished: Sequence[Finish] = ()
    step: StepRow | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """A source's answer: only a completion can free the next request."""


@dataclass(frozen=True, slots=True)
class End:
    """A source's answer: nothing will ever come again."""


BLOCKED: Final = Blocked()
END: Final = End()
Due = float | Blocked | End


class Clock(Protocol):
    """Monotonic seconds since t0. The wall and the virtual one differ in nothing else."""

    def now(self) -> float: ...

    def sleep_until(self, time_s: float) -> None:
        """Returns at `time_s` or later; at once when that is past."""
        ...


class RequestSource(Protocol):
    """Where an engine pulls its requests from."""

    def take(self, now_s: float, limit: int) -> list[Request]:
        """Up to `limit` requests due by `now_s`, in order of arrival, each handed out once."""
        ...

    def next_due(self) -> Due:
        """When the next request is due (may be past), or `BLOCKED`, or `END`."""
        ...

    def cancelled(self) -> tuple[RequestId, ...]:
        """Requests whose client has left since the last call."""
        ...

    def wait(self, until_s: float) -> None:
        """Sleeps until `until_s` (`inf` allowed), or less when something has arrived."""
        ...


class Sink(Protocol):
    """Who takes the results."""

    def emit(self, events: StepEvents) -> None:
        """Called once a step, from the engine's thread; never blocks."""
        ...


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a parent process needs to know of a model that it must not load."""

    name: str
    vocab_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...]
    special_token_ids: tuple[int, ...]
    num_parameters: int
    kv_bytes_per_token: int
    dtype: str
    device: str
    device_name: str | None = None  # a GPU's model; of a CPU the environment tells it


@dataclass(frozen=True, slots=True)
class PromptLimits:
    """What prompts may be drawn from where no engine of a run has the model at hand."""

    vocab_size: int
    special_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Every setting in force, resolved. `slots` is the most rows a step can hold.

    What an engine cannot know, a remote one above all, is `None`.
    """

    name: str
    settings: Mapping[str, JsonValue]
    max_model_len: int
    slots: int | None
    kv_tokens: int | None = None
    model: ModelInfo | None = None
    notes: tuple[str, ...] = field(default=())
    prompts: PromptLimits | None = None


class Engine(Protocol):
    """What serves. The engine pulls due requests and pushes one batch of events a step."""

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        """Serves until the source ends or `stop()`; what is then unfinished is `cancelled`."""
        ...

    def stop(self) -> None:
        """From another thread: makes `run` return at the next step boundary."""
        ...

    def describe(self) -> EngineInfo: ...

    def reset(self) -> None:
        """Empties KV and prefix caches; keeps weights, kernels and graphs."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Outbound(Protocol):
    """An engine that sends its requests elsewhere, and has to get ready for what will come."""

    def prepare(self, requests: Sequence[Request], max_concurrency: int | None) -> None:
        """Before a cell: the requests with their schedule, and how many may be in flight."""
        ...

    def server_pids(self) -> Sequence[int]:
        """Processes of the server on this machine, whose work is the engine's and no disturbance.

        Empty where it is elsewhere or cannot be found.
        """
        ...

    def closing_s(self) -> float:
        """How long `close` may take, where it ends a server; else 0."""
        ...

    def observations(self) -> Mapping[str, JsonValue]:
        """After `run`: what is known of the client and of the server, strict JSON."""
        ...
