// Search as one types: one list, or words, meaning and both side by side.

import { get, Latest, post } from "./api.js";
import { announce, button, debounced, h, icon, notify, plain, state, stored } from "./dom.js";
import { count, counted, day } from "./format.js";
import * as hits from "./hits.js";
import { gist } from "./markdown.js";
import { Preview } from "./preview.js";
import { link, replace } from "./route.js";

const LIMIT = 20;
const MODES = [
	["", "Both"],
	["text", "Words"],
	["vector", "Meaning"],
	["compare", "Side by side"],
];
const KINDS = [
	["", "Everything"],
	["documents", "Documents"],
	["memories", "Memories"],
];
const FILTERS = ["library", "file_type", "thread", "tag", "since", "until"];
const LEGS = { text: "words", vector: "meaning", expansion: "expansion", rerank: "reranking" };

/** Where each list of results was left: the hash, and the hit that had the focus. */
const left = new Map();

export function open(route, app) {
	const view = new Search(app);
	app.place(...view.elements);
	view.read(route.options);
	return { update: (next) => view.follow(next) };
}

class Search {
	constructor(app) {
		this.app = app;
		this.latest = new Latest();
		this.say = debounced(announce, 700);
		this.later = debounced(() => this.run(), 90);
		this.box = h("input", {
			type: "search",
			class: "search-box",
			"data-search": true,
			autocomplete: "off",
			spellcheck: "false",
			enterkeyhint: "search",
			dir: "auto",
			maxlength: 2000,
			placeholder: "Search by words or by meaning",
			"aria-label": "Search",
			"aria-describedby": "search-keys",
			on: { input: () => this.typed(), keydown: (event) => this.boxKey(event) },
		});
		this.mode = segments("How to search", "mode", MODES, () => this.changed());
		this.kind = segments("Where to search", "kind", KINDS, () => this.changed());
		this.filters = h("div.filters", { id: "filters", hidden: true });
		this.filterButton = button("Filter", () => this.toggleFilters(), {
			"aria-expanded": "false",
			"aria-controls": "filters",
		});
		this.chosen = h("div.row.chosen");
		this.said = h("div.said", { "aria-live": "off" });
		this.results = h("div.results", {
			on: {
				keydown: (event) => this.resultKey(event),
				focusin: (event) => this.remember(event),
				pointerover: (event) => this.pointed(event),
			},
		});
		this.preview = new Preview(app);
		this.previewSoon = debounced((hit) => this.preview.show(hit), 120);
		this.elements = [
			h("h1.unseen", "Search"),
			h(
				"form.search",
				{ role: "search", on: { submit: (event) => event.preventDefault() } },
				h(
					"div.search-line",
					icon("search"),
					this.box,
					h(
						"kbd",
						{ id: "search-keys", title: "Press / to search, arrows to move, Enter to open, Escape to go back" },
						"/",
					),
				),
				h("div.row.search-options", this.kind.element, this.mode.element, this.filterButton),
				this.filters,
			),
			this.chosen,
			this.said,
			h("div.found", this.results, this.preview.element),
		];
		app.on("model", () => this.lacks === "vector" && this.run());
		app.on("changed", () => this.fileChanged());
		app.signal.addEventListener(
			"abort",
			() => [this.later, this.say, this.previewSoon].forEach((each) => each.cancel()) || this.latest.stop(),
		);
	}

	/** Take over the options of a URL and search. */
	read(options) {
		this.box.value = options.get("q") ?? "";
		this.mode.value = options.get("mode") ?? "";
		this.kind.value = options.get("kind") ?? "";
		this.filter = Object.fromEntries(FILTERS.map((name) => [name, options.get(name) ?? ""]));
		this.drawChosen();
		this.run().then(() => this.returnTo());
		if (!matchMedia("(pointer: coarse)").matches || !this.box.value) this.box.focus({ preventScroll: true });
	}

	follow(route) {
		if (
			route.parts[0] !== "search" ||
			link(["search"], this.options()) === link(["search"], Object.fromEntries(route.options))
		)
			return true;
		this.read(route.options);
		return true;
	}

	options() {
		return { q: this.box.value, mode: this.mode.value, kind: this.kind.value, ...this.filter };
	}

