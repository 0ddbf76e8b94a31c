// The API counts characters as Python does, in code points; a string here counts UTF-16 units.

/** A function from offsets in code points to offsets in `text`; asked in any order. */
export function units(text) {
	// Only texts with characters beyond the basic plane differ; these are remembered, in order.
	const pairs = [];
	for (let at = 0; at < text.length; at += 1) {
		const code = text.charCodeAt(at);
		if (code >= 0xd800 && code < 0xdc00 && at + 1 < text.length) {
			pairs.push(at - pairs.length);
			at += 1;
		}
	}
	if (!pairs.length) return (offset) => Math.min(offset, text.length);
	return (offset) => Math.min(offset + before(pairs, offset), text.length);
}

function before(sorted, value) {
	let low = 0;
	let high = sorted.length;
	while (low < high) {
		const middle = (low + high) >> 1;
		if (sorted[middle] < value) low = middle + 1;
		else high = middle;
	}
	return low;
}

/** `[start, end]` in code points as ranges of `text` in units: sorted, merged, not empty. */
export function ranges(text, given) {
	const place = units(text);
	const sorted = given.map(([start, end]) => [place(start), place(end)]).filter(([start, end]) => end > start);
	sorted.sort((one, other) => one[0] - other[0]);
	const merged = [];
	for (const [start, end] of sorted) {
		const last = merged.at(-1);
		if (last && start <= last[1]) last[1] = Math.max(last[1], end);
		else merged.push([start, end]);
	}
	return merged;
}

/** The parts of `text[start:end]` with whether each is marked: `[text, marked]`. */
export function split(text, start, end, marks) {
	const parts = [];
	let at = start;
	for (const [from, to] of marks) {
		if (to <= at || from >= end) continue;
		if (from > at) parts.push([text.slice(at, from), false]);
		parts.push([text.slice(Math.max(from, at), Math.min(to, end)), true]);
		at = Math.min(to, end);
	}
	if (at < end) parts.push([text.slice(at, end), false]);
	return parts;
}
