"use strict";
// The page's interactive part: curves, agents compared and runs, all behind the same filters.
const data = JSON.parse(document.getElementById("data").textContent);
const AT_ONCE = 12; // charts; more on request
const FLAT = 3; // how many times its later span a curve may have before it is cut
const CROWD = 12; // agents in one task, above which variants wait to be asked for
const DASHES = { "-": "solid", "--": "dash", "-.": "dashdot", ":": "dot" };
const ALL = "(all)";
const TRAINING = "training"; // a kind of numbers
const RETURN = "return", TRAINING_RETURN = "training return";
const DARK = matchMedia("(prefers-color-scheme: dark)");
const KEPT = ["family", "task", "metric", "training", "seeds", "logarithmic"]; // where a reload goes on
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
  const family = byId("family").value, task = byId("task").value, select = byId("metric"), before = select.value;
  const here = data.groups.filter((group) => (family === ALL || group.family === family)
    && (task === ALL || group.task === task));
  select.replaceChildren();
  for (const [kind, names] of Object.entries(data.metrics)) {
    const there = names.filter((name) => here.some((group) => name in group.curves[kind]));
    if (there.length) select.append(element("optgroup", { label: kind }, ...there.map((value) => element("option", { value }, value))));
  }
  select.value = before;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}

const curveOf = (group, metric) => Object.values(group.curves).find((curves) => metric in curves)?.[metric];

// Colors of the page as it is shown, light or dark.
function colors() {
  const style = getComputedStyle(document.documentElement);
  return { ink: style.getPropertyValue("--ink").trim(), line: style.getPropertyValue("--line").trim() };
}

// Black is the Oracle's color, and no color on a dark page.
const colorOf = (agent) => DARK.matches && data.agents[agent].color === "#000000" ? "#ffffff" : data.agents[agent].color;

const axisColors = (look) => ({ gridcolor: look.line, linecolor: look.line, zerolinecolor: look.line });

function layout(look, title, more) {
  return { title: { text: plain(title), font: { size: 14 }, x: 0.02, xanchor: "left" }, showlegend: false, hovermode: "closest",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: look.line, activecolor: look.ink },
    font: { family: "inherit", size: 12, color: look.ink }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", ...more };
}

const config = () => ({ responsive: true, displaylogo: false, displayModeBar: NARROW.matches ? false : "hover", modeBarButtonsToRemove: ["select2d", "lasso2d"] });

function clear(place) {
  place.querySelectorAll(".js-plotly-plot").forEach((old) => Plotly.purge(old));
  place.replaceChildren();
}

// Names as Plotly shows them: it would read tags and templates in them.
const plain = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("%{", "%\u200b{");

function rgba(color, alpha) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

function traces(group, metric, withSeeds) {
  const style = { ...data.agents[group.agent], color: colorOf(group.agent) }, curve = curveOf(group, metric);
  const line = { color: style.color, dash: DASHES[style.dash], width: 2 };
  const lines = [];
  const explored = metric === RETURN && byId("training").checked && group.curves[TRAINING][TRAINING_RETURN];
  if (explored) lines.push({ x: explored.x.slice(0, explored.mean.length), y: explored.mean, mode: explored.mean.length === 1 ? "markers" : "lines",
    line: { color: style.color, dash: "dot", width: 1 }, marker: { color: style.color, symbol: "circle-open" }, opacity: 0.8, connectgaps: true,
    hovertemplate: `${plain(group.agent)}, training: %{y:.4g}<extra></extra>` });
  if (!curve) return lines;
  const mean = curve.mean, error = curve.error, x = curve.x.slice(0, mean.length);
  if (mean.length) {
    const upper = mean.map((value, i) => value + error[i]), lower = mean.map((value, i) => value - error[i]);
    lines.push({ x: [...x, ...x.slice().reverse()], y: [...upper, ...lower.reverse()], fill: "toself",
      fillcolor: rgba(style.color, 0.16), line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false });
    const mode = mean.length === 1 ? "markers" : "lines"; // one point is no line
    lines.push({ x, y: mean, mode, line, marker: { color: style.color, size: 9 }, connectgaps: true, name: plain(group.agent), customdata: error,
      hovertemplate: `${plain(group.agent)}: %{y:.4g} ± %{customdata:.2g} (${curve.seeds.length} seeds)<extra></extra>` });
  }
  if (withSeeds) curve.seeds.forEach((values, i) => lines.push({ x: curve.x, y: values, mode: values.length === 1 ? "markers" : "lines",
    connectgaps: true, line: { ...line, width: 0.8 }, marker: { color: style.color, size: 5 }, opacity: 0.6, name: plain(group.agent),
    hovertemplate: `${plain(group.agent)}, seed ${group.seed_numbers[i]}: %{y:.4g}<extra></extra>` }));
  return lines;
}

