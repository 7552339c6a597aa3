"""Resume tokens: who may take a session over (wire contract 2.2, 2.8).

Owns issuing and checking. A session hands out a new token with every attachment; the one that was presented for it stays
good until its successor is known to have arrived, so that a client whose connection broke just then can try once more.
Keeps digests only, never a token, and knows nothing of sessions or sockets.
"""

import hmac
import secrets
from hashlib import sha256

TOKEN_BYTES = 32


class ResumeTokens:
    """The tokens that open one session now: none at first, later one, and two until the newest has arrived."""

    def __init__(self) -> None:
        self._good: tuple[bytes, ...] = ()

    def issue(self, presented: str | None = None) -> str:
        """A new token: 32 random bytes as 43 characters of URL-safe base64.

        `presented`: the token it was issued for, which stays good beside it; None: no other stays good.
        """
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._good = (_digest(token),) if presented is None else (_digest(presented), _digest(token))
        return token

    def accept(self, token: str) -> bool:
        """Whether `token` opens the session; takes the same time wherever it differs."""
        digest = _digest(token)
        matches = [hmac.compare_digest(digest, good) for good in self._good]
        return any(matches)

    def arrived(self) -> None:
        """The client has the newest token: no other opens the session any more."""
        self._good = self._good[-1:]


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="replace")).digest()
