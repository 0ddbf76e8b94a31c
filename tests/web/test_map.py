from __future__ import annotations

from tests.web.support_page import Looker

INKED = """() => {
  const canvas = document.querySelector('canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let inked = 0;
  for (let at = 3; at < data.length; at += 4) inked += data[at] > 0;
  return inked;
}"""


def _open(looker: Looker) -> None:
    looker.expected = ("willReadFrequently",)  # it is this test that reads the canvas
    looker.go("#/map")
    looker.wait("canvas.plane")
    looker.page.wait_for_function(INKED)


def _point(looker: Looker) -> None:
    """Move the pointer over the first point that is met."""
    box = looker.find("canvas").bounding_box()
    assert box
    for step in range(900):
        looker.page.mouse.move(box["x"] + 330 + (step % 30) * 20, box["y"] + 40 + (step // 30) * 22)
        if looker.find("canvas.pointing").count():
            return
    raise AssertionError("no point was met")


def test_points_are_drawn_named_and_hidden_by_their_group(looker: Looker) -> None:
    _open(looker)
    all_inked = looker.page.evaluate(INKED)
    assert looker.find(".legend-name").all_text_contents() == [
        "code",
        "memories",
        "notes",
        "reports",
    ]
    looker.find(".legend label", "reports").locator("input").uncheck()
    looker.page.wait_for_function(f"inked => ({INKED})() < inked", arg=all_inked)


COLOURS = """() => {
  const canvas = document.querySelector('canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Set();
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] > 200) found.add(data.slice(at, at + 3).map((each) => each >> 5).join());
  return [...found].sort().join(' ');
}"""


def test_points_are_coloured_by_folder_type_library_or_time(looker: Looker) -> None:
    _open(looker)
    choice = looker.page.get_by_label("Colour by")
    choice.select_option("type")
    looker.wait(".legend-name", "py")
    by_type = looker.page.evaluate(COLOURS)
    choice.select_option("folder")
    looker.wait(".legend-name", "notes/drinks")
    choice.select_option("time")
    looker.until(
        "[...document.querySelectorAll('.legend-name')].some((e) => /^20/.test(e.innerText))"
    )
    looker.page.wait_for_function(f"before => ({COLOURS})() !== before", arg=by_type)
    looker.page.get_by_label("Colour by").select_option("library")
    looker.wait(".legend-name", "reports")


def test_groups_are_named_by_their_words_and_a_name_enlarges_them(looker: Looker) -> None:
    _open(looker)
    name = looker.wait(".map-name")
    assert "number" in " ".join(looker.find(".map-name").all_text_contents())
    before = looker.page.evaluate(INKED)
    name.focus()
    looker.page.keyboard.press("Enter")
    looker.page.wait_for_function(f"inked => ({INKED})() !== inked", arg=before)
    looker.wait(".map-name")


def test_hills_are_the_heaps_of_points_that_are_shown(looker: Looker) -> None:
    found = looker.page.evaluate("""async () => {
      const { hills } = await import('/static/plane.js');
      const n = 400;
      const x = new Uint16Array(n).map((_, i) => (i < 300 ? 9000 : 50000) + (i * 37) % 900);
      const y = new Uint16Array(n).map((_, i) => (i < 300 ? 9000 : 50000) + (i * 91) % 900);
      const all = hills({ n, x, y }, () => true, 36);
      const some = hills({ n, x, y }, (i) => i >= 300, 36);
      return [all, some].map((each) => each.map((hill) => [hill.size, hill.some.length]));
    }""")
    assert found == [[[300, 40], [100, 40]], [[100, 40]]]


def test_a_point_is_read_by_hovering_and_beside_the_map_by_a_click(looker: Looker) -> None:
    _open(looker)
    _point(looker)
    name = looker.wait(".hover-card:not([hidden]) b").text_content()
    looker.page.mouse.down()
    looker.page.mouse.up()
    assert looker.wait(".map-panel h2").text_content() == name
    looker.wait(".map-panel a", "Read on").click()
    assert looker.wait(".reading h1").text_content() == name


def test_a_click_beside_all_points_clears_and_two_enlarge(looker: Looker) -> None:
    _open(looker)
    looker.find("canvas").focus()
    looker.page.keyboard.press("Enter")  # what is in the middle, or near to it
    looker.button("List what is in view").click()
    looker.wait(".map-panel h2", "In view")
    box = looker.find("canvas").bounding_box()
    assert box
    corner = (box["x"] + 640, box["y"] + 8)
    looker.page.mouse.click(*corner)
    looker.until("document.querySelector('.map-panel').hidden")
    before = looker.page.evaluate(INKED)
    looker.page.mouse.dblclick(*corner)
    looker.page.wait_for_function(f"inked => ({INKED})() !== inked", arg=before)


def test_a_lasso_lists_what_it_encircles(looker: Looker) -> None:
    _open(looker)
    box = looker.find("canvas").bounding_box()
    assert box
    looker.button("Lasso").click()
    corners = [(300, 5), (1270, 5), (1270, 730), (300, 730), (300, 5)]
    looker.page.mouse.move(box["x"] + corners[0][0], box["y"] + corners[0][1])
    looker.page.mouse.down()
    for left, top in corners[1:]:
        looker.page.mouse.move(box["x"] + left, box["y"] + top, steps=5)
    looker.page.mouse.up()
    heading = looker.wait(".map-panel h2", "Encircled").text_content() or ""
    assert int(heading.split()[1]) > 40
    looker.until("document.querySelectorAll('.map-panel .brief').length === 40")
    looker.button("Show more").click()
    looker.until("document.querySelectorAll('.map-panel .brief').length > 40")
    looker.page.keyboard.press("Escape")
    looker.until("document.querySelector('.map-panel').hidden")


def test_without_a_mouse_the_map_is_moved_and_listed(looker: Looker) -> None:
    _open(looker)
    before = looker.page.evaluate(INKED)
    looker.find("canvas").focus()
    for _ in range(8):
        looker.page.keyboard.press("+")
    looker.page.wait_for_function(f"inked => ({INKED})() !== inked", arg=before)
    looker.page.keyboard.press("0")
    looker.page.wait_for_function(f"inked => ({INKED})() === inked", arg=before)
    looker.button("List what is in view").focus()
    looker.page.keyboard.press("Enter")
    looker.wait(".map-panel h2", "In view")
    looker.wait(".map-panel .brief a").focus()
    looker.page.keyboard.press("Enter")
    looker.wait(".reading h1")


def test_near_duplicates_are_grouped(looker: Looker) -> None:
    _open(looker)
    looker.button("Near-duplicates").click()
    looker.wait(".duplicates .brief", "notes/copy.md")
    looker.wait(".duplicates .brief", "notes/drinks/tea.md")
    looker.button("Near-duplicates").click()
    looker.until("document.querySelector('.map-panel').hidden")


def test_a_map_of_an_older_file_offers_the_new_one(writer: Looker) -> None:
    _open(writer)
    writer.served.db.documents.ingest_text("Something new.", source="new.md", library="fresh")
    writer.button("The file has changed: draw the map again").click()
    writer.wait(".legend-name", "fresh")