// The part of the return axis that is worth looking at: all of it, unless the first tenth of the steps would flatten the rest.
function frame(lines) {
  const points = lines.filter((line) => line.hoverinfo !== "skip")
    .flatMap((line) => line.y.map((y, i) => [line.x[i], y])).filter(([, y]) => Number.isFinite(y));
  const end = Math.max(...points.map(([x]) => x));
  const span = (values) => [Math.min(...values), Math.max(...values)];
  const all = span(points.map(([, y]) => y)), [low, high] = span(points.filter(([x]) => x > end / 10).map(([, y]) => y));
  const margin = 0.06 * (high - low);
  return all[1] - all[0] > FLAT * (high - low) && margin > 0 ? [low - margin, high + margin] : undefined;
}

function drawCharts() {
  const metric = byId("metric").value, look = colors();
  const groups = chosenGroups().filter((group) => curveOf(group, metric) || (metric === RETURN && TRAINING_RETURN in group.curves[TRAINING]));
  const tasks = unique(groups.map((group) => group.task));
  const place = byId("charts");
  clear(place);
  if (!tasks.length) place.append(element("p", { class: "empty" }, "Nothing to show: all agents are hidden, or none has this number here."));
  for (const task of tasks.slice(0, shownCharts)) {
    const chart = element("div", { class: tasks.length === 1 ? "chart single" : "chart", "data-task": task });
    place.append(chart);
    const lines = groups.filter((group) => group.task === task)
      .flatMap((group) => traces(group, metric, byId("seeds").checked));
    Plotly.newPlot(chart, lines, layout(look, task, {
      margin: { l: 62, r: 22, t: 34, b: 42 },
      xaxis: { title: { text: "environment steps" }, rangemode: "tozero", ...axisColors(look) },
      yaxis: { title: { text: plain(metric) }, type: byId("logarithmic").checked ? "log" : "linear", zeroline: false,
        range: byId("logarithmic").checked ? undefined : frame(lines), ...axisColors(look) },
    }), config());
  }
  const more = byId("more-charts");
  more.replaceChildren();
  if (tasks.length > shownCharts) {
    const button = element("button", { type: "button" }, `Show ${tasks.length - shownCharts} more tasks`);
    button.addEventListener("click", () => { shownCharts = Infinity; drawAll(); });
    more.append(button);
  }
}

