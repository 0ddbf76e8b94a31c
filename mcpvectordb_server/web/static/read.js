// One document or memory: its text, the passage that was cited, and what is known of it.

import { get } from "./api.js";
import { drawChanges } from "./changes.js";
import { announce, button, debounced, h, language, notify, outwards, plain, quiet, stored } from "./dom.js";
import { editDocument, editMemory, remove } from "./edit.js";
import { count, counted, day, percent, size } from "./format.js";
import * as hits from "./hits.js";
import { gist, markdown, Marks } from "./markdown.js";
import { drawable, Original } from "./original.js";
import { go, link, replace } from "./route.js";
import { rendered } from "./text.js";
import * as words from "./words.js";

const WINDOW = 800; // lines that are read at once
const PANELS = [
	["text", "Text"],
	["original", "Page"],
	["about", "About"],
	["passages", "Passages"],
	["similar", "Similar"],
	["history", "History"],
];

export async function open(route, app) {
	const view = route.parts[0] === "memory" ? new Memory(route, app) : new Document(route, app);
	await view.load();
	view.watch();
	return { update: (next) => view.follow(next) };
}

class Reading {
	constructor(route, app) {
		this.app = app;
		this.id = route.parts[1] ?? "";
		this.words = route.options.get("words") ?? "";
		this.options = route.options;
		this.at = hits.found(location.hash);
		document.addEventListener("keydown", (event) => this.key(event), { signal: app.signal });
	}

	follow() {
		return false;
	}

	/** Say so, once, when others delete what is read. */
	watch() {
		const look = debounced(async () => {
			const error = await get(this.path()).then(
				() => null,
				(reason) => reason,
			);
			if (error?.status !== 404 || this.reading.querySelector(".gone")) return;
			this.reading.querySelector(".reading-head").append(h("p.warn.gone", "This was deleted while you read it. The history may have it."));
			announce("This was deleted.");
		}, 500);
		this.app.on("changed", look);
		this.app.signal.addEventListener("abort", () => look.cancel());
	}

	frame(head, tools) {
		this.text = h("article.prose", { tabindex: -1, "aria-label": "Text" });
		this.bar = h("div.passage-bar", { hidden: true });
		this.panels = Object.fromEntries(
			PANELS.slice(1).map(([name, label]) => [
				name,
				h("section.panel", {
					role: "tabpanel",
					id: `panel-${name}`,
					"aria-labelledby": `tab-${name}`,
					"aria-label": label,
					data: { panel: name },
				}),
			]),
		);
		this.tabs = h(
			"div.tabs",
			{ role: "tablist", "aria-label": "About this text", on: { keydown: (event) => this.tabKey(event) } },
			PANELS.map(([name, label]) =>
				h(
					"button",
					{
						type: "button",
						role: "tab",
						id: `tab-${name}`,
						"aria-controls": name === "text" ? null : `panel-${name}`,
						class: `tab tab-${name}`,
						on: { click: () => this.open(name) },
					},
					label,
				),
			),
		);
		const heading = h("header.reading-head", head);
		const bar = h(
			"div.reading-bar",
			h(
				"div.row.bar-row",
				button(this.at < 0 ? "Back" : "Results", () => this.back(), {
					icon: "back",
					kind: "quiet back",
					title: "Go back (Escape)",
				}),
				h("span.bar-title", { "aria-hidden": "true", dir: "auto" }, plain(this.title())),
				this.hitSteps(),
				h("div.row.tools", tools),
			),
			this.bar,
		);
		this.reading = h(
			"div.reading",
			bar,
			heading,
			this.tabs,
			h("div.reading-text", this.text),
			h("div.side", Object.values(this.panels)),
		);
		this.app.place(this.reading);
		// The bar has the title as soon as the heading is out of sight.
		const seen = new IntersectionObserver(([{ isIntersecting }]) => bar.classList.toggle("scrolled", !isIntersecting), {
			rootMargin: "-110px 0px 0px 0px",
		});
		seen.observe(heading);
		this.app.signal.addEventListener("abort", () => seen.disconnect());
	}

