"""A small host of MCP Apps: a page with the view in a sandboxed frame of another origin.

It speaks the messages of the extension, and passes calls of tools on to a server in memory.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mcp.client.extension import advertise

from mcpvectordb import Database
from mcpvectordb_server.apps import EXTENSION, MEDIA_TYPE, URI
from mcpvectordb_server.surfaces import load
from tests.server.clients import service, talk

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FrameLocator, Route

HOST, FRAME = "https://host.test/", "https://frame.test/"
# What the extension wants of a host where a view declares no origin.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self' data:; connect-src 'none'; frame-src 'none'; "
    "object-src 'none'; base-uri 'self'"
)
PAGE = """<!doctype html><meta charset="utf-8"><title>host</title>
<style>body { margin: 0; background: %(background)s } iframe { width: 100%%; height: 60px; border: 0 }</style>
<iframe sandbox="allow-scripts"></iframe>
<script>
const frame = document.querySelector("iframe");
const seen = window.seen = [];
const send = window.send = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
const answers = {
  "ui/initialize": (params) => ({
    protocolVersion: params.protocolVersion, hostInfo: { name: "test", version: "1" },
    hostCapabilities: window.able, hostContext: { theme: window.theme, displayMode: "inline" },
  }),
  "ui/open-link": () => ({}),
  "tools/call": (params) => window.callTool(params.name, params.arguments),
};
addEventListener("message", async ({ source, data }) => {
  if (source !== frame.contentWindow) return;
  seen.push(data);
  if (data.method === "ui/notifications/size-changed") frame.style.height = `${data.params.height}px`;
  if (data.id === undefined || !data.method) return;
  const answer = answers[data.method];
  if (answer) send({ id: data.id, result: await answer(data.params) });
  else send({ id: data.id, error: { code: -32601, message: "Method not found" } });
});
</script>"""


class ChatHost:
    """A host with one view, as a context manager; `seen` are the messages of the view."""

    def __init__(
        self,
        browser: Browser,
        db: Database,
        *,
        theme: str = "light",
        width: int = 760,
        able: Any = None,
    ) -> None:
        self.made = service(db, load("desk"))
        self._threads = ThreadPoolExecutor(1)
        self.context = browser.new_context(viewport={"width": width, "height": 800})
        self.context.set_default_timeout(10_000)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        for event in ("console", "pageerror", "dialog", "popup"):
            self.page.on(event, lambda each, event=event: self._saw(event, each))
        self.page.on("request", lambda each: self._asked(each.url))
        self._options = (theme, {"openLinks": {}, "serverTools": {}} if able is None else able)

    def _saw(self, event: str, each: Any) -> None:
        if event == "dialog":
            each.dismiss()
        self.problems.append(f"{event}: {getattr(each, 'text', each)}")

    def _asked(self, url: str) -> None:
        if url not in (HOST, FRAME):
            self.problems.append(f"request to {url}")

    def __enter__(self) -> Self:
        theme, able = self._options
        html = self.server("read_resource", URI).contents[0].text

        def serve(route: Route) -> None:
            dark = {"background": "#222" if theme == "dark" else "#eee"}
            if route.request.url == HOST:
                route.fulfill(body=PAGE % dark, content_type="text/html")
            elif route.request.url == FRAME:
                headers = {"Content-Security-Policy": POLICY}
                route.fulfill(body=html, content_type="text/html; charset=utf-8", headers=headers)
            else:
                route.abort()

        self.page.route("**/*", serve)
        self.page.expose_function("callTool", self.called)
        self.page.goto(HOST)
        self.page.evaluate(
            "([theme, able, url]) => Object.assign(window, { theme, able }) && (frame.src = url)",
            [theme, able, FRAME],
        )
        self.page.wait_for_function(
            "seen.some((each) => each.method === 'ui/notifications/initialized')"
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.context.close()
        self._threads.shutdown()
        if kind is None:
            assert not self.problems, "\n".join(self.problems)

    def server(self, method: str, *arguments: Any) -> Any:
        """What the server answers to a request of the client that this host is."""
        host = advertise(EXTENSION, {"mimeTypes": [MEDIA_TYPE]})

        def conversation(client: Any) -> Any:
            return getattr(client, method)(*arguments)

        # Playwright has a loop of its own in this thread.
        return self._threads.submit(
            talk, self.made, conversation, mode="auto", extensions=[host]
        ).result()

    def called(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of a tool, as it is on the wire."""
        result = self.server("call_tool", name, arguments)
        return result.model_dump(by_alias=True, exclude_none=True, mode="json")

    def call(self, name: str, **arguments: Any) -> FrameLocator:
        """The view, after the model has called a tool."""
        self.tell("ui/notifications/tool-input", {"arguments": arguments})
        self.tell("ui/notifications/tool-result", self.called(name, arguments))
        return self.view

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Send the view a notification, and wait until it has drawn what follows from that."""
        self.page.evaluate(
            """async ([method, params]) => {
              send({ method, params });
              const id = `after ${seen.length} ${Math.random()}`;
              send({ id, method: "ping" });
              while (!seen.some((each) => each.id === id)) await new Promise(requestAnimationFrame);
            }""",
            [method, params],
        )

    @property
    def view(self) -> FrameLocator:
        """What is in the frame."""
        return self.page.frame_locator("iframe")

    @property
    def frame(self) -> Any:
        """The frame, for expressions."""
        return next(each for each in self.page.frames if each.url == FRAME)

    def seen(self, method: str) -> list[Any]:
        """The parameters of the messages of a method that the view has sent."""
        every = self.page.evaluate("seen")
        return [each.get("params") for each in every if each.get("method") == method]
