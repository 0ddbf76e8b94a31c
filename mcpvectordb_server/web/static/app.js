// The start: session, routes, the events that all views share, keys that work everywhere.

import { during, follow, OPENED_WITH, opened, session, superseded } from "./api.js";
import { announce, h, icon, notify, plain, state } from "./dom.js";
import { found } from "./hits.js";
import { parse } from "./route.js";

const VIEWS = {
	search: () => import("./search.js"),
	document: () => import("./read.js"),
	memory: () => import("./read.js"),
	browse: () => import("./browse.js"),
	map: () => import("./map.js"),
	add: () => import("./add.js"),
	health: () => import("./health.js"),
	history: () => import("./changes.js"),
};
const TITLES = {
	search: "Search",
	document: "Read",
	memory: "Read",
	browse: "Browse",
	map: "Map",
	add: "Bring in",
	health: "Health",
	history: "History",
};

const main = document.getElementById("main");
/** What views share: the session, and a bus of the server's events. */
const app = { session: null, events: new EventTarget() };
let shown = { leave: null, name: "", number: 0 };

async function show() {
	const route = parse(location.hash);
	const name = VIEWS[route.parts[0]] ? route.parts[0] : "missing";
	if (name === shown.name && shown.update?.(route)) return;
	shown.leave?.abort();
	const leave = new AbortController();
	const number = shown.number + 1;
	shown = { leave, name, number, update: null };
	during(leave.signal);
	markView(name);
	if (name === "missing")
		return place(state("There is no such page", h("p", h("a", { href: "#/search" }, "Go to search"))));
	try {
		const view = await VIEWS[name]();
		if (shown.number !== number) return;
		main.className = view.whole ? "whole" : "";
		const made = await view.open(route, {
			...app,
			signal: leave.signal,
			on: (name, act) => app.events.addEventListener(name, (event) => act(event.detail), { signal: leave.signal }),
			place: (...content) => shown.number === number && place(...content),
		});
		if (shown.number === number) shown.update = made?.update ?? null;
	} catch (error) {
		if (shown.number !== number || error.name === "AbortError") return;
		// A module that could not be loaded says no reason: the session knows whether it has ended.
		place(
			failure(
				error.status === undefined
					? await session().then(
							() => error,
							(reason) => reason,
						)
					: error,
			),
		);
	}
}

function place(...content) {
	main.replaceChildren(...content.filter((each) => each != null));
	// The heading takes the focus, so that a screen reader begins to read where the new view does.
	if (!main.contains(document.activeElement) && document.body.dataset.moved) main.focus({ preventScroll: true });
	return true;
}

function failure(error) {
	const lost = error.status === 401;
	return state(
		lost ? "This browser is not let in" : "This could not be shown",
		lost
			? "Open the URL that `mcpvectordb web` printed; each start of the server has its own."
			: plain(error.message),
		h("button", { type: "button", class: "button", on: { click: () => (app.session ? show() : location.reload()) } }, "Try again"),
	);
}

function markView(name) {
	const reading = name === "document" || name === "memory";
	const under = reading ? (found(location.hash) < 0 ? "browse" : "search") : name === "history" ? "health" : name;
	for (const each of document.querySelectorAll("[data-view]")) {
		if (each.dataset.view === under) each.setAttribute("aria-current", "page");
		else each.removeAttribute("aria-current");
	}
	document.title = `${TITLES[name] ?? "Not found"} – mcpvectordb`;
	if (document.body.dataset.moved) announce(TITLES[name] ?? "Not found");
}

function keys(event) {
	if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
		event.preventDefault();
		import("./palette.js").then(({ openPalette }) =>
			openPalette([
				["auto", "Change the theme", () => document.getElementById("theme").click()],
				...app.session.files
					.filter(({ name }) => name !== app.session.file)
					.map(({ name }) => ["document", `Open the file ${plain(name)}`, () => open(name)]),
			]),
		);
		return;
	}
	const typing = event.target.closest?.("input, textarea, select, [contenteditable], dialog");
	if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
		event.preventDefault();
		const box = document.querySelector("[data-search]");
		if (box) box.focus();
		else location.hash = "#/search";
	} else if (event.key === "?" && !typing) import("./palette.js").then(({ showKeys }) => showKeys());
}