	/** The place among the hits of the search that led here, and steps to its neighbours. */
	hitSteps() {
		if (this.at < 0) return null;
		const step = (by, label, key) =>
			button(label, () => this.toHit(by), {
				kind: "quiet",
				disabled: !hits.trail.places[this.at + by],
				title: `${by < 0 ? "Previous" : "Next"} hit (${key})`,
			});
		return h(
			"span.row.hit-steps",
			step(-1, "‹", "k"),
			h("span.small.muted", `hit ${this.at + 1} of ${hits.trail.places.length}`),
			step(1, "›", "j"),
		);
	}

	toHit(by) {
		const place = hits.trail.places[this.at + by];
		if (place) location.replace(place);
	}

	open(name) {
		this.reading.dataset.tab = name;
		for (const tab of this.tabs.children) {
			const on = tab.id === `tab-${name}`;
			tab.setAttribute("aria-selected", String(on));
			tab.tabIndex = on ? 0 : -1;
		}
		// Beside the text there is always a panel.
		for (const panel of Object.values(this.panels)) panel.hidden = panel.dataset.panel !== (name === "text" ? "about" : name);
		if (name === "similar") this.drawSimilar();
		if (name === "history") drawChanges(this.panels.history, this.app, () => this.undone(), this.historyName());
		if (name === "passages") this.drawPassages?.();
		if (name === "original") this.original.show(this.chunk?.page ?? this.pageInSight());
	}

	/** Leave a panel out, for what has nothing to show in it. */
	without(name) {
		this.panels[name].remove();
		this.tabs.querySelector(`#tab-${name}`).remove();
	}

	tabKey(event) {
		const shown = [...this.tabs.children].filter((tab) => tab.offsetParent);
		const at = shown.indexOf(event.target);
		const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: shown.length - 1 }[event.key];
		if (next === undefined) return;
		event.preventDefault();
		const tab = shown[(next + shown.length) % shown.length];
		tab.focus();
		tab.click();
	}

	/** Open what there is after an undo: the version that is back may have another id, or there is none. */
	async undone() {
		try {
			const { id } = await get(this.path());
			if (String(id) === this.id) location.reload();
			else go(link([this.kind, id]));
		} catch (error) {
			if (error.status !== 404) throw error;
			this.back();
		}
	}

	back() {
		if (this.at >= 0) location.hash = hits.trail.results;
		else if (document.body.dataset.moved && history.length > 1) history.back();
		else location.hash = "#/search";
	}

	key(event) {
		if (event.target.closest?.("input, textarea, select, dialog")) return;
		if (event.key === "Escape") this.back();
		else if (event.ctrlKey || event.metaKey || event.altKey) return;
		else if (event.key === "j" || event.key === "k") this.toHit(event.key === "j" ? 1 : -1);
		else if (event.key === "n" || event.key === "p") this.step?.(event.key === "n" ? "after" : "before");
		else if (event.key === "[" || event.key === "]") this.original?.step(event.key === "]" ? 1 : -1);
		else if (event.key === "c") this.copy();
	}

	async copy() {
		try {
			await navigator.clipboard.writeText(this.citation());
			notify(`Copied: ${this.citation()}`);
		} catch {
			notify(`This browser does not allow copying here. The citation: ${this.citation()}`, { bad: true });
		}
	}

	async drawSimilar() {
		const panel = this.panels.similar;
		const path = this.similarPath();
		if (panel.dataset.of === path) return;
		panel.dataset.of = path;
		panel.replaceChildren(h("p.muted", "Looking for similar passages …"));
		try {
			const reply = await get(path, { query: { limit: 10 } });
			const why = Object.values(reply.reasons ?? {}).map((each) => h("p.warn", plain(each)));
			panel.replaceChildren(
				h("h2", this.similarTitle()),
				...why,
				reply.hits.length
					? h(
							"ol.briefs",
							reply.hits.map((hit) => hits.brief(hit, likeness(hit))),
						)
					: h("p.muted", "Nothing similar is stored."),
			);
		} catch (error) {
			if (error.name !== "AbortError") panel.replaceChildren(h("p.warn.bad", plain(error.message)));
		}
	}
}

function likeness(hit) {
	if (hit.cosine == null) return null;
	return h(
		"div.others",
		hit.near_duplicate ? h("span.duplicate", "near-duplicate") : null,
		h("span", `${percent(hit.cosine)} alike`),
	);
}

