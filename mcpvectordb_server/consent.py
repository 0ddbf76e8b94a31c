"""The page on which a person lets an OAuth client in: plain HTML, without a script."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse

if TYPE_CHECKING:
    from mcp.server.auth.provider import AuthorizationParams

    from mcpvectordb_server.oauth import PublicClient

_MEANING = {
    "read": "Search and read everything (nothing goes without it)",
    "write": "Remember, change and delete",
    "ingest": "Take in web pages, and files of this server's folders",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #1d232b; --soft: #5b6572; --line: #cfd6de; --page: #f4f6f8;
  --card: #fff; --do: #1f5fae; --on: #fff; --bad: #a3261b }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaef; --soft: #a0abb8; --line: #3c4652;
  --page: #14181d; --card: #1c2229; --do: #8ab8f2; --on: #10151b; --bad: #ff9d92 } }
* { box-sizing: border-box }
body { margin: 0; padding: 1rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
main { max-width: 28rem; margin: 2rem auto; padding: 1.5rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .75rem }
h1 { margin: 0 0 1rem; font-size: 1.25rem; line-height: 1.3 }
p, fieldset { margin: 0 0 1rem }
fieldset { padding: 0; border: 0 }
legend { padding: 0; font-weight: 600 }
fieldset label { display: flex; gap: .75rem; align-items: center; min-height: 2.75rem }
input[type=checkbox] { flex: none; width: 1.25rem; height: 1.25rem; accent-color: var(--do) }
input[type=password] { display: block; width: 100%; margin-top: .25rem; padding: .625rem;
  font: inherit; color: inherit; background: var(--page); border: 1px solid var(--soft);
  border-radius: .5rem }
.row { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0 0 }
button { flex: 1; min-height: 2.75rem; font: inherit; font-weight: 600; border-radius: .5rem;
  border: 1px solid var(--soft); background: none; color: inherit }
button[value=allow] { background: var(--do); border-color: var(--do); color: var(--on) }
:focus-visible { outline: 3px solid var(--do); outline-offset: 2px }
.soft { color: var(--soft); font-size: .875rem }
.bad { color: var(--bad); font-weight: 600 }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


def headers(answers_to: str = "") -> dict[str, str]:
    """Those that browsers keep to; a form may be sent here, and lead on to `answers_to`."""
    return {
        "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
        f"form-action 'self' {answers_to}; base-uri 'none'; frame-ancestors 'none'",
        "Cache-Control": "no-store",
        "Referrer-Policy": "same-origin",  # without it a form would say that its origin is null
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }


def failed(reason: str, status: int) -> HTMLResponse:
    """A page that says why nobody can be let in."""
    told = (
        f'<h1>This did not work</h1><p>{escape(_shown(reason, 600))}</p><p class="soft">Close '
        "this page, and try again from the program that you came from.</p>"
    )
    return HTMLResponse(_page("This did not work", told), status, headers())


@dataclass(frozen=True)
class ConsentPage:
    """What is asked: may this client do this at the server of this URL?"""

    url: str
    client: PublicClient
    params: AuthorizationParams
    scopes: list[str]

    def page(self, problem: str = "", chosen: Collection[str] | None = None) -> HTMLResponse:
        """The page; after an answer that cannot be taken with its problem and what was chosen."""
        here = escape(urlsplit(self.url).netloc)
        name = escape(_shown(self.client.client_name or "A program without a name", 80))
        place = str(self.params.redirect_uri)
        boxes = "".join(
            f'<label><input type="checkbox" name="{each}" value="yes"'
            f"{' checked' if chosen is None or each in chosen else ''}> {_MEANING[each]}</label>"
            for each in self.scopes
        )
        asked = self.params.model_dump(mode="json", exclude_none=True)
        sent = {
            "client_id": self.client.client_id,
            "response_type": "code",
            "code_challenge_method": "S256",
            "scope": " ".join(self.scopes),
            **{each: asked.get(each) for each in ("state", "code_challenge", "resource")},
            "redirect_uri": place if self.params.redirect_uri_provided_explicitly else None,
        }
        hidden = "".join(
            f'<input type="hidden" name="{each}" value="{escape(value)}">'
            for each, value in sent.items()
            if value is not None
        )
        told = f"""<h1>Let “{name}” into {here}?</h1>
<p>{self._who()}</p>
<form method="post" action="/authorize">{hidden}
<fieldset><legend>It may</legend>{boxes}</fieldset>
{f'<p class="bad" role="alert">{escape(problem[:1].upper() + problem[1:])}.</p>' if problem else ""}
<label>Passphrase<input type="password" name="passphrase" autocomplete="current-password"
 autocapitalize="off" spellcheck="false"></label>
<div class="row"><button name="answer" value="allow">Allow</button>
<button name="answer" value="deny">Deny</button></div></form>
<p class="row soft">It stays allowed until you revoke it (mcpvectordb access revoke), or it has
not come for 30 days.</p>"""
        title = f"Let a program into {here}?"
        return HTMLResponse(_page(title, told), 403 if problem else 200, headers(_source(place)))

    def _who(self) -> str:
        """Where the client is, as far as that is known: its name is what it says itself."""
        own = urlsplit(self.client.client_id)
        answer = urlsplit(str(self.params.redirect_uri))
        back = answer.hostname or ""
        if answer.scheme not in ("http", "https"):
            back = f"the program on your device that opens {answer.scheme}: addresses"
        elif answer.scheme == "http":
            back = f"a program on your device ({back})"
        if own.scheme == "https":
            known = f"It is described at <b>{escape(own.hostname or '')}</b>. "
        else:
            known = "It has registered by itself: nobody has checked its name. "
        return (
            f"{known}The answer goes to <b>{escape(back)}</b>. Allow it only if you have just "
            "connected it yourself."
        )


def _page(title: str, content: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><main>{content}</main></body></html>"
    )


def _shown(text: str, most: int) -> str:
    """The beginning of a text from elsewhere, in one line, without what turns letters around."""
    line = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(line[:most].split())


def _source(place: str) -> str:
    """What the answer's address is in a policy of content."""
    parts = urlsplit(place)
    if parts.scheme in ("http", "https") and re.fullmatch(r"[a-zA-Z0-9.:_-]+", parts.netloc):
        return f"{parts.scheme}://{parts.netloc}"
    return f"{parts.scheme}:"
