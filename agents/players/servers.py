"""Registry of endpoint servers, each with its own spend and rate limits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping

from agents.errors import EndpointError
from agents.players.endpoint import Endpoint
from agents.players.spend import EndpointSpec
from agents.reply import to_one_line
from games.names import nearest


def parse_endpoint(spec: str) -> tuple[str, str]:
    """Return (server, model) of `endpoint@SERVER:MODEL`, or ("", model) of `endpoint:MODEL`.

    Raises EndpointError for any other text.
    """
    match = re.fullmatch(r"endpoint(?:@(?P<server>[a-z0-9][a-z0-9_-]{0,63}))?:(?P<model>.+)", spec)
    if match is None or match["model"] != to_one_line(match["model"], 200):
        raise EndpointError("write endpoint:MODEL, such as endpoint:gpt-4o-mini, or endpoint@SERVER:MODEL")
    return match["server"] or "", match["model"]


class Endpoints:
    """Endpoint servers of a run or command by name, created when first used.

    `specs` holds their settings: "" is the experiment's setting `endpoint`, the others are in its `endpoints`.
    """

    def __init__(self, specs: Mapping[str, EndpointSpec] | None = None) -> None:
        self._specs = {"": EndpointSpec()} | dict(specs or {})
        self._endpoints: dict[str, Endpoint] = {}

    def at(self, spec: str) -> Endpoint:
        """Return the server of an endpoint spec, created once for all its models. Raises EndpointError on failure."""
        name, _ = parse_endpoint(spec)
        if name not in self._specs:
            known = [server for server in self._specs if server]
            hint = nearest(name, known) or (f" (there are: {', '.join(known)})" if known else " (there is none)")
            raise EndpointError(
                f"unknown server '{to_one_line(name, 80)}' in {to_one_line(spec, 80)}{hint}: name its url"
            )
        if name not in self._endpoints:
            self._endpoints[name] = Endpoint(self._specs[name], f"endpoint@{name}" if name else "endpoint")
        return self._endpoints[name]

    async def check(self, specs: Iterable[str]) -> list[str]:
        """Ask each server of these specs for its models. Returns warnings and raises errors like `Endpoint.check`."""
        models: dict[Endpoint, list[str]] = {}
        for spec in specs:
            models.setdefault(self.at(spec), []).append(parse_endpoint(spec)[1])
        warnings = await asyncio.gather(*(server.check(names) for server, names in models.items()))
        return [line for lines in warnings for line in lines]

    def status(self) -> str:
        """Return the numbers of answered requests and requests in flight as text; "" if no server has been used."""
        endpoints = self._endpoints.values()
        if not endpoints:
            return ""
        replies, waiting = sum(server.replies for server in endpoints), sum(server.waiting for server in endpoints)
        return f"{replies} replies, {waiting} requests under way"
