// Contrast of every visible text against what is painted behind it (WCAG: 4.5, or 3 for large).
const rgb = (c) => { const m = c.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m[3] ?? 1]; };
const lum = ([r, g, b]) => [r, g, b].map((v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; })
  .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
const behind = (n) => { for (; n; n = n.parentElement) { const c = getComputedStyle(n).backgroundColor;
  if (c.startsWith('rgb') && rgb(c)[3] > .9) return rgb(c); } return [255, 255, 255, 1]; };
const bad = [];
for (const n of document.querySelectorAll('body *')) {
  if (![...n.childNodes].some((c) => c.nodeType === 3 && c.data.trim()) || !n.offsetParent) continue;
  if (n.closest('script, style, noscript, #toast, dialog:not([open])')) continue;
  const s = getComputedStyle(n), a = lum(rgb(s.color)), b = lum(behind(n));
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  const large = parseFloat(s.fontSize) >= 24 || (parseFloat(s.fontSize) >= 18.6 && s.fontWeight >= 700);
  if (ratio < (large ? 3 : 4.5)) bad.push(`${n.tagName}.${n.className} ${n.textContent.trim().slice(0, 20)} ${ratio.toFixed(2)}`);
}
return bad;
