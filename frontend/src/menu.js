// Where a row of links is longer than the screen, the one that leads here is to be seen.
for (const here of document.querySelectorAll(".side nav [aria-current], .tabs [aria-current]")) {
  const row = here.closest(".tabs, nav");
  row.scrollLeft = here.offsetLeft - row.offsetLeft - (row.clientWidth - here.offsetWidth) / 2;
}
