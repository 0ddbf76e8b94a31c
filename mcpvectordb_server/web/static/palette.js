// Ctrl-K: go anywhere by typing its name; and `?`: the keys there are.

import { get, Latest } from "./api.js";
import { debounced, h, icon, plain, stored } from "./dom.js";
import { link } from "./route.js";

const VIEWS = [
	["search", "Search", "#/search"],
	["browse", "Browse", "#/browse"],
	["memory", "Timeline of memories", "#/browse/memories"],
	["map", "Map", "#/map"],
	["add", "Bring in files", "#/add"],
	["document", "Write a text", "#/add/text"],
	["memory", "Remember something", "#/add/memory"],
	["folder", "Follow a folder", "#/add/folder"],
	["health", "Health", "#/health"],
	["refresh", "History: changes and undo", "#/history"],
];
const KEYS = [
	["Ctrl K", "go anywhere"],
	["/", "search"],
	["↑ ↓", "move over results, lists and the map"],
	["Enter", "open what has the focus"],
	["Escape", "go back"],
	["j k", "while reading: next and previous hit of the search"],
	["n p", "while reading: next and previous passage"],
	["[ ]", "while reading: previous and next page of the file"],
	["c", "while reading: copy the citation"],
	["Space", "in lists: select"],
	["+ − 0", "on the map: enlarge, shrink, show all"],
	["?", "this list"],
];
const MOST = 12;

/** Open the list of places; what is typed narrows it, and is always searched for on request. */
export async function openPalette(actions) {
	if (document.querySelector("dialog")) return;
	const entries = [
		...VIEWS.map(([drawing, name, href]) => [drawing, name, () => go(href)]),
		...actions.map(([drawing, name, act]) => [drawing, name, act]),
	];
	let shown = [];
	let at = 0;
	const list = h("ul.palette-list", { role: "listbox", id: "palette-list", "aria-label": "Places" });
	const box = h("input", {
		type: "search",
		class: "palette-box",
		placeholder: "Go to a view, library, thread or document",
		role: "combobox",
		"aria-label": "Go to",
		"aria-expanded": "true",
		"aria-controls": "palette-list",
		autocomplete: "off",
		spellcheck: "false",
		dir: "auto",
		on: { input: () => typing(), keydown: (event) => key(event) },
	});
	const dialog = h("dialog.palette", { "aria-label": "Go anywhere" }, box, list);
	const go = (href) => {
		location.hash = href;
	};
	const choose = (entry) => {
		dialog.close();
		entry?.[2]();
	};
	const draw = () => {
		const typed = box.value.trim().toLowerCase();
		const parts = typed.split(/\s+/).filter(Boolean);
		shown = entries.filter(([, name]) => parts.every((part) => name.toLowerCase().includes(part))).slice(0, MOST);
		if (typed) shown.push(["search", `Search for “${box.value.trim()}”`, () => go(link(["search"], { q: box.value.trim() }))]);
		at = 0;
		list.replaceChildren(
			...shown.map((entry, index) =>
				h(
					"li",
					{ role: "option", id: `palette-${index}`, on: { click: () => choose(entry), pointermove: () => mark(index) } },
					icon(entry[0]),
					stored("span", entry[1]),
				),
			),
		);
		mark(0);
	};
	const mark = (index) => {
		at = index;
		[...list.children].forEach((each, place) => each.setAttribute("aria-selected", String(place === index)));
		box.setAttribute("aria-activedescendant", `palette-${index}`);
		list.children[index]?.scrollIntoView({ block: "nearest" });
	};
	const key = (event) => {
		const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
		// A search field would keep the first Escape for itself.
		if (event.key === "Escape") dialog.close();
		else if (step) mark((at + step + shown.length) % Math.max(1, shown.length));
		else if (event.key === "Enter" && !event.isComposing) choose(shown[at]);
		else return;
		event.preventDefault();
	};
	const latest = new Latest();
	const byTitle = debounced(async () => {
		const query = { title: box.value.trim(), sort: "newest", limit: MOST };
		const found = query.title && (await latest.ask((signal) => get("/api/documents", { query, signal })).catch(() => null));
		if (!found || !dialog.isConnected) return;
		const chosen = at ? shown[at]?.[1] : null;
		add(found.documents);
		draw();
		if (chosen) mark(Math.max(0, shown.findIndex(([, name]) => name === chosen)));
	}, 120);
	const typing = () => {
		draw();
		byTitle();
	};
	const known = new Set();
	const add = (documents) => {
		const fresh = documents.filter(({ id }) => !known.has(id));
		for (const { id, title, path } of fresh) {
			known.add(id);
			entries.push(["document", plain(title || path), () => go(link(["document", id]))]);
		}
	};
	open(dialog);
	draw();
	const [libraries, threads, documents] = await Promise.all([
		get("/api/libraries").catch(() => ({ libraries: [] })),
		get("/api/threads").catch(() => ({ threads: [] })),
		get("/api/documents", { query: { sort: "newest", limit: 50 } }).catch(() => ({ documents: [] })),
	]);
	entries.push(
		...libraries.libraries.map(({ name }) => ["folder", `Library ${plain(name)}`, () => go(link(["browse", "library", name]))]),
		...threads.threads
			.slice(0, 500)
			.map(({ name }) => ["thread", `Thread ${plain(name)}`, () => go(link(["browse", "thread", name]))]),
	);
	add(documents.documents);
	if (dialog.isConnected && box.value) draw();
}

/** Show the keys that work. */
export function showKeys() {
	if (document.querySelector("dialog")) return;
	open(
		h(
			"dialog.keys",
			{ "aria-labelledby": "keys-title" },
			h(
				"form",
				{ method: "dialog" },
				h("h2", { id: "keys-title" }, "Keys"),
				h(
					"dl.facts",
					KEYS.map(([keys, what]) => [h("dt", keys.split(" ").map((each) => [h("kbd", each), " "])), h("dd", what)]),
				),
				h("div.dialog-buttons", h("button", { class: "button", autofocus: true }, "Close")),
			),
		),
	);
}

function open(dialog) {
	const before = document.activeElement;
	dialog.addEventListener("close", () => {
		dialog.remove();
		if (before?.isConnected) before.focus();
	});
	dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
	document.body.append(dialog);
	dialog.showModal();
}
