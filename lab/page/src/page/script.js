"use strict";
// The page says everything without this. It adds sorting of tables, hiding of arms, values
// under the pointer, and zooming.

// Sorting: a click on a header sorts by it, a second one the other way round.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 2) continue;
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (head.classList.contains("picture") || !head.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const isNumber = head.classList.contains("number");
      const was = head.getAttribute("aria-sort");
      // Figures are looked at from the largest down.
      const first = isNumber ? "descending" : "ascending";
      const other = isNumber ? "ascending" : "descending";
      const order = was === first ? other : first;
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const key = (row) => {
        const cell = row.cells[column];
        if (!isNumber) return cell.textContent.trim().toLowerCase();
        return cell.dataset.key === undefined ? NaN : Number(cell.dataset.key);
      };
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort(([one], [two]) => {
        // Cells without a figure come last.
        if (isNumber && (isNaN(one) || isNaN(two))) return isNaN(one) - isNaN(two);
        return sign * (one < two ? -1 : one > two ? 1 : 0);
      });
      body.append(...rows.map(([, row]) => row));
    });
  });
}

// Hiding arms: the entries of legends hide an arm in the whole result.
for (const entry of document.querySelectorAll(".legend > li[class^='arm-']")) {
  const arm = entry.className;
  const article = entry.closest("article");
  const button = document.createElement("button");
  button.type = "button";
  button.title = "Show or hide in every picture and table of this result";
  button.setAttribute("aria-pressed", "true");
  button.append(...entry.childNodes);
  entry.append(button);
  button.addEventListener("click", () => {
    const isHidden = article.classList.toggle("hide-" + arm);
    const others = article.querySelectorAll(".legend > li." + arm + " > button");
    others.forEach((other) => other.setAttribute("aria-pressed", String(!isHidden)));
  });
}

// Axes as the page draws them.
const axisOf = (text) => {
  const [low, high, kind] = text.split(" ");
  return { low: Number(low), high: Number(high), isLog: kind === "log" };
};
const valueAt = (axis, share) => axis.isLog
  ? axis.low * Math.pow(axis.high / axis.low, share)
  : axis.low + share * (axis.high - axis.low);
const shown = (value) => {
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size >= 1 || size === 0 ? value.toFixed(2) : value.toPrecision(3);
};
const STEPS = 10000;

// Charts with lines: values under the pointer, and zooming along the horizontal axis.
for (const chart of document.querySelectorAll(".xy")) {
  const area = chart.querySelector(".area");
  const lines = area.querySelector(".lines");
  const labels = chart.querySelector(".x-axis");
  const x = axisOf(chart.dataset.x);
  const y = axisOf(chart.dataset.y);
  const zooms = chart.hasAttribute("data-zoom");
  const all = labels.innerHTML;
  let view = [0, 1];
  const paths = [...lines.querySelectorAll("path")].map((path) => ({
    path, points: path.getAttribute("d").slice(1).split("L").map((pair) => pair.split(",").map(Number)),
  }));
  if (!paths.length) continue;
  const box = document.createElement("div");
  box.className = "hover";
  box.hidden = true;
  chart.append(box);
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("y1", "0");
  cursor.setAttribute("y2", "100%");
  cursor.setAttribute("visibility", "hidden");
  area.append(cursor);

  const show = (next) => {
    view = next;
    lines.setAttribute("viewBox", `${view[0] * STEPS} 0 ${(view[1] - view[0]) * STEPS} ${STEPS}`);
    if (view[0] === 0 && view[1] === 1) {
      labels.innerHTML = all;
    } else {
      const parts = [0, 0.25, 0.5, 0.75, 1];
      labels.replaceChildren(...parts.map((part) => {
        const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
        text.setAttribute("x", `${part * 100}%`);
        text.setAttribute("y", "14");
        text.setAttribute("text-anchor", "middle");
        text.textContent = shown(valueAt(x, view[0] + part * (view[1] - view[0])));
        return text;
      }));
    }
    reset.hidden = view[0] === 0 && view[1] === 1;
  };
  const zoom = (centre, factor) => {
    const length = Math.min(1, Math.max(0.002, (view[1] - view[0]) * factor));
    const from = Math.min(1 - length, Math.max(0, centre - length / 2));
    show(length === 1 ? [0, 1] : [from, from + length]);
  };
  const share = (event) => {
    const place = area.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - place.left) / place.width));
  };
  area.addEventListener("pointermove", (event) => {
    const inside = share(event);
    const at = (view[0] + inside * (view[1] - view[0])) * STEPS;
    cursor.setAttribute("x1", `${inside * 100}%`);
    cursor.setAttribute("x2", `${inside * 100}%`);
    cursor.setAttribute("visibility", "visible");
    const rows = paths.filter(({ path }) => getComputedStyle(path).display !== "none").map(({ path, points }) => {
      const near = points.reduce((best, point) =>
        Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best);
      const value = valueAt(y, 1 - near[1] / STEPS);
      return [near[0], `${path.dataset.name}: ${shown(value)}`];
    });
    if (!rows.length) return;
    box.replaceChildren(...[shown(valueAt(x, rows[0][0] / STEPS)), ...rows.map((row) => row[1])].map((text) => {
      const line = document.createElement("div");
      line.textContent = text;
      return line;
    }));
    box.hidden = false;
    const place = chart.getBoundingClientRect();
    const left = event.clientX - place.left + 14;
    box.style.left = `${Math.min(left, place.width - box.offsetWidth - 4)}px`;
    box.style.top = "12px";
  });
  area.addEventListener("pointerleave", () => {
    box.hidden = true;
    cursor.setAttribute("visibility", "hidden");
  });
  const reset = document.createElement("button");
  reset.type = "button";
  reset.textContent = "Show all";
  reset.hidden = true;
  reset.addEventListener("click", () => show([0, 1]));
  if (!zooms) continue;
  const tools = document.createElement("div");
  tools.className = "tools";
  const hint = document.createElement("span");
  hint.className = "note";
  hint.textContent = "Drag to zoom, double-click for all; with the keyboard + \u2212 \u2190 \u2192. ";
  tools.append(hint, reset);
  chart.before(tools);
  let from = null;
  area.addEventListener("pointerdown", (event) => { from = share(event); });
  area.addEventListener("pointerup", (event) => {
    const to = share(event);
    if (from !== null && Math.abs(to - from) > 0.02) {
      const length = view[1] - view[0];
      const ends = [from, to].sort((one, two) => one - two).map((end) => view[0] + end * length);
      show(ends[1] - ends[0] < 0.002 ? view : ends);
    }
    from = null;
  });
  area.addEventListener("dblclick", () => show([0, 1]));
  chart.addEventListener("keydown", (event) => {
    const centre = (view[0] + view[1]) / 2;
    const step = (view[1] - view[0]) / 4;
    const keys = {
      "+": () => zoom(centre, 0.5), "=": () => zoom(centre, 0.5), "-": () => zoom(centre, 2),
      ArrowLeft: () => zoom(centre - step, 1), ArrowRight: () => zoom(centre + step, 1),
      Escape: () => show([0, 1]),
    };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  });
}

