// Pieces that several pages share.

const STATES = {
  ok: ["✓", "ok"], break: ["↯", "break"], recompile: ["↻", "recompile"], error: ["✗", "error"],
  same: ["✓", "the same"], differs: ["!", "differs"], hit: ["✓", "hit"], miss: ["✗", "missed"], bypass: ["–", "bypassed"],
  cached: ["▢", "cached"], skipped: ["–", "skipped"], refused: ["✗", "refused"],
};
const PHASE_CLASS = {
  capture: "capture", "graph passes": "passes", lowering: "lowering", build: "build", cache: "cache", other: "other",
};
const PHASE_WORDS = {
  capture: "reading your function into a graph, and its guards",
  "graph passes": "ATen graphs, gradients, rewriting",
  lowering: "from graph to kernels: loops, fusion, code",
  build: "the C++ or Triton compiler, loading kernels",
  cache: "looking for earlier results",
  other: "steps that fit nowhere else",
};

function state(name) {
  const [glyph, word] = STATES[name] || ["?", name];
  return h(`span.state.${name}`, null, h("i", { "aria-hidden": "true" }, glyph), word);
}

const FAMILIES = { error: "error", refused: "error", break: "break", skipped: "break", recompile: "recompile" };
const family = (finding) => FAMILIES[finding.mark] || "note";

const GLYPH = { error: "✗", break: "↯", recompile: "↻", note: "!" };

function codeChip(finding) {
  const kind = family(finding);
  return h(`span.code.${kind}`, null, h("span", { "aria-hidden": "true" }, `${GLYPH[kind]} `), finding.code);
}

/** A compile of a rank that this page does not hold (of many alike, one is kept) has no link. */
const compileChip = (slug) => (compileBySlug.has(slug) ? h("a.chip", { href: link.compile(slug) }, bracket(slug))
  : h("span.chip.away", { title: "of a rank that did as another one, whose compiles are in this page" }, bracket(slug)));

function chips(slugs, most = 10) {
  const unique = [...new Set(slugs.filter(Boolean))];
  const rest = unique.length - most;
  return [unique.slice(0, most).map(compileChip), rest > 0 && h("span.soft", null, ` and ${rest} more`)];
}

function section(title, note, ...body) {
  return h("section", null, h("div.head", null, h("h2", null, title), note && h("span.soft", null, note)), body);
}

function lead(title, sub, badges) {
  return h("div.lead", null, badges && h("div.badges", null, badges), h("h1", null, title), sub && h("p.soft", null, sub));
}

function fixes(list) {
  if (!list.length) return h("div.fix.none", null, h("b", null, "fix"), h("span.soft", null, "no edit is known"));
  return list.map((way, n) => {
    const patch = way.kind === "patch" && way.text.split("\n"), lines = way.patch && way.patch.split("\n");
    return h("div.fix", null, h("b", null, n ? "or" : "fix"),
      h("div", null, patch ? patchBlock(patch) : inlineCode(way.text), " ", h(`small.soft.verdict${way.verified === "yes" ? ".checked" : ""}`, null,
        way.safe === "yes" ? "safe" : "review", ", ", way.outcome || way.checked || "unchecked"),
        lines && patchBlock(lines)),
      copyButton(patch || lines ? newLines(patch || lines) : way.text, "this fix"));
  });
}

const newLines = (patch) => patch.filter((row) => row.startsWith("+ ")).map((row) => row.slice(2)).join("\n");
const patchBlock = (rows) => h("pre.patch", null, rows.map((row) => h(row.startsWith("+") ? "ins" : "del", null, `${row}\n`)));

