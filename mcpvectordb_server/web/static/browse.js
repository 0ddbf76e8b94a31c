// What is stored: libraries and their folders, projects, threads, tags, the timeline of memories.

import { get, patch, post } from "./api.js";
import { announce, ask, button, debounced, field, h, icon, notify, plain, quiet, state, stored } from "./dom.js";
import { remove, removeLibrary } from "./edit.js";
import { count, counted, day, size } from "./format.js";
import { List } from "./list.js";
import { gist } from "./markdown.js";
import { link } from "./route.js";

const SORTS = [
	["path", "path"],
	["newest", "newest first"],
	["oldest", "oldest first"],
	["title", "title"],
	["size", "size"],
	["modified", "last modified"],
];

export async function open(route, app) {
	const [, kind, name, ...folder] = route.parts;
	if (kind === "library" && name) return openLibrary(name, folder.join("/"), app);
	if (kind === "thread" && name) return openMemories({ thread: name }, name, "Thread", app);
	if (kind === "project" && name) return openMemories({ project: name }, name, "Project", app);
	if (kind === "tag" && name) return openMemories({ tags: name }, name, "Tag", app);
	if (kind === "memories") return openMemories({}, "Timeline of memories", "", app);
	if (["projects", "threads", "tags"].includes(kind)) return openNames(kind, app);
	return openOverview(app);
}

// ---- the overview

async function openOverview(app) {
	const [libraries, projects, threads, tags, memories] = await Promise.all([
		get("/api/libraries"),
		get("/api/projects"),
		get("/api/threads"),
		get("/api/tags"),
		get("/api/memories", { query: { limit: 1 } }),
	]);
	app.place(
		h("h1", "Browse"),
		h(
			"div.overview",
			h(
				"section.stack",
				h(
					"div.row.between",
					h("h2", "Libraries"),
					app.session.read_only ? null : h("a.button.quiet", { href: "#/add/folder" }, icon("add"), "Follow a folder"),
				),
				libraries.libraries.length
					? h("ul.libraries", libraries.libraries.map(libraryCard))
					: h("p.muted", "No documents yet. ", h("a", { href: "#/add" }, "Bring some in"), "."),
			),
			h(
				"section.stack",
				h("h2", "Memories"),
				memories.total
					? [
							h(
								"p",
								h(
									"a.big-link",
									{ href: "#/browse/memories" },
									`Timeline of ${counted(memories.total, "memory", "memories")}`,
								),
							),
							names(
								"Projects",
								"projects",
								"project",
								projects.projects.map((each) => [each.name, each.memories]),
							),
							names(
								"Threads",
								"threads",
								"thread",
								threads.threads.map((each) => [each.name, each.memories]),
							),
							names(
								"Tags",
								"tags",
								"tag",
								tags.tags.map((each) => [each.name, each.memories]),
							),
						]
					: h(
							"p.muted",
							"Agents have stored nothing yet. Connect one with `mcpvectordb setup`, or write a memory yourself under Bring in.",
						),
			),
		),
	);
}

function libraryCard(library) {
	return h(
		"li.library",
		icon("folder"),
		h(
			"div",
			h("a.row-link", { href: link(["browse", "library", library.name]) }, stored("span", library.name)),
			library.description ? stored("p", library.description) : null,
			h(
				"p.where",
				`${counted(library.documents, "document")} · ${counted(library.chunks, "passage")}`,
				library.root ? [" · follows ", stored("span.mono", library.root, { dir: "ltr" })] : "",
			),
		),
	);
}

function names(heading, all, one, rows) {
	if (!rows.length) return null;
	const shown = rows.slice(0, 14);
	return h(
		"div.stack.names-block",
		h("h3", heading),
		h(
			"ul.row.cloud",
			shown.map(([name, number]) =>
				h("li", h("a.chip", { href: link(["browse", one, name]) }, stored("span", name), h("b", count(number)))),
			),
		),
		rows.length > shown.length
			? h("p", h("a", { href: link(["browse", all]) }, `All ${count(rows.length)} ${all}`))
			: null,
	);
}

