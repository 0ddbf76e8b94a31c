"""EML and MBOX: headers, body and the text of attachments; each message of a mailbox is a page."""

from __future__ import annotations

import email.parser  # loaded late otherwise, for each file
import email.policy
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from typing import Any

from mcpvectordb.errors import IngestError, ParseFailed
from mcpvectordb.ingest import formats
from mcpvectordb.ingest.formats import html, markdown
from mcpvectordb.records import Parsed, Source

DEEPEST = 5
"""How deep messages may be attached to each other."""
SHOWN = ("From", "To", "Cc", "Date")
_ENVELOPE = re.compile(rb"^From \S+.*\d{4}.*\r?\n", re.MULTILINE)
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)


def parse(source: Source) -> Parsed:
    """Return the text of one message, or of all messages of a mailbox."""
    try:
        messages = list(_read(source.raw))
    except RecursionError:
        raise ParseFailed(f"{source.name} has parts nested too deeply") from None
    return parsed_messages(source, messages)


def parsed_messages(source: Source, messages: list[EmailMessage]) -> Parsed:
    """Return the text of messages with that of what is attached to them."""
    try:
        unread: list[str] = []
        pages = [_page(message, source.name, unread) for message in messages]
    except RecursionError:
        raise ParseFailed(f"{source.name} has parts nested too deeply") from None
    if not any(message.keys() for message in messages):
        raise ParseFailed(
            f"{source.name} is not a mail: it has no header lines such as From: and Subject:"
        )
    note, count = "", len(unread)
    if count:
        names = ", ".join(unread[:20]) + (", …" if count > 20 else "")
        have = "attachment has" if count == 1 else "attachments have"
        note = f"{count} {have} no text that can be read: {names}"
    if len(messages) > 1:
        return markdown.finish(source, pages, {"messages": len(pages)}, headings=0, note=note)
    shown = ("From", "To", "Cc", "Subject")
    metadata: dict[str, Any] = {key.lower(): _header(messages[0], key) for key in shown}
    metadata["message_id"] = _header(messages[0], "Message-ID")
    with suppress(ValueError, TypeError, OverflowError):  # an invalid header
        moment = parsedate_to_datetime(_header(messages[0], "Date"))
        metadata["date"] = (moment.astimezone(UTC) if moment.tzinfo else moment).isoformat()
    metadata["attachments"] = _attachments(messages[0])
    title = metadata["subject"]
    return markdown.finish(source, pages[0], metadata, title=title, headings=0, note=note)


def _read(raw: bytes) -> Iterator[EmailMessage]:
    """The messages of a mailbox, split at its "From sender date" lines; a single message as is."""
    messages = [raw]
    if _ENVELOPE.match(raw):
        starts = [
            found
            for found in _ENVELOPE.finditer(raw)
            if found.start() == 0 or raw.endswith((b"\n\n", b"\r\n\r\n"), 0, found.start())
        ]
        ends = [*(found.start() for found in starts[1:]), len(raw)]
        messages = [
            _QUOTED_FROM.sub(rb"\1", raw[start.end() : end])
            for start, end in zip(starts, ends, strict=True)
        ]
    for each in messages:
        message = email.message_from_bytes(each, policy=email.policy.default)
        if isinstance(message, EmailMessage):
            yield message


def _page(message: EmailMessage, name: str, unread: list[str], depth: int = 0) -> str:
    """A message with the text of what is attached to it; `unread` gets the names of the rest."""
    about = [f"{key}: {text}" for key in SHOWN if (text := _header(message, key))]
    attached = _attachments(message)
    return markdown.blocks(
        [
            markdown.heading(1, _header(message, "Subject")),
            "\n".join(about),
            _body(message, name),
            f"Attachments: {', '.join(attached)}" if attached else "",
            *(_attachment(part, name, unread, depth + 1) for part in _parts(message)),
        ]
    )


def _attachment(part: EmailMessage, mail: str, unread: list[str], depth: int) -> str:
    """The text of an attachment, read like a file of its own; "" if it has none."""
    name = markdown.line(str(part.get_filename() or part.get_content_type()))
    raw, inner = part.get_payload(decode=True), part.get_payload()
    source = Source(
        source=name,
        name=name,
        raw=raw if isinstance(raw, bytes) else b"",
        file_type="",
        media_type=str(part.get("Content-Type", "")),
    )
    try:
        if part.get_content_type() == "message/rfc822":
            messages = inner if isinstance(inner, list) else []
        elif (found := formats.detect(source)).module == "email":
            messages = list(_read(source.raw))
        else:
            parsed = formats.parse(source, found)
            text = markdown.fence(parsed.text) if parsed.kind == "code" else parsed.text
            return markdown.blocks([markdown.heading(2, name), text.strip()])
        if depth <= DEEPEST:
            mails = [each for each in messages if isinstance(each, EmailMessage)]
            return markdown.blocks(_page(each, mail, unread, depth) for each in mails)
    except IngestError:
        pass
    unread.append(name)
    return ""


def _parts(message: EmailMessage) -> Iterator[EmailMessage]:
    """The parts of a message that are not its body: attachments, and messages of a digest."""
    if message.get_content_type() in ("multipart/related", "multipart/alternative"):
        return
    body = message.get_body(preferencelist=("plain", "html"))
    for part in message.iter_parts() if message.is_multipart() else ():
        if part is body or not isinstance(part, EmailMessage):
            continue
        if part.get_content_maintype() == "multipart":
            yield from _parts(part)
        else:
            yield part


def _header(message: Any, key: str) -> str:
    """The text of a header, "" for one that is missing or invalid."""
    try:
        return markdown.line(str(message.get(key, "")))
    except Exception:  # the header parser raises errors of many classes
        return ""


def _body(message: EmailMessage, name: str) -> str:
    part = message.get_body(preferencelist=("plain", "html"))
    if part is None:  # no body, or a multipart message without parts
        is_text = message.get_content_maintype() in ("text", "multipart")
        whole = message.get_payload() if is_text else ""
        return markdown.prose(whole.strip()) if isinstance(whole, str) else ""
    try:
        text = part.get_content()
    except (LookupError, ValueError, KeyError):  # an unknown charset or type
        text = part.get_payload(decode=True)
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = markdown.clean(str(text))
    if part.get_content_subtype() == "html":
        return html.to_markdown(text, name)
    return markdown.prose(text.strip())


def _attachments(message: EmailMessage) -> list[str]:
    named = (part.get_filename() for part in message.walk() if not part.is_multipart())
    return [markdown.line(str(name)) for name in named if name]
