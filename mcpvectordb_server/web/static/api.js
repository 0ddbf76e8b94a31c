// The server's JSON API: requests, their errors, and the stream of events.

import { decoded } from "./route.js";

export const OPENED_WITH = "#token=";
const page = crypto.randomUUID?.() ?? String(Math.random());
const RETRY = 1000; // milliseconds after which a lost stream of events is asked for again
/** Which of several files this page is about; "" is the first. Another one is another page. */
const file = new URLSearchParams(location.search).get("file") ?? "";
let sequence = 0;
let token = kept();
let shown; // the signal of the view that is shown: what it reads ends with it

/** What the server answered when it did not do what was asked. */
export class Refused extends Error {
	constructor(status, { code = "internal", message = "the server gave no reason" } = {}) {
		super(message);
		Object.assign(this, { status, code });
	}
}

/** The token that the address was opened with, once: afterwards it is not in the address any more. */
export function opened() {
	if (!location.hash.startsWith(OPENED_WITH)) return "";
	const given = decoded(location.hash.slice(OPENED_WITH.length));
	history.replaceState(null, "", location.pathname + location.search);
	return /^[\x20-\x7e]+$/.test(given) ? given : ""; // what a header can have
}

/** The session: what this page may do, and with which file. `given` is the token of its address. */
export async function session(given = "") {
	const before = token;
	if (given) token = given;
	try {
		const reply = await get("/api/session");
		keep(reply.token);
		return reply;
	} catch (error) {
		token = before;
		// An address that was for one browser is opened again: this one may have been let in by it.
		if (given && before && error.status === 401) return session();
		throw error;
	}
}

// The token is kept in the storage of this origin, which other ports cannot read and all tabs
// share; it is worth nothing when the server has ended.
function kept() {
	try {
		return localStorage.getItem("token") ?? "";
	} catch {
		return "";
	}
}

function keep(given) {
	token = given;
	try {
		localStorage.setItem("token", given);
	} catch {
		/* storage may be off: then this tab has it until it is loaded again */
	}
}

export const during = (signal) => {
	shown = signal;
};
export const get = (path, options = {}) => request("GET", address(path, options.query), options);
export const post = (path, body = {}, options = {}) =>
	request("POST", path, { ...options, body: JSON.stringify(body), type: "application/json" });
export const patch = (path, body) => request("PATCH", path, { body: JSON.stringify(body), type: "application/json" });
export const put = (path, query, body, options = {}) =>
	request("PUT", address(path, query), { ...options, body, type: "application/octet-stream" });

function address(path, query = {}) {
	const given = new URLSearchParams();
	for (const [name, value] of Object.entries(query)) {
		for (const each of Array.isArray(value) ? value : [value]) {
			if (each != null && each !== "") given.append(name, each);
		}
	}
	const text = given.toString();
	return text ? `${path}?${text}` : path;
}

async function request(
	method,
	path,
	{ signal = method === "GET" ? shown : undefined, body, type, superseding = false, as = "json" },
) {
	const headers = { Authorization: `Bearer ${token}` };
	if (file) headers["X-Database"] = encodeURIComponent(file);
	if (type) headers["Content-Type"] = type;
	if (superseding) Object.assign(headers, { "X-Page": page, "X-Sequence": String((sequence += 1)) });
	let reply;
	try {
		reply = await fetch(path, { method, headers, body, signal, credentials: "omit", redirect: "error" });
	} catch (error) {
		if (error.name === "AbortError") throw error;
		throw new Refused(0, {
			code: "unreachable",
			message: "The server does not answer. Start `mcpvectordb web` again and open the URL that it prints.",
		});
	}
	if (reply.ok) return as === "stream" ? reply.body : reply[as]();
	throw new Refused(
		reply.status,
		await reply.json().then(
			(said) => said.error,
			() => ({}),
		),
	);
}

/** Whether an error only says that a newer request has taken this one's place. */
export function superseded(error) {
	return error.name === "AbortError" || error.code === "superseded";
}

/** Follow the server's events; `listeners` by name. Returns a function that ends it. */
export function follow(listeners) {
	// An EventSource sends no headers, hence no token.
	const stop = new AbortController();
	const read = async () => {
		const stream = await get("/api/events", { signal: stop.signal, as: "stream" });
		const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
		let text = "";
		for (let part = await reader.read(); !part.done; part = await reader.read()) {
			const messages = (text + part.value).split("\n\n");
			text = messages.pop();
			for (const message of messages) {
				const fields = Object.fromEntries(message.split("\n").map((line) => line.split(/: (.*)/s)));
				if (fields.event) listeners[fields.event]?.(JSON.parse(fields.data));
			}
		}
	};
	const go = () =>
		read()
			.catch((error) => error)
			.then((error) => {
				if (!stop.signal.aborted && error?.status !== 401) window.setTimeout(go, RETRY);
			});
	go();
	return () => stop.abort();
}

/** Ask for each value in turn, and only take the last one's answer: for search as one types. */
export class Latest {
	#running = null;

	async ask(question) {
		this.stop();
		const mine = new AbortController();
		this.#running = mine;
		try {
			const answer = await question(mine.signal);
			return this.#running === mine ? answer : undefined;
		} catch (error) {
			if (this.#running !== mine || superseded(error)) return undefined;
			throw error;
		}
	}

	stop() {
		this.#running?.abort();
		this.#running = null;
	}
}