async function openNames(kind, app) {
	const reply = await get(`/api/${kind}`);
	const rows = reply[kind].map((each) => [each.name, each.memories, each.last_at]);
	const heading = kind[0].toUpperCase() + kind.slice(1);
	let found = rows;
	const list = new List({
		load: async (offset, limit) => ({ items: found.slice(offset, offset + limit), total: found.length }),
		draw: ([name, number, last]) =>
			h(
				"div.name-row",
				h("a.row-link", { href: link(["browse", kind.slice(0, -1), name]) }, stored("span", name)),
				h("span.where", counted(number, "memory", "memories"), last ? ` · ${day(last)}` : ""),
			),
		height: 52,
		label: kind,
		signal: app.signal,
	});
	const narrow = h("input", {
		type: "search",
		placeholder: `Filter ${kind}`,
		"aria-label": `Filter ${kind}`,
		on: {
			input: () => {
				found = rows.filter(([name]) => name.toLowerCase().includes(narrow.value.toLowerCase()));
				list.refresh();
				announce(counted(found.length, kind.slice(0, -1)));
			},
		},
	});
	app.place(
		crumbs([
			["Browse", "#/browse"],
			[heading, ""],
		]),
		h("h1", heading),
		h("div.row.list-tools", narrow),
		list.element,
	);
	await list.refresh();
}

function crumbs(steps) {
	return h(
		"nav.crumbs",
		{ "aria-label": "Where this is" },
		h(
			"ol",
			steps.map(([name, href]) =>
				h("li", href ? h("a", { href }, stored("span", name)) : stored("span", name, { "aria-current": "page" })),
			),
		),
	);
}

// ---- a library and its folders

async function openLibrary(name, folder, app) {
	const options = { sort: "path", title: "" };
	const [all, folders] = await Promise.all([
		get("/api/libraries"),
		get("/api/folders", { query: { library: name, path: folder } }),
	]);
	const library = all.libraries.find((each) => each.name === name);
	if (!library) {
		app.place(state("There is no library of this name", h("p", h("a", { href: "#/browse" }, "See which there are"))));
		return;
	}
	const number = h("span.muted.small");
	const list = new List({
		load: async (offset, limit, signal) => {
			const reply = await get("/api/documents", {
				query: { library: name, folder: folder || "/", direct: !options.title, offset, limit, ...options },
				signal,
			});
			return { items: reply.documents, total: reply.total };
		},
		draw: (document, index) => documentRow(document, index, list, app, folder),
		height: 62,
		label: "Documents",
		signal: app.signal,
		total: (value) => {
			number.textContent =
				counted(value, "document") + (folders.folders.length && !options.title ? " in this folder itself" : "");
		},
	});
	const filter = h("input", {
		type: "search",
		placeholder: "Title contains …",
		"aria-label": "Title contains",
		on: {
			input: debounced((event) => {
				options.title = event.target.value.trim();
				list.refresh();
			}, 200),
		},
	});
	const sort = h(
		"select",
		{
			"aria-label": "Order",
			on: {
				change: () => {
					options.sort = sort.value;
					list.refresh();
				},
			},
		},
		SORTS.map(([value, label]) => h("option", { value }, label)),
	);
	app.place(
		crumbs([["Browse", "#/browse"], ...folderSteps(name, folder)]),
		h(
			"div.row.between",
			h("h1", { dir: "auto" }, plain(folder ? folder.split("/").at(-1) : name)),
			folder || app.session.read_only ? null : libraryTools(library, app),
		),
		folder ? null : libraryFacts(library),
		folders.folders.length
			? h(
					"ul.folders",
					folders.folders.map((each) =>
						h(
							"li",
							h(
								"a",
								{ href: link(["browse", "library", name, ...each.path.split("/")]) },
								icon("folder"),
								stored("span", each.name),
								h("span.muted.small", count(each.documents)),
							),
						),
					),
				)
			: "",
		h("div.row.list-tools", filter, sort, number),
		selection(list, "documents", app),
		list.element,
	);
	app.on(
		"changed",
		debounced(() => list.refresh(), 1000),
	);
	await list.refresh();
	if (!list.total && folders.folders.length) list.element.hidden = true;
	else if (!list.total)
		list.element.replaceWith(
			state(
				"This library is empty",
				library.root
					? "Sync it, or look at Health for files that were passed over."
					: "Bring documents in, with this library's name.",
			),
		);
}

function folderSteps(name, folder) {
	const parts = folder ? folder.split("/") : [];
	const steps = [[name, parts.length ? link(["browse", "library", name]) : ""]];
	parts.forEach((part, at) =>
		steps.push([part, at < parts.length - 1 ? link(["browse", "library", name, ...parts.slice(0, at + 1)]) : ""]),
	);
	return steps;
}

