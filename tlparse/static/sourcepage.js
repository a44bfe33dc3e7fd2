// A source file as the compiler saw it: which lines are in graphs, where they break, what was compiled again.

const LINE_STATES = {
  ok: ["█", "in a graph"], break: ["↯", "graph break"], recompile: ["↻", "compiled again"],
  error: ["✗", "compile failed"], skipped: ["│", "runs in Python"],
  traced: ["·", "worked out while compiling"], never: ["○", "no compile went through it"],
};

function sourcePage(name, wanted) {
  const file = DATA.files.find((one) => one.name === name);
  if (!file) return missingPage(`source ${name}`);
  const index = DATA.files.indexOf(file);
  const rows = [];
  file.lines.forEach((line, n) => {
    if (n && line[0] > file.lines[n - 1][0] + 1) rows.push(h("tr.gap", { "aria-hidden": "true" }, h("td.num", null, "⋮"), h("td", { colspan: 7 })));
    rows.push(sourceRow(line, wanted));
  });
  const columns = [["line", "num"], "", "source", ["ops", "num"], ["kernels", "num"], ["compiling", "num"], "compiles", "found here"];
  const body = table(columns, rows, { class: ".coverage", wide: `Lines of ${file.name}` });
  if (wanted) requestAnimationFrame(() => {
    const row = body.querySelector("tr.wanted");
    if (row) row.scrollIntoView({ block: "center" });
  });
  return {
    title: wanted ? `${file.name}:${wanted}` : file.name,
    crumbs: [[file.name]],
    previous: siblingLink(DATA.files, index - 1, (one) => link.src(one.name)),
    next: siblingLink(DATA.files, index + 1, (one) => link.src(one.name)),
    body: [
      lead(file.name, file.file),
      h("p", null, coverageWords(file)),
      h("ul.legend", null, Object.entries(LINE_STATES).map(([kind, [glyph, words]]) =>
        h("li", null, h(`span.state.${kind}`, null, h("i", { "aria-hidden": "true" }, glyph), words)))),
      section("Lines", file.coded ? "compiling: by the share of the operations that a line became" : "those that the trace quotes", body),
    ],
  };
}

function coverageWords(file) {
  return [
    file.coded ? `${file.graph} of ${count(file.coded, "line")} of code in graphs, ${file.traced} worked out while compiling, ${file.never} never met` : `${count(file.graph, "line")} in graphs`, file.breaks && count(file.breaks, "graph break"),
    file.recompiles && count(file.recompiles, "recompile"), file.eager && `${count(file.eager, "function")} in Python`,
    file.seconds > 0 && `${duration(file.seconds)} of compiling`,
  ].filter(Boolean).join(" · ");
}

function sourceRow([number, text, kind, nodes, kernels, seconds, compiles, findings, starts, shares], wanted) {
  const [glyph, words] = LINE_STATES[kind] || ["", ""];
  const again = findings.filter(([id]) => id.startsWith("TC201")).reduce((sum, [, n]) => sum + n, 0);
  const found = findings.map(([id, n]) => h("a.chip.row", { href: link.finding(id), title: findingById.get(id).title }, `${id.split("-", 1)[0]} ${n}×`));
  const codeOf = (slug) => (compileBySlug.get(slug).code ? link.code(slug) : link.compile(slug));
  return h(`tr${number === wanted ? ".wanted" : ""}`, null,
    h("td.num.soft", null, number),
    h(`td.gutter.${kind || "none"}`, { title: words }, kind && h("span.sr", null, words), h("span", { "aria-hidden": "true" }, glyph),
      again > 0 && kind !== "recompile" && h("span.again", { title: `compiled again ${again}×` }, `↻${again}`), kind === "recompile" && again),
    h("td.text", null, h("code", null, coloured(text, "python")), starts.length > 0 && h("span.soft", null, `${text ? "  " : ""}${starts.join(", ")} begins here: ${duration(seconds)} of compiling`)),
    h("td.num", null, nodes || ""), h("td.num", null, kernels || ""), h("td.num", null, shares.length ? duration(shares.reduce((sum, [, part]) => sum + part, 0)) : ""),
    h("td", null, compiles.map((slug) => h("a.chip", { href: codeOf(slug) }, bracket(slug)))),
    h("td", null, found));
}

function sourcesPage() {
  return { title: "Your source", crumbs: [["source"]], body: [lead("Your source", `${count(DATA.files.length, "file")} that the trace names`), sourcesPart(Infinity)] };
}

/** On the first page: the files, and how much of each runs in graphs. */
function sourcesPart(most = MOST_FILES) {
  if (!DATA.files.length) return null;
  const rows = DATA.files.slice(0, most).map((file) => h("tr", null,
    h("td.mono", null, h("a.row", { href: link.src(file.name), title: file.file }, file.name)),
    h("td.num", null, file.coded ? `${file.graph} of ${file.coded}` : file.graph), h("td.num", null, file.coded ? file.never : "–"), h("td.num", null, file.breaks || "–"), h("td.num", null, file.recompiles || "–"),
    h("td.num", null, file.eager || "–"), h("td.num", null, duration(file.seconds))));
  const columns = ["file", ["lines in graphs", "num"], ["never met", "num"], ["breaks", "num"], ["recompiles", "num"], ["functions in Python", "num"], ["compiling", "num"]];
  return section("Your source", "what became of each line", table(columns, rows), more(DATA.files, most, "#/source", "file"));
}

/** `model.py:6`, leading to the line if its file has a page. */
function sourceLink(file, line, words) {
  const known = DATA.files.find((one) => one.file === file);
  const shown = words || place(file, line);
  return known ? h("a.mono", { href: link.src(known.name, line), title: file }, shown) : h("span.mono", { title: file }, shown);
}
