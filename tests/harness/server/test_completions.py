"""Answers of `/v1/completions` and `/v1/chat/completions`, whole and streamed."""

from __future__ import annotations

import json
import threading

import pytest

pytestmark = pytest.mark.loopback

TEXT = "Zürich 🔥 na ďalej, okay"
EOS = 2


def text_in(answer, place=0):
    choice = answer["choices"][place]
    return choice["text"] if "text" in choice else choice["message"]["content"]


def test_a_text_comes_back_whole(echo, tokenizer):
    count = len(tokenizer.encode(TEXT).ids)
    answer = echo.post(prompt=TEXT, max_tokens=count).json()
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == (TEXT, "length")
    assert answer["usage"] == {
        "prompt_tokens": count,
        "completion_tokens": count,
        "total_tokens": 2 * count,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert (answer["object"], answer["model"]) == ("text_completion", "tiny")


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("completions", {"prompt": TEXT}),
        ("chat/completions", {"messages": [{"role": "user", "content": TEXT}]}),
    ],
)
def test_a_stream_joined_is_the_whole_answer(echo, path, prompt):
    whole = echo.post(path, **prompt, max_tokens=40).json()
    events = echo.events(path, **prompt, max_tokens=40)
    assert echo.text_of(events) == text_in(whole)
    assert TEXT in text_in(whole)
    assert "\ufffd" not in text_in(whole)
    assert {e["id"] for e in events[:-1]} == {events[0]["id"]}
    assert events[-1] == "[DONE]"


def test_a_stream_ends_once_and_tells_usage_only_if_asked(echo):
    plain = echo.events(prompt=[500, 600, 700], max_tokens=4)
    *before, last = [e["choices"][0]["finish_reason"] for e in plain[:-1]]
    assert (set(before) <= {None}, last) == (True, "length")
    assert all("usage" not in event for event in plain[:-1])
    told = echo.events(prompt=[500, 600, 700], max_tokens=4, stream_options={"include_usage": True})
    assert {e["usage"] for e in told[:-2]} == {None}
    assert told[-2]["choices"] == []
    assert told[-2]["usage"]["completion_tokens"] == 4
    assert told[-1] == "[DONE]"


def test_continuous_usage_counts_tokens_whose_text_is_held(slow_echo, tokenizer):
    fire = tokenizer.encode("🔥").ids
    assert len(fire) == 4
    events = slow_echo.events(
        prompt=fire,
        max_tokens=4,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    counts = [e["usage"]["completion_tokens"] for e in events[:-1]]
    texts = [e["choices"][0]["text"] for e in events[:-2]]
    assert counts == [1, 2, 3, 4, 4]
    assert texts == ["", "", "", "🔥"]


def test_a_cut_character_is_told_at_the_end_as_in_the_full_text(echo, tokenizer):
    ids = tokenizer.encode("ab🔥").ids
    answer = echo.post(prompt=ids, max_tokens=len(ids) - 1).json()
    assert text_in(answer) == tokenizer.decode(ids[:-1]) == "ab\ufffd"
    assert answer["usage"]["completion_tokens"] == len(ids) - 1
    assert echo.text_of(echo.events(prompt=ids, max_tokens=len(ids) - 1)) == "ab\ufffd"


def test_a_chat_stream_opens_with_the_role_and_no_token(echo):
    events = echo.events(
        "chat/completions", messages=[{"role": "user", "content": "hi"}], max_tokens=3
    )
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in e["choices"][0]["delta"] for e in events[1:-1])
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert events[0]["object"] == "chat.completion.chunk"


def test_messages_go_through_the_models_chat_template(echo, tokenizer):
    messages = [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi "}, {"type": "text", "text": "you"}],
        },
    ]
    expected = tokenizer.encode(
        "<|system|>be brief<|end|><|user|>hi you<|end|><|assistant|>", add_special_tokens=False
    )
    answer = echo.post(
        "chat/completions", messages=messages, max_tokens=3, return_token_ids=True
    ).json()
    assert answer["choices"][0]["prompt_token_ids"] == expected.ids
    assert answer["choices"][0]["token_ids"] == expected.ids[:3]


@pytest.mark.parametrize(
    "prompt", [["one", "two and more"], [[100, 101], [200, 201, 202]], [[100]]]
)
def test_a_batch_has_a_choice_for_each_prompt(echo, tokenizer, prompt):
    ids = [tokenizer.encode(p).ids if isinstance(p, str) else p for p in prompt]
    texts = [tokenizer.decode((one * 6)[:6], skip_special_tokens=False) for one in ids]
    answer = echo.post(prompt=prompt, max_tokens=6).json()
    assert [text_in(answer, place) for place in range(len(prompt))] == texts
    assert [c["index"] for c in answer["choices"]] == list(range(len(prompt)))
    assert answer["usage"]["prompt_tokens"] == sum(map(len, ids))
    assert answer["usage"]["completion_tokens"] == 6 * len(prompt)
    events = echo.events(prompt=prompt, max_tokens=6)
    assert [echo.text_of(events, place) for place in range(len(prompt))] == texts
    ends = [e["choices"][0] for e in events[:-1] if e["choices"][0]["finish_reason"]]
    assert sorted(c["index"] for c in ends) == list(range(len(prompt)))