// Agents compared
function drawComparisons() {
  const groups = chosenGroups().filter((group) => group.last), place = byId("comparisons"), look = colors();
  const tasks = unique(groups.map((group) => group.task));
  clear(place);
  if (!tasks.length) place.append(element("p", { class: "empty" }, "Nothing to show: all agents are hidden, or none was evaluated here."));
  for (const task of tasks.slice(0, shownCharts)) {
    const here = groups.filter((group) => group.task === task).reverse(); // the first one on top
    const chart = element("div", { class: "comparison", "data-task": task, style: `height: ${90 + 34 * here.length}px` });
    place.append(chart);
    const points = here.flatMap((group) => {
      const color = colorOf(group.agent), name = plain(group.agent), { seeds, mean, low, high } = group.last;
      const interval = low === null ? `${name}: %{x:.4g} (1 seed)` : `${name}: %{x:.4g} [${low}, ${high}] (${seeds.length} seeds)`;
      return [{ x: seeds, y: seeds.map(() => name), mode: "markers", marker: { color, size: 5, opacity: 0.5 }, hoverinfo: "skip" },
        { x: [mean], y: [name], mode: "markers", marker: { color, size: 11 }, hovertemplate: `${interval}<extra></extra>`,
          error_x: low === null ? undefined : { type: "data", symmetric: false, array: [high - mean], arrayminus: [mean - low], color, thickness: 2 } }];
    });
    Plotly.newPlot(chart, points, layout(look, task, {
      margin: { l: 10, r: 22, t: 34, b: 42 },
      xaxis: { title: { text: "last return" }, zeroline: false, automargin: true, ...axisColors(look) },
      yaxis: { automargin: true, type: "category", range: [-0.6, here.length - 0.4], ...axisColors(look) },
    }), config());
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

function drawAll() { fitAgents(); drawCharts(); drawComparisons(); drawRuns(); keep(); }

function fitAgents() { // only those that the chosen tasks have
  const family = byId("family").value, task = byId("task").value;
  const here = new Set(data.groups.filter((group) => (family === ALL || group.family === family)
    && (task === ALL || group.task === task)).map((group) => group.agent));
  byId("agents").querySelectorAll("button[data-agent]").forEach((button) => { button.hidden = !here.has(button.dataset.agent); });
}

// What was chosen stays chosen when the page is loaded again, as far as it is there.
function keep() {
  const chosen = Object.fromEntries(KEPT.map((id) => [id, byId(id).type === "checkbox" ? byId(id).checked : byId(id).value]));
  try { sessionStorage.setItem(location.pathname, JSON.stringify({ ...chosen, hidden: [...hidden] })); } catch { /* not allowed here */ }
}

function restore() {
  let chosen = {};
  try { chosen = JSON.parse(sessionStorage.getItem(location.pathname)) ?? {}; } catch { return; }
  for (const agent of chosen.hidden ?? []) if (agent in data.agents) hidden.add(agent);
  for (const id of KEPT) {
    const field = byId(id), value = chosen[id];
    if (field.type === "checkbox") field.checked = value ?? field.checked;
    else if ([...field.options].some((option) => option.value === value)) field.value = value;
    if (id === "family") fillTasks();
    if (id === "task") fillMetrics();
  }
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
  byId("family").parentElement.hidden = families.length === 1;
  const trained = data.groups.some((group) => TRAINING_RETURN in (group.curves[TRAINING] ?? {}));
  for (const part of [byId("training").parentElement, byId("about-training")]) part.hidden = !trained;
  fillTasks();
  restore();
  byId("family").addEventListener("change", () => { shownCharts = AT_ONCE; fillTasks(); drawAll(); });
  byId("task").addEventListener("change", () => { fillMetrics(); drawAll(); });
  for (const id of ["metric", "training", "seeds", "logarithmic"]) byId(id).addEventListener("change", () => { drawCharts(); keep(); });
  DARK.addEventListener("change", drawAll);
  for (const [agent, style] of Object.entries(data.agents)) {
    const button = element("button", { type: "button", "aria-pressed": String(!hidden.has(agent)) });
    const dash = { "--": "5 3", "-.": "6 2 1 2", ":": "1.5 3" }[style.dash] ?? "none";
    button.innerHTML = `<svg viewBox="0 0 22 8"><line x1="0" y1="4" x2="22" y2="4" stroke="${style.color === "#000000" ? "currentColor" : style.color}" stroke-width="3" stroke-dasharray="${dash}"/></svg>`;
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
