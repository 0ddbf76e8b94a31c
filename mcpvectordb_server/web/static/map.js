// The map: every passage that has an embedding, near to those that say something similar.

import { get, Latest, post } from "./api.js";
import { announce, button, debounced, h, notify, plain, state, stored } from "./dom.js";
import { count, counted, percent } from "./format.js";
import * as hits from "./hits.js";
import { gist } from "./markdown.js";
import { decoded, Plane } from "./plane.js";
import { go } from "./route.js";

export const whole = true;

const PALETTES = {
	light: ["#0b7a68", "#c2571a", "#5b4bb7", "#b8336a", "#2f6fb3", "#80780f", "#8a4b2a", "#4a5560"],
	dark: ["#5fd0b6", "#f2a15f", "#a99cf5", "#f08bb4", "#7db6f2", "#d2cb5a", "#d3a07e", "#a5b1bb"],
};
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
			"aria-label": `Map of ${counted(points.n, "passage")}. Arrows move it, plus and minus enlarge and shrink it, 0 shows all. The button “List what is in view” lists the passages.`,
		});
		this.card = h("div.hover-card", { hidden: true });
		this.panel = h("section.map-panel", { "aria-label": "Passages", hidden: true, tabindex: -1 });
		this.plane = new Plane(this.canvas, points, {
			hovered: (i, left, top) => this.hover(i, left, top),
			chosen: (i) => this.openPoint(i),
			encircled: (found) => this.list(found, "Encircled"),
		});
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
				this.legend(),
				this.panel,
			),
		);
		this.colour();
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

	colour() {
		this.plane.colours = PALETTES[this.dark() ? "dark" : "light"];
		this.plane.accent = getComputedStyle(document.body).color;
		this.about.groups.forEach((_group, at) => {
			this.swatches[at].style.backgroundColor = this.plane.colours[at % this.plane.colours.length];
		});
		this.plane.soon();
	}

	legend() {
		this.swatches = this.about.groups.map(() => h("i.swatch"));
		const row = (group, at) => {
			const box = h("input", {
				type: "checkbox",
				checked: true,
				on: {
					change: () => {
						if (box.checked) this.plane.hidden.delete(at);
						else this.plane.hidden.add(at);
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
		const { pending, explained } = this.about;
		return h(
			"details.legend",
			{ open: matchMedia("(min-width: 721px)").matches },
			h("summary", counted(this.points.n, "passage")),
			h("ul", this.about.groups.map(row)),
			pending ? h("p.small.muted", `${counted(pending, "passage")} wait for their embedding.`) : null,
			explained?.length
				? h(
						"p.small.muted",
						`Near means similar; the plane shows ${percent(explained[0] + explained[1])} of the differences.`,
					)
				: null,
		);
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

	passages(indexes, signal) {
		const { ids, group } = this.points;
		const wanted = { chunks: [], memories: [] };
		for (const i of indexes)
			wanted[this.about.groups[group[i]].kind === "memories" ? "memories" : "chunks"].push(ids[i]);
		return post("/api/map/passages", wanted, { signal });
	}

	async openPoint(i) {
		const reply = await this.passages([i], this.app.signal);
		if (reply.passages[0]) go(hits.place(reply.passages[0]));
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
				h("h2", heading),
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
		this.plane.emphasised = null;
		for (const each of document.querySelectorAll(".map-tools [aria-pressed=true]")) {
			if (each.textContent === "Near-duplicates") each.setAttribute("aria-pressed", "false");
		}
		this.canvas.focus({ preventScroll: true });
		this.plane.soon();
	}
}
