// Buttons that save what a chart or a table shows: numbers as CSV, pictures as SVG and PNG. Nothing leaves the page.
(() => {
  "use strict";
  const INK = "#1b1f24";
  const MARGIN = 12;
  const LINE = 18;
  const GLYPH = 6.8;
  const SHARPNESS = 2;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const labels = JSON.parse(document.getElementById("methods").textContent);
  const space = document.querySelector("svg").namespaceURI;
  const make = (name, attributes, content = "") => {
    const element = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = content;
    return element;
  };

  function save(name, address) {
    const link = document.createElement("a");
    link.download = name;
    link.href = address;
    link.click();
  }
  const address = (kind, text) => `data:${kind};charset=utf-8,${encodeURIComponent(text)}`;
  const quoted = (value) => (/[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const table = (rows) => rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  const fileName = (words) => words.trim().toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart";

  // Numbers: one row for each point of each line.
  function csvOfLines(data) {
    const rows = [["line", data.name, data.of]];
    for (const line of data.lines) {
      const name = [labels[line.g], line.label].filter(Boolean).join(", ");
      line.y.forEach((y, at) => y !== null && rows.push([name, (line.x || data.x)[at], y]));
    }
    return table(rows);
  }
  function csvOfTable(element) {
    return table(
      [...element.rows].map((row) =>
        [...row.cells].map((cell) => {
          const copy = cell.cloneNode(true);
          for (const aside of all(".place", copy)) aside.remove();
          for (const aside of all("small, .tags", copy)) aside.prepend(" ");
          return copy.textContent.trim().replace(/\s+/g, " ");
        }),
      ),
    );
  }

  // Pictures: the drawing in the colours of a light page, its title above it and the lines it shows below.
  function legendOf(svg, width) {
    const shown = new Set(all("g.series[data-g]", svg).map((line) => Number(line.dataset.g)));
    const legend = make("g", {});
    let [x, y] = [MARGIN, LINE];
    for (const at of [...shown].sort((a, b) => a - b)) {
      const sample = document.querySelectorAll(".bar .swatch")[at];
      const wide = 38 + labels[at].length * GLYPH + 16;
      if (x > MARGIN && x + wide > width) [x, y] = [MARGIN, y + LINE];
      const entry = make("g", { transform: `translate(${x} ${y - 9})` });
      entry.append(...[...sample.childNodes].map((shape) => shape.cloneNode(true)));
      entry.append(make("text", { x: 38, y: 9, fill: INK }, labels[at]));
      legend.append(entry);
      x += wide;
    }
    return [legend, shown.size ? y + MARGIN : 0];
  }
  function pictureOf(svg, title) {
    const copy = svg.cloneNode(true);
    for (const gone of all(".off, .hover, title, desc", copy)) gone.remove();
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const [legend, room] = svg.dataset.map ? [make("g", {}), 0] : legendOf(copy, width);
    const top = 30;
    const size = { width, height: top + height + room };
    const picture = make("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}` });
    for (const name of ["font-family", "font-size"]) picture.setAttribute(name, svg.getAttribute(name));
    const drawing = make("g", { transform: `translate(0 ${top})` });
    drawing.append(...copy.childNodes);
    legend.setAttribute("transform", `translate(0 ${top + height})`);
    picture.append(make("rect", { ...size, fill: "#ffffff" }));
    picture.append(make("text", { x: MARGIN, y: 20, fill: INK, "font-weight": 600 }, title), drawing, legend);
    return [new XMLSerializer().serializeToString(picture), size];
  }
  function savePng(name, svg, title) {
    const [text, size] = pictureOf(svg, title);
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = SHARPNESS * size.width;
      canvas.height = SHARPNESS * size.height;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      save(`${name}.png`, canvas.toDataURL("image/png"));
    };
    image.src = address("image/svg+xml", text);
  }

  function buttons(what, kinds) {
    const row = document.createElement("p");
    row.className = "save";
    row.append("Save");
    for (const [kind, action] of Object.entries(kinds)) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind;
      button.setAttribute("aria-label", `Save ${what} as ${kind}`);
      button.addEventListener("click", action);
      row.append(button);
    }
    return row;
  }
  for (const figure of all("figure")) {
    const visible = () => all("svg.chart", figure).find((svg) => svg.getClientRects().length);
    if (!figure.querySelector("svg.chart")) continue;
    const own = figure.querySelector(".figure-title");
    const title = (own ? own.textContent : figure.querySelector("svg title")?.textContent || "").trim();
    const block = figure.querySelector("script.data");
    const data = block ? JSON.parse(block.textContent) : null;
    const kinds = {
      SVG: () => save(`${fileName(title)}.svg`, address("image/svg+xml", pictureOf(visible(), title)[0])),
      PNG: () => savePng(fileName(title), visible(), title),
    };
    if (data && data.lines) kinds.CSV = () => save(`${fileName(title)}.csv`, address("text/csv", csvOfLines(data)));
    figure.append(buttons(title, kinds));
  }
  for (const element of all("table")) {
    const title = element.caption.textContent;
    const csv = () => save(`${fileName(title)}.csv`, address("text/csv", csvOfTable(element)));
    element.closest(".scroll").after(buttons(title, { CSV: csv }));
  }
})();
