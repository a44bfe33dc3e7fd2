// Words of the trade: each has a card at its first use on a page, and all of them stand behind `?`.

const WORDS = [
  ["graph break", "the compiler cannot continue: the graph ends, Python runs the line, a new graph begins"],
  ["recompile", "the inputs no longer fit what was compiled, so the function is compiled again"],
  ["guard", "a check on the inputs that compiled code relies on; it runs before each call"],
  ["[0/2]", "a compile id: function number 0, compiled for the third time"],
  ["[1:0/2]", "the same on rank (or process) 1"],
  ["kernel", "generated code for the operations of a graph that are computed together"],
  ["attempt", "reading the function started over, because something was learned on the way"],
  ["resumed at 9", "the rest of a function, from line 9 on, after a graph break"],
  ["dynamic", "a size the compiled code takes as it comes, not as a constant"],
];

// What the headings of pages say → the word whose card explains it.
const USES = {
  "graph breaks": "graph break", breaks: "graph break", recompiles: "recompile", compiles: "[0/2]", compile: "[0/2]",
  kernels: "kernel",
};

/** Give each word a card where the page uses it first; a pointer or the focus shows it. */
function explainWords(within) {
  const explained = new Set();
  for (const one of within.querySelectorAll("dt, th")) {
    const name = USES[one.textContent.trim().toLowerCase()];
    if (!name || explained.has(name)) continue;
    explained.add(name);
    const id = `word-${explained.size}`;
    const card = h("div.word", { id, role: "tooltip", popover: "manual" }, h("b", null, name), " ", WORDS.find(([word]) => word === name)[1]);
    const term = h("button.term", { type: "button", "aria-describedby": id }, one.textContent);
    const open = () => { if (!card.matches(":popover-open")) showWord(card, term); };
    const close = () => { if (card.matches(":popover-open")) card.hidePopover(); };
    for (const [event, act] of [["mouseenter", open], ["focus", open], ["click", open], ["mouseleave", close], ["blur", close]]) term.addEventListener(event, act);
    term.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !card.matches(":popover-open")) return;
      close();
      event.stopPropagation();
    });
    one.replaceChildren(term);
    within.append(card);
  }
}

function showWord(card, term) {
  const box = term.getBoundingClientRect();
  card.showPopover();
  card.style.left = `${Math.max(8, Math.min(box.left, innerWidth - card.offsetWidth - 8))}px`;
  card.style.top = `${box.bottom + 8 + card.offsetHeight > innerHeight ? box.top - card.offsetHeight - 8 : box.bottom + 8}px`;
}
