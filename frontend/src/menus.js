// A menu that folds out over the page folds in again when something else is pressed, or Escape.
function fold(but) {
  for (const menu of document.querySelectorAll("details[data-menu][open]")) if (menu !== but) menu.open = false;
}

document.addEventListener("click", (event) => fold(event.target.closest("details[data-menu]")));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const menu = document.querySelector("details[data-menu][open]");
  fold(null);
  menu?.querySelector("summary").focus();
});
