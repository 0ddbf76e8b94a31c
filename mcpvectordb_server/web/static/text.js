// Some lines of a document as elements, by their syntax, with the cited passage marked.

import { code, markdown, Marks, paragraphs } from "./markdown.js";
import { ranges } from "./offsets.js";
import * as words from "./words.js";

// Types whose texts have a field, or what somebody typed, on a line.
const OF_LINES = new Set(["eml", "msg", "mbox", "json", "jsonl", "ndjson", "geojson"]);

/** The blocks of a part of a text; `cited` has the passage's `start` and `end`, `matched` its words. */
export function rendered(part, cited, matched, { title = "", language = "" } = {}) {
	const passage = cited
		? ranges(part.text, [[Math.max(0, cited.start - part.start), Math.max(0, cited.end - part.start)]])
		: [];
	const marks = new Marks(passage, passage.length ? words.ranges(part.text, matched, passage) : []);
	if (part.syntax === "code") return code(part.text, marks, part.first_line, language);
	if (part.syntax === "text") return paragraphs(part.text, marks, part.first_line);
	return markdown(part.text, marks, part.first_line, title, OF_LINES.has(language));
}
