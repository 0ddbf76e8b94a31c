// Elements, and what a page needs besides them: announcements, focus, dialogs.
// Stored text reaches the page through text nodes alone; nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";
// Characters that change how the text around them is shown: names could pass for other names. Joiners
// stay where emoji, and words from Arabic to the scripts of India, are written with them.
const DISGUISES =
	/(?!(?<=[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f])\u200d(?=\p{Extended_Pictographic})|(?<=[\u0600-\u0dff])[\u200c\u200d])[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

/** An element: `h("p.small", { title: "…" }, child, …)`; the properties may be left out. */
export function h(spec, properties, ...children) {
	const [tag, ...classes] = spec.split(".");
	const element = document.createElement(tag);
	if (classes.length) element.className = classes.join(" ");
	if (properties?.constructor === Object)
		for (const [name, value] of Object.entries(properties)) set(element, name, value);
	else children.unshift(properties);
	element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
	return element;
}

function set(element, name, value) {
	if (value == null || value === false) return;
	if (name === "on") {
		for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
	} else if (name === "data") Object.assign(element.dataset, value);
	else if (name === "class") element.className = value;
	else if (name === "value") element.value = value;
	else if (name === "href") element.setAttribute("href", ownLink(value));
	else element.setAttribute(name, value === true ? "" : String(value));
}

function ownLink(address) {
	if (!address.startsWith("#")) throw new Error("links of the page begin with #");
	return address;
}

/** Stored names as they can be shown: characters that would disguise others are spelled out. */
export function plain(text) {
	return String(text ?? "").replace(
		DISGUISES,
		(each) => `⟨U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
	);
}

/** The language by which a text is drawn and read out, as far as its script tells; else "", unknown. */
export function language(text) {
	const some = String(text ?? "").slice(0, 2000);
	if (/[\u3040-\u30ff]/.test(some)) return "ja";
	if (/[\uac00-\ud7af]/.test(some)) return "ko";
	return /[\u4e00-\u9fff]/.test(some) ? "zh" : "";
}

/** Stored text in an element of its own direction and language. */
export function stored(spec, text, properties = {}) {
	return h(spec, { dir: "auto", lang: language(text), ...properties }, plain(text));
}

/** A link to a stored address: another page in a new tab if it is http(s), otherwise text. */
export function outwards(address, ...content) {
	let url = null;
	try {
		url = new URL(address);
	} catch {
		/* not an address */
	}
	const children = content.length ? content : [plain(address)];
	if (!url || !["http:", "https:"].includes(url.protocol)) {
		return h("span.address", { title: plain(address) }, ...children);
	}
	const anchor = h("a.outwards", { title: plain(address), rel: "noopener noreferrer", target: "_blank" }, ...children);
	anchor.setAttribute("href", url.href);
	return anchor;
}

const ICONS = {
	search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13ZM15.5 15.5 20 20",
	browse: "M4 5.5h6l2 2.5h8v10.5H4z",
	map: "M6 7h.01M10 12h.01M8 17h.01M15 6h.01M18 11h.01M14 15h.01M18 18h.01",
	add: "M12 5v14M5 12h14",
	health: "M3 12h4l3-7 4 14 3-7h4",
	close: "M6 6l12 12M18 6 6 18",
	copy: "M9 9h10v10H9zM5 15V5h10",
	delete: "M5 7h14M10 7V4.5h4V7M7 7l1 12.5h8L17 7",
	edit: "M5 19l1-4L16 5l3 3L9 18z",
	back: "M15 5l-7 7 7 7",
	folder: "M4 6.5h5.5l2 2H20V18H4z",
	document: "M7 3.5h7l4 4V20.5H7zM14 3.5v4h4",
	memory: "M5 5h14v10h-8l-4 4v-4H5z",
	tag: "M4 4h8l8 8-8 8-8-8zM8.5 8.5h.01",
	thread: "M5 6h14M5 12h9M5 18h12",
	sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5 5l1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5",
	moon: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10Z",
	auto: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM12 4v16M12 8.5h6.8M12 12h7.8M12 15.5h6.8",
	refresh: "M19 12a7 7 0 1 1-2-5M17 3v4h-4",
};

/** A drawing of 24 × 24 in the colour of the text; screen readers pass over it. */
export function icon(name) {
	const svg = document.createElementNS(SVG, "svg");
	for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }))
		svg.setAttribute(key, value);
	const path = document.createElementNS(SVG, "path");
	path.setAttribute("d", ICONS[name]);
	svg.append(path);
	return svg;
}

/** A button; `icon` names a drawing, without `label` text it needs `title` for screen readers. */
export function button(label, act, { icon: name, title, kind = "", ...more } = {}) {
	return h(
		"button",
		{
			type: "button",
			class: `button ${kind}`.trim(),
			title,
			"aria-label": label ? null : title,
			on: { click: act },
			...more,
		},
		name ? icon(name) : null,
		label ? h("span", label) : null,
	);
}

/** A button without a frame, with a drawing. */
export const quiet = (label, act, drawing, title) => button(label, act, { icon: drawing, kind: "quiet", title });

/** A form's control with its label. */
export const field = (label, control) => h("label.field", label, control);

/** Say something to screen readers without moving the focus. */
export function announce(message) {
	const region = document.getElementById("live");
	region.textContent = "";
	window.setTimeout(() => {
		region.textContent = message;
	}, 30);
}

/** A short notice at the bottom of the page, read out too; it leaves after some seconds. */
export function notify(message, { bad = false } = {}) {
	const notice = h(
		"div",
		{ class: bad ? "notice bad" : "notice" },
		plain(message),
		button("", () => notice.remove(), { icon: "close", title: "Dismiss", kind: "quiet" }),
	);
	document.getElementById("notices").append(notice);
	announce(message);
	window.setTimeout(() => notice.remove(), bad ? 12000 : 5000);
}

/**
 * A modal dialog; resolves to what the chosen button's function returned, or to null if cancelled.
 * `choices` are `[label, function, kind]`; where a function throws, the dialog stays and says why.
 */
export function ask(title, content, choices) {
	return new Promise((resolve) => {
		let answer = null;
		const problem = h("p.warn.bad", { role: "alert", hidden: true });
		const buttons = choices.map(([label, act, kind = ""]) =>
			h("button", { type: "submit", class: `button ${kind}`, on: { click: (event) => choose(event, act) } }, label),
		);
		const cancel = button("Cancel", () => dialog.close());
		const dialog = h(
			"dialog",
			{ "aria-labelledby": "dialog-title" },
			h(
				"form",
				{ method: "dialog", on: { submit: (event) => event.preventDefault() } },
				h("h2", { id: "dialog-title" }, title),
				h("div.dialog-content", content),
				problem,
				h("div.dialog-buttons", cancel, buttons),
			),
		);
		const choose = async (event, act) => {
			event.preventDefault();
			for (const each of buttons) each.disabled = true;
			try {
				answer = await act();
				dialog.close();
			} catch (error) {
				problem.textContent = plain(error.message);
				problem.hidden = false;
				for (const each of buttons) each.disabled = false;
			}
		};
		const before = document.activeElement;
		dialog.addEventListener("close", () => {
			dialog.remove();
			before?.isConnected && before.focus();
			resolve(answer);
		});
		document.body.append(dialog);
		dialog.showModal();
	});
}

/** An empty or failed place: what is the matter, and what can be done. */
export function state(title, ...advice) {
	return h("div.state", h("h2", title), ...advice.map((each) => (each instanceof Node ? each : h("p", each))));
}

/** Call `act` when calls have paused for some milliseconds. */
export function debounced(act, milliseconds) {
	let timer = 0;
	const call = (...values) => {
		window.clearTimeout(timer);
		timer = window.setTimeout(() => act(...values), milliseconds);
	};
	call.cancel = () => window.clearTimeout(timer);
	return call;
}
