"""EML and MBOX: headers, body text and attachment names; each message of a mailbox is a page."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator
from datetime import UTC
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from typing import Any

from mcpvectordb.errors import ParseFailed
from mcpvectordb.ingest.formats import html, markdown_writer
from mcpvectordb.records import Parsed, Source

SHOWN = ("From", "To", "Cc", "Date")
_ENVELOPE = re.compile(rb"^From \S+.*\d{4}.*\r?\n", re.MULTILINE)
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)


def parse(source: Source) -> Parsed:
    """Return the text of one message, or of all messages of a mailbox."""
    try:
        messages = [
            email.message_from_bytes(raw, policy=email.policy.default)
            for raw in _messages(source.raw)
        ]
        pages = [
            _page(message, source.name) for message in messages if isinstance(message, EmailMessage)
        ]
    except RecursionError:
        raise ParseFailed(f"{source.name} has parts nested too deeply") from None
    if not any(message.keys() for message in messages):
        raise ParseFailed(
            f"{source.name} is not a mail: it has no header lines such as From: and Subject:"
        )
    if len(messages) > 1:
        return markdown_writer.finish(
            source, pages, title=markdown_writer.title(source), metadata={"messages": len(pages)}
        )
    title = markdown_writer.title(source, _header(messages[0], "Subject"))
    return markdown_writer.finish(
        source, pages, title=title, metadata=_metadata(messages[0]), paged=False
    )


def _messages(raw: bytes) -> Iterator[bytes]:
    """The messages of a mailbox, split at its "From sender date" lines; a single message as is."""
    first = _ENVELOPE.match(raw)
    starts = (
        [
            found
            for found in _ENVELOPE.finditer(raw)
            if found.start() == 0 or raw.endswith((b"\n\n", b"\r\n\r\n"), 0, found.start())
        ]
        if first
        else []
    )
    if not starts:
        yield raw
    for at, start in enumerate(starts):
        end = starts[at + 1].start() if at + 1 < len(starts) else len(raw)
        yield _QUOTED_FROM.sub(rb"\1", raw[start.end() : end])


def _page(message: EmailMessage, name: str) -> str:
    about = [f"{key}: {text}" for key in SHOWN if (text := _header(message, key))]
    attached = _attachments(message)
    return markdown_writer.blocks(
        [
            markdown_writer.heading(1, _header(message, "Subject")),
            "\n".join(about),
            _body(message, name),
            f"Attachments: {', '.join(attached)}" if attached else "",
        ]
    )


def _header(message: Any, key: str) -> str:
    """The text of a header, "" for one that is missing or invalid."""
    try:
        return markdown_writer.line(str(message.get(key, "")))
    except Exception:  # the header parser raises errors of many classes
        return ""


def _body(message: EmailMessage, name: str) -> str:
    part = message.get_body(preferencelist=("plain", "html"))
    if part is None:  # no body, or a multipart message without parts
        whole = (
            message.get_payload() if message.get_content_maintype() in ("text", "multipart") else ""
        )
        return markdown_writer.prose(whole.strip()) if isinstance(whole, str) else ""
    try:
        text = part.get_content()
    except (LookupError, ValueError, KeyError):  # an unknown charset or type
        text = part.get_payload(decode=True)
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = markdown_writer.clean(str(text))
    return (
        html.to_markdown(text, name)
        if part.get_content_subtype() == "html"
        else markdown_writer.prose(text.strip())
    )


def _attachments(message: EmailMessage) -> list[str]:
    named = (part.get_filename() for part in message.walk() if not part.is_multipart())
    return [markdown_writer.line(str(name)) for name in named if name]


def _metadata(message: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        key.lower(): _header(message, key) for key in ("From", "To", "Cc", "Subject")
    }
    metadata["message_id"] = _header(message, "Message-ID")
    metadata["date"] = _date(_header(message, "Date"))
    metadata["attachments"] = _attachments(message)
    return metadata


def _date(text: str) -> str:
    """The time in ISO 8601 and UTC; "" for an invalid header."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return ""
    return (moment.astimezone(UTC) if moment.tzinfo else moment).isoformat()
