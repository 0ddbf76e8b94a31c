"""Which request runs next: a bounded number at once, and none that nobody waits for any more."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

from mcpvectordb_server.web.errors import HttpError

T = TypeVar("T")

THREADS = 6
"""Requests that run at once; each thread has a connection to the file of its own."""

MOST_PAGES = 256  # pages whose newest request is remembered
LONGEST_NAME = 64  # characters of a page's name


class Turns:
    """Runs requests in threads, in their order.

    A page that searches while somebody types numbers its requests (X-Page, X-Sequence). One that
    has waited while a newer one of the same page and route came, or whose client is gone, is not
    run. So at most one request of each page waits, however fast it asks.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mcpvectordb-web")
        self._room = asyncio.Semaphore(THREADS)
        self._newest: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def run(self, request: Request, work: Callable[[], T]) -> T:
        """The result of `work`, or HttpError if the request is superseded."""
        numbered = self._numbered(request)
        async with self._room:
            if numbered is not None and self._newest.get(numbered[0], 0) > numbered[1]:
                raise HttpError(409, "superseded", "a newer request of this page came meanwhile")
            if await request.is_disconnected():
                raise HttpError(409, "superseded", "the client has gone")
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """End the threads when what they do is done."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _numbered(self, request: Request) -> tuple[tuple[str, str], int] | None:
        page, number = request.headers.get("x-page"), request.headers.get("x-sequence", "")
        if page is None:
            return None
        if len(page) > LONGEST_NAME or not (number.isascii() and number.isdigit()):
            raise HttpError(
                400,
                "invalid_argument",
                f"X-Page must have at most {LONGEST_NAME} characters, and X-Sequence be a number",
            )
        key, sequence = (page, request.url.path), int(number[:18])
        self._newest[key] = max(sequence, self._newest.get(key, 0))
        self._newest.move_to_end(key)
        if len(self._newest) > MOST_PAGES:
            self._newest.popitem(last=False)
        return key, sequence
