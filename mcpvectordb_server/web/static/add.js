// Bring in: files and folders that are dropped, a text, a URL, a folder to follow, a memory.

import { get, post, put } from "./api.js";
import { announce, ask, button, field, h, icon, notify, plain, state, stored } from "./dom.js";
import { tagged } from "./edit.js";
import { count, counted, size } from "./format.js";
import { Jobs } from "./jobs.js";
import { link } from "./route.js";

const AT_ONCE = 3;
const MOST_ROWS = 200;
const WAYS = [
	["files", "Files"],
	["text", "Text"],
	["url", "URL"],
	["folder", "Follow a folder"],
	["memory", "Memory"],
];

export async function open(route, app) {
	if (app.session.read_only) {
		app.place(
			state("This page is for looking only", "Start `mcpvectordb web` without --read-only to bring something in."),
		);
		return undefined;
	}
	const libraries = (await get("/api/libraries")).libraries;
	const view = new Add(app, libraries);
	view.show(route.parts[1] ?? "files");
	return { update: (next) => next.parts[0] === "add" && (view.show(next.parts[1] ?? "files"), true) };
}

class Add {
	constructor(app, libraries) {
		this.app = app;
		this.libraries = libraries;
		this.body = h("div.add-body");
		this.tabs = h(
			"nav.ways",
			{ "aria-label": "Ways to bring something in" },
			WAYS.map(([name, label]) => h("a", { href: link(["add", name]), data: { way: name } }, label)),
		);
		this.jobs = new Jobs(app, (job) => ["upload", "url", "folder", "sync"].includes(job.kind));
		app.place(
			h("h1", "Bring in"),
			this.tabs,
			this.body,
			h("section.stack.recent-jobs", h("h2", "Lately brought in"), this.jobs.element),
		);
		this.jobs.load().catch(() => {});
	}

	show(way) {
		for (const tab of this.tabs.children) {
			if (tab.dataset.way === way) tab.setAttribute("aria-current", "page");
			else tab.removeAttribute("aria-current");
		}
		const draw =
			{ files: this.files, text: this.text, url: this.url, folder: this.folder, memory: this.memory }[way] ??
			this.files;
		this.body.replaceChildren(draw.call(this));
	}

	library(value = "default") {
		const options = h(
			"datalist",
			{ id: "libraries" },
			this.libraries.map((each) => h("option", { value: each.name })),
		);
		const input = h("input", { type: "text", value, list: "libraries", autocomplete: "off" });
		return { input, element: h("label.field", "Into the library", input, options) };
	}

	form(fields, label, act) {
		const problem = h("p.warn.bad", { role: "alert", hidden: true });
		const send = h("button", { type: "submit", class: "button main" }, label);
		const form = h(
			"form.card.stack.add-form",
			{
				on: {
					submit: async (event) => {
						event.preventDefault();
						send.disabled = true;
						problem.hidden = true;
						try {
							await act();
						} catch (error) {
							problem.textContent = plain(error.message);
							problem.hidden = false;
						}
						send.disabled = false;
					},
				},
			},
			fields,
			problem,
			h("div", send),
		);
		return form;
	}

	// ---- files

	files() {
		const library = this.library();
		const pick = (folder) =>
			h("input", {
				type: "file",
				multiple: true,
				webkitdirectory: folder,
				class: "unseen",
				tabindex: -1,
				"aria-hidden": "true",
				on: { change: (event) => this.send(picked(event.target.files), library.input.value) },
			});
		const [some, whole] = [pick(false), pick(true)];
		this.sending = h("div.sending");
		const zone = h(
			"div.drop",
			{
				on: {
					dragover: (event) => {
						event.preventDefault();
						zone.classList.add("over");
					},
					dragleave: () => zone.classList.remove("over"),
					drop: async (event) => {
						event.preventDefault();
						zone.classList.remove("over");
						this.send(await dropped(event.dataTransfer), library.input.value);
					},
				},
			},
			icon("add"),
			h("p", h("b", "Drop files or folders here")),
			h("p.muted.small", "Some thirty formats: Markdown, PDF, Word, HTML, e-mail, code … Nothing leaves this machine."),
			h(
				"div.row",
				button("Choose files", () => some.click(), { kind: "main" }),
				button("Choose a folder", () => whole.click()),
			),
			some,
			whole,
		);
		return h("div.stack", zone, h("div.add-library", library.element), this.sending);
	}

