"""The table of all formats, and the detection of a source's format.

A format is one entry in `FORMATS`, a line of `known_as.txt` and a function `(source: Source) ->
Parsed` in a module of this package, which is imported when its first source arrives. In the
detection, the content wins over the media type, which wins over the file's extension.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from mcpvectordb.errors import IngestError, NoText, ParseFailed, UnsupportedFormat
from mcpvectordb.ingest.formats.charset import bom, is_text, unicode_encoding
from mcpvectordb.records import Parsed, Source

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ODF_MAGIC = rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis\.opendocument\."
_HTML_HINT = rb"\s*(<\?xml[^>]*>\s*)?(<!--[^>]*-->\s*)*<(!doctype\s+html|html)\b"
_FB2_HINT = rb"\s*(<\?xml[^>]*>\s*)?<FictionBook\b"
# A mailbox, or a header with a field that a note beginning with "From:" would not have.
_MAIL_HINT = (
    rb"From \S+ [^\n]*\d{4}\r?\n[\w-]+:"
    rb"|([\w-]+:[^\n]*\n([ \t][^\n]*\n)*)*?(received|message-id|mime-version): "
)
_CUE = rb"WEBVTT\b|\d+\s*\n\d+:\d\d:\d\d[,.]\d+ --> "


class Format(NamedTuple):
    """One format; regular expressions match at the start. What it is known as: `known_as.txt`.

    - name: for messages, unique.
    - reader: the module in this package that reads it, and its function if that is not `parse`.
    - magic: an expression that every file of this format starts with.
    - part: what identifies this format: a file of a ZIP archive, a stream of an OLE container.
    - hint: an expression that is sufficient to recognise the format, but not necessary.
    - inline: needs only decoding and no parser, so it is safe to read in the main process.
    """

    name: str
    reader: str
    magic: bytes = b""
    part: str = ""
    hint: bytes = b""
    inline: bool = False

    @property
    def module(self) -> str:
        """The module in this package that reads it."""
        return self.reader.partition(":")[0]


# The first entry whose magic, part or hint matches wins, so special cases come first.
FORMATS = (
    Format("plain text", "text", inline=True),
    Format("Markdown", "text:parse_markdown", inline=True),
    Format("source code", "text:parse_code", inline=True),
    Format("PDF", "pdf", magic=rb"\s*%PDF-"),
    Format("EPUB", "epub", part="META-INF/container.xml"),
    Format("MOBI", "pdf:parse_book", magic=rb".{60}(BOOKMOBI|TEXtREAd)"),
    Format("FB2", "pdf:parse_book", hint=_FB2_HINT),
    Format("XPS", "pdf:parse_book", part="FixedDocumentSequence.fdseq"),
    Format("DOCX", "docx", part="word/document.xml"),
    Format("PPTX", "pptx", part="ppt/presentation.xml"),
    Format("XLSX", "xlsx", part="xl/workbook.xml"),
    Format("XLSB", "xlsx", part="xl/workbook.bin"),
    Format("MSG", "msg", part="__properties_version1.0"),
    Format("DOC", "ole:parse_doc", part="WordDocument"),
    Format("PPT", "ole:parse_ppt", part="PowerPoint Document"),
    Format("XLS", "xlsx", magic=re.escape(OLE)),
    Format("ODS", "odt", magic=_ODF_MAGIC + rb"spreadsheet"),
    Format("ODT", "odt", magic=_ODF_MAGIC + rb"text"),
    Format("ODP", "odt", magic=_ODF_MAGIC + rb"presentation"),
    Format("RTF", "rtf", magic=rb"\s*\{\\rtf"),
    Format("HTML", "html", hint=_HTML_HINT),
    Format("notebook", "data:parse_notebook"),
    Format("JSON", "data:parse_json"),
    Format("XML", "data:parse_xml", hint=rb"\s*<\?xml\s"),
    Format("CSV", "data:parse_csv"),
    Format("mail", "email", hint=_MAIL_HINT),
    Format("reStructuredText", "markup"),
    Format("Org", "markup"),
    Format("LaTeX", "markup", hint=rb"\s*\\documentclass\b"),
    Format("subtitles", "subtitles", hint=_CUE),
)

TEXT, CODE = FORMATS[0], FORMATS[2]
BY_NAME = {each.name: each for each in FORMATS}

# Common formats without a parser, so that the error can name them.
_ZIP, _BINARY = "a ZIP archive", "binary data"
_UNSUPPORTED = {
    rb"\x09[\0\x02\x04][\x04\x06]\0": "a workbook of Excel 2 to 4; save it as XLSX and add that",
    rb"[\xdb\x9b]\xa5.\0|1\xbe\0\0": "a document of Word 1 or 2; save it as DOCX and add that",
    rb"\0\x01\0\0Standard (Jet|ACE) DB": "a database of Access; export tables as CSV and add those",
    rb"\xe4R\\\x7b\x8c\xd8\xa7M": "a section of OneNote; export it as PDF and add that",
    rb"\xffWPC": "a document of WordPerfect; save it as DOCX and add that",
    rb"AT&TFORM": "a DjVu book; convert it to PDF and add that",
    rb"PAR1": "a Parquet file; save it as CSV and add that",
    rb"\x89PNG\r\n": "a PNG image",
    rb"\xff\xd8\xff": "a JPEG image",
    rb"GIF8[79]a.{1,7}\0": "a GIF image",
    rb"BM.{4}\0\0\0\0": "a BMP image",
    rb"II\*\0|MM\0\*": "a TIFF image",
    rb"RIFF....WEBP": "a WebP image",
    rb"ID3[\x02-\x04]|\xff[\xf2\xf3\xfa\xfb]": "an MP3 sound",
    rb"RIFF....WAVE": "a WAV sound",
    rb"OggS\0": "an Ogg recording",
    rb"fLaC\0": "a FLAC sound",
    rb"\0.{3}ftyp": "an MP4 or HEIC file",
    rb"\x1aE\xdf\xa3": "a Matroska or WebM video",
    rb"PK(\x03\x04|\x05\x06)": _ZIP,
    rb"\x1f\x8b": "a gzip archive",
    rb"BZh[1-9]1AY": "a bzip2 archive",
    rb"\xfd7zXZ\0": "an xz archive",
    rb"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    rb"Rar!\x1a\x07": "a RAR archive",
    rb"\x28\xb5\x2f\xfd": "a Zstandard archive",
    rb".{257}ustar": "a tar archive",
    rb"\x7fELF|MZ.{58,}?PE\0\0|\xcf\xfa\xed\xfe|\xca\xfe\xba\xbe|\0asm": "a program",
    rb"SQLite format 3\0": "an SQLite database",
    rb"wOF[F2][\0\x01]|\0\x01\0\0\0|OTTO\0": "a font",
    re.escape(OLE): "an Office file that is encrypted or in the old binary format",
}
# Archives that are documents of other programs, by a part.
_FOREIGN_PARTS = {
    "visio/document.xml": "a drawing of Visio; export it as PDF and add that",
    "Index/Document.iwa": "a document of Pages, Numbers or Keynote; export it as PDF and add that",
}
# Of these, the pictures that MuPDF can draw, with its names for them.
_PICTURES = {f"a {kind.upper()} image": kind for kind in ("png", "jpeg", "gif", "bmp", "tiff")}
OCR = "install the extra (pip install 'mcpvectordb[ocr]')"


def picture(source: Source) -> str:
    """Return MuPDF's name for the kind of a picture that OCR can read; "" for other sources."""
    return _PICTURES.get(_known_content(source.raw[:400]), "")


