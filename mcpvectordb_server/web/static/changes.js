// What was changed, by whom and when, with its differences, and taking it back.

import { get, post } from "./api.js";
import { button, debounced, h, notify, plain, state, stored } from "./dom.js";
import { counted, day } from "./format.js";
import { gist } from "./markdown.js";
import { link } from "./route.js";

const SHELVES = [
	["", "everything"],
	["documents", "documents"],
	["memories", "memories"],
	["vectors", "vectors"],
	["libraries", "libraries"],
];
const STEP = 50;

/** The history as a place of its own, filtered by what was changed, by whom and since when. */
export async function open(_route, app) {
	const shown = { limit: STEP };
	const list = h("div.stack");
	const shelf = h(
		"select",
		{ "aria-label": "What was changed", on: { change: () => draw() } },
		SHELVES.map(([value, word]) => h("option", { value }, word)),
	);
	const actor = h("select", { "aria-label": "By whom", on: { change: () => draw() } }, h("option", { value: "" }, "by anybody"));
	const later = debounced(() => load(), 250);
	const typed = { on: { input: () => later() } };
	const name = h("input", { type: "search", placeholder: "Path or memory:7", "aria-label": "Of which item", ...typed });
	const since = h("input", { type: "text", class: "short", placeholder: "Since 2d", "aria-label": "Since", ...typed });
	const load = async () => {
		try {
			const query = { name: name.value.trim(), since: since.value.trim(), limit: shown.limit };
			Object.assign(shown, await get("/api/history", { query }));
			if (shown.name !== query.name) list.replaceChildren(); // differences are those of the item
			shown.name = query.name;
			const before = actor.value;
			const actors = [...new Set(shown.changes.map((each) => each.actor))].sort();
			actor.replaceChildren(
				h("option", { value: "" }, "by anybody"),
				...actors.map((each) => h("option", { value: each }, plain(each))),
			);
			actor.value = actors.includes(before) ? before : "";
			draw();
		} catch (error) {
			if (error.name === "AbortError") return;
			list.replaceChildren(
				state("Nothing is known of this", error.status === 404 ? "No change of it is kept." : plain(error.message)),
			);
		}
	};
	const draw = () => {
		const found = shown.changes.filter(
			(each) =>
				(!actor.value || each.actor === actor.value) &&
				(!shelf.value || each.items.some((item) => item.shelf === shelf.value)),
		);
		list.replaceChildren(
			found.length
				? h(
						"ul.changes",
						found.map((each) => shownRow(list, each) ?? row(each, shown.texts, app, load, name.value.trim() || undefined)),
					)
				: state("No changes", shown.changes.length ? "None of these: change a filter." : "Nothing was changed yet."),
		);
		if (shown.changes.length === shown.limit && shown.limit < 500)
			list.append(
				button(
					"Show more",
					() => {
						shown.limit = Math.min(500, shown.limit + STEP);
						return load();
					},
					{ kind: "more" },
				),
			);
	};
	app.place(h("h1", "History"), h("div.row.list-tools", shelf, actor, name, since), list);
	app.on("changed", later);
	app.signal.addEventListener("abort", () => later.cancel());
	await load();
}

/** Draw the latest changes into a place, those of one item or all; `done` is called after an undo. */
export async function drawChanges(place, app, done, name) {
	const heading = name
		? h("h2", "History")
		: h("div.row.between", h("h2", "Latest changes"), h("a", { href: "#/history" }, "History"));
	try {
		const { changes, texts } = await get("/api/history", { query: { name, limit: name ? 20 : 5 } });
		place.replaceChildren(
			heading,
			changes.length
				? h(
						"ul.changes",
						changes.map((each) => shownRow(place, each) ?? row(each, texts, app, done, name)),
					)
				: h("p.muted", "Nothing was changed yet that could be undone."),
		);
	} catch (error) {
		if (error.name === "AbortError") return;
		place.replaceChildren(heading, h("p.muted", error.status === 404 ? "No change of it is kept." : plain(error.message)));
	}
}

/** The row of a change that is shown already: its differences stay open when others are added. */
const shownRow = (place, { number }) => place.querySelector(`[data-change="${number}"]`);

function row(change, texts, app, done, name) {
	const [first] = change.items;
	const more = change.count > 1 ? ` and ${counted(change.count - 1, "more item")}` : "";
	const diff = h("pre.diff", { hidden: true, tabindex: 0, "aria-label": "Differences" });
	return h(
		"li",
		{ data: { change: change.number } },
		h(
			"div.row.between",
			h(
				"div",
				first ? sentence(first, texts[first.name]) : h("b", plain(change.action)),
				more,
				h(
					"div.small.muted",
					[day(change.time, { clock: true }), plain(change.actor), plain(change.action)].filter(Boolean).join(" · "),
				),
			),
			h(
				"div.row",
				button("Differences", () => show(change, diff, name), { kind: "quiet" }),
				app.session.read_only ? null : button("Undo", () => undo(change, done), { kind: "quiet" }),
			),
		),
		diff,
	);
}

const OF_MEMORIES = { added: "Remembered ", deleted: "Deleted " };

/** What was done to an item, as one reads it; what is still there is a link. */
function sentence(item, text) {
	const name = stored("span", item.title || item.name);
	if (item.shelf !== "memories") return [h("b", `${item.kind[0].toUpperCase()}${item.kind.slice(1)} `), name];
	const href = link(["memory", item.name.replace("memory:", "")]);
	return [
		h("b", OF_MEMORIES[item.kind] ?? "Changed "),
		text ? h("a.remembered", { href }, stored("span", gist(text))) : "a memory",
		" in ",
		name,
	];
}

async function show(change, place, name) {
	if (!place.textContent) {
		try {
			const reply = await get(`/api/history/${change.number}/diff`, { query: { name } });
			place.replaceChildren(reply.diff || "Only vectors or libraries were changed.");
		} catch (error) {
			notify(error.message, { bad: true });
			return;
		}
	}
	place.hidden = !place.hidden;
}

async function undo(change, done) {
	try {
		const reply = await post("/api/undo", { change: change.number });
		const said = [
			reply.restored.length ? `${counted(reply.restored.length, "item")} restored` : "",
			reply.removed.length ? `${counted(reply.removed.length, "item")} removed` : "",
			reply.kept.length ? `${counted(reply.kept.length, "item")} changed again since and kept` : "",
		];
		notify(`Undone: ${said.filter(Boolean).join(", ")}.`);
		await done();
	} catch (error) {
		notify(error.message, { bad: true });
	}
}
