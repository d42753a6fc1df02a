// Forms of filters leave out what is empty, so that addresses say only what is asked for.
document.addEventListener("htmx:configRequest", (event) => {
  if (!event.target.matches("[data-filters]")) return;
  const { parameters } = event.detail;
  for (const name of Object.keys(parameters)) if (parameters[name] === "") delete parameters[name];
});

document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-filters]")) return;
  for (const field of event.target.elements) if (field.name && field.value === "") field.disabled = true;
});

window.addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("[data-filters] :disabled")) field.disabled = false;
});