	typed() {
		replace(["search"], this.options());
		this.later();
	}

	changed() {
		replace(["search"], this.options());
		this.drawChosen();
		this.run();
	}

	/** What is asked: until a space follows, the last word may be one that is typed half. */
	typedQuery() {
		const text = this.box.value;
		return /(^|\s)[\p{L}\p{N}][^\s"*]*[\p{L}\p{N}]$/u.test(text) ? `${text.trim()}*` : text.trim();
	}

	question(more = {}) {
		const { library, file_type, thread, tag, since, until } = this.filter;
		const body = {
			query: this.typedQuery(),
			limit: LIMIT,
			kind: this.kind.value,
			group: true,
			library,
			file_type,
			thread,
			since,
			until,
			...more,
		};
		if (tag) body.tags = [tag];
		return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== "" && value != null));
	}

	async run() {
		this.later.cancel();
		if (!this.box.value.trim()) {
			this.latest.stop();
			return this.drawStart();
		}
		this.results.setAttribute("aria-busy", "true");
		try {
			const compare = this.mode.value === "compare";
			const reply = await this.latest.ask((signal) =>
				compare
					? post("/api/compare", this.question({ limit: 10 }), { signal, superseding: true })
					: post("/api/search", this.question(this.asMode()), { signal, superseding: true }),
			);
			if (!reply) return undefined;
			if (compare) this.drawCompared(reply);
			else this.drawFound(reply);
		} catch (error) {
			this.said.replaceChildren();
			this.results.replaceChildren(state("This search could not be run", plain(error.message)));
		}
		this.results.removeAttribute("aria-busy");
		return undefined;
	}

	drawFound(reply) {
		this.found = new Map();
		this.cards = new Map();
		this.weak = false;
		hits.trail.results = location.hash;
		hits.trail.places = [];
		this.shown = reply.hits.length;
		this.lacks = "vector" in (reply.reasons ?? {}) ? "vector" : "";
		this.said.replaceChildren(...said(reply));
		if (!reply.hits.length) {
			this.results.replaceChildren(nothing(reply, Object.values(this.filter).some(Boolean) || this.kind.value));
			this.say("Nothing found");
			this.preview.show(null);
			return;
		}
		const list = h("ol.hits", this.items(reply.hits));
		const held = this.results.contains(document.activeElement) && document.activeElement.closest("[data-key]")?.dataset.key;
		this.results.replaceChildren(list);
		// Whoever steps through hits while an answer is drawn anew stays where they are.
		if (held) ([...list.children].find((row) => row.dataset.key === held) ?? list).querySelector(".hit-link")?.focus();
		this.previewSoon(reply.hits[0]);
		if (reply.more) this.results.append(this.moreButton(list));
		this.say(`${counted(reply.hits.length, "passage")} found${reply.verdict ? `. ${reply.verdict}` : ""}`);
	}

	/** The cards of some hits, one for each document, with a line where weak ones begin. */
	items(found) {
		const rows = [];
		for (const hit of found) {
			this.found.set(hits.key(hit), hit);
			const before = hit.kind === "document" && this.cards.get(hit.id);
			if (before) {
				before.others.push(hit);
				before.draw();
				continue;
			}
			if (hit.confidence === "weak" && this.cards.size && !this.weak) rows.push(h("li.weak-below", "weak matches below"));
			this.weak ||= hit.confidence === "weak";
			rows.push(this.card(hit));
		}
		return rows;
	}

	card(hit) {
		hits.trail.places.push(hits.place(hit));
		const facts = [];
		if (hit.library) facts.push(this.chip("library", hit.library));
		for (const tag of hit.tags ?? []) facts.push(this.chip("tag", tag));
		const list = h("ol.briefs.others-of", { hidden: true });
		const more = button("", () => this.showOthers(hit, card), { kind: "quiet more-of", "aria-expanded": "false" });
		const card = {
			more,
			list,
			others: [],
			draw: () => {
				const number = Math.max(hit.more ?? 0, card.others.length);
				more.replaceChildren(`+${count(number)} more`);
				more.title = `${counted(number, "other passage")} of ${plain(hits.title(hit))}`;
				more.hidden = !number;
				if (!list.hidden) list.replaceChildren(...card.others.map((other) => hits.brief(other)));
			},
		};
		card.draw();
		this.cards.set(hit.kind === "document" ? hit.id : hits.key(hit), card);
		return hits.item(hit, [...facts, more], list);
	}

	/** The other passages of a hit's document, below it. */
	async showOthers(hit, card) {
		card.list.hidden = !card.list.hidden;
		card.more.setAttribute("aria-expanded", String(!card.list.hidden));
		if (!card.list.hidden && card.others.length < hit.more) {
			const asked = { where: { id: hit.id }, kind: "documents", group: false, limit: Math.min(20, hit.more + 1) };
			try {
				const question = this.question({ ...asked, ...this.asMode() });
				const reply = await post("/api/search", question, { signal: this.app.signal });
				card.others = reply.hits.filter((other) => other.chunk !== hit.chunk);
				for (const other of card.others) this.found.set(hits.key(other), other);
			} catch (error) {
				if (error.name !== "AbortError") notify(error.message, { bad: true });
			}
		}
		card.draw();
	}

	asMode() {
		return this.mode.value ? { mode: this.mode.value } : {};
	}

	chip(name, value) {
		return h(
			"a.chip",
			{ href: link(["search"], { ...this.options(), [name]: value }), title: `Only ${name} ${plain(value)}` },
			stored("span", value),
		);
	}

	moreButton(list) {
		const more = button(
			"Show more",
			async () => {
				more.disabled = true;
				const offset = this.shown;
				const asked = this.question({ offset, ...this.asMode() });
				const reply = await post("/api/search", asked, { signal: this.app.signal });
				this.shown += reply.hits.length;
				const added = this.items(reply.hits);
				list.append(...added);
				added.find((row) => row.matches(".hit"))?.querySelector("a").focus();
				more.disabled = false;
				if (!reply.more || !reply.hits.length) more.remove();
			},
			{ kind: "more" },
		);
		return more;
	}

	drawCompared(replies) {
		const columns = [
			["text", "Words"],
			["vector", "Meaning"],
			["hybrid", "Both"],
		];
		const rank = (name, hit) => replies[name].hits.findIndex((other) => hits.key(other) === hits.key(hit)) + 1;
		this.said.replaceChildren();
		this.preview.show(null);
		this.results.replaceChildren(
			h(
				"div.columns",
				columns.map(([name, heading]) => {
					const reply = replies[name];
					const others = (hit) =>
						columns
							.filter(([other]) => other !== name)
							.map(([other, word]) => [word.toLowerCase(), rank(other, hit)])
							.map(([word, at]) => h("span", { class: at ? "" : "absent" }, at ? `${word} ${at}` : `not by ${word}`));
					return h(
						"section.column",
						{ "aria-label": heading },
						h("h2", heading, h("span.muted.small", ` ${Math.round(reply.milliseconds)} ms`)),
						reasons(reply),
						reply.hits.length
							? h(
									"ol.briefs",
									reply.hits.map((hit, at) => {
										const row = hits.brief(hit, h("div.others", others(hit)));
										row.prepend(h("span.rank", String(at + 1)));
										return row;
									}),
								)
							: h("p.muted", reply.verdict || "Nothing found."),
					);
				}),
			),
		);
		this.say("Results of words, meaning and both, side by side");
	}

	/** Mark the same passage in the other columns. */
	pair(event) {
		const over = event.target.closest?.("[data-key]")?.dataset.key;
		for (const each of this.results.querySelectorAll("[data-key]"))
			each.classList.toggle("paired", each.dataset.key === over);
	}

	// ---- before anything was typed

	async drawStart() {
		this.said.replaceChildren();
		this.preview.show(null);
		this.results.removeAttribute("aria-busy");
		const [status, documents, memories] = await Promise.all([
			get("/api/status"),
			get("/api/documents", { query: { sort: "newest", limit: 6 } }),
			get("/api/memories", { query: { limit: 6 } }),
		]);
		if (this.box.value.trim()) return;
		if (!documents.total && !memories.total) {
			this.results.replaceChildren(
				state(
					"This file is empty",
					"Bring in documents, or let an agent remember something; both can be searched here at once.",
					h("a.button.main", { href: "#/add" }, "Bring something in"),
				),
			);
			return;
		}
		this.results.replaceChildren(
			h(
				"p.counts",
				[
					counted(status.documents, "document"),
					counted(status.memories, "memory", "memories"),
					counted(status.passages, "passage"),
				].join(" · "),
				status.pending ? ` · ${count(status.pending)} not yet found by meaning` : "",
			),
			h(
				"div.recent",
				recent(
					"Latest documents",
					documents.documents.map((each) => [
						link(["document", each.id]),
						each.title || each.path,
						each.path,
						day(each.created_at),
					]),
					"Bring in a folder or a file to see it here.",
				),
				recent(
					"Latest memories",
					memories.memories.map((each) => [
						link(["memory", each.id]),
						gist(each.text.slice(0, 200)),
						each.thread,
						day(each.created_at),
					]),
					"What agents remember appears here.",
				),
			),
		);
	}

	fileChanged() {
		if (!this.box.value.trim()) this.drawStart().catch(() => {});
		else if (!this.said.querySelector(".stale"))
			this.said.append(
				button("The file has changed: search again", () => this.run(), { icon: "refresh", kind: "quiet stale" }),
			);
	}

	// ---- filters

	async toggleFilters() {
		this.filters.hidden = !this.filters.hidden;
		this.filterButton.setAttribute("aria-expanded", String(!this.filters.hidden));
		if (!this.filters.hidden && !this.filters.firstChild) await this.drawFilters();
		if (!this.filters.hidden) this.filters.querySelector("select, input")?.focus();
	}

	async drawFilters() {
		const [libraries, types, threads, tags] = await Promise.all(
			["libraries", "file_types", "threads", "tags"].map((name) => get(`/api/${name}`)),
		);
		const choices = {
			library: ["Library", libraries.libraries.map((each) => [each.name, each.documents])],
			file_type: ["Type", types.file_types.map((each) => [each.name, each.documents])],
			thread: ["Thread", threads.threads.map((each) => [each.name, each.memories])],
			tag: ["Tag", tags.tags.map((each) => [each.name, each.memories])],
		};
		const take = (name) => (event) => {
			this.filter[name] = event.target.value.trim();
			this.changed();
		};
		const fields = Object.entries(choices).map(([name, [label, values]]) => {
			const select = h(
				"select",
				{ on: { change: take(name) }, data: { filter: name } },
				h("option", { value: "" }, "any"),
				values.map(([value, number]) => h("option", { value }, `${plain(value)} (${count(number)})`)),
			);
			select.value = this.filter[name];
			return h("label.field", label, select);
		});
		for (const [name, label, example] of [
			["since", "Since", "2025-01 or 30d"],
			["until", "Until", "today"],
		]) {
			fields.push(
				h(
					"label.field",
					label,
					h("input", {
						type: "text",
						placeholder: example,
						value: this.filter[name],
						data: { filter: name },
						on: { change: take(name) },
					}),
				),
			);
		}
		this.filters.replaceChildren(...fields);
	}

	drawChosen() {
		const names = {
			library: "library",
			file_type: "type",
			thread: "thread",
			tag: "tag",
			since: "since",
			until: "until",
		};
		this.chosen.replaceChildren(
			...FILTERS.filter((name) => this.filter[name]).map((name) =>
				button(
					`${names[name]}: ${plain(this.filter[name])}`,
					() => {
						this.filter[name] = "";
						for (const field of this.filters.querySelectorAll(`[data-filter=${name}]`)) field.value = "";
						this.changed();
						this.box.focus();
					},
					{ icon: "close", title: "Remove this filter", kind: "filter" },
				),
			),
		);
	}

	// ---- keys: arrows move, Enter opens, Escape goes back to the box

	boxKey(event) {
		const first = this.results.querySelector(".hit-link");
		if (event.key === "ArrowDown" && first) {
			event.preventDefault();
			first.focus();
		} else if (event.key === "Enter" && first && !event.isComposing) {
			first.click();
		} else if (event.key === "Escape" && this.box.value) {
			event.preventDefault();
			this.box.value = "";
			this.changed();
		}
	}

	resultKey(event) {
		const column = event.target.closest(".column") ?? this.results;
		const links = [...column.querySelectorAll(".hit-link")];
		const at = links.indexOf(event.target.closest("li")?.querySelector(".hit-link"));
		if (event.key === "Escape") this.box.focus();
		else if (at < 0) return;
		else if (event.key === "ArrowDown") links[Math.min(at + 1, links.length - 1)].focus();
		else if (event.key === "ArrowUp") (at ? links[at - 1] : this.box).focus();
		else if (event.key === "Home") links[0].focus();
		else if (event.key === "End") links.at(-1).focus();
		else if (["ArrowLeft", "ArrowRight"].includes(event.key) && column !== this.results) {
			const next = event.key === "ArrowLeft" ? column.previousElementSibling : column.nextElementSibling;
			const others = [...(next?.querySelectorAll(".hit-link") ?? [])];
			others[Math.min(at, others.length - 1)]?.focus();
		} else return;
		event.preventDefault();
	}

	remember(event) {
		const row = event.target.closest("[data-key]");
		if (!row) return;
		left.set(location.hash, row.dataset.key);
		this.previewSoon(this.found?.get(row.dataset.key));
	}

	pointed(event) {
		if (this.mode.value === "compare") this.pair(event);
		else if (event.pointerType === "mouse") {
			const hit = this.found?.get(event.target.closest?.("[data-key]")?.dataset.key);
			if (hit) this.previewSoon(hit);
		}
	}

	/** After Back: the hit that was opened has the focus again. */
	returnTo() {
		const was = left.get(location.hash);
		if (!was || !document.body.dataset.moved) return;
		left.delete(location.hash);
		for (const row of this.results.querySelectorAll("[data-key]")) {
			if (row.dataset.key === was) row.querySelector(".hit-link").focus();
		}
	}
}

