// The search box: names at once, the text of all artifacts on request.

const searchBox = document.getElementById("search");
const NAMES = [
  ...DATA.findings.map((one) => [one.title, `${one.id} ${one.place}`, link.finding(one.id)]),
  ...DATA.functions.map((one) => [one.name, place(one.file, one.line), link.fn(one.name)]),
  ...DATA.compiles.map((one) => [`${bracket(one.slug)} ${one.title}`, one.lane, link.compile(one.slug)]),
  ...DATA.compiles.flatMap((one) => one.artifacts.map((artifact) =>
    [`${bracket(one.slug)} ${artifact[2]}`, artifact[1], link.artifact(one.slug, artifact[0])])),
  ...DATA.files.map((one) => [one.name, "your source", link.src(one.name)]),
  ["Where the time went", "", "#/time"],
  ["Cache: hits and misses", "", "#/cache"],
  ...(DATA.ranks.groups.length ? [["Ranks", "", "#/ranks"]] : []),
  ["The trace: records, damage, environment", "", "#/raw"],
];
const MOST_HITS = 60;
let chosen = 0;

function openSearch() {
  const input = h("input", {
    type: "text", role: "searchbox", placeholder: "Finding, function, [0/2], artifact …",
    "aria-label": "Search", autocomplete: "off", spellcheck: "false",
  });
  const list = h("ul", { role: "listbox", "aria-label": "Results" });
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
  searchBox.replaceChildren(input, list, hint);
  searchBox.showModal();
  update();
}

function matches(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = NAMES.filter(([name, note]) => {
    const text = `${name} ${note}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return hits.slice(0, MOST_HITS);
}

function showHits(list, hint, hits, query) {
  list.replaceChildren(...hits.map(([name, note, href]) =>
    h("li", { role: "presentation" },
      h("a", { href, role: "option", tabindex: "-1", click: () => searchBox.close() },
        h("span", null, name), h("small", null, note)))));
  hint.replaceChildren(query.length > 1
    ? h("button.copy", { type: "button", click: () => searchTexts(query, list, hint) },
      "Search the text of all artifacts (Ctrl-Enter)")
    : "Type to search · ↑↓ to choose · Enter to open · Esc to close");
  choose(list, 0);
}

function choose(list, index) {
  const all = list.children;
  chosen = Math.max(0, Math.min(index, all.length - 1));
  [...all].forEach((item, n) => item.firstChild.setAttribute("aria-selected", String(n === chosen)));
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
      hits.push([line, `${bracket(one.slug)} ${one.artifacts[number][2]}`, link.artifact(one.slug, number)]);
    });
  }
  showHits(list, hint, hits, query);
  const quoted = `“${query.trim()}”`;
  hint.textContent = hits.length ? `${count(hits.length, "artifact")} with ${quoted}` : `No artifact holds ${quoted}`;
}
