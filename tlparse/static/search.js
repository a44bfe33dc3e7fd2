// The search box: names at once, the text of all artifacts on request.

const searchBox = document.getElementById("search");
const NAMES = [
  ...DATA.findings.map((one) => [one.title, `${one.id} ${one.place}`, link.finding(one.id)]),
  ...DATA.functions.map((one) => [one.name, place(one.file, one.line), link.fn(one.name)]),
  ...DATA.compiles.map((one) => [`${bracket(one.slug)} ${one.title}`, one.lane, link.compile(one.slug)]),
  ...DATA.compiles.flatMap((one) => one.artifacts.map((artifact) =>
    [`${bracket(one.slug)} ${nameOf(artifact)}`, artifact[1], link.artifact(one.slug, artifact[0])])),
  ...DATA.files.map((one) => [one.name, "your source", link.src(one.name)]),
  ["Where the time went", "", "#/time"],
  ["Cache: hits and misses", "", "#/cache"],
  ...(DATA.ranks.groups.length ? [["Ranks", "", "#/ranks"]] : []),
  ["The trace: records, damage, environment", "", "#/raw"],
];
const COMMANDS = [
  ...SCREENS.map(([name, href], n) => [`Go to ${name.toLowerCase()}`, `${n + 1}`, href]),
  ["Light or dark", "t", () => toggleTheme()], ["Copy the link of this page", "y", () => copyText(location.href)],
  ["Copy a summary for an issue", "", () => copyText(summaryText())],
  ["Copy the time as a Chrome trace", "", () => copyText(JSON.stringify(chromeTrace()))],
  ["Mark this artifact to compare it", "d", () => markForDiff()], ["Keys and words", "?", () => openKeys()], ["Print", "", () => print()],
];
const MOST_HITS = 60;

/** What a bug report begins with. */
function summaryText() {
  const rows = DATA.findings.map((one) => `- ${one.id} ×${one.count} ${one.title}${one.place ? ` (${one.place})` : ""}${one.fix.length ? `: ${one.fix[0]}` : ""}`);
  return [DATA.headline, ...rows].join("\n");
}
let chosen = 0;

function openSearch(begin = "") {
  const input = h("input", {
    type: "text", role: "combobox", "aria-controls": "hits", "aria-expanded": "true", "aria-autocomplete": "list", placeholder: "Finding, function, [0/2], artifact …",
    "aria-label": "Search", autocomplete: "off", spellcheck: "false",
  });
  const list = h("ul", { id: "hits", role: "listbox", "aria-label": "Results" });
  const hint = h("div.hint");
  const update = () => showHits(list, hint, matches(input.value), input.value);
  input.addEventListener("input", update);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      choose(list, chosen + (event.key === "ArrowDown" ? 1 : -1));
      event.preventDefault();
    } else if (event.key === "Enter") {
      if (event.ctrlKey || !list.children.length) searchTexts(input.value, list, hint);
      else list.children[chosen].firstChild.click();
      event.preventDefault();
    }
  });
  input.value = begin;
  searchBox.replaceChildren(input, list, hint);
  searchBox.showModal();
  update();
}

function matches(query) {
  const asked = query.startsWith(">");
  const words = query.slice(asked ? 1 : 0).toLowerCase().split(/\s+/).filter(Boolean);
  const hits = (asked ? COMMANDS : NAMES).filter(([name, note]) => {
    const text = `${name} ${note}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return hits.slice(0, MOST_HITS);
}

function showHits(list, hint, hits, query) {
  list.replaceChildren(...hits.map(([name, note, href], n) =>
    h("li", { role: "presentation" },
      h("a", { href: typeof href === "string" ? href : location.hash || "#/", id: `hit-${n}`, role: "option", tabindex: "-1", click: (event) => {
        searchBox.close();
        if (typeof href === "function") { event.preventDefault(); href(); }
      } },
        h("span", null, name), h("small", null, note)))));
  hint.replaceChildren(query.length > 1 && !query.startsWith(">")
    ? h("button.copy", { type: "button", click: () => searchTexts(query, list, hint) },
      "Search the text of all artifacts (Ctrl-Enter)")
    : "Type to search, > for commands · ↑↓ to choose · Enter to open · Esc to close");
  choose(list, 0);
}

function choose(list, index) {
  const all = list.children;
  chosen = Math.max(0, Math.min(index, all.length - 1));
  [...all].forEach((item, n) => item.firstChild.setAttribute("aria-selected", String(n === chosen)));
  searchBox.querySelector("input")?.setAttribute("aria-activedescendant", all[chosen] ? `hit-${chosen}` : "");
  if (all[chosen]) all[chosen].scrollIntoView({ block: "nearest" });
}

async function searchTexts(query, list, hint) {
  const wanted = query.trim().toLowerCase();
  if (!wanted) return;
  hint.textContent = "Searching …";
  const hits = [];
  for (const one of DATA.compiles) {
    if (hits.length >= MOST_HITS) break;
    (await textsOf(one)).forEach((text, number) => {
      const at = text.toLowerCase().indexOf(wanted);
      if (at < 0 || hits.length >= MOST_HITS) return;
      const line = text.slice(text.lastIndexOf("\n", at) + 1).split("\n", 1)[0].trim().slice(0, 120);
      hits.push([line, `${bracket(one.slug)} ${nameOf(one.artifacts[number])}`, link.artifact(one.slug, number)]);
    });
  }
  showHits(list, hint, hits, query);
  const quoted = `“${query.trim()}”`;
  hint.textContent = hits.length ? `${count(hits.length, "artifact")} with ${quoted}` : `No artifact holds ${quoted}`;
}