// ---- the file, and the others that are served

const open = (name) => location.assign(`?file=${encodeURIComponent(name)}#/search`);

function files(place) {
	const { file, path, files, read_only } = app.session;
	const mode = read_only ? " · read-only" : "";
	place.title = plain(path);
	if (files.length < 2) {
		place.textContent = plain(file) + mode;
		return;
	}
	const choice = h(
		"select",
		{ "aria-label": "Database file", on: { change: () => open(choice.value) } },
		files.map(({ name }) => h("option", { value: name }, plain(name) + mode)),
	);
	choice.value = file;
	place.replaceChildren(choice);
	// Back may show a page as it was left, with the choice that led away from it.
	addEventListener("pageshow", () => {
		choice.value = file;
	});
}

// ---- the theme: the system's, or the one that was chosen

const THEMES = { auto: ["auto", "system"], light: ["sun", "light"], dark: ["moon", "dark"] };

function theme() {
	const control = document.getElementById("theme");
	const now = () => document.documentElement.dataset.theme ?? "auto";
	const draw = () => {
		const [drawing, word] = THEMES[now()];
		control.replaceChildren(icon(drawing));
		control.setAttribute("aria-label", `Theme: ${word}`);
		control.title = `Theme: ${word}`;
	};
	control.addEventListener("click", () => {
		const next = { auto: "dark", dark: "light", light: "auto" }[now()];
		if (next === "auto") delete document.documentElement.dataset.theme;
		else document.documentElement.dataset.theme = next;
		try {
			localStorage.setItem("theme", next);
		} catch {
			/* then only this page has it */
		}
		draw();
		announce(`Theme: ${THEMES[next][1]}`);
		app.events.dispatchEvent(new Event("theme"));
	});
	draw();
}

/** Pass on the server's events while the page is in sight: a browser has six connections in all. */
function events() {
	const names = ["hello", "changed", "job", "model", "trouble"];
	const pass = (name) => (detail) => app.events.dispatchEvent(new CustomEvent(name, { detail }));
	let revision = null;
	let stop = null;
	const look = () => {
		if (document.hidden) {
			stop?.();
			stop = null;
		} else stop ??= follow(Object.fromEntries(names.map((name) => [name, pass(name)])));
	};
	app.events.addEventListener("hello", ({ detail }) => {
		if (revision !== null && detail.revision !== revision) pass("changed")(detail);
	});
	for (const name of ["hello", "changed"]) {
		app.events.addEventListener(name, ({ detail }) => {
			revision = detail.revision;
		});
	}
	app.events.addEventListener("trouble", ({ detail }) => notify(detail.message, { bad: true }));
	document.addEventListener("visibilitychange", look);
	look();
}

async function start() {
	theme();
	document.getElementById("skip").addEventListener("click", (event) => {
		event.preventDefault();
		main.focus();
	});
	document.addEventListener("keydown", keys);
	// What a view did not expect is said to the user; what it left unfinished is not.
	addEventListener("unhandledrejection", (event) => {
		if (superseded(event.reason)) event.preventDefault();
		else notify(event.reason.message, { bad: true });
	});
	window.addEventListener("hashchange", () => {
		if (location.hash.startsWith(OPENED_WITH)) location.reload(); // a new address, opened in this tab
	});
	try {
		app.session = await session(opened());
	} catch (error) {
		place(failure(error));
		return;
	}
	files(document.getElementById("file"));
	window.addEventListener("hashchange", () => {
		document.body.dataset.moved = "yes";
		show();
	});
	events();
	await show();
}

start();
