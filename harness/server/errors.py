"""Errors as OpenAI's API shapes them: `{"error": {message, type, param, code}}` and a status."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from harness.show.text import one_line

_RETRY_AFTER_S: Final = 1
_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
TOO_LONG: Final = "context_length_exceeded"


class ApiError(HTTPException):
    """What a handler raises instead of an answer; the app turns it into a response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.param = param
        self.code = code


def too_long(message: str) -> ApiError:
    """A prompt and answer that can never run here."""
    return ApiError(400, message, param="prompt", code=TOO_LONG)


def overloaded(message: str) -> ApiError:
    return _come_back(429, message, "queue_full")


def unavailable(message: str) -> ApiError:
    return _come_back(503, message, "unavailable")


def _come_back(status: int, message: str, code: str) -> ApiError:
    return ApiError(status, message, code=code, headers={"Retry-After": str(_RETRY_AFTER_S)})


def error_body(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error")
    error = {"message": one_line(message), "type": kind, "param": param, "code": code}
    return {"error": error}


def error_response(error: HTTPException) -> Response:
    """ASCII, since a message may quote half a surrogate pair that a client sent."""
    param, code = getattr(error, "param", None), getattr(error, "code", None)
    body = json.dumps(error_body(error.status_code, str(error.detail), param, code))
    headers = dict(error.headers or {})
    return Response(body, error.status_code, headers, "application/json")


async def on_http_error(request: Request, error: Exception) -> Response:
    """For `HTTPException`, ours and the framework's (404, 405)."""
    assert isinstance(error, HTTPException)
    return error_response(error)


async def on_bad_request(request: Request, error: Exception) -> Response:
    """For a body that does not fit: the first thing that is wrong, by its field."""
    assert isinstance(error, RequestValidationError)
    return error_response(_first_fault(error.errors()))


async def on_defect(request: Request, error: Exception) -> Response:
    """For anything else: a defect of ours, whose traceback the log has."""
    return error_response(ApiError(500, "the server has failed on this request; its log says why"))


def _first_fault(faults: Sequence[Mapping[str, Any]]) -> ApiError:
    fault = faults[0]
    place = [str(part) for part in fault["loc"] if part != "body"]
    name = ".".join(place) or None
    if fault["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON: {fault['ctx']['error']}", code="invalid_json")
    if fault["type"] == "extra_forbidden":
        message = f"unknown field {name!r}; it is not supported here, leave it out"
        return ApiError(400, message, param=name, code="unknown_field")
    where = f"{name}: " if name else "the body: "
    return ApiError(400, f"{where}{fault['msg']}", param=name, code="invalid_value")
