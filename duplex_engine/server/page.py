"""The web page at `/`: one file, and a policy by which it runs what is in it, talks to this server, and does nothing else.

Owns the headers. What the page does is in `page.html`.
"""

import base64
import hashlib
import re
from importlib.resources import files
from typing import Final

HTML: Final = files("duplex_engine.server").joinpath("page.html").read_bytes()
CONTENT_TYPE: Final = "text/html; charset=utf-8"


def _only(element: str) -> str:
    """A policy's word for the text of the page's only such element, and for nothing else."""
    found = re.search(f"<{element}>(.*?)</{element}>".encode(), HTML, re.DOTALL)
    assert found is not None
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1]).digest()).decode()}'"


POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        f"script-src {_only('script')} blob:",  # blob: the program of the audio thread
        "worker-src blob:",
        f"style-src {_only('style')}",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"permissions-policy", b"microphone=(self)"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-cache"),
)
