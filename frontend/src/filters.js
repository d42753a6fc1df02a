// Forms of filters leave out what is empty, so that addresses say only what is asked for.
document.addEventListener("htmx:configRequest", (event) => {
  if (!event.target.matches("[data-filters]")) return;
  const { parameters } = event.detail;
  for (const name of Object.keys(parameters)) if (parameters[name] === "") delete parameters[name];
});

// What is wrong with a filter is told in place of what would be found.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (!event.detail.requestConfig?.elt.matches("[data-filters]") || event.detail.xhr.status !== 422) return;
  event.detail.shouldSwap = true;
  event.detail.isError = false;
});

document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-filters]")) return;
  for (const field of event.target.elements) if (field.name && field.value === "") field.disabled = true;
});

window.addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("[data-filters] :disabled")) field.disabled = false;
});
