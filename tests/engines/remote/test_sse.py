"""Framing: the same events however the bytes were split, and a bound on what never ends."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engines.remote.sse import EventDecoder, StreamError

SHOWCASE = (
    b"\xef\xbb\xbf: hello\r\n\r\n"
    b'event: message\r\nid: 7\r\ndata: {"a":\r\ndata: "caf\xc3\xa9",\r\ndata: "b": 1}\r\n\r\n'
    b"data:no space\n\ndata:  two spaces\n\nretry: 3\rdata: by CR\r\r"
    b"data\n\n: bye\n\ndata: [DONE]\n\n"
)
EVENTS = [
    b'{"a":\n"caf\xc3\xa9",\n"b": 1}',
    b"no space",
    b" two spaces",
    b"by CR",
    b"",
    b"[DONE]",
]


def decoded(chunks, **options) -> list[bytes]:
    decoder = EventDecoder(**options)
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.close()


def test_comments_and_other_fields_are_no_events():
    assert decoded([SHOWCASE]) == EVENTS


def test_bytes_one_by_one_give_the_same_events():
    assert decoded([SHOWCASE[i : i + 1] for i in range(len(SHOWCASE))]) == EVENTS


@given(st.lists(st.integers(0, len(SHOWCASE)), max_size=8))
def test_bytes_split_anywhere_give_the_same_events(cuts):
    edges = [0, *sorted(cuts), len(SHOWCASE)]
    chunks = [SHOWCASE[a:b] for a, b in pairwise(edges)]
    assert decoded(chunks) == EVENTS


LINES = [b"data: a", b"data:b", b"data: c:d", b"event: x", b": remark", b"data", b""]


@given(
    st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from([b"\n", b"\n\n", b"\r", b"\r\n"]))),
    st.lists(st.integers(0, 200), max_size=4),
)
@example([(b"data: a", b"\n"), (b"event: x", b"\n\n")], [])
@example([(b"data: a", b"\r"), (b"data: c:d", b"\n\n")], [])
@example([(b": remark", b"\n"), (b"data: a", b"\n\n")], [3])
@example([(b"data: a", b"\n"), (b"data: c:d", b"\n\n")], [8])
@example([(b": data: a", b"\n\n")], [2])
@settings(max_examples=300)
def test_whole_events_in_a_chunk_are_read_as_their_bytes_are_one_by_one(lines, cuts):
    stream = b"".join(line + end for line, end in lines)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    assert decoded(chunks) == decoded([stream[i : i + 1] for i in range(len(stream))])


@pytest.mark.parametrize("spaces", [0, 1, 2])
def test_at_most_one_space_after_the_colon_is_dropped(spaces):
    stream = b"".join(b"data:" + b" " * spaces + b"%d\n\n" % i for i in range(3))
    extra = b" " * max(0, spaces - 1)
    assert decoded([stream]) == [extra + b"0", extra + b"1", extra + b"2"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_data_lines_of_one_event_are_joined(end):
    stream = end.join([b"event: message", b"id: 7", b"data: {", b"data: }", b"", b""])
    assert decoded([stream]) == [b"{\n}"]


def test_byte_order_mark_counts_at_the_start_only():
    mark = b"\xef\xbb\xbf"
    assert decoded([mark + b"data: 1\n\n" + mark + b"data: 2\n\n"]) == [b"1"]
    assert decoded([b"data: 1\n\n", mark + b"data: 2\n\n"]) == [b"1"]


def test_an_event_is_given_out_with_its_last_byte():
    decoder = EventDecoder()
    assert decoder.feed(b"data: 1\r") == []
    assert decoder.feed(b"\n\r") == [b"1"]
    assert decoder.feed(b"\ndata: 2\n") == []
    assert decoder.feed(b"\n") == [b"2"]


def test_a_whole_event_after_a_lone_carriage_return_is_read():
    decoder = EventDecoder()
    assert decoder.feed(b"data: 1\r\r") == [b"1"]
    assert decoder.feed(b"data: 2\n\n") == [b"2"]
    assert decoder.feed(b"\ndata: 3\n\n") == [b"3"]


def test_what_is_left_at_the_end_is_an_event():
    assert decoded([b"data: 1\n\ndata: [DONE]"]) == [b"1", b"[DONE]"]
    assert decoded([b"data: 1\n\ndata: [DONE]\n"]) == [b"1", b"[DONE]"]
    assert decoded([b": nothing"]) == []
    assert decoded([]) == []


def test_a_line_without_end_is_refused():
    decoder = EventDecoder(max_event_bytes=100)
    decoder.feed(b"data: " + b"x" * 60)
    with pytest.raises(StreamError, match="longer than 100 bytes"):
        decoder.feed(b"x" * 60)


def test_an_event_without_end_is_refused():
    decoder = EventDecoder(max_event_bytes=100)
    with pytest.raises(StreamError, match="longer than 100 bytes"):
        decoder.feed(b"data: 12345678901234567890\n" * 5)


def test_many_events_within_the_bound_are_fine():
    assert len(decoded([b"data: 1234567890\n\n"] * 50, max_event_bytes=40)) == 50
    assert len(decoded([b"data: 1234567890\n\n" * 50], max_event_bytes=40)) == 50


def test_a_whole_event_over_the_bound_is_refused():
    with pytest.raises(StreamError):
        EventDecoder(max_event_bytes=40).feed(b"data: " + b"x" * 50 + b"\n\n")
