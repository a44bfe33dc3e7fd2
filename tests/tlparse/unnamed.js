// Controls and regions that a screen reader could not name.
return [...document.querySelectorAll('a, button, input, [role=region], [role=img], dialog')]
  .filter((n) => !(n.getAttribute('aria-label') || n.textContent.trim() || n.title)).map((n) => n.outerHTML.slice(0, 90));
