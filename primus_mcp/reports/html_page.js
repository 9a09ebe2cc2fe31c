"use strict";
(() => {
  const PAGE = 200;
  const data = JSON.parse(document.getElementById("trials").textContent);
  const body = document.querySelector("#table tbody");
  const heads = [...document.querySelectorAll("#table th")];
  const filter = document.getElementById("filter");
  const more = document.getElementById("more");
  const count = document.getElementById("count");
  let sorted = 0, down = false, shown = PAGE, rows = data.rows;

  const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const text = (cell) => (cell === null ? "" : typeof cell === "number" ? number.format(cell) : String(cell));
  const words = new Map();
  const wordsOf = (row) => {
    if (!words.has(row)) words.set(row, row.map(text).join("\n").toLowerCase());
    return words.get(row);
  };
  const order = (a, b) => {
    const x = a[sorted], y = b[sorted];
    if (x === null || y === null) return (x === null) - (y === null);
    const by = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return down ? -by : by;
  };
  const draw = () => {
    const part = document.createDocumentFragment();
    for (const row of rows.slice(0, shown)) {
      const line = document.createElement("tr");
      line.className = row[0] === data.best ? "best" : row[data.rate] === null ? "no" : "";
      for (const cell of row) {
        const box = document.createElement("td");
        if (typeof cell === "number") box.className = "n";
        box.textContent = text(cell);
        line.append(box);
      }
      part.append(line);
    }
    body.replaceChildren(part);
    more.hidden = shown >= rows.length;
    const all = data.rows.length, some = Math.min(shown, rows.length);
    count.textContent = rows.length === all ? `${some} of ${all} trials` : `${some} of ${rows.length} that match, ${all} trials in all`;
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== sorted ? "none" : down ? "descending" : "ascending"));
  };
  const refresh = () => {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows = data.rows.filter((row) => wanted.every((word) => wordsOf(row).includes(word))).sort(order);
    draw();
  };
  heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
    down = i === sorted ? !down : i === data.rate;
    sorted = i;
    refresh();
  }));
  filter.addEventListener("input", () => { shown = PAGE; refresh(); });
  more.addEventListener("click", () => { shown += 1000; draw(); });
  window.addEventListener("beforeprint", () => { shown = rows.length; draw(); });
  document.querySelectorAll("button.copy").forEach((button) => button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.from);
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(source);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  }));
  refresh();
})();
