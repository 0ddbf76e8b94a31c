"""Which request runs next: a bounded number at once, and none that nobody waits for any more."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

from mcpvectordb_server.web.errors import HttpError

T = TypeVar("T")

THREADS = 6
"""Requests that run at once; each thread has a connection to the file of its own."""

LOOK_SECONDS = 0.5
"""How often it is looked whether the client of a request that runs is still there."""

MOST_PAGES = 256  # pages whose newest request is remembered
LONGEST_NAME = 64  # characters of a page's name


class Asking:
    """One route as one page asks for it: its newest request, and the lock of the one that runs."""

    def __init__(self) -> None:
        self.newest = 0
        self.running = asyncio.Lock()


class Turns:
    """Runs requests in threads, in their order.

    A page that searches while somebody types numbers its requests (X-Page, X-Sequence). Of those of
    one page and route one runs at a time, and one that has waited while a newer one came, or whose
    client is gone, is not run. So one runs and one waits, however fast a page asks. If the client
    goes while its request runs, what `work` is given raises HttpError.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mcpvectordb-web")
        self._room = asyncio.Semaphore(THREADS)
        self._asking: OrderedDict[tuple[str, str], Asking] = OrderedDict()

    async def run(self, request: Request, work: Callable[[Callable[[], None]], T]) -> T:
        """The result of `work`, or HttpError if the request is superseded."""
        asking, number = self._numbered(request)
        async with asking.running, self._room:
            if asking.newest > number:
                raise HttpError(409, "superseded", "a newer request of this page came meanwhile")
            gone = threading.Event()

            def check() -> None:
                if gone.is_set():
                    raise HttpError(409, "superseded", "the client has gone")

            if await request.is_disconnected():
                gone.set()
            check()
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._threads, work, check)
            while not (await asyncio.wait([running], timeout=LOOK_SECONDS))[0]:
                if await request.is_disconnected():
                    gone.set()
            return await running

    def close(self) -> None:
        """End the threads when what they do is done."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _numbered(self, request: Request) -> tuple[Asking, int]:
        """What a request is one of, and its number; one without a number stands alone."""
        page, number = request.headers.get("x-page"), request.headers.get("x-sequence", "")
        if page is None:
            return Asking(), 0
        if len(page) > LONGEST_NAME or not (number.isascii() and number.isdigit()):
            raise HttpError(
                400,
                "invalid_argument",
                f"X-Page must have at most {LONGEST_NAME} characters, and X-Sequence be a number",
            )
        key, sequence = (page, request.url.path), int(number[:18])
        asking = self._asking.setdefault(key, Asking())
        asking.newest = max(sequence, asking.newest)
        self._asking.move_to_end(key)
        if len(self._asking) > MOST_PAGES:
            self._asking.popitem(last=False)
        return asking, sequence
