"""The resources of surfaces on the MCP SDK: listed, read, completed, and watched for changes.

Clients of 2026-07-28 open a stream (`subscriptions/listen`), older ones subscribe to one resource
after the other. Both are told of what any process changes, because the file is asked.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

import anyio
import anyio.from_thread
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError

from mcpvectordb import InvalidInput, MCPVectorDBError
from mcpvectordb_server.replies import MAX_ECHO, UNTRUSTED, Reply, Text, cut, reply_of
from mcpvectordb_server.surface import InternalError, Position, ResourceTemplate, Surface

log = logging.getLogger("mcpvectordb_server")

# Which tools, prompts and templates there are changes with the options of a server alone; what is
# stored may change at any time.
STABLE = CacheHint(ttl_ms=300_000)
CACHE_HINTS: dict[Any, CacheHint] = dict.fromkeys(
    ("tools/list", "prompts/list", "resources/templates/list"), STABLE
)

MOST_WATCHED = 1_000
"""Resources that are watched at once, for all clients together."""

MOST_STREAMS = 64
"""Streams of changes that are open at once."""

MOST_COMPLETED = 100
"""Values that the protocol allows to complete one."""

LOOK_SECONDS = 0.5
"""Between two looks at the file, as long as anybody watches."""

TOLD_SECONDS = 5.0
"""How long an older client may take to be told of a change; then its subscriptions end."""

Context = ServerRequestContext[Any, Any]
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Resources:
    """The resources of some surfaces; `handlers` are those of the SDK's server."""

    def __init__(self, db: Any, surfaces: Iterable[Surface], in_thread: InThread) -> None:
        self._db, self._in_thread = db, in_thread
        every = tuple(surfaces)
        self._templates = [each for surface in every for each in surface.templates]
        self._listed = next((each.listed for each in every if each.listed), None)
        self.handlers: dict[str, Any] = {}
        if self._templates:
            self.handlers |= {
                "on_list_resources": self._list,
                "on_list_resource_templates": self._list_templates,
                "on_read_resource": self._read,
            }
        if any(each.complete for each in self._templates):
            self.handlers["on_completion"] = self._complete
        if self._listed and any(each.watched for each in self._templates):
            watch = ResourceWatch(db, self._watched, self._guarded)
            self.handlers |= {
                "cache_hints": CACHE_HINTS,
                "on_subscriptions_listen": watch.listen,
                "on_subscribe_resource": watch.subscribe,
                "on_unsubscribe_resource": watch.unsubscribe,
            }

    async def _list(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = params.cursor if params else None
        if self._listed is None:
            return types.ListResourcesResult(resources=[])
        work = partial(self._listed, self._db)
        found, end = await self._guarded(lambda: work(_position(cursor) if cursor else ()))
        resources = [
            types.Resource(
                uri=each.uri,
                name=each.name,
                title=each.title,
                annotations=types.Annotations(last_modified=each.modified),
            )
            for each in found
        ]
        return types.ListResourcesResult(
            resources=resources, next_cursor=_cursor(end), _meta=UNTRUSTED
        )

    async def _list_templates(self, ctx: Context, params: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=each.uri_template,
                    name=each.name,
                    title=each.title,
                    description=each.description,
                    mime_type=each.media_type,
                )
                for each in self._templates
            ]
        )

    async def _read(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        template, path = self._named(uri)

        def read() -> str:
            reply = reply_of(Reply(content=(Text(text=template.read(self._db, path)),)))
            return reply.content[0].text

        content = types.TextResourceContents(
            uri=uri, mime_type=template.media_type, text=await self._guarded(read)
        )
        return types.ReadResourceResult(contents=[content], _meta=UNTRUSTED)

    async def _complete(
        self, ctx: Context, params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        given, typed = params.ref, params.argument
        for each in self._templates:
            if (
                each.complete is not None
                and isinstance(given, types.ResourceTemplateReference)
                and given.uri == each.uri_template
                and typed.name == each.variable.lstrip("+")
            ):
                found = await self._guarded(partial(each.complete, self._db, typed.value))
                values = [each.encode("utf-8", "replace").decode() for each in found]
                more = len(values) > MOST_COMPLETED
                return types.CompleteResult(
                    completion=types.Completion(values=values[:MOST_COMPLETED], has_more=more)
                )
        known = ", ".join(each.uri_template for each in self._templates if each.complete)
        raise MCPError(
            types.INVALID_PARAMS,
            f"There is nothing to complete for {cut(typed.name, MAX_ECHO)}; there are {known}",
        )

    def _named(self, uri: str) -> tuple[ResourceTemplate, str]:
        """The template of a URI, and its path; raises MCPError."""
        for each in self._templates:
            if uri.startswith(each.prefix):
                return each, unquote(uri.removeprefix(each.prefix))
        raise MCPError(types.INVALID_PARAMS, f"Unknown resource: {cut(uri, MAX_ECHO)}")

    def _watched(self, uri: str) -> Callable[[], object] | None:
        """What tells of changes of a resource; None where nothing does."""
        template, path = self._named(uri)
        return template.watched(self._db, path) if template.watched else None

    async def _guarded(self, work: Callable[[], Any]) -> Any:
        """Do some work in a thread, in time; its errors are errors of the protocol."""

        def run() -> Any:
            try:
                with self._db.deadline(anyio.from_thread.check_cancelled):
                    return work()
            except MCPVectorDBError as error:
                raise MCPError(types.INVALID_PARAMS, str(error)) from None
            except MCPError:
                raise
            except Exception:
                log.exception("a request for resources failed")
                raise MCPError(types.INTERNAL_ERROR, str(InternalError())) from None

        return await self._in_thread(run)


class Watched(NamedTuple):
    """A resource that is watched: what tells of changes, what that was, and by how many."""

    now: Callable[[], object]
    before: object
    watchers: int


class ResourceWatch:
    """Tells clients of changes of resources; looks at the file only while anybody listens."""

    def __init__(
        self,
        db: Any,
        watched: Callable[[str], Callable[[], object] | None],
        guarded: InThread,
    ) -> None:
        self._db, self._find, self._guarded = db, watched, guarded
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus, max_subscriptions=MOST_STREAMS)
        self._watched: dict[str, Watched] = {}
        self._older: dict[Connection, set[str]] = {}
        self._listening = 0
        self._change: int | None = None
        self._unsure = False
        self._task: asyncio.Task[None] | None = None

    async def listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve a stream of changes until its client leaves; unknown resources are left out."""
        wanted = params.notifications
        uris = await self._add(dict.fromkeys(wanted.resource_subscriptions or ()))
        self._listening += 1
        try:
            honored = wanted.model_copy(update={"resource_subscriptions": uris})
            return await self._streams(ctx, params.model_copy(update={"notifications": honored}))
        finally:
            self._listening -= 1
            self._remove(uris)

    async def subscribe(
        self, ctx: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Tell an older client of changes of a resource, which there must be, until it leaves."""
        uri, connection = str(params.uri), ctx.session._connection
        if uri in self._older.get(connection, ()):
            return types.EmptyResult()
        if not await self._add([uri], required=True):
            raise MCPError(types.INVALID_PARAMS, f"Nobody can watch {cut(uri, MAX_ECHO)}")
        if connection not in self._older:
            self._older[connection] = set()
            connection.exit_stack.callback(self._leave, connection)
        if uri in self._older[connection]:  # by a second request at the same time
            self._remove([uri])
        self._older[connection].add(uri)
        return types.EmptyResult()

    async def unsubscribe(
        self, ctx: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Tell an older client no more of a resource."""
        uris = self._older.get(ctx.session._connection, set())
        if (uri := str(params.uri)) in uris:
            uris.discard(uri)
            self._remove([uri])
        return types.EmptyResult()

    async def _add(self, uris: Iterable[str], *, required: bool = False) -> list[str]:
        """Watch those of the resources that there are; raises MCPError if there are too many."""

        def found() -> tuple[int, dict[str, tuple[Callable[[], object], object]]]:
            change, known = self._db.last_change(), {}
            for uri in wanted:
                try:
                    if now := self._find(uri):
                        known[uri] = (now, now())
                except (MCPError, MCPVectorDBError):
                    if required:
                        raise
            return change, known

        wanted = list(uris)
        if len({*self._watched, *wanted}) > MOST_WATCHED:
            raise MCPError(
                types.INVALID_PARAMS,
                f"At most {MOST_WATCHED:,} resources are watched at once: subscribe to fewer",
            )
        change, known = await self._guarded(found)
        if self._change is None:
            self._change = change
        self._unsure = True  # it may have changed since it was read
        for uri, (now, before) in known.items():
            old = self._watched.get(uri) or Watched(now, before, 0)
            self._watched[uri] = old._replace(watchers=old.watchers + 1)
        if self._task is None or self._task.done() or self._task.get_loop().is_closed():
            self._task = asyncio.get_running_loop().create_task(self._look())
        return list(known)

    def _remove(self, uris: Iterable[str]) -> None:
        for uri in uris:
            old = self._watched.pop(uri)
            if old.watchers > 1:
                self._watched[uri] = old._replace(watchers=old.watchers - 1)

    def _leave(self, connection: Connection) -> None:
        self._remove(self._older.pop(connection, ()))

    async def _look(self) -> None:
        """Look at the file again and again, and tell of what has changed, while anybody listens."""
        trouble = ""
        while True:
            await anyio.sleep(LOOK_SECONDS)
            if not (self._listening or self._older):
                self._change = None
                return
            try:
                change, states = await self._guarded(partial(self._states, dict(self._watched)))
                trouble = ""
            except MCPError as error:
                if trouble != (trouble := error.message):  # said once, as long as it lasts
                    log.warning("resources cannot be watched: %s", trouble)
                continue
            if change != self._change:
                await self._bus.publish(ResourcesListChanged())
            self._change = change
            for uri, state in states.items():
                if (old := self._watched.get(uri)) and old.before != state:
                    self._watched[uri] = old._replace(before=state)
                    await self._bus.publish(ResourceUpdated(uri))
                    await self._tell_older(uri)

    def _states(self, watched: dict[str, Watched]) -> tuple[int, dict[str, object]]:
        """The last change of the file and, if that is a new one, what all resources are now."""
        change = self._db.last_change()
        if change == self._change and not self._unsure:
            return change, {}
        self._unsure = False
        return change, {uri: each.now() for uri, each in watched.items()}

    async def _tell_older(self, uri: str) -> None:
        told = [each for each, uris in self._older.items() if uri in uris]

        async def tell(connection: Connection) -> None:
            with anyio.move_on_after(TOLD_SECONDS) as waited:
                await connection.send_resource_updated(uri)
            if waited.cancelled_caught:
                log.warning("a client that reads nothing is told of no more changes")
                self._leave(connection)

        async with anyio.create_task_group() as group:
            for connection in told:
                group.start_soon(tell, connection)


def _cursor(position: Position) -> str | None:
    """A position as clients are given it; None at the end."""
    if not position:
        return None
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def _position(cursor: str) -> Position:
    """The position in a cursor; raises InvalidInput."""
    try:
        found = json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidInput("this cursor is none of ours: list from the beginning, without one")
    return tuple(found)
