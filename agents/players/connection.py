"""HTTP client for endpoints: bounded bodies, no redirects, and the environment's proxies except for this machine."""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from agents.errors import EndpointError
from agents.players.completions import UnusableReply

BODY_BYTES = 1_000_000
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def is_loopback(host: str) -> bool:
    """Return True if a host name or address denotes this machine: a loopback address or localhost."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".").rpartition(".")[2] == "localhost"


def _is_local(url: str) -> bool:
    """Return True if a URL's server runs on this machine. The listening address 0.0.0.0 counts, as clients use it."""
    host = urlsplit(url).hostname or ""
    return is_loopback(host) or host in ("0.0.0.0", "::")


def find_proxy_variable(url: str) -> str:
    """Return the name of the environment variable with the proxy for a server's URL; "" for a direct connection."""
    parts = urlsplit(url)
    if _is_local(url) or proxy_bypass(parts.netloc):
        return ""
    return next((name for scheme in (parts.scheme, "all") for name in _find_set_variables(scheme)), "")


def _find_set_variables(*schemes: str) -> list[str]:
    names = [name for scheme in schemes for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper())]
    return [name for name in names if os.environ.get(name)]


def make_http_client(openai: Any, url: str) -> Any:
    """Create the HTTP client for a server's URL, from the module `openai`: no redirects, bounded response bodies.

    A server on this machine is reached directly, because no proxy could reach it. Raises EndpointError if the
    environment's proxy or certificates are invalid.
    """
    import httpx2

    limits = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)  # as in openai's own client
    try:
        direct = (
            httpx2.AsyncHTTPTransport(limits=limits, trust_env=url.startswith("https:")) if _is_local(url) else None
        )
        return openai.DefaultAsyncHttpxClient(
            transport=direct, follow_redirects=False, event_hooks={"response": [_limit_body]}
        )
    except ImportError:
        raise EndpointError(_format_proxy_error("a SOCKS proxy: pip install socksio, or unset it")) from None
    except (ValueError, httpx2.InvalidURL):
        raise EndpointError(_format_proxy_error("not a valid proxy url: correct or unset it")) from None
    except OSError as error:
        variables = " and ".join(name for name in CERTIFICATES if os.environ.get(name)) or "the system"
        raise EndpointError(f"the certificates of {variables} cannot be read: {error.strerror or error}") from None


def _format_proxy_error(kind: str) -> str:
    """Return an error message that names the variables but not their values, which may contain passwords."""
    return f"{' or '.join(_find_set_variables('http', 'https', 'all')) or 'the proxy setting'} is {kind}"


async def _limit_body(response: Any) -> None:
    """Make reading a response raise UnusableReply after `BODY_BYTES`. Raises UnusableReply for a compressed body."""
    import httpx2

    if response.headers.get("content-encoding", "identity") != "identity":
        raise UnusableReply("the reply is compressed, which was not requested")

    class BoundedStream(httpx2.AsyncByteStream):
        """Stream of a response that raises UnusableReply after `BODY_BYTES`."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            remaining = BODY_BYTES
            async for chunk in self.stream:
                remaining -= len(chunk)
                if remaining < 0:
                    raise UnusableReply(f"the reply is longer than {BODY_BYTES:,} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self.stream.aclose()

    response.stream = BoundedStream(response.stream)
    response.encoding = "utf-8"  # as JSON is. Ignore the declared encoding: some of Python's codecs fail on any text


def parse_retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds to wait by a Retry-After header (number or date); 0 if it is missing, past or malformed."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            retry_time = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return 0.0
        seconds = (retry_time.replace(tzinfo=retry_time.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0