function libraryFacts(library) {
	return h(
		"p.head-facts",
		library.description ? stored("span", library.description) : "",
		h(
			"span.where",
			`${counted(library.documents, "document")} · ${counted(library.chunks, "passage")}`,
			library.root ? [" · follows ", stored("span.mono", library.root, { dir: "ltr" })] : "",
		),
	);
}

function libraryTools(library, app) {
	const path = `/api/libraries/${encodeURIComponent(library.name)}`;
	const sync = async () => {
		if (!library.confirmed) {
			const yes = await ask(
				"Read this folder?",
				[
					h("p", "It was added on another machine, or by another user. Its files would be read into this file:"),
					stored("p.mono", library.root),
				],
				[["Read it", () => post(`${path}/confirm`), "main"]],
			);
			if (!yes) return;
			library.confirmed = true;
		}
		await post(`${path}/sync`);
		notify("Syncing; its progress is shown under Health.");
	};
	const describe = async () => {
		const text = h("textarea", { dir: "auto", rows: 3 }, library.description);
		const reply = await ask(
			"Describe this library",
			[field("Description, which agents see too", text)],
			[["Save", () => patch(path, { description: text.value }), "main"]],
		);
		if (reply) dispatchEvent(new Event("hashchange"));
	};
	return h(
		"div.row",
		library.root ? quiet("Sync", () => sync().catch((error) => notify(error.message, { bad: true })), "refresh") : null,
		library.root && quiet("Describe", describe, "edit"),
		quiet("Delete", async () => (await removeLibrary(library)) && (location.hash = "#/browse"), "delete"),
	);
}

function documentRow(document, index, list, app, folder) {
	const within = document.path.startsWith(`${document.library}/`)
		? document.path.slice(document.library.length + 1)
		: document.path;
	const name = folder && within.startsWith(`${folder}/`) ? within.slice(folder.length + 1) : within;
	return h(
		"div.document-row",
		app.session.read_only ? "" : list.checkbox(document.id, index, `Select ${plain(document.title || name)}`),
		h(
			"div.row-main",
			h("a.row-link", { href: link(["document", document.id]) }, stored("span", document.title || name)),
			stored("span.where.mono", name, { dir: "ltr" }),
		),
		h("span.row-fact", plain(document.file_type)),
		h("span.row-fact.wide", size(document.size)),
		h("span.row-fact.wide", counted(document.chunks, "passage")),
		h("span.row-fact.date", day(document.date)),
	);
}

/** What can be done with the selected rows; it is there as long as any are. */
function selection(list, kind, app) {
	const bar = h("div.selection", { role: "region", "aria-label": "Selection", hidden: true });
	const one = kind === "documents" ? ["document", "documents"] : ["memory", "memories"];
	list.element.addEventListener("selected", () => {
		const number = list.selected.size;
		bar.hidden = !number;
		bar.replaceChildren(
			h("b", `${counted(number, ...one)} selected`),
			h(
				"div.row",
				quiet("Change metadata", () => changeMany(list, kind), "edit"),
				button(
					"Delete",
					async () => {
						if (!(await remove(kind, [...list.selected.keys()]).catch((error) => notify(error.message, { bad: true }))))
							return;
						list.clear();
						await list.refresh();
					},
					{ icon: "delete", kind: "quiet" },
				),
				button("Clear", () => list.clear(), { kind: "quiet" }),
			),
		);
		if (number === 1) announce("1 selected. The actions are above the list.");
	});
	if (app.session.read_only) bar.remove();
	return bar;
}

/** Set one field of the metadata, or add tags, in everything that is selected. */
async function changeMany(list, kind) {
	const number = list.selected.size;
	const name = h("input", { type: "text", placeholder: "project" });
	const value = h("input", { type: "text", placeholder: "apollo" });
	const tags = h("input", { type: "text", placeholder: "decided, 2025" });
	const fields = [field("Field", name), field("Value; empty removes the field", value)];
	if (kind === "memories") fields.push(field("Tags to add, with commas between them", tags));
	fields.push(
		h(
			"p.small.muted",
			`This field is set in ${count(number)} ${kind}; their other fields, texts and files stay as they are.`,
		),
	);
	const done = await ask(`Change the metadata of ${count(number)} ${kind}`, fields, [
		[
			"Change",
			async () => {
				const more = tags.value
					.split(",")
					.map((tag) => tag.trim())
					.filter(Boolean);
				if (!name.value.trim() && !more.length) throw new Error("Name a field first.");
				for (const [id, item] of list.selected) {
					const change = {};
					if (name.value.trim()) change.metadata_patch = Object.fromEntries([[name.value.trim(), typed(value.value)]]);
					if (more.length) change.tags = [...new Set([...(item?.tags ?? []), ...more])];
					await patch(`/api/${kind}/${encodeURIComponent(id)}`, change);
				}
				return true;
			},
			"main",
		],
	]);
	if (!done) return;
	notify(`${count(number)} ${kind} changed.`);
	list.clear();
	await list.refresh();
}

