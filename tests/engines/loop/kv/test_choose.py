"""From the text of an engine to its memory, and what is refused on the way."""

from __future__ import annotations

import pytest

from engines.api import CbbenchError, Request
from engines.loop.kv.choose import make_cache, with_reserve
from engines.loop.kv.contiguous import ContiguousCache
from engines.loop.kv.paged import PagedCache
from engines.loop.sequence import Sequence
from engines.registry import installed_engines, parse_engines


def settings_of(text):
    (spec,) = parse_engines(text, installed_engines())
    return with_reserve(spec.settings)


def test_the_memory_is_paged_unless_told():
    settings = settings_of("continuous")
    assert (settings["allocator"], settings["reserve"]) == ("paged", None)
    cache = make_cache(settings, 8, max_model_len=64)
    assert isinstance(cache, PagedCache)
    assert cache.prefixes is None
    assert make_cache(settings_of("loop[prefix_caching=true]"), 8, 64).prefixes is not None


@pytest.mark.parametrize(
    ("given", "reserve", "blocks"),
    [
        ("", "max", 8),
        (",reserve=auto", "max", 8),
        (",reserve=max", "max", 8),
        (",reserve=pow2", "pow2", 4),
        (",reserve=exact", "exact", 3),
    ],
)
def test_regions_are_as_long_as_the_settings_say(given, reserve, blocks):
    settings = settings_of(f"continuous[allocator=contiguous{given}]")
    assert settings["reserve"] == reserve
    cache = make_cache(settings, 8, max_model_len=128)
    assert isinstance(cache, ContiguousCache)
    request = Request("a", (1,) * 30, 4)  # 33 positions
    assert cache.trial().admit(Sequence(request, 4, arrival_index=0)) == 0
    assert len(cache.table("a")) == blocks


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("loop[reserve=exact]", "reserve=exact is a length of regions.*add allocator=contiguous"),
        ("loop[allocator=paged,reserve=max]", "allocator=paged has none"),
        ("loop[allocator=contiguous,prefix_caching=true]", "prefix_caching=true shares blocks"),
        ("loop[allocator=buddy]", "expected one of paged, contiguous"),
        ("loop[allocator=contiguous,reserve=half]", "expected one of max, pow2, exact, auto"),
    ],
)
def test_settings_that_cannot_work_together_are_refused_with_what_to_do(text, words):
    with pytest.raises(CbbenchError, match=words):
        settings_of(text)


def test_a_pool_without_room_for_one_context_is_refused_when_it_is_built():
    with pytest.raises(CbbenchError, match="give more kv_memory, a shorter --max-model-len"):
        make_cache(settings_of("loop[allocator=contiguous]"), 8, max_model_len=129)
