"use strict";
// The table of questions: search, filter, sort, keys, and the candidates of a question on demand.
// Texts enter the page through textContent alone.
(() => {
  const table = document.getElementById("per-question");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const search = document.getElementById("search");
  const filter = document.getElementById("filter");
  const count = document.getElementById("count");
  const systems = JSON.parse(document.getElementById("labels").textContent);
  const CHUNK = 40; // questions of a packed element, as in runs.py
  const chunks = new Map();
  let open = null; // {row, panel}

  const make = (tag, text, kind) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };

  // Which rows are shown.
  const wanted = (row) => {
    const last = row.cells[row.cells.length - 1].classList;
    const sign = last.contains("up") ? "better" : last.contains("down") ? "worse" : "same";
    const rest = row.hasAttribute("data-rest");
    return ["", rest ? "rest" : "counted", rest ? "rest" : sign].includes(filter.value);
  };
  const update = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    close(false);
    for (const row of rows) {
      const text = row.cells[0].textContent.toLowerCase();
      row.hidden = !(wanted(row) && words.every((word) => text.includes(word)));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length} questions`;
  };

  // Sorting by a column: numbers first downwards, texts first upwards.
  const number = (cell) => {
    const value = parseFloat(cell.textContent.replace("−", "-"));
    return Number.isNaN(value) ? -Infinity : value;
  };
  const sort = (header) => {
    const column = header.cellIndex;
    const text = column === 0;
    const before = header.getAttribute("aria-sort");
    const order = before === "none" ? (text ? "ascending" : "descending")
      : before === "ascending" ? "descending" : "ascending";
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    close(false);
    rows.sort((a, b) => sign * (text
      ? a.cells[0].textContent.localeCompare(b.cells[0].textContent)
      : number(a.cells[column]) - number(b.cells[column])));
    body.append(...rows);
  };

  // The candidates of a question: unpacked when they are first asked for.
  const unpack = async (chunk) => {
    const packed = atob(document.getElementById(`chunk-${chunk}`).textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };
  const candidates = async (question) => {
    const chunk = Math.floor(question / CHUNK);
    if (!chunks.has(chunk)) chunks.set(chunk, unpack(chunk));
    return (await chunks.get(chunk))[question % CHUNK];
  };

  const first = (rank) => parseInt(String(rank), 10);
  const entry = (found, system, at) => {
    const [id, text, label] = found.c[at];
    const item = make("li", undefined, label === 1 ? "right" : "");
    item.dataset.c = String(at);
    const ranks = found.s[system].r.map((seed) => seed[at]);
    const rank = make("b", String(ranks[0]));
    rank.title = ranks.length > 1 ? `rank by seed: ${ranks.join(", ")}` : "rank";
    const score = found.s[system].v[at]; // a text where it is infinite
    item.append(rank, make("span", score.toFixed ? score.toFixed(4) : score, "score"));
    const words = make("div");
    const sentence = make("span", text);
    sentence.dir = "auto";
    words.append(sentence);
    const said = label === 1 ? "right" : label === 0 ? "wrong" : "not judged";
    const others = found.s.flatMap((other, n) =>
      other && n !== system ? [`${other.r[0][at] ?? "not listed"} by ${systems[n]}`] : []);
    words.append(make("em", [said, id, ...others].join(" · "), label === 1 ? "yes" : ""));
    item.append(words);
    return item;
  };
  const list = (found, system) => {
    const part = make("div");
    part.append(make("h4", systems[system]));
    if (!found.s[system]) {
      part.append(make("p", "No ranking of this question was written.", "note"));
      return part;
    }
    const ranks = found.s[system].r[0];
    const order = found.c.map((_, at) => at).filter((at) => ranks[at] !== null);
    order.sort((a, b) => first(ranks[a]) - first(ranks[b]));
    const items = make("ol");
    items.append(...order.map((at) => entry(found, system, at)));
    part.append(items);
    return part;
  };
  const mark = (panel) => (event) => {
    const item = event.target.closest("li");
    for (const other of panel.querySelectorAll("li")) {
      other.classList.toggle("same", item !== null && other.dataset.c === item.dataset.c);
    }
  };

  const close = (focus) => {
    if (!open) return;
    const button = open.row.querySelector("button");
    open.panel.remove();
    button.setAttribute("aria-expanded", "false");
    if (focus) button.focus();
    open = null;
  };
  const show = async (row) => {
    const again = open && open.row === row;
    close(false);
    if (again) return;
    const button = row.querySelector("button");
    const panel = make("tr", undefined, "panel");
    const cell = make("td");
    cell.colSpan = row.cells.length;
    const lists = make("div", undefined, "lists");
    lists.setAttribute("role", "region");
    lists.setAttribute("aria-label", "Candidates");
    cell.append(lists);
    panel.append(cell);
    row.after(panel);
    open = { row, panel };
    button.setAttribute("aria-expanded", "true");
    try {
      const found = await candidates(Number(row.dataset.q));
      lists.append(...systems.map((_, system) => list(found, system)));
    } catch (error) {
      lists.append(make("p", `The candidates cannot be unpacked here: ${error}`, "note"));
    }
    panel.addEventListener("mouseover", mark(panel));
  };

  // Keys: arrows move between the questions that are shown, Escape closes, / searches.
  const move = (button, step) => {
    const shown = rows.filter((row) => !row.hidden && row.querySelector("button"));
    const at = shown.indexOf(button.closest("tr")) + step;
    if (shown[at]) shown[at].querySelector("button").focus();
  };
  body.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) show(button.closest("tr"));
  });
  table.tHead.addEventListener("click", (event) => {
    const header = event.target.closest("th");
    if (header) sort(header);
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest && event.target.closest("input, select");
    const button = event.target.closest && event.target.closest("#per-question tbody button");
    if (event.key === "Escape") close(true);
    else if (event.key === "/" && !typing) { event.preventDefault(); search.focus(); }
    else if (button && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      move(button, event.key === "ArrowDown" ? 1 : -1);
    }
  });
  search.addEventListener("input", update);
  filter.addEventListener("change", update);
  update();
})();
