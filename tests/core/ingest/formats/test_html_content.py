from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.reading import Sample, grade, load
from mcpvectordb.errors import NoText
from tests.support_formats import read

PAGES = load(Path(__file__).parents[3] / "fixtures" / "pages")
SENTENCE = "The boats lay still upon the water while the men mended their nets on the quay. "
ARTICLE = "".join(f"<p>{number}. {SENTENCE * 2}</p>" for number in range(8))
LINKS = "".join(f'<li><a href="/{n}">Another story, number {n}</a></li>' for n in range(6))


def text(body: str) -> str:
    return read(f"<html><head><title>T</title></head><body>{body}</body></html>", "a.html").text


# The pages in the fixtures: articles of many layouts, with the text that is expected of each


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)
def test_no_article_is_lost(page: Sample) -> None:
    found = grade(read(page.path.read_bytes(), page.path.name).text, page.expected)
    assert found.kept > 0.98
    assert found.order > 0.98
    assert found.f1 > 0.7


def test_articles_are_told_from_what_is_around_them() -> None:
    grades = [
        grade(read(each.path.read_bytes(), each.path.name).text, each.expected) for each in PAGES
    ]
    assert len(grades) == 30
    assert fmean(each.f1 for each in grades) >= 0.95


# Listings: collections of products, categories, threads of a board


def entries(count: int = 12) -> str:
    return "".join(
        f'<div class="card"><a href="/{n}"><img src="{n}.jpg"></a>'
        f'<a href="/{n}">Brass lantern of make {n}</a><span>{n}9.50 euros</span></div>'
        for n in range(count)
    )


def test_the_entries_of_a_listing_are_its_content_although_they_are_links() -> None:
    menu = f"<div id=menu><ul>{LINKS}</ul></div>"
    intro = "<h1>Lanterns</h1><p>All of them are made by hand in the yard behind the house.</p>"
    shop = f"<div><p>{SENTENCE * 6}</p></div>"
    found = text(f"{menu}<div id=page>{intro}<div class=grid>{entries()}</div></div>{shop}")
    assert all(f"Brass lantern of make {n}" in found for n in range(12))
    assert "behind the house" in found
    assert "Another story" not in found


def test_the_choices_beside_a_listing_are_left_out() -> None:
    choices = f'<div class="facets"><h3>Colour</h3><p>Any of {", ".join("abcdefgh")}</p></div>'
    found = text(f"<div id=page><h1>Lanterns</h1>{choices}<div>{entries()}</div></div>")
    assert "make 11" in found
    assert "Colour" not in found


def test_what_most_entries_of_a_listing_say_is_a_button() -> None:
    bought = entries().replace("</div>", '<a href="/buy">Add to cart</a></div>')
    found = text(f"<h1>Lanterns</h1><div>{bought}</div>")
    assert "make 11" in found
    assert "Add to cart" not in found


def test_the_heading_of_an_entry_is_kept_although_only_a_button_is_below() -> None:
    entry = (
        '<div class="post"><h2><a href="/{0}">The {0}. lantern</a></h2><a href="/{0}">{1}</a></div>'
    )
    found = text(
        "<h1>Lanterns</h1>" + "".join(entry.format(n, "<p>Read more</p>") for n in range(6))
    )
    assert "The 5. lantern" in found


@pytest.mark.parametrize("kind", ["article", "product"])
def test_a_page_that_declares_one_article_or_product_is_no_listing(kind: str) -> None:
    said = f'<meta property="og:type" content="{kind}">'
    body = f"<div id=body><p>{SENTENCE * 6}</p></div><div id=others>{entries()}</div>"
    page = f"<html><head>{said}</head><body>{body}</body></html>"
    assert "Brass lantern" not in read(page, "a.html").text


def test_what_a_board_says_about_the_author_of_a_post_is_left_out() -> None:
    post = '<div class="post"><div class="author_info">Newbie, 6 posts, joined 2015</div>{}</div>'
    found = text("".join(post.format(f"<p>{n}. {SENTENCE * 2}</p>") for n in range(5)))
    assert "4. The boats" in found
    assert "joined 2015" not in found


# What names say


@pytest.mark.parametrize("name", [
    "modal-enabled", "content-with-sidebar-wrp", "pagination-first", "no-share", "has-ads", "with-menu", "share-enabled",
    "newsletter-page", "nav-open", "ads-loaded", "is-modal", "comments-open", "has-comments",
])  # fmt: skip
def test_a_state_in_a_class_name_does_not_make_boilerplate(name: str) -> None:
    short = f'<div class="{name}"><p>A note of the harbour master about the tide tables.</p></div>'
    assert "harbour master" in text(f"<main>{ARTICLE}{short}</main>")


