"""Draw the pages of `mcpvectordb web`: `python .github/docs/web_pictures.py [FOLDER]`.

Without a folder it writes the two pictures of README; with one, every view into it, as a desktop
and as a phone show it, light and dark. A file is made from the demo's pages, this project's
documentation and a few texts in other languages, and a real Chromium looks at the real server.
Needs the packages playwright and Pillow, and /usr/bin/chromium or what CHROMIUM names.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from mcpvectordb import Database

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --hide-scrollbars"
).split()
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
README = {"web-search": ("search", "light"), "web-map": ("map", "dark")}
QUESTION = "how often is the lens cleaned?"
VIEWS = {
    "start": "#/search",
    "search": f"#/search?q={QUESTION}",
    "compare": f"#/search?q={QUESTION}&mode=compare",
    "read": "",  # the first hit of the search
    "memory": "#/memory/3",
    "browse": "#/browse",
    "library": "#/browse/library/manual",
    "timeline": "#/browse/memories",
    "map": "#/map",
    "add": "#/add",
    "folder": "#/add/folder",
    "health": "#/health",
}
LETTERS = {
    "brief-vom-festland.md": """# Brief vom Festland

Die Linse wird jeden zweiten Tag mit destilliertem Wasser gereinigt. Essig ist verboten, weil er
die Vergütung angreift. Das Versorgungsschiff kommt am ersten Dienstag des Monats, sofern die Dünung
unter zwei Metern bleibt.""",
    "灯塔日志.md": """# 灯塔日志

透镜每隔一天用蒸馏水和软毛刷清洁一次。禁止使用醋，因为它会腐蚀镀膜。

## 雾

一旦看不见外侧浮标，雾号每分钟鸣响两次。请记下开始和结束的时间，船主会来询问。""",
    "رسالة.md": """# رسالة إلى الحارس

تُنظَّف العدسة كل يومين بالماء المقطر وفرشاة ناعمة. الخل ممنوع لأنه يتلف الطلاء.""",
}
# One line each: thread, who stored it, tags; then the text.
MEMORIES = """
lamp agent motor,E-4021
The turning motor showed **E-4021** twice this week, always after noon. Open the north vent first.
lamp user supplies
Ordered two more cans of the thin oil for the upper bearing.
rules agent decision,lens
Decided: the lens is cleaned every second day, with distilled water. Vinegar eats the coating.
boat agent supplies,boat
The skipper turned back at the outer buoy: swell of 2.4 m. Eleven drums of diesel are left.
boat user people
Passengers who get seasick: tablets an hour before departure, amidships, eyes on the horizon.
weather agent log,fog
Barometer fell 4 hPa in three hours; shutters closed at 17:40, horn from 18:05 to 19:20.
weather agent deadline
The harbour office asks for the minutes of fog by the fifth of each month.
kitchen user bread
The starter likes rye better than wheat.
kitchen agent water,log
Cistern at the red mark since Sunday: only drinking and cooking.
"""


def make_file(db: Database) -> None:
    """Store what the pictures show."""
    libraries = {
        "station": "mcpvectordb/cli/demo_pages/*.md",
        "manual": ".github/docs/*.md",
        "code": "mcpvectordb/text/[a-z]*.py",
    }
    for library, pattern in libraries.items():
        for file in sorted(ROOT.glob(pattern)):
            text = file.read_text("utf-8")
            db.documents.ingest_text(text, source=file.name, library=library, embed=False)
    for name, text in LETTERS.items():
        db.documents.ingest_text(text, source=name, library="letters", embed=False)
    lines = MEMORIES.strip().split("\n")
    for head, text in zip(lines[::2], lines[1::2], strict=True):
        thread, source, tags = head.split()
        db.memories.add(thread=thread, source=source, text=text, tags=tags.split(","))
    db.embed_pending()


@contextmanager
def served(db: Database) -> Iterator[str]:
    """The address of a server of this file, which ends with the block."""
    import uvicorn

    from mcpvectordb_server.web.application import application
    from mcpvectordb_server.web.site import Site

    token = "t" * 32
    site = Site(db)
    config = uvicorn.Config(application(site, token=token), port=0, log_level="warning")
    server = uvicorn.Server(config)
    site.events.stopping = lambda: server.should_exit
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/#token={token}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium that was installed beforehand."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        program = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        chromium = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield chromium
        chromium.close()


def open_page(chromium: Browser, url: str, size: str, theme: Any) -> Page:
    """A new page of a size and theme, which has been let in."""
    width, height = SIZES[size]
    page = chromium.new_page(
        viewport={"width": width, "height": height},
        color_scheme=theme,
        has_touch=size == "phone",
        device_scale_factor=1,
    )
    page.goto(url)
    page.wait_for_selector("main > *")
    return page


def show(page: Page, view: str) -> None:
    """Go to a view and wait until it stands still."""
    if view == "read":
        show(page, "search")
        page.click('.hit-link:has-text("Station rules 2025")')
        page.wait_for_selector("mark.cited")
    else:
        page.evaluate("hash => { location.hash = hash }", VIEWS[view])
        page.wait_for_selector(
            {"search": ".hit", "compare": ".column .brief", "map": "canvas.plane"}.get(
                view, "main h1"
            )
        )
    page.wait_for_timeout(500)
    if view == "map":
        _point_at_a_rule(page)


def _point_at_a_rule(page: Page) -> None:
    """Move the pointer over the map until a page of the station is read."""
    box = page.locator("canvas.plane").bounding_box()
    assert box is not None
    card = page.locator(".hover-card:not([hidden])")
    for step in range(900):
        left = box["x"] + box["width"] * (0.35 + 0.3 * (step % 30) / 30)
        top = box["y"] + box["height"] * (0.1 + 0.8 * (step // 30) / 30)
        page.mouse.move(left, top)
        if page.locator("canvas.pointing").count():
            card.wait_for()
            if "station/" in card.inner_text():
                return


def every_view(chromium: Browser, url: str, folder: Path) -> None:
    """Write a picture of each view in each size and theme."""
    folder.mkdir(parents=True, exist_ok=True)
    for size in SIZES:
        for theme in ("light", "dark"):
            for view in VIEWS:
                page = open_page(chromium, url, size, theme)
                show(page, view)
                page.screenshot(path=folder / f"{view}-{size}-{theme}.png")
                page.close()


def for_readme(chromium: Browser, url: str) -> None:
    """Write the two pictures of README."""
    from PIL import Image

    for name, (view, theme) in README.items():
        page = open_page(chromium, url, "desktop", theme)
        show(page, view)
        picture = Image.open(io.BytesIO(page.screenshot()))
        picture.save(Path(__file__).with_name(f"{name}.webp"), quality=82, method=6)
        page.close()


def main(folder: str | None = None) -> None:
    """Make the file, serve it, and draw."""
    from mcpvectordb import Database

    with tempfile.TemporaryDirectory() as home, Database(Path(home) / "skerry.db") as db:
        make_file(db)
        with served(db) as url, browser() as chromium:
            if folder:
                every_view(chromium, url, Path(folder))
            else:
                for_readme(chromium, url)


if __name__ == "__main__":
    main(*sys.argv[1:])
