"""What counts as a token, how many there were, and what became of an answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.remote.completion import UNKNOWN_ID, Completion, error_message, spread

DONE = "[DONE]"


def played(*events) -> Completion:
    """A completion that has read the events, given as objects or as text."""
    completion = Completion()
    for event in events:
        completion.read((event if isinstance(event, str) else json.dumps(event)).encode())
    return completion


def token_numbers(*events) -> list[int]:
    """How many tokens each event carried when it was read."""
    completion = Completion()
    return [len(completion.read(json.dumps(event).encode())) for event in events]


def text(piece, finish=None, **more):
    return {"choices": [{"index": 0, "text": piece, "finish_reason": finish, **more}]}


def delta(finish=None, **content):
    return {"choices": [{"index": 0, "delta": content, "finish_reason": finish}]}


def usage(completion_tokens, prompt_tokens=5, **more):
    counts = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, **more}
    return {"choices": [], "usage": counts}


def test_text_of_completions_and_chat_is_joined():
    assert played(text("Hel"), text("lo")).text == "Hello"
    assert played(delta(content="Hel"), delta(content="lo")).text == "Hello"
    assert played(delta(content=[{"type": "text", "text": "Hello"}])).text == "Hello"


def test_role_and_empty_deltas_carry_no_token():
    numbers = token_numbers(
        delta(role="assistant", content=None),
        delta(role="assistant", content=""),
        delta(),
        {"choices": [{"delta": None}]},
        {"choices": [{"index": 0}]},
        delta(tool_calls=[]),
        delta(content="a"),
        delta(finish="stop"),
    )
    assert numbers == [0, 0, 0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_a_token_but_no_content(field):
    answer = played(delta(**{field: "Hm"}), delta(**{field: "m"}), delta(content="Yes"))
    assert answer.counts == [1, 1, 1]
    assert ("".join(answer.reasoning), answer.text) == ("Hmm", "Yes")


def test_reasoning_sent_under_both_names_is_one_text():
    answer = played(delta(reasoning="Hm", reasoning_content="Hm"))
    assert (answer.reasoning, answer.counts) == (["Hm"], [1])


def test_an_answer_that_only_thought_until_its_limit_is_ok():
    answer = played(delta(reasoning="Hm"), delta(reasoning="m", finish="length"), DONE)
    assert answer.outcome() == ("ok", "length", "")


def test_tool_calls_are_tokens():
    assert token_numbers(
        delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"x"'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": ""}}]),
        delta(function_call={"arguments": "1"}),
        delta(refusal="No."),
    ) == [1, 1, 0, 1, 1]


def test_chunks_of_several_tokens_are_counted_by_usage():
    answer = played(text("a b c"), text(" d e f"), text(" g h i", "length"), usage(9), DONE)
    assert answer.final_counts() == ([3, 3, 3], "usage")
    assert answer.outcome() == ("ok", "length", "")


def test_token_ids_count_at_once():
    answer = Completion()
    assert answer.read(json.dumps(text("ab", token_ids=[7, 8])).encode()) == [7, 8]
    assert answer.read(json.dumps(text("", token_ids=[9])).encode()) == [9]
    assert answer.read(json.dumps(text("held", token_ids=[])).encode()) == ()
    assert answer.final_counts() == ([2, 1], "ids")


@pytest.mark.parametrize("ids", ["7", [None], [1.5], [True], [-3], [2**40]])
def test_token_ids_that_are_none_are_not_believed(ids):
    answer = Completion()
    assert answer.read(json.dumps(text("a", token_ids=ids)).encode()) == (UNKNOWN_ID,)


def test_usage_sent_along_counts_at_once():
    assert token_numbers(
        {"choices": [{"delta": {"role": "assistant"}}], "usage": {"completion_tokens": 0}},
        text("a") | {"usage": {"completion_tokens": 1}},
        text("") | {"usage": {"completion_tokens": 2}},
        text("bc") | {"usage": {"completion_tokens": 5}},
        text("held") | {"usage": {"completion_tokens": 5}},
        usage(5),
    ) == [0, 1, 1, 3, 0, 0]


def test_usage_in_the_last_chunk_only_is_no_burst_of_tokens():
    last = text("", "length") | {"usage": {"completion_tokens": 9}}
    assert token_numbers(text("a b c"), text("d e f"), text("g h i"), last) == [1, 1, 1, 0]


def test_an_answer_in_one_piece_is_one_event_of_all_its_tokens():
    whole = {
        "choices": [{"message": {"role": "assistant", "content": "Hi!"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    answer = played(whole)
    assert (answer.counts, answer.text, answer.outcome()[0]) == ([2], "Hi!", "ok")


def test_unknown_count_is_estimated_and_told_apart_from_zero():
    unknown = played(text("a"), text("b", "stop"), DONE)
    assert unknown.final_counts() == ([1, 1], "events")
    zero = played(delta(role="assistant"), delta(finish="stop"), usage(0), DONE)
    assert zero.usage.completion_tokens == 0
    assert zero.final_counts() == ([], "events")
    assert zero.outcome() == ("failed", None, "the answer was empty where tokens were due")


def test_a_usage_of_zero_beside_text_is_no_count():
    assert played(text("a"), text("b", "stop"), usage(0)).final_counts() == ([1, 1], "events")


def test_the_joined_text_is_counted_and_not_its_pieces():
    asked = []

    def count(joined: str) -> int:
        asked.append(joined)
        return 10

    events = [text(piece) for piece in "abcdefghij"]
    assert played(*events).final_counts(count) == ([1] * 10, "tokenizer")
    assert asked == ["abcdefghij"]


def test_usage_goes_before_a_tokenizer():
    answer = played(text("a"), text("b"), usage(4))
    assert answer.final_counts(lambda _: 99) == ([2, 2], "usage")


@pytest.mark.parametrize("choices", [{"choices": []}, {"choices": None}, {}])
def test_usage_is_read_without_choices(choices):
    last = choices | {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    answer = played(text("a"), text("b", "stop"), last, DONE)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 2)
    assert answer.outcome() == ("ok", "stop", "")


def test_cached_prompt_tokens_are_read():
    told = played(usage(1, prompt_tokens_details={"cached_tokens": 4})).usage
    assert told.cached_tokens == 4
    assert played(usage(1, prompt_tokens_details=None)).usage.cached_tokens is None


@pytest.mark.parametrize("wrong", ["9", -1, 1.5, True, None, [9]])
def test_counts_that_are_none_are_unknown(wrong):
    assert played(usage(wrong)).usage.completion_tokens is None


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "boom", "type": "server_error", "code": 500}},
        {"error": "boom"},
        {"error": {"error": {"message": "boom"}}},
        {"object": "error", "message": "boom"},
        {"detail": "boom"},
        {"error": {"detail": "boom"}, "choices": []},
        text("", "error", error={"message": "boom"}),
        "boom",
        '"boom"',
    ],
)
@pytest.mark.parametrize("before", [(), (text("a"), text("b"))])
def test_an_error_within_a_stream_is_a_failure(error, before):
    status, finish, reason = played(*before, error, DONE).outcome()
    assert (status, finish) == ("failed", None)
    assert "boom" in reason


def test_nothing_is_read_after_an_error():
    assert played({"error": "boom"}, text("a", "stop"), usage(3)).counts == []


def test_an_error_of_null_is_none():
    assert played(text("a", "stop") | {"error": None}, DONE).outcome()[0] == "ok"


def test_an_aborted_answer_is_a_failure():
    assert played(text("a"), text("", "abort"), DONE).outcome() == (
        "failed",
        None,
        "the server ended the answer with 'abort'",
    )


def test_a_natural_end_without_a_reason_is_ok_and_unknown():
    answer = played(*(text(piece) for piece in "abcd"), DONE)
    assert answer.outcome() == ("ok", None, "")


@pytest.mark.parametrize(
    ("word", "finish"),
    [("length", "length"), ("stop", "stop"), ("eos_token", "stop"), ("content_filter", None)],
)
def test_finish_reasons_of_several_servers(word, finish):
    assert played(text("a", word)).outcome() == ("ok", finish, "")


def test_a_stream_that_ends_without_an_end_was_cut_short():
    status, _, reason = played(text("a"), text("b")).outcome()
    assert (status, reason) == ("failed", "the stream was cut short")


@pytest.mark.parametrize(
    "garbage",
    [
        *("<html>", "{", "\xff", "[1]", "3", "[" * 100_000, '{"choices": 5}', '{"choices": ["a"]}'),
        '{"choices": [{"text": "b"}]} and more',
    ],
)
def test_garbage_is_a_failure_and_no_crash(garbage):
    assert played(text("a"), garbage, DONE).outcome()[0] == "failed"


@pytest.mark.parametrize("nothing", ["", " ", {}, {"type": "ping"}, {"choices": []}])
def test_events_that_say_nothing_are_passed_over(nothing):
    assert played(nothing, text("a", "stop"), nothing, DONE).outcome()[0] == "ok"


def test_long_messages_are_cut():
    assert len(error_message({"error": "x " * 5000})) < 500


@given(st.integers(0, 500), st.lists(st.integers(1, 9), min_size=1, max_size=50))
def test_spread_keeps_the_total_and_both_ends(total, counts):
    parts = spread(total, counts)
    assert (sum(parts), len(parts)) == (total, len(counts))
    assert min(parts) >= 0
    if total >= 1:
        assert parts[0] >= 1
    if total >= 2:
        assert parts[-1] >= 1
    if total >= sum(counts):
        assert min(parts) >= 1


def test_spread_follows_what_was_counted():
    assert spread(14, [5, 1, 1]) == [10, 2, 2]
    assert spread(3, [1, 1, 1, 1, 1]) == [1, 0, 1, 0, 1]