class Document extends Reading {
	async load() {
		const path = `/api/documents/${encodeURIComponent(this.id)}`;
		this.document = await get(path);
		this.drawHead();
		this.drawAbout();
		this.line = Number(this.options.get("line")) || 1;
		const chunk = Number(this.options.get("chunk")) || 0;
		const beside = drawable(this.document) && this.document.file_state === "current" ? "original" : chunk ? "passages" : "about";
		this.reading.dataset.tab = narrow() ? "text" : beside;
		await this.cite(chunk);
		await this.drawText();
		if (drawable(this.document)) this.drawOriginal();
		else this.without("original");
		this.open(this.reading.dataset.tab);
	}

	/** The same document at another passage: only the marks move. */
	follow(route) {
		if (route.parts[0] !== "document" || route.parts[1] !== this.id) return false;
		if (hits.found(location.hash) !== this.at) return false;
		this.words = route.options.get("words") ?? "";
		this.line = Number(route.options.get("line")) || 1;
		this.cite(Number(route.options.get("chunk")) || 0).then(() => this.drawText());
		return true;
	}

	drawHead() {
		const { path, library, file_type, date, former } = this.document;
		const writable = !this.app.session.read_only;
		document.title = `${plain(this.title())} – mcpvectordb`;
		this.frame(
			[
				h("h1", { dir: "auto" }, plain(this.title())),
				h(
					"p.row.head-facts",
					stored("span.where.mono", path, { dir: "ltr" }),
					h("a.chip", { href: link(["browse", "library", library]) }, stored("span", library)),
					h("span.chip", plain(file_type)),
					h("span.muted.small", day(date)),
				),
				former
					? h("p.warn", "The link named an earlier version of this document; this is the one that replaced it.")
					: null,
			],
			[
				quiet("Copy citation", () => this.copy(), "copy", "Copy a citation (c)"),
				writable ? quiet("Edit", () => this.edit(), "edit") : null,
				writable ? quiet("Delete", () => this.delete(), "delete") : null,
			],
		);
	}

	title() {
		return this.document.title || this.document.path;
	}

	async edit() {
		const changed = await editDocument(this.document);
		if (!changed) return;
		notify("Saved.");
		if (changed.id !== this.id) location.hash = link(["document", changed.id]);
		else {
			Object.assign(this.document, changed);
			this.reading.querySelector("h1").textContent = plain(changed.title);
			this.drawAbout();
		}
	}

	async delete() {
		if (await remove("documents", [this.id])) this.back();
	}

	citation() {
		return this.chunk?.citation ?? `${this.document.title} (${this.document.source})`;
	}

	similarPath() {
		return this.chunk
			? `/api/chunks/${this.chunk.id}/similar`
			: `/api/documents/${encodeURIComponent(this.id)}/similar`;
	}

	kind = "document";

	path() {
		return `/api/documents/${encodeURIComponent(this.id)}`;
	}

	historyName() {
		return this.id;
	}

	similarTitle() {
		return this.chunk ? "Similar to this passage" : "Similar to this document";
	}

	// ---- the cited passage

	async cite(chunk) {
		this.chunk = this.before = this.after = null;
		if (chunk) {
			try {
				const reply = await get(`/api/chunks/${chunk}`);
				if (reply.document.id === this.id)
					Object.assign(this, { chunk: reply.chunk, before: reply.before, after: reply.after });
			} catch (error) {
				if (error.name === "AbortError") throw error;
				notify("The passage that the link names was replaced since; this is the document as it is now.");
			}
		}
		this.drawBar();
		for (const row of this.panels.passages.querySelectorAll("[data-chunk]")) {
			if (row.dataset.chunk === String(this.chunk?.id)) row.setAttribute("aria-current", "true");
			else row.removeAttribute("aria-current");
		}
		if (this.reading.dataset.tab === "similar") this.drawSimilar();
	}