def test_an_answer_ends_at_the_end_token_which_is_counted_and_has_no_text(echo):
    prompt = [500, 600, EOS, 700]
    answer = echo.post(prompt=prompt, max_tokens=9).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 3
    forced = echo.post(prompt=prompt, max_tokens=9, ignore_eos=True).json()
    assert forced["choices"][0]["finish_reason"] == "length"
    assert forced["usage"]["completion_tokens"] == 9


def test_a_stop_token_id_has_no_text_either(echo, tokenizer):
    answer = echo.post(prompt=[500, 600, 700], max_tokens=9, stop_token_ids=[600]).json()
    assert text_in(answer) == tokenizer.decode([500])
    assert answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stop", ["DEFGHIJ", ["nowhere", "DEFGHIJ"]], ids=["text", "list"])
@pytest.mark.parametrize("text", ["xDEFGHIJy", "so it goes, xDEFGHIJ and on"])
def test_nothing_of_a_stop_string_is_sent(echo, tokenizer, stop, text):
    count = len(tokenizer.encode(text).ids)
    before = text.partition("DEFGHIJ")[0]
    answer = echo.post(prompt=text, max_tokens=count, stop=stop).json()
    assert (text_in(answer), answer["choices"][0]["finish_reason"]) == (before, "stop")
    events = echo.events(
        prompt=text, max_tokens=count, stop=stop, stream_options={"include_usage": True}
    )
    assert echo.text_of(events) == before
    reasons = [c["finish_reason"] for e in events[:-1] for c in e["choices"]]
    assert reasons[-1] == "stop"
    assert set(reasons[:-1]) <= {None}
    assert events[-2]["usage"]["completion_tokens"] == answer["usage"]["completion_tokens"]


def test_the_beginning_of_a_stop_string_that_never_comes_is_told(echo, tokenizer):
    text = "abc DEFG abc"
    count = len(tokenizer.encode(text).ids)
    assert text_in(echo.post(prompt=text, max_tokens=count, stop="DEFGHIJ").json()) == text
    cut = "abc DEFG"
    count = len(tokenizer.encode(cut).ids)
    assert text_in(echo.post(prompt=cut, max_tokens=count, stop="DEFGHIJ").json()) == cut


def test_nothing_stops_an_answer_among_its_first_tokens(echo, tokenizer):
    tokens = echo.post(prompt=[500, EOS, 600, EOS], max_tokens=9, min_tokens=2).json()["usage"]
    assert tokens["completion_tokens"] == 4
    text = "STOP and STOP"
    count = len(tokenizer.encode(text).ids)
    first = len(tokenizer.encode("STOP").ids)
    ask = {"prompt": text, "max_tokens": count, "stop": "STOP"}
    assert text_in(echo.post(**ask).json()) == ""
    assert text_in(echo.post(**ask, min_tokens=first).json()) == "STOP and "


def test_no_limit_means_up_to_the_context(echo):
    answer = echo.post(prompt=[500] * 500, max_tokens=None).json()
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["choices"][0]["finish_reason"] == "length"


def test_the_newer_name_of_the_limit_counts(echo):
    answer = echo.post(prompt=[500], max_tokens=9, max_completion_tokens=3).json()
    assert answer["usage"]["completion_tokens"] == 3


def test_streams_of_different_length_end_each_at_its_own_time(echo, tokenizer):
    kept = {}

    def read(count):
        kept[count] = echo.events(prompt=[500 + count], max_tokens=count)

    threads = [threading.Thread(target=read, args=(count,)) for count in (1, 5, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    for count, events in kept.items():
        assert echo.text_of(events) == tokenizer.decode([500 + count]) * count
        assert events[-2]["choices"][0]["finish_reason"] == "length"
        assert events[-1] == "[DONE]"
    assert sorted(kept) == [1, 5, 50]


def test_several_tokens_of_one_step_come_in_one_chunk(start, tokenizer):
    server = start("echo[burst=3]")
    events = server.events(
        prompt=TEXT, max_tokens=20, stream_options={"include_usage": True}, stop="okay"
    )
    assert server.text_of(events) == "Zürich 🔥 na ďalej, "
    whole = server.post(prompt=TEXT, max_tokens=20, stop="okay").json()
    assert whole["usage"] == events[-2]["usage"]
    assert len(events) - 2 < whole["usage"]["completion_tokens"]


def test_streams_are_plain_json_lines(echo):
    with echo.stream(prompt="a", max_tokens=2) as response:
        raw = response.read()
    assert raw.endswith(b"\n\ndata: [DONE]\n\n")
    for line in raw.split(b"\n\n")[:-2]:
        json.loads(line.removeprefix(b"data: "))


def test_a_batch_that_nobody_fills_starts_in_the_end(start):
    server = start("hashing[policy=static,slots=4]")
    assert server.post(prompt=[500], max_tokens=3).status_code == 200
