"""A text's tokens as they are counted where the server tells no count."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from engines.models.text_data import TextData
from harness.locust_load.tokens import Texts


@pytest.fixture
def texts():
    """A tokenizer of words that puts `<s>` before each text and `</s>` behind it."""
    words = {"<s>": 0, "</s>": 1, "[UNK]": 2, "one": 3, "two": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    data = TextData(tokenizer.to_str(), None, {})
    return Texts("words", lambda model: data)


def test_an_answer_is_counted_without_what_only_a_prompt_gets(texts):
    assert texts.encode(["one two"], chat=False) == [[0, 3, 4, 1]]
    count = texts.counter()
    assert [count("one two two"), count("one"), count("")] == [3, 1, 0]
