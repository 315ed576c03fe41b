"""What stands before every page: only reading, only known hosts, a token beyond this machine, and strict headers."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "archloom-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Return whether an address is only reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def list_hosts(host: str) -> frozenset[str] | None:
    """Return the names that a browser may use for this server; None: any address, as the server listens on all."""
    own = {"localhost", "127.0.0.1", "::1", host}
    if host in ("0.0.0.0", "::"):
        return None
    return frozenset(own)


@dataclass(frozen=True)
class Guard:
    """An ASGI application that lets good requests through to another one."""

    app: ASGIApp
    hosts: frozenset[str] | None  # None: addresses and the names of this machine
    token: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return
        refusal = self._refuse(scope)
        await (refusal or self.app)(scope, receive, _with_headers(send))

    def _refuse(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("pages are for reading only\n", 405, {"Allow": "GET, HEAD"})
        if not self._knows(headers.get("host", "")):
            return PlainTextResponse("unknown host\n", 421)
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return PlainTextResponse("requests of other sites are refused\n", 403)
        return None if self.token is None else self._ask_for_token(scope, headers, self.token)

    def _knows(self, header: str) -> bool:
        """Return whether the Host header is ours: a name that leads here from elsewhere is an attack by DNS."""
        name = urlsplit(f"//{header}").hostname if header else None
        if name is None:
            return False
        if self.hosts is not None:
            return name in self.hosts
        return name in ("localhost", socket.gethostname().lower(), socket.getfqdn().lower()) or _is_address(name)

    def _ask_for_token(self, scope: Scope, headers: Headers, token: str) -> ASGIApp | None:
        query = parse_qsl(scope["query_string"].decode("latin-1"))
        given = dict(query).get("token")
        if given is not None and hmac.compare_digest(given.encode(), token.encode()):
            others = [pair for pair in query if pair[0] != "token"]
            rest = f"?{urlencode(others)}" if others else ""
            answer = RedirectResponse(scope["path"] + rest, status_code=303)  # the token leaves the address bar
            answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
            return answer
        if hmac.compare_digest(_read_cookie(headers).encode(), token.encode()):
            return None
        return PlainTextResponse("open the address that `archloom serve` printed: it has the token\n", 401)


def _read_cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
