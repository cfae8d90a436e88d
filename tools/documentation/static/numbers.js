// Lets the search find numbers: Sphinx drops words that are digits only, and here they are statuses of errors ("429").
// The index has them by `WithNumbers` in tools/documentation/conf.py. This runs before the search does: both wait for the
// document, and this file comes first.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return; // a page without results
  const parse = Search._parseQuery;
  Search._parseQuery = (query) => {
    const parsed = parse(query);
    const [, searchTerms, , highlightTerms] = parsed;
    for (const word of splitQuery(query)) {
      if (!/^\d+$/.test(word)) continue;
      searchTerms.add(word);
      highlightTerms.add(word);
    }
    return parsed;
  };
});
