// Points in the plane on a canvas: drawn from typed arrays, found again by a grid.

const CELLS = 256; // of the grid, in each direction
const SPAN = 65536; // coordinates are of 16 bits
const FEW = 3000; // so many points are drawn as round dots, more of them pixel by pixel
const MOVING = 20000; // while the map moves, no more points than these are drawn
const MARGIN = 0.06;

/** The arrays of `GET /api/map/points`, one after the other, each padded to four bytes. */
export function decoded(buffer) {
	const view = new DataView(buffer);
	if (view.getUint32(0, false) !== 0x4d415032) throw new Error("This is not a map.");
	const n = view.getUint32(4, true);
	let at = 8;
	const take = (Kind) => {
		const array = new Kind(buffer, at, n);
		at += Math.ceil(array.byteLength / 4) * 4;
		return array;
	};
	return {
		n,
		ids: take(Uint32Array),
		x: take(Uint16Array),
		y: take(Uint16Array),
		library: take(Uint8Array),
		folder: take(Uint8Array),
		type: take(Uint8Array),
		time: take(Uint8Array),
		cluster: take(Uint32Array),
	};
}

/** Which points lie in each cell of a grid: `order[starts[c] : starts[c + 1]]`. */
export class Grid {
	constructor({ n, x, y }) {
		this.starts = new Uint32Array(CELLS * CELLS + 1);
		this.order = new Uint32Array(n);
		const cell = (i) => (y[i] >> 8) * CELLS + (x[i] >> 8);
		for (let i = 0; i < n; i += 1) this.starts[cell(i) + 1] += 1;
		for (let c = 0; c < CELLS * CELLS; c += 1) this.starts[c + 1] += this.starts[c];
		const next = this.starts.slice();
		for (let i = 0; i < n; i += 1) this.order[next[cell(i)]++] = i;
	}

	/** Call `see` for each point of the cells that a rectangle touches. */
	visit(left, top, right, bottom, see) {
		const cell = (value) => Math.min(CELLS - 1, Math.max(0, Math.floor(value / (SPAN / CELLS))));
		for (let row = cell(top); row <= cell(bottom); row += 1) {
			const from = this.starts[row * CELLS + cell(left)];
			const to = this.starts[row * CELLS + cell(right) + 1];
			for (let at = from; at < to; at += 1) see(this.order[at]);
		}
	}
}

/**
 * Hills of the density of points: each cell of a grid belongs to the peak that the steepest way up
 * leads to. Of each its size, middle and spread, and some points of it, spread over all.
 */
export function hills({ n, x, y }, shows, cells, sample = 40) {
	let density = new Float32Array(cells * cells);
	const cell = (i) => Math.floor((y[i] * cells) / SPAN) * cells + Math.floor((x[i] * cells) / SPAN);
	for (let i = 0; i < n; i += 1) if (shows(i)) density[cell(i)] += 1;
	const around = (c, act) => {
		for (let dy = -1; dy <= 1; dy += 1) {
			for (let dx = -1; dx <= 1; dx += 1) {
				const [column, row] = [(c % cells) + dx, Math.floor(c / cells) + dy];
				if (column >= 0 && column < cells && row >= 0 && row < cells) act(row * cells + column);
			}
		}
	};
	for (let round = 0; round < 2; round += 1) {
		const smooth = new Float32Array(cells * cells);
		density.forEach((value, c) => {
			if (value)
				around(c, (each) => {
					smooth[each] += value / 9;
				});
		});
		density = smooth;
	}
	const peaks = new Map();
	const peak = (c) => {
		let best = c;
		around(c, (each) => {
			if (density[each] > density[best]) best = each;
		});
		if (best === c) return c;
		if (!peaks.has(c)) peaks.set(c, peak(best));
		return peaks.get(c);
	};
	const found = new Map();
	for (let i = 0; i < n; i += 1) {
		if (!shows(i)) continue;
		const at = peak(cell(i));
		if (!found.has(at)) found.set(at, []);
		found.get(at).push(i);
	}
	return [...found.values()].map((points) => {
		const mean = (values) => points.reduce((sum, i) => sum + values[i], 0) / points.length;
		const middle = [mean(x), mean(y)];
		const spread = Math.sqrt(points.reduce((sum, i) => sum + (x[i] - middle[0]) ** 2 + (y[i] - middle[1]) ** 2, 0) / points.length);
		const step = Math.max(1, Math.floor(points.length / sample));
		return { size: points.length, middle, spread, some: points.filter((_, at) => at % step === 0).slice(0, sample) };
	});
}

