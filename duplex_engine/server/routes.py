"""The HTTP side of the one port: health, models, figures, and who may become a WebSocket (wire contract 1.1 to 1.5).

Owns the table of paths and the answers. Never reads or writes a stream: requests come in as values, answers go out as
values.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from duplex_engine import __version__
from duplex_engine.protocol.codec import encode_json
from duplex_engine.protocol.handshake import REALTIME_PATHS, credentials, is_authorised
from duplex_engine.server import page
from duplex_engine.server.http1 import Request
from duplex_engine.server.metrics import CONTENT_TYPE
from duplex_engine.server.reception import Reception

GUARDED: Final = "/v1"
"""Everything below this path needs the key, where there is one."""
JSON: Final = "application/json"


@attrs.frozen
class Answer:
    """A whole HTTP answer."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Sequence[tuple[bytes, bytes]] = ()


def answer(reception: Reception, request: Request) -> Answer:
    """The answer to a plain request."""
    if not is_admitted(reception, request):
        return UNAUTHORIZED
    route = ROUTES.get(request.path)
    if route is None:
        return _not_found(request)
    if request.method not in ("GET", "HEAD"):
        return _json(405, {"error": "Method Not Allowed"}, (b"allow", b"GET, HEAD"))
    return route(reception)


def refuse_upgrade(reception: Reception, request: Request) -> Answer | None:
    """Why this request may not become a WebSocket; None when it may."""
    if not is_admitted(reception, request):
        return UNAUTHORIZED
    if request.path not in REALTIME_PATHS:
        return _not_found(request)
    reason = reception.why_not_ready
    if reason is not None:
        return _json(503, {"error": "Service Unavailable", "reason": reason}, (b"retry-after", b"1"))
    return None


def is_admitted(reception: Reception, request: Request) -> bool:
    """Whether the request needs no key, or has it in one of the three places."""
    key = reception.config.api_key
    below = request.path == GUARDED or request.path.startswith(f"{GUARDED}/")
    if key is None or not below:
        return True
    return is_authorised(key, credentials(request.header("authorization"), request.query, request.subprotocols))


def _json(status: int, value: Mapping[str, object], *headers: tuple[bytes, bytes]) -> Answer:
    return Answer(status, encode_json(value), JSON, headers)


UNAUTHORIZED: Final = _json(401, {"error": "Unauthorized"}, (b"www-authenticate", b"Bearer"))


def _not_found(request: Request) -> Answer:
    return _json(404, {"error": "Not Found", "path": request.path})


# --- pages -------------------------------------------------------------------------------------------------------


def _health(reception: Reception) -> Answer:
    """Alive: from the first readiness on, whatever a worker is doing right now."""
    reason = reception.why_not_ready
    if reception.warm or reason is None:
        return _json(200, {"status": "healthy"})
    return _json(503, {"status": "unhealthy", "reason": reason})


def _ready(reception: Reception) -> Answer:
    """Whether a session could be opened now, seats aside."""
    now = reception.engine.snapshot()
    workers = {name: {"ready": worker.ready, "free_slots": worker.free_slots} for name, worker in now.workers.items()}
    reason = reception.why_not_ready
    if reason is None:
        return _json(200, {"status": "ready", "workers": workers})
    return _json(503, {"status": "not ready", "reason": reason, "workers": workers})


def _models(reception: Reception) -> Answer:
    engine = reception.engine
    served = {
        "id": engine.model_name,
        "object": "model",
        "created": reception.opened_at,
        "owned_by": "duplex-engine",
        "root": engine.plugin.name,
        "parent": None,
        "max_model_len": None,
        "permission": [],
    }
    return _json(
        200, {"object": "list", "data": [served], "models": [dict(model) for model in engine.plugin.describe()]}
    )


def _version(reception: Reception) -> Answer:
    return _json(200, {"version": __version__})


def _metrics(reception: Reception) -> Answer:
    return Answer(200, reception.metrics.exposition(reception.engine), CONTENT_TYPE)


def _page(reception: Reception) -> Answer:
    return Answer(200, page.HTML, page.CONTENT_TYPE, page.HEADERS)


def _upgrade_required(reception: Reception) -> Answer:
    return _json(426, {"error": "Upgrade Required", "reason": "speak WebSocket here"}, (b"upgrade", b"websocket"))


ROUTES: Final[Mapping[str, Callable[[Reception], Answer]]] = {
    "/": _page,
    "/health": _health,
    "/ready": _ready,
    "/version": _version,
    "/metrics": _metrics,
    "/v1/models": _models,
    **dict.fromkeys(REALTIME_PATHS, _upgrade_required),
}