// Flame graphs: a click on a box makes it as wide as the picture.
for (const picture of document.querySelectorAll(".flame svg")) {
  const width = picture.viewBox.baseVal.width;
  const margin = 10;
  const boxes = [...picture.querySelectorAll("g")].map((group) => {
    const rect = group.querySelector("rect");
    const text = group.querySelector("text");
    const [x, w] = [Number(rect.getAttribute("x")), Number(rect.getAttribute("width"))];
    return { group, rect, text, x, w, name: group.querySelector("title").textContent.split("\n")[0] };
  });
  if (!boxes.length) continue;
  const letter = 6.7;
  const focus = (on) => {
    const factor = (width - 2 * margin) / on.w;
    for (const box of boxes) {
      const x = margin + (box.x - on.x) * factor;
      const w = box.w * factor;
      // What is beside it goes; what it is called from stays, cut to the picture.
      const isOut = x + w <= margin + 0.01 || x >= width - margin - 0.01;
      box.group.style.display = isOut ? "none" : "";
      if (isOut) continue;
      const from = Math.max(margin, x);
      const to = Math.min(width - margin, x + w);
      box.rect.setAttribute("x", from);
      box.rect.setAttribute("width", to - from);
      const room = Math.floor((to - from - 6) / letter);
      if (!box.text && room >= 3) {
        box.text = document.createElementNS("http://www.w3.org/2000/svg", "text");
        box.text.setAttribute("y", Number(box.rect.getAttribute("y")) + 12);
        box.group.append(box.text);
      }
      if (!box.text) continue;
      box.text.setAttribute("x", from + 3);
      const last = box.name.split("::").pop();
      const label = box.name.length <= room ? box.name : last.length <= room ? last : last.slice(0, Math.max(0, room - 1)) + "\u2026";
      box.text.textContent = room >= 3 ? label : "";
    }
  };
  // One box can be reached with Tab, the others from it with the arrows.
  const level = (box) => Number(box.rect.getAttribute("y"));
  const seen = (box) => box.group.style.display !== "none";
  const inside = (box, other) => other.x >= box.x - 0.01 && other.x + other.w <= box.x + box.w + 0.01;
  const rowHeight = 17;
  const next = (box, key) => {
    const row = (y) => boxes.filter((other) => seen(other) && Math.abs(level(other) - y) < 1);
    const beside = row(level(box));
    const place = beside.indexOf(box);
    if (key === "ArrowLeft") return beside[place - 1];
    if (key === "ArrowRight") return beside[place + 1];
    if (key === "ArrowUp") return row(level(box) - rowHeight).find((other) => inside(box, other));
    if (key === "ArrowDown") return row(level(box) + rowHeight).find((other) => inside(other, box));
    return undefined;
  };
  boxes.forEach((box, number) => {
    box.group.setAttribute("tabindex", number === 0 ? "0" : "-1");
    box.group.addEventListener("click", () => focus(box));
    box.group.addEventListener("keydown", (event) => {
      const to = next(box, event.key);
      if (event.key === "Enter") focus(box);
      else if (event.key === "Escape") focus(boxes[0]);
      else if (to) to.group.focus();
      else return;
      event.preventDefault();
    });
  });
}
