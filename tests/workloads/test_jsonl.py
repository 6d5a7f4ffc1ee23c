from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engines.api import CbbenchError
from workloads.jsonl import TextPrompt, read_prompts

WriteFile = Callable[[str, str], Path]


def test_lines_become_prompts_in_order(write: WriteFile) -> None:
    text = '{"prompt": "Hi \\u2028 there"}\r\n\n{"prompt": "caf\u2028e", "max_tokens": 3}'
    assert read_prompts(write("p.jsonl", text)) == (
        TextPrompt(1, "Hi \u2028 there", None),
        TextPrompt(3, "caf\u2028e", 3),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ('"Hello"', "got str; expected an object"),
        ("{}", '"prompt" is None; expected a text'),
        ('{"prompt": ""}', "\"prompt\" is ''; expected a text"),
        ('{"prompt": 5}', '"prompt" is 5; expected a text'),
        ('{"prompt": "a", "max_tokens": 0}', '"max_tokens" is 0; expected a whole number >= 1'),
        ('{"prompt": "a", "max_tokens": 1.5}', '"max_tokens" is 1.5; expected a whole'),
        ('{"prompt": "a", "max_tokens": true}', '"max_tokens" is True; expected a whole'),
        ('{"prompt": "a", "max_token": 1}', "unknown key 'max_token'; did you mean 'max_tokens'"),
    ],
)
def test_bad_line_is_refused_with_its_number(write: WriteFile, line: str, message: str) -> None:
    path = write("p.jsonl", '{"prompt": "fine"}\n' + line)
    with pytest.raises(CbbenchError, match=rf"p\.jsonl, line 2: {message}"):
        read_prompts(path)


def test_empty_and_missing_files_are_refused(write: WriteFile, tmp_path: Path) -> None:
    with pytest.raises(CbbenchError, match="is empty"):
        read_prompts(write("p.jsonl", "\n"))
    with pytest.raises(CbbenchError, match="cannot be read"):
        read_prompts(tmp_path / "gone.jsonl")