function segments(label, name, choices, changed) {
	const inputs = choices.map(([value]) => h("input", { type: "radio", name, value, on: { change: changed } }));
	inputs[0].checked = true;
	const element = h(
		"fieldset.segments",
		{ data: { name } },
		h("legend.unseen", label),
		choices.map(([, word], at) => h("label", inputs[at], word)),
	);
	return {
		element,
		get value() {
			return inputs.find((input) => input.checked)?.value ?? "";
		},
		set value(value) {
			(inputs.find((input) => input.value === value) ?? inputs[0]).checked = true;
		},
	};
}

function recent(heading, rows, none) {
	return h(
		"section",
		h("h2", heading),
		rows.length
			? h(
					"ul",
					rows.map(([href, name, place, date]) =>
						h(
							"li",
							h("a", { href, class: "hit-link" }, stored("span", name)),
							h("div.where", stored("span", place), date ? ` · ${date}` : ""),
						),
					),
				)
			: h("p.muted", none),
	);
}

/** One line on how it was found, and warnings where something could not be searched. */
function said(reply) {
	const ran = reply.legs.map((leg) => LEGS[leg] ?? leg).join(" and ");
	const number = `${counted(reply.hits.length, "passage")}${reply.more ? " and more" : ""}`;
	return [
		h(
			"p.how",
			reply.hits.length ? number : "",
			h("span", ran ? `by ${ran}` : ""),
			h("span", `${reply.milliseconds < 10 ? reply.milliseconds.toFixed(1) : Math.round(reply.milliseconds)} ms`),
		),
		...reasons(reply),
		...[
			reply.hits.length ? reply.verdict : "",
			reply.note,
			reply.uncalibrated && reply.hits.length ? `How sure the matches are is not known: ${reply.uncalibrated}` : "",
			reply.backlog?.note,
		]
			.filter(Boolean)
			.map((text) => h("p.warn", plain(text))),
	];
}

function reasons(reply) {
	return Object.entries(reply.reasons ?? {}).map(([leg, why]) =>
		h("p.warn", `Not searched by ${LEGS[leg] ?? plain(leg)}: ${plain(why)}`),
	);
}

function nothing(reply, filtered) {
	return state(
		"Nothing was found",
		plain(reply.note || reply.verdict || "No passage has these words or this meaning."),
		filtered ? "Remove a filter, or search everything." : "Try other words, fewer words, or a whole question.",
	);
}
