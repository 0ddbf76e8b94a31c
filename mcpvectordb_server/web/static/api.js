// The server's JSON API: requests, their errors, and the stream of events.

const page = crypto.randomUUID?.() ?? String(Math.random());
let sequence = 0;
let csrf = "";
let shown; // the signal of the view that is shown: what it reads ends with it

/** What the server answered when it did not do what was asked. */
export class Refused extends Error {
	constructor(status, { code = "internal", message = "the server gave no reason" } = {}) {
		super(message);
		Object.assign(this, { status, code });
	}
}

/** The session: what this page may do, and with which file. */
export async function session() {
	const reply = await get("/api/session");
	csrf = reply.csrf;
	return reply;
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
	{ signal = method === "GET" ? shown : undefined, body, type, superseding = false, binary = false },
) {
	const headers = {};
	if (type) headers["Content-Type"] = type;
	if (method !== "GET") headers["X-CSRF-Token"] = csrf;
	if (superseding) Object.assign(headers, { "X-Page": page, "X-Sequence": String((sequence += 1)) });
	let reply;
	try {
		reply = await fetch(path, { method, headers, body, signal, credentials: "same-origin", redirect: "error" });
	} catch (error) {
		if (error.name === "AbortError") throw error;
		throw new Refused(0, {
			code: "unreachable",
			message: "The server does not answer. Start `mcpvectordb web` again and open the URL that it prints.",
		});
	}
	if (reply.ok) return binary ? reply.arrayBuffer() : reply.json();
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
	const stream = new EventSource("/api/events");
	for (const [name, listener] of Object.entries(listeners)) {
		stream.addEventListener(name, (event) => listener(event.data ? JSON.parse(event.data) : null));
	}
	return () => stream.close();
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