	/**
	 * Send files, a few at a time; what failed says why and stays in the list. Where others of these
	 * names are here, it is asked once, at the end, whether they are to be replaced.
	 */
	async send(files, library, replace = false) {
		if (!files.length) return;
		const others = [];
		const total = files.length;
		const bar = h("progress", { max: total, "aria-label": "Files sent" });
		const line = h("p", "");
		const failed = h("ul.problems");
		const stop = new AbortController();
		this.app.signal.addEventListener("abort", () => stop.abort());
		const stopping = button("Stop", () => stop.abort(), { kind: "quiet" });
		this.sending.replaceChildren(h("div.card.stack", h("div.row.between", line, stopping), bar, failed));
		let done = 0;
		let bad = 0;
		// What was sent is read afterwards, by jobs: only their ends say what came of it.
		const jobs = new Set();
		const states = new Map();
		const told = () => {
			const ended = (...words) => [...jobs].filter((id) => words.includes(states.get(id))).length;
			const [stored, lost] = [ended("done"), ended("failed", "cancelled")];
			const all = done === total && stored + lost === jobs.size;
			const of = (number, word) => (number ? `${count(number)} ${word}` : "");
			bar.value = done;
			line.textContent = [
				all ? `${count(stored)} of ${counted(total, "file")} brought in` : `${count(done - bad)} of ${counted(total, "file")} sent`,
				of(all ? 0 : stored, "brought in"),
				of(lost, "failed"),
				of(bad, "refused"),
			]
				.filter(Boolean)
				.join(", ");
			if (all) announce(line.textContent);
		};
		this.app.on("job", ({ id, state: word }) => {
			states.set(id, word);
			if (jobs.has(id)) told();
		});
		told();
		const queue = files[Symbol.iterator]();
		const worker = async () => {
			for (const { file, path } of queue) {
				if (stop.signal.aborted) return;
				try {
					jobs.add((await this.sendOne(file, { path, library, replace }, stop.signal)).job.id);
				} catch (error) {
					if (error.name === "AbortError") return;
					if (error.code === "exists") others.push({ file, path });
					bad += 1;
					if (bad <= MOST_ROWS)
						failed.append(h("li", stored("span.mono", path), ` (${size(file.size)}): ${plain(error.message)}`));
				}
				done += 1;
				told();
			}
		};
		await Promise.all(Array.from({ length: AT_ONCE }, worker));
		stopping.remove();
		bar.remove();
		if (others.length && (await replacing(others))) await this.send(others, library, true);
	}

	/** One file; where the server has enough to do, wait and try again. */
	async sendOne(file, query, signal) {
		for (;;) {
			try {
				return await put("/api/files", query, file, { signal });
			} catch (error) {
				if (error.status !== 429) throw error;
				await new Promise((resolve) => {
					setTimeout(resolve, 500);
				});
			}
		}
	}

	// ---- one text, one address, one memory

	text() {
		const library = this.library();
		const text = h("textarea", {
			required: true,
			rows: 10,
			dir: "auto",
			placeholder: "# A heading\n\nMarkdown or plain text",
		});
		const source = h("input", { type: "text", placeholder: "note- and the time" });
		const title = h("input", { type: "text", dir: "auto", placeholder: "from its first heading" });
		return this.form(
			[
				field("Text", text),
				h(
					"div.three",
					field("Name", source),
					field("Title", title),
					library.element,
				),
			],
			"Store the text",
			async () => {
				const body = { text: text.value, library: library.input.value.trim() };
				if (source.value.trim()) body.source = source.value.trim();
				if (title.value.trim()) body.title = title.value.trim();
				const reply = await storedText(body);
				if (!reply) return;
				text.value = source.value = title.value = "";
				this.told(reply.status, reply.document, reply.note);
			},
		);
	}

