"""Whatever the schema allows, and a good deal that it does not, leads to no server error."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.loopback

SEED = 20
EXAMPLES = 30


def test_schemathesis_finds_no_server_error(start, tmp_path):
    server = start("echo[slots=32]", "--max-model-len", "64")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
            *("--checks", "not_a_server_error", "--phases", "coverage,fuzzing", "--no-color"),
            *("--seed", str(SEED), "--max-examples", str(EXAMPLES)),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "7 selected / 7 total" in done.stdout
    assert server.metric("http_responses_total", path="/v1/completions", status="200") > 0
    assert server.get("/health").status_code == 200


def test_the_schema_says_what_a_bad_body_leads_to(echo):
    schema = echo.get("/openapi.json").json()
    for path in ("/v1/completions", "/v1/chat/completions"):
        responses = schema["paths"][path]["post"]["responses"]
        assert {"200", "400", "401", "404", "413", "429", "500", "503"} <= set(responses)
        assert "422" not in responses
    body = schema["components"]["schemas"]["CompletionBody"]
    assert body["additionalProperties"] is False
    assert "prompt" in body["required"]