def parse(source: Source, found: Format | None = None) -> Parsed:
    """Return the text, title, pages and metadata of a source.

    `found` is its format, for a caller that has detected it already. Raises UnsupportedFormat,
    ParseFailed (damaged, encrypted, undecodable) or NoText.
    """
    if not source.raw:
        raise NoText(f"No text found in {source.name}: it is empty")
    found = found or detect(source)
    reader = reader_of(found)
    try:
        parsed = reader(source)
    except (IngestError, MemoryError):  # running out of memory does not mean a damaged source
        raise
    except Exception as error:  # parser libraries raise errors of any class
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ParseFailed(f"{source.name} cannot be read as {found.name}: {reason}") from error
    if not parsed.text.lstrip("\ufeff").strip():
        raise NoText(
            f"No text found in {source.name}; if you know what it says, supply the text directly"
        )
    return parsed


def reader_of(found: Format) -> Callable[[Source], Parsed]:
    """Return the function that reads a format, from its module."""
    module, _, function = found.reader.partition(":")
    reader: Callable[[Source], Parsed] = getattr(
        import_module(f"{__name__}.{module}"), function or "parse"
    )
    return reader


def detect(source: Source) -> Format:
    """Return the format of a source: by its content, else its media type, else its name."""
    raw, encoding = source.raw, unicode_encoding(source.raw)
    head = raw[len(bom(raw)[0]) : 4096]
    if encoding:  # expressions are ASCII
        head = head.decode(encoding, "ignore").encode()
    kind = source.media_type.partition(";")[0].strip().lower()
    # Servers send text/plain for any text, so the name says more.
    claimed = None if kind == "text/plain" else known_as().get(kind)
    claimed = claimed or by_name(source.name)
    parts = _parts(raw)
    found = next((each for each in FORMATS if _is_seen(each, head, raw, parts)), None)
    # A PHP or Vue file may begin with markup.
    if found and not (claimed is CODE and head.lstrip().startswith(b"<")):
        return found
    has_signature = claimed is not None and bool(claimed.magic or claimed.part)
    is_binary = b"\0" in raw and not encoding
    if foreign := next(filter(None, map(_FOREIGN_PARTS.get, parts)), ""):
        raise _unsupported(source, foreign)
    if what := _known_content(head) or (_BINARY if is_binary else ""):
        if claimed and has_signature and what in (_ZIP, _BINARY):
            return claimed  # probably damaged; its parser gives the reason
        raise _unsupported(source, what)
    if claimed:
        return TEXT if has_signature else claimed  # plain text with a wrong extension
    if source.media_type.startswith("text/") or is_text(raw):
        return TEXT
    raise _unsupported(source, _BINARY)


