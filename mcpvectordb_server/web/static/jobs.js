// Work that takes longer than a reply: its progress, how it ended, and a button to stop it.

import { get, post } from "./api.js";
import { announce, button, h, notify, plain, stored } from "./dom.js";
import { count, counted, duration, size } from "./format.js";
import { link } from "./route.js";

const WORDS = { queued: "waiting", running: "running", done: "done", failed: "failed", cancelled: "stopped" };
const KINDS = {
	upload: "File",
	url: "URL",
	folder: "Folder",
	sync: "Sync",
	check: "Check",
	compact: "Compact",
	map: "Map",
};
const STEPS = {
	fetch: "fetching",
	parse: "reading",
	ingest: "reading files",
	sync: "comparing files",
	embed: "embedding",
};

/** A list of jobs that follows the server's events; `wanted` chooses among them. */
export class Jobs {
	constructor(app, wanted = () => true, { none = "" } = {}) {
		Object.assign(this, { app, wanted, none });
		this.rows = new Map();
		this.states = new Map();
		this.list = h("ol.jobs");
		this.element = h("div", this.list);
		app.on("job", (it) => this.show(it));
		app.on("hello", () => this.load().catch(() => {}));
	}

	async load() {
		const reply = await get("/api/jobs");
		for (const job of reply.jobs.slice(0, 60).reverse()) this.show(job);
		if (!this.rows.size && this.none) this.element.replaceChildren(h("p.muted", this.none));
	}

	show(job) {
		if (!this.wanted(job)) return;
		if (!this.list.isConnected) this.element.replaceChildren(this.list);
		const row = this.draw(job);
		if (this.rows.has(job.id)) this.rows.get(job.id).replaceWith(row);
		else this.list.prepend(row);
		this.rows.set(job.id, row);
		const before = this.states.get(job.id);
		if (before && before !== job.state && ["done", "failed"].includes(job.state))
			announce(`${KINDS[job.kind] ?? job.kind} ${plain(job.title)}: ${WORDS[job.state]}. ${outcome(job)}`);
		this.states.set(job.id, job.state);
	}

	draw(job) {
		const active = ["queued", "running"].includes(job.state);
		return h(
			"li",
			{ class: `job ${job.state}`, data: { job: job.id, state: job.state } },
			h(
				"div.row.between",
				h("span.job-title", h("b", KINDS[job.kind] ?? plain(job.kind)), " ", stored("span", job.title)),
				h(
					"span.row",
					h("span.job-state", WORDS[job.state] ?? plain(job.state)),
					active && !this.app.session.read_only
						? button(
								"Stop",
								() =>
									post(`/api/jobs/${encodeURIComponent(job.id)}/cancel`).catch((error) =>
										notify(error.message, { bad: true }),
									),
								{ kind: "quiet" },
							)
						: null,
				),
			),
			active ? bar(job.progress) : null,
			h("div.job-outcome", active ? pace(job.progress) : outcomeElements(job)),
		);
	}
}

function bar(progress) {
	const element = h("progress", { "aria-label": "Progress" });
	if (progress?.total) {
		element.max = progress.total;
		element.value = progress.done;
	}
	return element;
}

function pace(progress) {
	if (!progress) return "";
	const step = STEPS[progress.step] ?? progress.step;
	const done = progress.total == null ? count(progress.done) : `${count(progress.done)} of ${count(progress.total)}`;
	const embedded =
		progress.chunks_known && progress.step !== "embed"
			? `${count(progress.chunks)} of ${counted(progress.chunks_known, "passage")} embedded`
			: "";
	const left = progress.seconds_left == null ? "" : `about ${duration(progress.seconds_left)} left`;
	return [`${step} ${done}`, embedded, left].filter(Boolean).join(" · ");
}

/** How a job ended, as one sentence. */
function outcome({ state, kind, result, error }) {
	if (error) return plain(error.message);
	if (state === "cancelled") return "What was done until then stays.";
	if (!result) return "";
	if (kind === "compact")
		return result.freed ? `${size(result.freed)} were given back.` : "There was nothing to give back.";
	if (kind === "check")
		return result.problems.length ? `${counted(result.problems.length, "problem")} found.` : "The file is sound.";
	if (result.document)
		return `${result.status}${result.pending ? `; ${counted(result.pending, "passage")} will be found by meaning soon` : ""}. ${result.note ?? ""}`;
	if ("indexed" in result) return synced(result);
	return "";
}

function synced(result) {
	const parts = ["indexed", "replaced", "moved", "removed", "updated", "unchanged"]
		.filter((name) => result[name])
		.map((name) => `${count(result[name])} ${name}`);
	const skipped = Object.values(result.skipped ?? {}).reduce((sum, each) => sum + each, 0);
	if (skipped) parts.push(`${count(skipped)} passed over`);
	if (result.failures?.length) parts.push(`${count(result.failures.length)} failed`);
	return `${parts.join(", ") || "nothing to do"}. ${result.note ?? ""}`;
}

function outcomeElements(job) {
	const parts = [plain(outcome(job))];
	if (job.result?.document) parts.push(" ", h("a", { href: link(["document", job.result.document.id]) }, "Read it"));
	if (job.result?.problems?.length) {
		parts.push(
			h(
				"ul.problems",
				job.result.problems.slice(0, 50).map((each) => h("li", plain(each))),
			),
			h(
				"p",
				"`mcpvectordb rebuild` makes the indexes again; `mcpvectordb salvage` saves what can be read into a new file.",
			),
		);
	}
	const failures = job.result?.failures ?? [];
	if (failures.length)
		parts.push(
			h(
				"details",
				h("summary", counted(failures.length, "failure")),
				h(
					"ul.problems",
					failures.slice(0, 200).map(([path, why]) => h("li", stored("span.mono", path), `: ${plain(why)}`)),
				),
			),
		);
	return parts;
}
