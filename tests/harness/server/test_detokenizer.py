"""Text from token ids: pieces joined are the whole, and nothing half is told."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE

from engines.models.tiny_tokenizer import tiny_backend
from harness.server.detokenizer import Detokenizer

TOKENIZER = tiny_backend()
BYTES = st.lists(st.integers(8, 263), max_size=60)  # the 256 single bytes
IDS = st.lists(st.integers(0, 4095), max_size=60)
CHARACTERS = st.text(st.sampled_from("aé🔥ď語\ufffd b"), max_size=20)


def decode(ids):
    return TOKENIZER.decode(ids, skip_special_tokens=False)


def pieces_of(ids, decode=decode, skipped=frozenset()):
    detokenizer = Detokenizer(decode, skipped)
    return [*(detokenizer.feed(i) for i in ids), detokenizer.flush()]


@settings(max_examples=300, deadline=None)
@given(st.one_of(BYTES, IDS, CHARACTERS.map(lambda text: TOKENIZER.encode(text).ids)))
def test_pieces_joined_are_the_text_of_all_ids(ids):
    assert "".join(pieces_of(ids)) == decode(ids)


@settings(max_examples=200, deadline=None)
@given(CHARACTERS.filter(lambda text: "\ufffd" not in text))
def test_no_half_character_is_told(text):
    assert all("\ufffd" not in piece for piece in pieces_of(TOKENIZER.encode(text).ids))


def test_each_character_comes_with_its_last_byte():
    fire = TOKENIZER.encode("a🔥b").ids
    assert pieces_of(fire) == ["a", "", "", "", "🔥", "b", ""]


def test_what_is_held_at_the_end_is_flushed():
    assert pieces_of(TOKENIZER.encode("a🔥").ids[:3]) == ["a", "", "", "\ufffd"]


def test_special_tokens_are_skipped_only_if_asked():
    ids = TOKENIZER.encode("a<|end|>b").ids
    assert "".join(pieces_of(ids)) == "a<|end|>b"
    assert "".join(pieces_of(ids, skipped=frozenset(range(8)))) == "ab"


def test_bytes_that_are_no_text_do_not_pile_up():
    seen = []

    def spying(ids):
        seen.append(len(ids))
        return decode(ids)

    ids = [TOKENIZER.token_to_id(name) for name in TOKENIZER.get_vocab() if len(name) == 1]
    broken = [i for i in ids if decode([i]) == "\ufffd"] * 5
    assert len(broken) > 300
    assert "".join(pieces_of(broken, spying)) == decode(broken)
    assert max(seen[:-1]) < 24


def test_spaces_between_words_survive_a_decoder_that_strips_the_first():
    tokenizer = Tokenizer(BPE({"▁a": 0, "▁b": 1, "c": 2}, []))
    tokenizer.decoder = decoders.Metaspace()
    ids = [0, 1, 2, 1, 0]
    assert tokenizer.decode(ids) == "a bc b a"
    assert pieces_of(ids, tokenizer.decode) == ["a", " b", "c", " b", " a", ""]


def test_byte_fallback_tokens_make_one_character():
    vocabulary = {"<0xC3>": 0, "<0xA9>": 1, "<0xF0>": 2, "<0x9F>": 3, "<0x94>": 4, "<0xA5>": 5}
    tokenizer = Tokenizer(BPE(vocabulary | {"x": 6}, []))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    ids = [6, 0, 1, 2, 3, 4, 5, 6]
    assert tokenizer.decode(ids) == "xé🔥x"
    assert pieces_of(ids, tokenizer.decode) == ["x", "", "é", "", "", "", "🔥", "x", ""]
