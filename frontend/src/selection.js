// Rows that are chosen for an action on all of them: a form with data-selection shows how many are, and the box at the
// head chooses all.
import { whenShown } from "./shown.js";

function count(form) {
  const boxes = [...form.querySelectorAll("input[name=selected]")];
  const chosen = boxes.filter((each) => each.checked).length;
  form.toggleAttribute("data-chosen", chosen > 0);
  for (const each of form.querySelectorAll("[data-count]")) each.textContent = chosen;
  const all = form.querySelector("[data-choose-all]");
  if (all) {
    all.checked = chosen > 0 && chosen === boxes.length;
    all.indeterminate = chosen > 0 && chosen < boxes.length;
  }
}

document.addEventListener("change", (event) => {
  const form = event.target.closest("[data-selection]");
  if (!form) return;
  if (event.target.matches("[data-choose-all]")) {
    for (const each of form.querySelectorAll("input[name=selected]")) each.checked = event.target.checked;
  }
  count(form);
});

whenShown("[data-selection]", (forms) => forms.forEach(count));
