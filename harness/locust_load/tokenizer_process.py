"""The child process that holds a tokenizer: one question on stdin, one answer on stdout, in JSON.

    {"model": NAME, "describe": true}                the vocabulary and the context
    {"model": NAME, "encode": [text], "chat": bool}  token ids
    {"model": NAME, "decode": [[id]]}                texts

Apart from locust's process, which gevent has patched: the tokenizer's library loads torch.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from engines.api import CbbenchError


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Raises `CbbenchError` when the model or its tokenizer cannot be read."""
    from engines.models.text import encode_prompts, load_tokenizer

    model = question["model"]
    if "encode" in question:
        return {"token_ids": encode_prompts(model, question["encode"], chat=question["chat"])}
    if "decode" in question:
        tokenizer = load_tokenizer(model)
        return {"texts": [tokenizer.decode(ids) for ids in question["decode"]]}
    return _describe(model)


def _describe(model: str) -> dict[str, Any]:
    """Of a tokenizer alone: a model may have more rows in its embedding than ids that mean text."""
    from engines.models.text import load_tokenizer

    tokenizer = load_tokenizer(model)
    longest = tokenizer.model_max_length
    return {
        "vocab_size": len(tokenizer),
        "max_model_len": longest if longest < 2**31 else None,
        "special_token_ids": sorted(set(tokenizer.all_special_ids)),
    }


def main() -> None:
    question = json.load(sys.stdin)
    try:
        found = answer(question)
    except CbbenchError as error:
        found = {"error": str(error)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
