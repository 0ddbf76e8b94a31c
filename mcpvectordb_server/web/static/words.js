// Words that a search has matched, found again in the text that is read.

const WITHOUT_SPACES = /[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u0e00-\u0e7f]/;

/** The words that are highlighted in the snippet of a hit, for the link to its text. */
export function matched(hit) {
	const found = new Set();
	for (const { text, highlights } of hit.snippet ?? []) {
		const points = highlights.length ? [...text] : [];
		for (const [start, end] of highlights) found.add(points.slice(start, end).join("").toLowerCase());
	}
	return [...found].slice(0, 20).join(" ");
}

/** The ranges, inside of `within`, of these words. */
export function ranges(text, words, within) {
	const each = [...new Set(words.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [])].slice(0, 40);
	if (!each.length) return [];
	const some = (kind) => each.filter((word) => WITHOUT_SPACES.test(word) === kind).join("|") || "(?!)";
	const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(?:${some(false)})(?![\\p{L}\\p{N}])|${some(true)}`, "giu");
	return within.flatMap(([start, end]) =>
		[...text.slice(start, end).matchAll(pattern)].map((match) => [
			start + match.index,
			start + match.index + match[0].length,
		]),
	);
}
