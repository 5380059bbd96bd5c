"use strict";
// The page's interactive part: curves and runs, both behind the same filters.
const data = JSON.parse(document.getElementById("data").textContent);
const AT_ONCE = 12; // charts; more on request
const CROWD = 12; // agents in one task, above which variants wait to be asked for
const DASHES = { "-": "solid", "--": "dash", "-.": "dashdot", ":": "dot" };
const ALL = "(all)";
const NARROW = matchMedia("(max-width: 700px)"); // no room for a toolbar beside a title
const byId = (id) => document.getElementById(id);
const hidden = new Set();
let shownCharts = AT_ONCE;

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function options(select, values) {
  const before = select.value;
  select.replaceChildren(...values.map((value) => element("option", { value }, value)));
  select.value = values.includes(before) ? before : values[0];
}

const unique = (values) => [...new Set(values)];
const families = unique(data.groups.map((group) => group.family));

function chosenGroups(visible = (agent) => !hidden.has(agent)) {
  const family = byId("family").value, task = byId("task").value;
  return data.groups.filter((group) => (family === ALL || group.family === family)
    && (task === ALL || group.task === task) && visible(group.agent));
}

function fillTasks() {
  const family = byId("family").value;
  const here = data.groups.filter((group) => family === ALL || group.family === family);
  options(byId("task"), [ALL, ...unique(here.map((group) => group.task))]);
  byId("task").value = ALL;
  fillMetrics();
}

function fillMetrics() {
  const family = byId("family").value, task = byId("task").value;
  const here = data.groups.filter((group) => (family === ALL || group.family === family)
    && (task === ALL || group.task === task));
  options(byId("metric"), data.metrics.filter((name) => here.some((group) => name in group.curves)));
}

// Names as Plotly shows them: it would read tags and templates in them.
const plain = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("%{", "%\u200b{");

function rgba(color, alpha) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

function traces(group, metric, withSeeds) {
  const style = data.agents[group.agent], curve = group.curves[metric];
  const line = { color: style.color, dash: DASHES[style.dash], width: 2 };
  const lines = [];
  const mean = curve.mean, error = curve.error, x = curve.x.slice(0, mean.length);
  if (mean.length) {
    const upper = mean.map((value, i) => value + error[i]), lower = mean.map((value, i) => value - error[i]);
    lines.push({ x: [...x, ...x.slice().reverse()], y: [...upper, ...lower.reverse()], fill: "toself",
      fillcolor: rgba(style.color, 0.16), line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false });
    const mode = mean.length === 1 ? "markers" : "lines"; // one point is no line
    lines.push({ x, y: mean, mode, line, marker: { color: style.color }, name: plain(group.agent), customdata: error,
      hovertemplate: `${plain(group.agent)}: %{y:.4g} ± %{customdata:.2g} (${curve.seeds.length} seeds)<extra></extra>` });
  }
  if (withSeeds) curve.seeds.forEach((values, i) => lines.push({ x: curve.x, y: values, mode: "lines",
    line: { ...line, width: 0.8 }, opacity: 0.6, name: plain(group.agent),
    hovertemplate: `${plain(group.agent)}, seed ${group.seed_numbers[i]}: %{y:.4g}<extra></extra>` }));
  return lines;
}

function drawCharts() {
  const metric = byId("metric").value, groups = chosenGroups().filter((group) => metric in group.curves);
  const tasks = unique(groups.map((group) => group.task));
  const place = byId("charts");
  place.querySelectorAll(".chart").forEach((old) => Plotly.purge(old));
  place.replaceChildren();
  if (!tasks.length) place.append(element("p", { class: "empty" }, "Nothing to show: all agents are hidden, or none has this number here."));
  for (const task of tasks.slice(0, shownCharts)) {
    const chart = element("div", { class: tasks.length === 1 ? "chart single" : "chart", "data-task": task });
    place.append(chart);
    const lines = groups.filter((group) => group.task === task)
      .flatMap((group) => traces(group, metric, byId("seeds").checked));
    Plotly.newPlot(chart, lines, {
      title: { text: plain(task), font: { size: 14 }, x: 0.02, xanchor: "left" }, showlegend: false,
      margin: { l: 62, r: 22, t: 34, b: 42 }, hovermode: "closest", font: { family: "inherit", size: 12 },
      xaxis: { title: { text: "environment steps" }, rangemode: "tozero", gridcolor: "#eceff3" },
      yaxis: { title: { text: plain(metric) }, type: byId("logarithmic").checked ? "log" : "linear", gridcolor: "#eceff3", zeroline: false },
    }, { responsive: true, displaylogo: false, displayModeBar: NARROW.matches ? false : "hover", modeBarButtonsToRemove: ["select2d", "lasso2d"] });
  }
  const more = byId("more-charts");
  more.replaceChildren();
  if (tasks.length > shownCharts) {
    const button = element("button", { type: "button" }, `Show ${tasks.length - shownCharts} more tasks`);
    button.addEventListener("click", () => { shownCharts = Infinity; drawCharts(); });
    more.append(button);
  }
}

// Runs
const COLUMNS = [["run", "name"], ["task", "task"], ["agent", "agent"], ["seed", "seed"], ["status", "status"],
  ["steps", "step"], ["last return", "last"], ["best return", "best"], ["hours", "hours"], ["version", "version"], ["began", "began"]];
