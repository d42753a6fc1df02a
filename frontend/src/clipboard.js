// A button with data-copy copies the text of the element that it names.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.querySelector(button.dataset.copy).textContent;
  await navigator.clipboard.writeText(text);
  button.dataset.copied = "";
  setTimeout(() => delete button.dataset.copied, 1500);
});