/** A canvas with points that can be moved, enlarged, hovered and encircled. */
export class Plane {
	constructor(canvas, points, acts) {
		Object.assign(this, { canvas, points, ...acts, group: points.library });
		this.pen = canvas.getContext("2d");
		this.grid = new Grid(points);
		this.hidden = new Set();
		this.emphasised = null; // a function that says of a point whether it stands out
		this.pointers = new Map();
		this.lassoing = false;
		this.path = [];
		this.over = this.read = -1;
		this.reset(false);
	}

	listen(signal) {
		const on = (name, act, options = {}) => this.canvas.addEventListener(name, act, { signal, ...options });
		on("pointerdown", (event) => this.down(event));
		on("pointermove", (event) => this.move(event));
		on("pointerup", (event) => this.up(event));
		on("pointercancel", (event) => this.up(event));
		on("pointerleave", () => this.hover(-1));
		on("wheel", (event) => this.wheel(event), { passive: false });
		on("keydown", (event) => this.key(event));
		on("dblclick", (event) => this.scale(2, event.offsetX, event.offsetY));
		const watcher = new ResizeObserver(() => this.resize());
		watcher.observe(this.canvas);
		signal.addEventListener("abort", () => watcher.disconnect());
	}

	resize() {
		this.ratio = Math.min(devicePixelRatio || 1, 2);
		const { clientWidth: width, clientHeight: height } = this.canvas;
		if (!width || !height) return;
		Object.assign(this.canvas, { width: Math.round(width * this.ratio), height: Math.round(height * this.ratio) });
		this.soon();
	}

	reset(draw = true) {
		this.zoom = 1;
		this.centre = [SPAN / 2, SPAN / 2];
		if (draw) this.soon();
	}

	/** Pixels of the page per unit of the map. */
	get unit() {
		return (this.zoom * Math.min(this.canvas.clientWidth, this.canvas.clientHeight) * (1 - 2 * MARGIN)) / SPAN;
	}

	place(x, y) {
		return [
			(x - this.centre[0]) * this.unit + this.canvas.clientWidth / 2,
			(y - this.centre[1]) * this.unit + this.canvas.clientHeight / 2,
		];
	}

	point(left, top) {
		return [
			(left - this.canvas.clientWidth / 2) / this.unit + this.centre[0],
			(top - this.canvas.clientHeight / 2) / this.unit + this.centre[1],
		];
	}

	shows(i) {
		return !this.hidden.has(this.group[i]);
	}

	/** The points in sight, as indexes. */
	inSight() {
		const { group } = this;
		const { x, y } = this.points;
		const found = new Uint32Array(this.points.n);
		const hidden = this.hidden.size ? this.hidden : null;
		const [left, top] = this.point(0, 0);
		const [right, bottom] = this.point(this.canvas.clientWidth, this.canvas.clientHeight);
		let number = 0;
		this.grid.visit(left, top, right, bottom, (i) => {
			if (x[i] >= left && x[i] <= right && y[i] >= top && y[i] <= bottom && !hidden?.has(group[i])) found[number++] = i;
		});
		return found.subarray(0, number);
	}

	// ---- drawing

	soon() {
		this.frame ??= requestAnimationFrame(() => {
			this.frame = null;
			this.draw();
		});
	}

