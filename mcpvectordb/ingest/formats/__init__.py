"""The table of all formats, and the detection of a source's format.

A format is one entry in `FORMATS` and a function `(source: Source) -> Parsed` in a module of this
package, which is imported when its first source arrives. In the detection, the content wins over
the media type, which wins over the file's extension.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import PurePosixPath
from typing import NamedTuple

from mcpvectordb.errors import IngestError, NoText, ParseFailed, UnsupportedFormat
from mcpvectordb.ingest.formats.charset import bom, is_text, unicode_encoding
from mcpvectordb.records import Parsed, Source

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_CODE = """
    py pyi pyx js mjs cjs jsx ts mts cts tsx java c h cc cpp cxx hh hpp hxx ino m mm cs fs fsx vb go
    rs rb php swift kt kts scala groovy gradle dart lua r jl pl pm hs elm ex exs erl hrl clj cljs
    cljc lisp scm el ml mli nim zig d pas f90 asm s sol v sv vhd vhdl cu glsl wgsl sh bash zsh fish
    ps1 psm1 bat cmd awk sed tcl sql graphql gql proto thrift tf hcl nix vue svelte astro css scss
    sass less toml yaml yml ini cfg conf properties env editorconfig cmake mk make makefile
    gnumakefile dockerfile containerfile jenkinsfile justfile rakefile gemfile procfile vagrantfile
    cmakelists.txt
