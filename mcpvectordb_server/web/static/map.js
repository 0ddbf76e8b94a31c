// The map: every passage that has an embedding, near to those that say something similar.

import { get, Latest, post } from "./api.js";
import { announce, button, debounced, h, notify, plain, state, stored } from "./dom.js";
import { count, counted, percent } from "./format.js";
import * as hits from "./hits.js";
import { gist } from "./markdown.js";
import { decoded, hills, Plane } from "./plane.js";

export const whole = true;

const PALETTES = {
	light: ["#0b7a68", "#c2571a", "#5b4bb7", "#b8336a", "#2f6fb3", "#80780f", "#8a4b2a", "#4a5560", "#3d8f2f", "#a01c1c", "#1d8fa3", "#c07fd0"],
	dark: ["#5fd0b6", "#f2a15f", "#a99cf5", "#f08bb4", "#7db6f2", "#d2cb5a", "#d3a07e", "#a5b1bb", "#8fd67a", "#ff8f83", "#62d6ea", "#dca6ea"],
};
// From old to new.
const TIMES = { light: ["#d9a400", "#c2571a", "#5b2a86"], dark: ["#4a68a8", "#3fb89f", "#ffe07a"] };
const WAYS = { folder: "Folder", type: "Type", library: "Library", time: "Time" };
const MOST_NAMES = 14;
const LEAST = 6; // points that have a name
let colouredBy = "library"; // as long as the page is open
const PAGE = 40;

export async function open(route, app, newest = false) {
	app.place(
		h("div.state", h("h1", "Map"), h("p", "The map is being computed …"), h("progress", { "aria-label": "Computing" })),
	);
	const about = await get("/api/map", { query: { newest } });
	const again = () => open(route, app, true).catch((error) => notify(error.message, { bad: true }));
	if (!about.points) {
		app.place(
			state(
				"There is nothing to map yet",
				about.pending
					? `${counted(about.pending, "passage")} wait for their embedding; the map shows them afterwards.`
					: "The map shows passages that have an embedding. Bring documents in first.",
				about.pending ? button("Look again", again) : h("a.button.main", { href: "#/add" }, "Bring something in"),
			),
		);
		return;
	}
	const points = decoded(await get("/api/map/points", { query: { revision: about.revision }, as: "arrayBuffer" }));
	new PassageMap(app, about, points, again).open();
}

class PassageMap {
	constructor(app, about, points, again) {
		Object.assign(this, { app, about, points, again, latest: new Latest() });
		this.canvas = h("canvas.plane", {
			tabindex: 0,
			role: "application",
			"aria-label": `Map of ${counted(points.n, "passage")}. Arrows move it, plus and minus enlarge and shrink it, 0 shows all, Enter reads what is in the middle. The button “List what is in view” lists the passages.`,
		});
		this.card = h("div.hover-card", { hidden: true });
		this.panel = h("section.map-panel", { "aria-label": "Passages", hidden: true, tabindex: -1 });
		this.plane = new Plane(this.canvas, points, {
			hovered: (i, left, top) => this.hover(i, left, top),
			chosen: (i) => (i < 0 ? this.close() : this.read(i)),
			encircled: (found) => this.list(found, "Encircled"),
			drawn: () => this.placeNames(),
		});
		this.names = h("div.map-names", { role: "group", "aria-label": "Names of groups" });
		this.hills = new Map();
		// So many cells that the points of a group lie close enough to each other, also in a small file.
		this.cells = Math.max(12, Math.min(72, Math.round(3 * Math.sqrt(points.n))));
		this.askNames = debounced(() => this.fetchNames(), 200);
		this.ask = debounced((i) => this.fill(i), 50);
	}

