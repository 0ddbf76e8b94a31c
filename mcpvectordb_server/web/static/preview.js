// What a hit says where it stands, beside the results: no page is left to look.

import { get, Latest } from "./api.js";
import { h, language, plain, stored } from "./dom.js";
import { place, title, where } from "./hits.js";
import { markdown, Marks } from "./markdown.js";
import { rendered } from "./text.js";
import * as words from "./words.js";

const AROUND = 12; // lines before and after the passage
const WIDE = matchMedia("(min-width: 1100px)");

/** A panel with the passage of one hit in its surroundings; only where there is room for it. */
export class Preview {
	constructor(app) {
		this.latest = new Latest();
		this.element = h("aside.preview", { "aria-label": "The passage in its document", hidden: true });
		app.signal.addEventListener("abort", () => this.latest.stop());
		WIDE.addEventListener("change", () => this.show(this.hit), { signal: app.signal });
	}

	/** Show a hit; null closes the panel. */
	async show(hit) {
		if (hit && this.hit === hit && !this.element.hidden && WIDE.matches) return;
		this.hit = hit;
		this.element.hidden = !hit || !WIDE.matches;
		if (this.element.hidden) return this.latest.stop();
		try {
			const text = await this.latest.ask((signal) => (hit.kind === "memory" ? remembered(hit, signal) : read(hit, signal)));
			if (text) this.draw(hit, text);
		} catch (error) {
			this.draw(hit, [h("p.warn.bad", plain(error.message))]);
		}
		return undefined;
	}

	draw(hit, text) {
		const prose = h("article.prose", { tabindex: 0, "aria-label": "The passage", lang: language(text[0]?.textContent) }, text);
		this.element.replaceChildren(
			h("header", h("a.hit-link", { href: place(hit), tabindex: -1 }, stored("span", title(hit))), where(hit)),
			prose,
		);
		const cited = prose.querySelector("mark.cited mark, mark.cited");
		const shown = cited ? cited.getBoundingClientRect().top - prose.getBoundingClientRect().top : 0;
		prose.scrollTop = Math.max(0, shown - 60);
	}
}

async function remembered(hit, signal) {
	const memory = await get(`/api/memories/${hit.id}`, { signal });
	const matches = words.ranges(memory.text, words.matched(hit), [[0, memory.text.length]]);
	return markdown(memory.text, new Marks([], matches));
}

async function read(hit, signal) {
	const line = Math.max(1, hit.first_line - AROUND);
	const lines = hit.last_line - line + 1 + AROUND;
	const part = await get(`/api/documents/${encodeURIComponent(hit.id)}/text`, { query: { line, lines }, signal });
	return rendered(part, hit, words.matched(hit), { language: hit.file_type });
}