"""
_CODE_TYPES = (
    "text/css text/javascript application/javascript text/x-python text/x-c "
    "application/yaml application/toml"
)

_JSON_TYPES = (
    "application/json application/x-ndjson application/jsonl application/ld+json "
    "application/geo+json"
)
_XML = "xml xsd xsl xslt rss atom opml wsdl kml gpx xlf xliff dbk docbook tei"
_XML_TYPES = "application/xml text/xml application/rss+xml application/atom+xml"
_OOXML = "application/vnd.openxmlformats-officedocument."
_ODF = "application/vnd.oasis.opendocument."
_ODF_MAGIC = rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis\.opendocument\."
_HTML = rb"\s*(<\?xml[^>]*>\s*)?(<!--[^>]*-->\s*)*<(!doctype\s+html|html)\b"
# A mailbox, or a header with a field that a note beginning with "From:" would not have.
_MAIL = (
    rb"From \S+ [^\n]*\d{4}\r?\n[\w-]+:"
    rb"|([\w-]+:[^\n]*\n([ \t][^\n]*\n)*)*?(received|message-id|mime-version): "
)
_CUE = rb"WEBVTT\b|\d+\s*\n\d+:\d\d:\d\d[,.]\d+ --> "


class Format(NamedTuple):
    """One format. Lists are words in one string; regular expressions match at the start.

    - name: for messages, unique.
    - reader: the module in this package that reads it, and its function if that is not `parse`.
    - extensions: lower case, without the dot; also whole file names ("makefile").
    - media_types: lower case, without parameters.
    - magic: an expression that every file of this format starts with.
    - member: a file that identifies this format, if it is a ZIP archive.
    - stream: a stream that identifies this format, if it is an OLE container.
    - hint: an expression that is sufficient to recognise the format, but not necessary.
    - inline: needs only decoding and no parser, so it is safe to read in the main process.
    """

    name: str
    reader: str
    extensions: str
    media_types: str = ""
    magic: bytes = b""
    member: str = ""
    stream: str = ""
    hint: bytes = b""
    inline: bool = False

    @property
    def module(self) -> str:
        """The module in this package that reads it."""
        return self.reader.partition(":")[0]


# The first entry whose magic, member or hint matches wins, so special cases come before general
# ones.
FORMATS = (
    Format(
        "plain text",
        "text",
        "txt text log readme license licence changelog authors notice adoc asciidoc bib diff patch "
        "ics vcf po textile wiki",
        "text/plain",
        inline=True,
    ),
    Format(
        "Markdown",
        "text:parse_markdown",
        "md markdown mdown mkd mkdn mdx qmd rmd",
        "text/markdown text/x-markdown",
        inline=True,
    ),
    Format("source code", "text:parse_code", _CODE, _CODE_TYPES, inline=True),
    Format("PDF", "pdf", "pdf", "application/pdf", magic=rb"\s*%PDF-"),
    Format("EPUB", "ebook", "epub", "application/epub+zip", member="META-INF/container.xml"),
    Format(
        "MOBI",
        "ebook",
        "mobi prc azw",
        "application/x-mobipocket-ebook",
        magic=rb".{60}(BOOKMOBI|TEXtREAd)",
    ),
    Format(
        "FB2",
        "ebook",
        "fb2",
        "application/x-fictionbook+xml",
        hint=rb"\s*(<\?xml[^>]*>\s*)?<FictionBook\b",
    ),
    Format(
        "XPS",
        "ebook",
        "xps oxps",
        "application/vnd.ms-xpsdocument",
        member="FixedDocumentSequence.fdseq",
    ),
    Format(
        "DOCX",
        "docx",
        "docx docm dotx",
        _OOXML + "wordprocessingml.document",
        member="word/document.xml",
    ),
    Format(
        "PPTX",
        "pptx",
        "pptx pptm ppsx",
        _OOXML + "presentationml.presentation",
        member="ppt/presentation.xml",
    ),
    Format(
        "XLSX", "xlsx", "xlsx xlsm xltx", _OOXML + "spreadsheetml.sheet", member="xl/workbook.xml"
    ),
    Format(
        "XLSB",
        "xlsx",
        "xlsb",
        "application/vnd.ms-excel.sheet.binary.macroenabled.12",
        member="xl/workbook.bin",
    ),
    Format("DOC", "ole:parse_doc", "doc dot", "application/msword", stream="WordDocument"),
    Format(
        "PPT",
        "ole:parse_ppt",
        "ppt pps pot",
        "application/vnd.ms-powerpoint",
        stream="PowerPoint Document",
    ),
    Format("XLS", "xlsx", "xls", "application/vnd.ms-excel", magic=re.escape(OLE)),
    Format("ODS", "odt", "ods", _ODF + "spreadsheet", magic=_ODF_MAGIC + rb"spreadsheet"),
    Format("ODT", "odt", "odt", _ODF + "text", magic=_ODF_MAGIC + rb"text"),
    Format("ODP", "odt", "odp", _ODF + "presentation", magic=_ODF_MAGIC + rb"presentation"),
    Format("RTF", "rtf", "rtf", "application/rtf text/rtf", magic=rb"\s*\{\\rtf"),
    Format("HTML", "html", "html htm xhtml shtml", "text/html application/xhtml+xml", hint=_HTML),
    Format("notebook", "data:parse_notebook", "ipynb", "application/x-ipynb+json"),
    Format("JSON", "data:parse_json", "json jsonl ndjson geojson jsonld webmanifest", _JSON_TYPES),
    Format("XML", "data:parse_xml", _XML, _XML_TYPES, hint=rb"\s*<\?xml\s"),
    Format("CSV", "data:parse_csv", "csv tsv tab", "text/csv text/tab-separated-values"),
    Format(
        "mail",
        "email",
        "eml mbox mht mhtml",
        "message/rfc822 application/mbox multipart/related",
        hint=_MAIL,
    ),
    Format("reStructuredText", "markup", "rst rest", "text/x-rst text/prs.fallenstein.rst"),
    Format("Org", "markup", "org", "text/org text/x-org"),
    Format(
        "LaTeX",
        "markup",
        "tex ltx latex",
        "application/x-tex text/x-tex",
        hint=rb"\s*\\documentclass\b",
    ),
    Format("subtitles", "subtitles", "srt vtt", "text/vtt application/x-subrip", hint=_CUE),
)

TEXT, CODE = FORMATS[0], FORMATS[2]
BY_NAME = {each.name: each for each in FORMATS}

# Common formats without a parser, so that the error can name them.
_ZIP, _BINARY = "a ZIP archive", "binary data"
_UNSUPPORTED = {
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
# Of these, the pictures that MuPDF can draw, with its names for them.
_PICTURES = {f"a {kind.upper()} image": kind for kind in ("png", "jpeg", "gif", "bmp", "tiff")}


def picture(source: Source) -> str:
    """Return MuPDF's name for the kind of a picture that OCR can read; "" for other sources."""
    return _PICTURES.get(_known_content(source.raw[:400]), "")


