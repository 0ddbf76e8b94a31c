// A list of any length: only the rows in sight are elements, and only their pages are read.

import { h } from "./dom.js";

const PAGE = 100;
const KEPT_PAGES = 60;
const BEYOND = 8; // rows above and below what is in sight

/**
 * `load(offset, limit, signal)` resolves to `{ items, total }`; `draw(item, index)` is a row's
 * content, which has one element of the class `row-link`; `height` is a row's height in pixels.
 */
export class List {
	constructor({ load, draw, height, label, signal, total = (number) => number }) {
		Object.assign(this, { load, draw, height, signal, told: total });
		this.pages = new Map();
		this.rows = new Map();
		this.selected = new Map();
		this.total = -1; // not known yet
		this.element = h("div.long-list", {
			role: "list",
			"aria-label": label,
			on: {
				keydown: (event) => this.key(event),
				change: (event) => this.check(event),
				click: (event) => this.shift(event),
			},
		});
		const look = () => {
			this.frame ??= requestAnimationFrame(() => {
				this.frame = null;
				this.render();
			});
		};
		addEventListener("scroll", look, { signal, passive: true });
		addEventListener("resize", look, { signal, passive: true });
	}

	/** Read the list anew, as after a change; rows stay until the new ones are there. */
	async refresh() {
		const [first, last] = this.inSight();
		this.pages.clear();
		this.stale = true;
		await this.need([first, Math.max(first, last - 1)]);
	}

	/** Draw all rows anew; the one with the focus has it again. */
	renew() {
		const focused = document.activeElement?.closest(".long-row")?.dataset.index;
		for (const row of this.rows.values()) row.remove();
		this.rows.clear();
		this.stale = false;
		this.render();
		if (focused !== undefined)
			this.rows.get(Number(focused))?.querySelector(".row-link")?.focus({ preventScroll: true });
	}

	item(index) {
		return this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
	}

	inSight() {
		const top = -this.element.getBoundingClientRect().top;
		const first = Math.max(0, Math.floor(top / this.height) - BEYOND);
		return [first, Math.min(Math.max(0, this.total), first + Math.ceil(innerHeight / this.height) + 2 * BEYOND)];
	}

	render() {
		const [first, last] = this.inSight();
		for (const [index, row] of this.rows) {
			if (index < first || index >= last) {
				if (row.contains(document.activeElement)) continue;
				row.remove();
				this.rows.delete(index);
			}
		}
		const missing = [];
		let previous = null;
		for (let index = first; index < last; index += 1) {
			let row = this.rows.get(index);
			const item = this.item(index);
			if (!item) missing.push(index);
			if (!row || (item && row.dataset.empty)) {
				row?.remove();
				row = this.row(index, item);
				this.rows.set(index, row);
				if (previous?.isConnected) previous.after(row);
				else this.element.prepend(row);
			}
			previous = row;
		}
		if (missing.length) this.need(missing);
	}

	row(index, item) {
		const row = h("div.long-row", {
			role: "listitem",
			"aria-setsize": this.total,
			"aria-posinset": index + 1,
			data: { index },
		});
		row.style.height = `${this.height}px`;
		row.style.transform = `translateY(${index * this.height}px)`;
		if (item) row.append(this.draw(item, index));
		else row.dataset.empty = "yes";
		return row;
	}

	/** Read the pages of some rows, the latest request first; a fast scroll skips what it passes. */
	need(indexes) {
		this.wanted = new Set(indexes.map((index) => Math.floor(index / PAGE)));
		this.waiting ??= new Promise((resolve) => {
			setTimeout(
				async () => {
					this.waiting = null;
					await this.fetch([...this.wanted]);
					resolve();
				},
				this.total > 0 ? 50 : 0,
			);
		});
		return this.waiting;
	}

	async fetch(pages) {
		this.reading?.abort();
		this.reading = new AbortController();
		const signal = AbortSignal.any([this.reading.signal, this.signal]);
		try {
			await Promise.all(
				pages
					.filter((page) => !this.pages.has(page))
					.map(async (page) => {
						const { items, total } = await this.load(page * PAGE, PAGE, signal);
						this.pages.set(page, items);
						if (total !== this.total) this.resize(total);
					}),
			);
		} catch (error) {
			if (error.name !== "AbortError") throw error;
			return;
		}
		while (this.pages.size > KEPT_PAGES) this.pages.delete(this.pages.keys().next().value);
		if (this.stale) this.renew();
		else this.render();
	}

	resize(total) {
		this.total = total;
		this.element.style.height = `${total * this.height}px`;
		this.told(total);
	}

	// ---- keys and selection

	key(event) {
		const row = event.target.closest(".long-row");
		if (!row || event.target.matches("select, input:not([type=checkbox])")) return;
		const index = Number(row.dataset.index);
		const page = Math.max(1, Math.floor(innerHeight / this.height) - 2);
		const next = {
			ArrowDown: index + 1,
			ArrowUp: index - 1,
			PageDown: index + page,
			PageUp: index - page,
			Home: 0,
			End: this.total - 1,
		}[event.key];
		if (next !== undefined) {
			event.preventDefault();
			this.focus(Math.min(Math.max(0, next), this.total - 1));
		} else if (event.key === " " && event.target.matches(".row-link")) {
			event.preventDefault();
			row.querySelector("input[type=checkbox]")?.click();
		}
	}

	async focus(index) {
		const top = index * this.height + this.element.getBoundingClientRect().top;
		const room = 130; // the bars above
		if (top < room) scrollBy(0, top - room);
		else if (top > innerHeight - this.height - 80) scrollBy(0, top - innerHeight + this.height + 80);
		this.render();
		if (!this.item(index)) await this.need([index]);
		this.rows.get(index)?.querySelector(".row-link")?.focus({ preventScroll: true });
	}

	/** A checkbox for a row; `id` is what is selected. */
	checkbox(id, index, label) {
		const box = h("input", { type: "checkbox", class: "row-check", "aria-label": label, data: { index } });
		box.checked = this.selected.has(id);
		box.selectedId = id;
		return box;
	}

	check(event) {
		const box = event.target;
		if (!box.matches(".row-check")) return;
		if (box.checked) this.selected.set(box.selectedId, this.item(Number(box.dataset.index)));
		else this.selected.delete(box.selectedId);
		this.last = Number(box.dataset.index);
		this.element.dispatchEvent(new Event("selected"));
	}

	/** Shift and click select all rows since the last one that was clicked. */
	shift(event) {
		const box = event.target;
		if (!box.matches?.(".row-check") || !event.shiftKey || this.last === undefined) return;
		const [from, to] = [this.last, Number(box.dataset.index)].sort((one, other) => one - other);
		for (const [index, row] of this.rows) {
			const each = row.querySelector(".row-check");
			if (each && index >= from && index <= to && each.checked !== box.checked) {
				each.checked = box.checked;
				if (each.checked) this.selected.set(each.selectedId, this.item(index));
				else this.selected.delete(each.selectedId);
			}
		}
	}

	clear() {
		this.selected.clear();
		for (const box of this.element.querySelectorAll(".row-check")) box.checked = false;
		this.element.dispatchEvent(new Event("selected"));
	}
}
