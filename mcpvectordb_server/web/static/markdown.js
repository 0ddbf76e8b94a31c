// Markdown as elements: headings, lists, tables, code, quotes, emphasis, and the HTML that authors mix
// in: its structure is made of elements of the page's own, its attributes are dropped, and what is no
// known tag stays the text that it is. Images are named, never loaded.
// Each piece of text knows its offset in the source, so that cited passages can be marked.

import { h, outwards, plain } from "./dom.js";
import { tokens } from "./highlight.js";
import { split } from "./offsets.js";

const DEEPEST = 12; // quotes in lists in quotes …: beyond this depth they are paragraphs
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+|$)/;
const UNDERLINE = /^ {0,3}(=+|-{2,})[ \t]*$/;
const DELIMITERS = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const ROW = /^\|.*\|\s*$/;
const DEFINITION = /^ {0,3}\[([^\]^][^\]]{0,199})\]:\s+<?([^\s<>]{1,2000})>?(?:\s+(?:"[^"]*"|'[^']*'|\([^)]*\)))?\s*$/;
const HTML_HEADING = /^ {0,3}<h([1-6])\b[^<>]{0,500}>/i;
const ENTITY = /^&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|([a-zA-Z]{2,8}));/;
const ENTITIES = {
	amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", trade: "™", mdash: "—",
	ndash: "–", hellip: "…", larr: "←", rarr: "→", times: "×", middot: "·", bull: "•", laquo: "«", raquo: "»",
	lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”", deg: "°", euro: "€", sect: "§", szlig: "ß",
};
const TAG = /^<(\/?)([a-zA-Z][a-zA-Z0-9]{0,15})((?:\s[^<>]{0,1000})?)\/?>/;
// Elements with content that mean the same here; others of HTML are passed over, their content is not.
const KEPT_TAGS = { b: "strong", strong: "strong", i: "em", em: "em", code: "code", kbd: "kbd", del: "del", s: "del", sub: "sub", sup: "sup", tt: "code" };
const OTHER_TAGS = new Set(
	"a abbr address article aside blockquote center dd details div dl dt figcaption figure font footer header hr img li main nav ol p picture section small source span summary table tbody td th thead tr u ul video".split(
		" ",
	),
);
const CJK = /[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]/;

/** Marks of a text: `cited` and `matches` are sorted ranges `[start, end]` in UTF-16 units. */
export class Marks {
	constructor(cited = [], matches = []) {
		this.cited = cited;
		this.matches = matches;
	}

	/** Append `text`, which stands at `at` in the source, with what is marked in it. */
	append(parent, text, at) {
		for (const [part, cited, from] of pieces(text, at, this.cited)) {
			const place = cited ? parent.appendChild(h("mark.cited")) : parent;
			for (const [word, match] of pieces(part, from, this.matches)) {
				place.append(match ? h("mark", word) : word);
			}
		}
	}
}

function pieces(text, at, marks) {
	if (!marks.length) return [[text, false, at]];
	const shifted = marks
		.map(([start, end]) => [start - at, end - at])
		.filter(([start, end]) => end > 0 && start < text.length);
	let from = at;
	return split(text, 0, text.length, shifted).map(([part, marked]) => {
		from += part.length;
		return [part, marked, from - part.length];
	});
}

/**
 * The blocks of a Markdown text; top-level ones carry their line, counted from `firstLine`. A first
 * heading that repeats `title`, which stands above the text already, is left out. With `breaks` a
 * line of a paragraph is one that is shown.
 */
export function markdown(text, marks = new Marks(), firstLine = 1, title = "", breaks = false) {
	marks.breaks = breaks;
	const all = lines(text, firstLine);
	marks.targets = new Map();
	for (const { text } of all) {
		const found = DEFINITION.exec(text);
		if (found) marks.targets.set(found[1].toLowerCase(), found[2]);
	}
	const made = blocks(all, marks, 0);
	const first = made.find((block) => !block.matches(".front-matter"));
	if (title && firstLine === 1 && first?.matches(".level-1") && first.textContent.trim() === plain(title).trim())
		made.splice(made.indexOf(first), 1);
	return made;
}

