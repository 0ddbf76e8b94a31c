// The place that is shown, as the URL's hash: #/name/part/part?option=value

/** The route of a hash: its parts, decoded, and its options. */
export function parse(hash) {
	const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
	const parts = path
		.split("/")
		.map(decoded)
		.filter((part) => part !== "");
	return { parts: parts.length ? parts : ["search"], options: new URLSearchParams(query) };
}

/** What a part of an address says; one that is not encoded as it should be stays as it is. */
export function decoded(part) {
	try {
		return decodeURIComponent(part);
	} catch {
		return part;
	}
}

/** The hash of a route; options that are empty are left out. */
export function link(parts, options = {}) {
	const query = new URLSearchParams(Object.entries(options).filter(([, value]) => value != null && value !== ""));
	const text = query.toString();
	return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}${text ? `?${text}` : ""}`;
}

/** Change the options of the place that is shown without a step in the history. */
export function replace(parts, options) {
	history.replaceState(history.state, "", link(parts, options));
}

export const go = (hash) => {
	location.hash = hash;
};
