// Runs before the first paint, so that a chosen theme does not flash: "light", "dark" or none.
(() => {
	try {
		const chosen = localStorage.getItem("theme");
		if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
	} catch {
		/* storage may be off: the system's theme it is */
	}
})();
