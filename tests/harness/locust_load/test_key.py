"""The key is in no text of ours, whole or in part."""

from __future__ import annotations

import pytest

from engines.remote.completion import shortened
from engines.remote.refusals import refusal
from harness.locust_load.key import ApiKey

KEY = ApiKey("sk-very-secret-0123456789")


@pytest.mark.parametrize("place", range(370, 405))
def test_a_key_that_a_cut_goes_through_is_hidden_too(place):
    _, reason = refusal(401, b"x" * place + KEY.value.encode() + b" is no key of ours")
    told = KEY.hide_in(reason)
    assert told.endswith("...")
    assert "sk-v" not in told
    assert len(told) > 380


def test_words_that_a_cut_goes_through_are_left_alone():
    text = shortened("risk " * 100)
    assert KEY.hide_in(text) == text
    assert ApiKey(None).hide_in(text) == text