	open() {
		const { app } = this;
		const lasso = button(
			"Lasso",
			() => {
				this.plane.lassoing = !this.plane.lassoing;
				lasso.setAttribute("aria-pressed", String(this.plane.lassoing));
				this.canvas.classList.toggle("lassoing", this.plane.lassoing);
			},
			{ "aria-pressed": "false", title: "Draw a line around points to list them; or hold Shift and drag" },
		);
		const duplicates = button("Near-duplicates", () => this.toggleDuplicates(duplicates), {
			"aria-pressed": "false",
			title: "Show passages that say nearly the same",
		});
		app.place(
			h(
				"div.map",
				h("h1.unseen", "Map"),
				this.canvas,
				this.names,
				this.card,
				h(
					"div.map-tools.row",
					{ role: "toolbar", "aria-label": "Map" },
					lasso,
					duplicates,
					button("List what is in view", () => this.list([...this.plane.inSight()], "In view")),
					h(
						"span.row.zoom",
						button("+", () => this.plane.scale(1.5), { "aria-label": "Enlarge" }),
						button("−", () => this.plane.scale(1 / 1.5), { "aria-label": "Shrink" }),
						button("All", () => this.plane.reset()),
					),
				),
				(this.box = h("details.legend", { open: matchMedia("(min-width: 721px)").matches })),
				this.panel,
			),
		);
		this.colourBy(colouredBy);
		app.on("theme", () => this.colour());
		app.on("changed", () => this.newer());
		if (!this.about.current) this.newer();
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.colour(), { signal: app.signal });
		document.addEventListener(
			"keydown",
			(event) => event.key === "Escape" && !event.target.closest("dialog") && this.close(),
			{ signal: app.signal },
		);
		this.plane.listen(app.signal);
		this.plane.resize();
	}

	dark() {
		const chosen = document.documentElement.dataset.theme;
		return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
	}

	colourBy(way) {
		colouredBy = way;
		if (this.plane.hidden.size) this.hills.clear(); // all points are shown again
		this.plane.hidden.clear();
		this.plane.group = this.points[way];
		this.legend(way);
		this.colour();
	}

	colour() {
		const theme = this.dark() ? "dark" : "light";
		const groups = this.about.groups[colouredBy];
		this.plane.colours =
			colouredBy === "time" ? groups.map((_, at) => ramp(TIMES[theme], at / Math.max(1, groups.length - 1))) : PALETTES[theme];
		this.plane.accent = getComputedStyle(document.body).color;
		groups.forEach((_group, at) => {
			this.swatches[at].style.backgroundColor = this.plane.colours[at % this.plane.colours.length];
		});
		this.plane.soon();
	}

	legend(way) {
		const groups = this.about.groups[way];
		this.swatches = groups.map(() => h("i.swatch"));
		const row = (group, at) => {
			const box = h("input", {
				type: "checkbox",
				checked: true,
				on: {
					change: () => {
						if (box.checked) this.plane.hidden.delete(at);
						else this.plane.hidden.add(at);
						this.hills.clear();
						this.plane.soon();
					},
				},
			});
			return h(
				"li",
				h(
					"label.check",
					box,
					this.swatches[at],
					stored("span.legend-name", group.name),
					h("span.muted.small", count(group.points)),
				),
			);
		};
		const choice = h(
			"select",
			{ on: { change: () => this.colourBy(choice.value) } },
			Object.entries(WAYS).map(([value, name]) => h("option", { value, selected: value === way }, name)),
		);
		this.box.replaceChildren(
			h("summary", counted(this.points.n, "passage")),
			h("label.row.small", "Colour by ", choice),
			h("ul", groups.map(row)),
			h("p.small.muted", "Near means similar; the words are those that set a group apart."),
			this.about.pending ? h("p.small.muted", `${counted(this.about.pending, "passage")} wait for their embedding.`) : "",
		);
	}

	// ---- names

	/** The hills of this size of the map, the largest first; of a smaller one where none is in sight. */
	here() {
		const { clientWidth: width, clientHeight: height } = this.canvas;
		const seen = (hill) => {
			const [left, top] = this.plane.place(...hill.middle);
			return left > 30 && top > 70 && left < width - 30 && top < height - 30;
		};
		for (let octave = Math.max(0, Math.min(4, Math.floor(Math.log2(this.plane.zoom)))); octave >= 0; octave -= 1) {
			if (!this.hills.has(octave)) {
				const found = hills(this.points, (i) => this.plane.shows(i), this.cells << octave).filter((each) => each.size >= LEAST);
				this.hills.set(octave, found.sort((a, b) => b.size - a.size));
			}
			const found = this.hills.get(octave).filter(seen);
			if (found.some((hill) => hill.name !== "")) return found;
		}
		return [];
	}

	placeNames() {
		const taken = [];
		const shown = [];
		let unnamed = false;
		for (const hill of this.here()) {
			if (shown.length === MOST_NAMES) break;
			let [left, top] = this.plane.place(...hill.middle);
			if (!hill.name) {
				unnamed ||= hill.name === undefined;
				continue;
			}
			const reach = hill.name.length * 3.9 + 10;
			left = Math.max(reach, Math.min(left, this.canvas.clientWidth - reach));
			if (taken.some(([x, y, other]) => Math.abs(x - left) < reach + other && Math.abs(y - top) < 26)) continue;
			taken.push([left, top, reach]);
			hill.button ??= button(hill.name, () => this.plane.show(hill.middle, hill.spread), {
				kind: "map-name",
				title: `${counted(hill.size, "passage")}: enlarge`,
			});
			hill.button.style.left = `${left}px`;
			hill.button.style.top = `${top}px`;
			shown.push(hill.button);
		}
		if (shown.some((each, at) => each !== this.names.children[at]) || shown.length !== this.names.children.length) {
			const kept = this.names.contains(document.activeElement) ? document.activeElement : null;
			this.names.replaceChildren(...shown);
			if (kept) (shown.includes(kept) ? kept : this.canvas).focus({ preventScroll: true });
		}
		if (unnamed) this.askNames();
	}

	async fetchNames() {
		const wanted = this.here().slice(0, 24);
		if (wanted.every((hill) => hill.name !== undefined)) return;
		const parts = wanted.map((hill) => this.wanted(hill.some));
		const reply = await post(
			"/api/map/names",
			{ chunks: parts.map((each) => each.chunks), memories: parts.map((each) => each.memories) },
			{ signal: this.app.signal },
		).catch(() => null);
		if (!reply) return;
		wanted.forEach((hill, at) => {
			hill.name ??= reply.names[at].join(" · ");
		});
		this.plane.soon();
	}

	newer() {
		if (this.offered) return;
		this.offered = true;
		this.canvas.after(
			button("The file has changed: draw the map again", () => this.again(), { icon: "refresh", kind: "map-newer" }),
		);
	}

	// ---- hover

	hover(i, left, top) {
		this.ask.cancel();
		this.card.hidden = true;
		if (i < 0) return this.latest.stop();
		this.at = [left, top];
		return this.ask(i);
	}

	async fill(i) {
		const reply = await this.latest.ask((signal) => this.passages([i], signal)).catch(() => null);
		const hit = reply?.passages[0];
		if (!hit || this.plane.over !== i) return;
		this.card.replaceChildren(
			h("b", { dir: "auto" }, plain(hits.title(hit))),
			hits.where(hit),
			h("p", { dir: "auto" }, plain(gist((hit.text ?? "").slice(0, 400)))),
		);
		this.card.hidden = false;
		const [left, top] = this.at;
		const { clientWidth: width, clientHeight: height } = this.canvas;
		this.card.style.left = `${Math.max(8, Math.min(left + 16, width - this.card.offsetWidth - 8))}px`;
		this.card.style.top = `${top + 20 + this.card.offsetHeight > height ? Math.max(8, top - this.card.offsetHeight - 14) : top + 16}px`;
	}

	wanted(indexes) {
		const wanted = { chunks: [], memories: [] };
		for (const i of indexes) wanted[i >= this.points.n - this.about.memories ? "memories" : "chunks"].push(this.points.ids[i]);
		return wanted;
	}

	passages(indexes, signal) {
		return post("/api/map/passages", this.wanted(indexes), { signal });
	}

	/** Read a point beside the map. */
	async read(i) {
		this.hover(-1);
		const reply = await this.passages([i], this.app.signal);
		const hit = reply.passages[0];
		if (!hit) return;
		this.plane.read = i;
		this.show(hits.title(hit), [
			hits.where(hit),
			h("article.prose.map-text", hits.passage(hit)),
			h("a.button", { href: hits.place(hit) }, "Read on"),
		]);
	}

	// ---- lists

	list(indexes, heading) {
		const list = h("ol.briefs");
		const more = button("Show more", () => load(), { kind: "more" });
		let shown = 0;
		const load = async () => {
			const some = indexes.slice(shown, shown + PAGE);
			if (!some.length) return;
			const reply = await this.passages(some, this.app.signal);
			shown += some.length;
			const rows = reply.passages.map((hit) => hits.brief(hit));
			list.append(...rows);
			if (shown > PAGE) rows[0]?.querySelector("a").focus();
			more.hidden = shown >= indexes.length;
		};
		const chosen = new Set(indexes);
		if (heading === "Encircled") this.plane.emphasised = (i) => chosen.has(i);
		this.show(
			`${heading}: ${counted(indexes.length, "passage")}`,
			indexes.length ? [list, more] : [h("p.muted", "No point lies there.")],
		);
		load();
	}

	async toggleDuplicates(control) {
		const on = control.getAttribute("aria-pressed") !== "true";
		control.setAttribute("aria-pressed", String(on));
		if (!on) return this.close();
		const { cluster } = this.points;
		this.show("Near-duplicates", [h("p.muted", "Comparing …")]);
		this.plane.emphasised = (i) => cluster[i] > 0;
		this.plane.soon();
		const reply = await get("/api/duplicates", { query: { limit: 50 } });
		this.show(
			reply.total ? `${counted(reply.total, "group")} of near-duplicates` : "Near-duplicates",
			reply.total
				? reply.clusters.map((each) =>
						h(
							"section.duplicates",
							h("h3", `${counted(each.size, "passage")}, ${percent(each.cosine)} alike`),
							h(
								"ol.briefs",
								each.passages.map((hit) => hits.brief(hit)),
							),
						),
					)
				: [h("p.muted", "No two passages say nearly the same.")],
		);
		return undefined;
	}

	show(heading, content) {
		this.panel.replaceChildren(
			h(
				"div.row.between",
				stored("h2", heading),
				button("", () => this.close(), { icon: "close", title: "Close the list", kind: "quiet" }),
			),
			h("div.map-list", content),
		);
		this.panel.hidden = false;
		this.panel.focus();
		announce(heading);
		this.plane.soon();
	}

	close() {
		if (this.panel.hidden) return;
		this.panel.hidden = true;
		this.plane.read = -1;
		this.plane.emphasised = null;
		for (const each of document.querySelectorAll(".map-tools [aria-pressed=true]")) {
			if (each.textContent === "Near-duplicates") each.setAttribute("aria-pressed", "false");
		}
		this.canvas.focus({ preventScroll: true });
		this.plane.soon();
	}
}

/** A colour between some, from 0 to 1. */
function ramp(stops, at) {
	const place = at * (stops.length - 1);
	const low = Math.min(stops.length - 2, Math.floor(place));
	const part = (stop, from) => Number.parseInt(stop.slice(from, from + 2), 16);
	return `#${[1, 3, 5]
		.map((from) => Math.round(part(stops[low], from) + (part(stops[low + 1], from) - part(stops[low], from)) * (place - low)))
		.map((value) => value.toString(16).padStart(2, "0"))
		.join("")}`;
}
