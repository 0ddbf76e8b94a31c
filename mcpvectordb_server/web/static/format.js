// Numbers, sizes and times as people read them.

const numbers = new Intl.NumberFormat("en");
const days = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", year: "numeric" });
const moments = new Intl.DateTimeFormat("en", {
	day: "numeric",
	month: "short",
	year: "numeric",
	hour: "2-digit",
	minute: "2-digit",
	hourCycle: "h23",
});

export const count = (value) => numbers.format(value);

/** A number with its noun: 1 passage, 2,722 passages. */
export function counted(value, noun, plural = `${noun}s`) {
	return `${count(value)} ${value === 1 ? noun : plural}`;
}

export function size(bytes) {
	if (bytes < 1000) return counted(bytes, "byte");
	const units = ["kB", "MB", "GB", "TB"];
	let unit = -1;
	do {
		bytes /= 1000;
		unit += 1;
	} while (bytes >= 999.5 && unit < units.length - 1);
	return `${bytes < 9.95 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

const moment = (stored) =>
	new Date(/[zZ]|[+-]\d\d:?\d\d$/.test(stored) || !stored.includes(":") ? stored : `${stored.replace(" ", "T")}Z`);

/** A stored time as a day, with the clock on request; as it is if it is no time. */
export function day(stored, { clock = false } = {}) {
	if (!stored) return "";
	const when = moment(stored);
	return Number.isNaN(when.getTime()) ? stored : (clock ? moments : days).format(when);
}

export function duration(seconds) {
	if (seconds < 1) return "less than a second";
	if (seconds < 90) return counted(Math.round(seconds), "second");
	if (seconds < 5400) return counted(Math.round(seconds / 60), "minute");
	return counted(Math.round(seconds / 3600), "hour");
}

export const percent = (share) => `${Math.round(100 * share)} %`;
