"""From checked bodies to requests: whose they are."""

from __future__ import annotations

import pytest

from engines.api import EngineInfo
from engines.loop.policies.orders import Fair
from engines.loop.sequence import Sequence
from harness.server.bodies import LONGEST_USER, CompletionBody
from harness.server.jobs import JobReader


def requests_of(**fields):
    body = CompletionBody.model_validate({"prompt": [[1, 2], [3]], "max_tokens": 2, **fields})
    info = EngineInfo("echo", {}, 64, 4)
    return JobReader(None, info, lambda bits: 7).completion(body).requests


def test_a_user_is_a_client_of_the_scheduler():
    groups = [
        {Fair("client").group(Sequence(request, 64, 0)) for request in requests_of(**fields)}
        for fields in ({"user": "ann"}, {"user": "bob"}, {"user": ""}, {"user": None}, {})
    ]
    assert groups == [{"ann"}, {"bob"}, {""}, {""}, {""}]


def test_a_users_name_is_bounded():
    assert requests_of(user="x" * LONGEST_USER)
    with pytest.raises(ValueError, match="user"):
        requests_of(user="x" * (LONGEST_USER + 1))
