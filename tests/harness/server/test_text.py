"""Chat templates and what they may do."""

from __future__ import annotations

import json

import pytest

from engines.api import CbbenchError
from engines.models.text_data import TextData, text_data
from harness.server.text import ChatTemplateRefused, ModelText

TINY = text_data("tiny")
HELLO = [{"role": "user", "content": "hi <b> & 'é'"}]


def prompt(template, messages=HELLO, **specials):
    text = ModelText(TextData(TINY.tokenizer, template, specials))
    ids = text.encode_chat(messages)
    detokenizer = text.detokenizer(skip_special_tokens=False)
    return "".join([*map(detokenizer.feed, ids), detokenizer.flush()])


def test_a_model_without_a_template_gets_the_documented_one():
    assert prompt(None) == "user: hi <b> & 'é'\nassistant:"


def test_a_template_may_use_what_published_ones_do():
    template = (
        "{{ bos_token }}{% for m in messages %}\n"
        "    {% if loop.last %}{{ m | tojson }}{% endif %}\n"
        "{% endfor %}{{ '!' if add_generation_prompt }}{{ strftime_now('%%') }}"
    )
    assert (
        prompt(template, bos_token="<|bos|>")
        == f"<|bos|>{json.dumps(HELLO[0], ensure_ascii=False)}!%"
    )


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no system message') }}",
        "{{ messages[0].content + 1 }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
    ],
)
def test_a_template_that_refuses_or_reaches_out_is_a_refusal(template):
    with pytest.raises(ChatTemplateRefused):
        prompt(template)


def test_a_template_that_is_none_is_a_mistake():
    with pytest.raises(CbbenchError, match="chat template cannot be read"):
        prompt("{% for %}")


def test_the_models_own_template_writes_its_own_special_tokens():
    assert prompt(TINY.chat_template) == "<|user|>hi <b> & 'é'<|end|><|assistant|>"
