"use strict";
const facts = JSON.parse(document.getElementById("facts").textContent);
const list = document.querySelector("#list tbody");

function element(name, text, title) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (title !== undefined) node.title = title;
  return node;
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return (unit ? bytes.toFixed(1) : bytes) + " " + units[unit];
}

// --- what is inside a table, drawn when it is opened

function histogram(sizes) {
  const grid = element("div"), top = Math.max(1, ...sizes.map(([, count]) => count));
  grid.className = "sizes";
  for (const [band, count] of sizes) {
    const bar = element("i");
    bar.style.width = (100 * count / top) + "%";
    grid.append(element("span", band), bar, element("span", count));
  }
  return grid;
}

function heat(cells) {
  const grid = element("div"), top = Math.max(1, ...cells.map(cell => cell[3]));
  grid.className = "heat";
  grid.setAttribute("role", "img");
  grid.setAttribute("aria-label", "Bytes of each partition; the darker, the more");
  for (const [label, partitions, files, bytes, rows] of cells) {
    const many = partitions > 1 ? partitions + " partitions, " : "";
    const cell = element("i", undefined, `${label}: ${many}${files} files, ${size(bytes)}, ${rows} rows`);
    cell.style.opacity = 0.15 + 0.85 * Math.sqrt(bytes / top);
    grid.append(cell);
  }
  return grid;
}

function inside(about) {
  const box = element("div");
  box.className = "inside";
  for (const finding of about.findings) box.append(element("p", finding));
  box.append(element("h3", "Files by size"), histogram(about.sizes));
  if (about.cells.length) {
    const first = about.cells[0][0], last = about.cells[about.cells.length - 1][0];
    box.append(element("h3", `${about.partitions} partitions, ${first} to ${last}: bytes of each`), heat(about.cells));
  }
  return box;
}

function toggle(button) {
  const open = button.getAttribute("aria-expanded") === "true", row = button.closest("tr");
  button.setAttribute("aria-expanded", String(!open));
  if (open) { row.nextElementSibling.remove(); return; }
  const more = element("tr"), cell = element("td");
  cell.className = "inner";
  cell.colSpan = row.cells.length;
  cell.append(inside(facts[button.dataset.table]));
  more.append(cell);
  row.after(more);
}

function closeAll() {
  for (const button of list.querySelectorAll("[aria-expanded=true]")) toggle(button);
}

// --- sorting and finding

function sort(head) {
  closeAll();
  const index = head.cellIndex, down = head.getAttribute("aria-sort") !== "descending" && index > 0
    || index === 0 && head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = row => row.cells[index].dataset.sort;
  const compare = index === 0 ? (a, b) => key(a).localeCompare(key(b)) : (a, b) => key(a) - key(b);
  const rows = [...list.rows].sort((a, b) => down ? compare(b, a) : compare(a, b));
  list.append(...rows);
}

if (list) {
  list.addEventListener("click", event => {
    const button = event.target.closest("[data-table]");
    if (button) toggle(button);
  });
  document.querySelector("#list thead").addEventListener("click", event => {
    const head = event.target.closest("th");
    if (head) sort(head);
  });
  document.getElementById("all")?.addEventListener("change", event => {
    closeAll();
    list.parentNode.classList.toggle("all", event.target.checked);
  });
  document.getElementById("find").addEventListener("input", event => {
    closeAll();
    const wanted = event.target.value.toLowerCase();
    for (const row of list.rows) row.hidden = !row.cells[0].dataset.sort.toLowerCase().includes(wanted);
  });
}