def _is_seen(form: Format, head: bytes, raw: bytes, parts: set[str]) -> bool:
    """Whether the content shows a format; a small PDF may pass for UTF-16, of which `head` is."""
    looks = ((form.magic, head), (form.magic, raw[:4096]), (form.hint, head))
    return (form.part != "" and form.part in parts) or any(
        expression and re.match(expression, start, re.IGNORECASE | re.DOTALL)
        for expression, start in looks
    )


def _parts(raw: bytes) -> set[str]:
    """The files of a ZIP archive, or the streams at the top of an OLE container."""
    if not raw.startswith((b"PK\x03\x04", OLE)):
        return set()
    import zipfile

    try:
        if raw.startswith(b"PK"):
            return set(zipfile.ZipFile(BytesIO(raw)).namelist())
        import olefile

        with olefile.OleFileIO(BytesIO(raw)) as container:
            return {path[0] for path in container.listdir() if len(path) == 1}
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, IndexError):
        return set()


def _known_content(head: bytes) -> str:
    """What bytes of a common format without a parser are; "" for others."""
    found = (what for form, what in _UNSUPPORTED.items() if re.match(form, head, re.DOTALL))
    return next(found, "")


def by_name(name: str) -> Format | None:
    """Return the format of a file name by its extension; None for unknown ones."""
    name = name.lower()
    return known_as().get(name) or known_as().get(name.rpartition(".")[2])


@cache
def known_as() -> dict[str, Format]:
    """The format of each extension (without the dot), file name ("makefile") and media type."""
    lines = Path(__file__).with_name("known_as.txt").read_text("utf-8").splitlines()
    named = (line.partition(": ") for line in lines)
    return {word: BY_NAME[name] for name, _, words in named for word in words.split()}


def check_extension(source: Source) -> None:
    """Refuse a text whose extension is not that of any format (UnsupportedFormat)."""
    suffix = PurePosixPath(source.name).suffix
    if suffix and not by_name(source.name) and is_text(source.raw):
        raise _unsupported(source, f"{suffix} is not known; if it is text, rename it to .txt")


def _unsupported(source: Source, what: str) -> UnsupportedFormat:
    # "mail" says MSG too; clients know this list as it is.
    names = ", ".join(each.name for each in FORMATS if each.name != "MSG")
    names += f"; to read images {OCR}" if what in _PICTURES else ""
    return UnsupportedFormat(f"Unsupported format of {source.name}: {what}; supported are {names}")