	drawBar() {
		const { chunk } = this;
		this.bar.hidden = !chunk;
		if (!chunk) return;
		const page = chunk.page == null ? "" : ` · p. ${chunk.page}`;
		const lines =
			chunk.first_line === chunk.last_line
				? `line ${chunk.first_line}`
				: `lines ${chunk.first_line}–${chunk.last_line}`;
		this.bar.replaceChildren(
			h(
				"span.bar-place",
				h("b", `Passage ${chunk.position + 1} of ${count(this.document.chunks)}`),
				` · ${lines}${page}`,
			),
			h(
				"span.row.bar-tools",
				button("Previous", () => this.step("before"), {
					kind: "quiet",
					disabled: !this.before,
					title: "Previous passage (p)",
				}),
				button("Next", () => this.step("after"), { kind: "quiet", disabled: !this.after, title: "Next passage (n)" }),
				button("", () => this.turnTo(null), { icon: "close", kind: "quiet", title: "Do not mark a passage" }),
			),
		);
	}

	step(side) {
		if (this[side]) this.turnTo(this[side]);
	}

	turnTo(chunk) {
		const options = chunk ? { chunk: chunk.id, line: chunk.first_line, words: this.words } : {};
		replace(["document", this.id], options);
		this.line = chunk?.first_line ?? this.line;
		this.cite(chunk?.id ?? 0).then(() => this.drawText({ keep: !chunk }));
	}

	// ---- the file itself, which follows the text

	drawOriginal() {
		const pages = Number(this.document.metadata?.pages) || this.pages.at(-1)?.[0] || 1;
		this.original = new Original(this.panels.original, this.document, pages, this.app, (page) => {
			const line = this.pages.find(([number]) => number === page)?.[1];
			if (line && !narrow()) this.toLine(line, { focus: false });
		});
		if (pages < 2) this.tabs.querySelector("#tab-original").textContent = "Original";
		let last = this.pageInSight();
		const follow = () => {
			const page = this.reading.dataset.tab === "original" && !narrow() ? this.pageInSight() : last;
			if (page !== last) this.original.show(page);
			last = page;
		};
		addEventListener("scroll", () => requestAnimationFrame(follow), { signal: this.app.signal, passive: true });
	}

	/** The page that the middle of the window shows the text of. */
	pageInSight() {
		let line = this.chunk?.first_line ?? 1;
		for (const block of narrow() ? [] : this.text.querySelectorAll("[data-line]")) {
			if (block.getBoundingClientRect().top > innerHeight / 2) break;
			line = Number(block.dataset.line);
		}
		return (this.pages ?? []).findLast(([, first]) => first <= line)?.[0] ?? 1;
	}

	// ---- the text

	async drawText({ keep = false } = {}) {
		const wanted = this.chunk?.first_line ?? this.line;
		const last = this.chunk?.last_line ?? this.line;
		if (!this.shown || wanted < this.shown.first || last > this.shown.last) {
			const first = Math.max(1, wanted - Math.min(200, WINDOW / 4));
			this.parts = [
				await this.readLines(first === 1 || wanted < WINDOW ? 1 : first, Math.max(WINDOW, last - first + 100)),
			];
		}
		this.redraw();
		if (!keep) this.jump();
		if (this.chunk?.page && this.reading.dataset.tab === "original") this.original?.show(this.chunk.page);
	}

	async readLines(line, lines) {
		return get(`/api/documents/${encodeURIComponent(this.id)}/text`, { query: { line, lines: Math.min(lines, 5000) } });
	}

	redraw() {
		const [first, last] = [this.parts[0], this.parts.at(-1)];
		this.shown = { first: first.first_line, last: last.last_line };
		// The parts follow each other: as one text, a table or a list goes on from one to the next.
		const all = { ...first, text: this.parts.map(({ text }) => text).join("\n") };
		const shown = { title: this.document.title, language: this.document.file_type };
		const blocks = rendered(all, this.chunk, this.words, shown);
		this.text.dataset.syntax = first.syntax;
		this.text.lang = language(first.text);
		this.text.replaceChildren(...(blocks.length ? blocks : [h("p.muted", "This document has no text.")]));
		if (first.first_line > 1)
			this.text.prepend(
				button(`Show earlier lines, before line ${count(first.first_line)}`, () => this.extend(-1), { kind: "more" }),
			);
		if (last.more)
			this.text.append(
				button(`Show more: ${counted(last.lines - last.last_line, "line")} follow`, () => this.extend(1), {
					kind: "more",
				}),
			);
		for (const mark of this.text.querySelectorAll("mark.cited")) topBlock(mark, this.text).classList.add("has-cited");
		this.drawOutline(first.outline);
		this.pages = first.pages;
	}

