// The page is complete without this script. The script adds switches for methods, values under the pointer and a
// choice of round. It reads the blocks of JSON beside the pictures and loads nothing.
(() => {
  "use strict";
  const LEVELS = 8;
  const UNKNOWN = 255;
  const FULL = 254;
  const root = document.documentElement;
  const labels = JSON.parse(document.getElementById("methods").textContent);
  const hidden = new Set();
  root.classList.add("js");

  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const dataOf = (element) => {
    const block = [...element.children].find((child) => child.matches("script.data"));
    return block ? JSON.parse(block.textContent) : null;
  };
  const make = (svg, name, attributes) => {
    const element = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const print = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(4))));

  // Switches: one per method, for every picture of the page.
  function toggle(chip, group) {
    const off = !hidden.has(group);
    if (off) hidden.add(group);
    else hidden.delete(group);
    chip.setAttribute("aria-pressed", String(!off));
    for (const shape of all(`[data-g="${group}"]`)) shape.classList.toggle("off", off);
    hide();
  }
  for (const chip of all(".chip")) {
    const button = document.createElement("button");
    const group = Number(chip.dataset.chip);
    button.type = "button";
    button.className = chip.className;
    button.dataset.chip = chip.dataset.chip;
    button.title = "Show or hide in all charts";
    button.setAttribute("aria-pressed", "true");
    button.append(...chip.childNodes);
    button.addEventListener("click", () => toggle(button, group));
    chip.replaceWith(button);
  }

  // One box for the values, beside the pointer.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);
  let marked = null;

  function hide() {
    tip.hidden = true;
    if (marked) marked.remove();
    marked = null;
  }
  function place(x, y) {
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const room = root.clientWidth;
    const left = x + 16 + box.width > room ? x - 16 - box.width : x + 16;
    tip.style.left = `${Math.max(6, Math.min(left, room - box.width - 6))}px`;
    tip.style.top = `${Math.max(6, Math.min(y - box.height - 12, window.innerHeight - box.height - 6))}px`;
  }
  function line(name, value, swatch) {
    const row = document.createElement("div");
    const text = document.createElement("span");
    const number = document.createElement("b");
    text.className = "tip-name";
    text.textContent = name;
    number.textContent = value;
    if (swatch) row.append(swatch.cloneNode(true));
    row.append(text, number);
    return row;
  }

  // Line charts.
  function axis(mapping) {
    const [start, end, low, high, log] = mapping.split(" ").map(Number);
    const share = log ? (v) => Math.log(v / low) / Math.log(high / low) : (v) => (v - low) / (high - low);
    return {
      start,
      end,
      at: (v) => start + share(Math.min(Math.max(v, low), high)) * (end - start),
      value: (pixel) => low + ((pixel - start) / (end - start)) * (high - low),
    };
  }
  function nearest(places, value) {
    let best = 0;
    for (let i = 1; i < places.length; i += 1) {
      if (Math.abs(places[i] - value) < Math.abs(places[best] - value)) best = i;
    }
    return best;
  }
  const swatches = all(".bar .swatch");

  function show(svg, data, x, y, at) {
    const shown = data.lines.filter((series) => !hidden.has(series.g) && series.y.length);
    if (!shown.length) return hide();
    const across = data.x[at];
    hide();
    marked = make(svg, "g", { class: "hover", "pointer-events": "none" });
    const pixel = x.at(across);
    marked.append(make(svg, "line", { class: "cross", x1: pixel, x2: pixel, y1: y.start, y2: y.end }));
    const head = document.createElement("small");
    head.textContent = `${data.name} ${print(across)}`;
    const rows = shown.map((series) => {
      const places = series.x || data.x;
      const i = nearest(places, across);
      const value = series.y[i];
      if (value !== null && value !== undefined) {
        const drawn = svg.querySelector(`g[data-line][data-g="${series.g}"] circle`);
        const dot = { class: drawn.getAttribute("class"), cx: x.at(places[i]), cy: y.at(value), r: 4 };
        marked.append(make(svg, "circle", dot));
      }
      const far = places[i] === across ? "" : ` (at ${print(places[i])})`;
      return [value, line((series.label || labels[series.g]) + far, print(value), swatches[series.g])];
    });
    rows.sort((a, b) => (b[0] ?? -Infinity) - (a[0] ?? -Infinity));
    tip.replaceChildren(head, ...rows.map((row) => row[1]));
    svg.append(marked);
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    place(box.left + pixel * scale, box.top + (y.end + 60) * scale);
    return at;
  }
  function follow(svg, data) {
    const x = axis(svg.dataset.x);
    const y = axis(svg.dataset.y);
    let at = data.x.length - 1;
    const point = (event) => {
      const box = svg.getBoundingClientRect();
      const pixel = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      at = nearest(data.x, x.value(pixel));
      show(svg, data, x, y, at);
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", hide);
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("focus", () => svg.matches(":focus-visible") && show(svg, data, x, y, at));
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      at = Math.min(Math.max(at + step, 0), data.x.length - 1);
      show(svg, data, x, y, at);
    });
    for (const hint of all("path title", svg)) hint.remove();
  }
  function redraw(svg, data) {
    const x = axis(svg.dataset.x);
    const y = axis(svg.dataset.y);
    const drawn = all("g[data-line]", svg);
    data.lines.forEach((series, i) => {
      const points = series.y.map((v, k) => [x.at((series.x || data.x)[k]), v]).filter((pair) => pair[1] !== null);
      const path = points.map(([across, v]) => `${across.toFixed(1)},${y.at(v).toFixed(1)}`).join("L");
      const last = points[points.length - 1];
      drawn[i].querySelector("path").setAttribute("d", path ? `M${path}` : "");
      const dot = drawn[i].querySelector("circle");
      dot.setAttribute("visibility", last ? "visible" : "hidden");
      if (last) dot.setAttribute("cx", last[0]);
      if (last) dot.setAttribute("cy", y.at(last[1]));
    });
  }

  // Heat maps.
  const unpack = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const value = (byte, signed) => (signed ? (byte / FULL) * 2 - 1 : byte / FULL);
  const level = (v) => Math.sign(v) * Math.min(LEVELS, Math.floor(Math.abs(v) * LEVELS + 0.5));

  function paint(svg, data, bytes) {
    const runs = new Map();
    const levels = [...bytes].map((byte) => (byte === UNKNOWN ? 0 : level(value(byte, data.signed))));
    for (let row = 0; row < data.side; row += 1) {
      for (let column = 0; column < data.side; ) {
        const strength = levels[row * data.side + column];
        const start = column;
        while (column < data.side && levels[row * data.side + column] === strength) column += 1;
        if (strength) runs.set(strength, `${runs.get(strength) || ""}M${start} ${row}.5h${column - start}`);
      }
    }
    const paths = [...runs].map(([strength, d]) =>
      make(svg, "path", {
        d,
        stroke: svg.dataset.ends.split(" ")[strength > 0 ? 0 : 1],
        class: strength > 0 ? "pos-stroke" : "neg-stroke",
        "stroke-opacity": Math.abs(strength) / LEVELS,
      }),
    );
    svg.querySelector(".heat").replaceChildren(...paths);
  }
  function explore(svg, data) {
    const [left, top, cell] = svg.dataset.map.split(" ").map(Number);
    const point = (event) => {
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      const column = Math.floor(((event.clientX - box.left) * scale - left) / cell);
      const row = Math.floor(((event.clientY - box.top) * scale - top) / cell);
      if (Math.min(row, column) < 0 || Math.max(row, column) >= data.side) return hide();
      const byte = data.bytes[row * data.side + column];
      const v = value(byte, data.signed);
      const printed = data.signed ? v.toFixed(2) : `${(100 * v).toFixed(0)} %`;
      tip.replaceChildren(
        line(data.down, data.names[row]),
        line(data.across, data.names[column]),
        line(data.signed ? "cosine" : "share", byte === UNKNOWN || byte === undefined ? "–" : printed),
      );
      return place(event.clientX, event.clientY);
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", hide);
  }

  const known = new Map();
  for (const figure of all("figure")) {
    const data = dataOf(figure);
    if (!data) continue;
    known.set(figure, data);
    if (data.side) data.bytes = unpack(data.frames[data.frames.length - 1] || "");
    for (const svg of all("svg.chart", figure)) {
      if (data.side) explore(svg, data);
      else follow(svg, data);
    }
  }

  // The choice of a round, for all pictures of its part of the page.
  function turn(part, at) {
    for (const figure of all("figure", part)) {
      const data = known.get(figure);
      if (!data || !data.frames) continue;
      if (data.side) data.bytes = unpack(data.frames[at] || "");
      else data.lines.forEach((series, i) => (series.y = data.frames[at][i]));
      for (const svg of all("svg.chart", figure)) {
        if (data.side) paint(svg, data, data.bytes);
        else redraw(svg, data);
      }
    }
  }
  for (const part of all(".frames")) {
    const slider = part.querySelector("input");
    const rounds = dataOf(part);
    if (!slider) continue;
    slider.value = rounds.length - 1;
    slider.addEventListener("input", () => {
      hide();
      part.querySelector("output").textContent = rounds[slider.value];
      turn(part, Number(slider.value));
    });
  }
  window.addEventListener("scroll", hide, { passive: true });
})();
