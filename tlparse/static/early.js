// Before the first paint: the theme chosen last time, else that of the system.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("tc-theme"); } catch { /* storage may be refused */ }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = chosen || (dark ? "dark" : "light");
})();
