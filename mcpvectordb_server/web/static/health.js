// How the file is: counts, what waits, what was passed over and why, and what takes its space.

import { get, post } from "./api.js";
import { drawChanges } from "./changes.js";
import { button, debounced, h, notify, plain, stored } from "./dom.js";
import { count, counted, duration, percent, size } from "./format.js";
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
			h("div.stack", model, passed),
		),
		changes,
	);
	const again = debounced(() => [draw().catch(() => {}), redraw()], 400);
	for (const name of ["changed", "model"]) app.on(name, again);
	app.on("job", (it) => ["done", "failed"].includes(it.state) && [again(), drawPassed(passed, app)]);
	app.signal.addEventListener("abort", () => again.cancel());
	await Promise.all([draw(), jobs.load()]);
	await Promise.all([drawSpace(space, app), drawPassed(passed, app), redraw()]);
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
			pending ? "" : "all found by meaning",
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

async function drawPassed(place, app, offset = 0) {
	const reply = await get("/api/passed_over", { query: { limit: 100, offset } });
	const failures = reply.failures ?? [];
	const rows = [
		...(offset ? [] : failures.map((each) => passedRow(each.library, each.path, each.message, "failed"))),
		...reply.files.map((each) => passedRow(each.library, each.path, each.reason, "passed over")),
	];
	if (!offset) {
		place.replaceChildren(
			h("h2", "Failed and passed over"),
			rows.length ? h("ul.passed") : h("p.muted", "Every file that was looked at is in here."),
		);
	}
	place.querySelector(".passed")?.append(...rows);
	place.querySelector(".more")?.remove();
	if (offset + reply.files.length < reply.total)
		place.append(
			button(`Show more of ${count(reply.total)}`, () => drawPassed(place, app, offset + reply.files.length), {
				kind: "more",
			}),
		);
}

function passedRow(library, path, reason, word) {
	return h(
		"li",
		stored("span.mono", path, { dir: "ltr" }),
		h(
			"span.small.muted",
			h("b", { class: word === "failed" ? "bad-word" : null }, word),
			`: ${plain(reason)}`,
			library ? ` · ${plain(library)}` : "",
		),
	);
}
