// The view inside of a chat (MCP Apps): what a tool of the server answered, in a frame without
// network. It talks to its host by messages, and draws with the modules of the page.

import { announce, button, h, icon, language, plain, stored } from "./dom.js";
import { counted, day } from "./format.js";
import * as hits from "./hits.js";
import { markdown } from "./markdown.js";
import { rendered } from "./text.js";

const VIEW = "mcpvectordb/view"; // the metadata of a reply that is drawn
const AROUND = 12; // lines around a place that is read
const MORE = 120; // lines that are read on
const BUDGET = 8000; // tokens of a reply that is read on

const VERDICTS = {
	exact: "It stands there, character by character",
	spacing: "It stands there, with other spacing or marks",
	case: "It stands there, with other capital or small letters",
	elsewhere: "It stands elsewhere",
	absent: "It stands nowhere",
};

// ---- the host

const waiting = new Map();
let asked = 0;
let able = null; // what the host can do, once it has said so

const post = (message) => window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");

/** Ask the host; resolves to its result, rejects with its error. */
function request(method, params = {}) {
	asked += 1;
	const id = asked;
	post({ id, method, params });
	return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

function heard({ source, data }) {
	// Only the host is listened to, whatever other frames may send.
	if (source !== window.parent || data?.jsonrpc !== "2.0") return;
	if (typeof data.method === "string") return told(data);
	const one = waiting.get(data.id);
	waiting.delete(data.id);
	if (data.error) one?.reject(new Error(data.error.message));
	else one?.resolve(data.result);
}

function told({ id, method, params }) {
	if (method === "ui/notifications/tool-result") open(params);
	else if (method === "ui/notifications/tool-cancelled") draw(h("p.muted", "The call was cancelled."));
	else if (method === "ui/notifications/host-context-changed") adapt(params);
	if (id === undefined) return;
	if (method === "ping" || method === "ui/resource-teardown") post({ id, result: {} });
	else post({ id, error: { code: -32601, message: "Method not found" } });
}

function adapt(context) {
	if (!context || !("theme" in context)) return;
	if (context.theme === "light" || context.theme === "dark") document.documentElement.dataset.theme = context.theme;
	else delete document.documentElement.dataset.theme;
}

let size = "";
function measure() {
	if (!able) return;
	const { width, height } = document.documentElement.getBoundingClientRect();
	const now = { width: Math.ceil(width), height: Math.ceil(height) };
	if (size === JSON.stringify(now)) return;
	size = JSON.stringify(now);
	post({ method: "ui/notifications/size-changed", params: now });
}

// ---- what is drawn

const main = document.getElementById("main");
const steps = []; // what was shown before, to go back to
let shown = null;

function draw(...content) {
	main.replaceChildren(...content.flat(Infinity).filter(Boolean));
}

/** Draw a reply: its view, or its text where a host has passed no metadata on. */
function open(result) {
	const view = result?._meta?.[VIEW];
	const text = (result?.content ?? []).map((block) => block?.text ?? "").join("\n\n");
	shown = view?.kind in drawings && !result.isError ? view : { kind: "told", text };
	show();
}

function show() {
	const [head, ...content] = drawings[shown.kind](shown);
	const back = steps.length ? button("Back", goBack, { icon: "back", kind: "quiet" }) : null;
	draw(h("div.head", back, head), content);
	const cited = main.querySelector("mark.cited");
	const box = cited?.closest(".text");
	if (box) box.scrollTop = cited.offsetTop - box.offsetTop - 40;
}

function goBack() {
	shown = steps.pop();
	show();
}

const canRead = () => shown.reads && able?.serverTools;
const reading = (label, place, around = 0) =>
	canRead() ? button(label, () => read(place, { around }), { kind: "more" }) : null;

/** Have the server read a place, and return the view of it; says why if it cannot. */
async function fetched(place, around) {
	try {
		const name = shown.reads;
		const result = await request("tools/call", { name, arguments: { place, around, budget: BUDGET } });
		if (result?._meta?.[VIEW] && !result.isError) return result._meta[VIEW];
		throw new Error(result?.content?.[0]?.text ?? "there is nothing to show");
	} catch (error) {
		main.querySelector(".warn")?.remove();
		main.prepend(h("p.warn.bad", { role: "alert" }, plain(error.message)));
		return null;
	}
}

async function read(place, { around = 0 } = {}) {
	const view = await fetched(place, around);
	if (!view) return;
	steps.push(shown);
	shown = view;
	show();
	announce("Opened");
}

/** Lines that follow or precede what is shown, put together with it. */
async function extend(first, count) {
	const before = shown;
	const more = await fetched(`${before.id}:${first}:${count}`, 0);
	if (!more || shown !== before) return;
	const earlier = first < before.first_line;
	// Long lines may have left less room than asked for: what would leave a gap is opened by itself.
	const joins = earlier ? more.last_line + 1 === before.first_line : before.last_line + 1 === more.first_line;
	const [one, two] = earlier ? [more, before] : [before, more];
	const shift = earlier ? [...more.text].length + 1 : 0;
	const cited = before.cited && { start: before.cited.start + shift, end: before.cited.end + shift };
	shown = joins
		? { ...before, text: `${one.text}\n${two.text}`, first_line: one.first_line, last_line: two.last_line, cited }
		: more;
	const at = main.querySelector(".text").scrollTop;
	show();
	main.querySelector(".text").scrollTop = earlier ? 0 : at;
}

const named = (kind, text) => h("h1", icon(kind), stored("span", text));
const prose = (blocks, text, syntax) =>
	h("div.text", { tabindex: 0, role: "region", "aria-label": "Text" }, [
		h("article.prose", { data: { syntax }, lang: language(text) }, blocks),
	]);

const drawings = {
	results: ({ query, hits: found, note }) => [
		[named("search", query), h("span.muted.small", counted(found.length, "hit"))],
		h("ol.hits", found.map((hit) => hits.item(hit))),
		note ? stored("p.note", note) : null,
	],

	document: (it) => {
		const { first_line: first, last_line: last, lines } = it;
		const part = { text: it.text, syntax: it.syntax, first_line: first, start: 0 };
		const blocks = rendered(part, it.cited, "", { title: it.title, language: it.file_type });
		const text = prose(blocks, it.text, it.syntax);
		for (const mark of text.querySelectorAll("mark.cited")) {
			let block = mark;
			while (!block.parentElement.matches(".prose")) block = block.parentElement;
			block.classList.add("has-cited");
		}
		const on = (label, from, count) => canRead() && button(label, () => extend(from, count), { kind: "more" });
		const earlier = Math.min(MORE, first - 1);
		if (first > 1) text.prepend(on(`Show earlier lines, before line ${first}`, first - earlier, earlier) || "");
		if (last < lines) text.append(on(`Show more: ${counted(lines - last, "line")} follow`, last + 1, MORE) || "");
		const where = `${it.path}:${first}–${last}`;
		return [
			[named("document", it.title), stored("span.where.mono", where, { dir: "ltr" }), h("span.muted.small", day(it.date))],
			text,
		];
	},

	memory: (it) => [
		[
			named("memory", it.thread),
			h("span.where", `memory:${it.id} · ${it.source} · ${day(it.created_at)}`),
			it.tags.map((tag) => stored("span.chip", tag)),
		],
		prose(markdown(it.text), it.text, "markdown"),
		it.validity ? h("p.note", plain(it.validity)) : null,
	],

	verdict: ({ status, quotation, found, told, place }) => [
		h("p.verdict", { class: `verdict ${status}` }, VERDICTS[status] ?? plain(status)),
		stored("blockquote", quotation),
		found ? [h("p.small.muted", "There it reads:"), stored("blockquote", found)] : null,
		place?.memory ? reading("Read it there", place.memory) : null,
		place?.id ? reading("Read it there", lines(place), AROUND) : null,
		stored("p.note", told),
	],

	told: ({ text }) => ["", stored("pre.told", text)],
};

const lines = ({ id, first_line: first, last_line: last }) => `${id}:${first}:${last - first + 1}`;

// Links do not lead out of the frame: to what is stored they are read, others the host opens.
function clicked(event) {
	const anchor = event.target.closest?.("a");
	if (!anchor) return;
	event.preventDefault();
	if (event.type === "auxclick" && event.button !== 1) return;
	if (anchor.matches(".outwards")) {
		request("ui/open-link", { url: anchor.href }).catch((error) => announce(plain(error.message)));
		return;
	}
	const key = anchor.closest("[data-key]")?.dataset.key;
	const hit = shown.hits?.find((each) => hits.key(each) === key);
	if (!hit || !canRead()) return;
	if (hit.kind === "memory") read(`memory:${hit.id}`);
	else read(lines(hit), { around: AROUND });
}

window.addEventListener("message", heard);
for (const kind of ["click", "auxclick"]) document.addEventListener(kind, clicked);
new ResizeObserver(measure).observe(document.documentElement);
draw(h("p.muted", "Waiting for the answer …"));
request("ui/initialize", {
	protocolVersion: "2026-01-26",
	appInfo: { name: "mcpvectordb", version: "1" },
	appCapabilities: { availableDisplayModes: ["inline"] },
}).then((host) => {
	able = host?.hostCapabilities ?? {};
	adapt(host?.hostContext);
	post({ method: "ui/notifications/initialized", params: {} });
	measure();
});
