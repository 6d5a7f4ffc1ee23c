"""The HTTP routes. They check, hand over and shape; the work is the service's."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from harness.server.bodies import ChatBody, CompletionBody, GenerationBody
from harness.server.errors import (
    on_bad_request,
    on_defect,
    on_http_error,
)
from harness.server.guards import Guards
from harness.server.jobs import Job, JobReader
from harness.server.metrics import CONTENT_TYPE
from harness.server.service import Service

_LONG_BODY: Final = 20_000  # characters of prompt that are tokenised beside the event loop
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"description": "A field or a prompt that cannot be served"},
    401: {"description": "Missing or wrong API key"},
    404: {"description": "Unknown model"},
    413: {"description": "Body too large"},
    429: {"description": "The queue is full; see Retry-After"},
    500: {"description": "The engine failed on this request"},
    503: {"description": "Loading, shutting down, or without an engine; see Retry-After"},
}


def make_app(service: Service, api_key: str | None) -> ASGIApp:
    """The whole server as one ASGI application."""
    app = FastAPI(
        title="cbbench",
        docs_url=None,
        redoc_url=None,
        exception_handlers={
            HTTPException: on_http_error,
            RequestValidationError: on_bad_request,
            Exception: on_defect,
        },
    )
    _add_watching(app, service)
    _add_models(app, service)
    _add_completions(app, service)
    _forget_422(app)
    return Guards(
        app,
        api_key=api_key,
        limits=service.limits.body,
        count=service.metrics.answered,
    )


def _add_watching(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """200 while the engine stands, also while it drains: what load tools wait for."""
        service.check_health()
        return {"status": service.phase}

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        """200 while requests are taken."""
        service.check_phase()
        return {"status": "ready"}

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Prometheus text format."""
        return Response(service.metrics.exposition(), headers={"content-type": CONTENT_TYPE})


def _add_models(app: FastAPI, service: Service) -> None:
    def described() -> dict[str, Any]:
        service.check_health()  # who waits for a server often asks here
        assert service.standing is not None
        return {
            "id": service.model_name,
            "object": "model",
            "created": service.started_s,
            "owned_by": "cbbench",
            "max_model_len": service.standing.info.max_model_len,
        }

    @app.get("/v1/models", responses={503: _ERRORS[503]})
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [described()]}

    @app.get("/v1/models/{model:path}", responses={404: _ERRORS[404], 503: _ERRORS[503]})
    async def model(model: str) -> dict[str, Any]:
        service.check_model(model)
        return described()


def _add_completions(app: FastAPI, service: Service) -> None:
    @app.post("/v1/completions", responses=_ERRORS)
    async def completions(body: CompletionBody) -> Response:
        return await _answer(service, body)

    @app.post("/v1/chat/completions", responses=_ERRORS)
    async def chat_completions(body: ChatBody) -> Response:
        return await _answer(service, body)


async def _answer(service: Service, body: CompletionBody | ChatBody) -> Response:
    standing = service.check_phase()
    service.check_model(body.model)
    if _characters(body) > _LONG_BODY:
        with service.reading():
            job = await asyncio.to_thread(_read, standing.reader, body)
        service.check_phase()
    else:
        job = _read(standing.reader, body)
    return service.answer(job, standing)


def _read(reader: JobReader, body: GenerationBody) -> Job:
    if isinstance(body, ChatBody):
        return reader.chat(body)
    assert isinstance(body, CompletionBody)
    return reader.completion(body)


def _characters(body: CompletionBody | ChatBody) -> int:
    if isinstance(body, ChatBody):
        return sum(len(message.text) for message in body.messages)
    return sum(len(prompt) for prompt in body.prompt if isinstance(prompt, str))


def _forget_422(app: FastAPI) -> None:
    """The framework documents its own answer to a bad body; ours is a 400."""
    schema = app.openapi()
    for path in schema["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
