"""Questions to the person behind a client, before a call loses something (MCP's elicitation).

A client that speaks 2026-07-28 gets the question as the answer to its call, and calls again with
what the person said; an older one is asked while its call waits. Either way the call is run anew
with the answer, and finds out by itself whether that is still about the same (`Client.confirm`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types.version import is_version_at_least
from pydantic import ValidationError

from mcpvectordb_server.apps import shows
from mcpvectordb_server.grant import Client, NotAgreed, Unconfirmed
from mcpvectordb_server.replies import MAX_ECHO, Reply, cut

ANSWER_SECONDS = 300.0
"""How long a person may think; what is answered later does nothing."""

# To accept is to agree: a form without fields is two buttons in every host.
_FORM: dict[str, Any] = {"type": "object", "properties": {}}
_NAME = "confirm"
_REFUSALS = {"decline": "the user was asked and said no", "cancel": "the user closed the question"}


def sealing(name: str) -> RequestStateBoundary:
    """A middleware that lets clients carry what was asked, but neither read nor change it.

    It is sealed for longer than a person may think, so that a late answer is answered.
    """
    security = RequestStateSecurity.ephemeral(ttl=12 * ANSWER_SECONDS)
    return RequestStateBoundary(security, default_audience=name)


async def asking(
    ctx: ServerRequestContext[Any, Any],
    params: types.CallToolRequestParams,
    work: Callable[[Client], Awaitable[Reply]],
    seconds: float,
) -> Reply | types.InputRequiredResult:
    """The reply of a call, or the question that comes first; raises NotAgreed.

    With no `seconds` to answer in nobody is asked.
    """
    carried = is_version_at_least(ctx.protocol_version, "2026-07-28")
    asked = carried and params.request_state is not None
    client = Client(asks=seconds > 0 and (asked or _asks(ctx, carried)), shows=shows(ctx))
    if asked:
        client = replace(client, agreed=_carried(params))
    while True:
        try:
            return await work(client)
        except Unconfirmed as asked:
            question, about = asked.question, asked.about
        form = types.ElicitRequestFormParams(message=question, requested_schema=_FORM)
        if carried:
            return types.InputRequiredResult(
                input_requests={_NAME: types.ElicitRequest(params=form)},
                request_state=json.dumps({"about": about, "until": time.time() + seconds}),
            )
        with anyio.move_on_after(seconds) as limit:
            _check(await _answer(ctx, form))
        if limit.cancelled_caught:
            raise _late()
        client = replace(client, agreed=about)


def _asks(ctx: ServerRequestContext[Any, Any], carried: bool) -> bool:
    """Whether a client puts forms to its person; one that names no kind of question means forms."""
    able = ctx.session.client_capabilities
    kinds = able.elicitation if able else None
    forms = kinds is not None and (kinds.form is not None or kinds.url is None)
    return forms and (carried or ctx.session.can_send_request)


def _carried(params: types.CallToolRequestParams) -> str:
    """What the person agreed to, by what the client sends along; "" if it was not asked yet."""
    answer = (params.input_responses or {}).get(_NAME)
    if answer is None:
        return ""
    state = json.loads(params.request_state or "")
    if time.time() > state["until"]:
        raise _late()
    _check(answer)
    return str(state["about"])


async def _answer(
    ctx: ServerRequestContext[Any, Any], form: types.ElicitRequestFormParams
) -> types.ElicitResult | None:
    """The answer of an older client; None for what is no answer."""
    try:
        return await ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id)
    except ValidationError:
        return None
    except MCPError as error:
        told = cut(error.message, MAX_ECHO)
        raise NotAgreed(f"the user could not be asked, says the client: {told}") from None


def _check(answer: object) -> None:
    """Raise NotAgreed unless this is a yes, and nothing but that."""
    if not isinstance(answer, types.ElicitResult) or (answer.action == "accept" and answer.content):
        raise NotAgreed("the client's answer to the question is none that it allows")
    if answer.action != "accept":
        raise NotAgreed(_REFUSALS[answer.action])


def _late() -> NotAgreed:
    return NotAgreed("nobody answered the question in time")
