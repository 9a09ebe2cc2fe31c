"""A real browser lays the page out: contrast as WCAG AA asks, no text over another or cut off, a phone's width, names for every control."""

from __future__ import annotations

import json
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from test_html_report import CHROMIUM, HOSTILE, folder_of, record
from test_report_of_sweeps import document

from primus_mcp.evaluation.result import ResultWarning
from primus_mcp.reports.html import report_html
from primus_mcp.reports.html_source import read_report

PROBE = """<script>
const luminance = (color) => {
  const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = color.match(/[\\d.]+/g).map(Number).map(part);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const contrast = (one, other) => {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const style = (one) => getComputedStyle(one);
addEventListener("load", async () => {
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  const ground = style(document.body).backgroundColor, faint = [], over = [], cut = [];
  let texts = 0;
  for (const svg of document.querySelectorAll("figure svg")) {
    const all = [...svg.querySelectorAll("text")].filter((one) => one.textContent);
    for (const text of all) {
      text.scrollIntoView({ block: "center", inline: "center" });
      const box = text.getBoundingClientRect();
      text.style.visibility = "hidden";
      const below = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
      text.style.visibility = "";
      const filled = below && svg.contains(below) && ["path", "rect", "circle"].includes(below.tagName) && style(below).fill !== "none";
      const ratio = contrast(style(text).fill, filled ? style(below).fill : ground);
      texts += 1;
      if (ratio < 4.5) faint.push([text.textContent, ratio]);
    }
    const frame = svg.getBoundingClientRect(), boxes = all.map((one) => [one.textContent, one.getBoundingClientRect()]);
    boxes.forEach(([name, a], i) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1) cut.push(name);
      boxes.slice(0, i).forEach(([other, b]) => {
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3) over.push([name, other]);
      });
    });
  }
  for (const one of document.querySelectorAll("main *")) {
    if (one.closest("svg, script") || ![...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    let behind = one;
    while (behind && style(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
    const ratio = contrast(style(one).color, behind ? style(behind).backgroundColor : ground);
    texts += 1;
    if (ratio < 4.5) faint.push([one.tagName, one.className, ratio]);
  }
  const controls = [...document.querySelectorAll("button, input, summary, [tabindex]")];
  const name = (one) => one.getAttribute("aria-label") || one.textContent || (one.labels && one.labels[0] && one.labels[0].textContent);
  const size = (one) => one.getBoundingClientRect().height;
  const count = () => document.getElementById("count").textContent, filter = document.getElementById("filter");
  const head = document.querySelectorAll("#table th")[1], rates = () => [...document.querySelectorAll("#table tr td:nth-child(2)")];
  head.querySelector("button").click();
  const fastest = rates()[0].textContent, order = head.getAttribute("aria-sort");
  filter.value = "trial-7 ";
  filter.dispatchEvent(new Event("input"));
  const seen = {
    ground, texts, faint, over, cut, fastest, order, count: count(),
    nameless: controls.filter((one) => !name(one)).map((one) => one.outerHTML),
    small: controls.filter((one) => one.tagName !== "DIV" && size(one) > 0 && size(one) < 24).map(name),
    wide: document.documentElement.scrollWidth - innerWidth,
  };
  (parent === window ? window : parent).postMessage(JSON.stringify(seen), "*");
});
if (parent === window) addEventListener("message", (event) => { document.title = "PROBE" + event.data; });
</script></body>"""
FRAME = """<!doctype html><body><script>addEventListener("message", (event) => { document.title = "PROBE" + event.data; })</script>
<iframe src="probed.html" width="360" height="800"></iframe></body>"""


def look(page: str, folder: Path, *, dark: bool, phone: bool) -> Any:
    """What the browser computes; the page's policy, which admits no probe, is taken out. A window is at least 500 wide, a frame is not."""
    (folder / "probed.html").write_text(re.sub(r"<meta http-equiv=[^>]*>", "", page).replace("</body>", PROBE), encoding="utf-8")
    (folder / "frame.html").write_text(FRAME, encoding="utf-8")
    command = [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900"]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000", "--dump-dom"]
    command += ["--blink-settings=preferredColorScheme=0"] if dark else []
    file = folder / ("frame.html" if phone else "probed.html")
    done = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=180, check=False)
    found = re.search(r"<title>PROBE(.*?)</title>", done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    return json.loads(unescape(found[1]))


def page_of(folder: Path) -> str:
    records = [
        record(0, knobs={}),
        *(record(i, rate=None if i % 5 == 0 else 1000.0 + i, label=f"trial-{i} {HOSTILE}") for i in range(1, 40)),
    ]
    told = [ResultWarning(code="x", text=f"{number} {HOSTILE}") for number in range(9)]
    records = [one.model_copy(update={"result": one.result.model_copy(update={"warnings": told})}) for one in records]
    (folder / "sweep.json").write_text(json.dumps(document(cluster=HOSTILE)), encoding="utf-8")
    (folder / "trials").mkdir()
    (folder / "trials" / "trial_0039.yaml").write_text(HOSTILE * 9, encoding="utf-8")
    return report_html(read_report(folder_of(folder, records, summary={"workload": "w" * 300, "cluster": "c", "memory_cap_gb": 259.0})))


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize(("dark", "phone"), [(False, False), (True, False), (True, True)], ids=["light", "dark", "phone"])
def test_the_page_is_readable_and_usable(dark: bool, phone: bool, tmp_path: Path) -> None:
    seen = look(page_of(tmp_path), tmp_path, dark=dark, phone=phone)
    assert seen["texts"] > 300 and not seen["faint"], seen["faint"]
    assert not seen["over"] and not seen["cut"]
    assert not seen["nameless"] and not seen["small"]
    assert seen["wide"] <= 0
    assert (seen["fastest"], seen["order"]) == ("1,039", "descending")
    assert seen["count"] == "1 of 1 that match, 40 trials in all"