	async extend(direction) {
		const first = this.parts[0].first_line;
		if (direction > 0) this.parts.push(await this.readLines(this.parts.at(-1).last_line + 1, WINDOW));
		else this.parts.unshift(await this.readLines(Math.max(1, first - WINDOW), Math.min(WINDOW, first - 1)));
		const height = document.documentElement.scrollHeight;
		this.redraw();
		if (direction < 0) window.scrollBy(0, document.documentElement.scrollHeight - height);
	}

	jump(line = null) {
		const target = (line == null && this.text.querySelector("mark.cited")) || this.blockAt(line ?? this.line);
		if (!target || (line == null && !this.chunk && this.line <= 1)) return;
		target.scrollIntoView({ block: line == null ? "center" : "start", behavior: "auto" });
		if (this.chunk && line == null)
			announce(`Marked: passage ${this.chunk.position + 1}, line ${this.chunk.first_line}`);
	}

	blockAt(line) {
		let found = null;
		for (const block of this.text.querySelectorAll("[data-line]")) {
			if (Number(block.dataset.line) > line) break;
			found = block;
		}
		return found;
	}

	async toLine(line, { focus = true } = {}) {
		if (line < this.shown.first || line > this.shown.last) {
			this.parts = [await this.readLines(line, WINDOW)];
			this.redraw();
		}
		if (this.reading.dataset.tab !== "text" && narrow()) this.open("text");
		this.jump(line);
		if (focus) this.text.focus({ preventScroll: true });
	}

	// ---- what is known of it

	drawAbout() {
		const { document: it } = this;
		this.outline ??= h("nav.outline", { "aria-label": "Contents" });
		this.panels.about.replaceChildren(
			this.outline,
			h("h2", "About"),
			facts([
				["Source", outwards(it.source)],
				["Library", stored("span", it.library)],
				["Type", plain(it.file_type)],
				["Size", size(it.size)],
				["Modified", day(it.modified, { clock: true })],
				["Brought in", day(it.created_at, { clock: true })],
				["Passages", `${count(it.chunks)}${it.pending ? `, ${count(it.pending)} not yet found by meaning` : ""}`],
				["SHA-256", h("code.hash", plain(it.hash))],
				["Id", h("code", plain(it.id))],
			]),
			...(it.descriptions ?? []).map((each) => stored("p.muted", each)),
			...metadata(it.metadata),
		);
	}

	drawOutline(outline) {
		const rows = (outline ?? []).slice(0, 400);
		if (rows.length < 2) return;
		const top = Math.min(...rows.map((row) => row.level));
		this.outline.replaceChildren(
			h("h2", "Contents"),
			h(
				"ol",
				rows.map((row) =>
					h(
						"li",
						{ class: `indent-${Math.min(4, row.level - top)}` },
						h(
							"button",
							{ type: "button", class: "outline-link", dir: "auto", on: { click: () => this.toLine(row.line) } },
							plain(row.title),
						),
					),
				),
			),
		);
	}

	async drawPassages() {
		const panel = this.panels.passages;
		if (panel.firstChild) return;
		const list = h("ol.chunks");
		panel.append(h("h2", "Passages as the index has them"), list);
		const more = button("Show more", () => load(), { kind: "more" });
		const load = async () => {
			const reply = await get(`/api/documents/${encodeURIComponent(this.id)}/chunks`, {
				query: { offset: list.children.length, limit: 50 },
			});
			list.append(...reply.chunks.map((chunk) => this.chunkRow(chunk)));
			if (list.children.length < reply.total) panel.append(more);
			else more.remove();
			if (!reply.total) panel.append(h("p.muted", "It has no passages, so it is found by its title alone."));
		};
		await load();
	}

	chunkRow(chunk) {
		const page = chunk.page == null ? "" : ` · p. ${chunk.page}`;
		return h(
			"li",
			{ data: { chunk: chunk.id }, "aria-current": chunk.id === this.chunk?.id ? "true" : null },
			h(
				"button",
				{ type: "button", class: "chunk", on: { click: () => this.turnTo(chunk) } },
				h(
					"span.chunk-place",
					`${chunk.position + 1} · lines ${chunk.first_line}–${chunk.last_line}${page}`,
					chunk.embedded ? null : h("em", " · by words only until it is embedded"),
				),
				h("span.chunk-text", { dir: "auto" }, plain(gist(chunk.text.slice(0, 300)))),
			),
		);
	}
}

