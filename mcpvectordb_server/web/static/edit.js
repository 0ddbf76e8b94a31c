// Changes to what is stored: each says what will happen before it does.

import { patch, post } from "./api.js";
import { announce, ask, field, h, notify, plain, stored } from "./dom.js";
import { counted } from "./format.js";

/** Edit a document's title, library and metadata; the new document, or null. */
export function editDocument(document) {
	const title = h("input", { type: "text", value: document.title, dir: "auto" });
	const library = h("input", { type: "text", value: document.library });
	const metadata = jsonField(document.metadata);
	return ask(
		"Edit document",
		[
			field("Title", title),
			field("Library", library),
			field("Metadata, as JSON", metadata.element),
			h(
				"p.small.muted",
				"The text and the file it came from stay as they are; title and metadata stay when the file is read again.",
			),
		],
		[
			[
				"Save",
				async () => {
					const change = { title: title.value, metadata: metadata.read() };
					if (library.value !== document.library) change.library = library.value;
					return (await patch(`/api/documents/${encodeURIComponent(document.id)}`, change)).document;
				},
				"main",
			],
		],
	);
}

/** Edit a memory's text, tags and metadata; the new memory, or null. */
export function editMemory(memory) {
	const text = h("textarea", { dir: "auto", rows: 7 }, memory.text);
	const tags = h("input", { type: "text", value: memory.tags.join(", "), dir: "auto" });
	const metadata = jsonField(memory.metadata ?? {});
	return ask(
		"Edit memory",
		[field("Text", text), field("Tags, with commas between them", tags), field("Metadata, as JSON", metadata.element)],
		[
			[
				"Save",
				async () => {
					const change = { tags: tagged(tags.value), metadata: metadata.read() };
					if (text.value !== memory.text) change.text = text.value;
					return (await patch(`/api/memories/${memory.id}`, change)).memory;
				},
				"main",
			],
		],
	);
}

/** The tags of a line with commas. */
export function tagged(text) {
	return text
		.split(",")
		.map((tag) => tag.trim())
		.filter(Boolean);
}

function jsonField(value) {
	const element = h("textarea.mono", { rows: 6, spellcheck: "false", dir: "ltr" }, JSON.stringify(value, null, 2));
	return { element, read: () => parsed(element.value) };
}

function parsed(text) {
	let value;
	try {
		value = JSON.parse(text.trim() || "{}");
	} catch (error) {
		throw new Error(`The metadata is not JSON: ${error.message}`);
	}
	if (value === null || typeof value !== "object" || Array.isArray(value))
		throw new Error('The metadata must be an object, such as {"year": 2025}');
	return value;
}

/** Delete documents or memories after saying what that does; whether it was done. */
export async function remove(kind, ids) {
	const path = `/api/${kind}/delete`;
	const plan = await post(path, { ids, dry_run: true });
	const noun = kind === "documents" ? counted(plan.count, "document") : counted(plan.count, "memory", "memories");
	if (!plan.count) {
		notify("These are not in the file any more.");
		return true;
	}
	const names = (plan[kind] ?? [])
		.slice(0, 20)
		.map((each) => stored("li", kind === "documents" ? each.path || each.title : `${each.thread}: ${each.text}`));
	const done = await ask(
		`Delete ${noun}?`,
		[
			...plan.consequences.map((each) => h("p", plain(each))),
			h("ul.small.muted.names", names, plan.count > 20 ? h("li", `and ${plan.count - 20} more`) : null),
		],
		[[`Delete ${noun}`, () => post(path, { ids }), "bad main"]],
	);
	if (done) {
		notify(`${noun} deleted.`);
		announce(`${noun} deleted`);
	}
	return Boolean(done);
}

/** Delete a library after saying what that does; whether it was done. */
export async function removeLibrary(library) {
	const path = `/api/libraries/${encodeURIComponent(library.name)}/delete`;
	const plan = await post(path, { dry_run: true });
	const choices = [["Delete", () => post(path, {}), "bad main"]];
	if (library.root && library.documents)
		choices.unshift(["Stop following, keep documents", () => post(path, { keep_documents: true })]);
	const done = await ask(
		`Delete the library ${plain(library.name)}?`,
		plan.consequences.map((each) => h("p", plain(each))),
		choices,
	);
	if (done) notify(`The library ${plain(library.name)} was deleted.`);
	return Boolean(done);
}
