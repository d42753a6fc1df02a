// Calls back with the elements of a kind: those of the page as it comes, and after every change of it.
const wishes = [];

export function whenShown(selector, prepare) {
  wishes.push([selector, prepare]);
  look(selector, prepare);
}

export function pageChanged() {
  for (const [selector, prepare] of wishes) look(selector, prepare);
}

function look(selector, prepare) {
  const found = [...document.querySelectorAll(selector)];
  if (found.length) prepare(found);
}

document.addEventListener("htmx:afterSettle", pageChanged);