def parse(source: Source, found: Format | None = None) -> Parsed:
    """Return the text, title, pages and metadata of a source.

    `found` is its format, for a caller that has detected it already. Raises UnsupportedFormat,
    ParseFailed (damaged, encrypted, undecodable) or NoText.
    """
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
    head = _head(source.raw)
    claimed = _by_media_type(source.media_type) or by_name(source.name)
    found = _by_content(source.raw, head)
    # A PHP or Vue file may begin with markup.
    if found and not (claimed and claimed is CODE and head.lstrip().startswith(b"<")):
        return found
    has_signature = claimed is not None and bool(claimed.magic or claimed.member or claimed.stream)
    is_binary = b"\0" in source.raw and not unicode_encoding(source.raw)
    if what := _known_content(head) or (_BINARY if is_binary else ""):
        if claimed and has_signature and what in (_ZIP, _BINARY):
            return claimed  # probably damaged; its parser gives the reason
        raise _unsupported(source, what)
    if claimed:
        return TEXT if has_signature else claimed  # plain text with a wrong extension
    if source.media_type.startswith("text/") or is_text(source.raw):
        return TEXT
    raise _unsupported(source, _BINARY)


def _head(raw: bytes) -> bytes:
    """The first bytes as UTF-8 without byte order mark, for expressions that are ASCII."""
    encoding = unicode_encoding(raw)
    text = raw[len(bom(raw)[0]) : 4096]
    return text.decode(encoding, "ignore").encode() if encoding else text


def _matches(expression: bytes, head: bytes) -> bool:
    return bool(expression) and re.match(expression, head, re.IGNORECASE | re.DOTALL) is not None


def _by_content(raw: bytes, head: bytes) -> Format | None:
    members, streams = _members(raw), _streams(raw)
    for each in FORMATS:
        if (
            _matches(each.magic, head)
            or _matches(each.magic, raw[:4096])  # a small PDF may pass for UTF-16
            or _matches(each.hint, head)
            or (each.member and each.member in members)
            or (each.stream and each.stream in streams)
        ):
            return each
    return None


def _members(raw: bytes) -> set[str]:
    if not raw.startswith(b"PK\x03\x04"):
        return set()
    import zipfile

    try:
        return set(zipfile.ZipFile(BytesIO(raw)).namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return set()


def _streams(raw: bytes) -> set[str]:
    """The names of the streams at the top of an OLE container."""
    if not raw.startswith(OLE):
        return set()
    import olefile

    try:
        with olefile.OleFileIO(BytesIO(raw)) as container:
            return {path[0] for path in container.listdir() if len(path) == 1}
    except (OSError, ValueError, IndexError):
        return set()


def _known_content(head: bytes) -> str:
    """What bytes of a common format without a parser are; "" for others."""
    found = (what for form, what in _UNSUPPORTED.items() if re.match(form, head, re.DOTALL))
    return next(found, "")


def _by_media_type(media_type: str) -> Format | None:
    kind = media_type.partition(";")[0].strip().lower()
    if kind in ("", "text/plain"):
        return None  # servers send this for any text, so the name says more
    return next((each for each in FORMATS if kind in each.media_types.split()), None)


def by_name(name: str) -> Format | None:
    """Return the format of a file name by its extension; None for unknown ones."""
    name, known = name.lower(), _by_extension()
    return known.get(name) or known.get(name.rpartition(".")[2])


@cache
def _by_extension() -> dict[str, Format]:
    """The format of each extension; of two that have the same one, the first in the table."""
    return {name: each for each in reversed(FORMATS) for name in each.extensions.split()}


def check_extension(source: Source) -> None:
    """Refuse a text whose extension is not that of any format (UnsupportedFormat)."""
    suffix = PurePosixPath(source.name).suffix
    if suffix and not by_name(source.name) and is_text(source.raw):
        raise _unsupported(source, f"{suffix} is not known; if it is text, rename it to .txt")


def _unsupported(source: Source, what: str) -> UnsupportedFormat:
    names = ", ".join(each.name for each in FORMATS)
    return UnsupportedFormat(f"Unsupported format of {source.name}: {what}; supported are {names}")