	url() {
		const library = this.library();
		const url = h("input", { type: "url", required: true, placeholder: "https://example.org/page", dir: "ltr" });
		return this.form(
			[
				field("Address of a page or a file", url),
				library.element,
				h(
					"p.small.muted",
					"The page is fetched once, by this machine. Addresses inside of your own network are refused.",
				),
			],
			"Fetch it",
			async () => {
				await post("/api/ingest/url", { url: url.value.trim(), library: library.input.value.trim() });
				url.value = "";
			},
		);
	}

	memory() {
		const thread = h("input", { type: "text", required: true, dir: "auto", placeholder: "garden" });
		const text = h("textarea", { required: true, rows: 5, dir: "auto" });
		const tags = h("input", { type: "text", dir: "auto", placeholder: "decision, 2025" });
		return this.form(
			[
				field("What to remember", text),
				h("div.three", field("Thread", thread), field("Tags, with commas between them", tags)),
			],
			"Remember it",
			async () => {
				const reply = await post("/api/memories", {
					thread: thread.value.trim(),
					text: text.value,
					source: "user",
					tags: tagged(tags.value),
				});
				text.value = "";
				const told = reply.status === "repeated" ? "This was stored last already; nothing was added." : "Stored.";
				notify(reply.redacted ? `${told} Of the text, ${reply.redacted}.` : told);
				this.body.querySelector(".stored")?.remove();
				this.body.append(
					h("p.stored", h("a", { href: link(["memory", reply.memory.id]) }, `Read memory ${reply.memory.id}`)),
				);
			},
		);
	}

	told(status, document, note) {
		notify(`${plain(document.title || document.path)}: ${status}. ${note ?? ""}`);
		this.body.querySelector(".stored")?.remove();
		this.body.append(
			h(
				"p.stored",
				h("a", { href: link(["document", document.id]) }, stored("span", `Read ${document.title || document.path}`)),
			),
		);
	}

	// ---- a folder that is followed

	folder() {
		const root = h("input", {
			type: "text",
			required: true,
			placeholder: "~/Documents/notes",
			dir: "ltr",
			spellcheck: "false",
		});
		const name = h("input", { type: "text", required: true, placeholder: "notes" });
		const pattern = h("input", { type: "text", value: "**/*", dir: "ltr", spellcheck: "false" });
		const plan = h("div.stack.plan", { "aria-live": "polite" });
		const chooser = new Directories((path) => {
			root.value = path;
			if (!name.value) name.value = path.split("/").filter(Boolean).at(-1) ?? "";
		});
		const body = (dry) => ({
			name: name.value.trim(),
			root: root.value.trim(),
			pattern: pattern.value.trim() || "**/*",
			dry_run: dry,
		});
		const form = this.form(
			[
				h(
					"div.with-button",
					field("Folder on this machine", root),
					button("Choose …", () => chooser.toggle(root.value || "~")),
				),
				chooser.element,
				h("div.three", field("Name of the library", name), field("Files", pattern)),
				h(
					"p.small.muted",
					"Its files are read now and whenever the library is synced; files that vanish are removed from here. The folder itself is never changed.",
				),
				plan,
			],
			"See what would happen",
			async () => {
				const reply = await post("/api/libraries", body(true));
				plan.replaceChildren(
					...planned(reply),
					h(
						"div",
						button(
							"Follow this folder",
							async () => {
								try {
									await post("/api/libraries", body(false));
									plan.replaceChildren(
										h(
											"p",
											"It is followed now. ",
											h("a", { href: link(["browse", "library", name.value.trim()]) }, "Look into the library"),
										),
									);
									notify("The folder is being read.");
								} catch (error) {
									notify(error.message, { bad: true });
								}
							},
							{ kind: "main" },
						),
					),
				);
			},
		);
		return form;
	}
}

const UNDONE = "Replacing can be undone as long as the history has the old text (Health, Changes).";

