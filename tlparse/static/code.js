// Colours for code, made of text nodes only.

const KEYWORDS = new Set((
  "False None True and as assert async await break class continue def del elif else except finally " +
  "for from global if import in is lambda nonlocal not or pass raise return try while with yield " +
  "auto bool char const double extern float inline int int64_t long namespace static struct " +
  "template this typename unsigned using void null true false"
).split(" "));
const TOKEN = new RegExp([
  String.raw`(\/\*.*?\*\/)`, // a comment within the line
  String.raw`("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')`,
  String.raw`(#include\b.*|#pragma\b.*|#.*|\/\/.*)`,
  String.raw`\b(0x[\da-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?f?)\b`,
  String.raw`\b([A-Za-z_]\w*)\b`,
].join("|"), "g");
const DIRECTIVE = /^#(include|pragma|define|if|endif|else)/;

/** Colour one line of code; long or plain lines stay as they are. */
function coloured(line, kind) {
  if (kind === "text" || line.length > 2000) return [line || "\u200b"];
  const out = [];
  let at = 0;
  for (const match of line.matchAll(TOKEN)) {
    const [all, block, string, comment, number, word] = match;
    if (comment && kind === "json") continue;
    if (comment && kind === "cpp" && comment.startsWith("#") && !DIRECTIVE.test(comment)) continue;
    if (comment && kind === "python" && comment.startsWith("//")) continue;
    const style = string ? "s" : comment || block ? "c" : number ? "n" : KEYWORDS.has(word) ? "k"
      : line[match.index + all.length] === "(" ? "f" : "";
    if (!style) continue;
    out.push(line.slice(at, match.index), h(`span.${style}`, null, all));
    at = match.index + all.length;
  }
  out.push(line.slice(at) || (at ? "" : "\u200b"));
  return out;
}