function typed(text) {
	if (text.trim() === "") return null;
	try {
		return JSON.parse(text);
	} catch {
		return text;
	}
}

// ---- memories by time

async function openMemories(filter, name, kind, app) {
	const number = h("span.muted.small");
	const options = { source: "", since: "", until: "" };
	let days = new Map();
	const list = new List({
		load: async (offset, limit, signal) => {
			const reply = await get("/api/memories", { query: { ...filter, ...options, offset, limit }, signal });
			reply.memories.forEach((memory, at) => days.set(offset + at, day(memory.created_at)));
			return { items: reply.memories, total: reply.total };
		},
		draw: (memory, index) => memoryRow(memory, index, list, app, days.get(index - 1)),
		height: 94,
		label: "Memories, newest first",
		signal: app.signal,
		total: (value) => {
			number.textContent = counted(value, "memory", "memories");
		},
	});
	const change = (field) => (event) => {
		options[field] = event.target.value.trim();
		days = new Map();
		list.refresh().catch((error) => notify(error.message, { bad: true }));
	};
	const choice = (label, every, field, then) =>
		h("select", { "aria-label": label, hidden: true, on: { change: then ?? change(field) } }, [
			h("option", { value: "" }, every),
		]);
	const offer = (select, names) => {
		select.replaceChildren(select.firstChild, ...names.map((each) => stored("option", each, { value: each })));
		select.hidden = !names.length;
	};
	// The threads of a project are its conversations, each of one session of a host.
	const sessions = choice("Session", "in every session", "thread");
	const offerSessions = async (project) => {
		const found = project ? (await get("/api/threads", { query: { project } })).threads : [];
		offer(
			sessions,
			found.map((each) => each.name),
		);
	};
	const projects = choice("Project", "in all projects", "project", async (event) => {
		options.thread = sessions.value = "";
		change("project")(event);
		await offerSessions(event.target.value).catch((error) => notify(error.message, { bad: true }));
	});
	if (filter.project) await offerSessions(filter.project);
	else if (!kind)
		offer(
			projects,
			(await get("/api/projects")).projects.map((each) => each.name),
		);
	app.place(
		crumbs([["Browse", "#/browse"], ...(kind ? [[`${kind}s`, `#/browse/${kind.toLowerCase()}s`]] : []), [name, ""]]),
		h("h1", { dir: "auto" }, plain(name)),
		h(
			"div.row.list-tools",
			projects,
			sessions,
			h(
				"select",
				{ "aria-label": "By whom", on: { change: change("source") } },
				h("option", { value: "" }, "by anybody"),
				h("option", { value: "agent" }, "by agents"),
				h("option", { value: "user" }, "by users"),
			),
			h("input", {
				type: "text",
				placeholder: "Since 2025-01",
				"aria-label": "Since",
				class: "short",
				on: { change: change("since") },
			}),
			h("input", {
				type: "text",
				placeholder: "Until today",
				"aria-label": "Until",
				class: "short",
				on: { change: change("until") },
			}),
			number,
		),
		selection(list, "memories", app),
		list.element,
	);
	app.on(
		"changed",
		debounced(() => list.refresh(), 1000),
	);
	await list.refresh();
	if (!list.total)
		list.element.replaceWith(
			state("No memories here", "Agents store them with the tool `remember`; you can write one under Bring in."),
		);
}

function memoryRow(memory, index, list, app, previous) {
	const date = day(memory.created_at);
	return h(
		"div.memory-row",
		h("span.memory-day", date === previous ? "" : date),
		app.session.read_only ? "" : list.checkbox(memory.id, index, `Select memory ${memory.id}`),
		h(
			"div.row-main",
			h(
				"a.row-link.memory-text",
				{ href: link(["memory", memory.id]) },
				stored("span", gist(memory.text.slice(0, 400))),
			),
			h(
				"div.row.memory-facts",
				stored("span.where", memory.thread),
				h("span.where", memory.source),
				memory.tags.slice(0, 6).map((tag) => stored("span.chip", tag)),
			),
		),
	);
}
