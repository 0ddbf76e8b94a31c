"""Draw the pages of `mcpvectordb web`: `python .github/docs/web_pictures.py [FOLDER]`.

Without a folder it writes the two pictures of README; with one, every view into it, as a desktop and
as a phone show it, light and dark. A file is made from the demo's pages, this project's documentation
and a few texts in other languages, and a real Chromium looks at the real server. Needs the packages
playwright and Pillow, and /usr/bin/chromium (or the program that CHROMIUM names).
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
    "brief-vom-festland.md": "# Brief vom Festland\n\nDie Linse wird jeden zweiten Tag mit destilliertem "
    "Wasser gereinigt. Essig ist verboten, weil er die Vergütung angreift.\n\nDas Versorgungsschiff kommt "
    "am ersten Dienstag des Monats, sofern die Dünung unter zwei Metern bleibt.\n",
    "灯塔日志.md": "# 灯塔日志\n\n透镜每隔一天用蒸馏水和软毛刷清洁一次。禁止使用醋，因为它会腐蚀镀膜。\n\n"
    "## 雾\n\n一旦看不见外侧浮标，雾号每分钟鸣响两次。请记下开始和结束的时间，船主会来询问。\n",
    "رسالة.md": "# رسالة إلى الحارس\n\nتُنظَّف العدسة كل يومين بالماء المقطر وفرشاة ناعمة. الخل ممنوع لأنه يتلف الطلاء.\n",
}
MEMORIES = (
    ("lamp", "agent", "The turning motor showed **E-4021** twice this week, each time after noon. Opening the "
     "north vent first keeps it from coming back.", ("motor", "E-4021")),
    ("lamp", "user", "Ordered two more cans of the thin oil for the upper bearing.", ("supplies",)),
    ("rules", "agent", "Decided: the lens is cleaned every second day, with distilled water. The rules of 2024 "
     "said vinegar; they no longer apply.\n\n- brush: soft, from the green box\n- water: distilled, 2 l a week\n- "
     "never: vinegar, it eats the coating", ("decision", "lens")),
    ("boat", "agent", "The skipper turned back at the outer buoy on Tuesday: swell of 2.4 m. Eleven drums of diesel "
     "are left.", ("supplies", "boat")),
    ("boat", "user", "Passengers who get seasick: tablets an hour before departure, amidships, eyes on the "
     "horizon.", ("people",)),
    ("weather", "agent", "Barometer fell 4 hPa in three hours; shutters closed at 17:40, horn from 18:05 to "
     "19:20.", ("log", "fog")),
    ("weather", "agent", "The harbour office asks for the minutes of fog by the fifth of each month.", ("deadline",)),
    ("kitchen", "user", "The starter likes rye better than wheat.", ("bread",)),
    ("kitchen", "agent", "Cistern at the red mark since Sunday: only drinking and cooking.", ("water", "log")),
)


def make_file(db: Database) -> None:
    """Store what the pictures show."""
    for page in sorted((ROOT / "mcpvectordb/cli/demo_pages").glob("*.md")):
        db.documents.ingest_text(page.read_text("utf-8"), source=page.name, library="station", embed=False)
    for page in (*sorted((ROOT / ".github/docs").glob("*.md")), ROOT / ".github/ARCHITECTURE.md"):
        db.documents.ingest_text(page.read_text("utf-8"), source=f"docs/{page.name}", library="manual", embed=False)
    for path in sorted((ROOT / "mcpvectordb/text").glob("*.py")):
        db.documents.ingest_text(path.read_text("utf-8"), source=f"text/{path.name}", library="code", embed=False)
    for name, text in LETTERS.items():
        db.documents.ingest_text(text, source=name, library="letters", embed=False)
    for thread, source, text, tags in MEMORIES:
        db.contexts.add(thread=thread, source=source, text=text, tags=tags, metadata={"station": "Skerry"})
    db.embed_pending()


@contextmanager
def served(db: Database) -> Iterator[str]:
    """The address of a server of this file, which ends with the block."""
    import uvicorn

    from mcpvectordb_server.web.application import application
    from mcpvectordb_server.web.site import Site

    token = "t" * 32
    config = uvicorn.Config(application(Site(db), token=token), port=0, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/?token={token}"
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
        page.click(".hit-link:has-text(\"Station rules 2025\")")
        page.wait_for_selector("mark.cited")
    else:
        page.evaluate("hash => { location.hash = hash }", VIEWS[view])
        page.wait_for_selector({"search": ".hit", "compare": ".column .brief", "map": "canvas.plane"}.get(view, "main h1"))
    page.wait_for_load_state("networkidle") if view not in VIEWS else page.wait_for_timeout(500)
    if view == "map":
        page.evaluate("document.querySelector('.legend').open = true")
        _point_at_something(page)


def _point_at_something(page: Page) -> None:
    box = page.locator("canvas.plane").bounding_box()
    assert box is not None
    for step in range(400):
        left = box["x"] + box["width"] * (0.30 + 0.4 * (step % 20) / 20)
        top = box["y"] + box["height"] * (0.25 + 0.5 * (step // 20) / 20)
        page.mouse.move(left, top)
        if page.locator("canvas.pointing").count():
            page.wait_for_selector(".hover-card:not([hidden])")
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