class Memory extends Reading {
	async load() {
		this.memory = await get(`/api/memories/${encodeURIComponent(this.id)}`);
		const { memory } = this;
		const writable = !this.app.session.read_only;
		this.frame(
			[
				h("p.eyebrow", `Memory ${memory.id}, by ${memory.source === "agent" ? "an agent" : "a user"}`),
				h("h1", { dir: "auto" }, plain(memory.thread)),
				h(
					"p.row.head-facts",
					h("span.muted.small", day(memory.created_at, { clock: true })),
					memory.tags.map((tag) => h("a.chip", { href: link(["browse", "tag", tag]) }, stored("span", tag))),
				),
			],
			[
				quiet("Copy citation", () => this.copy(), "copy", "Copy a citation (c)"),
				writable ? quiet("Edit", async () => (await editMemory(memory)) && this.load(), "edit") : null,
				writable ? quiet("Delete", async () => (await remove("memories", [memory.id])) && this.back(), "delete") : null,
			],
		);
		this.without("passages");
		this.without("original");
		const marks = new Marks([], words.ranges(memory.text, this.words, [[0, memory.text.length]]));
		this.text.lang = language(memory.text);
		this.text.replaceChildren(...markdown(memory.text, marks), ...images(memory));
		this.panels.about.replaceChildren(
			h("h2", "About"),
			facts([
				["Thread", h("a", { href: link(["browse", "thread", memory.thread]) }, stored("span", memory.thread))],
				["Stored by", memory.source],
				["Created", day(memory.created_at, { clock: true })],
				["Changed", memory.updated_at === memory.created_at ? "" : day(memory.updated_at, { clock: true })],
				["Id", h("code", `memory:${memory.id}`)],
			]),
			...metadata(memory.metadata),
		);
		this.open(narrow() ? "text" : "about");
	}

	title() {
		return this.memory.thread;
	}

	citation() {
		return `memory:${this.memory.id}, ${this.memory.thread}, ${this.memory.created_at.slice(0, 10)}`;
	}

	similarPath() {
		return `/api/memories/${this.memory.id}/similar`;
	}

	kind = "memory";

	path() {
		return `/api/memories/${encodeURIComponent(this.id)}`;
	}

	historyName() {
		return `memory:${this.memory.id}`;
	}

	similarTitle() {
		return "Similar to this memory";
	}
}

const narrow = () => matchMedia("(max-width: 900px)").matches;

function images(memory) {
	if (!Array.isArray(memory.images)) return [];
	return memory.images.map((image, at) =>
		h(
			"figure",
			image.url
				? picture(image.url, `Image ${at + 1} of this memory`)
				: h("p.muted", `An image of the type ${plain(image.mime_type)}, which is not shown.`),
		),
	);
}

/** An image of the API: an element that asks for it by itself would send no token. */
function picture(url, alt) {
	const element = h("img", { alt });
	get(url, { as: "blob" }).then(
		(blob) => {
			element.addEventListener("load", () => URL.revokeObjectURL(element.src), { once: true });
			element.src = URL.createObjectURL(blob);
		},
		(error) => error.name !== "AbortError" && element.replaceWith(h("p.warn.bad", plain(error.message))),
	);
	return element;
}

function facts(rows) {
	return h(
		"dl.facts",
		rows.filter(([, value]) => value !== "" && value != null).map(([name, value]) => [h("dt", name), h("dd", value)]),
	);
}

function metadata(values) {
	const rows = Object.entries(values ?? {});
	if (!rows.length) return [];
	return [
		h("h2", "Metadata"),
		h(
			"dl.facts",
			rows.map(([name, value]) => [
				stored("dt", name),
				typeof value === "string" ? stored("dd", value) : h("dd", h("code", plain(JSON.stringify(value)))),
			]),
		),
	];
}

function topBlock(element, root) {
	while (element.parentElement !== root) element = element.parentElement;
	return element;
}