/** The blocks of a text without syntax: paragraphs whose lines and spaces are kept. */
export function paragraphs(text, marks = new Marks(), firstLine = 1) {
	return grouped(lines(text, firstLine), (line) => line.text.trim() === "").map((group) => {
		const block = h("p.plain", { data: { line: group[0].number } });
		group.forEach((line, index) =>
			marks.append(block, index < group.length - 1 ? `${line.text}\n` : line.text, line.at),
		);
		return block;
	});
}

/** The lines of a program with their numbers, in blocks of a hundred. */
export function code(text, marks = new Marks(), firstLine = 1, language = "") {
	const all = lines(text, firstLine);
	const result = [];
	const colours = new Colours(text, language, marks);
	for (let at = 0; at < all.length; at += 100) {
		const block = h("pre.program", { tabindex: 0, data: { line: all[at].number } });
		for (const line of all.slice(at, at + 100)) {
			const row = h("span.program-line", { data: { line: line.number } });
			colours.append(row, `${line.text}\n`, line.at);
			block.append(row);
		}
		result.push(block);
	}
	return result;
}

/** Text of a program, appended piece after piece from its beginning to its end. */
class Colours {
	constructor(text, language, marks, start = 0) {
		Object.assign(this, { marks, found: tokens(text, language), next: 0, start });
	}

	append(parent, text, at) {
		const end = at + text.length;
		let from = at;
		for (; this.next < this.found.length; this.next += 1) {
			const [first, last, kind] = this.found[this.next];
			const [begin, finish] = [Math.max(from, first + this.start), Math.min(end, last + this.start)];
			if (begin >= end) break;
			if (finish <= begin) continue;
			this.marks.append(parent, text.slice(from - at, begin - at), from);
			this.marks.append(parent.appendChild(h(`span.token-${kind}`)), text.slice(begin - at, finish - at), begin);
			from = finish;
			if (last + this.start > end) break;
		}
		if (from < end) this.marks.append(parent, text.slice(from - at), from);
	}
}