	draw() {
		const { pen, canvas, ratio } = this;
		if (!ratio) return;
		pen.setTransform(1, 0, 0, 1, 0, 0);
		pen.clearRect(0, 0, canvas.width, canvas.height);
		let seen = this.inSight();
		const every = this.moving ? Math.ceil(seen.length / MOVING) : 1;
		if (every > 1) seen = seen.filter((i) => i % every === 0);
		if (seen.length > FEW) this.drawPixels(seen);
		else this.drawDots(seen);
		pen.setTransform(ratio, 0, 0, ratio, 0, 0);
		if (this.path.length > 1) this.drawLasso();
		for (const i of [this.over, this.read]) if (i >= 0) this.drawRing(i);
		this.drawn();
	}

	radius() {
		const sparse = this.points.n < 400 ? 2.2 : this.points.n < 5000 ? 0.8 : 0;
		return Math.min(8, 1.6 + sparse + Math.log2(this.zoom) * 0.7);
	}

	drawDots(seen) {
		const { pen, ratio, points } = this;
		pen.setTransform(ratio, 0, 0, ratio, 0, 0);
		const radius = this.radius();
		for (const i of seen) {
			const [left, top] = this.place(points.x[i], points.y[i]);
			pen.globalAlpha = this.emphasised && !this.emphasised(i) ? 0.13 : 0.82;
			pen.fillStyle = this.colours[this.group[i] % this.colours.length];
			pen.beginPath();
			pen.arc(left, top, radius, 0, 7);
			pen.fill();
		}
		pen.globalAlpha = 1;
	}

	/** Blend squares of pixels into an image: the time depends on points, not on calls. */
	drawPixels(seen) {
		const { pen, canvas, ratio, points } = this;
		const { width, height } = canvas;
		const image = pen.createImageData(width, height);
		const { data } = image;
		const side = Math.max(2, Math.round(this.radius() * 1.5 * ratio));
		const [originX, originY] = this.place(0, 0);
		const unit = this.unit * ratio;
		const rgb = this.colours.map(channels);
		for (const i of seen) {
			const left = Math.round(originX * ratio + points.x[i] * unit - side / 2);
			const top = Math.round(originY * ratio + points.y[i] * unit - side / 2);
			const colour = rgb[this.group[i] % rgb.length];
			const alpha = this.emphasised && !this.emphasised(i) ? 0.08 : 0.6;
			for (let row = Math.max(0, top); row < Math.min(height, top + side); row += 1) {
				for (let column = Math.max(0, left); column < Math.min(width, left + side); column += 1) {
					const at = 4 * (row * width + column);
					const under = data[at + 3] / 255;
					const share = alpha / (alpha + under * (1 - alpha));
					data[at] += (colour[0] - data[at]) * share;
					data[at + 1] += (colour[1] - data[at + 1]) * share;
					data[at + 2] += (colour[2] - data[at + 2]) * share;
					data[at + 3] = 255 * (alpha + under * (1 - alpha));
				}
			}
		}
		pen.putImageData(image, 0, 0);
	}

	drawLasso() {
		const { pen } = this;
		pen.beginPath();
		this.path.forEach(([left, top], at) => (at ? pen.lineTo(left, top) : pen.moveTo(left, top)));
		pen.closePath();
		pen.globalAlpha = 0.15;
		pen.fillStyle = this.accent;
		pen.fill();
		pen.globalAlpha = 1;
		pen.strokeStyle = this.accent;
		pen.lineWidth = 1.5;
		pen.stroke();
	}

	drawRing(i) {
		const { pen, points } = this;
		pen.beginPath();
		pen.arc(...this.place(points.x[i], points.y[i]), this.radius() + 4, 0, 7);
		pen.strokeStyle = this.accent;
		pen.lineWidth = 2.5;
		pen.stroke();
	}

	// ---- moving and finding

	nearest(left, top, within = 14) {
		const [x, y] = this.point(left, top);
		const reach = within / this.unit;
		let best = -1;
		let least = reach * reach;
		this.grid.visit(x - reach, y - reach, x + reach, y + reach, (i) => {
			const distance = (this.points.x[i] - x) ** 2 + (this.points.y[i] - y) ** 2;
			if (distance <= least && this.shows(i)) [best, least] = [i, distance];
		});
		return best;
	}

	hover(i, left = 0, top = 0) {
		if (i === this.over) return;
		this.over = i;
		this.canvas.classList.toggle("pointing", i >= 0);
		this.hovered(i, left, top);
		this.soon();
	}

