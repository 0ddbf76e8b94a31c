// The file itself beside its text: a page of a PDF, or a picture, drawn by the server.

import { get, Latest } from "./api.js";
import { announce, button, h, plain } from "./dom.js";
import { count } from "./format.js";

const KEPT = 6; // pages that are kept to be shown again at once
const TYPES = ["pdf", "png", "jpg", "jpeg", "gif", "bmp", "tif", "tiff"];

/** Whether there may be something to draw: a file of such a type, also one that is gone by now. */
export const drawable = ({ file_type, file_state }) => file_state !== "" && TYPES.includes(file_type);

/** Shows one page at a time in `panel`; `turned(page)` is called when somebody turns to another. */
export class Original {
	constructor(panel, document, pages, app, turned) {
		Object.assign(this, { document, pages, turned, latest: new Latest(), kept: new Map(), page: 0 });
		this.place = h("span.original-place");
		const step = (by, label, title) => button(label, () => this.step(by), { kind: "quiet", title, hidden: this.pages < 2 });
		this.steps = [step(-1, "‹", "Previous page ([)"), step(1, "›", "Next page (])")];
		this.larger = button("Enlarge", () => this.enlarge(), { kind: "quiet", "aria-pressed": "false" });
		this.sheet = h("div.sheet", { tabindex: 0, role: "group", "aria-label": "The file itself" }, h("p.muted", "Drawing …"));
		panel.replaceChildren(h("div.row.original-bar", this.steps[0], this.place, this.steps[1], this.larger), this.sheet);
		app.signal.addEventListener("abort", () => {
			this.latest.stop();
			for (const url of this.kept.values()) URL.revokeObjectURL(url);
		});
	}

	/** Turn to another page because somebody wants to see it. */
	step(by) {
		const page = this.page + by;
		if (page < 1 || page > this.pages) return;
		this.show(page);
		this.turned(page);
	}

	enlarge() {
		const on = this.sheet.classList.toggle("enlarged");
		this.larger.setAttribute("aria-pressed", String(on));
		this.show(this.page);
	}

	async show(page) {
		this.page = Math.min(Math.max(1, page), this.pages);
		const name = this.pages > 1 ? `Page ${count(this.page)} of ${count(this.pages)}` : "The original";
		this.place.textContent = name;
		this.steps[0].disabled = this.page === 1;
		this.steps[1].disabled = this.page === this.pages;
		const most_pixels = this.sheet.classList.contains("enlarged") || devicePixelRatio > 1 ? 2400 : 1400;
		const key = `${this.page} ${most_pixels}`;
		if (key === this.shown) return;
		this.shown = key;
		this.sheet.setAttribute("aria-busy", "true");
		try {
			const url = this.kept.get(key) ?? (await this.latest.ask((signal) => this.read(key, most_pixels, signal)));
			if (!url || this.shown !== key) return;
			const alt = `${name} of ${plain(this.document.title || this.document.path)}`;
			this.sheet.replaceChildren(h("img", { alt, src: url, data: { page: this.page } }));
			this.sheet.scrollTop = 0;
			announce(name);
		} catch (error) {
			this.shown = "";
			this.sheet.replaceChildren(h("p.warn", plain(error.message)));
		}
		this.sheet.removeAttribute("aria-busy");
	}

	async read(key, most_pixels, signal) {
		const path = `/api/documents/${encodeURIComponent(this.document.id)}/picture`;
		const blob = await get(path, { query: { page: this.page, most_pixels }, signal, superseding: true, as: "blob" });
		const url = URL.createObjectURL(blob);
		this.kept.set(key, url);
		const [[oldest, gone]] = this.kept;
		if (this.kept.size > KEPT) {
			this.kept.delete(oldest);
			URL.revokeObjectURL(gone);
		}
		return url;
	}
}