const VALUE = String.raw`(?: (?:=|==) [^\s,;]+)?`;
const CODE_WORD = new RegExp(String.raw`(?!(?:e\.g|i\.e)\b)(?:${[
  String.raw`\b\w+=(?:'[^']*'|"[^"]*"|\w+)`, // name='value'
  String.raw`[\w.]+\((?:[^()]|\([^()]*\))*\)(?: = \S+)?`, // a call
  String.raw`\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?:\[\d+\])?${VALUE}`, // a.b, x.shape[0] = 4
  String.raw`\b\w+\[[^\]]+\]${VALUE}`, // x[mask]
  String.raw`\b\w*_\w+\b(?:=\S+)?`, // some_name
  "`[^`]+`",
].join("|")})`, "g");

/** Set the parts of a sentence that are code in the code font. */
function inlineCode(text) {
  const out = [];
  let at = 0;
  for (const match of text.matchAll(CODE_WORD)) {
    out.push(text.slice(at, match.index), h("code.inline", null, match[0].replace(/^`|`$/g, "")));
    at = match.index + match[0].length;
  }
  return [...out, text.slice(at)];
}

function findingCard(finding) {
  const kind = family(finding);
  return h(`article.card.${kind}`, { "data-id": finding.id },
    h("header", null, codeChip(finding),
      h("h3", null, h("a.row", { href: link.finding(finding.id) }, titleOf(finding))),
      h("span.push", null, `${finding.count}×`, finding.seconds > 0 && ` · ${duration(finding.seconds)}`,
        finding.seconds_between > 0 && ` · ${duration(finding.seconds_between)} running`,
        finding.calls_in_python !== null && ` · ${count(finding.calls_in_python, "call")} in Python`)),
    h("div.where", null, finding.place && h("span.mono", null, finding.place),
      finding.where.source && [" · ", h("code", null, finding.where.source.trim())]),
    h("p.why", null, whyOf(finding)),
    fixes(finding.fixes.slice(0, 1)),
    savesLine(finding));
}

/** `a, b: 7 → 1` → a, b: what a step of a forecast fixes. */
const fixedIn = (step) => /^(.*): /.exec(step)[1].split(", ");

/** What is saved by the step that is about a finding; what comes before it counts as done. */
function savesLine(finding) {
  if (!finding.forecast.length) return null;
  const number = Math.max(finding.forecast.findIndex((step) => fixedIn(step).includes(finding.reason)), 0);
  return h("p.soft.saves", null, "predicted: ", number > 0 && "then ", "without ", forecastWords(finding.forecast[number]));
}

/** `self.step: 7 → 1` → self.step 7 → 1 recompiles, the names set as code. */
function forecastWords(text) {
  const [, sources, change] = /^(.*): (.*)$/.exec(text);
  return [sources.split(", ").map((one, n) => [n > 0 && ", ", h("code.inline", null, one)]), " ", change.replace(/^\d+ → \d+/, "$& recompiles")];
}

/** A sentence begins with a capital, unless it begins with a name from the program. */
function sentence(text, names = []) {
  if (!text) return "";
  const first = text.split(/[\s,:]/, 1)[0];
  const plain = /^[a-z]+'?[a-z]*$/.test(first) && !names.includes(first);
  return (plain ? text.charAt(0).toUpperCase() + text.slice(1) : text) + (/[.!?]$/.test(text) ? "" : ".");
}

const namesIn = (finding) => [finding.where.function, ...finding.causes.map((one) => one.source)];
const titleOf = (finding) => sentence(finding.title, namesIn(finding)).replace(/\.$/, "");
const whyOf = (finding) => inlineCode(sentence(finding.why, namesIn(finding)));

function splitBar(rows, small) {
  const total = rows.reduce((sum, row) => sum + row[1], 0);
  const shares = rows.map(([name, part]) => `${name} ${percent(part, total)}`).join(", ");
  const about = { role: "img", "aria-label": shares || "no time recorded", title: small ? shares : null };
  return h(`div.split${small ? ".small" : ""}`, about, rows.map(([name, part]) => h(`span.${phaseClass(name)}`, {
    grow: (100 * part) / (total || 1),
    title: `${name}: ${duration(part)} (${percent(part, total)})`,
  })));
}

const phaseClass = (name) => PHASE_CLASS[name] || "other";

function legend(rows) {
  const total = rows.reduce((sum, row) => sum + row[1], 0);
  return h("ul.legend", null, rows.map(([name, part]) => h("li", { title: PHASE_WORDS[name] },
    h(`span.dot.${phaseClass(name)}`), h("b", null, name),
    h("span.soft", null, `${duration(part)} · ${percent(part, total)}`))));
}

function table(columns, rows, options = {}) {
  const head = columns.map((one) => (Array.isArray(one) ? h(`th.${one[1]}`, { scope: "col" }, one[0])
    : one ? h("th", { scope: "col" }, one) : h("td")));
  return sideways(options.wide, h(`table${options.class || ""}`, null,
    h("thead", null, h("tr", null, head)), h("tbody", null, rows)));
}

const widths = new ResizeObserver((changed) => {
  for (const { target } of changed) (target.closest(".scroll") || target).dispatchEvent(new Event("scroll"));
});

/** A table in a frame. Where it is wider than the page it scrolls, says so, and takes the focus, for the arrow keys. */
function sideways(name, table) {
  const beyond = h("p.beyond", { hidden: true });
  const box = h("div.scroll", null, table);
  const frame = h("div.frame", null, box, beyond);
  const look = () => {
    const from = box.scrollLeft, to = from + box.clientWidth, wider = box.scrollWidth > box.clientWidth + 1;
    const columns = wider ? [...table.querySelectorAll("thead th, thead td")] : [];
    const left = columns.filter((one) => one.offsetLeft < from - 1).length;
    const right = columns.filter((one) => one.offsetLeft + one.offsetWidth > to + 1).length;
    frame.classList.toggle("more-left", left > 0);
    frame.classList.toggle("more-right", right > 0);
    beyond.hidden = !wider;
    beyond.textContent = [left && `← ${count(left, "column")}`, right && `${count(right, "column")} →`].filter(Boolean).join(" · ");
    const about = { tabindex: "0", role: name ? "region" : "group", "aria-label": name || "Table, wider than the page" };
    for (const [key, value] of Object.entries(about)) wider || box.scrollHeight > box.clientHeight + 1 ? box.setAttribute(key, value) : box.removeAttribute(key);
  };
  box.addEventListener("scroll", look, { passive: true });
  widths.observe(box);
  widths.observe(table);
  return frame;
}

function sourceLine(where) {
  if (!where.source) return null;
  const text = where.source.replace(/\s+$/, "");
  const shift = text.length - text.trimStart().length;
  const from = where.col, to = where.end_col;
  const marked = from !== null && to !== null && from < to && to <= text.length;
  return h("div.source", null, h("code", null, h("span.no", { "aria-hidden": "true" }, where.line || ""),
    marked ? [text.slice(0, from), h("mark", null, text.slice(from, to)), text.slice(to)] : [text.slice(0, shift), text.slice(shift)]));
}

/** One row an input: the values it took, in order. */
function valuesTable(causes) {
  const bySource = new Map();
  for (const { source, old, new: now } of causes) {
    const seen = bySource.get(source) || [];
    for (const value of [old, now]) if (value && seen[seen.length - 1] !== value) seen.push(value);
    bySource.set(source, seen);
  }
  const chain = (seen) => [
    seen.slice(0, MOST_VALUES).join(" → "),
    seen.length > MOST_VALUES && ` … ${seen.length - MOST_VALUES} more`,
  ];
  return table(["input", "values, in order"], [...bySource].map(([source, seen]) =>
    h("tr", null, h("td.mono", null, source), h("td", null, h("span.plain.mono", null, chain(seen))))));
}

const MOST_VALUES = 12;

function causesTable(causes) {
  return table(["input", "was", "is now", ""], causes.map(([source, was, now, dynamic]) =>
    h("tr", null, h("td.mono", null, source), h("td.mono", null, was || "?"), h("td.mono", null, now || "?"),
      h("td.soft", null, dynamic ? "made dynamic: other values reuse this compile" : ""))));
}

function siblingLink(list, index, make) {
  return index >= 0 && index < list.length ? make(list[index]) : null;
}

function stackTable(frames) {
  const theirs = /site-packages|lib\/python\d/;
  return table(["where", "function", "line"], frames.map(([file, line, name, code]) =>
    h("tr", { class: theirs.test(file) ? "soft" : "" },
      h("td.mono", { title: file }, place(file, line)), h("td.mono", null, name),
      h("td", null, h("code", null, code)))));
}