	/** Draw in motion: all points are there again when it has paused. */
	inMotion() {
		clearTimeout(this.moving);
		this.moving = setTimeout(() => {
			this.moving = null;
			this.soon();
		}, 140);
		this.soon();
	}

	pan(dx, dy) {
		this.centre = [this.centre[0] - dx / this.unit, this.centre[1] - dy / this.unit];
		this.inMotion();
	}

	scale(factor, left = this.canvas.clientWidth / 2, top = this.canvas.clientHeight / 2) {
		const [x, y] = this.point(left, top);
		this.zoom = Math.min(400, Math.max(0.7, this.zoom * factor));
		const [nowX, nowY] = this.point(left, top);
		this.centre = [this.centre[0] + x - nowX, this.centre[1] + y - nowY];
		this.inMotion();
	}

	/** Show a part of the map: what lies within a distance of a place. */
	show([x, y], reach) {
		this.centre = [x, y];
		this.zoom = Math.min(400, Math.max(this.zoom * 1.6, SPAN / (4 * reach + 1)));
		this.inMotion();
	}

	wheel(event) {
		event.preventDefault();
		this.scale(2 ** (-event.deltaY * (event.deltaMode ? 0.06 : 0.002)), event.offsetX, event.offsetY);
	}

	down(event) {
		this.canvas.setPointerCapture(event.pointerId);
		this.pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
		this.moved = 0;
		this.encircling = this.pointers.size === 1 && (this.lassoing || event.shiftKey);
		this.path = this.encircling ? [[event.offsetX, event.offsetY]] : [];
	}

	move(event) {
		const before = this.pointers.get(event.pointerId);
		const now = [event.offsetX, event.offsetY];
		if (!before) {
			this.hover(this.nearest(...now), ...now);
			return;
		}
		this.moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
		if (this.encircling) {
			this.path.push(now);
			this.soon();
		} else if (this.pointers.size === 2) this.pinch(event.pointerId, before, now);
		else this.pan(now[0] - before[0], now[1] - before[1]);
		this.pointers.set(event.pointerId, now);
	}

	pinch(id, before, now) {
		const [, other] = [...this.pointers].find(([each]) => each !== id);
		const reach = (place) => Math.hypot(place[0] - other[0], place[1] - other[1]) || 1;
		this.scale(reach(now) / reach(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
		this.pan((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
	}

	up(event) {
		this.pointers.delete(event.pointerId);
		if (this.encircling && this.path.length > 2) this.encircled(this.inside(this.path));
		else if (this.moved < 5 && event.type === "pointerup") {
			const i = this.nearest(event.offsetX, event.offsetY, 18);
			this.chosen(i);
		}
		this.encircling = false;
		this.path = [];
		this.soon();
	}

	/** The points inside of a path: an odd number of its edges lies to the right of each. */
	inside(path) {
		const corners = path.map(([left, top]) => this.point(left, top));
		const xs = corners.map(([x]) => x);
		const ys = corners.map(([, y]) => y);
		const found = [];
		this.grid.visit(Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys), (i) => {
			if (this.shows(i) && odd(corners, this.points.x[i], this.points.y[i])) found.push(i);
		});
		return found;
	}

	key(event) {
		const step = 60;
		const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
		if (moves[event.key]) this.pan(...moves[event.key]);
		else if (event.key === "+" || event.key === "=") this.scale(1.4);
		else if (event.key === "-") this.scale(1 / 1.4);
		else if (event.key === "0") this.reset();
		else if (event.key === "Enter") this.chosen(this.nearest(this.canvas.clientWidth / 2, this.canvas.clientHeight / 2, 200));
		else return;
		event.preventDefault();
	}
}

function odd(corners, x, y) {
	let inside = false;
	for (let at = 0, last = corners.length - 1; at < corners.length; last = at, at += 1) {
		const [ax, ay] = corners[at];
		const [bx, by] = corners[last];
		if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
	}
	return inside;
}

function channels(colour) {
	return [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
}