/** One line of a Markdown text for a list: its emphasis and code, without links and block signs. */
export function line(text, marks = new Marks()) {
	const element = h("span", { dir: "auto" });
	if (ROW.test(text)) {
		const filled = cells({ text, at: 0 }).filter((cell) => cell.text);
		filled.forEach((cell, index) => {
			if (index) element.append(" · ");
			inline(element, [cell], marks);
		});
		return element;
	}
	const sign = /^\s*(?:#{1,6}\s+|>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?)?/.exec(text)[0];
	if (/[-*+]/.test(sign)) element.append("• ");
	inline(element, [{ text: text.slice(sign.length), at: sign.length }], marks);
	for (const anchor of element.querySelectorAll("a")) anchor.replaceWith(...anchor.childNodes);
	return element;
}

/** A text in one line, without the signs of headings, lists, emphasis and code. */
export function gist(text) {
	return text
		.replace(/^\s*(?:#{1,6}|[-*+>]|\d{1,3}\.)\s+/gm, "")
		.replace(/\*\*|`|^---$/gm, "")
		.replace(/\s+/g, " ")
		.trim();
}

function lines(text, firstLine) {
	let at = 0;
	return text.split("\n").map((line, index) => {
		const found = { text: line.replace(/\r$/, ""), at, number: firstLine + index };
		at += line.length + 1;
		return found;
	});
}

function grouped(all, separates) {
	const groups = [[]];
	for (const line of all) {
		if (separates(line)) groups.push([]);
		else groups.at(-1).push(line);
	}
	return groups.filter((group) => group.length);
}

/** An element of several blocks, each of a direction of its own, in that of the first. */
function directed(element) {
	if (/^\P{L}*[\u0590-\u08ff\ufb1d-\ufefc]/u.test(element.textContent)) element.dir = "rtl";
	return element;
}

const cut = (line, length) => ({
	...line,
	text: line.text.slice(length),
	at: line.at + Math.min(length, line.text.length),
});

// ---- blocks

function blocks(all, marks, depth) {
	const result = [];
	let at = 0;
	while (at < all.length) {
		if (all[at].text.trim() === "") {
			at += 1;
			continue;
		}
		if (DEFINITION.test(all[at].text)) {
			at += 1;
			continue;
		}
		const [element, next] = block(all, at, marks, depth);
		if (depth === 0) element.dataset.line = all[at].number;
		// A line of tags alone, such as <div>, leaves nothing to show.
		if (element.tagName !== "P" || element.childNodes.length) result.push(element);
		at = next;
	}
	return result;
}

function block(all, at, marks, depth) {
	const { text } = all[at];
	if (depth === 0 && at === 0 && all[0].number === 1 && text.trim() === "---") {
		const end = all.findIndex((line, index) => index > 0 && /^(---|\.\.\.)\s*$/.test(line.text));
		if (end > 0 && end < 200) return [verbatim(all.slice(1, end), "front-matter", marks), end + 1];
	}
	if (FENCE.test(text)) return fenced(all, at, marks);
	if (HEADING.test(text)) return [heading(all[at], marks), at + 1];
	if (HTML_HEADING.test(text)) return htmlHeading(all, at, marks) ?? paragraph(all, at, marks);
	if (RULE.test(text)) return [h("hr"), at + 1];
	if (depth < DEEPEST && QUOTE.test(text)) return quote(all, at, marks, depth);
	if (depth < DEEPEST && ITEM.test(text)) return list(all, at, marks, depth);
	if (/^(?: {4}|\t)/.test(text)) return indented(all, at, marks);
	if (text.includes("|") && DELIMITERS.test(all[at + 1]?.text ?? "") && all[at + 1].text.includes("-"))
		return table(all, at, marks);
	// The rest of a table whose headings stand before what is shown.
	if (ROW.test(text) && ROW.test(all[at + 1]?.text ?? "")) return table(all, at, marks, false);
	return paragraph(all, at, marks);
}

function begins(line) {
	return (
		FENCE.test(line.text) ||
		HEADING.test(line.text) ||
		HTML_HEADING.test(line.text) ||
		DEFINITION.test(line.text) ||
		RULE.test(line.text) ||
		QUOTE.test(line.text) ||
		ITEM.test(line.text)
	);
}

function verbatim(rows, kind, marks, language = "") {
	const block = h("pre", { class: kind, tabindex: 0 });
	const inside = block.appendChild(h("code"));
	// Lines of a block inside of a list lie apart in the source: then it is left uncoloured.
	const apart = rows.some((line, index) => index && line.at !== rows[index - 1].at + rows[index - 1].text.length + 1);
	const text = apart ? "" : rows.map((line) => line.text).join("\n");
	const colours = new Colours(text, language, marks, rows[0]?.at ?? 0);
	rows.forEach((line, index) =>
		colours.append(inside, index < rows.length - 1 ? `${line.text}\n` : line.text, line.at),
	);
	return block;
}

function fenced(all, at, marks) {
	const [, fence, info] = FENCE.exec(all[at].text);
	const closes = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}[ \\t]*$`);
	let end = at + 1;
	while (end < all.length && !closes.test(all[end].text)) end += 1;
	const language = info.trim().split(/\s/)[0];
	const block = verbatim(all.slice(at + 1, end), "code", marks, language);
	if (language) block.dataset.language = plain(language).slice(0, 30);
	return [block, end + 1];
}

function indented(all, at, marks) {
	let end = at;
	while (end < all.length && (/^(?: {4}|\t)/.test(all[end].text) || all[end].text.trim() === "")) end += 1;
	while (all[end - 1].text.trim() === "") end -= 1;
	const rows = all.slice(at, end).map((line) => cut(line, line.text.startsWith("\t") ? 1 : 4));
	return [verbatim(rows, "code", marks), end];
}

function heading(line, marks) {
	const [, hashes, content = ""] = HEADING.exec(line.text);
	const start = line.text.indexOf(content, line.text.indexOf(hashes) + hashes.length);
	// The page has its own first heading: those of a text begin at the second level.
	const block = h(`h${Math.min(6, hashes.length + 1)}`, { class: `level-${hashes.length}`, dir: "auto" });
	inline(block, [{ ...cut(line, start), text: content }], marks);
	return block;
}

/** A heading of HTML, whose tags may stand on lines of their own. */
function htmlHeading(all, at, marks) {
	const [open, level] = HTML_HEADING.exec(all[at].text);
	const closing = new RegExp(`</h${level}>\\s*$`, "i");
	const rows = all.slice(at, at + 20);
	const last = rows.findIndex((line) => closing.test(line.text));
	if (last < 0) return null;
	rows.length = last + 1;
	rows[0] = cut(rows[0], open.length);
	rows[last] = { ...rows[last], text: rows[last].text.replace(closing, "") };
	const block = h(`h${Math.min(6, Number(level) + 1)}`, { class: `level-${level}`, dir: "auto" });
	inline(block, rows.filter((line) => line.text.trim()).map((line) => cut(line, line.text.search(/\S/))), marks);
	return [block, at + last + 1];
}

function quote(all, at, marks, depth) {
	let end = at;
	while (end < all.length && (QUOTE.test(all[end].text) || (all[end].text.trim() !== "" && !begins(all[end]))))
		end += 1;
	const inside = all.slice(at, end).map((line) => cut(line, QUOTE.exec(line.text)?.[0].length ?? 0));
	return [directed(h("blockquote", blocks(inside, marks, depth + 1))), end];
}

function list(all, at, marks, depth) {
	const first = ITEM.exec(all[at].text);
	const ordered = /\d/.test(first[2]);
	const element = h(ordered ? "ol" : "ul");
	if (ordered && Number.parseInt(first[2], 10) !== 1)
		element.setAttribute("start", String(Number.parseInt(first[2], 10)));
	let next = at;
	while (next < all.length) {
		const start = ITEM.exec(all[next].text);
		if (!start || /\d/.test(start[2]) !== ordered || RULE.test(all[next].text)) break;
		const end = itemEnd(all, next, start[0].length);
		element.append(item(all.slice(next, end), start[0].length, marks, depth));
		next = end;
	}
	return [directed(element), next];
}

/** Where an item ends: it goes on over indented lines, and over others that continue a paragraph. */
function itemEnd(all, at, width) {
	let end = at + 1;
	while (end < all.length) {
		const { text } = all[end];
		const indent = /^[ \t]*/.exec(text)[0].replaceAll("\t", "    ").length;
		if (text.trim() === "") {
			const after = all.slice(end).findIndex((line) => line.text.trim() !== "");
			if (after < 0) return end;
			const next = all[end + after];
			if (/^[ \t]*/.exec(next.text)[0].replaceAll("\t", "    ").length < Math.min(width, 2))
				return sameList(next) ? end + after : end;
			end += after;
		} else if (indent >= Math.min(width, 2)) end += 1;
		else if (begins(all[end]) || all[end - 1].text.trim() === "") return end;
		else end += 1;
	}
	return end;
}

const sameList = (line) => ITEM.test(line.text) && !RULE.test(line.text);

function item(rows, width, marks, depth) {
	const element = h("li", { dir: "auto" });
	let inside = rows.map((line, index) =>
		cut(line, index === 0 ? width : Math.min(width, /^[ \t]*/.exec(line.text)[0].length)),
	);
	const box = /^\[([ xX])\] /.exec(inside[0].text);
	if (box) {
		element.className = "task";
		element.append(
			h("span", { role: "img", "aria-label": box[1] === " " ? "to do" : "done" }, box[1] === " " ? "☐ " : "☑ "),
		);
		inside = [cut(inside[0], 4), ...inside.slice(1)];
	}
	const parts = blocks(inside, marks, depth + 1);
	// One paragraph stands in its item without a box of its own.
	if (parts[0]?.tagName === "P") parts.splice(0, 1, ...parts[0].childNodes);
	element.append(...parts);
	return element;
}

function table(all, at, marks, headed = true) {
	const align = !headed ? [] : cells(all[at + 1]).map(({ text }) =>
		text.trim().endsWith(":") ? (text.trim().startsWith(":") ? "middle" : "end") : "",
	);
	let end = headed ? at + 2 : at;
	while (end < all.length && all[end].text.includes("|") && all[end].text.trim() !== "") end += 1;
	const row = (line, tag) =>
		h(
			"tr",
			cells(line)
				.slice(0, 100)
				.map((cell, index) => {
					const element = h(tag, { dir: "auto", class: align[index] || null, scope: tag === "th" ? "col" : null });
					inline(element, [cell], marks);
					return element;
				}),
		);
	const head = headed ? row(all[at], "th") : null;
	const body = h("tbody", all.slice(headed ? at + 2 : at, end).map((line) => row(line, "td")));
	return [framed(head, body), end];
}

/** A table that scrolls by itself, with numbers below each other; its headings sort it. */
function framed(head, body) {
	const rows = [...body.children];
	[...(head?.children ?? [])].forEach((cell, index) => {
		if (rows.length > 1 && rows.every((row) => !Number.isNaN(number(value(row, index)))))
			for (const each of [cell, ...rows.map((row) => row.children[index])]) each?.classList.add("end");
		if (rows.length > 2) sortable(cell, index, body);
	});
	for (const cell of body.querySelectorAll("td")) if (cell.textContent.length < 16) cell.classList.add("short");
	const inside = h("table", head ? h("thead", head) : null, body);
	return directed(h("div.table", { role: "region", "aria-label": "Table", tabindex: 0 }, inside));
}

const value = (row, index) => row.children[index]?.textContent.trim() ?? "";
const number = (text) => Number(text.replace(/[,\s%$€£]/g, ""));

/** Let a heading sort the rows below it: by number where all are numbers, else as words. */
function sortable(cell, index, body) {
	const control = h("button", { type: "button", class: "sort", title: "Sort by this column" }, ...cell.childNodes);
	cell.replaceChildren(control);
	control.addEventListener("click", () => {
		const down = cell.ariaSort === "ascending";
		for (const other of cell.parentElement.children) other.removeAttribute("aria-sort");
		cell.setAttribute("aria-sort", down ? "descending" : "ascending");
		const rows = [...body.children];
		const numeric = rows.every((row) => !Number.isNaN(number(value(row, index))));
		const order = numeric
			? (one, other) => number(one) - number(other)
			: (one, other) => one.localeCompare(other, undefined, { numeric: true });
		const sign = down ? -1 : 1;
		body.replaceChildren(...rows.sort((one, other) => sign * order(value(one, index), value(other, index))));
	});
}

/** The cells of a row; bars in code or after a backslash do not separate. */
function cells(line) {
	const found = [];
	let start = 0;
	let coded = false;
	for (let at = 0; at < line.text.length; at += 1) {
		const character = line.text[at];
		if (character === "\\") at += 1;
		else if (character === "`") coded = !coded;
		else if (character === "|" && !coded) {
			found.push([start, at]);
			start = at + 1;
		}
	}
	found.push([start, line.text.length]);
	if (line.text.slice(...found[0]).trim() === "") found.shift();
	if (found.length && line.text.slice(...found.at(-1)).trim() === "") found.pop();
	return found.map(([from, to]) => {
		const raw = line.text.slice(from, to);
		const skipped = raw.length - raw.trimStart().length;
		return { ...line, text: raw.trim(), at: line.at + from + skipped };
	});
}

function paragraph(all, at, marks) {
	let end = at + 1;
	while (end < all.length && all[end].text.trim() !== "" && !begins(all[end]) && !UNDERLINE.test(all[end].text))
		end += 1;
	const rows = all.slice(at, end).map((line) => cut(line, line.text.length - line.text.trimStart().length));
	const underline = UNDERLINE.exec(all[end]?.text ?? "");
	const level = underline ? (underline[1][0] === "=" ? 1 : 2) : 0;
	const element = level ? h(`h${level + 1}`, { class: `level-${level}`, dir: "auto" }) : h("p", { dir: "auto" });
	inline(element, rows, marks);
	return [element, underline ? end + 1 : end];
}

// ---- inside of a block

/** Append the inline content of some lines: code, emphasis, links; the rest is text. */
function inline(parent, rows, marks) {
	let length = 0;
	const starts = rows.map((line) => {
		const start = length;
		length += line.text.length + 1;
		return start;
	});
	new Inline(rows.map((line) => line.text).join("\n"), starts, rows, marks).parse(
		parent,
		0,
		Math.max(0, length - 1),
		0,
	);
}

class Inline {
	constructor(text, starts, rows, marks) {
		Object.assign(this, { text, starts, rows, marks, known: new Map() });
	}

	parse(parent, from, to, depth) {
		let shown = from;
		let at = from;
		while (at < to) {
			const found = depth < DEEPEST ? this.node(at, to, depth) : null;
			if (found) {
				this.show(parent, shown, at);
				if (found.element) parent.append(found.element);
				at = found.end;
				shown = found.shown ?? at;
			} else at += 1;
		}
		this.show(parent, shown, to);
	}

	/** What begins at an offset: `element` and the offset of its `end`; null if it is plain text. */
	node(at, to, depth) {
		switch (this.text[at]) {
			case "\\":
				return /[!-/:-@[-`{-~]/.test(this.text[at + 1] ?? "") && at + 1 < to ? { end: at + 2, shown: at + 1 } : null;
			case "`":
				return this.codeSpan(at, to);
			case "*":
			case "_":
			case "~":
				return this.emphasis(at, to, depth);
			case "!":
				return this.text[at + 1] === "[" ? this.link(at + 1, to, depth, true) : null;
			case "[":
				return this.link(at, to, depth, false);
			case "&":
				return this.entity(at, to);
			case "<":
				return this.autolink(at, to, /^<(https?:\/\/[^\s<>]{1,2000})>/) ?? this.tag(at, to, depth);
			case "h":
				return /[\p{L}\p{N}]/u.test(this.text[at - 1] ?? "")
					? null
					: this.autolink(at, to, /^(https?:\/\/[^\s<>"'`|\\^{}）】」，。、]{1,2000})/);
			default:
				return null;
		}
	}

	/** The next `needle` before `to`; the last one found is remembered, or hostile texts cost n². */
	next(needle, from, to) {
		let known = this.known.get(needle);
		if (!known || from < known.from || from > known.found) {
			const found = this.text.indexOf(needle, from);
			known = { from, found: found < 0 ? Infinity : found };
			this.known.set(needle, known);
		}
		return known.found + needle.length <= to ? known.found : -1;
	}

	/** A character that is written as an entity of HTML. */
	entity(at, to) {
		const found = ENTITY.exec(this.text.slice(at, Math.min(to, at + 10)));
		if (!found) return null;
		const [whole, decimal, hexadecimal, name] = found;
		const code = decimal ? Number(decimal) : Number.parseInt(hexadecimal, 16);
		const character = name ? ENTITIES[name] : code > 0 && code < 0x110000 ? plain(String.fromCodePoint(code)) : "";
		if (!character) return null;
		const element = document.createDocumentFragment();
		const row = this.rowOf(at);
		this.marks.append(element, character, this.rows[row].at + at - this.starts[row]);
		return { element, end: at + whole.length };
	}

	codeSpan(at, to) {
		const fence = /^`+/.exec(this.text.slice(at, at + 20))[0];
		const end = this.next(fence, at + fence.length, to);
		if (end < 0) return null;
		const element = h("code");
		this.show(element, at + fence.length, end);
		return { element, end: end + fence.length };
	}

	emphasis(at, to, depth) {
		const sign = this.text[at];
		const width = this.text[at + 1] === sign ? 2 : 1;
		if (width === 2 && sign !== "~" && this.text[at + 2] === sign) return this.strongEmphasis(at, to, depth);
		const after = this.text[at + width];
		if ((sign === "~" && width === 1) || after === undefined || /\s/.test(after) || after === sign) return null;
		if (sign === "_" && /[\p{L}\p{N}]/u.test(this.text[at - 1] ?? "")) return null;
		const fence = sign.repeat(width);
		let end = this.next(fence, at + width, Math.min(to, at + 5000));
		for (let tries = 0; end >= 0 && tries < 20; tries += 1) {
			if (this.closes(fence, end)) {
				const element = h(sign === "~" ? "del" : width === 2 ? "strong" : "em");
				this.parse(element, at + width, end, depth + 1);
				return { element, end: end + width };
			}
			end = this.next(fence, end + (this.text[end + width] === sign ? width + 1 : width), Math.min(to, at + 5000));
		}
		return null;
	}

	/** ***Both***. */
	strongEmphasis(at, to, depth) {
		const fence = this.text[at].repeat(3);
		const end = this.next(fence, at + 3, Math.min(to, at + 5000));
		if (end <= at + 3 || /\s/.test(this.text[at + 3]) || !this.closes(fence, end)) return null;
		const inside = h("em");
		this.parse(inside, at + 3, end, depth + 1);
		return { element: h("strong", inside), end: end + 3 };
	}

	closes(fence, end) {
		const next = this.text[end + fence.length] ?? "";
		if (/\s/.test(this.text[end - 1])) return false;
		if (fence.length === 1 && (next === fence || this.text[end - 1] === fence)) return false;
		return fence[0] !== "_" || !/[\p{L}\p{N}]/u.test(next);
	}

	link(at, to, depth, image) {
		const close = this.closing(at, to);
		if (close < 0) return null;
		const rest = this.text.slice(close, Math.min(to, close + 2000));
		const target = /^\]\(\s*<?([^\s<>]*?)>?(?:\s+(?:"[^"]{0,500}"|'[^']{0,500}'))?\s*\)/.exec(rest);
		const named = target ? null : /^\](?:\[([^\]]{0,200})\])?/.exec(rest);
		const address = target?.[1] ?? this.marks.targets?.get((named[1] || this.text.slice(at + 1, close)).toLowerCase());
		const end = close + (target ?? named)[0].length;
		if (!target && !image && this.text[at + 1] === "^" && close < at + 30) {
			const note = h("sup");
			this.show(note, at + 2, close);
			return { element: note, end: close + 1 };
		}
		// What a name stands for may be in a part of the text that is not shown: its words are, without a link.
		const unknown = named?.[1] !== undefined && !/[\p{L}\p{N})\]]/u.test(this.text[at - 1] ?? "") && !/^\d/.test(named[1]);
		if (address === undefined && !unknown) return null;
		const words = h("span", { dir: "auto" });
		this.parse(words, at + 1, close, depth + 1);
		return { element: image ? imageName(words, address) : address ? outwards(address, words) : words, end };
	}

	/** Where the bracket at an offset closes; -1 if it does not, or encloses too many others. */
	closing(at, to) {
		const last = Math.min(to, at + 2000);
		if (this.next("]", at + 1, last) < 0) return -1;
		for (let next = at + 1, open = 1; next < last && open < 4; next += 1) {
			if (this.text[next] === "\\") next += 1;
			else if (this.text[next] === "[") open += 1;
			else if (this.text[next] === "]" && (open -= 1) === 0) return next;
		}
		return -1;
	}

	/** A tag of HTML: emphasis, links, breaks and names of images are kept, other tags passed over. */
	tag(at, to, depth) {
		if (this.text.startsWith("<!--", at)) {
			const end = this.next("-->", at + 4, to);
			return end < 0 ? null : { end: end + 3 };
		}
		const found = TAG.exec(this.text.slice(at, Math.min(to, at + 1100)));
		if (!found) return null;
		const [whole, closing, given, attributes] = found;
		const name = given.toLowerCase();
		const end = at + whole.length;
		const kept = KEPT_TAGS[name];
		if (name === "br") return { element: h("br"), end };
		if (!kept && !OTHER_TAGS.has(name)) return null;
		if (closing) return { end };
		if (name === "img") {
			const alt = attribute(attributes, "alt");
			return { element: alt ? imageName(h("span", plain(alt)), attribute(attributes, "src")) : null, end };
		}
		if (name === "li") return { element: h("span", "• "), end };
		if (name === "table") {
			const last = this.next(`</${given}>`, end, to);
			if (last >= 0) return { element: this.table(end, last, depth), end: last + given.length + 3 };
		}
		const close = kept || name === "a" ? this.next(`</${given}>`, end, Math.min(to, end + 5000)) : -1;
		if (close < 0) return { end };
		const inside = h(kept ?? "span");
		this.parse(inside, end, close, depth + 1);
		const address = kept ? "" : attribute(attributes, "href");
		return { element: address ? outwards(address, inside) : inside, end: close + given.length + 3 };
	}

	/** A table of HTML: what stands in its cells is parsed like any other text. */
	table(from, to, depth) {
		const rows = [];
		let cell = null;
		let start = from;
		for (const part of this.text.slice(from, to).matchAll(/<(\/?)(tr|td|th)(?:\s[^<>]{0,500})?>/gi)) {
			if (cell) this.parse(cell, start, from + part.index, depth + 1);
			cell = null;
			const name = part[2].toLowerCase();
			start = from + part.index + part[0].length;
			if (part[1]) continue;
			if (name === "tr" || !rows.length) rows.push(h("tr"));
			if (name === "tr") continue;
			cell = h(name, { dir: "auto" });
			rows.at(-1).append(cell);
		}
		if (cell) this.parse(cell, start, to, depth + 1);
		const headed = rows[0] && [...rows[0].children].every((each) => each.tagName === "TH");
		return framed(headed ? rows.shift() : null, h("tbody", rows));
	}

	autolink(at, to, pattern) {
		const found = pattern.exec(this.text.slice(at, Math.min(to, at + 2010)));
		if (!found) return null;
		const [whole, address] = found;
		const trimmed = whole === address ? address.replace(/[.,;:!?)\]*_]+$/, "") : address;
		if (trimmed.length < 9) return null;
		const start = at + (whole === address ? 0 : 1);
		const words = h("span");
		this.show(words, start, start + trimmed.length);
		return { element: outwards(trimmed, words), end: whole === address ? at + trimmed.length : at + whole.length };
	}

	/** Append text as it stands, line by line, because lines lie apart in the source. */
	show(parent, from, to) {
		for (let row = this.rowOf(from); row < this.rows.length && from < to; row += 1) {
			const start = this.starts[row];
			const end = Math.min(to, start + this.rows[row].text.length);
			if (end > from) {
				const broken = end < to && (this.marks.breaks ? /\s*$/ : /( {2,}|\\)$/).exec(this.text.slice(from, end));
				this.marks.append(
					parent,
					this.text.slice(from, broken ? end - broken[0].length : end),
					this.rows[row].at + from - start,
				);
				if (broken) parent.append(h("br"));
			}
			if (to > end && !(CJK.test(this.text[end - 1] ?? "") && CJK.test(this.text[end + 1] ?? "")))
				this.marks.append(parent, "\n", this.rows[row].at + end - start);
			from = end + 1;
		}
	}

	rowOf(at) {
		let low = 0;
		let high = this.starts.length - 1;
		while (low < high) {
			const middle = (low + high + 1) >> 1;
			if (this.starts[middle] <= at) low = middle;
			else high = middle - 1;
		}
		return low;
	}
}

/** The name of an image in place of it. */
function imageName(words, address) {
	return h("span.image", { title: plain(address) }, h("span.image-word", "image "), words);
}

function attribute(attributes, name) {
	const found = new RegExp(`\\s${name}\\s*=\\s*(?:"([^"]*)"|'([^']*)'|([^\\s"'>]+))`, "i").exec(attributes);
	return found?.[1] ?? found?.[2] ?? found?.[3] ?? "";
}
