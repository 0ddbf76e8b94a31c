// How the file is: counts, what waits, what was passed over and why, and what takes its space.

import { get, post } from "./api.js";
import { drawChanges } from "./changes.js";
import { button, debounced, h, notify, plain, stored } from "./dom.js";
import { count, counted, day, duration, percent, size } from "./format.js";
import { Jobs } from "./jobs.js";

const MODEL_STATES = {
	loading: "being loaded",
	ready: "ready",
	missing: "not on this machine",
	unloaded: "loaded when first needed",
};

export async function open(_route, app) {
	const figures = h("div.figures", { "aria-live": "off" });
	const model = h("section.card.stack");
	const jobs = new Jobs(app, () => true, {
		none: "Nothing is running. Ingests, syncs and checks appear here, with their progress.",
	});
	const space = h("section.card.stack", h("h2", "What takes space"), h("p.muted", "Measuring …"));
	const passed = h("section.card.stack", h("h2", "Failed and passed over"), h("p.muted", "Reading …"));
	const changes = h("section.card.stack", h("h2", "Changes"), h("p.muted", "Reading …"));
	const clients = h("section.card.stack", { hidden: true });
	const redraw = () => drawChanges(changes, app, redraw);
	const start = (path, word) =>
		post(path).then(
			() => notify(`${word} has begun.`),
			(error) => notify(error.message, { bad: true }),
		);
	const draw = async () => {
		const status = await get("/api/status");
		drawFigures(figures, status);
		drawModel(model, status);
	};
	app.place(
		h(
			"div.row.between",
			h("h1", "Health"),
			h(
				"div.row",
				button("Check", () => start("/api/check", "The check"), { title: "Compare the indexes with the texts" }),
				app.session.read_only
					? null
					: button("Compact", () => start("/api/compact", "Compacting"), {
							title: "Give unused space back to the disk",
						}),
			),
		),
		stored("p.where.mono.file-path", app.session.path, { dir: "ltr" }),
		figures,
		h(
			"div.two",
			h("div.stack", h("section.card.stack", h("h2", "Work"), jobs.element), space),
			h("div.stack", model, passed, clients),
		),
		changes,
	);
	const again = debounced(() => [draw().catch(() => {}), redraw()], 400);
	for (const name of ["changed", "model"]) app.on(name, again);
	app.on("job", (it) => ["done", "failed"].includes(it.state) && [again(), drawPassed(passed)]);
	app.signal.addEventListener("abort", () => again.cancel());
	await Promise.all([draw(), jobs.load()]);
	await Promise.all([drawSpace(space, app), drawPassed(passed), redraw(), drawClients(clients, app)]);
}

/** The programs that were let in from elsewhere; without any there is nothing to see. */
async function drawClients(place, app) {
	const { clients } = await get("/api/clients");
	place.hidden = !clients.length;
	const revoke = (client) =>
		post(`/api/clients/${client.id}/revoke`).then(
			() => drawClients(place, app),
			(error) => notify(error.message, { bad: true }),
		);
	place.replaceChildren(
		h("h2", "Let in from elsewhere"),
		h(
			"ul.changes",
			clients.map((client) =>
				h(
					"li.row.between",
					h(
						"div",
						stored("b", client.name),
						h("div.small.muted", `${plain(client.host)} · ${client.scopes.join(", ")} · since ${day(client.created_at)}`),
					),
					app.session.read_only ? null : button("Revoke", () => revoke(client), { title: "Let it out at once" }),
				),
			),
		),
	);
}

function drawFigures(place, status) {
	const figure = (value, noun, note) => h("div.figure", h("b", value), h("span", noun), note ? h("small", note) : null);
	const { pending, seconds_left: left } = status.embedding ?? { pending: status.pending };
	place.replaceChildren(
		figure(
			count(status.documents),
			status.documents === 1 ? "document" : "documents",
			`in ${status.libraries === 1 ? "1 library" : `${count(status.libraries)} libraries`}`,
		),
		figure(
			count(status.memories),
			status.memories === 1 ? "memory" : "memories",
			`in ${counted(status.threads, "thread")}`,
		),
		figure(
			count(status.passages),
			status.passages === 1 ? "passage" : "passages",
			pending ? "" : status.passages ? "all found by meaning" : "",
		),
		figure(
			count(pending),
			"pending",
			pending ? (left == null ? "found by words until then" : `about ${duration(left)} left`) : "nothing waits",
		),
		figure(size(status.file.bytes), "on disk", `format ${status.file.format}`),
	);
}

