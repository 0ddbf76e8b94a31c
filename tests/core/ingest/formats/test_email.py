from __future__ import annotations

from email.message import EmailMessage

import pymupdf
import pytest

from mcpvectordb.errors import ParseFailed
from tests.support_formats import page, read


def message(subject: str = "Apples", body: str = "Please send apples.\n") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"] = "Ann Author <ann@example.org>", "bob@example.org"
    mail["Subject"] = subject
    mail["Date"], mail["Message-ID"] = "Wed, 01 May 2024 10:00:00 +0200", "<1@example.org>"
    mail.set_content(body)
    return mail


def attach(mail: EmailMessage, raw: bytes, kind: str, name: str) -> None:
    main, _, sub = kind.partition("/")
    mail.add_attachment(raw, maintype=main, subtype=sub, filename=name)


def test_a_message_has_sender_recipients_date_and_text() -> None:
    parsed = read(message().as_bytes(), "a.eml")
    assert parsed.text == (
        "# Apples\n\nFrom: Ann Author <ann@example.org>\nTo: bob@example.org\n"
        "Date: Wed, 01 May 2024 10:00:00 +0200\n\nPlease send apples.\n"
    )
    assert parsed.title == "Apples"
    assert parsed.metadata == {
        "from": "Ann Author <ann@example.org>",
        "to": "bob@example.org",
        "subject": "Apples",
        "message_id": "<1@example.org>",
        "date": "2024-05-01T08:00:00+00:00",
    }


def test_the_plain_part_is_taken_and_attachments_are_named() -> None:
    mail = message(body="Plain words.")
    mail.add_alternative("<p>HTML words.</p>", subtype="html")
    attach(mail, b"%PDF-", "application/pdf", "offer for März.pdf")
    parsed = read(mail.as_bytes(), "a.eml")
    assert "Plain words." in parsed.text and "HTML words" not in parsed.text
    assert parsed.text.endswith("Attachments: offer for März.pdf\n")
    assert parsed.metadata["attachments"] == ["offer for März.pdf"]


def test_a_body_of_html_becomes_markdown() -> None:
    mail = message()
    mail.set_content(
        "<html><style>p{}</style><body><h2>Offer</h2><ul><li>apples<li>pears</ul></body></html>",
        subtype="html",
    )
    assert read(mail.as_bytes(), "a.eml").text.endswith("+0200\n\n## Offer\n\n- apples\n- pears\n")


def test_encoded_headers_and_bodies_are_decoded() -> None:
    raw = (
        "From: =?iso-8859-1?Q?J=FCrgen?= <j@example.org>\r\nSubject: =?utf-8?B?R3LDtsOfZQ==?=\r\n"
        "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=iso-8859-1\r\n"
        "Content-Transfer-Encoding: quoted-printable\r\n\r\nGr=F6=DFe\r\n"
    )
    parsed = read(raw, "a.eml")
    assert parsed.title == "Größe" and "From: Jürgen" in parsed.text
    assert parsed.text.endswith("\n\nGröße\n")


def test_a_message_with_an_attached_message_keeps_its_own_text() -> None:
    mail = message(body="See below.")
    mail.add_attachment(message("Inner", "Inner words."))
    text = read(mail.as_bytes(), "a.eml").text
    assert "See below." in text and "# Inner" in text and "Inner words." in text


def mailbox(*mails: EmailMessage) -> bytes:
    return b"".join(
        b"From ann@example.org Wed May  1 10:00:00 2024\n" + mail.as_bytes() + b"\n"
        for mail in mails
    )


def test_the_messages_of_a_mailbox_are_pages() -> None:
    raw = mailbox(message("One", "First.\n>From here on\n"), message("Two", "Second.\n"))
    parsed = read(raw, "inbox.mbox")
    assert parsed.title == "inbox.mbox" and parsed.metadata == {"messages": 2}
    assert page(parsed, 1).startswith("# One") and page(parsed, 1).endswith("First.\nFrom here on")
    assert page(parsed, 2).startswith("# Two") and page(parsed, 2).endswith("Second.")


def test_mail_is_recognised_by_its_header_and_a_note_is_not_mail() -> None:
    assert read(message().as_bytes(), "saved.txt").title == "Apples"
    assert read(mailbox(message()), "saved").title == "Apples"
    assert read("From: me\nTo: you\nSubject: lunch\n\nAt noon?\n", "note.txt").title == "note.txt"


@pytest.mark.parametrize("header", [
    "Date: nonsense", 'From: "unclosed <a@', "Content-Type: ;;;", "Content-Type: text/plain; charset=klingon",
    "To: \udcff\udcfe", "Subject: =?utf-8?B?////?=", "Content-Type: multipart/mixed; boundary=", "Date: 99999999999999",
])  # fmt: skip
def test_a_message_with_invalid_headers_is_read(header: str) -> None:
    raw = (header + "\nMessage-ID: <1@a>\n\nThe words.\n").encode("utf-8", "surrogateescape")
    assert "The words." in read(raw, "a.eml").text


def test_deeply_nested_parts_fail_clearly() -> None:
    parts = (f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(20_000))
    with pytest.raises(ParseFailed, match=r"a\.eml has parts nested too deeply"):
        read("MIME-Version: 1.0\n" + "".join(parts) + "Content-Type: text/plain\n\nx\n", "a.eml")


def test_text_without_mail_headers_fails_clearly() -> None:
    with pytest.raises(ParseFailed, match=r"a\.eml is not a mail: it has no header lines"):
        read("\njust words\n", "a.eml")


def test_the_text_of_attachments_is_kept_and_others_are_noted() -> None:
    mail = message()
    attach(mail, b"| a | b |\n", "text/markdown", "list.md")
    attach(mail, b"\0\1\2\3", "application/x-thing", "x.bin")
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), "The order of the year")
    attach(mail, document.tobytes(), "application/pdf", "order.pdf")
    parsed = read(mail.as_bytes(), "a.eml")
    assert parsed.text.endswith(
        "Attachments: list.md, x.bin, order.pdf\n\n## list.md\n\n| a | b |\n\n## order.pdf\n\n"
        "The order of the year\n"
    )
    assert parsed.note == "1 attachment has no text that can be read: x.bin"


def test_every_message_of_a_digest_is_read() -> None:
    raw = (
        b"From: list@example.org\nSubject: Digest\nMIME-Version: 1.0\n"
        b'Content-Type: multipart/digest; boundary="b"\n\n'
        b"--b\n\nFrom: ann@example.org\nSubject: Apples\n\nApples are red.\n"
        b"--b\n\nFrom: bob@example.org\nSubject: Pears\n\nPears are green.\n--b--\n"
    )
    text = read(raw, "a.eml").text
    assert "# Apples\n\nFrom: ann@example.org\n\nApples are red." in text
    assert "# Pears\n\nFrom: bob@example.org\n\nPears are green." in text


def test_messages_attached_to_each_other_are_read_to_a_depth() -> None:
    mail = message("level 0", "text of level 0\n")
    for level in range(1, 9):
        outer = message(f"level {level}", f"text of level {level}\n")
        attach(outer, mail.as_bytes(), "application/octet-stream", f"{level}.eml")
        mail = outer
    parsed = read(mail.as_bytes(), "a.eml")
    assert all(f"text of level {level}" in parsed.text for level in range(3, 9))
    assert "text of level 2" not in parsed.text and parsed.note.endswith("3.eml")