@pytest.mark.parametrize("name", [
    "sidebar", "left-sidebar", "sidebar-left", "cookie-banner", "cookieBanner", "related_posts", "article__related",
    "ad", "ad-slot", "share-buttons", "comment-list", "post-comments", "commentsSection", "breaking-ticker", "relatedPosts", "relatedposts",
])  # fmt: skip
def test_boilerplate_is_named_by_the_first_or_last_word(name: str) -> None:
    short = f'<div class="{name}"><p>A note of the harbour master about the tide tables.</p></div>'
    assert "harbour master" not in text(f"<main>{ARTICLE}{short}</main>")


@given(
    st.sampled_from(["sidebar", "modal", "promo", "related", "menu", "popup", "ads", "share"]),
    st.sampled_from(["div", "aside", "form", "section", "footer", "nav", "table><tr><td"]),
    st.integers(1, 2),
)
def test_an_element_with_a_third_of_the_text_is_never_left_out(
    name: str, tag: str, others: int
) -> None:
    body = f'<{tag} class="{name}">{ARTICLE}</{tag.partition(">")[0]}>'
    found = text(body + f"<div>{ARTICLE.replace('boats', 'rafts')}</div>" * others)
    assert found.count("boats") == 16


# Broken markup


@pytest.mark.parametrize("html", [
    f"<html><head><title>T</title></head></html><body><div>{ARTICLE}</div></body></html>",
    f"<html><body></body></html><html><body>{ARTICLE}</body></html>",
    f"<html><body><noscript><img src=x><div>{ARTICLE}</div></body></html>",
    f"<html><head><noscript><style>p {{}}</style></head><body>{ARTICLE}</body></html>",
    f"<body><button>Menu<div>{ARTICLE}</div></body>", f"<div><div><span>{ARTICLE}",
])  # fmt: skip
def test_broken_markup_does_not_empty_a_page(html: str) -> None:
    assert read(html, "a.html").text.count("boats") == 16


@pytest.mark.parametrize("mark", ["<article>", '<div class="entry-content">', "<main>"])
def test_a_surplus_end_tag_does_not_end_the_article(mark: str) -> None:
    end = f"</{mark[1:].split()[0].strip('>')}>"
    assert text(f"<div>{mark}{ARTICLE}{end}{ARTICLE}{end}</div>").count("boats") == 32


def test_a_noscript_with_a_notice_is_left_out() -> None:
    assert "JavaScript" not in text(f"<noscript>Enable JavaScript.</noscript>{ARTICLE}")
    with pytest.raises(NoText):
        read("<html><body><script>run()</script></body></html>", "a.html")


# What leads elsewhere, also inside of marked content


def test_links_at_the_end_and_announced_links_are_left_out_of_an_article() -> None:
    headlines = LINKS.replace("story", "story of the harbour")
    found = text(
        f"<article>{ARTICLE}<h3>Read more</h3><ul>{LINKS}</ul>{ARTICLE}<h2>Elsewhere</h2>"
        f"<ul>{headlines}</ul></article>"
    )
    assert "Another story" not in found
    assert "Read more" not in found
    assert "Elsewhere" not in found
    assert found.count("boats") == 32


def test_a_list_of_links_between_paragraphs_is_content() -> None:
    assert text(f"<article>{ARTICLE}<ul>{LINKS}</ul>{ARTICLE}</article>").count("Another") == 6


def test_a_list_of_names_below_a_heading_is_content_also_at_the_end() -> None:
    names = "".join(f'<li><a href="/{n}">npm {n}</a></li>' for n in range(6))
    found = text(f"<article>{ARTICLE}<h2>See also</h2><ul>{names}</ul></article>")
    assert found.count("- npm") == 6


def test_a_page_of_links_with_a_few_words_is_read_with_its_links() -> None:
    found = text(f"<main><div><p>{SENTENCE}</p></div><div><ul>{LINKS * 5}</ul></div></main>")
    assert found.count("Another story") == 30


def test_a_line_that_points_to_another_article_is_left_out() -> None:
    line = '<p><strong>Read more:</strong> <a href="/x">The carriage in the orchard</a></p>'
    assert "orchard" not in text(f"<article>{ARTICLE}{line}{ARTICLE}</article>")
    line = '<p>More was said of <a href="/x">the carriage in the orchard</a> by its owner.</p>'
    assert "orchard" in text(f"<article>{ARTICLE}{line}{ARTICLE}</article>")


def test_boxes_with_linked_headings_are_teasers_unless_the_page_consists_of_them() -> None:
    boxes = "".join(
        f'<div><h3><a href="/{n}">Story {n}</a></h3><p>{SENTENCE}</p></div>' for n in range(4)
    )
    assert "Story" not in text(f"<article>{ARTICLE}{boxes}</article>")
    assert text(f"<main><h1>All stories</h1>{boxes}</main>").count("Story") == 4


