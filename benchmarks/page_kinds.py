"""Web pages of many kinds whose content is known: `python -m benchmarks reading --make-pages N`.

Each page has a kind, a markup that is usual for it (classes of boards, shops and generators of
documentation, or none that say anything) and around the content what sites put there: menus, a
banner for cookies, a column beside it, related entries, a footer. Beside `KIND-N.html` stands
`KIND-N.txt`, the text that is content: replies of a thread, reviews of a product, the entries of a
listing or a collection.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from random import Random

Page = tuple[str, list[str]]
"""The HTML of the content, with boilerplate in it, and the texts that are expected."""


class Site:
    """Writes pages of made-up sentences, so that no run of words is on a page twice."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def words(self, count: int) -> str:
        """So many words, the first with a capital."""
        letters = ("bdfgklmnprstvz", "aeiou")
        made = [
            "".join(self.random.choice(each) for each in letters * self.random.randint(1, 3))
            for _ in range(count)
        ]
        return " ".join(made).capitalize()

    def sentences(self, count: int) -> str:
        """So many sentences of six to sixteen words."""
        return " ".join(f"{self.words(self.random.randint(6, 16))}." for _ in range(count))

    def price(self) -> str:
        """A price in euros."""
        return f"€{self.random.randint(2, 900)}.{self.random.randint(10, 99)}"

    def link(self, words: int) -> str:
        """A link to another page."""
        return f'<a href="/{self.random.randint(1, 10**6)}">{self.words(words)}</a>'

    def links(self, count: int) -> str:
        """A list of links, as in menus."""
        return f"<ul>{''.join(f'<li>{self.link(2)}</li>' for _ in range(count))}</ul>"

    # Kinds of pages

    def article(self) -> Page:
        """Paragraphs with a byline, a box that promotes something and related articles."""
        title, parts = self.words(7), [self.sentences(4) for _ in range(8)]
        body = [f"<p>{each}</p>" for each in parts]
        body.insert(3, f"<div class=promo-box><p>Sign up: {self.sentences(1)}</p></div>")
        body.insert(6, f"<p>Read more: {self.link(7)}</p>")
        cards = "".join(
            f"<article><h3>{self.link(6)}</h3><p>{self.words(12)}</p></article>" for _ in range(4)
        )
        named = self.random.choice(["class=article-body", "itemprop=articleBody", "class=c12"])
        top = f"<h1>{title}</h1><p class=byline>By Anna Bell</p><p>3 May 2024</p>"
        html = f"{top}<div {named}>{''.join(body)}</div><section><h2>Related</h2>{cards}</section>"
        return html, [title, *parts]

    def forum(self) -> Page:
        """Posts with the box of their author, buttons and a signature."""
        style = self.random.choice([
            ("post", "postprofile", "content", "signature-line"),
            ("message", "message-userDetails", "messageText", "post-signature"),
            ("topic-post", "names", "cooked", "post-controls"),
            ("comment", "user-details", "comment-body", "share"),
        ])  # fmt: skip
        title, posts = self.words(6), [self.sentences(self.random.randint(1, 5)) for _ in range(9)]
        html = "".join(
            f'<div class="{style[0]}"><div class="{style[1]}">{self.link(1)}<br>Joined: Mar 2015'
            f'<br>Posts: {number}17</div><div class="{style[2]}"><p>{text}</p></div>'
            f'<div class="{style[3]}">{self.link(3)}</div><a href="#r">Reply</a></div>'
            for number, text in enumerate(posts)
        )
        return f"<h1>{title}</h1><div id=thread>{html}</div>", [title, *posts]

    def product(self) -> Page:
        """A name, a price, a description, specifications, reviews, and other products."""
        title, price, about = self.words(5), self.price(), [self.sentences(3) for _ in range(2)]
        specs = [(self.words(2), self.words(4)) for _ in range(7)]
        reviews = [self.sentences(2) for _ in range(3)]
        rows = "".join(f"<tr><th>{key}</th><td>{value}</td></tr>" for key, value in specs)
        said = "".join(f"<div class=review><p>{each}</p></div>" for each in reviews)
        html = (
            f"<div class=product><h1>{title}</h1><span class=price>{price}</span>"
            f"<form><button>Add to cart</button></form><div class=description>"
            f"{''.join(f'<p>{each}</p>' for each in about)}</div>"
            f"<table class=specs>{rows}</table><div class=reviews>{said}</div></div>"
            f'<div class="related-products"><h2>You may also like</h2>{self.cards(4)[0]}</div>'
        )
        return html, [title, price, *about, *(" ".join(each) for each in specs), *reviews]

    def cards(self, count: int) -> Page:
        """Entries of a shop: a picture, a name that is a link, a price."""
        style = self.random.choice(["product-card", "grid__item", "item", "col-md-4"])
        tag = self.random.choice(["div", "li", "article"])
        made = [(self.words(self.random.randint(3, 7)), self.price()) for _ in range(count)]
        html = "".join(
            f'<{tag} class="{style}"><a href="/{number}"><img src="{number}.jpg"></a>'
            f'<h3><a href="/{number}">{name}</a></h3><span class=price>{price}</span></{tag}>'
            for number, (name, price) in enumerate(made)
        )
        return html, [f"{name} {price}" for name, price in made]

    def collection(self) -> Page:
        """A grid of products with a description, beside it filters."""
        title, about = self.words(2), self.sentences(self.random.randint(0, 3))
        html, texts = self.cards(self.random.randint(12, 30))
        beside = self.random.choice(["filters", "sidebar", "facets", "col-left"])
        choices = "".join(
            f"<h4>{self.words(1)}</h4>"
            + "".join(f"<label><input type=checkbox>{self.link(1)} (4)</label>" for _ in range(6))
            for _ in range(3)
        )
        side = f'<div class="{beside}">{choices}</div>'
        return f"<h1>{title}</h1><p>{about}</p>{side}<div id=grid>{html}</div>", [
            title, about, *texts,
        ]  # fmt: skip

    def listing(self) -> Page:
        """Teasers of posts or jobs with a date, and pages to turn."""
        title = self.words(3)
        made = [(self.words(7), self.sentences(self.random.randint(0, 2))) for _ in range(10)]
        tag, style = self.random.choice([
            ("article", "post"), ("li", "result"), ("div", "job"), ("div", "views-row"),
        ])  # fmt: skip
        html = "".join(
            f'<{tag} class="{style}"><h2><a href="/{number}">{name}</a></h2><p>{about}</p>'
            f'<a class=more href="/{number}">Read more</a></{tag}>'
            for number, (name, about) in enumerate(made)
        )
        pager = f"<div class=pagination>{self.links(5)}</div>"
        return f"<h1>{title}</h1><div id=list>{html}</div>{pager}", [
            title, *(f"{name} {about}" for name, about in made),
        ]  # fmt: skip

    def documentation(self) -> Page:
        """Sections with code and tables, between a tree of pages and a table of contents."""
        title, parts = self.words(3), []
        html = f"<h1>{title}</h1>"
        for _ in range(4):
            heading, text, code = self.words(3), self.sentences(3), self.words(8)
            rows = [(self.words(1), self.words(5)) for _ in range(3)]
            table = "".join(f"<tr><td>{key}</td><td>{value}</td></tr>" for key, value in rows)
            html += f"<h2>{heading}</h2><p>{text}</p><pre><code>{code}</code></pre>"
            html += f"<table>{table}</table>"
            parts += [heading, text, code, *(" ".join(each) for each in rows)]
        style = self.random.choice(["body", "md-content", "theme-doc-markdown", "contents", "x1"])
        tree = f'<div class="{self.random.choice(["sphinxsidebar", "md-sidebar", "tree"])}">'
        tree += f"{self.links(25)}</div>"
        toc = f'<div class="toc">{self.links(8)}</div>'
        return f'{tree}<div class="{style}">{html}</div>{toc}', [title, *parts]

    def service(self) -> Page:
        """Sections of an offer: features, voices of customers, prices, questions."""
        title, parts = self.words(6), []
        html = f"<section class=hero><h1>{title}</h1><a href=/buy>Request a demo</a></section>"
        for _ in range(self.random.randint(4, 7)):
            heading, texts = self.words(4), [self.sentences(1) for _ in range(3)]
            columns = "".join(f"<div class=col><p>{each}</p></div>" for each in texts)
            html += f"<section><h2>{heading}</h2><div class=row>{columns}</div></section>"
            parts += [heading, *texts]
        form = "<form><h2>Contact us</h2><label>First name</label><input></form>"
        return f"{html}{form}", [title, *parts]

    def page(self, write: Callable[[], Page]) -> tuple[str, str]:
        """A whole page, and the text that is expected of it."""
        content, texts = write()
        main = self.random.choice(["<main>{}</main>", "<div id=content>{}</div>", "<div>{}</div>"])
        head = self.random.choice(["header", "div class=header", "div id=top"])
        side = self.random.choice(["", f"<aside><h3>Popular</h3>{self.links(8)}</aside>"])
        foot = (
            f"<footer>{self.links(12)}<p>© 2024 {self.words(3)}. All rights reserved.</p></footer>"
        )
        cookies = f'<div class="cookie-banner"><p>We use cookies. {self.sentences(2)}</p></div>'
        body = f"{cookies}<{head}><a href=/>Home</a>{self.links(15)}</{head.split()[0]}>"
        body += f"{main.format(content)}{side}{foot}"
        page = f"<html><head><title>{escape(texts[0])}</title></head><body>{body}</body></html>"
        return page, "\n\n".join(texts)


KINDS: dict[str, Callable[[Site], Page]] = {
    "article": Site.article,
    "collection": Site.collection,
    "documentation": Site.documentation,
    "forum": Site.forum,
    "listing": Site.listing,
    "product": Site.product,
    "service": Site.service,
}


def make(folder: Path, count: int, seed: int) -> None:
    """Write so many pages of each kind, with their texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, write in KINDS.items():
        for number in range(count):
            site = Site(seed * 1000 + number)
            page, expected = site.page(lambda site=site, write=write: write(site))
            (folder / f"{kind}-{number}.html").write_text(page, "utf-8")
            (folder / f"{kind}-{number}.txt").write_text(expected, "utf-8")
