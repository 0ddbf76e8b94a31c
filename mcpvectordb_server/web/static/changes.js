// What was changed, by whom and when, with its differences, and taking it back.

import { get, post } from "./api.js";
import { button, h, notify, plain, stored } from "./dom.js";
import { counted, day } from "./format.js";

/** Draw the latest changes into a place, those of one item or all; `done` is called after an undo. */
export async function drawChanges(place, app, done, name) {
	const heading = h("h2", name ? "History" : "Changes");
	try {
		const { changes } = await get("/api/history", { query: { name, limit: 20 } });
		place.replaceChildren(
			heading,
			changes.length
				? h(
						"ul.changes",
						changes.map((each) => row(each, app, done, name)),
					)
				: h("p.muted", "Nothing was changed yet that could be undone."),
		);
	} catch (error) {
		if (error.name === "AbortError") return;
		place.replaceChildren(heading, h("p.muted", error.status === 404 ? "No change of it is kept." : plain(error.message)));
	}
}

function row(change, app, done, name) {
	const [first] = change.items;
	const more = change.count > 1 ? ` and ${counted(change.count - 1, "more item")}` : "";
	const diff = h("pre.diff", { hidden: true, tabindex: 0, "aria-label": "Differences" });
	return h(
		"li",
		h(
			"div.row.between",
			h(
				"div",
				first ? h("b", `${first.kind} `) : h("b", plain(change.action)),
				first ? stored("span", first.title || first.name) : null,
				more,
				h("div.small.muted", `${day(change.time, { clock: true })} · ${plain(change.actor)} · ${plain(change.action)}`),
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