/** Store a text. If its name is taken, ask what to do; null if nothing is to be done. */
async function storedText(body) {
	try {
		return await post("/api/ingest/text", body);
	} catch (error) {
		if (error.code !== "exists") throw error;
		const other = h("input", { type: "text", required: true, value: body.source.replace(/(\.[^./]*)?$/, "-2$1") });
		return ask(
			"Another text has this name",
			[
				h("p", `The library ${plain(body.library)} has another text named ${plain(body.source)}.`),
				field("Another name", other),
				h("p.small.muted", UNDONE),
			],
			[
				// The first is what Enter in the field does.
				["Store under the other name", () => post("/api/ingest/text", { ...body, source: other.value.trim() }), "main"],
				["Replace it", () => post("/api/ingest/text", { ...body, replace: true }), "bad"],
			],
		);
	}
}

/** Whether files may take the place of those that have their names. */
function replacing(files) {
	const some = files.slice(0, MOST_ROWS);
	return ask(
		`Replace ${counted(files.length, "file")}?`,
		[
			h("p", "Other files of these names are here:"),
			h("ul.small.muted.names", some.map(({ path }) => stored("li", path)), files.length > some.length ? h("li", "…") : null),
			h("p.small.muted", UNDONE),
		],
		[["Replace", () => true, "bad main"]],
	);
}

function planned(reply) {
	const steps = Object.entries(reply.planned ?? {}).map(([what, number]) => `${what} ${counted(number, "file")}`);
	const skipped = Object.entries(reply.skipped ?? {}).map(([why, number]) =>
		h("li", `${counted(number, "file")} passed over: ${plain(why)}`),
	);
	return [
		h("p", h("b", "This would "), steps.join(", ") || "read nothing: no file matches"),
		skipped.length ? h("ul.problems", skipped) : "",
		reply.dropped?.length
			? h(
					"p.warn.bad",
					`${counted(reply.dropped.length, "document")} of the library would be removed, because no file of the folder has them.`,
				)
			: "",
	];
}

/** The folders of this machine, to choose one without typing its path. */
class Directories {
	constructor(chosen) {
		this.chosen = chosen;
		this.element = h("div.directories", { role: "group", "aria-label": "Folders", hidden: true });
	}

	async toggle(path) {
		this.element.hidden = !this.element.hidden;
		if (!this.element.hidden) await this.open(path);
	}

	async open(path) {
		let reply;
		try {
			reply = await get("/api/directories", { query: { path } });
		} catch (error) {
			if (path !== "~") return this.open("~");
			this.element.replaceChildren(h("p.warn.bad", plain(error.message)));
			return undefined;
		}
		this.chosen(reply.path);
		const row = (name, target) =>
			h(
				"li",
				h(
					"button",
					{ type: "button", class: "directory", on: { click: () => this.open(target) } },
					icon("folder"),
					stored("span", name),
				),
			);
		this.element.replaceChildren(
			h("p.mono.where", plain(reply.path)),
			h(
				"ul",
				reply.parent ? row("..", reply.parent) : "",
				reply.directories.map((each) => row(each.name, each.path)),
				reply.truncated ? h("li.muted", "… and more: type the path") : "",
			),
		);
		this.element.querySelector("button")?.focus();
		return undefined;
	}
}

// ---- what was dropped or chosen: files with their paths inside of it

function picked(files) {
	return [...files].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
}

async function dropped(transfer) {
	const entries = [...transfer.items].filter((item) => item.kind === "file").map((item) => item.webkitGetAsEntry?.());
	if (!entries.some(Boolean)) return picked(transfer.files);
	const found = [];
	for (const entry of entries) if (entry) await walk(entry, found);
	return found;
}

async function walk(entry, found) {
	if (entry.isFile) {
		const file = await new Promise((resolve, reject) => {
			entry.file(resolve, reject);
		});
		found.push({ file, path: entry.fullPath.replace(/^\//, "") });
		return;
	}
	const reader = entry.createReader();
	for (;;) {
		const some = await new Promise((resolve, reject) => {
			reader.readEntries(resolve, reject);
		});
		if (!some.length) return;
		for (const each of some) await walk(each, found);
	}
}
