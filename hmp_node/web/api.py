"""The routes of the local API. Each hands its request to `Actions.perform` and tells what came of it (DESIGN 8)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import prometheus_client
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from hmp_node.errors import Denied, Deny, Failed, Failure, HmpError, Reject, Rejected
from hmp_node.web import openapi, problems, strict_json
from hmp_node.web.body import read_body
from hmp_node.web.connections import Connection
from hmp_node.web.events import Replay, Streams
from hmp_node.web.guard import ACTOR, LOOPBACK_NAMES, check_host, check_token
from hmp_node.web.keys import read_key
from hmp_node.web.limits import LIMITS, ApiLimits
from hmp_node.web.mcp import METADATA, PATH, Mcp, Mount, refusal

if TYPE_CHECKING:
    from hmp_node.actions.actors import Actor
    from hmp_node.actions.feed import Feed
    from hmp_node.actions.perform import Actions
    from hmp_node.actions.registry import Action

OPEN = frozenset({"/healthz", METADATA})  # tell no secrets, and need no token

logger = logging.getLogger(__name__)


def build_app(
    actions: Actions,
    feed: Feed,
    *,
    registry: Mapping[str, Action],
    tokens: Callable[[str], Actor | None],
    replay: Replay,
    health: Callable[[], Mapping[str, Any]],
    metrics: prometheus_client.CollectorRegistry,
    version: str,
    mcp: Mount,
    hosts: Collection[str] = LOOPBACK_NAMES,
    limits: ApiLimits = ApiLimits(),  # noqa: B008 frozen
    probe: Callable[[str], None] = lambda _: None,
) -> web.Application:
    """The application of the local API, ready for `web.server.start`.

    ``tokens`` gives the actor of a bearer token, in constant time. ``mcp`` opens what answers at ``/mcp``. ``health``
    gives a mapping with ``ok``: true while the node accepts work. ``probe`` is told the named point
    ``api.before_answer``: an effect is committed, its answer not yet sent.
    """
    api = _Api(
        actions=actions,
        registry=registry,
        health=health,
        metrics=metrics,
        version=version,
        limits=limits,
        probe=probe,
    )
    streams, assistants = Streams(feed, replay, limits), Mcp(mcp, limits)
    app = web.Application(
        middlewares=[_guard(tokens, frozenset(name.lower() for name in hosts), limits)],
        client_max_size=limits.body_bytes,
    )
    app[LIMITS] = limits
    app.on_response_prepare.append(_harden)
    app.on_shutdown.extend([streams.close, assistants.close])
    app.add_routes(
        [
            web.post("/api/v1/actions/{name}", api.perform),
            web.get("/api/v1/actions", api.table),
            web.get("/api/v1/events", _for_user(streams.serve), allow_head=False),
            web.get("/api/v1/openapi.json", api.openapi),
            web.post(PATH, assistants.serve),
            web.get(METADATA, assistants.metadata),
            web.get("/metrics", api.metrics),
            web.get("/healthz", api.healthz),
        ]
    )
    return app


class _Api:
    """The handlers of plain requests."""

    def __init__(
        self,
        *,
        actions: Actions,
        registry: Mapping[str, Action],
        health: Callable[[], Mapping[str, Any]],
        metrics: prometheus_client.CollectorRegistry,
        version: str,
        limits: ApiLimits,
        probe: Callable[[str], None],
    ) -> None:
        self._actions, self._registry, self._health, self._metrics = actions, registry, health, metrics
        self._version, self._limits, self._probe = version, limits, probe

    async def perform(self, request: web.Request) -> web.Response:
        """``POST /api/v1/actions/NAME``: the body is the arguments, the answer the result."""
        args = await self._arguments(request)
        given = request.headers.get("Idempotency-Key")
        key = None if given is None else read_key(given)
        result = await self._actions.perform(request[ACTOR], request.match_info["name"], args, key=key)
        answer = _json(result)
        self._probe("api.before_answer")
        return answer

    async def _arguments(self, request: web.Request) -> dict[str, Any]:
        body = await read_body(request, self._limits)
        args = strict_json.decode(body, max_depth=self._limits.body_depth) if body else {}
        if not isinstance(args, dict):
            raise Rejected(Reject.BAD_ARGUMENT, "The body must be a JSON object: the arguments by name")
        return args

    async def table(self, request: web.Request) -> web.Response:
        """``GET /api/v1/actions``: what this actor can ask for."""
        return _json({"actions": openapi.table(openapi.visible(self._registry, request[ACTOR].kind))})

    async def openapi(self, request: web.Request) -> web.Response:
        """``GET /api/v1/openapi.json``: the same as an OpenAPI document."""
        return _json(openapi.document(openapi.visible(self._registry, request[ACTOR].kind), self._version))

    async def metrics(self, _: web.Request) -> web.Response:
        """``GET /metrics`` in Prometheus' text format."""
        body = prometheus_client.generate_latest(self._metrics)
        return web.Response(body=body, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})

    async def healthz(self, _: web.Request) -> web.Response:
        """``GET /healthz``: 200 while the node accepts work, else 503; no token, so no secrets in ``health``."""
        facts = dict(self._health()) | {"version": self._version}
        return _json(facts, status=200 if facts.get("ok") else 503)


def _guard(tokens: Callable[[str], Actor | None], hosts: frozenset[str], limits: ApiLimits) -> Middleware:
    """Check whom a request comes from, bound how many run, and turn every error into a typed answer."""
    running = 0

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal running
        running += 1
        try:
            check_host(request, hosts)
            if request.path not in OPEN:
                request[ACTOR] = check_token(request, tokens)
                if isinstance(request.protocol, Connection):
                    request.protocol.proven()
            if running > limits.requests + limits.streams:
                raise Failed(Failure.BUSY, "Too many requests at once", remedy="try again")
            return await handler(request)
        except HmpError as error:
            return refusal(request, error) if request.path == PATH else problems.answer(error)
        except web.HTTPException as error:
            return problems.plain(error)
        except Exception:  # the last line: one broken request, never a broken node
            logger.exception("%s %s failed", request.method, request.path)
            told = Failed(Failure.INTERNAL, "The node failed at this", remedy="see logs/node.log")
            return refusal(request, told) if request.path == PATH else problems.answer(told)
        finally:
            running -= 1

    return guard


def _for_user(handler: Handler) -> Handler:
    """Only the user's own token: events tell of quarantined notes too, which no model may be shown."""

    async def checked(request: web.Request) -> web.StreamResponse:
        if request[ACTOR].kind != "user":
            raise Denied(Deny.NO_CAPABILITY, "Only the user may follow the events")
        return await handler(request)

    return checked


async def _harden(_: web.Request, response: web.StreamResponse) -> None:
    problems.harden(response)


def _json(value: Any, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")
