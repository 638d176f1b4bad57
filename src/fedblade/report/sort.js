// Tables that can be sorted: a button in each heading. Without this script the tables stand in their first order.
(() => {
  "use strict";
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // The first number of a cell, without its rank; `11+` comes after 11, and a cell without a number comes last.
  function numberOf(cell) {
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    const copy = cell.cloneNode(true);
    for (const aside of all(".place, small, .tags", copy)) aside.remove();
    const found = copy.textContent.replaceAll("−", "-").replaceAll(",", "").match(/[-+]?\d+(\.\d+)?\+?/);
    if (!found) return null;
    return parseFloat(found[0]) + (found[0].endsWith("+") ? 0.5 : 0);
  }
  function compare(a, b, numeric) {
    if (!numeric) return a.localeCompare(b, undefined, { numeric: true });
    if (a === null || b === null) return (a === null) - (b === null);
    return a - b;
  }
  function sort(table, heading, column) {
    const numeric = heading.classList.contains("n");
    const was = heading.getAttribute("aria-sort");
    const down = was ? was === "ascending" : numeric;
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => {
      const cell = row.cells[column];
      return [numeric ? numberOf(cell) : cell.textContent, row];
    });
    rows.sort(([a], [b]) => {
      const order = compare(a, b, numeric);
      return down && a !== null && b !== null ? -order : order;
    });
    for (const other of all("th", table.tHead)) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows.map((row) => row[1]));
  }
  for (const table of all("table")) {
    if (table.tBodies[0].rows.length < 2) continue;
    all("thead th", table).forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.title = "Sort by this column";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(table, heading, column));
      heading.append(button);
    });
  }
})();
