// Runs inside the report and tells the page around it what a reader would find.
(async () => {
  "use strict";
  const found = { errors: window.reportErrors, width: window.innerWidth };
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const visible = (element) => element.getClientRects().length > 0;
  const lines = (group) => all(`g.series[data-g="${group}"] path.line`).filter(visible).length;
  const frame = () => new Promise((done) => setTimeout(done, 50));
  const show = (svg, share) => {
    const box = svg.getBoundingClientRect();
    const at = { clientX: box.left + share * box.width, clientY: box.top + box.height / 2, bubbles: true };
    svg.dispatchEvent(new PointerEvent("pointermove", at));
  };
  const meet = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  const overlaps = (boxes) => {
    const pairs = [];
    boxes.forEach(([a, name], i) => {
      for (const [b, other] of boxes.slice(i + 1)) if (meet(a, b)) pairs.push(`${name} / ${other}`);
    });
    return pairs;
  };
  const boxesOf = (elements) => elements.filter(visible).map((e) => [e.getBoundingClientRect(), e.textContent.slice(0, 40)]);
  // The places a path goes through, given as such or by the steps between them.
  const places = (data) => {
    const found = (data.match(/-?[\d.]+/g) || []).map(Number);
    if (data.includes("l")) for (let i = 2; i < found.length; i += 1) found[i] += found[i - 2];
    return found;
  };
  // What a picture shows: the points of its lines in pixels, or the signed strength of each cell of a map.
  const drawn = (svg) => {
    if (!svg.dataset.map) return all("path.line", svg).flatMap((line) => places(line.getAttribute("d")));
    const cells = new Array(100).fill(0);
    for (const path of all(".heat path", svg)) {
      const strength = Number(path.getAttribute("stroke-opacity")) * (path.matches(".pos-stroke") ? 1 : -1);
      for (const [, x, y, run] of path.getAttribute("d").matchAll(/M(\d+) (\d+)\.5h(\d+)/g)) {
        cells.fill(strength, Number(y) * 10 + Number(x), Number(y) * 10 + Number(x) + Number(run));
      }
    }
    return cells;
  };
  const apart = (a, b) => {
    const [one, two] = [a.flat(), b.flat()];
    return one.length === two.length ? Math.max(...one.map((value, i) => Math.abs(value - two[i]))) : Infinity;
  };

  try {
    await frame();
    const inside = (element) => element.getBoundingClientRect().bottom <= window.innerHeight;
    found.first = {
      finding: inside(document.querySelector(".finding")),
      chart: all("#accuracy svg.chart").filter(visible).every(inside),
      rows: all(".lead-in tbody tr").filter(inside).length,
    };
    for (const each of all("details")) each.open = true;
    await frame();
    found.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
    found.overflow = document.documentElement.scrollWidth - window.innerWidth;
    found.texts = all("svg.chart").filter(visible).flatMap((svg) => overlaps(boxesOf(all("text", svg))));
    found.blocks = overlaps(boxesOf(all("figure, section:not(.first) h2, .pick, .note, .intro, details > summary, .scroll")));
    found.outside = all("svg.chart").filter(visible).flatMap((svg) => {
      const frameBox = svg.getBoundingClientRect();
      return boxesOf(all("text", svg))
        .filter(([b]) => b.left < frameBox.left - 1 || b.right > frameBox.right + 1 || b.bottom > frameBox.bottom + 1)
        .map(([, name]) => name);
    });
    found.smallest = Math.min(
      ...all("svg.chart").filter(visible).map((svg) => (12 * svg.getBoundingClientRect().width) / svg.viewBox.baseVal.width),
    );

    const chip = document.querySelector('button.chip[data-chip="1"]');
    found.lines = [lines(0), lines(1)];
    chip.click();
    found.linesOff = [lines(0), lines(1)];
    found.panelsOff = all('figure[data-g="1"]').filter(visible).length;
    const chart = all("svg.chart[data-x]").filter(visible)[0];
    show(chart, 0.5);
    found.tipOff = document.querySelector(".tip").innerText;
    chip.click();
    found.linesOn = [lines(0), lines(1)];

    show(chart, 0.5);
    found.tip = document.querySelector(".tip").hidden ? "" : document.querySelector(".tip").innerText;
    found.dots = all(".hover circle", chart).length;
    chart.dispatchEvent(new PointerEvent("pointerleave"));
    found.tipGone = document.querySelector(".tip").hidden && !all(".hover").length;
    chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true }));
    found.tipByKey = document.querySelector(".tip").innerText;
    show(all("svg.chart[data-map]").filter(visible)[0], 0.5);
    found.tipOfMap = document.querySelector(".tip").innerText;

    found.frames = all(".frames").map((part) => {
      const slider = part.querySelector("input");
      const turn = (value) => {
        slider.value = value;
        slider.dispatchEvent(new Event("input"));
        return [part.querySelector("output").textContent, all("svg.chart", part).filter(visible).map(drawn)];
      };
      const still = all("svg.chart", part).filter(visible).map(drawn);
      const [first, moved] = turn("0");
      const [last, back] = turn(slider.max);
      return { shown: visible(slider), moved: apart(still, moved) > 0.3, first, last, back: apart(still, back) <= 0.2 };
    });

    const table = document.querySelector(".lead-in table");
    const column = () => all("tbody tr", table).map((row) => row.cells[1].textContent.replace(/^(1st|2nd) /, ""));
    const sorts = all("thead button", table);
    sorts[1].click();
    found.down = [column(), sorts[1].parentElement.getAttribute("aria-sort")];
    sorts[1].click();
    found.up = [column(), sorts[1].parentElement.getAttribute("aria-sort")];
    sorts[0].click();
    found.byName = [all("tbody th", table).map((cell) => cell.textContent), all("[aria-sort]", table).length];

    const saved = [];
    HTMLAnchorElement.prototype.click = function click() {
      saved.push([this.download, this.href]);
    };
    for (const figure of [document.getElementById("accuracy"), document.querySelector("figure:has(svg[data-map])")]) {
      for (const button of all(".save button", figure)) button.click();
    }
    document.querySelector(".lead-in .scroll + .save button").click();
    for (let wait = 0; saved.length < 7 && wait < 40; wait += 1) await frame();
    found.saved = saved.map(([name, href]) => [name, href.startsWith("data:image/png") ? href.length : decodeURIComponent(href)]);
    found.file = atob(document.querySelector('a[download="results.csv"]').href.split("base64,")[1]);
  } catch (error) {
    found.errors.push(String(error.stack || error));
  }
  window.parent.postMessage(JSON.stringify(found), "*");
})();
