// A function: what needs attention, the ledger of its compiles, and the compiles.

function functionPage(name) {
  const fn = functionByName.get(name);
  if (!fn) return missingPage(`function ${name}`);
  const index = DATA.functions.indexOf(fn);
  const isMine = (seen) =>
    fn.compiles.includes(seen.compile) || (compileBySlug.get(seen.compile) || {}).function === name;
  const mine = DATA.findings.filter((one) => one.occurrences.some(isMine));
  const badges = [
    state(fn.refused ? "refused" : fn.status),
    fn.file && sourceLink(fn.file, fn.line),
    h("span.soft", null, `${count(fn.compileCount, "compile")} · ${duration(fn.seconds)}`),
    fn.calls && h("span.soft", null, "· ", callsText(fn.calls), recompileRate(fn)),
  ];
  return {
    title: fn.name,
    crumbs: [[fn.name]],
    previous: siblingLink(DATA.functions, index - 1, (one) => link.fn(one.name)),
    next: siblingLink(DATA.functions, index + 1, (one) => link.fn(one.name)),
    body: [
      lead(fn.name, null, badges),
      mine.length > 0 && section("Needs attention", null, h("div.cards", null, mine.map(findingCard))),
      fn.ledger && ledgerPart(fn.ledger),
      compilesPart(fn),
    ],
  };
}

/** What was counted while the program ran: calls, those that ran operation by operation, time. */
function callsText(calls) {
  const eager = calls.eager > 0 && (calls.eager === calls.count
    ? "op by op" : `${calls.eager} of them op by op`);
  const python = calls.python > 0 && `${count(calls.python, "call")} in Python`;
  const each = calls.each !== null && `${shortTime(calls.each)} a call (${calls.timed} timed)`;
  return [calls.count > 0 && count(calls.count, "call"), eager, each, python].filter(Boolean).join(" · ");
}

function recompileRate(fn) {
  return fn.recompiles > 0 ? ` · ${count(fn.recompiles, "recompile")} in ${count(fn.calls.count + fn.calls.python, "call")}` : "";
}

/** Calls take microseconds, where compiles take milliseconds and more. */
function shortTime(seconds) {
  if (seconds >= 0.01) return duration(seconds);
  return seconds >= 0.001 ? `${(seconds * 1e3).toFixed(1)} ms` : `${(seconds * 1e6).toFixed(seconds < 1e-5 ? 1 : 0)} µs`;
}

function callsCells(calls) {
  if (!calls) return [h("td.num.soft", null, "–"), h("td.num.soft", null, "–")];
  const eager = calls.eager > 0 && h("span.soft", null, calls.eager === calls.count ? " op by op" : ` ${calls.eager} op by op`);
  const python = calls.python > 0 && h("span.soft", null, `${calls.count ? " +" : ""} ${calls.python} in Python`);
  return [h("td.num", null, calls.count || null, eager, python), h("td.num", null, calls.each === null ? "–" : shortTime(calls.each))];
}

function compilesPart(fn) {
  const many = DATA.lanes.length > 1;
  const rows = fn.compiles.map((slug) => {
    const one = compileBySlug.get(slug);
    return h("tr", null,
      h("td", null, h("a.chip.row", { href: link.compile(slug) }, bracket(slug))),
      h("td", null, state(one.status)),
      many && h("td.soft", null, one.lane),
      h("td.num", null, duration(one.seconds)),
      h("td", null, one.phases.length > 0 && splitBar(one.phases, true)),
      h("td.soft", null, one.cache || "–"),
      fn.calls && callsCells(one.calls),
      h("td.num", null, one.artifacts.length));
  });
  const process = many ? ["process"] : [];
  const ran = fn.calls ? [["calls", "num"], ["a call", "num"]] : [];
  const columns = ["compile", "status", ...process, ["time", "num"], "phases", "cache", ...ran, ["artifacts", "num"]];
  return section("Compiles", null, table(columns, rows));
}

function ledgerPart(book) {
  const columns = [
    "compile", ...book.columns.map((one) => [one, "src"]), "what changed", "nearest", ["time", "num"], "cache",
  ];
  const note = "each compile, and the inputs it was made for; ◂ marks what differs from the nearest earlier one";
  const rows = book.rows.map((row) => ledgerRow(book, row));
  return section("Ledger", note, table(columns, rows, { class: ".ledger", wide: "Ledger of compiles" }));
}

function ledgerRow(book, row) {
  const compiled = compileBySlug.get(row.compile);
  const changed = book.columns.filter((_, n) => row.changed[n]).join(", ");
  const change = row.refused ? "limit reached: runs in Python" : changed || (row.of ? "" : "first call");
  const cells = row.cells.map((cell, n) => (row.changed[n]
    ? h("td.mono.changed", { "aria-label": `${cell}, changed` }, cell)
    : h("td.mono", null, cell)));
  return h("tr", null,
    h("th", { scope: "row" },
      row.refused ? h("a", { href: link.compile(row.compile) }, "refused") : compileChip(row.compile)),
    cells,
    h("td", null, change),
    h("td.mono.soft", null, row.of && bracket(row.of)),
    h("td.num", null, compiled && duration(compiled.seconds)),
    h("td.soft", null, compiled && (compiled.cache || "–")));
}