def test_headings_with_links_to_themselves_are_not_teasers() -> None:
    parts = "".join(
        f'<section><h2><a href="#s{n}">Part {n}</a></h2><p>{SENTENCE}</p></section>'
        for n in range(4)
    )
    assert text(f"<article>{ARTICLE}{parts}</article>").count("## Part") == 4


def test_comments_are_left_out_however_many_they_are_but_a_forum_keeps_them() -> None:
    comments = f'<div id="comments">{ARTICLE.replace("boats", "barges") * 5}</div>'
    assert "barges" not in text(f"<article><h1>A</h1>{ARTICLE}{comments}</article>")
    assert "barges" in text(f"<article><h1>A</h1><p>{SENTENCE}</p>{comments}</article>")


def test_comments_below_a_short_post_are_left_out_but_replies_in_a_forum_are_not() -> None:
    replies = f'<div class="comment-list"><div class="comment"><p>{SENTENCE}</p></div></div>'
    post = f"<article><h1>A</h1>{f'<p>{SENTENCE}</p>'.replace('boats', 'rafts') * 3}{replies * 9}"
    kind = '<script type=\'application/ld+json\'>{{"@type": "{}"}}</script>'
    assert "boats" not in text(kind.format("BlogPosting") + post)
    assert text(kind.format("DiscussionForumPosting") + post).count("boats") == 9


# Labels and announcements


@pytest.mark.parametrize("label", [
    "By Ann Author and Bo Writer", "May 3, 2024", "Updated 3. Mai 2024, 10:15", "4 min read", "Advertisement", "Share Tweet Email",
    "Photo: Ann Author", "Carl Court/Getty Images", "READ THE REST", "12 Comments", "© 2024 The Gazette",
])  # fmt: skip
def test_a_label_is_left_out_wherever_it_stands(label: str) -> None:
    assert label not in text(f"<article>{ARTICLE}<div>{label}</div>{ARTICLE}</article>")


@pytest.mark.parametrize("line", [
    "By stars.", "He was born on May 3, 2024.", "More was said.", "300 g flour", "Print was dead.", "Chorus:",
])  # fmt: skip
def test_a_short_sentence_in_the_text_is_no_label(line: str) -> None:
    assert line in text(f"<article>{ARTICLE}<p>{line}</p>{ARTICLE}</article>")


def test_what_a_label_announces_is_left_out_up_to_the_next_heading_of_its_rank() -> None:
    box = f"<h2>Related articles</h2><p>{SENTENCE.replace('boats', 'barges')}</p>"
    found = text(f"<article>{ARTICLE}{box}<h2>The nets</h2>{ARTICLE}</article>")
    assert "barges" not in found
    assert "Related" not in found
    assert "## The nets" in found
    whole = text(f"<article><h2>Related articles</h2>{ARTICLE}</article>")
    assert whole.count("boats") == 16


def test_an_article_that_is_there_three_times_is_read_once() -> None:
    found = text(f'<div><div itemprop="articleBody">{ARTICLE}</div></div>' * 3)
    assert found.count("boats") == 16


def test_an_article_in_an_article_with_a_linked_heading_is_a_teaser() -> None:
    inner = f'<article><h3><a href="/x">Rafts</a></h3><p>{SENTENCE}</p></article>'
    assert "Rafts" not in text(f"<article>{ARTICLE}{inner}{ARTICLE}</article>")


def test_a_column_beside_the_text_is_not_in_the_content_although_both_are_in_the_main_element() -> (
    None
):
    rail = f"<div><p>{SENTENCE.replace('boats', 'barges')}</p></div>"
    found = text(f"<main><div><h1>Nets</h1><div>{ARTICLE}</div></div>{rail}</main>")
    assert "barges" not in found
    assert found.startswith("# Nets\n\n0. The boats")


def test_the_summary_between_headline_and_body_is_kept() -> None:
    found = text(
        f"<div><h1>Nets</h1><p>{SENTENCE.replace('boats', 'barges')}</p><div class='meta'>3 May</div>"
        f"<div class='article-body'>{ARTICLE}</div></div>"
    )
    assert found.startswith("# Nets\n\nThe barges")


@pytest.mark.parametrize("body", [
    "<div>" * 200 + "".join(f'<h2><a href="/{n}">x</a></h2>' for n in range(2_000)),
    "<ul>" + '<li class="comment"><h3><a href="/x">x</a></h3></li>' * 5_000,
    "<article>" * 240 + SENTENCE, '<div class="post">x</div>' * 5_000, f"<p class='{'a-' * 50_000}'>{SENTENCE}",
])  # fmt: skip
def test_hostile_pages_are_read(body: str) -> None:
    assert text(f"<p>{SENTENCE}</p>{body}")
