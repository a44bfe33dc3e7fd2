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
      h("td.num", null, one.artifacts.length));
  });
  const process = many ? ["process"] : [];
  const columns = ["compile", "status", ...process, ["time", "num"], "phases", "cache", ["artifacts", "num"]];
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
  const told = row.refused ? "limit reached: runs in Python" : changed || (row.of ? "" : "first call");
  const cells = row.cells.map((cell, n) => (row.changed[n]
    ? h("td.mono.changed", { "aria-label": `${cell}, changed` }, cell)
    : h("td.mono", null, cell)));
  return h("tr", null,
    h("th", { scope: "row" },
      row.refused ? h("a", { href: link.compile(row.compile) }, "refused") : compileChip(row.compile)),
    cells,
    h("td", null, told),
    h("td.mono.soft", null, row.of && bracket(row.of)),
    h("td.num", null, compiled && duration(compiled.seconds)),
    h("td.soft", null, compiled && (compiled.cache || "–")));
}