function drawModel(place, status) {
	const { model, coverage = {} } = status;
	const fact = (name, value) => (value === "" || value == null ? [] : [h("dt", name), h("dd", value)]);
	const total = (coverage.embedded ?? 0) + (coverage.partly_embedded ?? 0) + (coverage.waiting ?? 0) + (coverage.empty ?? 0);
	place.replaceChildren(
		h("h2", "Model"),
		h(
			"dl.facts",
			fact("Name", h("code", plain(model.name))),
			fact(
				"State",
				`${MODEL_STATES[model.state] ?? plain(model.state)}${model.reason ? `: ${plain(model.reason)}` : ""}`,
			),
			fact("Dimensions", `${count(model.dimension)}, as ${plain(model.embeddings)}`),
			fact("Passage size", `${count(model.chunk_size)} tokens, ${count(model.chunk_overlap)} shared`),
			fact(
				"Found by meaning",
				total
					? `${counted(coverage.embedded, "document")} of ${count(total)}${coverage.partly_embedded ? `, ${count(coverage.partly_embedded)} in part` : ""}`
					: "",
			),
			fact("Same as another", coverage.identical ? counted(coverage.identical, "document") : ""),
		),
		...Object.entries(status.unavailable ?? {}).map(([leg, why]) => h("p.warn", `${plain(leg)}: ${plain(why)}`)),
		...Object.values(status.backlog)
			.filter((each) => each.note)
			.map((each) => h("p.small.muted", plain(each.note))),
	);
}

async function drawSpace(place, app) {
	const reply = await get("/api/space");
	const parts = [...reply.parts].sort((one, other) => other.bytes - one.bytes).filter((part) => part.bytes);
	place.replaceChildren(
		h("h2", "What takes space"),
		h(
			"ul.space",
			parts.map((part) => {
				const bar = h("i.space-bar");
				bar.style.width = `${(100 * part.bytes) / parts[0].bytes}%`;
				return h(
					"li",
					h("span", plain(part.name)),
					h("span.space-track", bar),
					h("span.muted", `${size(part.bytes)} · ${percent(part.bytes / reply.bytes)}`),
				);
			}),
		),
	);
}

/** Files that are not in here, by why that is, with what can be done about it. */
async function drawPassed(place) {
	const reply = await get("/api/passed_over", { query: { limit: 500 } });
	const reasons = new Map();
	const add = (file, why, failed) => {
		// Reasons that differ by the name of the file alone are one.
		const said = plain(why).replace(plain(file.path), "…");
		if (!reasons.has(said)) reasons.set(said, { failed, files: [] });
		reasons.get(said).files.push(file);
	};
	for (const each of reply.failures) add(each, each.reason, true);
	for (const each of reply.files) add(each, each.reason, false);
	const groups = [...reasons].sort(([, one], [, other]) => other.failed - one.failed || other.files.length - one.files.length);
	place.replaceChildren(
		h("h2", "Failed and passed over"),
		groups.length
			? h("ul.passed", groups.map(([why, group]) => passedGroup(why, group)))
			: h("p.muted", "Every file that was looked at is in here."),
		reply.more ? h("p.small.muted", "There are more: the list of each library has them all.") : "",
	);
}

function passedGroup(why, { failed, files }) {
	return h(
		"li",
		h(
			"details",
			{ open: files.length < 4 },
			h(
				"summary",
				h("b", { class: failed ? "bad-word" : null }, `${counted(files.length, "file")} ${failed ? "failed" : "passed over"}`),
				`: ${why}`,
			),
			h(
				"ul.small.names",
				files.slice(0, 100).map(({ path, library }) =>
					h("li", stored("span.mono", path, { dir: "ltr" }), library ? h("span.muted", ` · ${plain(library)}`) : null),
				),
				files.length > 100 ? h("li.muted", `and ${counted(files.length - 100, "other file")}`) : null,
			),
		),
		h("p.small.muted", remedy(why, failed)),
	);
}

/** What helps, by what the reason says. */
function remedy(why, failed) {
	if (/ocr|no text|scan/i.test(why)) return "Scans and images are read with the extra ocr: pip install 'mcpvectordb[ocr]', then sync again.";
	if (/password|encrypt/i.test(why)) return "Save it anew, without a password, then sync again.";
	if (/too large|bytes; at most|larger/i.test(why)) return "MCPVECTORDB_MAX_SOURCE_BYTES allows larger files.";
	if (/secret|credential/i.test(why)) return "It looks like a secret, and stays out.";
	if (/ignored|pattern|hidden/i.test(why)) return "The library's patterns leave it out; change them to bring it in.";
	if (/no readable type|not of a type|unknown type|binary/i.test(why)) return "Files of this type are not read.";
	return failed ? "Sync again after the file is mended; other files are not held up by it." : "Nothing needs to be done.";
}
