// Runs before the page is drawn: light or dark as chosen, or as the machine has it.
const dark = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

function apply() {
  const chosen = root.dataset.theme;
  root.dataset.bsTheme = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
}

dark.addEventListener("change", apply);
apply();
