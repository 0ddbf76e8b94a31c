// What a search found, as it is shown in lists.

import { h, icon, language, plain, stored } from "./dom.js";
import { day } from "./format.js";
import { code, gist, line, markdown, Marks } from "./markdown.js";
import { ranges } from "./offsets.js";
import { link } from "./route.js";
import { matched } from "./words.js";

const PROGRAMS = new Set(
	"py js ts tsx jsx c h cpp hpp cc rs go java kt rb php sh sql css json yaml yml toml xml".split(" "),
);

const SINCE = {
	changed: "The file has changed since it was read.",
	gone: "The file is gone from this machine.",
};

/** Where a hit is read: its document at the passage, or the memory. */
export function place(hit) {
	if (hit.kind === "memory") return link(["memory", hit.id], { words: matched(hit) });
	return link(["document", hit.id], { chunk: hit.chunk, line: hit.line || hit.first_line, words: matched(hit) });
}

export const key = (hit) => (hit.kind === "memory" ? `m${hit.id}` : `c${hit.chunk}`);

/** The latest search: where its results are, and what it found, for those who read on from hit to hit. */
export const trail = { results: "", places: [] };

/** Where the address of something that is read stands among what was found last; -1 if it does not. */
export const found = (address) => trail.places.findIndex((each) => samePlace(each, address));

function samePlace(one, other) {
	const name = (address) => /^(#\/(?:memory|document)\/[^?]*)/.exec(address)?.[1];
	const chunk = (address) => /[?&]chunk=(\d+)/.exec(address)?.[1];
	return name(one) === name(other) && (chunk(other) === undefined || chunk(one) === chunk(other));
}

/** A title for anything that was found; memories have none of their own. */
export function title(hit) {
	return hit.kind === "memory" ? hit.thread : hit.title || hit.path;
}

/** `path:line` and page, or when and by whom a memory was stored. */
export function where(hit) {
	if (hit.kind === "memory") return h("span.where", `${hit.source} · ${day(hit.created_at)} · memory:${hit.id}`);
	const page = hit.page == null ? "" : ` · p. ${hit.page}`;
	return stored("span", `${hit.place ?? hit.path}${page}`, { class: "where mono", dir: "ltr" });
}

/** The lines that match, numbered, with what matched marked; `few` leaves out the others. */
export function snippet(hit, { few = false } = {}) {
	// Lines that only begin or end a block of code, or divide a table, say nothing here.
	const all = (hit.snippet ?? []).filter((row) => row.text.trim() !== "" && !/^\s*(?:(?:```|~~~)\w*|[|\s:-]+)$/.test(row.text));
	const hits = all.filter((row) => row.highlights.length);
	const rows =
		few && hits.length
			? hits
			: all.filter((row, at) => row.highlights.length || at < all.length - 1 || !row.text.startsWith("#"));
	const program = PROGRAMS.has(hit.file_type);
	return h(
		program ? "div.snippet.program-text" : "div.snippet",
		{ lang: language(rows.map((row) => row.text).join(" ")) },
		rows.map((row) => [
			h("span.number", { "aria-hidden": "true" }, hit.kind === "memory" ? "" : String(row.line)),
			shownLine(row, program),
		]),
	);
}

function shownLine({ text, highlights = [] }, program) {
	const marks = new Marks([], ranges(text, highlights));
	if (!program) return line(text, marks);
	const element = h("span", { dir: "auto" });
	marks.append(element, text, 0);
	return element;
}

/** The text of a passage, as what it is. */
export const passage = (hit) => (PROGRAMS.has(hit.file_type) ? code : markdown)(hit.text ?? "");

/** How sure a match is, as a word and three steps. */
export function confidence(hit) {
	if (hit.confidence == null) return null;
	const steps = { strong: 3, possible: 2, weak: 1 }[hit.confidence];
	return h(
		"span.confidence",
		{ class: `confidence ${hit.confidence}`, title: `A ${hit.confidence} match` },
		h("span", hit.confidence),
		h(
			"span.steps",
			{ "aria-hidden": "true" },
			[1, 2, 3].map((step) => h(step <= steps ? "i.on" : "i")),
		),
	);
}

/** How each retriever saw a hit, folded away until it is asked for. */
export function details(hit) {
	const { scores = {} } = hit;
	const rows = [
		["words", scores.text_rank == null ? "not among the best" : `rank ${scores.text_rank}`],
		["meaning", scores.vector_rank == null ? "not among the best" : `rank ${scores.vector_rank}`],
		["cosine", scores.vector == null ? "" : scores.vector.toFixed(3)],
		["passage", hit.position == null ? "" : `lines ${hit.first_line}–${hit.last_line}`],
	];
	return h(
		"details.why",
		h("summary", "details"),
		h(
			"dl.facts.ranks",
			rows.filter(([, value]) => value).map(([name, value]) => [h("dt", name), h("dd", value)]),
		),
	);
}

/** One hit of the list. `facts` stand in the line of its place, `more` below its snippet. */
export function item(hit, facts = [], ...more) {
	return h(
		"li.hit",
		{ data: { key: key(hit) } },
		h(
			"div.hit-head",
			h("h2", h("a.hit-link", { href: place(hit) }, icon(hit.kind), stored("span", title(hit)))),
			confidence(hit),
		),
		h("div.hit-place", where(hit), headings(hit), facts),
		hit.file_state ? h("p.small.muted", SINCE[hit.file_state]) : null,
		snippet(hit),
		details(hit),
		more,
	);
}

function headings(hit) {
	const path = (hit.headings ?? []).filter((each) => each !== hit.title);
	return path.length ? stored("span.headings", path.join(" › ")) : null;
}

/** A short form for a hit where space is scarce: map, similar passages, columns. */
export function brief(hit, ...more) {
	const text = plain(gist((hit.text ?? "").slice(0, 400)));
	return h(
		"li.brief",
		{ data: { key: key(hit) } },
		h("a.hit-link", { href: place(hit) }, stored("span", title(hit))),
		where(hit),
		hit.snippet?.length ? snippet(hit, { few: true }) : h("p.brief-text", { dir: "auto" }, text),
		more,
	);
}