let order = { column: "name", up: true };
const cellText = (value) => value === null || value === undefined ? ""
  : typeof value === "number" ? (Number.isInteger(value) ? value.toLocaleString("en") : String(+value.toPrecision(4))) : String(value);
const settings = (values) => Object.entries(values).map(([name, value]) =>
  element("div", {}, element("b", {}, `${name}: `), typeof value === "string" ? value || "“”" : JSON.stringify(value)));

function chosenRuns(groups) {
  const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const runs = groups.flatMap((group) => group.runs.map((i) => data.runs[i]));
  return runs.filter((run) => {
    run.text ??= JSON.stringify(run).toLowerCase();
    return words.every((word) => run.text.includes(word));
  });
}

function compare(a, b) {
  const [x, y] = [a[order.column], b[order.column]];
  const sign = typeof x === "number" && typeof y === "number" ? x - y : cellText(x).localeCompare(cellText(y));
  return order.up ? sign : -sign;
}

function drawRuns() {
  const runs = chosenRuns(chosenGroups()).sort(compare), body = byId("run-table").tBodies[0];
  const unseen = chosenRuns(chosenGroups((agent) => hidden.has(agent))).length;
  byId("found").textContent = `${runs.length} of ${data.runs.length} runs` + (unseen ? `; ${unseen} more of hidden agents` : "");
  body.replaceChildren(...runs.map((run) => {
    const row = element("tr", { class: "run", tabindex: "0" }, ...COLUMNS.map(([, key]) =>
      element("td", typeof run[key] === "number" ? { class: "number" } : {}, cellText(run[key]))));
    row.run = run;
    return row;
  }));
}

function toggle(row) {
  if (row.nextSibling?.classList.contains("open")) { row.nextSibling.remove(); return; }
  const { experiment, provenance } = row.run;
  const box = element("div", { class: "settings" }, element("h3", {}, "Configuration"), ...settings(experiment),
    element("h3", {}, "Provenance"), ...(Object.keys(provenance).length ? settings(provenance) : [element("div", {}, "not recorded")]));
  row.after(element("tr", { class: "open" }, element("td", { colspan: COLUMNS.length }, box)));
}

function drawAll() { fitAgents(); drawCharts(); drawRuns(); }

function fitAgents() { // only those that the chosen tasks have
  const family = byId("family").value, task = byId("task").value;
  const here = new Set(data.groups.filter((group) => (family === ALL || group.family === family)
    && (task === ALL || group.task === task)).map((group) => group.agent));
  byId("agents").querySelectorAll("button[data-agent]").forEach((button) => { button.hidden = !here.has(button.dataset.agent); });
}

function hideCrowds() {
  const sizes = new Map();
  for (const group of data.groups) sizes.set(group.task, (sizes.get(group.task) ?? 0) + 1);
  if (Math.max(...sizes.values()) <= CROWD) return;
  for (const [agent, style] of Object.entries(data.agents)) if (style.variant) hidden.add(agent);
}

function start() {
  hideCrowds();
  options(byId("family"), families.length > 1 ? [...families, ALL] : families);
  fillTasks();
  byId("family").addEventListener("change", () => { shownCharts = AT_ONCE; fillTasks(); drawAll(); });
  byId("task").addEventListener("change", () => { fillMetrics(); drawAll(); });
  for (const id of ["metric", "seeds", "logarithmic"]) byId(id).addEventListener("change", drawCharts);
  for (const [agent, style] of Object.entries(data.agents)) {
    const button = element("button", { type: "button", "aria-pressed": String(!hidden.has(agent)) });
    const dash = { "--": "5 3", "-.": "6 2 1 2", ":": "1.5 3" }[style.dash] ?? "none";
    button.innerHTML = `<svg viewBox="0 0 22 8"><line x1="0" y1="4" x2="22" y2="4" stroke="${style.color}" stroke-width="3" stroke-dasharray="${dash}"/></svg>`;
    button.append(agent);
    button.dataset.agent = agent;
    button.addEventListener("click", (event) => {
      if (event.detail > 1) return; // the second click of two
      hidden.has(agent) ? hidden.delete(agent) : hidden.add(agent);
      showAgents();
    });
    button.addEventListener("dblclick", () => {
      for (const other of Object.keys(data.agents)) other === agent ? hidden.delete(other) : hidden.add(other);
      showAgents();
    });
    byId("agents").append(button);
  }
  const all = element("button", { type: "button", id: "all-agents" }, "all");
  all.addEventListener("click", () => { hidden.clear(); showAgents(); });
  byId("agents").append(all);
  const head = byId("run-table").tHead.rows[0];
  for (const [title, key] of COLUMNS) {
    const cell = element("th", { scope: "col" }, title);
    cell.addEventListener("click", () => { order = { column: key, up: order.column === key ? !order.up : true }; drawRuns(); });
    head.append(cell);
  }
  byId("find").addEventListener("input", drawRuns);
  const body = byId("run-table").tBodies[0];
  body.addEventListener("click", (event) => { const row = event.target.closest("tr.run"); if (row) toggle(row); });
  body.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches("tr.run")) toggle(event.target); });
  drawAll();
  document.body.dataset.ready = "yes";
}

function showAgents() {
  byId("agents").querySelectorAll("button[data-agent]").forEach((button) =>
    button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.agent))));
  drawAll();
}

start();
